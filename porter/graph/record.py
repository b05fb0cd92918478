"""The graph as plain values in port.json, and back. Every value is checked, because a port may come from a
stranger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from porter.base.errors import GraphError, PaddingError
from porter.graph.graph import MOST_INPUTS, Argument, BlockScope, FurtherInput, Graph, Node, shapes
from porter.graph.ops import MOST_AXES, OPS, Op
from porter.graph.ops.kinds import COUNT, attributes, defaults, short_text
from porter.padding import LOWEST

_PATH = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
_LONGEST_PATH = 200
_DEEPEST_LIST = 8
"""So deep lists may lie in each other as arguments of a block."""


def to_record(graph: Graph) -> dict[str, Any]:
    """Return the graph as plain JSON values, for port.json."""
    nodes = []
    for node in graph.nodes:
        entry: dict[str, Any] = {"path": node.path, "op": node.op_name, "inputs": list(node.inputs)}
        if node.shares is not None:
            entry["shares"] = node.shares
        nodes.append(entry | _as_json(asdict(node.op)))
    scopes = [
        {"path": scope.path, "block": scope.block, "arguments": _as_json(dict(scope.arguments))}
        for scope in graph.scopes
    ]
    record: dict[str, Any] = {"channels": graph.channels}
    if graph.axes:
        record["axes"] = list(graph.axes)
    if graph.further_inputs:
        record["further_inputs"] = [_as_json(asdict(further)) for further in graph.further_inputs]
    output = list(graph.outputs) if graph.further else graph.output
    return {**record, "output": output, "nodes": nodes, "scopes": scopes}


def from_record(record: object) -> Graph:
    """Read the graph that `to_record` wrote.

    Every value is checked for its type and its bounds; paths are names joined by slashes.

    Raises:
        GraphError: the record has another form, or its shapes do not fit.
    """
    try:
        if isinstance(record, Mapping):  # these are left out where they are empty
            record = {"axes": [], "further_inputs": [], **record}
        keys = {"channels", "axes", "further_inputs", "output", "nodes", "scopes"}
        entry = _expect_object(record, keys)
        stated_axes = _expect_list(entry["axes"], MOST_AXES)
        axes = tuple(axis if axis is None else COUNT.read(axis) for axis in stated_axes)
        nodes = tuple(_read_node(node) for node in _expect_list(entry["nodes"]))
        scopes = tuple(_read_scope(scope) for scope in _expect_list(entry["scopes"]))
        stated_output = entry["output"]
        has_several = isinstance(stated_output, list) and stated_output
        output, *further = map(_read_path, stated_output if has_several else [stated_output])
        further_inputs = tuple(map(_read_further_input, _expect_list(entry["further_inputs"], MOST_INPUTS)))
        channels = COUNT.read(entry["channels"])
        graph = Graph(nodes, channels, output, scopes, tuple(further), axes, further_inputs)
    except (ValueError, PaddingError) as error:
        raise GraphError(
            f"the graph's record cannot be read: {error}", where="graph", next="convert again"
        ) from None
    shapes(graph, (None, None))
    return graph


def expect_attributes(op: Op) -> None:
    """Refuse an op that no record can state, such as a convolution in no groups.

    Raises:
        GraphError: an attribute has another type or range than `from_record` reads.
    """
    for name, value in _as_json(asdict(op)).items():
        try:
            attributes(type(op))[name].read(value)
        except (ValueError, PaddingError) as error:
            raise GraphError(f"{name}: {error}") from None


def _read_node(value: object) -> Node:
    """Read a node of port.json. Raises ValueError if it is none, names an op that porter lacks, or has an
    attribute of another kind.
    """
    entry = dict(value) if isinstance(value, Mapping) else {}
    kind = OPS.get(entry["op"]) if isinstance(entry.get("op"), str) else None
    if kind is None:
        raise ValueError(f"expected a node with an op that porter has, got {short_text(value)}")
    # A port of an older porter lacks the attributes that are new since.
    entry = _expect_object(
        {"shares": None, **_as_json(defaults(kind)), **entry},
        {"path", "op", "inputs", "shares", *attributes(kind)},
    )
    path = _read_path(entry["path"])
    try:
        op = kind(**{name: attribute.read(entry[name]) for name, attribute in attributes(kind).items()})
    except (ValueError, PaddingError) as error:
        raise ValueError(f"{path}: {error}") from None
    shares = None if entry["shares"] is None else _read_path(entry["shares"])
    return Node(path, op, tuple(_read_path(source) for source in _expect_list(entry["inputs"])), shares)


def _read_further_input(value: object) -> FurtherInput:
    """Read a further input of port.json. Raises ValueError for another value."""
    entry = _expect_object(value, {"path", "name", "channels", "size", "axes"})
    sides = [side if side is None else COUNT.read(side) for side in _expect_list(entry["size"], 2)]
    if len(sides) != 2:
        raise ValueError(f"expected rows and columns, got {short_text(entry['size'])}")
    rows, columns = sides
    axes = tuple(map(COUNT.read, _expect_list(entry["axes"], MOST_AXES)))
    if not isinstance(entry["name"], str):
        raise ValueError(f"expected the name of an input, got {short_text(entry['name'])}")
    return FurtherInput(
        _read_path(entry["path"]), entry["name"], COUNT.read(entry["channels"]), (rows, columns), axes
    )


def _read_scope(value: object) -> BlockScope:
    """Read the use of a block of port.json. Raises ValueError for another value."""
    entry = _expect_object(value, {"path", "block", "arguments"})
    if not isinstance(entry["arguments"], Mapping):
        raise ValueError(f"expected arguments by name, got {short_text(entry['arguments'])}")
    arguments = {_read_path(name): _read_argument(item) for name, item in entry["arguments"].items()}
    return BlockScope(_read_path(entry["path"]), _read_path(entry["block"]), arguments)


def _read_argument(value: object, depth: int = 0) -> Argument:
    """Read an argument of a block: a word, a number, or a list of these. Raises ValueError for others."""
    if isinstance(value, list) and depth < _DEEPEST_LIST:
        return tuple(_read_argument(item, depth + 1) for item in value)
    if not isinstance(value, int | float | bool | str | None):
        raise ValueError(f"expected a word, a number or a list of these, got {short_text(value)}")
    return value


def _expect_object(value: object, keys: set[str]) -> dict[str, Any]:
    """Return an object that has exactly these keys, or raise ValueError."""
    if not isinstance(value, Mapping) or set(value) != keys:
        raise ValueError(f"expected an object with {', '.join(sorted(keys))}, got {short_text(value)}")
    return dict(value)


def _expect_list(value: object, most: int | None = None) -> list[Any]:
    """Return a list, of at most so many values, or raise ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {short_text(value)}")
    if most is not None and len(value) > most:
        raise ValueError(f"expected at most {most} values, got {len(value)}")
    return value


def _read_path(value: object) -> str:
    """Return a path, names joined by slashes, or raise ValueError."""
    is_path = isinstance(value, str) and len(value) <= _LONGEST_PATH and _PATH.fullmatch(value)
    if not isinstance(value, str) or not is_path:
        raise ValueError(f"expected names joined by slashes, got {short_text(value)}")
    return value


def _as_json(value: Any) -> Any:
    """Return a value as JSON can have it: lists for tuples, and "-inf" for that number."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return "-inf" if value == LOWEST else value

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
from porter.graph.ops.kinds import COUNT, attributes, defaults, short
from porter.padding import LOWEST


def to_record(graph: Graph) -> dict[str, Any]:
    """The graph as plain JSON values, for port.json."""
    nodes = [
        {"path": node.path, "op": node.op_name, "inputs": list(node.inputs)}
        | ({"shares": node.shares} if node.shares is not None else {})
        | _jsonable(asdict(node.op))
        for node in graph.nodes
    ]
    scopes = [
        {"path": scope.path, "block": scope.block, "arguments": _jsonable(dict(scope.arguments))}
        for scope in graph.scopes
    ]
    output = list(graph.outputs) if graph.further else graph.output
    axes = {"axes": list(graph.axes)} if graph.axes else {}
    further = (
        {"further_inputs": [_jsonable(asdict(each)) for each in graph.further_inputs]}
        if graph.further_inputs
        else {}
    )
    return {"channels": graph.channels, **axes, **further, "output": output, "nodes": nodes, "scopes": scopes}


def from_record(record: object) -> Graph:
    """The graph that `to_record` wrote.

    Every value is checked for its type and its bounds; paths are names joined by slashes.

    Raises:
        GraphError: the record has another form, or its shapes do not fit.
    """
    try:
        fields_of_record = (
            {"axes": [], "further_inputs": [], **record} if isinstance(record, Mapping) else record
        )
        entry = _object(fields_of_record, {"channels", "axes", "further_inputs", "output", "nodes", "scopes"})
        axes = tuple(axis if axis is None else COUNT.read(axis) for axis in _array(entry["axes"])[:MOST_AXES])
        nodes = tuple(_node(node) for node in _array(entry["nodes"]))
        scopes = tuple(_scope(scope) for scope in _array(entry["scopes"]))
        outputs = (
            entry["output"] if isinstance(entry["output"], list) and entry["output"] else [entry["output"]]
        )
        first, *further = map(_path, outputs)
        beside = tuple(map(_further_input, _array(entry["further_inputs"])[:MOST_INPUTS]))
        graph = Graph(nodes, COUNT.read(entry["channels"]), first, scopes, tuple(further), axes, beside)
    except (ValueError, PaddingError) as error:
        raise GraphError(
            f"the graph's record cannot be read: {error}", where="graph", next="convert again"
        ) from None
    shapes(graph, (None, None))
    return graph


def expect_attributes(op: Op) -> None:
    """Refuses an op that no record can state, such as a convolution in no groups.

    Raises:
        GraphError: an attribute has another type or range than `from_record` reads.
    """
    for name, value in _jsonable(asdict(op)).items():
        try:
            attributes(type(op))[name].read(value)
        except (ValueError, PaddingError) as error:
            raise GraphError(f"{name}: {error}") from None


def _node(value: object) -> Node:
    """A node as port.json has it."""
    entry = dict(value) if isinstance(value, Mapping) else {}
    kind = OPS.get(entry["op"]) if isinstance(entry.get("op"), str) else None
    if kind is None:
        raise ValueError(f"expected a node with an op that porter has, got {short(value)}")
    # A port of an older porter lacks the attributes that are new since.
    entry = _object(
        {"shares": None, **_jsonable(defaults(kind)), **entry},
        {"path", "op", "inputs", "shares", *attributes(kind)},
    )
    path = _path(entry["path"])
    try:
        op = kind(**{name: each.read(entry[name]) for name, each in attributes(kind).items()})
    except (ValueError, PaddingError) as error:
        raise ValueError(f"{path}: {error}") from None
    shares = None if entry["shares"] is None else _path(entry["shares"])
    return Node(path, op, tuple(_path(source) for source in _array(entry["inputs"])), shares)


def _further_input(value: object) -> FurtherInput:
    entry = _object(value, {"path", "name", "channels", "size", "axes"})
    rows, columns = (side if side is None else COUNT.read(side) for side in _array(entry["size"]))
    axes = tuple(map(COUNT.read, _array(entry["axes"])[:MOST_AXES]))
    if not isinstance(entry["name"], str):
        raise ValueError(f"expected the name of an input, got {short(entry['name'])}")
    return FurtherInput(
        _path(entry["path"]), entry["name"], COUNT.read(entry["channels"]), (rows, columns), axes
    )


def _scope(value: object) -> BlockScope:
    entry = _object(value, {"path", "block", "arguments"})
    if not isinstance(entry["arguments"], Mapping):
        raise ValueError(f"expected arguments by name, got {short(entry['arguments'])}")
    arguments = {_path(name): _argument(item) for name, item in entry["arguments"].items()}
    return BlockScope(_path(entry["path"]), _path(entry["block"]), arguments)


def _argument(value: object, depth: int = 0) -> Argument:
    if isinstance(value, list) and depth < 8:
        return tuple(_argument(item, depth + 1) for item in value)
    if not isinstance(value, int | float | bool | str | None):
        raise ValueError(f"expected a word, a number or a list of these, got {short(value)}")
    return value


def _object(value: object, keys: set[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(value) != keys:
        raise ValueError(f"expected an object with {', '.join(sorted(keys))}, got {short(value)}")
    return dict(value)


def _array(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {short(value)}")
    return value


def _path(value: object) -> str:
    if (
        not isinstance(value, str)
        or len(value) > 200
        or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", value, re.ASCII)
    ):
        raise ValueError(f"expected names joined by slashes, got {short(value)}")
    return value


def _jsonable(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    return "-inf" if value == LOWEST else value

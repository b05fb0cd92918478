"""The graph as plain values in port.json, and back. Every value is checked, because a port may come from a stranger."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, get_args

from porter.errors import GraphError, PaddingError
from porter.graph.graph import Argument, Graph, Node, Scope, shapes
from porter.graph.ops import MOST_CONSTANTS, OPS, Op, op as kinds
from porter.padding import LARGEST, LOWEST, Convention, Window

LARGEST_COUNT = 2**24
"""The most channels, filters, groups and units: far more than any model has, and far too few to exhaust the memory."""


def to_record(graph: Graph) -> dict[str, Any]:
    """The graph as plain JSON values, for port.json."""
    nodes = [
        {"path": node.path, "op": node.op_name, "inputs": list(node.inputs), **_jsonable(asdict(node.op))}  # type: ignore[call-overload]
        for node in graph.nodes
    ]
    scopes = [{"path": scope.path, "block": scope.block, "arguments": _jsonable(dict(scope.arguments))} for scope in graph.scopes]
    output = list(graph.outputs) if graph.further else graph.output
    return {"channels": graph.channels, "output": output, "nodes": nodes, "scopes": scopes}


def from_record(record: object) -> Graph:
    """The graph that `to_record` wrote.

    Every value is checked for its type and its bounds; paths are names joined by slashes.

    Raises:
        GraphError: the record has another form, or its shapes do not fit.
    """
    try:
        entry = _object(record, {"channels", "output", "nodes", "scopes"})
        nodes = tuple(_node(node) for node in _array(entry["nodes"]))
        scopes = tuple(_scope(scope) for scope in _array(entry["scopes"]))
        outputs = entry["output"] if isinstance(entry["output"], list) and entry["output"] else [entry["output"]]
        first, *further = map(_path, outputs)
        graph = Graph(nodes, _count(entry["channels"]), first, scopes, tuple(further))
    except (ValueError, PaddingError) as error:
        raise GraphError(f"the graph's record cannot be read: {error}", where="graph", next="convert again") from None
    shapes(graph, (None, None))
    return graph


def read_attribute(kind: type[Op], name: str, value: object) -> Any:
    """An op's attribute from a plain value: lists for tuples, "-inf" for that number.

    Raises:
        ValueError: its type or its range is wrong.
    """
    return _READERS[attributes(kind)[name]](value)


def expect_attributes(op: Op) -> None:
    """Refuses an op that no record can state, such as a convolution in no groups.

    Raises:
        GraphError: an attribute has another type or range than `read_attribute` reads.
    """
    for name, value in _jsonable(asdict(op)).items():  # type: ignore[call-overload]
        try:
            read_attribute(type(op), name, value)
        except (ValueError, PaddingError) as error:
            raise GraphError(f"{name}: {error}") from None


def attributes(kind: type[Op]) -> dict[str, str]:
    """The attributes of an op, to what each may be, as porter.graph.ops.op names it."""
    return {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]


def defaults(kind: type[Op]) -> dict[str, Any]:
    """The attributes of an op that have a default."""
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}  # type: ignore[arg-type]


def _node(value: object) -> Node:
    entry = dict(value) if isinstance(value, Mapping) else {}
    kind = OPS.get(entry["op"]) if isinstance(entry.get("op"), str) else None
    if kind is None:
        raise ValueError(f"expected a node with an op that porter has, got {_short(value)}")
    # A port of an older porter lacks the attributes that are new since.
    entry = _object({**_jsonable(defaults(kind)), **entry}, {"path", "op", "inputs", *attributes(kind)})
    path = _path(entry["path"])
    try:
        op = kind(**{name: read_attribute(kind, name, entry[name]) for name in attributes(kind)})
    except (ValueError, PaddingError) as error:
        raise ValueError(f"{path}: {error}") from None
    return Node(path, op, tuple(_path(source) for source in _array(entry["inputs"])))


def _scope(value: object) -> Scope:
    entry = _object(value, {"path", "block", "arguments"})
    if not isinstance(entry["arguments"], Mapping):
        raise ValueError(f"expected arguments by name, got {_short(entry['arguments'])}")
    arguments = {_path(name): _argument(item) for name, item in entry["arguments"].items()}
    return Scope(_path(entry["path"]), _path(entry["block"]), arguments)


def _argument(value: object, depth: int = 0) -> Argument:
    if isinstance(value, list) and depth < 8:
        return tuple(_argument(item, depth + 1) for item in value)
    if not isinstance(value, int | float | bool | str | None):
        raise ValueError(f"expected a word, a number or a list of these, got {_short(value)}")
    return value


def _window(value: object) -> Window:
    entry = _object(value, {"kernel", "stride", "dilation"})
    kernel, stride, dilation = (tuple(_array(entry[name])) for name in ("kernel", "stride", "dilation"))
    return Window(kernel, stride, dilation)


def _convention(value: object) -> Convention:
    entry = _object(value, {"rule", "pads", "fill", "average", "rounding"})
    fill = LOWEST if entry["fill"] == "-inf" else entry["fill"]
    return Convention(entry["rule"], tuple(_array(entry["pads"])), fill, entry["average"], entry["rounding"])


def _object(value: object, keys: set[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(value) != keys:
        raise ValueError(f"expected an object with {', '.join(sorted(keys))}, got {_short(value)}")
    return dict(value)


def _array(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {_short(value)}")
    return value


def _path(value: object) -> str:
    if not isinstance(value, str) or len(value) > 200 or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", value, re.ASCII):
        raise ValueError(f"expected names joined by slashes, got {_short(value)}")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST_COUNT:
        raise ValueError(f"expected a whole number from 1 to {LARGEST_COUNT}, got {_short(value)}")
    return value


def _share(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError(f"expected a number from 0 to 1, got {_short(value)}")
    return float(value)  # type: ignore[arg-type]


def _constants(value: object) -> tuple[float, ...]:
    values = _array(value)
    if not 1 <= len(values) <= MOST_CONSTANTS:
        raise ValueError(f"expected 1 to {MOST_CONSTANTS} numbers, got {len(values)}")
    for number in values:
        # A whole number may be too large for float(), so it is compared first.
        if type(number) not in (int, float) or not abs(number) <= sys.float_info.max:
            raise ValueError(f"expected finite numbers, got {_short(number)}")
    return tuple(map(float, values))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) > LARGEST_COUNT:
        raise ValueError(f"expected a whole number from -{LARGEST_COUNT} to {LARGEST_COUNT}, got {_short(value)}")
    return value


def _number(value: object) -> float:
    return _constants([value])[0]


def _fill(value: object) -> float:
    return LOWEST if value in ("-inf", LOWEST) else _number(value)


def _pads(value: object) -> tuple[int, ...]:
    amounts = tuple(map(_whole, _array(value)))
    if len(amounts) != 4 or max(map(abs, amounts)) > LARGEST:
        raise ValueError(f"expected four numbers of cells, at most {LARGEST} each, got {_short(value)}")
    return amounts


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}, got {_short(value)}")
        return str(value)

    return read


_READERS: Mapping[str, Callable[[object], Any]] = {
    "Count": _count,
    "Whole": _whole,
    "Share": _share,
    "Number": _number,
    "Fill": _fill,
    "Pads": _pads,
    "tuple[float, ...]": _constants,
    "bool": _flag,
    "Window": _window,
    "Convention": _convention,
    **{name: _one_of(get_args(getattr(kinds, name))) for name in ("Order", "Blocks", "Function", "Axis", "Mode")},
}
"""The reader of an op's attribute, by its annotation."""


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value]
    return "-inf" if value == LOWEST else value

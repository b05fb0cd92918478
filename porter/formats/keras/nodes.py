"""The arguments of one call of a Keras layer, as configs write them: tensors of other layers, and constants.

Keras 3 writes `{"args": [...], "kwargs": {...}}` with `__keras_tensor__` objects
(keras/src/models/functional.py, serialize_node); Keras 1 and 2 write `[["layer", 0, 0, {...}], ...]`, and
since TensorFlow 2.4 a single such entry for a call without a list, and an object of such entries for a call
with a dict. Both take a dict's values in the order of its sorted keys, whatever the file's order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from porter.formats.limits import StatedFields

_CONSTANT = "_CONSTANT_VALUE"
"""Keras 2's mark of a first argument that is not a tensor (keras/engine/node.py)."""


@dataclass(frozen=True)
class KerasHistory:
    """An output of a call in the same model, under Keras's name for it: the layer's name, the number of its
    call, the number of the output.
    """

    layer: str
    call: int
    output: int


@dataclass(frozen=True)
class Inbound:
    """The arguments of one call, with references for tensors; tuples for lists, dicts for objects. `keras3`:
    Keras 3 wrote it.
    """

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    keras3: bool = False

    def references(self) -> Iterator[KerasHistory]:
        yield from _histories(self.arguments)
        yield from _histories(tuple(self.keywords.values()))

    def replaced(self, with_value: Callable[[KerasHistory], Any]) -> Inbound:
        """The same arguments with each reference replaced."""
        return Inbound(
            tuple(_replaced(argument, with_value) for argument in self.arguments),
            {name: _replaced(value, with_value) for name, value in self.keywords.items()},
            self.keras3,
        )


def parse_inbound(node: Any, layers: Collection[str]) -> Inbound:
    """One entry of a layer's `inbound_nodes`. `layers` are the names in the layer's model.

    Raises:
        ValueError, TypeError: the entry has none of the known forms.
    """
    if isinstance(node, dict) and node.keys() == {"args", "kwargs"}:
        arguments = _parse(node["args"])
        return Inbound(
            tuple(arguments), {name: _parse(value) for name, value in node["kwargs"].items()}, keras3=True
        )
    if not isinstance(node, dict | list) or not node:
        raise ValueError("an inbound node is neither an object nor a list")
    entries = list(node.values()) if isinstance(node, dict) else [node] if isinstance(node[0], str) else node
    keywords = entries[0][3] if len(entries[0]) > 3 else {}
    parsed = [_entry(entry) for entry in entries]
    argument = (
        dict(zip(node, parsed, strict=True))
        if isinstance(node, dict)
        else parsed[0]
        if len(parsed) == 1
        else tuple(parsed)
    )
    return Inbound((argument,), {name: _keyword(value, layers) for name, value in keywords.items()})


def parse_references(value: Any) -> list[KerasHistory]:
    """A model's `input_layers` or `output_layers`: `["a", 0, 0]`, a list of such, or an object of such in the
    order of its keys.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, dict):
        return [each for _, item in sorted(value.items()) for each in parse_references(item)]
    if not isinstance(value, list):
        raise ValueError("inputs and outputs of a model are lists")
    if _is_reference(value):
        return [KerasHistory(value[0], value[1], value[2])]
    return [each for item in value for each in parse_references(item)]


def _entry(entry: Any) -> Any:
    if entry[0] == _CONSTANT:
        return entry[2]
    if not _is_reference(entry[:3]):
        raise ValueError("an inbound node names no layer")
    return KerasHistory(entry[0], entry[1], entry[2])


def _keyword(value: Any, layers: Collection[str]) -> Any:
    if isinstance(value, list) and _is_reference(value) and value[0] in layers:
        return KerasHistory(value[0], value[1], value[2])
    return value


def _is_reference(value: list[Any]) -> bool:
    return (
        len(value) == 3
        and isinstance(value[0], str)
        and all(type(number) is int and number >= 0 for number in value[1:])
    )


def _parse(value: Any) -> Any:
    """A Keras 3 argument: tensors become references, lists tuples, arrays their nested lists, dicts of values
    dicts.
    """
    if isinstance(value, list):
        return tuple(_parse(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "class_name" not in value:
        return StatedFields((key, _parse(item)) for key, item in value.items())
    kind = value["class_name"]
    if kind == "__keras_tensor__":
        layer, call, output = value["config"]["keras_history"]
        return KerasHistory(layer, call, output)
    if kind in ("__numpy__", "__tensor__"):
        return value["config"]["value"]
    return tuple(_parse(item) for item in value["config"]["value"]) if kind == "__tuple__" else value


def _histories(value: Any) -> Iterator[KerasHistory]:
    if isinstance(value, KerasHistory):
        yield value
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _histories(item)


def _replaced(value: Any, with_value: Callable[[KerasHistory], Any]) -> Any:
    if isinstance(value, KerasHistory):
        return with_value(value)
    if isinstance(value, dict):
        return StatedFields((key, _replaced(item, with_value)) for key, item in value.items())
    return tuple(_replaced(item, with_value) for item in value) if isinstance(value, tuple) else value

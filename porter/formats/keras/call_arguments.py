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
        """Yield the references in all arguments, in order."""
        yield from _references_in(self.arguments)
        yield from _references_in(tuple(self.keywords.values()))

    def resolve(self, value_of: Callable[[KerasHistory], Any]) -> Inbound:
        """Return the same arguments with `value_of` each reference in its place."""
        return Inbound(
            tuple(_replace_references(argument, value_of) for argument in self.arguments),
            {name: _replace_references(value, value_of) for name, value in self.keywords.items()},
            self.keras3,
        )


def parse_inbound(node: Any, layers: Collection[str]) -> Inbound:
    """Parse one entry of a layer's `inbound_nodes`, the arguments of one call.

    Args:
        node: the entry, in any of the forms that this module names.
        layers: the names in the layer's model.

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
    if isinstance(node, dict):
        entries = [*node.values()]
    # A single entry, of a call without a list.
    elif isinstance(node[0], str):
        entries = [node]
    else:
        entries = node
    # An entry is the layer, its call, its output and, if there are any, the keywords of this call.
    keywords = entries[0][3] if len(entries[0]) > 3 else {}
    parsed = [_parse_entry(entry) for entry in entries]
    argument: Any = tuple(parsed)
    if isinstance(node, dict):
        argument = dict(zip(node, parsed, strict=True))
    elif len(parsed) == 1:
        argument = parsed[0]
    return Inbound((argument,), {name: _parse_keyword(value, layers) for name, value in keywords.items()})


def parse_references(value: Any) -> list[KerasHistory]:
    """Return the references in a model's `input_layers` or `output_layers`: `["a", 0, 0]`, a list of such, or
    an object of such in the order of its keys.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, dict):
        return [reference for _, item in sorted(value.items()) for reference in parse_references(item)]
    if not isinstance(value, list):
        raise ValueError("inputs and outputs of a model are lists")
    if _is_reference(value):
        return [KerasHistory(value[0], value[1], value[2])]
    return [reference for item in value for reference in parse_references(item)]


def _parse_entry(entry: Any) -> Any:
    """Return what one entry of Keras 1 or 2 stands for: a constant, or a reference."""
    if entry[0] == _CONSTANT:
        return entry[2]
    if not _is_reference(entry[:3]):
        raise ValueError("an inbound node names no layer")
    return KerasHistory(entry[0], entry[1], entry[2])


def _parse_keyword(value: Any, layers: Collection[str]) -> Any:
    """Return the reference that a keyword's value of Keras 1 or 2 is, if it names one of `layers`; else the
    value itself.
    """
    if isinstance(value, list) and _is_reference(value) and value[0] in layers:
        return KerasHistory(value[0], value[1], value[2])
    return value


def _is_reference(value: list[Any]) -> bool:
    """Return whether a list is `[layer, call, output]`, as Keras 1 and 2 write a reference."""
    return (
        len(value) == 3
        and isinstance(value[0], str)
        and all(type(number) is int and number >= 0 for number in value[1:])
    )


def _parse(value: Any) -> Any:
    """Return a Keras 3 argument with references for tensors, tuples for lists, nested lists for arrays, and
    dicts for dicts of values. Another object stays as it is.
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
    if kind == "__tuple__":
        return tuple(_parse(item) for item in value["config"]["value"])
    return value


def _references_in(value: Any) -> Iterator[KerasHistory]:
    """Yield the references in an argument, at any depth of tuples and dicts."""
    if isinstance(value, KerasHistory):
        yield value
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _references_in(item)


def _replace_references(value: Any, value_of: Callable[[KerasHistory], Any]) -> Any:
    """Return an argument with `value_of` each reference in its place, at any depth of tuples and dicts."""
    if isinstance(value, KerasHistory):
        return value_of(value)
    if isinstance(value, dict):
        return StatedFields((key, _replace_references(item, value_of)) for key, item in value.items())
    if isinstance(value, tuple):
        return tuple(_replace_references(item, value_of) for item in value)
    return value

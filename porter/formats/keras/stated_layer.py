"""A Keras layer as its config states it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.base.dtypes import NamedArrays
from porter.base.name_tables import by_name
from porter.filegraph import walk
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.places import Reading
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.graph.ops import LARGEST_FLOAT32

Arguments = Mapping[str, Any]
Walk = walk.NodeWalk["KerasLayer"]
Reader = Callable[..., Any]
"""A function of a layer and of its values that returns what the layer gives, in a form that
porter.filegraph.readers.outputs takes.
"""


@dataclass(frozen=True)
class Taken:
    """A value among the operands of an operation."""

    source: NodeOutput


@dataclass(frozen=True)
class KerasLayer(Reading):
    """One call of a layer, or of an operation: a node of the walk.

    Attributes:
        name: of its node.
        op: its class; an operation's name in keras.ops.
        arguments: its config; for an operation together with the call's keywords.
        inputs: the values that it reads, in order.
        keras: the major version of the Keras that wrote the file.
        read: makes porter's ops of it.
        tensors: its variables' names in the checkpoint, by variable; `arrays` their arrays.
        operands: an operation's first arguments: values and constants.
        constants: those of its constants that are arrays of several axes, by the names under which it takes
            them.
    """

    name: str
    op: str
    arguments: Arguments
    inputs: tuple[NodeOutput, ...]
    keras: int
    read: Reader
    tensors: Mapping[str, str] = field(default_factory=dict)
    arrays: NamedArrays = field(default_factory=dict)
    operands: tuple[Any, ...] = ()
    constants: NamedArrays = field(default_factory=dict)

    def flag(self, name: str) -> bool:
        """Return an argument that is true if it is not stated."""
        return bool(self.arguments.get(name, True))

    def keeps_axes(self) -> bool:
        """Return whether the axes that the layer reduces stay, with one cell."""
        return bool(self.arguments.get("keepdims"))

    def first_of(self, *names: str, default: Any = None) -> Any:
        """Return an argument that versions of Keras name differently; `default` where no name is stated."""
        return next((self.arguments[name] for name in names if self.arguments.get(name) is not None), default)

    def stored(self, variable: str, axes: str = "") -> Stored:
        """Return a variable; `axes` as in Stored.

        Raises:
            Unsupported: the file lacks it.
        """
        if variable not in self.tensors:
            raise Unsupported("without its weights in the file")
        return Stored(self.tensors[variable], axes)


def axes_in(
    layer: KerasLayer, x: Tensor, name: str = "axis", default: Any = -1, refusal: str = "over axis"
) -> list[int]:
    """Return the axes of `x` that an argument names, one or several.

    Args:
        default: the argument if it is not stated: the last axis.
        refusal: words before the argument, where it is no list of axes of the value.

    Raises:
        Unsupported: it is none.
    """
    argument = layer.arguments.get(name, default)
    axes = [*argument] if isinstance(argument, list | tuple) else [argument]
    if not axes or not all(type(axis) is int and -x.rank <= axis < x.rank for axis in axes):
        raise Unsupported(f"{refusal} {argument!r:.40}")
    return axes


_LIST_DEPTHS: Mapping[str, int] = by_name(
    {
        "axes attention_axes dilation_rate dims indices_or_sections kernel_size": 1,
        "num_or_size_splits output_padding output_size perm pool_size size strides": 1,
        "cropping pad_width padding paddings": 2,
    }
)
"""Arguments that are whole numbers, or lists of these of at most this depth. An argument whose depth is above
one may also be a rule by its name, such as a padding of `same`.
"""
_TEXT_ARGUMENTS = frozenset({"bias_axes", "equation", "subscripts"})


def expect_kinds(arguments: Arguments) -> None:
    """Raise ValueError for an argument of another kind than Keras's, by its name: a file may state any.

    Raises:
        ValueError: there is one.
    """
    for name, value in arguments.items():
        depth = _LIST_DEPTHS.get(name, 0)
        if value is None or not (depth or name in _TEXT_ARGUMENTS):
            continue
        is_text = isinstance(value, str) and (name in _TEXT_ARGUMENTS or depth > 1)
        if not is_text and not (depth and _are_whole_numbers(value, depth)):
            raise ValueError(f"{name} is {value!r:.40}")


def _are_whole_numbers(value: Any, depth: int) -> bool:
    """Return whether a value is a whole number, or such numbers in lists of at most this depth."""
    if isinstance(value, list | tuple):
        return depth > 0 and all(_are_whole_numbers(item, depth - 1) for item in value)
    return type(value) is int


def pair(value: Any) -> tuple[int, int]:
    """Return rows and columns of an argument. Keras accepts one number for both."""
    first, second = value if isinstance(value, list | tuple) else (value, value)
    return first, second


def count(value: Any) -> int:
    """Return `value` if it is a whole number above 0.

    Raises:
        ValueError: anything else.
    """
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number above 0, got {value!r:.40}")
    return value


def whole_number(value: Any) -> int:
    """Return `value` if it is a whole number.

    Raises:
        ValueError: anything else.
    """
    if type(value) is not int:
        raise ValueError(f"expected a whole number, got {value!r:.40}")
    return value


def number(value: Any) -> float:
    """Return `value` as a float if it is a finite number that a float32 can hold.

    Raises:
        ValueError: anything else.
    """
    if type(value) not in (int, float) or not abs(value) <= LARGEST_FLOAT32:
        raise ValueError(f"expected a number, got {value!r:.40}")
    return float(value)

"""A Keras layer as its config states it, with the values that it reads and the builder of the graph that it
becomes part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from porter.base.dtypes import NamedArrays
from porter.filegraph import walk
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import Open, product
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.moves import reshape
from porter.filegraph.places import Reading, place_of
from porter.filegraph.views import View
from porter.filegraph.walk import Outputs
from porter.graph import Op
from porter.graph.ops import LARGEST_FLOAT32

Arguments = Mapping[str, Any]
Walk = walk.NodeWalk["Layer"]


@dataclass(frozen=True)
class Taken:
    """A value among the operands of an operation."""

    source: Reference


@dataclass(frozen=True)
class Layer(Reading):
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
        given: what it reads in place of its first value.
        constants: those of its constants that are arrays of several axes, by the names under which it takes
            them.
    """

    walk: Walk
    name: str
    op: str
    arguments: Arguments
    inputs: tuple[Reference, ...]
    keras: int
    read: Callable[[Layer], Outputs]
    tensors: Mapping[str, str] = field(default_factory=dict)
    arrays: NamedArrays = field(default_factory=dict)
    operands: tuple[Any, ...] = ()
    constants: NamedArrays = field(default_factory=dict)
    given: Value | None = None

    @property
    def build(self) -> Builder:
        return self.walk.builder

    @property
    def input(self) -> Value:
        """The first value, as a map or features."""
        return self.walk.value(self.source) if self.given is None else self.given

    def add(self, op: Op, **tensors: Stored) -> Value:
        """The value of `op` of a map or features."""
        return self.build.add(self.name, op, self.input, tensors=tensors)

    def each(self, op: Op, **tensors: Stored) -> View:
        """The value of `op` of each cell."""
        return self._of(self.walk.by_cell(self.source), op, tensors)

    def on_map(self, op: Op, **tensors: Stored) -> View:
        """As `each`, of an op that takes no arrays: their cells are put on a map."""
        return self._of(self._cells(self.walk.by_cell(self.source)), op, tensors)

    def along(self, axes: Iterable[int], op: Op, tensors: Mapping[str, Stored], of_map: bool = False) -> View:
        """The value of `op` of each cell, where these axes of the tensor together are the channels, in their
        order in it.

        Args:
            of_map: the op takes no arrays.

        Raises:
            Unsupported: they are the batch, or of open sizes.
        """
        view, views = self.walk.kept(self.source), self.walk.views
        sizes = view.sizes or ()
        places = sorted(place_of(axis, len(sizes)) for axis in axes)
        if places == [len(sizes) - 1]:
            return self.on_map(op, **tensors) if of_map else self.each(op, **tensors)
        if len(places) == 1 and views.has_channels(view, *places) and not view.value.is_array:
            return self._of(view, op, tensors)
        order = [*(place for place in range(len(sizes)) if place not in places), *places]
        wide = [sizes[place] for place in places]
        if order[0] != 0 or any(isinstance(size, Open) for size in wide):
            raise Unsupported(f"over the axes {[*axes]!r:.40}")
        turned = view.transposed(order)
        flat = turned.reshaped([*turned.known_sizes[: -len(places)], product(wide)])
        taken = self.walk.as_array(f"{self.name}:flat", flat)
        wide_tensors = {role: replace(stored, axes="O" * len(places)) for role, stored in tensors.items()}
        given = self._of(self._cells(taken) if of_map else taken, op, wide_tensors)
        found = given.reshaped(turned.known_sizes).restored(order)
        return views.as_held(f"{self.name}:map", found, view)

    def _cells(self, view: View) -> View:
        return self.walk.on_map(f"{self.name}:cells", view)

    def _of(self, view: View, op: Op, tensors: Mapping[str, Stored]) -> View:
        return self.walk.views.like(view, self.build.add(self.name, op, view.value, tensors=tensors))

    def flag(self, name: str) -> bool:
        """An argument that is true if it is not stated."""
        return bool(self.arguments.get(name, True))

    def first_of(self, *names: str, default: Any = None) -> Any:
        """An argument that versions of Keras name differently."""
        return next((self.arguments[name] for name in names if self.arguments.get(name) is not None), default)

    def tensor(self, variable: str, axes: str = "") -> Stored:
        """A variable; `axes` as in Stored.

        Raises:
            Unsupported: the file lacks it.
        """
        if variable not in self.tensors:
            raise Unsupported("without its weights in the file")
        return Stored(self.tensors[variable], axes)

    def reshaped(self, sizes: Any) -> View:
        """The first value with other axes after the batch; -1 is what is left.

        Raises:
            Unsupported: the sizes are not whole numbers.
        """
        if not isinstance(sizes, list | tuple) or not all(type(size) is int for size in sizes):
            raise Unsupported(f"to {sizes!r:.40}")
        batch, *_ = self.walk.known_sizes(self.source)
        return reshape(self.walk, self, self.source, [batch, *sizes])


def axes_in(layer: Layer) -> list[int]:
    """The axes that the argument `axis` names, one or several; the last one if it names none.

    Raises:
        Unsupported: it is no list of axes of the first value.
    """
    stated, rank = layer.arguments.get("axis", -1), len(layer.walk.sizes(layer.source) or ())
    axes = [*stated] if isinstance(stated, list | tuple) else [stated]
    if not axes or not all(type(axis) is int and -rank <= axis < rank for axis in axes):
        raise Unsupported(f"over axis {stated!r:.40}")
    return axes


_LISTS: Mapping[str, int] = {
    **dict.fromkeys(
        ("axes", "attention_axes", "dilation_rate", "dims", "indices_or_sections", "kernel_size"), 1
    ),
    **dict.fromkeys(
        ("num_or_size_splits", "output_padding", "output_size", "perm", "pool_size", "size", "strides"), 1
    ),
    **dict.fromkeys(("cropping", "pad_width", "padding", "paddings"), 3),
}
"""Arguments that are whole numbers, in at most so many lists; in several they may also be a rule by its
name.
"""
_TEXTS = frozenset({"bias_axes", "equation", "subscripts"})


def expect_kinds(arguments: Arguments) -> None:
    """Refuses arguments of other kinds than Keras's, by their names: a file may state any.

    Raises:
        ValueError: there is one.
    """
    for name, value in arguments.items():
        lists = _LISTS.get(name, 0)
        is_text = isinstance(value, str) and (name in _TEXTS or lists > 1)
        if (
            (lists or name in _TEXTS)
            and value is not None
            and not is_text
            and not (lists and _are_whole(value, lists))
        ):
            raise ValueError(f"{name} is {value!r:.40}")


def _are_whole(value: Any, lists: int) -> bool:
    """Whether a value is a whole number, or such numbers in at most so many lists."""
    if isinstance(value, list | tuple):
        return lists > 0 and all(_are_whole(each, lists - 1) for each in value)
    return type(value) is int


def pair(value: Any) -> tuple[int, int]:
    """Rows and columns. Keras accepts one number for both."""
    first, second = value if isinstance(value, list | tuple) else (value, value)
    return first, second


def count(value: Any) -> int:
    """A whole number above 0.

    Raises:
        ValueError: anything else.
    """
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number above 0, got {value!r:.40}")
    return value


def whole(value: Any) -> int:
    """A whole number.

    Raises:
        ValueError: anything else.
    """
    if type(value) is not int:
        raise ValueError(f"expected a whole number, got {value!r:.40}")
    return value


def number(value: Any) -> float:
    """A finite number that a float32 can hold.

    Raises:
        ValueError: anything else.
    """
    if type(value) not in (int, float) or not abs(value) <= LARGEST_FLOAT32:
        raise ValueError(f"expected a number, got {value!r:.40}")
    return float(value)

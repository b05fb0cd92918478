"""A Keras layer as its config states it, with the values that it reads and the builder of the graph that it becomes part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.base.dtypes import Array
from porter.filegraph import walk
from porter.filegraph.builder import LARGEST_FLOAT32, Builder, Value
from porter.filegraph.dataflow import Reference
from porter.filegraph.file_graph import Stored
from porter.filegraph.moves import reshape
from porter.filegraph.views import View
from porter.filegraph.walk import Lacks, NoOp, Read
from porter.graph import Op

Arguments = Mapping[str, Any]
Walk = walk.Walk["Layer"]


@dataclass(frozen=True)
class Taken:
    """A value among the operands of an operation."""

    source: Reference


@dataclass(frozen=True)
class Layer:
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
        constants: those of its constants that are arrays of several axes, by the names under which it takes them.
    """

    walk: Walk
    name: str
    op: str
    arguments: Arguments
    inputs: tuple[Reference, ...]
    keras: int
    read: Callable[[Layer], Read | list[Read]]
    tensors: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    operands: tuple[Any, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=dict)

    @property
    def build(self) -> Builder:
        return self.walk.builder

    @property
    def source(self) -> Reference:
        return self.inputs[0]

    @property
    def input(self) -> Value:
        """The first value, as a map or features."""
        return self.walk.value(self.source)

    def add(self, op: Op, **tensors: Stored) -> Value:
        """The value of `op` of a map or features."""
        return self.build.add(self.name, op, self.input, tensors=tensors)

    def each(self, op: Op, **tensors: Stored) -> View:
        """The value of `op` of each cell."""
        return self._of(self.walk.by_cell(self.source), op, tensors)

    def on_map(self, op: Op, **tensors: Stored) -> View:
        """As `each`, of an op that takes no arrays: their cells are put on a map."""
        view = self.walk.by_cell(self.source)
        return self._of(self.walk.as_cells(f"{self.name}:cells", view) or view, op, tensors)

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
            NoOp: the file lacks it.
        """
        if variable not in self.tensors:
            raise NoOp(f"{self.op} without its weights in the file")
        return Stored(self.tensors[variable], axes)

    def reshaped(self, sizes: Any) -> Read:
        """The first value with other axes after the batch; -1 is what is left.

        Raises:
            NoOp: the sizes are not whole numbers.
        """
        if not isinstance(sizes, list | tuple) or not all(type(size) is int for size in sizes):
            raise NoOp(f"{self.op} to {sizes!r:.40}")
        batch, *_ = self.walk.sizes(self.source) or (None,)
        return Lacks() if batch is None else reshape(self.walk, self, self.source, [batch, *sizes])

    def expect_last_axis(self) -> None:
        """Refuses an `axis` that is not the one of the channels.

        Raises:
            NoOp: it is another one.
        """
        axis = self.arguments.get("axis", -1)
        axes = axis if isinstance(axis, list) else [axis]
        if len(axes) != 1 or axes[0] not in (-1, len(self.walk.sizes(self.source) or (0,) * 4) - 1):
            raise NoOp(f"{self.op} over axis {axis!r:.40}")


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


def number(value: Any) -> float:
    """A finite number that a float32 can hold.

    Raises:
        ValueError: anything else.
    """
    if type(value) not in (int, float) or not abs(value) <= LARGEST_FLOAT32:
        raise ValueError(f"expected a number, got {value!r:.40}")
    return float(value)

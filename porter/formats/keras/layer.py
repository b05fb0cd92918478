"""A Keras layer as its config states it, with the values that it reads and the builder of the graph that it becomes part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.dtypes import Array
from porter.filegraph.builder import LARGEST_FLOAT32, Builder, Value
from porter.filegraph.file_graph import Stored
from porter.graph import Op

Arguments = Mapping[str, Any]


class NoOp(Exception):
    """porter has no op for a layer. The text names the layer, and says what about it porter lacks."""


@dataclass(frozen=True)
class Layer:
    """One call of a layer, or of an operation.

    Attributes:
        name: of its node.
        kind: its class; an operation's name in keras.ops.
        arguments: its config; for an operation together with the call's keywords.
        inputs: the values that it reads, in order.
        keras: the major version of the Keras that wrote the file.
        tensors: its variables' names in the checkpoint, by variable; `arrays` their arrays.
        operands: an operation's first arguments: values and constants.
    """

    build: Builder
    name: str
    kind: str
    arguments: Arguments
    inputs: tuple[Value, ...]
    keras: int
    tensors: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    operands: tuple[Any, ...] = ()

    @property
    def input(self) -> Value:
        return self.inputs[0]

    def add(self, op: Op, **tensors: Stored) -> Value:
        """The value of `op` of all inputs."""
        return self.build.add(self.name, op, *self.inputs, tensors=tensors, tap=self.name)

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
            raise NoOp(f"{self.kind} without its weights in the file")
        return Stored(self.tensors[variable], axes)

    def expect_last_axis(self) -> None:
        """Refuses an `axis` that is not the one of the channels.

        Raises:
            NoOp: it is another one.
        """
        axis = self.arguments.get("axis", -1)
        axes = axis if isinstance(axis, list) else [axis]
        if len(axes) != 1 or axes[0] not in (-1, 3 if self.input.is_map else 1):
            raise NoOp(f"{self.kind} over axis {axis!r:.40}")


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

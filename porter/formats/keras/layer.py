"""A Keras layer as its config states it, and the known shape of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.dtypes import Array
from porter.filegraph.file_graph import Foreign, OutputActivation
from porter.graph import Op
from porter.padding import Pads, Size

Arguments = Mapping[str, Any]
Variables = Mapping[str, Array]
Step = Op | OutputActivation | Foreign


@dataclass(frozen=True)
class Shape:
    """The shape of a layer's input: N x rows x columns x channels, or N x channels where `flat`; None where unknown."""

    channels: int | None
    size: Size
    flat: bool = False

    @property
    def per_channel(self) -> bool:
        """One value per channel, with or without its rows and columns."""
        return self.flat or self.size == (1, 1)

    def __str__(self) -> str:
        return "x".join("?" if n is None else str(n) for n in self.size)


@dataclass(frozen=True)
class Layer:
    """One layer, and the known shape of its input.

    Attributes:
        kind: its class.
        shape: of its input, before the pads.
        pads: of a ZeroPadding2D before it, if it `takes_pads`.
        variables: its tensors by variable name.
    """

    kind: str
    arguments: Arguments
    shape: Shape
    pads: Pads = (0, 0, 0, 0)
    variables: Variables = field(default_factory=dict)


def pair(value: Any) -> tuple[int, int]:
    """Rows and columns. Keras accepts one number for both."""
    first, second = value if isinstance(value, list) else (value, value)
    return first, second


def flag(arguments: Arguments, name: str) -> bool:
    """An argument that is true if it is not stated."""
    return bool(arguments.get(name, True))


def count(value: Any) -> int:
    """A whole number above 0.

    Raises:
        ValueError: anything else.
    """
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number above 0, got {value!r:.40}")
    return value

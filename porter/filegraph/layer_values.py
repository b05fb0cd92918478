"""The values that layers give: their shapes, and the pads, clips and cuts that later layers may take in."""

from __future__ import annotations

from dataclasses import dataclass

from porter.graph import Shape
from porter.graph.ops import Axes, channels_in, is_map
from porter.padding import Pads


@dataclass(frozen=True)
class Value:
    """What a layer of the file gives.

    Attributes:
        node: the name of the node that gives it, or INPUT.
        shape: in porter's order; None where it is unknown.
        padded: the value is this one with pads.
        clipped: the value is this one clipped.
        apart: how the file takes its map apart into images.
    """

    node: str
    shape: Shape | None = None
    padded: Padded | None = None
    clipped: Clipped | None = None
    apart: Apart | None = None

    @property
    def is_map(self) -> bool:
        return self.shape is not None and is_map(self.shape)

    @property
    def is_array(self) -> bool:
        return isinstance(self.shape, Axes)

    @property
    def channels(self) -> int | None:
        """Channels or features, of an array the size of its last axis; None where unknown."""
        return channels_in(self.shape) if self.shape else None


@dataclass(frozen=True)
class Padded:
    """A value with pads around it that nothing has taken in yet."""

    value: Value
    pads: Pads
    fill: float


@dataclass(frozen=True)
class Apart:
    """How a file takes a map apart, as TensorFlow writes a dilated convolution: it pads the map with `pads`,
    makes an image of all cells that are `block` (rows, columns) apart, and convolves these images.
    """

    block: tuple[int, int]
    pads: Pads


@dataclass(frozen=True)
class Clipped:
    """The value before a clip, and the bounds of the clip."""

    value: Value
    low: float
    high: float

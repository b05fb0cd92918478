"""Ops that give a map other cells, computed from its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from porter.base.errors import GraphError
from porter.graph.ops.kinds import Cells, Coordinates, Flag, Interpolation, Nearest, Number, Scale, Side
from porter.graph.ops.op import LARGER, Op, Shape, expect_map, shape_text
from porter.padding.sizes import MAX_SIDE


@dataclass(frozen=True)
class Resize(Op, name="resize"):
    """A map by a `scale` of its rows and columns, or at a `size`; each cell is computed from those around its
    place in the map.

    Place i of the result is at (i + 0.5) / s - 0.5 by `half_pixel`, at i / s by `asymmetric`, and at i * (n -
    1) / (m - 1) of n to m cells by `align_corners`; s is the scale, or m / n. `nearest` takes the cell at the
    place rounded, `linear` two cells of each axis, and `cubic` four, by Keys's polynomial with the
    coefficient `a`. Beyond the map are the cells of its edge; if `inside`, these have no share in a cubic
    one.
    """

    is_linear = True

    mode: Interpolation
    scale: Scale = ()
    size: Cells = ()
    coordinates: Coordinates = "half_pixel"
    rounding: Nearest = "round_prefer_floor"
    a: Number = -0.75
    inside: Flag = False

    def shape(self, *inputs: Shape) -> Shape:
        channels, *old_sizes = expect_map(inputs[0])
        if bool(self.scale) == bool(self.size):
            raise GraphError("expected either a scale or a size of a resize")
        scales = self.scale or (1, 1)
        # an unknown size stays None
        scaled_sizes = [n and math.floor(n * scale) for n, scale in zip(old_sizes, scales, strict=True)]
        new_sizes: tuple[int | None, ...] = self.size or tuple(scaled_sizes)
        if 0 in new_sizes:
            raise GraphError(f"nothing is left of {shape_text(inputs[0])}", next=LARGER)
        for axis, (n, m) in enumerate(zip(old_sizes, new_sizes, strict=True)):
            if self.scale and n and not _counts_alike(n, self.scale[axis]):
                raise GraphError(
                    f"the number of {n} cells times {self.scale[axis]} depends on float32's rounding"
                )
            if isinstance(n, int) and isinstance(m, int):
                _expect_decided(self, n, m, self.scale[axis] if self.scale else m / n)
        return (channels, *new_sizes)

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and self.mode != "cubic"

    @property
    def of_any_size(self) -> bool:
        """Whether cells are counted alike at every size, and places computed without rounding, or not rounded
        to a cell.
        """
        if not all(_counts_alike(range(MAX_SIDE), scale) for scale in self.scale):
            return False
        if self.mode != "nearest":
            return True
        # by a scale that is a power of two, whose mantissa is 0.5, places are computed without rounding
        mantissas = {math.frexp(scale)[0] for scale in self.scale}
        return mantissas == {0.5} and self.coordinates != "align_corners"


def _counts_alike(cells: Any, scale: float) -> bool:
    """Return whether so many cells, times a scale, are as many in float32 as in float64: 10 times float32's
    0.7 are seven there.
    """
    import numpy as np

    single = np.floor(np.float32(cells) * np.float32(scale))
    return bool(np.all(single == np.floor(np.float64(cells) * scale)))


@dataclass(frozen=True)
class ResizeLike(Op, name="resize_like"):
    """The first value resized, as `resize` does, to the size of the second."""

    is_linear = True

    mode: Interpolation
    coordinates: Coordinates = "half_pixel"
    a: Number = -0.75
    inside: Flag = False
    rounding: Nearest = "round_prefer_floor"

    several = True

    def shape(self, *inputs: Shape) -> Shape:
        channels, cells, sides = _expect_two_maps(inputs)
        for n, m in zip(cells, sides, strict=True):
            if isinstance(n, int) and isinstance(m, int):
                _expect_decided(self, n, m, m / n)
        return (channels, *sides)

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return inputs[0] and self.mode != "cubic"


def _expect_two_maps(inputs: Sequence[Shape]) -> tuple[int | None, Shape, Shape]:
    """Return the channels of the first of two maps, and the rows and columns of both.

    Raises:
        GraphError: there are more or fewer values, or others than maps.
    """
    if len(inputs) != 2:
        raise GraphError(f"expected two values, got {len(inputs)}")
    channels, *cells = expect_map(inputs[0])
    return channels, tuple(cells), expect_map(inputs[1])[1:]


def _expect_decided(op: Resize | ResizeLike, n: int, m: int, scale: float) -> None:
    """Refuse a resize of `n` to `m` cells whose nearest cells depend on how frameworks compute the places: in
    which type, and by which of the formulas that are equal on paper.

    Raises:
        GraphError: they do.
    """
    if op.mode != "nearest":
        return
    import numpy as np  # here and above, because commands without arrays import the ops too

    nearest = set()  # the cells that are nearest, by each type and each formula
    rounds_up = op.rounding in ("ceil", "round_prefer_floor")
    shift = 0.5 if op.rounding.startswith("round_") else 0.0
    for number_type in (np.float32, np.float64):
        make: Any = number_type
        i: Any = np.arange(m).astype(number_type)
        divisor = make(scale)
        half = make(0.5)
        # the places of the cells, by the formulas that frameworks have for them
        if op.coordinates == "align_corners":
            places = [i * make((n - 1) / max(m - 1, 1)), i * make(n - 1) / make(max(m - 1, 1))]
        elif op.coordinates == "asymmetric":
            places = [i / divisor, i * (make(1) / divisor), i * make(1 / scale)]
        else:
            places = [
                (i + half) / divisor - half,
                (i + half) * (make(1) / divisor) - half,
                (i + half) * make(1 / scale) - half,
            ]
        cells = [np.ceil(place - shift) if rounds_up else np.floor(place + shift) for place in places]
        nearest |= {tuple(np.clip(cell, 0, n - 1).tolist()) for cell in cells}
    if len(nearest) > 1:
        raise GraphError(
            f"the nearest of {n} cells for {m} depends on float32's rounding by {op.coordinates}"
        )


@dataclass(frozen=True)
class AsLarge(Op):
    """The first map with as many rows and columns as the second. On which side of it cells are added or cut:
    at the `start`, at the `end`, or half of them on `both`, an odd one at the end; on `none` where it keeps
    its own.
    """

    is_linear = True

    rows: Side
    columns: Side

    several = True
    grows: ClassVar[bool]

    def shape(self, *inputs: Shape) -> Shape:
        channels, old_sizes, sizes_of_second = _expect_two_maps(inputs)
        sides = self.rows, self.columns
        new_sizes = [
            old_size if side == "none" else wanted_size
            for side, old_size, wanted_size in zip(sides, old_sizes, sizes_of_second, strict=True)
        ]
        for old_size, new_size in zip(old_sizes, new_sizes, strict=True):
            if old_size is None or new_size is None:
                continue
            fits = new_size >= old_size if self.grows else new_size <= old_size
            if not fits:
                shown = " and ".join(map(shape_text, inputs))
                raise GraphError(f"{self.words} does not fit {shown}")
        return (channels, *new_sizes)

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return inputs[0]


class PadLike(AsLarge, name="pad_like"):
    """The first map with as many rows and columns as the second, by cells of 0 at the `start` or the `end` of
    its rows and columns, or half of them at `both`, an odd one at the end; `none` keeps its own.
    """

    grows = True


class CropLike(AsLarge, name="crop_like"):
    """The first map with as many rows and columns as the second, without cells at the `start` or the `end` of
    its rows and columns, or without half of them at `both`, an odd one at the end; `none` keeps its own.
    """

    grows = False

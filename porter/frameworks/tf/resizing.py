"""Maps with other cells by keras.ops. TensorFlow's own resizes give float32, and cubic ones take shares from
a table of 1024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np

from porter.base.errors import GraphError
from porter.graph import AsLarge, Resize, ResizeLike
from porter.graph.ops import Side

Do = Callable[..., Any]
"""Calls a function of `keras.ops` by its name, or takes a part of a value (`getitem`)."""
_MAX_DENOMINATOR = 64
"""The largest denominator of a scale whose cells are counted as the model runs."""


def resize_map(value: Any, op: Resize | ResizeLike | AsLarge, do: Do, kind: str, like: Any = None) -> Any:
    """Return a map N×H×W×C resized as an op says, or (AsLarge) padded or cut to the size of another map.

    Args:
        value: the map.
        do: calls a function of `keras.ops`, or states such a call.
        kind: the type of the places and shares, `float32` or `float64`.
        like: the map whose size the result gets, for ResizeLike and AsLarge.

    Raises:
        GraphError: the cells of an open size cannot be counted.
    """
    if isinstance(op, AsLarge):
        for axis, side in ((1, op.rows), (2, op.columns)):
            if side != "none":
                value = _Axis(axis, ResizeLike("nearest"), do, kind).pad_or_cut(value, like, side, op.grows)
        return value
    for axis in (1, 2):
        value = _Axis(axis, op, do, kind).resize(value, like)
    return value


@dataclass(frozen=True)
class _Axis:
    """One axis of a resize: rows (1) or columns (2). What no input changes is computed by numpy, and held as
    constants.
    """

    axis: int
    op: Resize | ResizeLike
    do: Do
    kind: str

    def pad_or_cut(self, value: Any, like: Any, side: Side, grows: bool) -> Any:
        """Add cells of 0 to the map on a side, or cut cells off there, until it has as many along this axis
        as `like`, and return it. Below, n is the number of the map's cells, m that of the result's, and i the
        indices of the result's.
        """
        do = self._do
        n, i, m = self._cells(value, like)
        difference = do("subtract", m, n) if grows else do("subtract", n, m)
        # The cells that are added or cut off before the map: all, or half of them.
        before = difference
        if side != "start":
            before = do("floor", do("multiply", difference, self._number(0.5)))
        # The index in the map of each cell of the result: less the cells added before it, or more by those
        # cut off.
        shift = "subtract" if grows else "add"
        cells = i if side == "end" else do(shift, i, before)
        taken = self._take_cells(value, cells, n)
        if not grows:
            return taken
        # 0 for the map's own cells, which the bounds do not move.
        beyond = do("subtract", cells, self._clipped_index(cells, n))
        is_own = do("equal", do("reshape", beyond, self._along_axis), self._number(0))
        return self.do("where", is_own, taken, self.do("zeros_like", taken))

    def _clipped_index(self, cells: Any, n: Any) -> Any:
        """Return indices of cells within 0 to n - 1, of which those outside a map of n cells become its
        nearest cell; keras.ops.clip takes no values for its bounds.
        """
        not_before_map = self._do("maximum", cells, self._number(0))
        last = self._do("subtract", n, self._number(1))
        return self._do("minimum", not_before_map, last)

    def _take_cells(self, value: Any, cells: Any, n: Any) -> Any:
        """Return the cells of these indices along this axis of a map of n cells; an index beyond the edge
        gives the cell at the edge.
        """
        index = self._do("cast", self._clipped_index(cells, n), "int32")
        places = index.tolist() if isinstance(index, np.ndarray) else index
        return self.do("take", value, places, axis=self.axis)

    def resize(self, value: Any, like: Any) -> Any:
        """Resize the map along this axis, and return it: by the nearest cells, or by sums of the cells around
        each place with their shares. Below, n, i and m are as in `_cells`.
        """
        op, do, number = self.op, self._do, self._number
        n, i, m = self._cells(value, like)
        places = self._source_places(n, i, m)
        if op.mode == "nearest":
            # Rounding that prefers the floor is the ceiling of a half less.
            up = op.rounding in ("ceil", "round_prefer_floor")
            if op.rounding.startswith("round"):
                places = do("subtract" if up else "add", places, number(0.5))
            return self._take_cells(value, do("ceil" if up else "floor", places), n)
        before = do("floor", places)
        t = do("subtract", places, before)
        shares = self._cell_shares(t, do("subtract", number(1), t))
        # The cells around a place: two for linear, four for cubic.
        cells = [do("add", before, number(k + 1 - len(shares) // 2)) for k in range(len(shares))]
        add = partial(do, "add")
        # Cells beyond the edge have no share, and the others share all.
        if op.inside:
            are_inside = [do("equal", self._clipped_index(cell, n), cell) for cell in cells]
            shares = [
                do("where", is_inside, share, number(0))
                for is_inside, share in zip(are_inside, shares, strict=True)
            ]
            shares = [do("divide", share, reduce(add, shares)) for share in shares]
        weighted = [
            do("multiply", self._take_cells(value, cell, n), do("reshape", share, self._along_axis))
            for cell, share in zip(cells, shares, strict=True)
        ]
        return reduce(add, weighted)

    @property
    def _along_axis(self) -> tuple[int, ...]:
        """The shape of a vector that multiplies a map N×H×W×C along this axis: (-1, 1, 1) or (-1, 1)."""
        return (-1, 1, 1) if self.axis == 1 else (-1, 1)

    def _source_places(self, n: Any, i: Any, m: Any) -> Any:
        """Return where in the source the centre of each target cell lies, in cells, from the numbers of cells
        n and m and the indices i of target cells.
        """
        do, number = self._do, self._number
        if self.op.coordinates == "align_corners":
            spaces = do("maximum", do("subtract", m, number(1)), number(1))
            return do("multiply", i, do("divide", do("subtract", n, number(1)), spaces))
        step = do("divide", n, m) if self._scale is None else number(1 / self._scale)
        if self.op.coordinates == "asymmetric":
            return do("multiply", i, step)
        return do("subtract", do("multiply", do("add", i, number(0.5)), step), number(0.5))

    def _cell_shares(self, t: Any, rest: Any) -> Sequence[Any]:
        """Return what part each source cell has in a target cell, from its distance t behind the first cell
        and rest = 1 - t: for linear two shares, for Keys's polynomials four, of cells at the distances t + 1,
        t, 1 - t and 2 - t.
        """
        do, a, one = self._do, self.op.a, self._number(1)
        if self.op.mode == "linear":
            return [rest, t]
        # The factors of the cubic polynomials, highest power first, for distances below 1 and from 1 to 2.
        inner, outer = (a + 2, -a - 3, 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)

        def polynomial(factors: Sequence[float], distance: Any) -> Any:
            """Return a polynomial of a distance by Horner's rule."""
            highest, *lower = map(self._number, factors)
            return reduce(
                lambda total, factor: do("add", do("multiply", total, distance), factor), lower, highest
            )

        return [
            polynomial(outer, do("add", t, one)),
            polynomial(inner, t),
            polynomial(inner, rest),
            polynomial(outer, do("add", rest, one)),
        ]

    def _cells(self, value: Any, like: Any) -> tuple[Any, Any, Any]:
        """Return n, the number of the map's cells along this axis; i, the indices of the result's cells; and
        m, the number of these. Those of open sizes are counted as the model runs.
        """
        n, op, scale = value.shape[self.axis], self.op, self._scale
        # None where a size is open
        if isinstance(op, ResizeLike):
            m = like.shape[self.axis]
        elif op.size:
            m = op.size[self.axis - 1]
        else:
            m = None if n is None or scale is None else int(n * scale)
        count = self.do("sum", self._ones(value)) if n is None else self._number(n)
        if m is not None:
            return count, np.arange(m, dtype=self.kind), self._number(m)
        ones = self._ones(value if like is None else like)
        if scale is not None:
            fraction = Fraction(scale)
            if fraction.denominator > _MAX_DENOMINATOR:
                raise GraphError(
                    f"Keras cannot count the cells of an open size times {scale}",
                    next="export the model at one size",
                )
            # Of a scale of p/q, each cell p times, and of these every q-th.
            q = fraction.denominator
            ones = self.do("repeat", ones, fraction.numerator, axis=0)
            if q > 1:
                ones = self.do("getitem", ones, (slice(q - 1, None, q),))
        return count, self.do("subtract", self.do("cumsum", ones), self._number(1)), self.do("sum", ones)

    def _ones(self, value: Any) -> Any:
        """Return a vector with a one for each cell of the map along this axis, from which cells of open sizes
        are counted.
        """
        all_cells = slice(None)
        key = (0, all_cells, 0, 0) if self.axis == 1 else (0, 0, all_cells, 0)
        line = self.do("getitem", value, key)
        return self.do("cast", self.do("ones_like", line), self.kind)

    @property
    def _scale(self) -> float | None:
        return self.op.scale[self.axis - 1] if isinstance(self.op, Resize) and self.op.scale else None

    def _number(self, number: float) -> Any:
        """Return the number as an array of `kind`, because Keras would first round a plain one to float32."""
        return np.asarray(number, self.kind)

    def _do(self, function: str, *arguments: Any) -> Any:
        """Call a function of numpy where all arguments are known numbers, otherwise that of keras.ops."""
        numbers = (np.ndarray, np.generic)
        # The last argument may be a type or a shape.
        if not isinstance(arguments[0], numbers) or not isinstance(arguments[-1], (*numbers, str, tuple)):
            return self.do(function, *arguments)
        if function == "cast":
            return arguments[0].astype(arguments[1])
        return getattr(np, function)(*arguments)

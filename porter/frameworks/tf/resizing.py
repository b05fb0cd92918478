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
    """Resize a map N×H×W×C as an op does, or (AsLarge) pad or cut it to the size of the map `like`.

    Args:
        kind: the type of the places and shares, `float32` or `float64`.

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
    """One axis of a resize. What no input changes is computed by numpy, and held as constants."""

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
        before = difference
        if side != "start":
            before = do("floor", do("multiply", difference, self._number(0.5)))
        # The index in the map of each cell of the result: less the cells added before it, or more by those
        # cut off.
        shift = "subtract" if grows else "add"
        cells = i if side == "end" else do(shift, i, before)
        rest = self._take_cells(value, cells, n)
        if not grows:
            return rest
        # 0 for the map's own cells, which the bounds do not move.
        beyond = do("subtract", cells, self._clipped_index(cells, n))
        is_own = do("equal", do("reshape", beyond, (-1, *[1] * (3 - self.axis))), self._number(0))
        return self.do("where", is_own, rest, self.do("zeros_like", rest))

    def _clipped_index(self, cells: Any, n: Any) -> Any:
        """Move cells outside a map of n cells to its nearest cell; keras.ops.clip takes no values for its
        bounds.
        """
        number = self._number
        return self._do("minimum", self._do("maximum", cells, number(0)), self._do("subtract", n, number(1)))

    def _take_cells(self, value: Any, cells: Any, n: Any) -> Any:
        """Take these cells of the map's n; cells beyond the edge are those of the edge."""
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
        # Cells beyond the edge have no share, and the others share all.
        if op.inside:
            inside = [do("equal", self._clipped_index(cell, n), cell) for cell in cells]
            shares = [do("where", each, share, number(0)) for each, share in zip(inside, shares, strict=True)]
            shares = [do("divide", share, reduce(partial(do, "add"), shares)) for share in shares]
        # A vector along this axis of N×H×W×C.
        along_axis = (-1, *[1] * (3 - self.axis))
        weighted = [
            do("multiply", self._take_cells(value, cell, n), do("reshape", share, along_axis))
            for cell, share in zip(cells, shares, strict=True)
        ]
        return reduce(partial(do, "add"), weighted)

    def _source_places(self, n: Any, i: Any, m: Any) -> Any:
        """Return where in the source the centre of each target cell lies, in cells."""
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

        def share(factors: Sequence[float], distance: Any) -> Any:
            """Return a polynomial of a distance, whose factors are those of the highest power first."""
            first, *others = map(self._number, factors)
            return reduce(
                lambda total, factor: do("add", do("multiply", total, distance), factor), others, first
            )

        return [
            share(outer, do("add", t, one)),
            share(inner, t),
            share(inner, rest),
            share(outer, do("add", rest, one)),
        ]

    def _cells(self, value: Any, like: Any) -> tuple[Any, Any, Any]:
        """Return n, the number of the map's cells along this axis; i, the indices of the result's cells; and
        m, the number of these. Those of open sizes are counted as the model runs.
        """
        n, op, scale = value.shape[self.axis], self.op, self._scale
        if isinstance(op, ResizeLike):
            m = like.shape[self.axis]
        else:
            scaled = None if n is None or scale is None else int(n * scale)
            m = op.size[self.axis - 1] if op.size else scaled
        count = self.do("sum", self._ones(value)) if n is None else self._number(n)
        if m is not None:
            return count, np.arange(m, dtype=self.kind), self._number(m)
        ones = self._ones(value if like is None else like)
        if scale is not None:
            parts = Fraction(scale)
            if parts.denominator > _MAX_DENOMINATOR:
                raise GraphError(
                    f"Keras cannot count the cells of an open size times {scale}",
                    next="export the model at one size",
                )
            # Of a scale of p/q, each cell p times, and of these every q-th.
            ones = self.do("repeat", ones, parts.numerator, axis=0)
            if parts.denominator > 1:
                ones = self.do("getitem", ones, (slice(parts.denominator - 1, None, parts.denominator),))
        return count, self.do("subtract", self.do("cumsum", ones), self._number(1)), self.do("sum", ones)

    def _ones(self, value: Any) -> Any:
        """Return a vector with a one for each cell of the map along this axis, from which cells of open sizes
        are counted.
        """
        line = self.do("getitem", value, (0, slice(None), 0, 0) if self.axis == 1 else (0, 0, slice(None), 0))
        return self.do("cast", self.do("ones_like", line), self.kind)

    @property
    def _scale(self) -> float | None:
        return self.op.scale[self.axis - 1] if isinstance(self.op, Resize) and self.op.scale else None

    def _number(self, number: float) -> Any:
        """Return the number as an array of `kind`, because Keras would first round a plain one to float32."""
        return np.asarray(number, self.kind)

    def _do(self, function: str, *arguments: Any) -> Any:
        """Call a function of numpy where all arguments are known, otherwise that of keras.ops."""
        if not isinstance(arguments[0], np.ndarray | np.generic) or not isinstance(
            arguments[-1], np.ndarray | np.generic | str | tuple
        ):
            return self.do(function, *arguments)
        return arguments[0].astype(arguments[1]) if function == "cast" else getattr(np, function)(*arguments)

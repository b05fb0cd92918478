"""What a destination's windowed layers can be told, and what porter tells them: a realisation, and the
windows that it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from porter.padding.windows import (
    Average,
    Convention,
    Pads,
    Rounding,
    SiteKind,
    Window,
    WindowRow,
    count_row,
    count_windows,
    first_cells,
    pad_amounts,
    pads_text,
    row,
)

ComputedRule = Literal["same", "same_lower"]
"""The rules of padding that depend on the input size."""


@dataclass(frozen=True)
class Front:
    """A pad layer standing before the windowed layer.

    With the rule `explicit` it adds `pads`; with `same` or `same_lower` it computes them from its input at
    run time.
    """

    rule: Literal["explicit"] | ComputedRule
    pads: Pads
    fill: float


@dataclass(frozen=True)
class Capabilities:
    """What a destination framework's own windowed layers can express.

    Attributes:
        symmetric: pads that are equal on both sides of an axis.
        explicit: any four pads.
        same: rules that they compute from the input size at run time.
        same_of_any: these hold for any window, not only for one without dilation that is not shorter than its
            stride.
        wide_strides: why they do not hold for a convolution with a stride larger than its kernel; empty where
            they do.
        pool_pads: the largest pad of a pool: half its kernel (without the dilation), less than its kernel, or
            any.
        roundings: how pools may round; convolutions always floor.
        averages: divisors that its average pool knows.
        dynamic: rules that a pad layer can compute at run time.
        dilated_pools: the kinds of pool that take a dilation.
        dilated_strides: a convolution may be strided and dilated at once.
        open_reshapes: a reshape may leave several sizes open.
        one_sided: a layer that pads both sides alike can leave out a part of them: a convolution by zeros
            around its kernel, a pool by windows that are not kept of those at stride 1.
        zeros_only: a pad layer can add zeros only.
        keeps_last: rounding up, a pool without pads keeps a last window that begins past its input.
        lacks: whether it has none of an op without a padding site, so that a plan makes it of others. It is
            asked of ops that others make (porter.graph.lowering).
    """

    symmetric: bool
    explicit: bool
    same: tuple[ComputedRule, ...]
    same_of_any: bool
    pool_pads: Literal["half", "less", "any"]
    roundings: tuple[Rounding, ...]
    averages: tuple[Average, ...]
    dynamic: tuple[ComputedRule, ...]
    dilated_pools: tuple[SiteKind, ...]
    dilated_strides: bool
    open_reshapes: bool = True
    one_sided: bool = False
    zeros_only: bool = False
    keeps_last: bool = False
    wide_strides: str = ""
    lacks: Callable[[Any], bool] = lambda op: False


@dataclass(frozen=True)
class Realisation:
    """The smallest exact way to say a source's convention in a destination framework.

    The layers are, in order: the pad layer `front`, if any; the windowed layer with `native`, which pads
    nothing itself if there is a `front`; for an average with `counted`, a division by the same layers run
    over a mask; with `subsample`, every stride-th cell of a layer run at stride 1.

    Attributes:
        native: what the destination's own layer is given.
        front: the pad layer before it.
        counted: how many of the pads hold cells that the source's average counts; the mask is one over the
            input and over these cells, and zero over the other pads.
        subsample: the layer runs at stride 1 and keeps every stride-th cell.
        skipped: how many of `native`'s pads the source lacks. A convolution has as many zeros around its
            kernel, and of a pool with `subsample` as many cells at each side are not kept.
        by_cell: a max pool of the map's parts that the window's cells read, one part for each cell, instead
            of the layer.
        every_size: exact at every input size, not only at the one asked for.
        why: one line for the reader.
    """

    native: Convention
    front: Front | None = None
    counted: Pads | None = None
    subsample: bool = False
    by_cell: bool = False
    skipped: Pads = (0, 0, 0, 0)
    every_size: bool = False
    why: str = ""

    @property
    def kind(self) -> Literal["native", "larger kernel", "pad layer", "dynamic pad layer", "composition"]:
        if self.counted is not None or self.subsample or self.by_cell:
            return "composition"
        if any(self.skipped):
            return "larger kernel"
        if self.front is None:
            return "native"
        return "pad layer" if self.front.rule == "explicit" else "dynamic pad layer"

    def __str__(self) -> str:
        front = ""
        if self.front is not None:
            amount = pads_text(self.front.pads) if self.front.rule == "explicit" else self.front.rule
            front = f"pad {amount} with {self.front.fill:g}, then "
        tail = ", over the share of cells counted" if self.counted is not None else ""
        if any(self.skipped):
            tail += f", {'without' if self.subsample else 'its kernel amid zeros'} {pads_text(self.skipped)}"
        tail += ", every stride-th cell" if self.subsample else ""
        tail += ", cell by cell" if self.by_cell else ""
        return f"{front}{self.native}{tail}"


def realised_row(realisation: Realisation, window: Window, axis: int, size: int) -> WindowRow:
    """Return the windows that a realisation gives along one axis of `size` cells (a row, in the words of
    porter.padding.windows), in the coordinates of its input. `subsample` does not change them: every
    stride-th window at stride 1 is a window at that stride.
    """
    front, native = realisation.front, realisation.native
    if front is None and realisation.counted is None and not any(realisation.skipped):
        return row(native, window, axis, size)
    if front is None:
        # without a pad layer: the pads that are left of the layer's own
        without_skipped = replace(native, pads=subtract_pads(native.pads, realisation.skipped))
        before, _ = _pads_along(axis, without_skipped.pads)
        count = count_windows(without_skipped, window, axis, size)
        counted = _pads_along(axis, realisation.counted or native.pads)
        return count_row(window, axis, size, first_cells(window, axis, before, count), native.fill, counted)
    # with a pad layer, whose pads are cells of the layer's input
    before, after = pad_amounts(Convention(front.rule, front.pads), window, axis, size)
    count = count_windows(native, window, axis, size + before + after)
    counted = (before, after) if realisation.counted is None else _pads_along(axis, realisation.counted)
    return count_row(window, axis, size, first_cells(window, axis, before, count), front.fill, counted)


def _pads_along(axis: int, pads: Pads) -> tuple[int, int]:
    """Return the pads before and after the rows (axis 0) or the columns (1)."""
    top, bottom, left, right = pads
    return (top, bottom) if axis == 0 else (left, right)


def subtract_pads(pads: Pads, others: Pads) -> Pads:
    """Return the pads on each side, less others: (2, 2, 2, 2) less (0, 1, 0, 1) are (2, 1, 2, 1)."""
    top, bottom, left, right = (pad - other for pad, other in zip(pads, others, strict=True))
    return top, bottom, left, right

"""How frameworks pad windowed layers: the conventions, and the windows that each of them gives.

Everything happens along one axis at a time. Along an axis a windowed layer is a row of windows: where the
first one starts, how many there are, and, for an average, what each is divided by.

A few sizes show how a row depends on the input size. If the input is at least as long as one window, the
windows that reach past its beginning are not the ones that reach past its end; one stride more of input adds
one window between them and changes nothing else. So what holds at every size below extent + stride holds at
every size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from porter.base.errors import PaddingError

Rule = Literal["valid", "same", "same_lower", "cntk", "explicit"]
Rounding = Literal["floor", "ceil", "full"]
Average = Literal["real_cells", "full_window", "clipped_window"]
SiteKind = Literal["conv", "max_pool", "avg_pool"]
Pads = tuple[int, int, int, int]
KnownSize = tuple[int, int]
"""Rows and columns."""
Size = tuple[int | None, int | None]
"""Rows and columns, of which either may be free."""
ANY: Size = (None, None)
"""No particular input size: right at every one."""

LOWEST = float("-inf")
LARGEST = 1024
"""The largest extent of a window, stride and pad: recipes and ports come from strangers, and the arithmetic
loops over cells.
"""


@dataclass(frozen=True)
class Window:
    """The geometry of a windowed layer; each pair is (rows, columns).

    Raises:
        PaddingError: a number that is not whole, below 1 or beyond LARGEST.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "dilation"):
            _expect_cells(name, getattr(self, name), 2, 1)
        if max(self.extent(0), self.extent(1)) > LARGEST:
            raise PaddingError(f"a window of {self.extent(0)}x{self.extent(1)} cells is beyond {LARGEST}")

    def extent(self, axis: int) -> int:
        """Return the cells from a window's first to its last, with the holes of the dilation."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1


@dataclass(frozen=True)
class Convention:
    """How a framework pads one windowed layer.

    Attributes:
        rule: `valid`; `same` (TensorFlow: from the input size, the odd cell at the end); `same_lower` (ONNX:
            the odd cell first); `cntk` (CNTK's autopadding: (k-1)//2 first at every size); `explicit`
            (`pads`).
        pads: top, bottom, left, right; all zero unless the rule is `explicit`.
        fill: what every cell outside the input holds for a max pool: -inf where pads take no part, 0 (or
            another number) where a pad layer stands before the pool. A convolution and an average see zeros,
            whatever this says.
        average: what an average divides by: the cells of the window that are input (`real_cells`), all k*k
            (`full_window`), or those inside the padded extent (`clipped_window`: Caffe; torch and MXNet where
            they count pads).
        rounding: how the number of windows rounds, where the rule leaves it open (`valid`, `explicit`):
            `floor`; `ceil` (torch, and Caffe where it pads: a last window that would start past the input is
            dropped); `full` (MXNet: it is kept).

    Raises:
        PaddingError: a word that does not exist, pads that are not cells, or parts that contradict each
            other.
    """

    rule: Rule = "valid"
    pads: Pads = (0, 0, 0, 0)
    fill: float = 0.0
    average: Average = "real_cells"
    rounding: Rounding = "floor"

    def __post_init__(self) -> None:
        for name, words in (("rule", Rule), ("average", Average), ("rounding", Rounding)):
            if getattr(self, name) not in get_args(words):
                raise PaddingError(
                    f"{name}: expected one of {', '.join(get_args(words))}, got {getattr(self, name)!r:.80}"
                )
        _expect_cells("pads", self.pads, 4, 0)
        if type(self.fill) not in (int, float) or not (self.fill == LOWEST or abs(self.fill) < 1e38):
            raise PaddingError(f"pads are filled with a number or -inf, not with {self.fill!r:.80}")
        if self.rule != "explicit" and any(self.pads):
            raise PaddingError(f"the rule '{self.rule}' computes its own pads, got {self.pads}")

    @classmethod
    def stated(
        cls, pads: Pads, fill: float = 0.0, average: Average = "real_cells", rounding: Rounding = "floor"
    ) -> Convention:
        """Return the convention of a layer that states its pads: `valid` if all of them are zero."""
        return cls("explicit" if any(pads) else "valid", pads, fill, average, rounding)

    @property
    def rounds(self) -> Rounding:
        """The rounding in effect: the rules that read the input size define how many windows there are."""
        return self.rounding if self.rule in ("valid", "explicit") else "floor"

    def __str__(self) -> str:
        text = self.rule if self.rule != "explicit" else pads_text(self.pads)
        if self.fill and self.rule != "valid":
            text += f", {self.fill:g}"
        if self.rounds != "floor":
            text += f", {self.rounds}"
        return text


@dataclass(frozen=True)
class Site:
    """A windowed layer of a graph, with the convention that its source uses."""

    kind: SiteKind
    window: Window
    convention: Convention

    def __str__(self) -> str:
        divides = self.kind == "avg_pool" and self.convention.rule != "valid"
        return (
            f"{self.convention}, averaged over {self.convention.average}" if divides else str(self.convention)
        )


@dataclass(frozen=True)
class WindowRow:
    """The windows along one axis at one input size.

    Attributes:
        start: the first window's first cell; cell 0 is the first of the input, so a pad before it is
            negative.
        count: how many windows there are.
        fills: what the cells outside the input that some window reads hold; empty where every window stays
            inside.
        divisors: what an average divides by, for each window that reaches outside the input; it is the kernel
            in all others.
        has_empty_window: some window reads no input cell at all.
    """

    start: int
    count: int
    fills: frozenset[float]
    divisors: tuple[int, ...]
    has_empty_window: bool


def pad_amounts(convention: Convention, window: Window, axis: int, size: int) -> tuple[int, int]:
    """Return the cells added before and after an axis of `size` cells.

    `same` is TensorFlow's arithmetic (tf.nn's notes on padding), `same_lower` is ONNX's auto_pad SAME_LOWER.
    `cntk` keeps (k-1)//2 before at every size; the k//2 after are the most that its ceil(size / stride)
    windows read, so nothing depends on the size.
    """
    extent, stride = window.extent(axis), window.stride[axis]
    if convention.rule == "explicit":
        return convention.pads[2 * axis], convention.pads[2 * axis + 1]
    if convention.rule == "cntk":
        return (extent - 1) // 2, extent // 2
    if convention.rule == "valid":
        return 0, 0
    count = -(-size // stride)  # rounded up
    total = max((count - 1) * stride + extent - size, 0)
    half = total // 2
    return (half, total - half) if convention.rule == "same" else (total - half, half)


def count_windows(convention: Convention, window: Window, axis: int, size: int) -> int:
    """Return the number of windows along an axis of `size` cells: the size of the output, 0 where the window
    does not fit.
    """
    before, after = pad_amounts(convention, window, axis, size)
    stride = window.stride[axis]
    spare = size + before + after - window.extent(axis)
    if convention.rounds == "floor":
        return max(spare // stride + 1, 0)
    count = -(-spare // stride) + 1
    # the last window would begin behind the input and its first pad
    if convention.rounds == "ceil" and (count - 1) * stride >= size + before:
        count -= 1
    return max(count, 0)


def output_size(convention: Convention, window: Window, size: Size) -> Size:
    """Return the rows and columns that the layer gives for `size`; None stays None."""
    rows, columns = (
        None if n is None else count_windows(convention, window, axis, n) for axis, n in enumerate(size)
    )
    return rows, columns


def row(convention: Convention, window: Window, axis: int, size: int) -> WindowRow:
    """Return the windows of a layer that carries its own pads, along one axis of `size` cells."""
    before, after = pad_amounts(convention, window, axis, size)
    count = count_windows(convention, window, axis, size)
    first_cell_of_each = first_cells(window, axis, before, count)
    # the cells before and after the input that an average counts
    counted = {"full_window": None, "real_cells": (0, 0), "clipped_window": (before, after)}
    return count_row(window, axis, size, first_cell_of_each, convention.fill, counted[convention.average])


def first_cells(window: Window, axis: int, before: int, count: int) -> range:
    """Return the first cell of each of `count` windows after a pad of `before` cells: -1, 1, 3 for a pad of 1
    and a stride of 2.
    """
    return range(-before, count * window.stride[axis] - before, window.stride[axis])


def count_row(
    window: Window, axis: int, size: int, firsts: range, fill: float, counted: tuple[int, int] | None
) -> WindowRow:
    """Return the row of the windows along an axis of `size` cells that begin at these first cells.

    Args:
        firsts: the first cell of each window; negative in a pad.
        fill: what the cells outside the input hold.
        counted: how many cells before and after the input an average counts; None where it counts every cell
            of a window.
    """
    kernel, dilation = window.kernel[axis], window.dilation[axis]
    last_inside = size - window.extent(axis)  # a window that begins there ends with the input
    outside = [first for first in firsts if first < 0 or first > last_inside]
    if counted is None:
        divisors = (kernel,) * len(outside)
    else:
        before, after = counted
        divisors = tuple(_taps_within(first, kernel, dilation, -before, size + after) for first in outside)
    has_empty_window = any(_taps_within(first, kernel, dilation, 0, size) == 0 for first in outside)
    fills = frozenset({fill} if outside else ())
    return WindowRow(firsts.start, len(firsts), fills, divisors, has_empty_window)


def _taps_within(first: int, kernel: int, dilation: int, low: int, high: int) -> int:
    """Return how many taps of a window, the `kernel` cells first, first + dilation, ... that it reads, lie in
    low..high-1.
    """
    first_tap = max(0, -((first - low) // dilation))
    last_tap = min(kernel - 1, (high - 1 - first) // dilation)
    return max(last_tap - first_tap + 1, 0)


def sizes_to_try(window: Window, axis: int, size: int | None) -> Iterable[int]:
    """Return sizes that stand for `size`, or for every size if it is None: those below extent + stride, since
    from there on a stride more of input only adds a window inside (see the module).
    """
    extent, stride = window.extent(axis), window.stride[axis]
    if size is None:
        return range(1, extent + stride)
    longest = extent + stride - 1
    # the longest of these that differs from `size` by whole strides
    return [min(size, longest - (longest - size) % stride)]


def _expect_cells(name: str, numbers: object, length: int, least: int) -> None:
    """Expect a tuple of so many whole numbers, from `least` to LARGEST. Raises PaddingError for anything
    else.
    """
    are_cells = (
        isinstance(numbers, tuple)
        and len(numbers) == length
        and all(type(n) is int and least <= n <= LARGEST for n in numbers)
    )
    if not are_cells:
        raise PaddingError(
            f"{name}: expected {length} whole numbers from {least} to {LARGEST}, got {numbers!r:.80}"
        )


def pads_text(pads: Pads) -> str:
    """Return pads as people write them: one number, or ((top, bottom), (left, right))."""
    top, bottom, left, right = pads
    if top == bottom == left == right:
        return str(top)
    return f"(({top},{bottom}),({left},{right}))"

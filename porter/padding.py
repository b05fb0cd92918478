"""How frameworks pad windowed layers, and the smallest exact way to say the same elsewhere.

Everything happens along one axis at a time. There a windowed layer is a row of windows: where the first one starts, how many
there are, and, for an average, what each is divided by. Two ways of padding are the same function exactly when their rows of
windows are the same, so nothing below reasons about frameworks case by case: it writes down what the source computes, tries the
destination's spellings from the simplest to the largest, and takes the first whose windows are equal.

Equality at *every* size is decidable by looking at a few: once the input is longer than the window, a row depends on the size
only through its remainder modulo the stride.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

from porter.errors import PaddingError

Rule = Literal["valid", "same", "same_lower", "cntk", "explicit"]
Rounding = Literal["floor", "ceil", "full"]
Average = Literal["real_cells", "full_window", "clipped_window"]
SiteKind = Literal["conv", "max_pool", "avg_pool"]
Pads = tuple[int, int, int, int]
Size = tuple[int | None, int | None]

LOWEST = float("-inf")


@dataclass(frozen=True)
class Window:
    """The geometry of a windowed layer; each pair is (rows, columns)."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def extent(self, axis: int) -> int:
        """Cells from a window's first to its last, holes of the dilation included."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1


@dataclass(frozen=True)
class Convention:
    """How a framework pads one windowed layer.

    Attributes:
        rule: `valid`; `same` (TensorFlow: from the input size, the odd cell at the end); `same_lower` (the odd cell first);
            `cntk` ((k-1)//2 first at every size); `explicit` (`pads`).
        pads: top, bottom, left, right; all zero unless the rule is `explicit`.
        fill: what a pad cell holds: 0, or -inf in a max pool whose pad takes no part.
        average: what an average divides by: the cells of the window that are input (`real_cells`), all k*k (`full_window`), or
            those inside the padded extent (`clipped_window`, Caffe; torch with count_include_pad).
        rounding: `floor`; `ceil` (Caffe and torch: a last window that would start in the trailing pad is dropped); `full`
            (MXNet: it is kept).
    """

    rule: Rule = "valid"
    pads: Pads = (0, 0, 0, 0)
    fill: float = 0.0
    average: Average = "real_cells"
    rounding: Rounding = "floor"

    def __str__(self) -> str:
        text = self.rule if self.rule != "explicit" else _pads_text(self.pads)
        if self.fill == LOWEST and self.rule != "valid":
            text += ", -inf"
        if self.rounding != "floor":
            text += f", {self.rounding}"
        return text


@dataclass(frozen=True)
class Site:
    """A windowed layer of a graph, with the convention that its source uses."""

    kind: SiteKind
    window: Window
    convention: Convention


@dataclass(frozen=True)
class Row:
    """The windows along one axis at one input size.

    Attributes:
        start: the first window's first cell; cell 0 is the first of the input, so a pad before it is negative.
        count: how many windows there are.
        fills: what the pad cells hold that some window reads; empty where every window stays inside the input.
        divisors: what an average divides each window by.
        lonely: some window reads no input cell at all.
    """

    start: int
    count: int
    fills: frozenset[float]
    divisors: tuple[int, ...]
    lonely: bool

    @property
    def defined(self) -> bool:
        """Whether the source computes anything here: at least one window, and no division by zero."""
        return self.count > 0 and 0 not in self.divisors


@dataclass(frozen=True)
class Front:
    """A pad layer standing before the windowed layer.

    With the rule `explicit` it adds `pads`; with `same` or `same_lower` it computes them from its input at run time.
    """

    rule: Literal["explicit", "same", "same_lower"]
    pads: Pads
    fill: float


@dataclass(frozen=True)
class Capabilities:
    """What a destination framework's own windowed layers can express.

    Attributes:
        symmetric: pads that are equal on both sides.
        explicit: any four pads.
        same: TensorFlow's rule, from the input size at run time.
        half_kernel: a pool's pad may not exceed half its kernel, the dilation not counted.
        roundings: how pools may round; convolutions always floor.
        averages: divisors that its average pool knows.
        dynamic: rules that a pad layer can compute at run time.
        dilated_pools: the kinds of pool that take a dilation.
        dilated_strides: a convolution may be strided and dilated at once.
    """

    symmetric: bool
    explicit: bool
    same: bool
    half_kernel: bool
    roundings: tuple[Rounding, ...]
    averages: tuple[Average, ...]
    dynamic: tuple[Literal["same", "same_lower"], ...]
    dilated_pools: tuple[SiteKind, ...]
    dilated_strides: bool


@dataclass(frozen=True)
class Realisation:
    """The smallest exact way to say a source's convention in a destination framework.

    The layers are, in order: the pad layer `front`, if any; the windowed layer with `native`; for an average with `counted`, a
    division by the same layers run over a mask; with `subsample`, every stride-th cell of a layer run at stride 1.

    Attributes:
        native: what the destination's own layer is given.
        front: the pad layer before it.
        counted: how much of `front` holds cells that the source's average counts; the mask is one over the input and there,
            zero over the rest of `front`.
        subsample: the layer runs at stride 1 and keeps every stride-th cell.
        every_size: exact at every input size, not only at the one asked for.
        why: one line for the reader.
    """

    native: Convention
    front: Front | None = None
    counted: Pads | None = None
    subsample: bool = False
    every_size: bool = False
    why: str = ""

    @property
    def kind(self) -> Literal["native", "pad layer", "dynamic pad layer", "composition"]:
        if self.counted is not None or self.subsample:
            return "composition"
        if self.front is None:
            return "native"
        return "pad layer" if self.front.rule == "explicit" else "dynamic pad layer"

    def __str__(self) -> str:
        front = ""
        if self.front is not None:
            amount = _pads_text(self.front.pads) if self.front.rule == "explicit" else self.front.rule
            front = f"pad {amount} with {self.front.fill:g}, then "
        tail = ", over the share of cells counted" if self.counted is not None else ""
        tail += ", every stride-th cell" if self.subsample else ""
        return f"{front}{self.native}{tail}"


def pad_amounts(convention: Convention, window: Window, axis: int, size: int) -> tuple[int, int]:
    """Cells added before and after an axis of `size` cells.

    `same` is TensorFlow's arithmetic (tf.nn.convolution's documentation), `same_lower` ONNX's SAME_LOWER. `cntk` keeps
    (k-1)//2 before at every size; the k//2 after are the most that its windows read, so that nothing depends on the size.
    """
    extent = window.extent(axis)
    if convention.rule == "explicit":
        return convention.pads[2 * axis], convention.pads[2 * axis + 1]
    if convention.rule == "cntk":
        return (extent - 1) // 2, extent // 2
    if convention.rule == "valid":
        return 0, 0
    stride = window.stride[axis]
    total = max((-(-size // stride) - 1) * stride + extent - size, 0)
    less, more = total // 2, total - total // 2
    return (less, more) if convention.rule == "same" else (more, less)


def count_windows(convention: Convention, window: Window, axis: int, size: int) -> int:
    """Windows along an axis of `size` cells: the size of the output, 0 where the window does not fit."""
    before, after = pad_amounts(convention, window, axis, size)
    stride = window.stride[axis]
    spare = size + before + after - window.extent(axis)
    if convention.rounding == "floor":
        return max(spare // stride + 1, 0)
    count = -(-spare // stride) + 1
    if convention.rounding == "ceil" and (count - 1) * stride >= size + before:
        count -= 1
    return max(count, 0)


def output_size(convention: Convention, window: Window, size: Size) -> Size:
    """Rows and columns that the layer gives for `size`; None stays None."""
    rows, columns = (None if n is None else count_windows(convention, window, axis, n) for axis, n in enumerate(size))
    return rows, columns


def row(convention: Convention, window: Window, axis: int, size: int) -> Row:
    """The windows of a layer that carries its own pads, along one axis."""
    before, after = pad_amounts(convention, window, axis, size)
    count = count_windows(convention, window, axis, size)
    extents = {"real_cells": (0, size), "clipped_window": (-before, size + after)}
    return _row(window, axis, size, -before, count, convention.fill, extents.get(convention.average))


def realised_row(realisation: Realisation, window: Window, axis: int, size: int) -> Row:
    """The windows that a realisation gives along one axis, in the coordinates of its input."""
    front, native = realisation.front, realisation.native
    before = after = 0
    if front is not None:
        before, after = pad_amounts(Convention(front.rule, front.pads), window, axis, size)
    inner = replace(window, stride=(1, 1)) if realisation.subsample else window
    own_before, own_after = pad_amounts(native, inner, axis, size + before + after)
    count = count_windows(native, inner, axis, size + before + after)
    if realisation.subsample:
        count = -(-count // window.stride[axis])
    extents = {
        "real_cells": (-before, size + after),
        "clipped_window": (-before - own_before, size + after + own_after),
    }
    extent = extents.get(native.average)
    if realisation.counted is not None:
        extent = (-realisation.counted[2 * axis], size + realisation.counted[2 * axis + 1])
    fill = native.fill if front is None else front.fill
    found = _row(window, axis, size, -before - own_before, count, fill, extent)
    if front is not None and own_before + own_after and native.fill != front.fill:
        found = replace(found, fills=found.fills | {native.fill})
    return found


def _row(window: Window, axis: int, size: int, start: int, count: int, fill: float, extent: tuple[int, int] | None) -> Row:
    kernel, stride, dilation = window.kernel[axis], window.stride[axis], window.dilation[axis]
    starts = range(start, start + count * stride, stride)
    real = [_taps_within(first, kernel, dilation, 0, size) for first in starts]
    divisors = [kernel] * count if extent is None else [_taps_within(first, kernel, dilation, *extent) for first in starts]
    fills = frozenset({fill}) if any(cells < kernel for cells in real) else frozenset()
    return Row(start, count, fills, tuple(divisors), 0 in real)


def _taps_within(first: int, kernel: int, dilation: int, low: int, high: int) -> int:
    """How many of the cells first, first + dilation, ... lie in low..high-1."""
    return max(min(kernel - 1, (high - 1 - first) // dilation) - max(0, -((first - low) // dilation)) + 1, 0)


@lru_cache(maxsize=4096)
def realise(site: Site, size: Size, capabilities: Capabilities, nonnegative: bool = False) -> Realisation:
    """The smallest exact realisation of a padding site in a destination framework.

    Args:
        site: the layer and its source's convention.
        size: rows and columns of its input; None where unknown, and then exact at every size.
        capabilities: what the destination's own layers can express.
        nonnegative: the input is provably >= 0 (after a ReLU), so that a zero stands for -inf in a max pool.

    Raises:
        PaddingError: no window fits into the input, or nothing exact exists; it names what the destination lacks.
    """
    axis_sizes = [_sizes_to_try(site, axis) if n is None else [n] for axis, n in enumerate(size)]
    source = [[row(site.convention, site.window, axis, n) for n in sizes] for axis, sizes in enumerate(axis_sizes)]
    if not all(any(found.defined for found in rows) for rows in source):
        raise PaddingError(f"no {site.kind} window {site.window.kernel} fits into an input of {size[0]}x{size[1]}")
    _refuse_unsupported(site, capabilities)
    if None not in size and site.convention.rule not in ("same", "same_lower"):
        # The source pads alike at every size, so the port should too; only if that cannot be, this size alone.
        with suppress(PaddingError):
            return realise(site, (None, None), capabilities, nonnegative)
    for candidate in _candidates(site, axis_sizes, capabilities, nonnegative):
        if _equal(site, candidate, axis_sizes, nonnegative):
            everywhere = [_sizes_to_try(site, axis) for axis in (0, 1)]
            return replace(candidate, every_size=_equal(site, candidate, everywhere, nonnegative))
    asked = "every size" if None in size else f"{size[0]}x{size[1]}"
    raise PaddingError(
        f"a {site.kind} of kernel {site.window.kernel}, stride {site.window.stride}, dilation {site.window.dilation} padded "
        f"'{site.convention}' has no exact form at {asked} in the destination",
        next="give --input-size a fixed size" if None in size else None,
    )


def _sizes_to_try(site: Site, axis: int) -> list[int]:
    """Sizes whose rows decide equality at every size: past the window, rows repeat with the stride."""
    pads = site.convention.pads[2 * axis] + site.convention.pads[2 * axis + 1]
    return list(range(1, 2 * (site.window.extent(axis) + site.window.stride[axis]) + pads + 1))


def _equal(site: Site, realisation: Realisation, axis_sizes: list[list[int]], nonnegative: bool) -> bool:
    for axis, sizes in enumerate(axis_sizes):
        for size in sizes:
            wanted = row(site.convention, site.window, axis, size)
            if wanted.defined and not _same_row(site.kind, wanted, realised_row(realisation, site.window, axis, size), nonnegative):
                return False
    return True


def _same_row(kind: SiteKind, wanted: Row, found: Row, nonnegative: bool) -> bool:
    if (wanted.start, wanted.count) != (found.start, found.count):
        return False
    if kind == "avg_pool":
        return wanted.divisors == found.divisors
    if kind == "conv":
        return True
    zero_is_neutral = nonnegative and not wanted.lonely
    return wanted.fills == found.fills or (zero_is_neutral and wanted.fills | found.fills <= {0.0, LOWEST})


def _refuse_unsupported(site: Site, capabilities: Capabilities) -> None:
    if site.window.dilation != (1, 1) and site.kind != "conv" and site.kind not in capabilities.dilated_pools:
        raise PaddingError(f"the destination has no dilated {site.kind}")


def _candidates(site: Site, axis_sizes: list[list[int]], capabilities: Capabilities, nonnegative: bool) -> Iterator[Realisation]:
    """The destination's spellings, from the smallest to the largest; which of them are exact is for the caller to see."""
    window, convention = site.window, site.convention
    strided_and_dilated = site.kind == "conv" and any(s > 1 for s in window.stride) and window.dilation != (1, 1)
    subsample = strided_and_dilated and not capabilities.dilated_strides
    if not subsample:
        for native in _natives(site, axis_sizes, capabilities):
            yield Realisation(native, why=_native_why(convention, native))

    # A pad layer ahead of an unpadded one. Its pads count as input, so an average over it divides by the full window.
    fill = 0.0 if nonnegative or site.kind != "max_pool" else convention.fill
    bare = Convention(fill=0.0, average="real_cells")
    averages = [None, (0, 0, 0, 0), _nominal_pads(site, axis_sizes)] if site.kind == "avg_pool" else [None]
    for counted in averages:
        composed = counted is not None
        for pads in _front_pads(site, axis_sizes):
            if subsample:
                why = "the destination cannot stride and dilate at once"
            elif composed:
                why = "the average divides by other cells than the destination's"
            else:
                why = "the destination's layer has no such pads"
            yield Realisation(bare, Front("explicit", pads, fill), counted, subsample, why=why)
        for rule in capabilities.dynamic:
            if rule == convention.rule and not subsample:
                why = f"'{rule}' depends on the input size"
                yield Realisation(bare, Front(rule, (0, 0, 0, 0), fill), counted, why=why)


def _natives(site: Site, axis_sizes: list[list[int]], capabilities: Capabilities) -> Iterator[Convention]:
    window, convention = site.window, site.convention
    fill = LOWEST if site.kind == "max_pool" else 0.0
    spellings: list[Convention] = []
    if capabilities.same and convention.rule == "same":
        spellings.append(Convention("same", fill=fill))
    spellings.append(Convention("valid", fill=fill))
    if capabilities.symmetric or capabilities.explicit:
        for rows, columns in product(*_starts(site, axis_sizes)):
            spellings.append(Convention("explicit", (rows, rows, columns, columns), fill))
    if capabilities.explicit:
        spellings += [Convention("explicit", pads, fill) for pads in _front_pads(site, axis_sizes)]
    if capabilities.same:
        spellings.append(Convention("same", fill=fill))
    roundings: tuple[Rounding, ...] = ("floor",) if site.kind == "conv" else capabilities.roundings
    averages: tuple[Average, ...] = capabilities.averages if site.kind == "avg_pool" else ("real_cells",)
    for rounding, spelling, average in product(roundings, spellings, averages):
        if site.kind != "conv" and capabilities.half_kernel and _exceeds_half(spelling.pads, window):
            continue
        if rounding == "floor" or spelling.rule != "same":
            yield replace(spelling, rounding=rounding, average=average)


def _exceeds_half(pads: Pads, window: Window) -> bool:
    return any(max(pads[2 * axis : 2 * axis + 2]) > window.kernel[axis] // 2 for axis in (0, 1))


def _starts(site: Site, axis_sizes: list[list[int]]) -> list[list[int]]:
    """Per axis, the amounts of pad that the source puts in front at the sizes asked for."""
    return [
        sorted({pad_amounts(site.convention, site.window, axis, n)[0] for n in sizes}, reverse=True)
        for axis, sizes in enumerate(axis_sizes)
    ]


def _nominal_pads(site: Site, axis_sizes: list[list[int]]) -> Pads:
    amounts = [pad_amounts(site.convention, site.window, axis, sizes[-1]) for axis, sizes in enumerate(axis_sizes)]
    return (*amounts[0], *amounts[1])


def _front_pads(site: Site, axis_sizes: list[list[int]]) -> Iterator[Pads]:
    """Constant pads to try: the convention's own, then those that its windows reach."""
    yield _nominal_pads(site, axis_sizes)
    reached = []
    for axis, sizes in enumerate(axis_sizes):
        rows = [(n, row(site.convention, site.window, axis, n)) for n in sizes]
        extent, stride = site.window.extent(axis), site.window.stride[axis]
        after = max(found.start + (found.count - 1) * stride + extent - n for n, found in rows if found.defined)
        reached.append((-rows[-1][1].start, max(after, 0)))
    yield (*reached[0], *reached[1])


def _native_why(convention: Convention, native: Convention) -> str:
    if native.rule == convention.rule and native.pads == convention.pads:
        return "the destination says it the same way"
    return f"'{native}' has the same windows"


def _pads_text(pads: Pads) -> str:
    top, bottom, left, right = pads
    if top == bottom == left == right:
        return str(top)
    return f"(({top},{bottom}),({left},{right}))"

"""The arithmetic of padding and its realisations against windows laid cell by cell
(support/padding/windows.py), along one axis.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from porter.base.errors import PaddingError
from porter.frameworks.caffe.destination import DESTINATION as CAFFE
from porter.frameworks.onnx.sites import CAPABILITIES as ONNX
from porter.frameworks.tf.ports.sites import CAPABILITIES as KERAS
from porter.frameworks.tflite.destination import DESTINATION as LITE
from porter.frameworks.torch.layout import CAPABILITIES as TORCH
from porter.padding import (
    LARGEST,
    LOWEST,
    Average,
    Capabilities,
    Convention,
    Front,
    Realisation,
    Rounding,
    Rule,
    Site,
    SiteKind,
    Window,
    WindowRow,
    count_windows,
    output_size,
    pad_amounts,
    realise,
    row,
)
from tests.support.arrays import Array
from tests.support.padding.windows import Layout, counted_cells, evaluate, evaluate_map, lay

KERNELS, STRIDES, DILATIONS = range(1, 8), range(1, 5), range(1, 4)
AVERAGES: tuple[Average, ...] = ("real_cells", "full_window", "clipped_window")
ROUNDINGS: tuple[Rounding, ...] = ("floor", "ceil", "full")
LONGEST = 60
"""The longest input at which realisations are tried; porter itself looks no further than 22."""
X = np.abs(np.random.default_rng(0).normal(0.0, 1.0, LONGEST))
WEIGHTS = np.random.default_rng(1).normal(0.0, 1.0, max(KERNELS))


@dataclass(frozen=True)
class Geometry:
    """One axis of a windowed layer and of its convention."""

    rule: Rule
    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int] = (0, 0)
    rounding: Rounding = "floor"

    def lay(self, size: int) -> Layout:
        return lay(self.rule, self.kernel, self.stride, self.dilation, size, self.pads, self.rounding)

    def site(self, kind: SiteKind, fill: float = 0.0, average: Average = "real_cells") -> Site:
        """The same on both axes."""
        window = Window((self.kernel,) * 2, (self.stride,) * 2, (self.dilation,) * 2)
        return Site(
            kind, window, Convention(self.rule, (*self.pads, *self.pads), fill, average, self.rounding)
        )


@cache
def geometries() -> tuple[Geometry, ...]:
    """Every rule with every kernel, stride and dilation; explicit pads of 0..k-1 on each side; every rounding
    where one applies.
    """
    found = []
    for kernel, stride, dilation in product(KERNELS, STRIDES, DILATIONS):
        found += [Geometry(rule, kernel, stride, dilation) for rule in ("same", "same_lower", "cntk")]
        found += [Geometry("valid", kernel, stride, dilation, rounding=rounding) for rounding in ROUNDINGS]
        sides = product(range(kernel), range(kernel), ROUNDINGS)
        found += [
            Geometry("explicit", kernel, stride, dilation, (before, after), rounding)
            for before, after, rounding in sides
        ]
    return tuple(found)


@pytest.mark.parametrize("sizes", [3, pytest.param(40, marks=pytest.mark.full)])
def test_the_rows_of_the_grid(sizes: int) -> None:
    """In CI each geometry at 3 of the 40 sizes."""
    cases = 0
    for number, geometry in enumerate(geometries()):
        window = geometry.site("conv").window
        conventions = [
            (average, geometry.site("avg_pool", average=average).convention) for average in AVERAGES
        ]
        neutral = geometry.site("max_pool", LOWEST).convention
        for size in random.Random(number).sample(range(1, 41), sizes):
            layout = lay.__wrapped__(*_axis(geometry), size, geometry.pads, geometry.rounding)
            outside = [cells for cells in layout.windows if cells[0] < 0 or cells[-1] >= size]
            start = layout.windows[0][0] if layout.windows else None
            has_empty_window = any(all(cell < 0 or cell >= size for cell in cells) for cells in outside)
            for average, convention in conventions:
                found = row(convention, window, 0, size)
                wanted = _row(
                    start,
                    len(layout.windows),
                    0.0,
                    _divisors(average, outside, size, layout),
                    has_empty_window,
                    found,
                )
                assert found == wanted, (geometry, average, size)
            found = row(neutral, window, 1, size)
            divisors = _divisors("real_cells", outside, size, layout)
            assert found == _row(start, len(layout.windows), LOWEST, divisors, has_empty_window, found), (
                geometry,
                size,
            )
            assert output_size(neutral, window, (size, None)) == (len(layout.windows), None)
            # A convolution and a max pool over zeros are the first of these rows, the other two averages and
            # -inf the rest.
            cases += 1 + 2 + len(AVERAGES)
    assert cases == 33_264 * sizes


def _axis(geometry: Geometry) -> tuple[str, int, int, int]:
    return geometry.rule, geometry.kernel, geometry.stride, geometry.dilation


def _row(
    start: int | None,
    count: int,
    fill: float,
    divisors: tuple[int, ...],
    has_empty_window: bool,
    found: WindowRow,
) -> WindowRow:
    return WindowRow(
        found.start if start is None else start,
        count,
        frozenset({fill} if divisors else ()),
        divisors,
        has_empty_window,
    )


def _divisors(average: Average, windows: list[tuple[int, ...]], size: int, layout: Layout) -> tuple[int, ...]:
    low, high = {"real_cells": (0, size), "clipped_window": (layout.low, layout.high)}.get(
        average, (-size - 99, 2 * size + 99)
    )
    return tuple(bisect_left(cells, high) - bisect_left(cells, low) for cells in windows)


@dataclass(frozen=True)
class Stack:
    """The windows of one axis at many input sizes, one below the other; cells in the coordinates of the
    layer's own input.
    """

    counts: tuple[int, ...]
    cells: Array
    size: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, layouts: list[Layout], sizes: list[int]) -> Stack:
        counts = [len(layout.windows) for layout in layouts]
        kernel = max((len(layout.windows[0]) for layout in layouts if layout.windows), default=1)
        cells = np.array([cells for layout in layouts for cells in layout.windows], int).reshape(-1, kernel)
        columns = (sizes, [layout.low for layout in layouts], [layout.high for layout in layouts])
        return cls(tuple(counts), cells, *(np.repeat(column, counts)[:, None] for column in columns))


@cache
def source_stack(geometry: Geometry, sizes: tuple[int, ...]) -> Stack:
    return Stack.of([geometry.lay(size) for size in sizes], list(sizes))


def source_values(
    geometry: Geometry, site: Site, sizes: tuple[int, ...], x: Array
) -> tuple[tuple[int, ...], Array]:
    """How many values the source gives at each size, and the values of all; the inputs are x[:, :size]."""
    stack, average = source_stack(geometry, sizes), site.convention.average
    real = (stack.cells >= 0) & (stack.cells < stack.size)
    counted = counted_cells(average, stack.cells, stack.size, stack.low, stack.high)
    taps = x[:, stack.cells.clip(0, LONGEST - 1)]
    return stack.counts, evaluate(
        site.kind, taps, real, counted, site.convention.fill, WEIGHTS[: geometry.kernel]
    )


@lru_cache(1024)
def native_stack(
    layer: tuple[Rule, int, int, int, tuple[int, ...], Rounding],
    skipped: tuple[int, ...],
    subsample: bool,
    lengths: tuple[int, ...],
) -> Stack:
    """The windows that a realisation's layer reads of padded inputs of some lengths."""
    rule, kernel, stride, dilation, pads, rounding = layer
    low, high = skipped
    if subsample:
        whole = [lay(rule, kernel, 1, dilation, length, pads, rounding) for length in lengths]
        layouts = [
            Layout(each.windows[low : len(each.windows) - high : stride], each.low, each.high)
            for each in whole
        ]
    elif low or high:  # zeros before and after the kernel
        assert low % dilation == high % dilation == 0
        larger = [
            lay(rule, kernel + (low + high) // dilation, stride, dilation, length, pads) for length in lengths
        ]
        layouts = [_inner(layout, low // dilation, kernel) for layout in larger]
    else:
        layouts = [lay(rule, kernel, stride, dilation, length, pads, rounding) for length in lengths]
    return Stack.of(layouts, list(lengths))


def realised_values(
    found: Realisation, axis: int, site: Site, sizes: tuple[int, ...], x: Array
) -> tuple[tuple[int, ...], Array]:
    """The same of a realisation: its layers carried out one after the other."""
    window, native, side = site.window, found.native, slice(2 * axis, 2 * axis + 2)
    kernel, stride, dilation = window.kernel[axis], window.stride[axis], window.dilation[axis]
    padded = [_front_pads(found.front, axis, kernel, stride, dilation, size) for size in sizes]
    lengths = [before + size + after for (before, after), size in zip(padded, sizes, strict=True)]
    layer = (native.rule, kernel, stride, dilation, native.pads[side], native.rounding)
    stack = native_stack(layer, found.skipped[side], found.subsample, tuple(lengths))
    first = np.repeat([before for before, _ in padded], stack.counts)[:, None]
    size = np.repeat(sizes, stack.counts)[:, None]
    cells = stack.cells - first
    real = (cells >= 0) & (cells < size)
    behind_front = (stack.cells >= 0) & (stack.cells < stack.size)
    fill = np.where(behind_front, 0.0 if found.front is None else found.front.fill, native.fill)
    counted = counted_cells(native.average, stack.cells, stack.size, stack.low, stack.high)
    taps = x[:, cells.clip(0, LONGEST - 1)]
    values = evaluate(site.kind, taps, real, counted, fill, WEIGHTS[:kernel])
    if found.counted is not None:
        before, after = found.counted[2 * axis], found.counted[2 * axis + 1]
        mask = behind_front & (cells >= -before) & (cells < size + after)
        values = values / evaluate("avg_pool", np.ones(cells.shape), mask, counted, 0.0, WEIGHTS)
    return stack.counts, values


def _inner(layout: Layout, first: int, kernel: int) -> Layout:
    """The cells of windows that `kernel` cells of theirs read, from one on."""
    return Layout(tuple(cells[first : first + kernel] for cells in layout.windows), layout.low, layout.high)


def _front_pads(
    front: Front | None, axis: int, kernel: int, stride: int, dilation: int, size: int
) -> tuple[int, int]:
    if front is None:
        return 0, 0
    if front.rule == "explicit":
        return front.pads[2 * axis], front.pads[2 * axis + 1]
    layout = lay(front.rule, kernel, stride, dilation, size)
    return -layout.low, layout.high - size


def same_function(
    found: Realisation,
    geometry: Geometry,
    site: Site,
    sizes: tuple[int, ...],
    nonnegative: bool,
    axis: int = 0,
) -> bool:
    # Rising, falling and in disorder, so that no two windows have all their maxima in common. What may be
    # negative is so throughout, or a greater cell would hide a zero where -inf belongs.
    x = np.stack([X, np.sort(X), -np.sort(-X)]) * (1 if nonnegative else -1)
    # The longest sizes first: nearly every wrong form differs there already.
    for some in (sizes[-3:], sizes):
        counts, wanted = source_values(geometry, site, some, x)
        # What is right at one size may have a window of no cells at another.
        with np.errstate(invalid="ignore"):
            found_counts, values = realised_values(found, axis, site, some, x)
        if counts != found_counts or not (np.abs(wanted - values) <= 1e-13).all():
            return False
    return True


@cache
def defined_sizes(geometry: Geometry, kind: SiteKind, average: Average, fill: float) -> tuple[int, ...]:
    """Sizes at which the source computes something: there is a window, and none is an average of no cells or
    a maximum of -inf.
    """
    found = []
    for size in range(1, LONGEST + 1):
        layout = geometry.lay(size)
        cells = None
        if kind == "avg_pool":
            cells = _divisors(average, list(layout.windows), size, layout)
        elif kind == "max_pool" and fill == LOWEST:
            cells = _divisors("real_cells", list(layout.windows), size, layout)
        if layout.windows and (cells is None or 0 not in cells):
            found.append(size)
    return tuple(found)


def sites_of(geometry: Geometry) -> Iterator[tuple[Site, bool]]:
    """Every site with this geometry on both axes, each with whether its input is non-negative."""
    yield geometry.site("conv"), False
    for fill, nonnegative in product((0.0, LOWEST), (False, True)):
        yield geometry.site("max_pool", fill), nonnegative
    for average in AVERAGES:
        yield geometry.site("avg_pool", average=average), False


UNDEFINED, NO_DILATED_POOL, MOVING = "undefined", "no dilated pool", "depends on the input size"
OTHER_FILL = "pads that hold no zeros"


def reason_of(error: PaddingError) -> str:
    phrases = {
        "fits into an input": UNDEFINED,
        "over pads only": UNDEFINED,
        "has no dilated": NO_DILATED_POOL,
        "depends on the input size": MOVING,
        "add zeros": OTHER_FILL,
    }
    (reason,) = [reason for phrase, reason in phrases.items() if phrase in error.message]
    return reason


def refusal_is_due(
    reason: str, geometry: Geometry, site: Site, size: int | None, capabilities: Capabilities
) -> bool:
    """Whether the reason given holds, found without porter's arithmetic."""
    sizes = defined_sizes(geometry, site.kind, site.convention.average, site.convention.fill)
    if reason == UNDEFINED:
        return size not in sizes if size is not None else not sizes
    if reason == NO_DILATED_POOL:
        return (
            site.kind == "avg_pool" and geometry.dilation > 1 and site.kind not in capabilities.dilated_pools
        )
    if reason == OTHER_FILL:
        return capabilities.zeros_only and site.kind == "max_pool" and site.convention.fill != 0
    moves = len({geometry.lay(n).low for n in sizes}) > 1
    return (
        size is None
        and moves
        and geometry.rule not in capabilities.dynamic
        and _cannot_say_same(geometry, site, capabilities)
    )


def _cannot_say_same(geometry: Geometry, site: Site, capabilities: Capabilities) -> bool:
    zeros = site.kind == "max_pool" and site.convention.fill == 0
    dilated = _refuses_dilation(geometry, site, capabilities)
    other_average = site.kind == "avg_pool" and site.convention.average not in capabilities.averages
    return not capabilities.same or geometry.rule != "same" or zeros or other_average or dilated


def _refuses_dilation(geometry: Geometry, site: Site, capabilities: Capabilities) -> bool:
    """Whether the destination's own layer takes no such dilation."""
    takes = (
        site.kind in capabilities.dilated_pools
        if site.kind != "conv"
        else geometry.stride == 1 or capabilities.dilated_strides
    )
    return geometry.dilation > 1 and not takes


def natives_of(site: Site, capabilities: Capabilities) -> Iterator[Realisation]:
    """Everything that the destination's own layer can be told, listed without porter."""
    fill, extent = (LOWEST if site.kind == "max_pool" else 0.0), site.window.extent(0)
    averages = capabilities.averages if site.kind == "avg_pool" else ("real_cells",)
    for average in averages:
        if capabilities.same:
            yield Realisation(Convention("same", fill=fill, average=average))
        for rounding in ("floor",) if site.kind == "conv" else capabilities.roundings:
            most = (
                0
                if not capabilities.symmetric
                else extent - 1
                if site.kind == "conv"
                else site.window.kernel[0] // 2
            )
            past = (
                capabilities.keeps_last
                and site.window.kernel[0] < site.window.stride[0]
                and site.kind != "conv"
            )
            # Without pads, a window may begin behind the map, where nothing is read.
            for pad in range(past, most + 1):
                yield Realisation(Convention("explicit", (pad,) * 4, fill, average, rounding))


def check_realisation(
    geometry: Geometry, site: Site, size: int | None, capabilities: Capabilities, nonnegative: bool
) -> str:
    """Proves one answer of `realise`; returns its kind, or why it was refused."""
    case = (geometry, site.kind, str(site.convention), site.convention.average, size, nonnegative)
    try:
        found = realise(site, (size, size), capabilities, nonnegative)
    except PaddingError as error:
        reason = reason_of(error)
        assert refusal_is_due(reason, geometry, site, size, capabilities), (case, str(error))
        return reason
    sizes = defined_sizes(geometry, site.kind, site.convention.average, site.convention.fill)
    asked = sizes if size is None else (size,)
    assert found.why and "\n" not in found.why, case
    everywhere = same_function(found, geometry, site, sizes, nonnegative)
    assert everywhere or (size is not None and same_function(found, geometry, site, asked, nonnegative)), (
        case,
        str(found),
    )
    assert found.every_size == everywhere, (case, str(found))
    shorter = size is not None and size < site.window.extent(0)
    if found.kind != "native" and not shorter and not _refuses_dilation(geometry, site, capabilities):
        # Every size first, then the fewest layers: at one known size a pad layer right at every size stands
        # before a native form. Inputs shorter than a window are left out: there, pools with other windows may
        # read the same few cells.
        scope = sizes if found.every_size else asked
        missed = [
            str(native)
            for native in natives_of(site, capabilities)
            if same_function(native, geometry, site, scope, nonnegative)
        ]
        assert not missed, (case, str(found), missed)
    return found.kind


def prove(
    chosen: Iterator[Geometry] | list[Geometry], capabilities: Capabilities, known: int
) -> Counter[str]:
    """Checks every site of the geometries at unknown size and at `known` sizes drawn from 1..40."""
    counts: Counter[str] = Counter()
    draw = random.Random(2)
    for geometry in chosen:
        for site, nonnegative in sites_of(geometry):
            for size in (None, *(draw.randint(1, 40) for _ in range(known))):
                counts[check_realisation(geometry, site, size, capabilities, nonnegative)] += 1
    return counts


def test_known_figures() -> None:
    """Measured in the frameworks themselves, most of them ones that do not run here."""
    ones = np.ones((1, 6, 6))
    padded = Geometry("explicit", 3, 2, 1, (1, 1), "ceil")
    first_row = evaluate_map("avg_pool", padded.lay(6), padded.lay(6), ones, average="clipped_window")[0, 0]
    # Caffe, OpenCV, Torch7, MXNet, torch, ONNX Runtime.
    assert first_row.round(4).tolist() == [0.4444, 0.6667, 0.6667, 0.3333]
    assert row(
        padded.site("avg_pool", average="clipped_window").convention, padded.site("conv").window, 0, 6
    ).divisors == (3, 2)

    apart = Window((2, 2), (3, 3))
    assert count_windows(Convention("explicit", (1, 1, 1, 1), rounding="full"), apart, 0, 5) == 3  # MXNet
    # Caffe, torch, ONNX Runtime.
    assert count_windows(Convention("explicit", (1, 1, 1, 1), rounding="ceil"), apart, 0, 5) == 2

    seven, three = Window((7, 7), (2, 2)), Window((3, 3), (2, 2))
    same = Convention("same")
    assert pad_amounts(same, seven, 0, 224) == (2, 3)  # TensorFlow 1.15 and 2.21
    assert pad_amounts(same, three, 0, 224) == (0, 1)
    assert pad_amounts(same, three, 0, 7) == (1, 1)
    assert pad_amounts(Convention("same_lower"), seven, 0, 224) == (3, 2)
    assert row(Convention("cntk"), seven, 0, 224).start == -3  # CNTK 2.7
    assert row(Convention("cntk"), three, 0, 224).start == -1
    assert count_windows(Convention("cntk"), seven, 0, 224) == 112


def test_realisations_on_a_sample() -> None:
    """The counts are part of the test: a change that refuses more, or composes where it was native, shows
    here.
    """
    everyday = [
        geometry
        for geometry in geometries()
        if geometry.kernel in (2, 3, 7)
        and geometry.stride == 2
        and geometry.dilation == 1
        and geometry.pads in ((0, 0), (1, 1), (0, 1))
    ]
    chosen = everyday + random.Random(1).sample(geometries(), 25)
    refused = {UNDEFINED: 33, NO_DILATED_POOL: 116}
    assert prove(chosen, TORCH, 1) == {
        "native": 502,
        "pad layer": 415,
        "dynamic pad layer": 21,
        "composition": 33,
        **refused,
    }
    counts = {
        "native": 332,
        "larger kernel": 55,
        "pad layer": 3,
        "composition": 294,
        MOVING: 24,
        UNDEFINED: 12,
    }
    assert prove(everyday, CAFFE.CAPABILITIES, 1) == counts
    refused = {UNDEFINED: 33, NO_DILATED_POOL: 116, MOVING: 14}
    assert prove(chosen, KERAS, 1) == {"native": 208, "pad layer": 471, "composition": 278, **refused}


@pytest.mark.full
@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [
        pytest.param(
            TORCH,
            {
                "native": 18518,
                "pad layer": 68718,
                "dynamic pad layer": 496,
                "composition": 5693,
                UNDEFINED: 9599,
                NO_DILATED_POOL: 30032,
            },
            id="torch",
        ),
        pytest.param(
            KERAS,
            {
                "native": 4046,
                "pad layer": 34880,
                "composition": 54382,
                UNDEFINED: 9190,
                NO_DILATED_POOL: 30099,
                MOVING: 459,
            },
            id="keras",
        ),
    ],
)
def test_realisations_on_the_whole_grid(capabilities: Capabilities, wanted: dict[str, int]) -> None:
    """Five minutes for torch, three for Keras."""
    assert prove(list(geometries()), capabilities, 2) == wanted


@pytest.mark.full
def test_caffe_on_a_tenth_of_the_grid() -> None:
    refused = {UNDEFINED: 1343, NO_DILATED_POOL: 3731, MOVING: 62, OTHER_FILL: 1165}
    wanted = {"native": 1637, "larger kernel": 886, "pad layer": 851, "composition": 7125, **refused}
    assert prove(random.Random(7).sample(geometries(), 700), CAFFE.CAPABILITIES, 2) == wanted


def test_realisations_where_rows_and_columns_differ() -> None:
    draw = random.Random(3)
    counts: Counter[str] = Counter()
    for first in draw.sample(geometries(), 30):
        second = draw.choice(
            [g for g in geometries() if (g.rule, g.rounding) == (first.rule, first.rounding)]
        )
        for (rows, nonnegative), (columns, _) in zip(sites_of(first), sites_of(second), strict=True):
            both, along = rows.window, columns.window
            pairs = [
                (getattr(both, name)[0], getattr(along, name)[0]) for name in ("kernel", "stride", "dilation")
            ]
            convention = replace(rows.convention, pads=(*first.pads, *second.pads))
            site = Site(rows.kind, Window(*pairs), convention)
            for size in ((None, None), (draw.randint(1, 40), draw.randint(1, 40))):
                for capabilities in (TORCH, KERAS):
                    counts[_check_pair((first, second), site, size, capabilities, nonnegative)] += 1
    refused = {UNDEFINED: 94, NO_DILATED_POOL: 254, MOVING: 5}
    assert counts == {"native": 12, "pad layer": 356, "dynamic pad layer": 5, "composition": 234, **refused}


def _check_pair(
    axes: tuple[Geometry, Geometry],
    site: Site,
    size: tuple[int | None, int | None],
    capabilities: Capabilities,
    nonnegative: bool,
) -> str:
    try:
        found = realise(site, size, capabilities, nonnegative)
    except PaddingError as error:
        reason, both = reason_of(error), list(zip(axes, size, strict=True))
        due = [refusal_is_due(reason, geometry, site, n, capabilities) for geometry, n in both]
        assert any(due), (axes, site, size, str(error))
        return reason
    everywhere = True
    for axis, (geometry, n) in enumerate(zip(axes, size, strict=True)):
        sizes = defined_sizes(geometry, site.kind, site.convention.average, site.convention.fill)
        right = same_function(found, geometry, site, sizes, nonnegative, axis)
        assert right or (n is not None and same_function(found, geometry, site, (n,), nonnegative, axis)), (
            axes,
            site,
            size,
            str(found),
        )
        everywhere = everywhere and right
    assert found.every_size == everywhere, (axes, site, size, str(found))
    return found.kind


def why(
    kind: SiteKind,
    convention: Convention,
    size: int | None,
    capabilities: Capabilities,
    nonnegative: bool = False,
) -> str:
    found = realise(Site(kind, Window((3, 3), (2, 2)), convention), (size, size), capabilities, nonnegative)
    return f"{found}: {found.why}"


def test_what_the_table_of_pads_says() -> None:
    one, same = Convention("explicit", (1, 1, 1, 1)), Convention("same")
    odd = "SAME puts the odd cell at the bottom and right; the destination pads both sides alike"
    assert why("conv", same, 224, TORCH) == f"pad ((0,1),(0,1)) with 0, then valid: {odd}"
    assert why("conv", same, 7, TORCH) == "1: SAME equals the destination's pad 1 at this size"
    run_time = "SAME depends on the input size, so the pad layer works out its padding for each input size"
    assert why("conv", same, None, TORCH) == f"pad same with 0, then valid: {run_time}"
    assert why("conv", same, None, KERAS) == "same: the destination does the same"
    assert why("conv", one, None, TORCH) == "1: the destination does the same"
    assert (
        why("conv", one, None, KERAS)
        == "pad 1 with 0, then valid: the destination's layers offer only same or valid"
    )
    assert why("conv", Convention(), None, TORCH) == "valid: no window reaches past the input"
    zeros = "the source's pool reads its pads as 0, the destination's own pool ignores its pads"
    assert why("max_pool", one, None, TORCH) == f"pad 1 with 0, then valid: {zeros}"
    alike = "the destination does the same; zero and -inf are alike here, because the input is never negative"
    assert why("max_pool", one, None, TORCH, nonnegative=True) == f"1, -inf: {alike}"
    assert (
        why("avg_pool", one, None, TORCH) == "1: the destination does the same; its average leaves pads out"
    )
    counted = Convention("explicit", (1, 1, 1, 1), average="full_window")
    assert (
        why("avg_pool", counted, None, TORCH) == "1: the destination does the same; its average counts pads"
    )
    mask = "the source's average leaves out cells that the pad layer adds, so a mask corrects the divisor"
    own = "the destination's layers offer only same or valid"
    assert (
        why("avg_pool", one, None, KERAS)
        == f"pad 1 with 0, then valid, over the share of cells counted: {own}; {mask}"
    )
    ceil = Convention(fill=LOWEST, rounding="ceil")
    last = (
        "the source rounds up, so its last window may reach past the end: the pad layer adds the "
        "cells that it reads"
    )
    assert why("max_pool", ceil, None, KERAS) == f"pad ((0,1),(0,1)) with -inf, then valid: {last}"


def test_a_refusal_says_what_is_missing_and_what_to_do() -> None:
    site = Site("conv", Window((2, 2), (2, 2)), Convention("same_lower"))
    with pytest.raises(
        PaddingError,
        match="SAME_LOWER depends on the input size, and the destination cannot pad by it at run time",
    ) as caught:
        realise(site, (None, None), KERAS)
    assert caught.value.next == "give --input-size a fixed size"
    assert str(realise(site, (7, 7), KERAS)) == "pad ((1,0),(1,0)) with 0, then valid"
    wider = Site("conv", Window((3, 3), (2, 2)), Convention("same_lower"))
    # Its first window is at -1 at every size, unlike SAME's.
    assert str(realise(wider, (None, None), TORCH)) == "1"
    with pytest.raises(PaddingError, match="no window of 3 columns fits into an input of 2"):
        realise(Site("conv", Window((3, 3)), Convention()), (5, 2), TORCH)
    with pytest.raises(PaddingError, match="one over pads only, which gives no number"):
        realise(Site("avg_pool", Window((1, 1)), Convention("explicit", (1, 1, 1, 1))), (None, None), TORCH)
    with pytest.raises(PaddingError, match="no dilated average pool"):
        realise(Site("avg_pool", Window((3, 3), dilation=(2, 1)), Convention()), (9, 9), KERAS)


def test_tensorflow_lite_has_no_same_for_a_convolution_that_strides_past_its_kernel() -> None:
    """Its delegate computes garbage there, where Keras is right. Pools are right in both."""

    def said(kind: SiteKind, side: int, stride: int, size: int | None) -> str:
        window = Window((side, side), (stride, stride))
        convention = Convention("same", fill=LOWEST if kind == "max_pool" else 0.0)
        return str(realise(Site(kind, window, convention), (size, size), LITE.CAPABILITIES))

    assert said("conv", 3, 4, 16) == "valid" and said("conv", 1, 2, None) == "valid"
    assert said("conv", 3, 4, 17) == "pad 1 with 0, then valid"
    assert said("conv", 3, 3, None) == said("conv", 3, 2, None) == "same"
    assert said("max_pool", 2, 3, None).startswith("same") and said("avg_pool", 3, 4, None).startswith("same")
    with pytest.raises(PaddingError, match="XNNPACK, by which TensorFlow Lite runs convolutions") as refused:
        said("conv", 3, 4, None)
    assert refused.value.next == "give --input-size a fixed size"


def test_windows_over_only_pads() -> None:
    """A kernel of 1 with a pad of 1: its border is the bias in a convolution and a zero where zeros fill the
    pad of a max pool.
    """
    window, zeros = Window((1, 1)), Convention("explicit", (1, 1, 1, 1))
    assert realise(Site("conv", window, zeros), (None, None), TORCH).kind == "native"
    for nonnegative in (False, True):
        found = realise(Site("max_pool", window, zeros), (None, None), TORCH, nonnegative)
        assert found.front == Front("explicit", (1, 1, 1, 1), 0.0)
    with pytest.raises(PaddingError, match="over pads only"):
        realise(Site("max_pool", window, replace(zeros, fill=LOWEST)), (None, None), TORCH)


def test_pads_of_another_number() -> None:
    """No framework pools so by itself, but a pad layer may hold any number; it is never taken for zero or
    -inf.
    """
    for capabilities, nonnegative in product((TORCH, KERAS), (False, True)):
        site = Site("max_pool", Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), -2.5))
        assert realise(site, (None, None), capabilities, nonnegative).front == Front(
            "explicit", (1, 1, 1, 1), -2.5
        )


def test_rules_that_read_the_size_do_not_round() -> None:
    window = Window((1, 1), (3, 3))
    rules: list[Rule] = ["same", "same_lower", "cntk"]
    for rule, rounding, size in product(rules, ROUNDINGS, range(1, 12)):
        assert count_windows(Convention(rule, rounding=rounding), window, 0, size) == -(-size // 3)


@pytest.mark.parametrize(
    ("kind", "window", "convention", "said"),
    [
        (
            "avg_pool",
            Window((3, 4), (2, 3)),
            Convention("explicit", (0, 1, 2, 1), 0.0, "clipped_window", "ceil"),
            "((0,1),(2,1)), ceil",
        ),
        ("conv", Window((3, 3), (2, 2)), Convention("same"), "same"),
        ("avg_pool", Window((3, 3), (2, 2)), Convention("same_lower"), "same_lower"),
        ("max_pool", Window((3, 3), (2, 2)), Convention("same", fill=0.0), "pad same with 0, then valid"),
        # onnxruntime computes SAME neither with a dilation nor for a kernel shorter than its stride.
        ("conv", Window((3, 3), (2, 2), (2, 2)), Convention("same"), "pad same with 0, then valid"),
        ("max_pool", Window((2, 2), (3, 3)), Convention("same", fill=LOWEST), "((0,1),(0,1)), -inf"),
        # Its pools take pads of less than a kernel.
        ("max_pool", Window((3, 3), (2, 2)), Convention("explicit", (2, 2, 2, 2), LOWEST), "2, -inf"),
        (
            "max_pool",
            Window((2, 2), (1, 1), (3, 3)),
            Convention("explicit", (2, 2, 2, 2), LOWEST),
            "pad 2 with -inf, then valid",
        ),
    ],
)
def test_what_onnx_says_at_every_size(
    kind: SiteKind, window: Window, convention: Convention, said: str
) -> None:
    found = realise(Site(kind, window, convention), (None, None), ONNX)
    assert found.every_size and str(found) == said


@pytest.mark.parametrize("size", [10**3, 10**6, 10**12])
def test_large_inputs_cost_no_more_than_small_ones(size: int) -> None:
    site = Site("avg_pool", Window((3, 3), (2, 2)), Convention("same"))
    small, large = realise(site, (30 + size % 2, 31), TORCH), realise(site, (size, 10**12 + 1), TORCH)
    assert small == large


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "foo"}, "rule: expected one of valid, same"),
        ({"rule": ["same"]}, "rule"),
        ({"average": "mean"}, "average: expected one of .*, got 'mean'"),
        ({"rounding": None}, "rounding: expected one of .*, got None"),
        ({"rule": "explicit", "pads": (1, 1, 1)}, "expected 4 whole numbers from 0 to 1024"),
        ({"rule": "explicit", "pads": (1, 1, 1, -1)}, "expected 4 whole numbers"),
        ({"rule": "explicit", "pads": (1, 1, 1, 1.0)}, "expected 4 whole numbers"),
        ({"rule": "explicit", "pads": (1, 1, 1, LARGEST + 1)}, "expected 4 whole numbers"),
        ({"pads": (1, 1, 1, 1)}, "computes its own pads"),
        ({"fill": float("inf")}, "filled with a number or -inf"),
        ({"fill": float("nan")}, "filled with a number or -inf"),
        ({"fill": "zero"}, "filled with a number or -inf"),
        ({"fill": False}, "filled with a number or -inf"),
    ],
)
def test_conventions_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PaddingError, match=message):
        Convention(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel": (0, 1)},
        {"kernel": (3,)},
        {"kernel": 3},
        {"kernel": (3, 3), "stride": (1, True)},
        {"kernel": (3, 3), "stride": (1, 0)},
        {"kernel": (3, 3), "dilation": ("1", 1)},
        {"kernel": (514, 3), "dilation": (2, 1)},
        {"kernel": (10**30, 1)},
    ],
)
def test_windows_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises(PaddingError):
        Window(**arguments)

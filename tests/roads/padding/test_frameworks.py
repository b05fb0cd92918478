"""The frameworks themselves against windows laid cell by cell (windows.py): their own layers, and what porter
builds of them.

Rows and columns have different geometries throughout, and every comparison is in float64.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import PaddingError
from porter.frameworks import Destination, get_destination
from porter.graph import (
    INPUT,
    AvgPool,
    ConcatChannels,
    Conv,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Node,
    Relu,
    site_of,
    tensor_shapes,
)
from porter.graph.plan import make_plan
from porter.padding import ANY, LOWEST, Average, Convention, Rounding, Rule, SiteKind, Size, Window, realise
from tests.support.arrays import Array
from tests.support.padding.windows import evaluate_map
from tests.unit.padding.test_realise import AVERAGES, KERNELS, Geometry, defined_sizes, geometries, reason_of

CHANNELS, FILTERS = 2, 3
SIZES = range(1, 41)
MODEL_CASES = 40
TOLERANCE = 1e-13
RANDOM = np.random.default_rng(5)
# Mostly negative, so that a zero where -inf belongs is seen.
MAPS = RANDOM.normal(-1.0, 1.0, (CHANNELS, max(SIZES), max(SIZES)))
KERNEL = RANDOM.normal(0.0, 1.0, (FILTERS, CHANNELS, max(KERNELS), max(KERNELS)))


def evaluate_pair(
    kind: SiteKind,
    rows: Geometry,
    columns: Geometry,
    maps: Array,
    *,
    fill: float = 0.0,
    average: Average = "real_cells",
    kernel: Array | None = None,
) -> Array | None:
    """None where no window fits, or one gives no number."""
    for geometry, size in zip((rows, columns), maps.shape[1:], strict=True):
        if size not in defined_sizes(geometry, kind, average, fill):
            return None
    return evaluate_map(
        kind, rows.lay(maps.shape[1]), columns.lay(maps.shape[2]), maps, fill, average, kernel
    )


def check_native(
    wanted: Array | None, layer: Callable[[], Array], case: object, refusal: type[Exception] | None = None
) -> str:
    """Runs a framework's own layer where the case is defined: it has to give the values wanted, or the
    refusal that is due.
    """
    if wanted is None:
        return "undefined"
    if refusal is not None:
        with pytest.raises(refusal):
            layer()
        return "refused"
    found = layer()
    assert found.shape == wanted.shape, case
    assert np.allclose(found, wanted, rtol=0, atol=TOLERANCE), case
    return "equal"


def pairs(
    rule: Rule, rounding: Rounding = "floor", dilated: bool = True
) -> Iterator[tuple[Geometry, Geometry]]:
    """Symmetrically padded geometries of one axis, each with another for the columns that shares what a layer
    has only one of.
    """
    chosen = [
        geometry
        for geometry in geometries()
        if (geometry.rule, geometry.rounding) == (rule, rounding)
        and len(set(geometry.pads)) == 1
        and (dilated or geometry.dilation == 1)
    ]
    return zip(chosen, random.Random(6).sample(chosen, len(chosen)), strict=True)


def maps_for(sizes: range, draw: random.Random) -> Iterator[Array]:
    """An input of every number of rows, the columns drawn."""
    return (MAPS[:, :rows, : draw.choice(SIZES)] for rows in sizes)


def window_of(rows: Geometry, columns: Geometry) -> Window:
    return Window(
        (rows.kernel, columns.kernel), (rows.stride, columns.stride), (rows.dilation, columns.dilation)
    )


SHORT, LONG = range(1, 13), range(13, 41)
"""In CI, the builds below show that what is realised natively is the same windows."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        pytest.param(
            SHORT,
            {
                "conv equal": 2304,
                "conv undefined": 1728,
                "max_pool equal": 1998,
                "max_pool undefined": 3096,
                "max_pool refused": 2970,
                "avg_pool equal": 2186,
                "avg_pool undefined": 526,
                "avg_pool refused": 2664,
            },
            id="short",
        ),
        pytest.param(
            LONG,
            {
                "conv equal": 8312,
                "conv undefined": 1096,
                "max_pool equal": 7563,
                "max_pool undefined": 1917,
                "max_pool refused": 9336,
                "avg_pool equal": 5604,
                "avg_pool undefined": 284,
                "avg_pool refused": 6656,
            },
            id="long",
        ),
    ],
)
def test_torch_pads_as_the_windows_say(sizes: range, wanted: dict[str, int]) -> None:
    torch = pytest.importorskip("torch")
    functional, counts, draw = torch.nn.functional, Counter[str](), random.Random(7)

    def run(function: Any, maps: Array, *arguments: Any, **options: Any) -> Callable[[], Array]:
        return lambda: function(torch.from_numpy(maps[None].copy()), *arguments, **options)[0].numpy()

    for rows, columns in pairs("explicit"):
        window, padding = window_of(rows, columns), (rows.pads[0], columns.pads[0])
        weight = KERNEL[:, :, : rows.kernel, : columns.kernel].copy()
        for maps in maps_for(sizes, draw):
            expected = evaluate_pair("conv", rows, columns, maps, kernel=weight)
            layer = run(
                functional.conv2d,
                maps,
                torch.from_numpy(weight),
                None,
                window.stride,
                padding,
                window.dilation,
            )
            counts["conv " + check_native(expected, layer, (rows, columns, maps.shape))] += 1
    for rounding in ("floor", "ceil"):
        ceil = rounding == "ceil"
        for rows, columns in pairs("explicit", rounding):
            window, padding = window_of(rows, columns), (rows.pads[0], columns.pads[0])
            refusal = (
                RuntimeError
                if any(pad > window.kernel[axis] // 2 for axis, pad in enumerate(padding))
                else None
            )
            for maps in maps_for(sizes, draw):
                expected = evaluate_pair("max_pool", rows, columns, maps, fill=LOWEST)
                layer = run(
                    functional.max_pool2d, maps, window.kernel, window.stride, padding, window.dilation, ceil
                )
                counts["max_pool " + check_native(expected, layer, (rows, columns, maps.shape), refusal)] += 1
        for rows, columns in pairs("explicit", rounding, dilated=False):
            window, padding = window_of(rows, columns), (rows.pads[0], columns.pads[0])
            refusal = (
                RuntimeError
                if any(pad > window.kernel[axis] // 2 for axis, pad in enumerate(padding))
                else None
            )
            averages: list[Average] = ["real_cells", "clipped_window"]
            for maps, average in product(maps_for(sizes, draw), averages):
                expected = evaluate_pair("avg_pool", rows, columns, maps, average=average)
                options = (ceil, average == "clipped_window")
                layer = run(functional.avg_pool2d, maps, window.kernel, window.stride, padding, *options)
                counts["avg_pool " + check_native(expected, layer, (rows, columns, maps.shape), refusal)] += 1
    assert counts == wanted


@pytest.mark.full
@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        pytest.param(
            SHORT,
            {
                "conv equal": 1477,
                "conv undefined": 539,
                "max_pool equal": 572,
                "max_pool undefined": 100,
                "avg_pool equal": 572,
                "avg_pool undefined": 100,
            },
            id="short",
        ),
        pytest.param(
            LONG,
            {
                "conv equal": 4302,
                "conv undefined": 402,
                "max_pool equal": 1499,
                "max_pool undefined": 69,
                "avg_pool equal": 1499,
                "avg_pool undefined": 69,
            },
            id="long",
        ),
    ],
)
def test_tensorflow_pads_as_the_windows_say(sizes: range, wanted: dict[str, int]) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    counts, draw = Counter[str](), random.Random(8)

    def run(function: Any, maps: Array, *arguments: Any) -> Callable[[], Array]:
        batch = tensorflow.constant(maps.transpose(1, 2, 0)[None])
        return lambda: function(batch, *arguments).numpy()[0].transpose(2, 0, 1)

    for rule in ("same", "valid"):
        for rows, columns in pairs(rule):
            window, weight = window_of(rows, columns), KERNEL[:, :, : rows.kernel, : columns.kernel]
            for maps in maps_for(sizes, draw):
                expected = evaluate_pair("conv", rows, columns, maps, kernel=weight)
                options = (window.stride, rule.upper(), "NHWC", window.dilation)
                layer = run(tensorflow.nn.conv2d, maps, weight.transpose(2, 3, 1, 0), *options)
                counts["conv " + check_native(expected, layer, (rows, columns, maps.shape))] += 1
        for rows, columns in pairs(rule, dilated=False):
            window = window_of(rows, columns)
            kinds: list[SiteKind] = ["max_pool", "avg_pool"]
            for maps, kind in product(maps_for(sizes, draw), kinds):
                expected = evaluate_pair(kind, rows, columns, maps, fill=LOWEST)
                pool = getattr(tensorflow.nn, f"{kind}2d")
                layer = run(pool, maps, window.kernel, window.stride, rule.upper())
                counts[f"{kind} " + check_native(expected, layer, (rows, columns, maps.shape))] += 1
    assert counts == wanted


@dataclass(frozen=True)
class Case:
    """A windowed op with the geometries of its rows and columns, and whether a ReLU stands before it."""

    rows: Geometry
    columns: Geometry
    op: Conv | MaxPool | AvgPool
    nonnegative: bool

    def sizes(self) -> tuple[list[int], list[int]]:
        """Rows and columns of inputs at which the op computes something."""
        site = site_of(self.op)
        assert site is not None
        convention = site.convention
        found = [
            defined_sizes(axis, site.kind, convention.average, convention.fill)
            for axis in (self.rows, self.columns)
        ]
        rows, columns = ([size for size in sizes if size in SIZES] for sizes in found)
        return rows, columns


def cases_of(rows: Geometry, columns: Geometry) -> Iterator[Case]:
    window, pads = window_of(rows, columns), (*rows.pads, *columns.pads)
    convention = Convention(rows.rule, pads, 0.0, "real_cells", rows.rounding)
    groups = CHANNELS if rows.kernel % 2 else 1
    yield Case(rows, columns, Conv(2 * CHANNELS, window, convention, groups, bias=True), False)
    for fill, nonnegative in product((0.0, LOWEST), (False, True)):
        yield Case(rows, columns, MaxPool(window, replace(convention, fill=fill)), nonnegative)
    for average in AVERAGES:
        yield Case(rows, columns, AvgPool(window, replace(convention, average=average)), False)


def pair_up(chosen: list[Geometry], seed: int) -> Iterator[tuple[Geometry, Geometry]]:
    """Every geometry once for the rows and once for the columns, beside one of its own rule, rounding and
    dilation.
    """
    groups: dict[Any, list[Geometry]] = defaultdict(list)
    for geometry in chosen:
        groups[geometry.rule, geometry.rounding, geometry.dilation].append(geometry)
    for group in groups.values():
        yield from zip(group, random.Random(seed).sample(group, len(group)), strict=True)


def prove_builds(name: str, cases: list[Case], size: Size, batches: int) -> Counter[str]:
    """Builds the cases and compares what they compute with the windows; counts realisations, refusals, and
    values compared.

    Cases stand beside each other in one model, because a Keras model takes a good second to make: those that
    are defined from the same input size on together, so that the smallest inputs are tried too. With a known
    size all stand in one.

    Args:
        size: that the plan is made for, or ANY.
        batches: input sizes to run each model at, when it is ANY.
    """
    framework, counts = get_destination(name), Counter[str]()
    beside: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        site = site_of(case.op)
        assert site is not None
        try:
            found = realise(site, size, framework.CAPABILITIES, case.nonnegative)
        except PaddingError as error:
            counts[reason_of(error)] += 1
            continue
        counts[found.kind] += 1
        beside[_company(case) if size == ANY else 0].append(case)
    draw = random.Random(9)
    for together in beside.values():
        for start in range(0, len(together), MODEL_CASES):
            chunk = together[start : start + MODEL_CASES]
            sizes = _common_sizes(chunk, batches, draw) if size == ANY else [size]
            counts["compared"] += _compare(framework, chunk, size, sizes)
    return counts


def _company(case: Case) -> Any:
    """What cases of one model share: the least input from which on all is defined, or, where such gaps recur,
    all sizes.
    """
    rows, columns = case.sizes()
    return (
        max(rows[0], columns[0]) if _without_gaps(rows) and _without_gaps(columns) else (*rows, 0, *columns)
    )


def _without_gaps(sizes: list[int]) -> bool:
    return sizes == list(range(sizes[0], SIZES[-1] + 1))


def _common_sizes(cases: list[Case], batches: int, draw: random.Random) -> list[tuple[int, int]]:
    """Input sizes at which all cases are defined: the least rows, as many as `batches`, with columns
    drawn.
    """
    rows, columns = (
        sorted(set.intersection(*map(set, sizes)))
        for sizes in zip(*(case.sizes() for case in cases), strict=True)
    )
    return list(zip(rows[:batches], draw.choices(columns, k=min(batches, len(rows))), strict=True))


def _compare(framework: Destination, cases: list[Case], size: Size, sizes: list[Any]) -> int:
    nodes = [Node("relu", Relu(), (INPUT,))]
    for index, case in enumerate(cases):
        nodes.append(Node(f"case{index}", case.op, ("relu" if case.nonnegative else INPUT,)))
    nodes += [Node(f"mean{index}", GlobalAvgPool(), (f"case{index}",)) for index in range(len(cases))]
    # The ReLU's mean is among them, or a model without cases behind it would leave it out.
    nodes += [Node("relu_mean", GlobalAvgPool(), ("relu",))]
    nodes += [Node("join", ConcatChannels(), (*(f"mean{index}" for index in range(len(cases))), "relu_mean"))]
    graph = Graph(tuple(nodes), CHANNELS, "join")
    draw = np.random.default_rng(11)
    tensors = {
        path: {role: draw.normal(0, 1, shape) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }
    plan = make_plan(graph, size, framework.CAPABILITIES)
    # onnxruntime runs what porter writes in single precision only.
    types: dict[Dtype, float] = {"float64": TOLERANCE}
    if framework.NAME == "onnx":
        types["float32"] = 1e-5
    models = {dtype: framework.ENGINE.build(plan, tensors, {}, dtype, "cpu") for dtype in types}
    compared, paths = 0, [f"case{index}" for index in range(len(cases))]
    for rows, columns in sizes:
        maps = MAPS[:, :rows, :columns]
        wanted = [
            _wanted(case, np.maximum(maps, 0) if case.nonnegative else maps, tensors.get(path, {}))
            for path, case in zip(paths, cases, strict=True)
        ]
        for dtype, tolerance in types.items():
            values = framework.ENGINE.run(models[dtype], maps[None], paths)
            for path, case, right in zip(paths, cases, wanted, strict=True):
                said = (case, (rows, columns), str(plan.realisations[path]))
                assert values[path].dtype == dtype and values[path][0].shape == right.shape, said
                assert np.allclose(values[path][0], right, rtol=0, atol=tolerance), said
                compared += 1
    return compared


def _wanted(case: Case, maps: Array, tensors: dict[str, Array]) -> Array:
    site = site_of(case.op)
    assert site is not None
    kernel = tensors.get("kernel")
    options: dict[str, Any] = {
        "fill": site.convention.fill,
        "average": site.convention.average,
        "kernel": kernel,
    }
    if kernel is not None and kernel.shape[1] == 1:  # depthwise: two filters for each channel
        maps = np.repeat(maps, len(kernel) // CHANNELS, axis=0)
    values = evaluate_pair(site.kind, case.rows, case.columns, maps, **options)
    assert values is not None
    return values + tensors["bias"][:, None, None] if "bias" in tensors else values


def everyday() -> list[Geometry]:
    """Stride 2 with every kernel: every rule and rounding, pads of half the kernel, and those of SAME on even
    maps.
    """
    return [
        geometry
        for geometry in geometries()
        if geometry.stride == 2
        and geometry.dilation == 1
        and (geometry.rule != "explicit" or geometry.pads in ((geometry.kernel // 2,) * 2, (0, 1)))
    ]


def cases_at(chosen: list[Geometry], size: Size) -> list[Case]:
    """The cases of paired geometries that compute something at `size`, or at some size."""
    cases = [case for rows, columns in pair_up(chosen, 1) for case in cases_of(rows, columns)]
    if size == ANY:
        return [case for case in cases if all(case.sizes())]
    return [case for case in cases if all(n in sizes for n, sizes in zip(size, case.sizes(), strict=True))]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "torch",
            {"native": 257, "pad layer": 257, "dynamic pad layer": 84, "composition": 50, "compared": 3240},
        ),
        (
            "tf",
            {
                "native": 106,
                "pad layer": 382,
                "composition": 94,
                "depends on the input size": 66,
                "compared": 1164,
            },
        ),
        (
            "onnx",
            {"native": 545, "pad layer": 74, "dynamic pad layer": 24, "composition": 5, "compared": 1296},
        ),
        pytest.param(
            "flax",
            {"native": 544, "pad layer": 68, "dynamic pad layer": 12, "composition": 24, "compared": 648},
            marks=pytest.mark.full,
        ),
        (
            "caffe",
            {
                "native": 140,
                "larger kernel": 54,
                "composition": 358,
                "depends on the input size": 96,
                "compared": 552,
            },
        ),
        (
            "mxnet",
            {
                "native": 227,
                "pad layer": 278,
                "composition": 47,
                "depends on the input size": 96,
                "compared": 552,
            },
        ),
    ],
)
def test_builds_that_are_right_at_every_size(name: str, wanted: dict[str, int]) -> None:
    # An odd size and an even one where pads may depend on it.
    sizes = {"torch": 5, "tf": 2}.get(name, 1)
    assert prove_builds(name, cases_at(everyday(), ANY), ANY, sizes) == wanted


REFUSED = {"no dilated pool": 36, "pads that hold no zeros": 12}


@pytest.mark.parametrize(
    ("name", "count", "size", "wanted"),
    [
        (
            "torch",
            150,
            (9, 12),
            {"native": 65, "pad layer": 569, "composition": 57, "no dilated pool": 220, "compared": 691},
        ),
        pytest.param(
            *("torch", 400, (9, 12)),
            {"native": 101, "pad layer": 1634, "composition": 170, "no dilated pool": 570, "compared": 1905},
            marks=pytest.mark.full,
        ),
        pytest.param(
            *("torch", 400, (12, 7)),
            {"native": 99, "pad layer": 1429, "composition": 171, "no dilated pool": 442, "compared": 1699},
            marks=pytest.mark.full,
        ),
        (
            "tf",
            40,
            (9, 12),
            {"native": 9, "pad layer": 109, "composition": 77, "no dilated pool": 36, "compared": 195},
        ),
        ("onnx", 40, (9, 12), {"native": 175, "pad layer": 51, "composition": 5, "compared": 462}),
        pytest.param(
            "caffe",
            40,
            (9, 12),
            {
                "native": 11,
                "larger kernel": 21,
                "pad layer": 6,
                "composition": 145,
                **REFUSED,
                "compared": 183,
            },
            marks=pytest.mark.full,
        ),
        pytest.param(
            "tf",
            40,
            (12, 7),
            {"native": 9, "pad layer": 105, "composition": 67, "no dilated pool": 30, "compared": 181},
            marks=pytest.mark.full,
        ),
    ],
)
def test_builds_that_are_right_at_one_size(
    name: str, count: int, size: tuple[int, int], wanted: dict[str, int]
) -> None:
    chosen = random.Random(10).sample(geometries(), count)
    assert prove_builds(name, cases_at(chosen, size), size, 1) == wanted


def most_of_the_grid() -> list[Geometry]:
    """All of it except explicit pads other than 0, half the kernel and the kernel less one."""
    return [
        geometry
        for geometry in geometries()
        if {*geometry.pads} <= {0, geometry.kernel // 2, geometry.kernel - 1}
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "torch",
            {
                "native": 2242,
                "pad layer": 27677,
                "dynamic pad layer": 717,
                "composition": 2628,
                "no dilated pool": 11088,
                "compared": 266112,
            },
        ),
        ("tf", {}),
    ],
)
def test_builds_over_the_grid(name: str, wanted: dict[str, int]) -> None:
    chosen = geometries() if name == "torch" else most_of_the_grid()
    assert prove_builds(name, cases_at(list(chosen), ANY), ANY, 8) == wanted

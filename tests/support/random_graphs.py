"""Random small graphs over all ops, with calibrated tensors, a batch, and the value of every path by the
oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from hypothesis import Phase, strategies as st

from porter.base.errors import GraphError, PaddingError
from porter.graph import (
    INPUT,
    OPS,
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AdaptivePool,
    AddArray,
    Affine,
    AsMap,
    Attention,
    AvgPool,
    Axes,
    BatchNorm,
    Ceil,
    Celu,
    ChannelScale,
    ChannelShuffle,
    Clip,
    Conv,
    ConvTranspose,
    CropAxis,
    CropLike,
    CropMap,
    Dense,
    DepthToSpace,
    Divide,
    Dropout,
    Elu,
    Exp,
    ExtendMap,
    Flatten,
    Floor,
    Gelu,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    GroupNorm,
    HardSigmoid,
    Join,
    LayerNorm,
    LeakyRelu,
    LocalResponseNorm,
    Log,
    MatMul,
    MaxPool,
    MultiplyArray,
    Node,
    Op,
    PadAxis,
    PadChannels,
    PadLike,
    PadMap,
    Power,
    Rearrange,
    Reciprocal,
    ReduceAxis,
    ReduceMap,
    Resize,
    ResizeLike,
    RmsNorm,
    Round,
    Shape,
    Sign,
    SliceChannels,
    SpaceToDepth,
    Sqrt,
    Step,
    ThresholdedRelu,
    Tokens,
    Upsample,
    channels_in,
    is_call,
)
from porter.padding import LOWEST, Capabilities, Convention, Window, realise
from porter.padding.windows import Average, Rule
from tests.support.arrays import Array
from tests.support.oracle import OfAxes, apply

LARGEST_SIDE, LARGEST_CHANNELS, LARGEST_FEATURES = 14, 16, 400
SMALLEST_VALUE, LARGEST_VALUE, SMALLEST_DIVISOR = 1e-2, 1e4, 0.1
IMAGES = 2

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Phases for long graphs, which take minutes to shrink."""

CAPABLE = Capabilities(
    symmetric=True,
    explicit=True,
    same=("same",),
    same_of_any=True,
    pool_pads="any",
    roundings=("floor", "ceil", "full"),
    averages=("real_cells", "full_window", "clipped_window"),
    dynamic=("same", "same_lower"),
    dilated_pools=("max_pool", "avg_pool"),
    dilated_strides=True,
)
"""The capabilities of a destination that says every site for which there is a number."""


@dataclass(frozen=True, repr=False)
class Sample:
    """A graph with all that a comparison needs.

    Attributes:
        graph: its outputs are all values that no node reads, and sometimes one more.
        tensors: canonical, in float64: path to role to array.
        batch: N×C×H×W.
        values: of every path by the oracle, `input` included.
    """

    graph: Graph
    tensors: Mapping[str, Mapping[str, Array]]
    batch: Array
    values: Mapping[str, Array]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What hypothesis prints of an example that fails."""
        nodes = [f"{node.path} = {node.op} of {', '.join(node.inputs)}" for node in self.graph.nodes]
        printer.text(
            "\n".join([f"input {self.batch.shape}", *nodes, f"outputs {', '.join(self.graph.outputs)}"])
        )

    @property
    def size(self) -> tuple[int, int]:
        rows, columns = self.batch.shape[2:]
        return rows, columns


OFTEN = (*OPS, *["rearrange"] * 2)
"""Every op, and more often the one that makes the arrays that others take."""


@st.composite
def samples(
    draw: st.DrawFn, *destinations: Capabilities, ops: Collection[str] = OFTEN, least: int = 1, most: int = 12
) -> Sample:
    """Graphs of `least` to `most` nodes of `ops` (names), or fewer where some do not fit, whose sites have an
    exact form in each of `destinations`. Long ones have nearly every op, many short ones have the rare cases.
    """
    destinations = destinations or (CAPABLE,)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels, rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 11)), draw(st.integers(1, 11))
    opens: dict[str, Shape] = {INPUT: (channels, None, None)}
    values = {
        INPUT: random.normal(random.normal(0, 0.5, (1, channels, 1, 1)), 2, (IMAGES, channels, rows, columns))
    }
    # Otherwise nothing would be positive.
    if {*ops} & {kind.name for kind in _POSITIVE_ONLY} and len(ops) < len(OPS):
        values[INPUT] = np.abs(values[INPUT]) + 0.5
    nodes: list[Node] = []
    tensors: dict[str, dict[str, Array]] = {}
    for _ in range(draw(st.integers(least, most))):
        name = draw(st.sampled_from([name for name in ops if _candidates(OPS[name], values)]))
        op, paths = _inputs(draw, OPS[name], values)
        holder = _earlier(
            draw, OPS[name], paths, nodes, (opens, {path: _shape(value) for path, value in values.items()})
        )
        op = holder.op if holder else op
        if not _fits(op, [_shape(values[path]) for path in paths], destinations):
            continue
        try:
            wide = op.shape(*(opens[path] for path in paths))
        except GraphError:  # channels that depend on the input's size
            continue
        if isinstance(op, AdaptivePool):  # where others make it, its cells are counted at the input's size
            wide = (wide[0], None, None)
        path = f"{name}_{len(nodes)}"
        inputs = [values[source] for source in paths]
        if isinstance(op, Divide) and np.abs(inputs[1]).min() < SMALLEST_DIVISOR:
            continue
        own = tensors[holder.path] if holder else _calibrated(random, op, inputs)
        value = apply(op, own, *inputs)
        if not (_ordinary(value) or isinstance(op, PadMap)):
            continue
        opens[path], values[path], tensors = wide, value, tensors | ({path: own} if own else {})
        nodes.append(Node(path, op, paths, holder.path if holder else None))
    if not nodes:
        nodes, values["identity"] = [Node("identity", OPS["identity"](), (INPUT,))], values[INPUT]
    read = {source for node in nodes for source in node.inputs}
    ends = [node.path for node in nodes if node.path not in read]
    output, *further = draw(
        st.permutations(list(dict.fromkeys([*ends, *draw(st.sampled_from([[], [nodes[0].path]]))])))
    )
    return Sample(Graph(tuple(nodes), channels, output, (), tuple(further)), tensors, values[INPUT], values)


def _earlier(
    draw: st.DrawFn,
    kind: type[Op],
    paths: tuple[str, ...],
    nodes: Sequence[Node],
    known: Sequence[Mapping[str, Shape]],
) -> Node | None:
    """An earlier layer of a kind that is called again, of values of these paths; None for a layer of its
    own.
    """
    alike = [node for node in nodes if type(node.op) is kind and node.shares is None]
    found = [node for node in alike if all(is_call(Node("", node.op, paths), node, each) for each in known)]
    return draw(st.sampled_from([None, *found])) if found else None


def _ordinary(value: Array) -> bool:
    """Whether rounding does not decide the values: those of a GELU of -6 have 9 digits in any framework."""
    size = np.abs(value).max()
    return bool(size == 0 or SMALLEST_VALUE <= size <= LARGEST_VALUE)


Known = tuple[int, ...]
"""The shape of a value: an op's may have open axes."""


def _shape(value: Array) -> Shape:
    return Axes(value.shape[1:]) if isinstance(value, OfAxes) and value.ndim > 2 else value.shape[1:]


def _fits(op: Op, inputs: Sequence[Shape], destinations: Sequence[Capabilities]) -> bool:
    try:
        found = op.shape(*inputs)
        channels, *size = found
        if op.site is not None:
            _, rows, columns = inputs[0]
            for capabilities in destinations:
                realise(op.site, (rows, columns), capabilities)
    except (GraphError, PaddingError):
        return False
    if isinstance(found, Axes):
        return math.prod(n or 0 for n in found) <= LARGEST_FEATURES
    return (channels or 0) <= (LARGEST_CHANNELS if size else LARGEST_FEATURES) and all(
        (n or 0) <= LARGEST_SIDE for n in size
    )


def _apart(value: Array, halves: bool = False) -> bool:
    """Whether no number is so near to a step that rounding decides on its side."""
    return bool(np.abs(value - np.round(value - 0.5 * halves) - 0.5 * halves).min() > 1e-3)


def _is_positive(value: Array) -> bool:
    return bool(value.min() >= SMALLEST_DIVISOR)


_POSITIVE_ONLY = (Log, Power, Reciprocal, Sqrt)
_DOMAINS: Mapping[type[Op], Callable[[Array], bool]] = {
    **dict.fromkeys(_POSITIVE_ONLY, _is_positive),
    **dict.fromkeys((Ceil, Floor, Sign, Step), _apart),
    Exp: lambda value: bool(np.abs(value).max() <= 5),
    Round: lambda value: _apart(value, halves=True),
}
"""What an op's values have to be, for a function that has no jumps there."""


def _candidates(kind: type[Op], values: Mapping[str, Array]) -> list[str]:
    """Values that an op of `kind` may take; only a max pool takes pads of -inf."""
    rank = 2 if kind is AsMap else 4 if kind in _OVER_MAPS else None
    finite = {path: value for path, value in values.items() if kind is MaxPool or np.isfinite(value).all()}
    if kind in _DOMAINS:
        finite = {path: value for path, value in finite.items() if _DOMAINS[kind](value)}
    if kind in _OVER_ARRAYS:
        return [
            path
            for path, value in finite.items()
            if isinstance(value, OfAxes) and (kind is not Tokens or value.ndim == 3)
        ]
    if kind is Dense:
        return [path for path, value in finite.items() if isinstance(value, OfAxes) or value.ndim == 2]
    return [
        path
        for path, value in finite.items()
        if rank is None or (value.ndim == rank and not isinstance(value, OfAxes))
    ]


def _inputs(draw: st.DrawFn, kind: type[Op], values: Mapping[str, Array]) -> tuple[Op, tuple[str, ...]]:
    """An op of `kind` and its inputs, of which recent ones are likelier."""
    found = _candidates(kind, values)
    first = found[-1 - min(draw(st.sampled_from([0, 0, 0, 1, 2, 5])), len(found) - 1)]
    op = _op(draw, kind, _shape(values[first]))
    if not kind.several:
        return op, (first,)
    if kind is Attention:
        return op, (first,) if _fits(op, [_shape(values[first])], ()) else (first,) * 3
    others = [path for path in found if _fits(op, [_shape(values[first]), _shape(values[path])], ())]
    return op, (first, *draw(st.lists(st.sampled_from(others or [first]), min_size=1, max_size=2)))


def _calibrated(random: np.random.Generator, op: Op, inputs: list[Array]) -> dict[str, Array]:
    """Tensors under which values neither fade nor explode, with norms of about what arrives."""
    tensors = {
        role: random.normal(1 if role == "gamma" else 0, 0.4, shape)
        for role, shape in op.tensors(channels_in(_shape(inputs[0]))).items()
    }
    if "variance" in tensors:
        axes = (0, *range(2, inputs[0].ndim))
        tensors["mean"] = inputs[0].mean(axes) + tensors["mean"]
        tensors["variance"] = inputs[0].var(axes) * np.exp(tensors["variance"]) + 0.01
    if "kernel" in tensors:
        bare = {role: array for role, array in tensors.items() if role == "kernel"} | {"bias": np.zeros(1)}
        size = np.abs(apply(op, bare, *inputs)).mean()
        tensors["kernel"] = tensors["kernel"] * (2 / size if size > 1e-3 else 1)
    return tensors


# Thousandths are no float32, so that a constant that is rounded to it shows.
_SHARE = st.integers(1, 900).map(lambda n: n / 1000)
_SMOOTH: st.SearchStrategy[Literal["linear", "cubic"]] = st.sampled_from(["linear", "cubic"])
_SIDES: st.SearchStrategy[Any] = st.sampled_from(["start", "end", "both", "none"])
_RULES: st.SearchStrategy[Literal["half_pixel", "align_corners", "asymmetric"]] = st.sampled_from(
    ["half_pixel", "align_corners", "asymmetric"]
)
_NUMBER = st.integers(-3000, 3000).map(lambda n: n / 1000)
_POSITIVE = st.integers(300, 2000).map(lambda n: n / 1000)
_PADS = st.tuples(*[st.integers(0, 3)] * 4)
_KERNEL = st.tuples(*[st.sampled_from([3, 1, 2, 4, 5])] * 2)
_STRIDE = st.one_of(st.sampled_from([(1, 1), (2, 2)]), st.tuples(*[st.integers(1, 3)] * 2))
_DILATION = st.one_of(st.just((1, 1)), st.tuples(*[st.integers(1, 2)] * 2))


def _window(draw: st.DrawFn, dilated: bool = True) -> Window:
    return Window(draw(_KERNEL), draw(_STRIDE), draw(_DILATION) if dilated else (1, 1))


def _convention(draw: st.DrawFn, kind: type[Op]) -> Convention:
    rules: list[Rule] = ["explicit", "same", "valid", "same_lower", "cntk"]
    rule = draw(st.sampled_from(rules))
    pads = draw(_PADS) if rule == "explicit" else (0, 0, 0, 0)
    if kind is Conv:
        return Convention(rule, pads)
    fill = draw(st.sampled_from([LOWEST, 0.0, -0.7, 0.7])) if kind is MaxPool else 0.0
    averages: list[Average] = ["real_cells", "full_window", "clipped_window"]
    average = draw(st.sampled_from(averages)) if kind is AvgPool else averages[0]
    return Convention(rule, pads, fill, average, draw(st.sampled_from(["floor", "ceil", "full"])))


def _pattern(draw: st.DrawFn, shape: Shape) -> str:
    """The axes in another order, one of them split, and some joined."""
    names = [[letter] for letter in "pqrstu"[: len(shape)]]
    place = draw(st.integers(0, len(shape) - 1))
    size = draw(
        st.sampled_from([n for n in range(1, (shape[place] or 1) + 1) if (shape[place] or 1) % n == 0])
    )
    sides = [
        f"({letters[0]} v={size})" if axis == place else letters[0] for axis, letters in enumerate(names)
    ]
    order = draw(st.permutations([*(letters[0] for letters in names), "v"]))
    cuts = sorted(draw(st.sets(st.integers(1, len(order)))) | {len(order)})
    axes = [order[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    return f"{' '.join(sides)} -> {' '.join('(' + ' '.join(axis) + ')' for axis in axes)}"


def _rearrange(draw: st.DrawFn, shape: Shape) -> Op:
    pattern = _pattern(draw, shape)
    return Rearrange(pattern, pattern.partition("->")[2].count("(") == 3 and draw(st.booleans()))


def _crop_axis(draw: st.DrawFn, shape: Shape) -> Op:
    return CropAxis(
        draw(st.integers(0, len(shape) - 1)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 2)),
    )


def _sizes(draw: st.DrawFn, shape: Shape) -> tuple[int, ...]:
    return tuple(draw(st.sampled_from([1, 2] if size == 1 else [size or 1, 1])) for size in shape)


def _grouped(draw: st.DrawFn, channels: int) -> tuple[int, int]:
    """Filters and groups."""
    groups = draw(st.sampled_from([1, channels, *(n for n in range(2, channels) if channels % n == 0)]))
    return groups * draw(st.integers(1, max(LARGEST_CHANNELS // 2 // groups, 1))), groups


def _conv(draw: st.DrawFn, shape: Known) -> Op:
    filters, groups = _grouped(draw, shape[0])
    return Conv(filters, _window(draw), _convention(draw, Conv), groups, draw(st.booleans()))


def _conv_transpose(draw: st.DrawFn, shape: Known) -> Op:
    filters, groups = _grouped(draw, shape[0])
    return ConvTranspose(
        filters, _window(draw), draw(st.tuples(*[st.integers(-2, 3)] * 4)), groups, draw(st.booleans())
    )


def _affine(draw: st.DrawFn, shape: Known) -> Op:
    each = [st.tuples(*[_NUMBER] * draw(st.sampled_from([1, shape[0]]))) for _ in range(2)]
    return Affine(draw(each[0]), draw(each[1]))


def _resize(draw: st.DrawFn, shape: Known) -> Op:
    mode, scale = draw(_SMOOTH), draw(st.sampled_from([(1.5, 2.0), (2.0, 0.5), ()]))
    return Resize(mode, scale, () if scale else (3, 5), draw(_RULES), a=draw(_NUMBER))


def _slice(draw: st.DrawFn, shape: Known) -> Op:
    first, last = sorted(draw(st.tuples(*[st.integers(0, shape[0] - 1)] * 2)))
    step = draw(st.integers(1, 3))
    if draw(st.booleans()):
        return SliceChannels(first, last + 1, step)
    return SliceChannels(last, first - 1, -step)


def _blocks(channels: int) -> list[int]:
    return [n for n in (3, 2, 1) if channels % n**2 == 0]


def _divisor(draw: st.DrawFn, number: int) -> int:
    return draw(st.sampled_from([n for n in range(1, number + 1) if number % n == 0]))


_MAKERS: Mapping[type[Op], Callable[[st.DrawFn, Any], Op]] = {
    Conv: _conv,
    ConvTranspose: _conv_transpose,
    MaxPool: lambda draw, _: MaxPool(_window(draw), _convention(draw, MaxPool)),
    AvgPool: lambda draw, _: AvgPool(_window(draw, dilated=False), _convention(draw, AvgPool)),
    GlobalAvgPool: lambda draw, _: GlobalAvgPool(draw(st.booleans())),
    GlobalMaxPool: lambda draw, _: GlobalMaxPool(draw(st.booleans())),
    AdaptiveAvgPool: lambda draw, _: AdaptiveAvgPool(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
    AdaptiveMaxPool: lambda draw, _: AdaptiveMaxPool(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
    ReduceMap: lambda draw, _: ReduceMap(
        draw(st.sampled_from(["mean", "max", "norm"])), draw(st.sampled_from(["channels", "rows", "columns"]))
    ),
    Dense: lambda draw, _: Dense(draw(st.integers(1, 9)), draw(st.booleans())),
    BatchNorm: lambda draw, _: BatchNorm(draw(_SHARE), 0.1, draw(st.booleans()), draw(st.booleans())),
    GroupNorm: lambda draw, shape: GroupNorm(
        _divisor(draw, shape[0]), draw(_SHARE), draw(st.booleans()), draw(st.booleans())
    ),
    LayerNorm: lambda draw, _: LayerNorm(draw(_SHARE), draw(st.booleans()), draw(st.booleans())),
    RmsNorm: lambda draw, _: RmsNorm(draw(_SHARE), draw(st.booleans())),
    LocalResponseNorm: lambda draw, _: LocalResponseNorm(
        draw(st.integers(1, 6)), draw(_SHARE), draw(_POSITIVE), draw(_POSITIVE)
    ),
    ChannelScale: lambda draw, _: ChannelScale(draw(st.booleans())),
    Affine: _affine,
    ThresholdedRelu: lambda draw, _: ThresholdedRelu(draw(_NUMBER)),
    Clip: lambda draw, _: Clip(*sorted(draw(st.tuples(_NUMBER, _NUMBER)))),
    LeakyRelu: lambda draw, _: LeakyRelu(draw(_NUMBER)),
    Celu: lambda draw, _: Celu(draw(_POSITIVE)),
    Step: lambda draw, _: Step(draw(st.booleans())),
    Power: lambda draw, _: Power(draw(st.sampled_from([3.0, 1 / 3, -1.5, 0.7]))),
    Elu: lambda draw, _: Elu(draw(_NUMBER)),
    HardSigmoid: lambda draw, _: draw(
        st.sampled_from([HardSigmoid(), HardSigmoid(0.2), HardSigmoid(draw(_NUMBER), draw(_NUMBER))])
    ),
    Gelu: lambda draw, _: Gelu(draw(st.booleans())),
    Flatten: lambda draw, shape: Flatten(shape[1], shape[2], draw(st.sampled_from(["CHW", "HWC"]))),
    Dropout: lambda draw, shape: Dropout(
        draw(_SHARE), len(shape) == 3 and not isinstance(shape, Axes) and draw(st.booleans())
    ),
    PadMap: lambda draw, _: PadMap(draw(_PADS), draw(st.sampled_from([0.0, LOWEST, -0.7, 1 / 3]))),
    ExtendMap: lambda draw, _: ExtendMap(
        draw(_PADS), draw(st.sampled_from(["edge", "reflect", "symmetric", "wrap"]))
    ),
    CropMap: lambda draw, _: CropMap(draw(st.tuples(*[st.integers(0, 2)] * 4))),
    PadChannels: lambda draw, _: PadChannels(draw(st.integers(0, 3)), draw(st.integers(0, 3))),
    SliceChannels: _slice,
    OPS["channel_shuffle"]: lambda draw, shape: ChannelShuffle(_divisor(draw, shape[0])),
    DepthToSpace: lambda draw, shape: DepthToSpace(
        draw(st.sampled_from(_blocks(shape[0]))), draw(st.sampled_from(["DCR", "CRD"]))
    ),
    SpaceToDepth: lambda draw, shape: SpaceToDepth(
        draw(st.integers(1, 2)), draw(st.sampled_from(["DCR", "CRD"]))
    ),
    Rearrange: _rearrange,
    MatMul: lambda draw, _: MatMul(draw(st.booleans())),
    Attention: lambda draw, shape: Attention(_divisor(draw, shape[-1] or 1), draw(_SHARE)),
    Join: lambda draw, shape: Join(draw(st.integers(0, len(shape) - 1))),
    CropAxis: _crop_axis,
    PadAxis: lambda draw, shape: PadAxis(
        draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(_NUMBER)
    ),
    ReduceAxis: lambda draw, shape: ReduceAxis(
        draw(st.sampled_from(["mean", "max", "norm"])), draw(st.integers(0, len(shape) - 1))
    ),
    AddArray: lambda draw, shape: AddArray(_sizes(draw, shape)),
    MultiplyArray: lambda draw, shape: MultiplyArray(_sizes(draw, shape)),
    Tokens: lambda draw, _: Tokens(draw(st.integers(1, 2))),
    Upsample: lambda draw, _: Upsample(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
    Resize: _resize,
    PadLike: lambda draw, _: PadLike(draw(_SIDES), draw(_SIDES)),
    CropLike: lambda draw, _: CropLike(draw(_SIDES), draw(_SIDES)),
    ResizeLike: lambda draw, _: ResizeLike(draw(_SMOOTH), draw(_RULES), draw(_NUMBER)),
}
"""Ops with attributes; the others have one form."""

_OVER_MAPS = {
    Conv,
    ConvTranspose,
    MaxPool,
    AvgPool,
    GlobalAvgPool,
    GlobalMaxPool,
    ReduceMap,
    LocalResponseNorm,
    Flatten,
}
_OVER_ARRAYS: set[type[Op]] = {MatMul, Attention, Join, CropAxis, PadAxis, ReduceAxis, Tokens}
OF_ARRAYS = ("rearrange", *(kind.name for kind in _OVER_ARRAYS))
"""Ops of arrays, which are rare among the others."""
_OVER_MAPS |= {
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    PadMap,
    ExtendMap,
    CropMap,
    ChannelShuffle,
    DepthToSpace,
    SpaceToDepth,
    Upsample,
    Resize,
    ResizeLike,
    PadLike,
    CropLike,
}


def _op(draw: st.DrawFn, kind: type[Op], shape: Shape) -> Op:
    return _MAKERS[kind](draw, shape) if kind in _MAKERS else kind()


def difference(found: Array, wanted: Array) -> float:
    """The relative L2 distance of two arrays of one shape, which agree on where they are -inf; infinite where
    `found` has numbers that are none. Where all wanted numbers are zero it is the distance itself: they come
    of numbers of about one, as in a norm of equal cells, whose mean an engine may round.
    """
    assert found.shape == wanted.shape, f"expected {wanted.shape}, got {found.shape}"
    finite = np.isfinite(wanted)
    assert np.array_equal(found[~finite], wanted[~finite])
    distance, size = np.linalg.norm(found[finite] - wanted[finite]), np.linalg.norm(wanted[finite])
    return math.inf if np.isnan(distance) else float(distance / size if size else distance)

"""Mistakes in what an op computes: its numbers, its window, its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.errors import PorterError
from porter.graph import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    Add,
    Affine,
    AsLarge,
    AvgPool,
    BatchNorm,
    ChannelShuffle,
    Clip,
    Conv,
    ConvTranspose,
    CropMap,
    DepthToSpace,
    Dropout,
    Elu,
    ExtendMap,
    Flatten,
    Gelu,
    GlobalAvgPool,
    GlobalMaxPool,
    GroupNorm,
    HardSigmoid,
    HardSwish,
    Identity,
    LayerNorm,
    LeakyRelu,
    LocalResponseNorm,
    LogSoftmax,
    Maximum,
    MaxPool,
    Minimum,
    Multiply,
    Node,
    Op,
    PadChannels,
    PadMap,
    PRelu,
    ReduceMap,
    Relu,
    Relu6,
    Resize,
    ResizeLike,
    RmsNorm,
    Selu,
    Sigmoid,
    Sign,
    SliceChannels,
    Softmax,
    Softplus,
    Softsign,
    SpaceToDepth,
    Step,
    Swish,
    Tanh,
    ThresholdedRelu,
    Upsample,
)
from porter.padding import LOWEST, Convention, Window, pad_amounts
from tests.mutation.mistakes import Change, Planter, Right

_Windowed = Conv | MaxPool | AvgPool


def _op(change: Callable[[Any, Right, Node], Iterator[Op]], *kinds: type[Op]) -> Planter:
    """Mistakes that are another op at a node whose op is one of `kinds`."""

    def planter(right: Right, node: Node, rng: np.random.Generator) -> Iterator[Change]:
        if isinstance(node.op, kinds):
            try:
                for op in change(node.op, right, node):
                    if op != node.op:
                        yield Change(f"{node.op} is {op}", {node.path: (replace(node, op=op),)})
            except PorterError:  # a window or pad that cannot be
                return

    return planter


def _epsilon(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield replace(op, epsilon=op.epsilon * 1.1)
    yield replace(op, epsilon=op.epsilon / 1.1)


def pads_of(right: Right, node: Node) -> tuple[int, int, int, int]:
    """The cells added at the top, bottom, left and right of a windowed node's map."""
    site, (_, *size) = node.op.site, right.known[node.inputs[0]]
    assert site is not None
    (top, bottom), (left, rest) = (
        pad_amounts(site.convention, site.window, axis, size[axis] or 0) for axis in (0, 1)
    )
    return top, bottom, left, rest


def _moved(pads: tuple[int, ...], least: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Pads of which a cell is at the other side, or is missing, or is too many."""
    for axis in (0, 2):
        for before, after in ((1, -1), (-1, 1), (1, 0), (0, 1), (-1, 0), (0, -1)):
            found = list(pads)
            found[axis] += before
            found[axis + 1] += after
            if min(found) >= least:
                yield found[0], found[1], found[2], found[3]


def _pad(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for pads in _moved(pads_of(right, node)):
        convention = op.convention
        yield replace(
            op, convention=Convention.stated(pads, convention.fill, convention.average, convention.rounds)
        )


def _rule(op: Any, right: Right, node: Node) -> Iterator[Op]:
    convention, window = op.convention, op.window
    half = tuple((window.extent(axis) - 1) // 2 for axis in (0, 0, 1, 1))
    for rule in ("same", "same_lower", "cntk"):
        yield replace(op, convention=replace(convention, rule=rule, pads=(0, 0, 0, 0)))
    yield replace(
        op, convention=Convention.stated(half, convention.fill, convention.average, convention.rounding)
    )


def _fill(op: Any, right: Right, node: Node) -> Iterator[Op]:
    old = op.fill if isinstance(op, PadMap) else op.convention.fill
    for fill in {0.0, LOWEST, 0.5} - {old} if isinstance(op, MaxPool) else {0.0, 0.5} - {old}:
        yield (
            replace(op, fill=fill)
            if isinstance(op, PadMap)
            else replace(op, convention=replace(op.convention, fill=fill))
        )


def _divisor(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for average in ("real_cells", "full_window", "clipped_window"):
        yield replace(op, convention=replace(op.convention, average=average))


def _rounding(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for rounding in ("floor", "ceil", "full"):
        yield replace(op, convention=replace(op.convention, rounding=rounding))


def _dilation(op: Any, right: Right, node: Node) -> Iterator[Op]:
    top, bottom, left, rest = pads_of(right, node) if isinstance(op, _Windowed) else op.cut
    window = op.window
    for axis in (0, 1):
        if window.kernel[axis] < 2:
            continue
        dilation = list(window.dilation)
        dilation[axis] += 1
        wider, pads = (
            Window(window.kernel, window.stride, (dilation[0], dilation[1])),
            [top, bottom, left, rest],
        )
        more = wider.extent(axis) - window.extent(axis)
        pads[2 * axis] += more // 2
        pads[2 * axis + 1] += more - more // 2
        if isinstance(op, ConvTranspose):
            yield replace(op, window=wider, cut=(pads[0], pads[1], pads[2], pads[3]))
        elif op.convention.rule in ("valid", "explicit"):
            yield replace(
                op, window=wider, convention=replace(op.convention, rule="explicit", pads=tuple(pads))
            )
        else:
            yield replace(op, window=wider)


def _cut(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for cut in _moved(op.cut, least=-8):
        yield replace(op, cut=cut)


def _pads(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for pads in _moved(op.pads):
        yield replace(op, pads=pads)


_OTHERS: Mapping[type[Op], tuple[Op, ...]] = {
    Relu: (Relu6(), Relu6(), LeakyRelu(0.01)),
    Relu6: (Relu(),),
    Gelu: (Swish(), Relu()),
    Swish: (HardSwish(), Gelu()),
    HardSwish: (Swish(),),
    Sigmoid: (HardSigmoid(), HardSigmoid(0.2)),
    HardSigmoid: (Sigmoid(),),
    Tanh: (Softsign(), Clip(-1.0, 1.0)),
    Softsign: (Tanh(),),
    Softplus: (Relu(),),
    Elu: (Selu(), Relu()),
    Selu: (Elu(), Elu(1.6733)),
    LeakyRelu: (Relu(),),
    PRelu: (LeakyRelu(0.01), LeakyRelu(0.25)),
    Softmax: (Sigmoid(), LogSoftmax()),
    LogSoftmax: (Softmax(),),
    Step: (Sigmoid(), Sign()),
    ThresholdedRelu: (Relu(),),
    Clip: (Relu6(), Relu()),
}


def _activation(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield from _OTHERS[type(op)]


def _gelu(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield Gelu(not op.approximate)


def _constant(op: Any, right: Right, node: Node) -> Iterator[Op]:
    if isinstance(op, HardSigmoid):
        yield replace(op, slope=0.2 if abs(op.slope - 1 / 6) < 1e-9 else 1 / 6)
        yield replace(op, offset=op.offset * 1.01)
    names = {
        LeakyRelu: ("slope",),
        Elu: ("alpha",),
        ThresholdedRelu: ("threshold",),
        Clip: ("low", "high"),
    }.get(type(op), ())
    for name in names:
        yield replace(op, **{name: getattr(op, name) * 1.1})


def _affine(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield replace(op, scale=tuple(number * 1.01 for number in op.scale))
    yield replace(op, offset=tuple(number * 1.01 for number in op.offset))
    yield replace(op, offset=tuple(-number for number in op.offset))
    yield replace(op, scale=op.scale[::-1])
    yield replace(op, offset=op.offset[::-1])
    yield Affine((*op.scale[:-1], op.scale[-1] * 1.01), op.offset)


def _response(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield replace(op, alpha=op.alpha * op.size if op.size > 1 else op.alpha * 1.1)
    yield replace(op, beta=op.beta * 1.01)
    yield replace(op, bias=op.bias * 1.01)
    yield replace(op, size=op.size + 1)


def _groups(op: Any, right: Right, node: Node) -> Iterator[Op]:
    channels = right.known[node.inputs[0]][0] or 1
    for groups in range(1, channels + 1):
        if channels % groups == 0:
            yield replace(op, groups=groups)


def _pool(op: Any, right: Right, node: Node) -> Iterator[Op]:
    if isinstance(op, GlobalAvgPool | GlobalMaxPool):
        yield (GlobalMaxPool if isinstance(op, GlobalAvgPool) else GlobalAvgPool)(op.keep)
    elif isinstance(op, AdaptiveAvgPool | AdaptiveMaxPool):
        yield (AdaptiveMaxPool if isinstance(op, AdaptiveAvgPool) else AdaptiveAvgPool)(op.rows, op.columns)
    elif isinstance(op, ReduceMap):
        for function in ("mean", "max", "norm"):
            yield replace(op, function=function)
    elif isinstance(op, MaxPool):
        yield AvgPool(op.window, replace(op.convention, fill=0.0))
    else:
        yield MaxPool(op.window, replace(op.convention, fill=LOWEST))


def _join(op: Any, right: Right, node: Node) -> Iterator[Op]:
    yield from (Add(), Multiply(), Maximum(), Minimum())


def _slice(op: Any, right: Right, node: Node) -> Iterator[Op]:
    for step in (-1, 1):
        yield replace(op, start=op.start + step, stop=op.stop + step)
    first, last = op.channels[0], op.channels[-1]
    yield SliceChannels(last, first - op.step // abs(op.step), -op.step)


def _lost(op: Any, right: Right, node: Node) -> Iterator[Op]:
    """What keeps its input's shape; a layer with a kernel would be missed by the tensors that are left."""
    if (
        len(node.inputs) == 1
        and right.known[node.inputs[0]] == right.known[node.path]
        and not isinstance(op, Identity | Dropout)
    ):
        yield Identity()


def _resize(op: Any, right: Right, node: Node) -> Iterator[Op]:
    """Other places, other shares, and sizes for the scale that they nearly are."""
    for coordinates in ("half_pixel", "align_corners", "asymmetric"):
        yield replace(op, coordinates=coordinates)
    yield replace(op, mode="linear" if op.mode == "cubic" else "cubic")
    if op.mode == "cubic":
        yield from (replace(op, inside=not op.inside), replace(op, a=-0.5 if op.a != -0.5 else -0.75))
    if isinstance(op, Resize) and op.scale:
        _, rows, columns = right.known[node.path]
        yield replace(op, scale=(), size=(rows or 0, columns or 0))


def _side(op: AsLarge, right: Right, node: Node) -> Iterator[Op]:
    """Cells at the other end."""
    turned: dict[str, Any] = {"start": "end", "end": "start", "both": "start", "none": "none"}
    yield replace(op, rows=turned[op.rows], columns=turned[op.columns])


def _upsample(right: Right, node: Node, rng: np.random.Generator) -> Iterator[Change]:
    """The nearest cell by another rule: every cell of the result comes from where its neighbour should."""
    if isinstance(node.op, Upsample):
        raw, wide, pads = (
            f"{node.path}_raw",
            f"{node.path}_wide",
            ((1, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0)),
        )
        first = replace(node, path=raw)
        for pad in pads:
            top, bottom, left, rest = pad
            moved = (
                Node(wide, ExtendMap(pad, "edge"), (raw,)),
                Node(node.path, CropMap((bottom, top, rest, left)), (wide,)),
            )
            yield Change(f"{node.op} is moved by {pad}", {node.path: (first, *moved)})


def _same(change: Callable[[Any], Iterator[Op]]) -> Callable[[Any, Right, Node], Iterator[Op]]:
    return lambda op, right, node: change(op)


OF_OPS: Mapping[str, Planter] = {
    "epsilon": _op(_epsilon, BatchNorm, LayerNorm, RmsNorm, GroupNorm),
    "pad by a cell": _op(_pad, Conv, MaxPool, AvgPool),
    "pad rule": _op(_rule, Conv, MaxPool, AvgPool),
    "fill": _op(_fill, MaxPool, PadMap),
    "divisor": _op(_divisor, AvgPool),
    "rounding": _op(_rounding, MaxPool, AvgPool),
    "dilation": _op(_dilation, Conv, MaxPool, ConvTranspose),
    "cut by a cell": _op(_cut, ConvTranspose),
    "pad layer by a cell": _op(_pads, PadMap, ExtendMap, CropMap),
    "activation": _op(_activation, *_OTHERS),
    "tanh for exact GELU": _op(_gelu, Gelu),
    "activation's constant": _op(_constant, HardSigmoid, LeakyRelu, Elu, ThresholdedRelu, Clip),
    "scaling": _op(_affine, Affine),
    "response norm": _op(_response, LocalResponseNorm),
    "groups": _op(_groups, GroupNorm, ChannelShuffle),
    "pool": _op(
        _pool, AdaptiveAvgPool, AdaptiveMaxPool, GlobalAvgPool, GlobalMaxPool, ReduceMap, MaxPool, AvgPool
    ),
    "join": _op(_join, Add, Multiply, Maximum, Minimum),
    "slice": _op(_slice, SliceChannels),
    "step lost": _op(_lost, Op),
    "flatten order": _op(
        _same(lambda op: iter([replace(op, order="HWC" if op.order == "CHW" else "CHW")])), Flatten
    ),
    "blocks order": _op(
        _same(lambda op: iter([replace(op, order="CRD" if op.order == "DCR" else "DCR")])),
        DepthToSpace,
        SpaceToDepth,
    ),
    "channel pad": _op(_same(lambda op: iter([PadChannels(op.after, op.before)])), PadChannels),
    "edge mode": _op(
        _same(lambda op: (replace(op, mode=mode) for mode in ("edge", "reflect", "symmetric", "wrap"))),
        ExtendMap,
    ),
    "resize": _op(_resize, Resize, ResizeLike),
    "side": _op(_side, AsLarge),
    "upsample": _upsample,
}

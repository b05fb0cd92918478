"""TensorFlow's ops in porter's terms, one reader each. A foreign node's name says what porter's ops cannot
do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import neg
from typing import Any

from porter.filegraph import functions, moves
from porter.filegraph.atrous import Stated, by_inputs, put_together, take_apart
from porter.filegraph.choices import both, choice, comparison, either, opposite
from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import Dim, Numbers, of_sizes
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import place_of
from porter.filegraph.reductions import Reduction, log_softmax, reduce, root, softmax
from porter.filegraph.tensor import Tensor, expression, reads
from porter.filegraph.tensorflow import read_slice, read_split, read_stack, sliced, strided
from porter.filegraph.views import View
from porter.filegraph.walk import Read, Reader, Repeated, Zeros, always, by_numbers, by_sizes, unary
from porter.formats.tf_graph import arithmetic, windows
from porter.formats.tf_graph.constants import INTEGERS, TRUTH, WIDE_FLOATS, is_cast, masks_of
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.graph import (
    Abs,
    Ceil,
    Cos,
    DepthToSpace,
    Elu,
    Erf,
    Floor,
    LeakyRelu,
    LocalResponseNorm,
    Log,
    Op,
    Reciprocal,
    Relu,
    Relu6,
    Round,
    Selu,
    Sigmoid,
    Sign,
    Sin,
    Softplus,
    Softsign,
    Sqrt,
    Tanh,
)

_FUNCTIONS: Mapping[str, Reduction] = {"Mean": "mean", "Max": "max", "Min": "min", "Sum": "sum"}


def _sizes(walk: Walk, node: GraphNode) -> list[Numbers | None]:
    """Shape, ShapeN, Size and Rank: numbers that a node states about values."""
    known = [walk.sizes(source) for source in node.inputs]
    number: Any = {"Size": math.prod, "Rank": len}.get(node.op, tuple)
    return [None if sizes is None else of_sizes(number(sizes)) for sizes in known]


def _cast(node: GraphNode, x: Tensor) -> Tensor:
    """Casts between single and double precision change nothing, and of truths to numbers; halves round. One
    to whole numbers and back cuts.
    """
    kinds, before = (node.type("SrcT"), node.type("DstT")), x.walk.flow.nodes[node.source[0]]
    truth = kinds[0] == TRUTH and functions.is_truth(x)
    if is_cast(node) and (truth or kinds[0] in WIDE_FLOATS or before.op == "Cast"):
        return x
    if kinds[1] in INTEGERS and (truth or kinds[0] in WIDE_FLOATS):
        return functions.cut_to_whole(x, is_cast)
    raise Unsupported("to a type that rounds, or of numbers that are not real")


def _reduce(walk: Walk, node: GraphNode) -> Read:
    """Mean, Max, Min and Sum."""
    source, places, keep = node.source, walk.integers(node.inputs[1]), node.flag("keep_dims")
    if not places:
        raise Unsupported("over no axes")
    return reduce(walk, node, source, _FUNCTIONS[node.op], places, keep)


def _concat(walk: Walk, node: GraphNode) -> Read:
    *sources, last = node.inputs
    return moves.concat(walk, node, sources, int(walk.number(last)))


def _slice(walk: Walk, node: GraphNode) -> Read:
    """StridedSlice, and Slice by begins and sizes."""
    return read_slice(
        walk,
        node,
        lambda rank, bounds: (
            sliced(*bounds) if node.op == "Slice" else strided(masks_of(node), rank, *bounds)
        ),
    )


def _split(walk: Walk, node: GraphNode) -> list[View]:
    if node.op == "Unpack":
        return read_split(walk, node, "Unpack", node.integer("axis"), node.integer("num", 1))
    return read_split(
        walk, node, "SplitV" if node.op == "SplitV" else "Split", 0, node.integer("num_split", 1)
    )


def _roll(walk: Walk, node: GraphNode) -> Read:
    """Roll: value, shifts, axes."""
    shifts, places = (walk.integers(source) for source in node.inputs[1:])
    return moves.roll(walk, node, node.source, dict(zip(places, shifts, strict=True)))


def _gather(walk: Walk, node: GraphNode) -> Read:
    """GatherV2 of places of an axis, which goes where there is a single one."""
    places, axis = (
        walk.flow.integers(node.inputs[1]),
        walk.flow.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0,
    )
    shape, sizes = walk.flow.shape(node.inputs[1]), walk.sizes(node.source)
    if (
        not places
        or axis is None
        or shape is None
        or len(shape) > 1
        or sizes is None
        or node.integer("batch_dims")
    ):
        raise Unsupported("of several places")
    if not shape:
        return moves.cut(walk, node, node.source, {int(axis): places[0]})
    return moves.gather(walk, node, node.source, place_of(int(axis), len(sizes)), places)


def _diagonal(walk: Walk, node: GraphNode) -> Read:
    """MatrixDiagPartV3 of one diagonal: value, its place, what fills up shorter ones."""
    offset = walk.flow.number(node.inputs[1])
    if offset is None:
        raise Unsupported("of several diagonals")
    return moves.diagonal(walk, node, node.source, (-2, -1), int(offset))


def _reshape(walk: Walk, node: GraphNode, source: Reference, sizes: list[Dim]) -> Read:
    """A Reshape; of a constant that is repeated for each image, with a batch of its own, as tf.repeat writes
    a class token.
    """
    before = walk.unrepeated(source)
    if before != source:
        return Repeated(before, tuple(sizes))
    return moves.reshape(walk, node, source, sizes)


def _depth_to_space(walk: Walk, node: GraphNode) -> Read:
    windows.expect_layout(node)
    return walk.builder.add(node.name, DepthToSpace(node.integer("block_size"), "DCR"), walk.first(node))


def _response_norm(walk: Walk, node: GraphNode) -> Read:
    """The defaults are those of core/ops/nn_ops.cc."""
    size = 2 * node.integer("depth_radius", 5) + 1
    op = LocalResponseNorm(size, node.real("alpha", 1.0), node.real("beta", 0.5), node.real("bias", 1.0))
    return walk.builder.add(node.name, op, walk.value(node.source))


def _fill(walk: Walk, node: GraphNode) -> Read:
    """One number, of sizes that are computed from open ones."""
    sizes = tuple(walk.dims(node.source))
    return Repeated(node.inputs[1], sizes) if walk.number(node.inputs[1]) else Zeros(sizes)


def _block(walk: Walk, node: GraphNode) -> Stated:
    """The first SpaceToBatch and BatchToSpace have one number for rows and columns, as an attribute."""
    if node.op in ("SpaceToBatchND", "BatchToSpaceND"):
        return by_inputs(walk, node)
    return [node.integer("block_size")] * 2, walk.flow.dims(node.inputs[1])


def _space_to_depth(walk: Walk, node: GraphNode) -> Read:
    windows.expect_layout(node)
    return moves.cells_as_channels(walk, node, node.source, node.integer("block_size"), False)


_COMPARED = {
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
}
PLAIN: Mapping[str, Op] = {
    "Elu": Elu(),
    "Relu": Relu(),
    "Relu6": Relu6(),
    "Selu": Selu(),
    "Sigmoid": Sigmoid(),
    "Softplus": Softplus(),
    "Softsign": Softsign(),
    "Tanh": Tanh(),
    "Abs": Abs(),
    "Erf": Erf(),
    "Log": Log(),
    "Sin": Sin(),
    "Cos": Cos(),
    "Reciprocal": Reciprocal(),
    "Inv": Reciprocal(),
    "Sign": Sign(),
    "Floor": Floor(),
    "Ceil": Ceil(),
    "Round": Round(),
    "Rint": Round(),
}
"""Ops of one value that are one op of porter's."""
READERS: Mapping[str, Reader[GraphNode]] = {
    **{kind: always(op) for kind, op in PLAIN.items()},
    **dict.fromkeys(
        ("Add", "AddV2", "AddN", "BiasAdd", "Sub", "Mul", "RealDiv", "Div", "Minimum", "Maximum", "Pow"),
        reads(arithmetic.read_binary),
    ),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), arithmetic.read_fused_norm),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2"), arithmetic.read_matrix),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), windows.read_convolution),
    **dict.fromkeys(("MaxPool", "AvgPool"), windows.read_pool),
    **dict.fromkeys(("Pad", "PadV2"), windows.read_pad),
    **dict.fromkeys(_FUNCTIONS, _reduce),
    **dict.fromkeys(("StridedSlice", "Slice"), _slice),
    **dict.fromkeys(("Split", "SplitV", "Unpack"), _split),
    **dict.fromkeys(("Shape", "ShapeN", "Size", "Rank"), _sizes),
    **dict.fromkeys(("Gather", "GatherV2"), _gather),
    **dict.fromkeys(("BatchToSpace", "BatchToSpaceND"), put_together),
    "BatchNormWithGlobalNormalization": arithmetic.read_old_norm,
    "BroadcastTo": by_sizes(moves.expand),
    "Cast": reads(_cast),
    "ClipByValue": reads(arithmetic.read_clip),
    "ConcatV2": _concat,
    "Conv2DBackpropInput": windows.read_transposed,
    "DepthToSpace": _depth_to_space,
    "Einsum": arithmetic.read_einsum,
    "Exp": arithmetic.read_exponential,
    "ExpandDims": by_numbers(moves.unsqueeze),
    "Fill": _fill,
    "LRN": _response_norm,
    "LogSoftmax": lambda walk, node: log_softmax(walk, node, node.source, -1),
    "LeakyRelu": unary(lambda node: LeakyRelu(node.real("alpha", 0.2))),
    "MirrorPad": windows.read_mirror,
    "Neg": expression(neg),
    "OnesLike": expression(functions.ones),
    "Pack": lambda walk, node: read_stack(walk, node, node.integer("axis")),
    "Reshape": by_sizes(_reshape),
    **dict.fromkeys(("ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic"), windows.read_resize),
    "Roll": _roll,
    "Softmax": lambda walk, node: softmax(walk, node, node.source, -1),
    "ReverseV2": by_numbers(moves.turned_round),
    **dict.fromkeys(("SpaceToBatch", "SpaceToBatchND"), lambda walk, node: take_apart(walk, node, _block)),
    "SpaceToDepth": _space_to_depth,
    **dict.fromkeys(("Select", "SelectV2"), choice),
    **{op: comparison(kind) for op, kind in _COMPARED.items()},
    "LogicalAnd": both,
    "LogicalOr": either,
    "LogicalNot": opposite,
    **{
        kind: expression(functions.FUNCTIONS[kind.lower()])
        for kind in ("Acosh", "Asinh", "Atanh", "Cosh", "Erfc", "Expm1", "Log1p", "Sinh", "Tan")
    },
    **dict.fromkeys(("FloorMod", "Mod", "TruncateMod", "FloorDiv"), reads(arithmetic.read_rounded)),
    "Equal": expression(functions.equal),
    "NotEqual": expression(functions.differs),
    "Cumsum": reads(arithmetic.read_running_sums),
    "MatrixBandPart": reads(arithmetic.read_band),
    "MatrixDiagPartV3": _diagonal,
    "Prod": reads(arithmetic.read_product_along),
    "Rsqrt": unary(lambda node: (Sqrt(), Reciprocal())),
    "Sqrt": lambda walk, node: root(walk, node, lambda total: total.flag("keep_dims")),
    "Square": expression(functions.square),
    "SquaredDifference": expression(functions.squared_difference),
    "Squeeze": lambda walk, node: moves.squeeze(walk, node, node.source, node.integers("squeeze_dims")),
    "Tile": by_sizes(moves.repeat),
    "Transpose": by_numbers(moves.transpose),
    "ZerosLike": lambda walk, node: Zeros(walk.known_sizes(node.source)),
}

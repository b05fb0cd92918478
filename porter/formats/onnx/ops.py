"""ONNX's operators of every opset since 7 in porter's terms, one reader each. A foreign node's name says what
porter's ops lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from porter.filegraph import moves
from porter.filegraph.arithmetic import negative, slopes
from porter.filegraph.builder import Builder, Value
from porter.filegraph.choices import COMPARISONS, both, choice, comparison, either, is_truth, opposite
from porter.filegraph.dims import BATCH, PLACE, known, product
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.functions import (
    band,
    by_number,
    equality,
    hard_shrink,
    made,
    reader,
    soft_shrink,
    there_and_back,
)
from porter.filegraph.places import place_of
from porter.filegraph.products import einsum, running_sums
from porter.filegraph.reductions import (
    Reduction,
    factors,
    log_softmax,
    over_norm,
    reduce,
    softmax,
)
from porter.filegraph.views import View
from porter.filegraph.walk import Read, Reader, Source, Zeros, apply, by_sizes, unary
from porter.formats.onnx import arithmetic, windows
from porter.formats.onnx.attention import read_attention
from porter.formats.onnx.constants import cuts, filling, is_cast, slices, stated_sizes, wanted_sizes
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.formats.onnx.plain import PLAIN
from porter.graph import Abs, DepthToSpace, Exp, LocalResponseNorm, Log, Multiply

_LEAST_NORM = 1.2e-38
"""So that a vector of zeros stays one."""
_FUNCTIONS: Mapping[str, Reduction] = {
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceL2": "norm",
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), "sum"),
    "GlobalAveragePool": "mean",
    "GlobalMaxPool": "max",
}


def _sizes(walk: Walk, node: OnnxNode) -> Read:
    return stated_sizes(node, walk.known_sizes(node.source))


def _blank(walk: Walk, node: OnnxNode) -> Read:
    """Zeros of the size of a value, which only a Concat takes."""
    sizes = walk.dims(node.source)
    if filling(node) != 0:
        raise Unsupported("of another number than 0")
    return Zeros(tuple(sizes))


def _softmax(walk: Walk, node: OnnxNode) -> Read:
    """Softmax and LogSoftmax; before opset 13 they are over all axes from the given one on."""
    axis = node.integer("axis", -1 if node.opset >= 13 else 1)
    after = (walk.sizes(node.source) or ())[axis:][1:]
    if node.opset < 13 and any(size != 1 for size in after):
        raise Unsupported("over channels and cells")
    return (log_softmax if node.op == "LogSoftmax" else softmax)(walk, node, node.source, axis)


def _cast(walk: Walk, node: OnnxNode) -> Read:
    """Casts between real numbers of single and double precision change nothing, and of truths to truths;
    halves round. One to whole numbers and back cuts, as torch writes a whole quotient.
    """
    kind = node.integer("to")
    if is_cast(node) or (kind == _TRUTH and is_truth(walk, node.source)):
        return walk.view(node.source)
    if not cuts(node):
        raise Unsupported(f"to type {kind}")
    return there_and_back(walk, node, node.source, is_cast)


def _over_norm(walk: Walk, node: OnnxNode) -> Read:
    """LpNormalization, whose order is 1 or 2."""
    return over_norm(walk, node, node.source, [node.integer("axis", -1)], _LEAST_NORM, node.integer("p", 2))


def _global_pool(walk: Walk, node: OnnxNode) -> Read:
    """All axes behind the channels."""
    source, sizes = node.source, walk.sizes(node.source)
    return reduce(
        walk, node, source, _FUNCTIONS[node.op], (2, 3) if sizes is None else range(2, len(sizes)), True
    )


def _reduce(walk: Walk, node: OnnxNode) -> Read:
    """ReduceMean, ReduceMax, ReduceL2 and others; without axes over all of them, or over none."""
    axes, source = node.stated(walk.flow, "axes", 1), node.source
    given: Source = source
    if not axes and node.integer("noop_with_empty_axes"):
        if node.op not in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"):
            raise Unsupported("of each number")
        return walk.view(source)
    keep = bool(node.integer("keepdims", 1))
    places = axes or range(len(walk.sizes(source) or ()))
    if node.op in _MADE:
        view = walk.kept(source)
        given = walk.views.like(view, _MADE[node.op](walk.builder, f"{node.name}:each", view.value))
    if node.op not in ("ReduceLogSum", "ReduceLogSumExp"):
        return reduce(walk, node, given, _FUNCTIONS[node.op], places, keep)
    total = reduce(walk, replace(node, name=f"{node.name}:sum"), given, "sum", places, keep)
    return apply(walk, node, total, Log())


_MADE: Mapping[str, Callable[[Builder, str, Value], Value]] = {
    "ReduceL1": lambda builder, name, value: builder.add(name, Abs(), value),
    "ReduceLogSumExp": lambda builder, name, value: builder.add(name, Exp(), value),
    "ReduceSumSquare": lambda builder, name, value: builder.add(name, Multiply(), value, value),
}
"""What is made of each number before it is reduced."""


def _reshape(walk: Walk, node: OnnxNode) -> Read:
    stated = walk.flow.dims(node.inputs[1])
    if stated is None:
        raise Unsupported("to sizes that the model computes as it runs")
    sizes = wanted_sizes(node, walk.known_sizes(node.source), stated)
    return moves.reshape(walk, node, node.source, sizes)


def _flatten(walk: Walk, node: OnnxNode) -> Read:
    """Two axes: those before an axis as one, and those from there on."""
    sizes, axis = walk.known_sizes(node.source), node.integer("axis", 1)
    return moves.reshape(walk, node, node.source, [product(sizes[:axis]), product(sizes[axis:])])


def _transpose(walk: Walk, node: OnnxNode) -> Read:
    rank = len(walk.sizes(node.source) or ())
    return moves.transpose(walk, node, node.source, node.integers("perm") or range(rank)[::-1])


def _slice(walk: Walk, node: OnnxNode) -> Read:
    numbers = [
        node.dims(walk.flow, name, place) for place, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    ]
    rank = len(walk.sizes(node.source) or ())
    return moves.cut(walk, node, node.source, dict(enumerate(slices(node, rank, numbers))))


def _gather(walk: Walk, node: OnnxNode) -> Read:
    """Places of an axis: one, which goes, or several; or every number of a flat tensor, in its order.

    torch's exporter (dynamo=True) writes so that the mean of a map has its strides, in ConvNeXt's head
    (`as_strided`).
    """
    sizes, dims, shape = (
        walk.sizes(node.source),
        walk.flow.dims(node.inputs[1]),
        walk.flow.shape(node.inputs[1]),
    )
    count = len(dims or ())
    if (
        dims
        and shape
        and sizes == (BATCH * count,)
        and dims == [PLACE * count + each for each in range(count)]
    ):
        return moves.reshape(walk, node, node.source, [-1, *shape[1:]])
    places = known(dims or ())
    if places and shape == ():
        return moves.cut(walk, node, node.source, {node.integer("axis"): places[0]})
    if places and shape:
        if sizes == (count,) and places == [*range(count)]:
            return moves.reshape(walk, node, node.source, shape)
        axis = place_of(node.integer("axis"), len(sizes or ()))
        found = moves.gather(walk, node, node.source, axis, places)
        apart = [*(sizes or ())[:axis], *shape, *(sizes or ())[axis + 1 :]]
        return found.reshaped(apart) if len(shape) > 1 else found
    raise Unsupported("by indices that the model computes as it runs")


def _gather_nd(walk: Walk, node: OnnxNode) -> Read:
    """Cells by their places along the first axes, as torch.onnx writes an adaptive pool whose windows differ
    in size.
    """
    index = walk.flow.value(node.inputs[1])
    if index is None or index.dtype.kind != "i" or not index.ndim or node.integer("batch_dims"):
        raise Unsupported("by indices that the model computes as it runs, or that differ by image")
    return moves.gather_cells(walk, node, node.source, index)


def _split(walk: Walk, node: OnnxNode) -> list[View]:
    """Split into stated sizes, or into as many equal parts as it has outputs, of which the last may be
    smaller.
    """
    stated, axis = node.stated(walk.flow, "split", 1), node.integer("axis")
    if stated:
        return moves.split(walk, node, node.source, axis, stated)
    (size,) = known([walk.view(node.source).size(axis)])
    most = -(-size // node.outputs)
    return moves.split(
        walk, node, node.source, axis, [most] * (size // most) + ([size % most] if size % most else [])
    )


def _depth_to_space(walk: Walk, node: OnnxNode) -> Read:
    mode = node.text("mode", "DCR")
    op = DepthToSpace(node.integer("blocksize"), "CRD" if mode == "CRD" else "DCR")
    return walk.builder.add(node.name, op, walk.value(node.source))


def _space_to_depth(walk: Walk, node: OnnxNode) -> Read:
    """The cells of each block as channels: `DCR` has the block's cells outermost, `CRD` the channels."""
    outer = node.text("mode", "DCR") == "CRD"
    return moves.cells_as_channels(walk, node.source, node.integer("blocksize"), True, outer)


def _response_norm(walk: Walk, node: OnnxNode) -> Read:
    """LRN divides alpha by the size, and has the odd channel of an even size behind
    (onnx/defs/nn/defs.cc).
    """
    size = node.integer("size")
    if size % 2 == 0:
        raise Unsupported("over an even number of channels")
    op = LocalResponseNorm(
        size, node.real("alpha", 1e-4) / size, node.real("beta", 0.75), node.real("bias", 1.0)
    )
    return walk.builder.add(node.name, op, walk.value(node.source))


def _running_sums(walk: Walk, node: OnnxNode) -> Read:
    axis = walk.flow.number(node.inputs[1])
    if axis is None:
        raise Unsupported("along an axis that the model computes as it runs")
    reverse, exclusive = (bool(node.integer(name)) for name in ("reverse", "exclusive"))
    return running_sums(walk, node, node.source, int(axis), reverse, exclusive)


def _remainder(walk: Walk, node: OnnxNode) -> Read:
    """Mod by a number: of the sign of the divisor, or with `fmod` of the dividend."""
    mode = "trunc" if node.integer("fmod") else "floor"
    return by_number(walk, node, node.source, walk.flow.number(node.inputs[1]), mode, whole=False)


def _product_along(walk: Walk, node: OnnxNode) -> Read:
    axes = node.stated(walk.flow, "axes", 1)
    if not axes:
        raise Unsupported("of everything")
    return factors(walk, node, node.source, axes, bool(node.integer("keepdims", 1)))


def _shrunk(walk: Walk, node: OnnxNode) -> Read:
    """Shrink: 0 within a bound, other numbers as they are, or nearer to 0 by that bound."""
    bound, bias = node.real("lambd", 0.5), node.real("bias", 0.0)
    if bias not in (0.0, bound):
        raise Unsupported("by another number than its bound")
    return made(walk, node, node.source, soft_shrink(bound) if bias else hard_shrink(bound))


def _triangle(walk: Walk, node: OnnxNode) -> Read:
    """Trilu."""
    offset = 0.0 if node.input(1) is None else walk.flow.number(node.inputs[1])
    if offset is None:
        raise Unsupported("by a diagonal that the model computes as it runs")
    bounds = (int(offset), None) if node.integer("upper", 1) else (None, int(offset))
    return band(walk, node, node.source, *bounds)


_TRUTH = 9
"""TensorProto.BOOL."""
READERS: Mapping[str, Reader[OnnxNode]] = {
    **{kind: unary(row.read) for kind, row in PLAIN.items()},
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min", "Mean"), arithmetic.read_binary),
    **dict.fromkeys(("MaxPool", "AveragePool"), windows.read_pool),
    **dict.fromkeys(_FUNCTIONS, _reduce),
    **dict.fromkeys(("Resize", "Upsample"), windows.read_resize),
    "BatchNormalization": arithmetic.read_batch_norm,
    "Cast": _cast,
    "Clip": arithmetic.read_clip,
    "Col2Im": windows.read_patches_map,
    "Concat": lambda walk, node: moves.concat(walk, node, node.inputs, node.integer("axis")),
    "Attention": read_attention,
    "ConstantOfShape": _blank,
    "CenterCropPad": windows.read_center,
    "Conv": windows.read_convolution,
    "ConvTranspose": windows.read_transposed,
    "DepthToSpace": _depth_to_space,
    "Einsum": lambda walk, node: einsum(walk, node, node.text("equation", ""), node.inputs),
    "Expand": by_sizes(moves.expand),
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gelu": unary(arithmetic.gelu),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "Gemm": arithmetic.read_gemm,
    "GroupNormalization": arithmetic.read_group_norm,
    "HardSigmoid": unary(arithmetic.hard_sigmoid),
    "InstanceNormalization": arithmetic.read_instance_norm,
    "LRN": _response_norm,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), arithmetic.read_layer_norm),
    "LpNormalization": _over_norm,
    "LpPool": windows.read_norm_pool,
    "MatMul": arithmetic.read_matrix,
    **{kind: reader(kind.lower()) for kind in ("Acosh", "Asinh", "Atanh", "Cosh", "Sinh", "Tan")},
    "CumSum": _running_sums,
    "Equal": equality(True),
    "Mod": _remainder,
    "ReduceProd": _product_along,
    "Shrink": _shrunk,
    "Trilu": _triangle,
    "Neg": lambda walk, node: negative(walk, node, node.source),
    "PRelu": lambda walk, node: slopes(walk, node, *node.inputs),
    "Pad": windows.read_pad,
    "Reshape": _reshape,
    "Selu": unary(arithmetic.selu),
    "Shape": _sizes,
    "Size": _sizes,
    "Slice": _slice,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": lambda walk, node: moves.squeeze(walk, node, node.source, node.stated(walk.flow, "axes", 1)),
    "Swish": arithmetic.read_swish,
    "Tile": by_sizes(moves.repeat),
    "Transpose": _transpose,
    "Unsqueeze": lambda walk, node: moves.unsqueeze(
        walk, node, node.source, node.stated(walk.flow, "axes", 1) or ()
    ),
    "Where": choice,
    **{kind: comparison(kind) for kind in COMPARISONS},
    "And": both,
    "Or": either,
    "Not": opposite,
}

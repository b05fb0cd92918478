"""ONNX's operators of every opset since 7 in porter's terms, one reader each. A foreign node's name says what
porter's ops lack.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from porter.base.dtypes import Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import BATCH, PLACE, Open, fixed_sizes, product
from porter.filegraph.places import position_of
from porter.filegraph.readers import Functions, elementwise_reader, tensor_reader
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.along import Positions
from porter.filegraph.tensors.constants import full
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, einsum, maximum
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Reader, Zeros
from porter.formats.onnx import arithmetic, constants, windows
from porter.formats.onnx.attention import read_attention
from porter.formats.onnx.constants import (
    cast_numbers,
    filled_number,
    is_cast_to_floats,
    is_cast_to_integers,
    sizes_of_reshape,
    stated_sizes,
    stated_slices,
)
from porter.formats.onnx.nodes import OnnxNode, reader_of
from porter.formats.onnx.plain import PLAIN
from porter.graph import DepthToSpace, LocalResponseNorm, LogSoftmax, Softmax

_LEAST_NORM = 1.2e-38
"""The least norm that is divided by, so that a vector of zeros stays one."""
_LEAST_DEVIATION = 1e-9
"""What MeanVarianceNormalization adds to a standard deviation (onnx/defs/nn/defs.cc)."""
_GLOBAL_POOLS: Mapping[str, Reduction] = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}


def _read_constant_of_shape(node: OnnxNode, sizes: Tensor) -> Zeros | Numbers:
    """Read ConstantOfShape: an array of one number where the sizes are known. Where a size is open, zeros are
    given as `Zeros`, a placeholder of these sizes that only a Concat takes; another number is Unsupported.
    """
    # None where the node does not state a single number.
    number = filled_number(node)
    dims = sizes.dims()
    if number is not None and not any(isinstance(size, Open) for size in dims):
        return full(dims, number)
    if number != 0:
        raise Unsupported("of another number than 0")
    return Zeros(tuple(dims))


def _softmax_reader(op: Softmax | LogSoftmax) -> Callable[[OnnxNode, Tensor], Tensor]:
    """Return the reader of a softmax, by the op that it becomes. Before opset 13 ONNX's is over all axes from
    the given one on, which is Unsupported unless all others have one cell.
    """

    def softmax(node: OnnxNode, x: Tensor) -> Tensor:
        axis = node.integer("axis", -1 if node.opset >= 13 else 1)
        further_sizes = (x.walk.sizes(x.source) or ())[axis:][1:]  # of the axes behind it
        if node.opset < 13 and any(size != 1 for size in further_sizes):
            raise Unsupported("over channels and cells")
        return x.softmax(axis, op=op)

    return softmax


def _read_cast(node: OnnxNode, x: Tensor) -> Tensor | Numbers:
    """Read Cast. Between real numbers it changes nothing in exact arithmetic, and neither does one of
    booleans to booleans. A cast to integers and back cuts, as torch writes a whole quotient. Constants are
    cast as numbers; another cast of a value is Unsupported.
    """
    kind = node.integer("to")
    if x.array is not None:
        return cast_numbers(node, x.array)
    if is_cast_to_floats(node) or (kind == _BOOL and functions.is_truth(x)):
        return x
    if not is_cast_to_integers(node):
        raise Unsupported(f"to type {kind}")
    return functions.cut_to_whole(x, is_cast_to_floats)


def _read_lp_normalization(node: OnnxNode, x: Tensor) -> Tensor:
    """Read LpNormalization, whose order is 1 or 2."""
    return functions.divide_by_norm(x, node.integer("p", 2), [node.integer("axis", -1)], _LEAST_NORM)


def _read_mean_variance(node: OnnxNode, x: Tensor) -> Tensor:
    """Read MeanVarianceNormalization."""
    return functions.divide_by_deviation(x, node.integers("axes") or (0, 2, 3), _LEAST_DEVIATION)


def _read_global_pool(node: OnnxNode, x: Tensor) -> Tensor:
    """Read a pool over all axes after the channels: the mean, the largest number, or a norm of order `p`."""
    axes = range(2, len(x.sizes))
    if node.op == "GlobalLpPool":
        return functions.norm(x, node.integer("p", 2), axes, True)
    return x.reduce(_GLOBAL_POOLS[node.op], axes, True)


def _read_reduce(node: OnnxNode, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Read ReduceMean, ReduceMax, ReduceL2 and others. Without axes they reduce all of them, or with
    `noop_with_empty_axes` none.
    """
    reduced_axes = node.stated_integers("axes", axes)
    keep_axes = bool(node.integer("keepdims", 1))
    if not reduced_axes and node.integer("noop_with_empty_axes"):
        # The other reductions change each number even so: ReduceL1 gives its absolute value.
        if node.op not in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"):
            raise Unsupported("of each number")
        return x
    return _REDUCTIONS[node.op](x, reduced_axes or range(len(x.sizes)), keep_axes)


_REDUCTIONS: Mapping[str, Callable[[Tensor, Positions, bool], Tensor]] = {
    "ReduceL1": lambda x, axes, keep: abs(x).sum(axes, keep),
    "ReduceL2": lambda x, axes, keep: x.reduce("norm", axes, keep),
    "ReduceLogSum": lambda x, axes, keep: functions.log(x.sum(axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: functions.log_sum_exp(x, axes, keep),
    "ReduceMax": lambda x, axes, keep: x.max(axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceMin": lambda x, axes, keep: x.min(axes, keep),
    "ReduceProd": lambda x, axes, keep: functions.prod(x, axes, keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: functions.square(x).sum(axes, keep),
}


def _read_flatten(node: OnnxNode, x: Tensor) -> Tensor:
    """Read Flatten, which gives two axes: those before an axis as one, and those from it on as one."""
    axis = node.integer("axis", 1)
    return x.reshape([product(x.sizes[:axis]), product(x.sizes[axis:])])


def _read_slice(node: OnnxNode, x: Tensor, *bounds: Tensor | None) -> Tensor:
    """Read Slice, whose starts, ends, axes and steps are inputs, or attributes before opset 10."""
    named = zip(("starts", "ends", "axes", "steps"), (*bounds, *[None] * 4), strict=False)
    numbers = [node.sizes(name, tensor) for name, tensor in named]
    return x.cut(dict(enumerate(stated_slices(node, x.rank, numbers))))


def _read_gather(node: OnnxNode, x: Tensor, index: Tensor) -> Tensor:
    """Read Gather. It takes one index of an axis, which goes, or several; or every number of a flat tensor,
    in its order.

    torch's exporter (dynamo=True) writes so that the mean of a map has its strides, in ConvNeXt's head
    (`as_strided`).
    """
    dims = index.dims()
    shape = x.walk.constant_shape(index.source) or ()
    count = len(dims)
    sizes = x.walk.sizes(x.source) or ()
    # The numbers of all images in a row, taken in their order: a reshape.
    if shape and sizes == (BATCH * count,) and dims == [PLACE * count + number for number in range(count)]:
        return x.reshape([-1, *shape[1:]])
    indices = fixed_sizes(dims)
    # A single index: its axis goes.
    if not shape:
        return x.cut({node.integer("axis"): indices[0]})
    # Every number of a flat tensor in its order.
    if sizes == (count,) and indices == [*range(count)]:
        return x.reshape(shape)
    axis = position_of(node.integer("axis"), len(sizes))
    gathered = x.gather(axis, indices)
    # Indices of several axes were one axis until here.
    return gathered.reshape([*sizes[:axis], *shape, *sizes[axis + 1 :]]) if len(shape) > 1 else gathered


def _read_gather_nd(node: OnnxNode, x: Tensor, index: Tensor) -> Tensor:
    """Read GatherND, which takes cells by their indices along the first axes, as torch.onnx writes an
    adaptive pool whose windows differ in size.
    """
    numbers = index.numbers()
    if numbers.dtype.kind != "i" or not numbers.ndim or node.integer("batch_dims"):
        raise Unsupported("by indices that differ by image")
    return x.gather_cells(numbers)


def _read_split(node: OnnxNode, x: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
    """Read Split, into stated sizes, or into as many equal parts as it has outputs, of which the last may be
    smaller.
    """
    part_sizes = node.sizes("split", sizes)
    axis = node.integer("axis")
    if not part_sizes:
        (size,) = fixed_sizes([x.size(axis)])
        # Rounded up; the last part has what is left.
        part_size = -(-size // node.outputs)
        part_sizes = [part_size] * (size // part_size)
        if left := size % part_size:
            part_sizes.append(left)
    return x.split(axis, part_sizes)


def _read_space_to_depth(node: OnnxNode, x: Tensor) -> Tensor:
    """Read SpaceToDepth: the cells of each block as channels. `DCR` has the block's cells outermost, `CRD`
    the channels.
    """
    return x.cells_as_channels(node.integer("blocksize"), node.text("mode", "DCR") == "CRD")


def _read_lrn(node: OnnxNode, x: Tensor) -> Tensor:
    """Read LRN, which divides alpha by the size, and has the odd channel of an even size after the middle
    (onnx/defs/nn/defs.cc).
    """
    size = node.integer("size")
    alpha = node.real("alpha", 1e-4)
    if size % 2 == 0:
        raise Unsupported("over an even number of channels")
    return x.apply_op(LocalResponseNorm(size, alpha / size, node.real("beta", 0.75), node.real("bias", 1.0)))


def _read_cumsum(node: OnnxNode, x: Tensor, axis: Tensor) -> Tensor:
    """Read CumSum, which may run backwards, and may leave each number itself out."""
    reverse, exclusive = (bool(node.integer(name)) for name in ("reverse", "exclusive"))
    return x.cumsum(int(axis.number()), reverse, exclusive)


def _read_mod(node: OnnxNode, x: Tensor, divisor: Tensor) -> Tensor:
    """Read Mod by a number: the result has the sign of the divisor, or with `fmod` that of the dividend."""
    return functions.remainder(x, divisor, "trunc" if node.integer("fmod") else "floor")


def _read_shrink(node: OnnxNode, x: Tensor) -> Tensor:
    """Read Shrink: 0 within a bound; other numbers as they are, or nearer to 0 by that bound. By another
    number it is Unsupported.
    """
    bound, bias = node.real("lambd", 0.5), node.real("bias", 0.0)
    if bias not in (0.0, bound):
        raise Unsupported("by another number than its bound")
    return functions.soft_shrink(x, bound) if bias else functions.hard_shrink(x, bound)


def _read_trilu(node: OnnxNode, x: Tensor, offset: Tensor | None = None) -> Tensor:
    """Read Trilu: one triangle of a matrix, and zeros for the rest."""
    diagonal = 0 if offset is None else int(offset.number())
    bounds = (diagonal, None) if node.integer("upper", 1) else (None, diagonal)
    return functions.band_part(x, *bounds)


_BOOL = 9
"""TensorProto.BOOL."""
_FUNCTIONS: Functions = {
    **arithmetic.FUNCTIONS,
    **constants.FUNCTIONS,
    **windows.FUNCTIONS,
    **dict.fromkeys((*_GLOBAL_POOLS, "GlobalLpPool"), _read_global_pool),
    **dict.fromkeys(_REDUCTIONS, _read_reduce),
    "Attention": read_attention,
    "Cast": _read_cast,
    "Concat": lambda node, *tensors: concat(tensors, node.integer("axis")),
    "ConstantOfShape": _read_constant_of_shape,
    "CumSum": _read_cumsum,
    "DepthToSpace": lambda node, x: x.apply_op(
        DepthToSpace(node.integer("blocksize"), "CRD" if node.text("mode", "") == "CRD" else "DCR")
    ),
    "Einsum": lambda node, *tensors: einsum(node.text("equation", ""), *tensors),
    "Expand": lambda node, x, sizes: x.expand(sizes.dims()),
    "Flatten": _read_flatten,
    "Gather": _read_gather,
    "GatherND": _read_gather_nd,
    "LRN": _read_lrn,
    "LogSoftmax": _softmax_reader(LogSoftmax()),
    "LpNormalization": _read_lp_normalization,
    "MeanVarianceNormalization": _read_mean_variance,
    "Mod": _read_mod,
    "Reshape": lambda node, x, sizes: x.reshape(sizes_of_reshape(node, x.sizes, sizes.dims())),
    "Shape": lambda node, x: stated_sizes(node, x.sizes),
    "Shrink": _read_shrink,
    "Size": lambda node, x: stated_sizes(node, x.sizes),
    "Slice": _read_slice,
    "Softmax": _softmax_reader(Softmax()),
    "SpaceToDepth": _read_space_to_depth,
    "Split": _read_split,
    "Squeeze": lambda node, x, axes=None: x.squeeze(node.stated_integers("axes", axes)),
    "Tile": lambda node, x, times: x.repeat(times.dims()),
    "Transpose": lambda node, x: x.transpose(node.integers("perm") or range(x.rank)[::-1]),
    "Trilu": _read_trilu,
    "Unsqueeze": lambda node, x, axes=None: x.unsqueeze(node.stated_integers("axes", axes) or ()),
}
"""The functions of the node and the tensors that it reads."""
_EXPRESSIONS: Mapping[str, Callable[..., Tensor]] = {
    **{
        kind: functions.FUNCTIONS[kind.lower()] for kind in ("Acosh", "Asinh", "Atanh", "Cosh", "Sinh", "Tan")
    },
    "And": operator.mul,
    "Equal": functions.equal,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Neg": operator.neg,
    "Not": functions.logical_not,
    "Or": maximum,
    "PRelu": lambda x, slopes: x.prelu(slopes),
    "Where": functions.where,
    "Xor": functions.not_equal,
}
"""The functions of the tensors alone."""
READERS: Mapping[str, Reader[OnnxNode]] = {
    **{kind: elementwise_reader(row.read) for kind, row in PLAIN.items()},
    **{kind: reader_of(function) for kind, function in _FUNCTIONS.items()},
    **{kind: tensor_reader(function) for kind, function in _EXPRESSIONS.items()},
}

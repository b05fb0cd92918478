"""The operators of TensorFlow Lite in porter's terms, by their names."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Open
from porter.filegraph.layouts.size_arrays import as_real, as_whole, sizes_array
from porter.filegraph.matching.norms import match_l2_normalize, sqrt_or_norm
from porter.filegraph.readers import Functions, node_reader, op_reader, refuse_unread_settings, tensor_reader
from porter.filegraph.tensorflow import gather
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.atrous import put_together, take_apart
from porter.filegraph.tensors.constants import arange, full
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, matmul, maximum, merge_all, stack
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Reader, Zeros
from porter.formats.tflite import schema, windows
from porter.formats.tflite.constants import is_cast, kind_of, read_index
from porter.formats.tflite.model import Operator
from porter.graph import Op, ops

Walk = NodeWalk[Operator]
_BINARY = ("ADD", "ADD_N", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "SUB")
_LEAST_NORM = 1e-6
"""What an L2_NORMALIZATION divides by where the norm is smaller (tensorflow/lite/kernels/l2norm.cc)."""


def _fully_connected(node: Operator, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a dense layer over the last axis; without `keep_num_dims` every row of as many numbers as the
    kernel takes becomes one of features.
    """
    stored = windows.expect_stored(kernel, 2)
    is_shuffled = node.option(schema.WEIGHTS_FORMAT)
    if is_shuffled:
        raise Unsupported("whose kernel is not stored row by row")
    if not node.option(schema.KEEP_NUM_DIMS) and x.rank not in (0, 2):
        x = x.reshape([-1, stored.shape[1]])
    return x.dense(Product(kernel.reference, "OI", None if bias is None else bias.reference))


def _matmul(node: Operator, x: Tensor, other: Tensor) -> Tensor:
    """Return a matrix product of two values, or of a value and a stored matrix."""
    adj_x, adj_y = node.option(schema.ADJ_X), node.option(schema.ADJ_Y)
    if x.is_value and other.is_value:
        return matmul(x, other, [adj_x, adj_y])
    if adj_x:
        raise Unsupported("with adj_x")
    return x.dense(Product(other.reference, "OI" if adj_y else "IO"))


def _read_binary(node: Operator, *values: Tensor) -> Tensor:
    """Return the value of an operator of two values; onnx2tf repeats a value by a MUL with ones of other
    sizes, which is an expand. A MUL that is the last step of an L2 norm gives that norm.
    """
    scope = values[0].scope
    if node.op == "MUL":
        for index, (source, _) in enumerate(node.inputs[:2]):
            filled = scope.walk.flow.nodes[source]
            if filled.op == "FILL" and scope.walk.flow.number(filled.inputs[1]) == 1:
                return values[1 - index].expand(scope.tensor(filled.source).dims())
    unit = match_l2_normalize(scope) if node.op == "MUL" else None
    return unit or merge_all(kind_of(node), values)


_REDUCTIONS: Mapping[str, Reduction] = {
    "MEAN": "mean",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "SUM": "sum",
}


def _reduce(node: Operator, x: Tensor, axes: Tensor) -> Tensor:
    """Return a reduction of `x` over the stated axes; one over none is Unsupported."""
    numbers = axes.integers()
    keeps_axes = node.option(schema.KEEP_DIMS)
    if not numbers:
        raise Unsupported("over no axes")
    if node.op == "REDUCE_PROD":
        return functions.prod(x, numbers, keeps_axes)
    return x.reduce(_REDUCTIONS[node.op], numbers, keeps_axes)


def _slice(node: Operator, x: Tensor, *bounds: Tensor) -> Tensor:
    """Return a part of a value: that of SLICE by starts and sizes, that of STRIDED_SLICE by starts, ends and
    steps.
    """
    batch = _batch_before_zeros(x.walk, node) if node.op == "SLICE" else None
    # The slice takes the zeros off again that stand behind the batch.
    if batch is not None:
        return x.scope.tensor(batch)
    if node.option(schema.SLICE_ENDS_ARE_OFFSETS):
        raise Unsupported("whose ends are offsets")
    return x.take(read_index(node, len(x.sizes), [tensor.dims() for tensor in bounds]))


def _batch_before_zeros(walk: Walk, node: Operator) -> NodeOutput | None:
    """Return the batch that a SLICE takes of itself and an image of zeros behind it, None for another SLICE:
    so onnx2tf pads batches that may be empty.
    """
    joined = walk.flow.nodes[node.source[0]]
    if (
        joined.op != "CONCATENATION"
        or joined.option(schema.CONCATENATION_AXIS)
        or not walk.is_value(joined.source)
    ):
        return None
    batch, *others = joined.inputs
    sizes = walk.sizes(batch) or ()
    # Each of the others is one image.
    are_blank = all(
        (walk.zero_sizes.get(source) or walk.flow.shape(source)) == (1, *sizes[1:]) for source in others
    )
    bounds = [walk.flow.dims(source) for source in node.inputs[1:]]
    takes_batch = bounds == [[0] * len(sizes), [*sizes]]
    return batch if are_blank and sizes and takes_batch else None


def _gather(node: Operator, x: Tensor, index: Tensor) -> Tensor:
    """Return the cells of an axis of `x` at stored indices; see porter.filegraph.tensorflow.gather."""
    if node.option(schema.GATHER_BATCH_DIMS):
        raise Unsupported("by indices that differ by image")
    return gather(x, index, node.option(schema.GATHER_AXIS))


def _response_norm(node: Operator, x: Tensor) -> Tensor:
    """Return a response norm across channels; the radius counts those on either side."""
    size = 2 * node.option(schema.RADIUS) + 1
    bias, alpha, beta = map(node.option, (schema.BIAS, schema.ALPHA, schema.BETA))
    return x.apply_op(ops.LocalResponseNorm(size, alpha, beta, bias))


def _fill(node: Operator, sizes: Tensor, number: Tensor) -> Zeros | Numbers:
    """Return an array of one number of known sizes, or, where some are open, `Zeros` of these sizes; another
    number is Unsupported then.
    """
    dims = sizes.dims()
    if not any(isinstance(size, Open) for size in dims):
        return full(dims, number.item())
    if number.number() != 0:
        raise Unsupported("by another number than 0 to open sizes")
    return Zeros(tuple(dims))


def _round_quotient(node: Operator, x: Tensor, divisor: Tensor) -> Tensor:
    """Return the value of FLOOR_DIV or FLOOR_MOD."""
    function = functions.whole_quotient if node.op == "FLOOR_DIV" else functions.remainder
    return function(x, divisor, "floor")


def _cumsum(node: Operator, x: Tensor, axis: Tensor) -> Tensor:
    """Return the value of a CUMSUM, which may leave each number itself out, and may go backwards."""
    exclusive, reverse = node.option(schema.CUMSUM_EXCLUSIVE), node.option(schema.CUMSUM_REVERSE)
    return x.cumsum(int(axis.number()), reverse, exclusive)


def _cast(node: Operator, x: Tensor) -> Tensor | Numbers:
    """Return the value of a CAST: of a constant, or of real numbers or bytes to real numbers, which changes
    nothing.
    """
    if x.array is not None:
        return as_real(x.array) if is_cast(node) else as_whole(x.array)
    is_of_reals = node.option(schema.CAST_FROM) in (schema.FLOAT32, schema.UINT8)  # an image may be UINT8
    if not is_cast(node) or not is_of_reals:
        raise Unsupported("to a type that rounds, or of numbers that are not real")
    return x


def _softmax(node: Operator, x: Tensor) -> Tensor:
    """Return a softmax over the last axis, without a beta."""
    if node.option(schema.SOFTMAX_BETA) != 1:
        raise Unsupported("with a beta")
    return x.softmax(-1)


_FUNCTIONS: Functions = by_name(
    {
        **windows.FUNCTIONS,
        **dict.fromkeys(_BINARY, _read_binary),
        **dict.fromkeys(("REDUCE_PROD", *_REDUCTIONS), _reduce),
        "SLICE STRIDED_SLICE": _slice,
        "FLOOR_DIV FLOOR_MOD": _round_quotient,
        "BATCH_MATMUL": _matmul,
        "BROADCAST_TO": lambda node, x, sizes: x.expand(sizes.dims()),
        "CAST": _cast,
        "CONCATENATION": lambda node, *values: concat(values, node.option(schema.CONCATENATION_AXIS)),
        "CUMSUM": _cumsum,
        "DEPTH_TO_SPACE": lambda node, x: x.apply_op(ops.DepthToSpace(node.option(schema.BLOCK_SIZE), "DCR")),
        "EXPAND_DIMS": lambda node, x, axes: x.unsqueeze(axes.integers()),
        "FILL": _fill,
        "FULLY_CONNECTED": _fully_connected,
        "GATHER": _gather,
        "GELU": lambda node, x: x.apply_elementwise(ops.Gelu(node.option(schema.GELU_APPROXIMATE))),
        "LEAKY_RELU": lambda node, x: x.apply_elementwise(
            ops.LeakyRelu(node.option(schema.LEAKY_RELU_ALPHA))
        ),
        "LOCAL_RESPONSE_NORMALIZATION": _response_norm,
        "LOG_SOFTMAX": lambda node, x: x.softmax(-1, op=ops.LogSoftmax()),
        "PACK": lambda node, *values: stack(values, node.option(schema.PACK_AXIS)),
        "RANGE": lambda node, start, limit, step: arange(start.item(), limit.item(), step.item()),
        "RESHAPE": lambda node, x, sizes=None: x.reshape(
            node.stated_numbers if sizes is None else sizes.dims()
        ),
        "REVERSE_V2": lambda node, x, axes: x.flip(axes.integers()),
        "SHAPE": lambda node, x: sizes_array(x.sizes),
        "SOFTMAX": _softmax,
        "SPACE_TO_DEPTH": lambda node, x: x.cells_as_channels(node.option(schema.BLOCK_SIZE)),
        "SPLIT": lambda node, axis, x: x.split_evenly(int(axis.number()), len(node.gives)),
        "SPLIT_V": lambda node, x, sizes, axis: x.split(int(axis.number()), sizes.dims()),
        "SQRT": lambda node, x: sqrt_or_norm(x, lambda total: total.option(schema.KEEP_DIMS)),
        "SQUEEZE": lambda node, x: x.squeeze(node.stated_numbers),
        "TILE": lambda node, x, times: x.repeat(times.dims()),
        "TRANSPOSE": lambda node, x, order: x.transpose(order.integers()),
        "UNPACK": lambda node, x: x.split_evenly(
            node.option(schema.UNPACK_AXIS), len(node.gives), keep=False
        ),
        "ZEROS_LIKE": lambda node, x: Zeros(x.sizes),
    }
)
"""The functions of the operator and the tensors that it reads."""
_EXPRESSIONS: Mapping[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("SELECT", "SELECT_V2"), functions.where),
    "EQUAL": functions.equal,
    "GREATER": operator.gt,
    "GREATER_EQUAL": operator.ge,
    "L2_NORMALIZATION": lambda x: functions.divide_by_norm(x, 2, [-1], _LEAST_NORM),
    "LESS": operator.lt,
    "LESS_EQUAL": operator.le,
    "LOGICAL_AND": operator.mul,
    "LOGICAL_NOT": functions.logical_not,
    "LOGICAL_OR": maximum,
    "NEG": operator.neg,
    "NOT_EQUAL": functions.not_equal,
    "PRELU": lambda x, slopes: x.prelu(slopes),
    "RSQRT": functions.rsqrt,
    "SQUARE": functions.square,
    "SQUARED_DIFFERENCE": functions.squared_difference,
}
"""The functions of the tensors alone."""
_PLAIN: Mapping[str, Op] = {
    "ABS": ops.Abs(),
    "CEIL": ops.Ceil(),
    "COS": ops.Cos(),
    "ELU": ops.Elu(),
    "EXP": ops.Exp(),
    "FLOOR": ops.Floor(),
    "HARD_SWISH": ops.HardSwish(),
    "LOG": ops.Log(),
    "LOGISTIC": ops.Sigmoid(),
    "RELU": ops.Relu(),
    "RELU6": ops.Relu6(),
    "RELU_0_TO_1": ops.Clip(0.0, 1.0),
    "RELU_N1_TO_1": ops.Clip(-1.0, 1.0),
    "ROUND": ops.Round(),
    "SIGN": ops.Sign(),
    "SIN": ops.Sin(),
    "TANH": ops.Tanh(),
}


def _unread_options(node: Operator) -> list[str]:
    """Return words for the fields of an operator's options that its reader did not ask for."""
    fields = [] if node.options is None else node.options.unread_fields
    ignored = schema.IGNORED_OPTIONS.get(node.op, ())
    return [f"field {field} of its options" for field in fields if field not in ignored]


READERS: Mapping[str, Reader[Operator]] = refuse_unread_settings(
    {
        **{name: op_reader(op) for name, op in _PLAIN.items()},
        **{name: node_reader(function) for name, function in _FUNCTIONS.items()},
        **{name: tensor_reader(function) for name, function in _EXPRESSIONS.items()},
        "BATCH_TO_SPACE_ND": put_together,
        "SPACE_TO_BATCH_ND": take_apart,
    },
    _unread_options,
)

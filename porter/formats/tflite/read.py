"""Reads TensorFlow Lite's models: their tensors, and their operators as porter's ops. They are parsed, never
run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from porter.base.dtypes import Numbers, is_floating
from porter.base.errors import FileError
from porter.base.name_tables import by_name
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, names_depending_on
from porter.filegraph.file_graph import FileGraph, Unsupported, fill_free_size, read_for_sizes
from porter.filegraph.finishing import finish
from porter.filegraph.layouts.dims import Open, as_real, as_whole, sizes_array
from porter.filegraph.names import expect_values
from porter.filegraph.places import position_of
from porter.filegraph.readers import Functions, node_reader, op_reader, refuse_unread_settings, tensor_reader
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.tensorflow import further_image
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.atrous import put_together, read_order, take_apart
from porter.filegraph.tensors.constants import arange, full
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, matmul, maximum, merge_all, stack
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Reader, Zeros
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.tflite import schema, windows
from porter.formats.tflite.constants import RESHAPES, is_cast, kind_of, read_index
from porter.formats.tflite.model import EXPECTED, IMAGE, Operator, TfliteModel, read_model
from porter.formats.tflite.tensors import Unread
from porter.graph import Op, ops
from porter.graph.walks import in_order
from porter.padding import Size

Walk = NodeWalk[Operator]
_BINARY = ("ADD", "ADD_N", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "SUB")
_LEAST_NORM = 1e-6
"""What an L2_NORMALIZATION divides by where the norm is smaller (tensorflow/lite/kernels/l2norm.cc)."""
_ROUNDED_NOTE = (
    "8-bit weights are read as the real numbers that they stand for; TensorFlow Lite rounds what "
    "meets them to 8 bits, too"
)


def read_tflite(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a model, whose weights may be of 32, 16 or 8 bits.

    Args:
        outputs: names of tensors, at which the graph ends.
        size: rows and columns, where the graph leaves them open.

    Raises:
        FileError: it is damaged, or computes in whole numbers.
        UsageError: the graph lacks one of `outputs`.
    """
    data = path.read_bytes()
    try:
        with refusing_damage(path):
            return _make_checkpoint(path, data, read_model(data), outputs, size)
    except Unread as error:
        raise FileError(str(error), where=path, next=error.next) from None


def _make_checkpoint(
    path: Path, data: bytes, model: TfliteModel, outputs: Sequence[str], size: Size | None
) -> Checkpoint:
    """Return the checkpoint of a model: its tensors, and its graph where porter reads one. Where it does not,
    a note says why.
    """
    tensors = {name: array for name, array in model.stored.items() if is_floating(array)}
    notes = (_ROUNDED_NOTE,) if model.rounded else ()
    problem = model.problem or (None if all(_further_inputs(model).values()) else EXPECTED)
    if problem is not None:
        return Checkpoint(path, "tflite", None, tensors, (*notes, f"{UNREAD}: {problem}"))
    _, rows, columns, _ = model.sizes
    stated_size = (rows, columns)
    image_size = fill_free_size(stated_size, size)
    graph = read_for_sizes(image_size, partial(_read_graph, model, most_bytes(len(data)), outputs))
    graph = replace(graph, traced=image_size != stated_size, definition=data, language="tflite")
    return Checkpoint(path, "tflite", None, {**tensors, **graph.evaluated}, notes, graph=graph)


def _read_graph(model: TfliteModel, budget: int, outputs: Sequence[str], size: Size) -> FileGraph:
    """Return the graph of a model for images of a size.

    Args:
        budget: the most bytes of tensors that may be computed.
        outputs: names of tensors at which the graph ends; the model's own ends if there are none.
    """
    # Nodes that nothing computes stand for the inputs and the stored tensors.
    sources = {name: Operator(name, "given", (), (), None) for name in (IMAGE, *model.further, *model.stored)}
    nodes = {**sources, **{operator.name: operator for operator in model.operators}}
    # A tap is the file's name of a value, under which an engine gives it.
    taps = _names_of_values(model)
    inner = {(operator.name, 0): operator.inner for operator in model.operators if operator.inner}
    expect_values(outputs, taps.values())
    ends = [source for source, name in taps.items() if name in outputs] or model.ends
    order = in_order([name for name, _ in ends], lambda name: read_order(nodes[name], kind_of))
    nodes = {**sources, **{name: nodes[name] for name in order}}
    # Live nodes depend on an input; all others are constants.
    live = names_depending_on(nodes, [IMAGE, *model.further])
    flow = Dataflow(
        nodes, live, Arrays(model.stored), kind=kind_of, is_cast=is_cast, reshapes=RESHAPES, budget=budget
    )
    image = GraphInput((IMAGE, 0), _find_channels(model, flow), size, model.sizes[0])
    further = {name: image for name, image in _further_inputs(model).items() if image is not None}
    walk = begin(flow, image, model.stored, tap=(taps | inner).get, further=further)
    read_nodes(walk, READERS.get)
    names = tuple(taps[end] for end in ends if end in taps)
    return replace(finish(walk, ends), output_names=names)


def _names_of_values(model: TfliteModel) -> dict[NodeOutput, str]:
    """Return the file's name of each value that an operator gives, by operator and place among its values:
    `{("conv1", 0): "model/conv1/Relu"}`.
    """
    return {
        (operator.name, index): name
        for operator in model.operators
        for index, name in enumerate(operator.gives)
    }


def _find_channels(model: TfliteModel, flow: Dataflow[Operator]) -> int:
    """Return the image's channels; where the file leaves them open, those that the first convolution takes.
    Return 3 where there is no such kernel.
    """
    if model.sizes[3]:
        return model.sizes[3]
    for node in model.operators:
        if node.op in windows.KERNELS and len(node.inputs) > 1:
            kernel = flow.weights(node.inputs[1])
            if kernel is not None and kernel.shape:
                return kernel.shape[-1]
    return 3


def _further_inputs(model: TfliteModel) -> dict[str, GraphInput | None]:
    """Return the graph's inputs beside the image, by name; None for one that porter does not take."""
    batch, rows, columns, _ = model.sizes
    return {
        name: further_image((name, 0), sizes, batch, (rows, columns)) for name, sizes in model.further.items()
    }


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
    unit = functions.match_l2_normalize(scope) if node.op == "MUL" else None
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
    """Return the cells of an axis of `x` at stored indices; a single index without an axis of its own drops
    the axis.
    """
    cells = index.integers()
    shape = x.walk.constant_shape(index.source)
    axis, batch_axes = node.option(schema.GATHER_AXIS), node.option(schema.GATHER_BATCH_DIMS)
    if not cells or shape is None or (len(shape) > 1 and x.is_value) or batch_axes:
        raise Unsupported("by indices that differ by image")
    if len(cells) > 1:
        return x.gather(position_of(axis, x.rank), cells)
    cell = cells[0]
    # `or None`, because a slice from -1 on has no end.
    return x.cut({axis: slice(cell, cell + 1 or None) if shape else cell})


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
        "SQRT": lambda node, x: functions.sqrt_or_norm(x, lambda total: total.option(schema.KEEP_DIMS)),
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
    "RSQRT": lambda x: x.apply_elementwise(ops.Sqrt(), ops.Reciprocal()),
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

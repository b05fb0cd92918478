"""What TensorFlow Lite's operators compute, for porter's own engine: as a model says it, not as read.py takes
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import channels_last, depth_to_space, pad, reorder_axes, space_to_depth
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid, same_pads
from porter.filegraph.program import KernelProgram, OperatorCall, Row
from porter.formats.tflite import schema
from porter.formats.tflite.model import IMAGE, Operator, read_model


def program(definition: bytes) -> KernelProgram:
    """Return a model as a program of porter's own engine: a step for each operator, with the names of what it
    reads and gives, and the functions that compute the operators.

    Args:
        definition: the content of the model's file.
    """
    model = read_model(definition)
    # The file's name for each value; the one before an inner activation has a name of porter's.
    names = {
        (operator.name, index): name
        for operator in model.operators
        for index, name in enumerate(operator.gives or (operator.inner,))
    }
    steps = []
    for operator in model.operators:
        # A checkpoint holds no tensors of whole numbers: an operator brings its own with it.
        whole = {
            index: model.stored[name]
            for index, (name, _) in enumerate(operator.inputs)
            if name in model.stored and model.stored[name].dtype.kind in "iub"
        }
        reads = (
            "" if index in whole else names.get(source, source[0])
            for index, source in enumerate(operator.inputs)
        )
        steps.append(
            OperatorCall(
                operator.op,
                tuple(reads),
                operator.gives or (operator.inner,),
                {"operator": operator, "whole": whole},
            )
        )
    return KernelProgram(
        IMAGE,
        tuple(steps),
        {op: _with_operator(row) for op, row in _ROWS.items()},
        channels_last=True,
        single=True,
    )


def _with_operator(row: Callable[..., Any]) -> Row:
    """Return a row, the function of an operator's attributes and inputs, that calls `row` with the operator
    and all its inputs, those of whole numbers among them.
    """

    def run(attributes: Mapping[str, Any], *inputs: Any) -> Any:
        """Call the row with the inputs, in which tensors of whole numbers take their places again."""
        operator: Operator = attributes["operator"]
        return row(operator, *(attributes["whole"].get(index, value) for index, value in enumerate(inputs)))

    return run


def _as_ints(numbers: Any) -> list[int]:
    return [int(number) for number in np.asarray(numbers).ravel()]


def _read_grid(operator: Operator, x: Numbers, sides: tuple[int, ...]) -> Grid:
    """Return the strides, dilations and pads of a window over a map N×H×W×C.

    Args:
        sides: rows and columns of the window.
    """
    stride = operator.pair(schema.STRIDES)
    dilations = schema.DILATIONS.get(operator.op)
    dilation = operator.pair(dilations) if dilations else (1, 1)
    if operator.padding != "SAME":
        return Grid(stride, dilation)
    (top, bottom), (left, right) = (
        same_pads(x.shape[1 + axis], (sides[axis] - 1) * dilation[axis] + 1, stride[axis]) for axis in (0, 1)
    )
    return Grid(stride, dilation, (top, bottom, left, right))


def _conv(operator: Operator, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    """Compute CONV_2D, by groups if the kernel has fewer channels than the map."""
    grid = _read_grid(operator, x, kernel.shape[1:3])
    groups = x.shape[3] // kernel.shape[3]
    return channels_last(windows.conv)(x, reorder_axes(kernel, "OHWI"), bias, grid, groups)


def _depthwise_conv(operator: Operator, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    """Compute DEPTHWISE_CONV_2D, whose kernel has filters for each channel of the map."""
    grid = _read_grid(operator, x, kernel.shape[1:3])
    return channels_last(windows.conv)(x, reorder_axes(kernel, "IHWO"), bias, grid, x.shape[3])


def _transposed_conv(
    operator: Operator, sizes: Any, kernel: Numbers, x: Numbers, bias: Numbers | None = None
) -> Any:
    """Return a TRANSPOSE_CONV: of the whole map, the cells that the pads of the convolution cover whose
    gradient it is are cut off.
    """
    target = _as_ints(sizes)[1:3]
    stride = operator.pair(schema.STRIDES)
    sides = kernel.shape[1:3]
    is_same = operator.padding == "SAME"
    cells_before = [
        same_pads(size, side, step)[0] if is_same else 0
        for size, side, step in zip(target, sides, stride, strict=True)
    ]
    whole = channels_last(windows.conv_transpose)(x, reorder_axes(kernel, "IHWO", "OIHW"), None, Grid(stride))
    # A pad below zero cuts, and one above zero adds zeros up to the target.
    pads = [
        (-before, size - (whole.shape[1 + axis] - before))
        for axis, (before, size) in enumerate(zip(cells_before, target, strict=True))
    ]
    cut = pad(whole, [(0, 0), *pads, (0, 0)])
    return cut if bias is None else cut + bias


def _pool(operator: Operator, x: Numbers) -> Any:
    """Compute MAX_POOL_2D or AVERAGE_POOL_2D."""
    sides = operator.pair(schema.POOL_SIDES)
    pool = windows.max_pool if operator.op == "MAX_POOL_2D" else windows.average_pool
    return channels_last(pool)(x, sides, _read_grid(operator, x, sides))


def _batch_matmul(operator: Operator, x: Numbers, other: Numbers) -> Any:
    """Compute BATCH_MATMUL, of transposed matrices if the options say so."""
    first = np.swapaxes(x, -1, -2) if operator.option(schema.ADJ_X) else x
    second = np.swapaxes(other, -1, -2) if operator.option(schema.ADJ_Y) else other
    return first @ second


def _pad(operator: Operator, x: Numbers, table: Numbers, fill: Any = 0.0) -> Any:
    """Return a value with a pad of one number, or with its own cells mirrored."""
    widths = [(int(before), int(after)) for before, after in table]
    if operator.op == "MIRROR_PAD":
        is_symmetric = operator.option(schema.MIRROR_PAD_IS_SYMMETRIC)
        return pad(x, widths, "symmetric" if is_symmetric else "reflect")
    return pad(x, widths, value=float(np.asarray(fill).ravel()[0]))


def _squeeze(operator: Operator, x: Numbers) -> Any:
    """Compute SQUEEZE: drop the stated axes, or all of one cell where none are stated."""
    return np.squeeze(x, tuple(operator.stated_numbers) or None)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the row of a reduction, which may keep the axes."""
    return lambda operator, x, axes: function(
        x, tuple(_as_ints(axes)), keepdims=operator.option(schema.KEEP_DIMS)
    )


def _resize(operator: Operator, x: Numbers, sizes: Any) -> Any:
    """Return a resized map. Nearest cells by half pixels are those at whole parts of places that are a half
    further on.
    """
    is_linear = operator.op == "RESIZE_BILINEAR"
    aligns_corners, half_pixels = map(operator.option, schema.ALIGN_CORNERS_HALF_PIXELS[operator.op])
    coordinates, rounding = "asymmetric", "floor"
    if aligns_corners:
        coordinates, rounding = "align_corners", "round_prefer_ceil"
    elif half_pixels:
        coordinates, rounding = "half_pixel", "round_prefer_ceil"
    rule = Rule("linear" if is_linear else "nearest", coordinates, rounding)
    for axis, cells in zip((1, 2), _as_ints(sizes), strict=True):
        x = resize(x, axis, cells, cells / x.shape[axis], rule)
    return x


def _strided_slice(operator: Operator, x: Numbers, *bounds: Any) -> Any:
    """Compute STRIDED_SLICE: a part of `x` by starts, ends and steps, for each item of the index."""
    # Masks with a bit for each item of the index.
    begin, end, ellipsis, new_axis, shrink_axis = map(operator.option, schema.SLICE_MASKS)
    index: list[Any] = []
    for item, (first, last, step) in enumerate(zip(*map(_as_ints, bounds), strict=True)):
        bit = 1 << item
        if ellipsis & bit:
            index.append(...)
        elif new_axis & bit:
            index.append(None)
        elif shrink_axis & bit:
            index.append(first)
        else:
            index.append(slice(None if begin & bit else first, None if end & bit else last, step))
    return x[tuple(index)]


def _slice(operator: Operator, x: Numbers, begins: Any, sizes: Any) -> Any:
    """Compute SLICE: a part of each axis; a size below 0 takes all that is left."""
    pairs = zip(_as_ints(begins), _as_ints(sizes), strict=True)
    return x[tuple(slice(begin, None if size < 0 else begin + size) for begin, size in pairs)]


def _split_by_sizes(operator: Operator, x: Numbers, sizes: Any, axis: Any) -> tuple[Numbers, ...]:
    """Return parts of these sizes along an axis; one of them may be -1, which is what is left."""
    stated = _as_ints(sizes)
    number = _as_ints(axis)[0]
    rest = x.shape[number] - sum(size for size in stated if size > 0)
    known = [rest if size < 0 else size for size in stated]
    return tuple(np.split(x, np.cumsum(known)[:-1], number))


def _of_blocks(kernel: Callable[[Numbers, int], Numbers]) -> Callable[..., Any]:
    """Make the row of an operator of blocks whose side it states."""
    return lambda operator, x: channels_last(kernel)(x, operator.option(schema.BLOCK_SIZE))


def _space_to_batch(operator: Operator, x: Numbers, block: Any, pads: Any) -> Any:
    """Compute SPACE_TO_BATCH_ND: pad a map, and give the cells that are a block apart as images, those of the
    block's first row first. A map of 4×6 by blocks of 2×2 becomes four images of 2×3.
    """
    down, across = _as_ints(block)
    padded = pad(x, [(0, 0), *pads.tolist(), (0, 0)])
    images, rows, columns, channels = padded.shape
    cells = padded.reshape(images, rows // down, down, columns // across, across, channels).transpose(
        2, 4, 0, 1, 3, 5
    )
    return cells.reshape(images * down * across, rows // down, columns // across, channels)


def _batch_to_space(operator: Operator, x: Numbers, block: Any, crops: Any) -> Any:
    """Compute BATCH_TO_SPACE_ND: put images together as the cells of blocks, those of the block's first row
    first, and crop the map. Four images of 2×3 by blocks of 2×2 become one map of 4×6.
    """
    down, across = _as_ints(block)
    images, rows, columns, channels = x.shape
    cells = x.reshape(down, across, images // (down * across), rows, columns, channels).transpose(
        2, 3, 0, 4, 1, 5
    )
    maps = cells.reshape(-1, rows * down, columns * across, channels)
    return pad(maps, [(0, 0), *(-crops).tolist(), (0, 0)])


def _response_norm(operator: Operator, x: Numbers) -> Any:
    """Compute LOCAL_RESPONSE_NORMALIZATION; its alpha is for each channel of the window."""
    size = 2 * operator.option(schema.RADIUS) + 1
    bias, alpha, beta = map(operator.option, (schema.BIAS, schema.ALPHA, schema.BETA))
    return channels_last(values.response_norm)(x, size, alpha * size, beta, bias)


def _cumsum(operator: Operator, x: Numbers, axis: Any) -> Any:
    """Return running sums, which may leave each number itself out, and may begin at the end."""
    (number,) = _as_ints(axis)
    exclusive, reverse = operator.option(schema.CUMSUM_EXCLUSIVE), operator.option(schema.CUMSUM_REVERSE)
    turned = np.flip(x, number) if reverse else x
    sums = np.cumsum(turned, number) - (turned if exclusive else 0)
    return np.flip(sums, number) if reverse else sums


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the row of a function of the inputs alone."""
    return lambda operator, *inputs: function(*inputs)


_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "POW": np.power,
    "DIV": lambda x, other: (
        np.trunc(x / other).astype(np.int64) if np.asarray(x).dtype.kind == "i" else x / other
    ),
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "SQUARED_DIFFERENCE": lambda x, other: np.square(x - other),
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "GREATER": np.greater,
    "LESS_EQUAL": np.less_equal,
    "GREATER_EQUAL": np.greater_equal,
    "SELECT": np.where,
    "SELECT_V2": np.where,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not,
    "COS": np.cos,
    "SIGN": np.sign,
    "SIN": np.sin,
    "ROUND": np.round,
    "ABS": np.abs,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "NEG": np.negative,
    "SQUARE": np.square,
    "ZEROS_LIKE": np.zeros_like,
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "TANH": np.tanh,
    "RELU": values.relu,
    "RELU6": lambda x: values.relu(x, 6.0),
    "RELU_0_TO_1": lambda x: np.clip(x, 0, 1),
    "RELU_N1_TO_1": lambda x: np.clip(x, -1, 1),
    "LOGISTIC": values.sigmoid,
    "ELU": values.elu,
    "HARD_SWISH": values.hard_swish,
}
"""Functions of each number."""
_ROWS: Mapping[str, Callable[..., Any]] = by_name(
    {
        **{op: _elementwise(function) for op, function in _ELEMENTWISE.items()},
        "ADD_N": _elementwise(lambda *several: sum(several[1:], several[0])),
        "AVERAGE_POOL_2D MAX_POOL_2D": _pool,
        "PAD PADV2 MIRROR_PAD": _pad,
        "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR": _resize,
        "BATCH_MATMUL": _batch_matmul,
        "BATCH_TO_SPACE_ND": _batch_to_space,
        "BROADCAST_TO": _elementwise(lambda x, sizes: np.broadcast_to(x, _as_ints(sizes))),
        "CAST": lambda operator, x: (
            x if operator.option(schema.CAST_TO) == schema.FLOAT32 else np.trunc(x).astype(np.int64)
        ),
        "CONCATENATION": lambda operator, *several: np.concatenate(
            several, operator.option(schema.CONCATENATION_AXIS)
        ),
        "CONV_2D": _conv,
        "CUMSUM": _cumsum,
        "DEPTHWISE_CONV_2D": _depthwise_conv,
        "DEPTH_TO_SPACE": _of_blocks(depth_to_space),
        "EXPAND_DIMS": _elementwise(lambda x, axis: np.expand_dims(x, _as_ints(axis)[0])),
        "FILL": _elementwise(lambda sizes, number: np.full(_as_ints(sizes), number)),
        "FULLY_CONNECTED": lambda operator, x, kernel, bias=None: values.dense(
            x if operator.option(schema.KEEP_NUM_DIMS) else x.reshape(-1, kernel.shape[1]), kernel, bias
        ),
        "GATHER": lambda operator, x, places: np.take(
            x, np.asarray(places), operator.option(schema.GATHER_AXIS)
        ),
        "GELU": lambda operator, x: values.gelu(x, operator.option(schema.GELU_APPROXIMATE)),
        "L2_NORMALIZATION": _elementwise(
            lambda x: x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
        ),
        "LEAKY_RELU": lambda operator, x: values.relu(x, slope=operator.option(schema.LEAKY_RELU_ALPHA)),
        "LOCAL_RESPONSE_NORMALIZATION": _response_norm,
        "MEAN": _reduction(np.mean),
        "PACK": lambda operator, *several: np.stack(several, operator.option(schema.PACK_AXIS)),
        "PRELU": _elementwise(lambda x, slope: values.relu(x, math.inf, slope)),
        "RANGE": _elementwise(lambda start, limit, step: np.arange(start.item(), limit.item(), step.item())),
        "REDUCE_MAX": _reduction(np.max),
        "REDUCE_MIN": _reduction(np.min),
        "REDUCE_PROD": _reduction(np.prod),
        "RESHAPE": lambda operator, x, sizes=None: x.reshape(
            operator.stated_numbers if sizes is None else _as_ints(sizes)
        ),
        "REVERSE_V2": _elementwise(lambda x, axes: np.flip(x, tuple(_as_ints(axes)))),
        "SHAPE": _elementwise(lambda x: np.asarray(x.shape)),
        "SLICE": _slice,
        "LOG_SOFTMAX": lambda operator, x: values.log_softmax(x, -1),
        "SOFTMAX": lambda operator, x: values.softmax(operator.option(schema.SOFTMAX_BETA) * x, -1),
        "SPACE_TO_BATCH_ND": _space_to_batch,
        "SPACE_TO_DEPTH": _of_blocks(space_to_depth),
        "SPLIT": lambda operator, axis, x: tuple(np.split(x, len(operator.gives), _as_ints(axis)[0])),
        "SPLIT_V": _split_by_sizes,
        "SQUEEZE": _squeeze,
        "STRIDED_SLICE": _strided_slice,
        "SUM": _reduction(np.sum),
        "TILE": _elementwise(lambda x, times: np.tile(x, _as_ints(times))),
        "TRANSPOSE": _elementwise(lambda x, order: x.transpose(_as_ints(order))),
        "TRANSPOSE_CONV": _transposed_conv,
        "UNPACK": lambda operator, x: tuple(np.moveaxis(x, operator.option(schema.UNPACK_AXIS), 0)),
    }
)

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
from porter.filegraph.kernels.layouts import channels_last, ordered, pad
from porter.filegraph.kernels.program import KernelProgram, OperatorCall, Row
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid, same_pads
from porter.formats.tflite.model import IMAGE, Operator, read_model

_PADDING, _STRIDE_WIDTH, _STRIDE_HEIGHT, _FILTER_WIDTH, _FILTER_HEIGHT = range(5)
"""Fields of the options of all windows in the schema, the last two of a Pool2D's only."""


def program(definition: bytes) -> KernelProgram:
    model = read_model(definition)
    gives = {
        (operator.name, index): name
        for operator in model.operators
        for index, name in enumerate(operator.gives or (operator.inner,))
    }
    steps = []
    for operator in model.operators:
        # A checkpoint holds no tensors of whole numbers.
        whole = {
            index: model.stored[name]
            for index, (name, _) in enumerate(operator.inputs)
            if name in model.stored
        }
        whole = {index: array for index, array in whole.items() if array.dtype.kind in "iub"}
        reads = (
            "" if index in whole else gives.get(source, source[0])
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
        IMAGE, tuple(steps), {op: _filled(row) for op, row in _ROWS.items()}, channels_last=True, single=True
    )


def _filled(row: Callable[..., Any]) -> Row:
    """A row that is given its operator and all its inputs."""

    def run(attributes: Mapping[str, Any], *inputs: Any) -> Any:
        operator: Operator = attributes["operator"]
        return row(operator, *(attributes["whole"].get(index, value) for index, value in enumerate(inputs)))

    return run


def _counts(numbers: Any) -> list[int]:
    return [int(number) for number in np.asarray(numbers).ravel()]


def _grid(operator: Operator, x: Numbers, sides: tuple[int, ...], dilations: int | None = None) -> Grid:
    stride = (operator.scalar(_STRIDE_HEIGHT, "i"), operator.scalar(_STRIDE_WIDTH, "i"))
    by = (
        (1, 1)
        if dilations is None
        else (operator.scalar(dilations + 1, "i", 1), operator.scalar(dilations, "i", 1))
    )
    pads = [0, 0, 0, 0]
    if operator.scalar(_PADDING, "b") == 0:
        pads = [
            cells
            for at in (0, 1)
            for cells in same_pads(x.shape[1 + at], (sides[at] - 1) * by[at] + 1, stride[at])
        ]
    return Grid(stride, by, (pads[0], pads[1], pads[2], pads[3]))


def _conv(operator: Operator, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    grid = _grid(operator, x, kernel.shape[1:3], 4)
    groups = x.shape[3] // kernel.shape[3]
    return channels_last(windows.conv)(x, ordered(kernel, "OHWI"), bias, grid, groups)


def _by_channel(operator: Operator, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    grid = _grid(operator, x, kernel.shape[1:3], 5)
    return channels_last(windows.conv)(x, ordered(kernel, "IHWO"), bias, grid, x.shape[3])


def _transposed(
    operator: Operator, sizes: Any, kernel: Numbers, x: Numbers, bias: Numbers | None = None
) -> Any:
    """What the pads of the convolution that it is the gradient of cover is cut off, on the map that it
    gives.
    """
    wanted = _counts(sizes)[1:3]
    stride = (operator.scalar(_STRIDE_HEIGHT, "i"), operator.scalar(_STRIDE_WIDTH, "i"))
    sides = kernel.shape[1:3]
    same = operator.scalar(_PADDING, "b") == 0
    first = [
        same_pads(size, side, step)[0] if same else 0
        for size, side, step in zip(wanted, sides, stride, strict=True)
    ]
    whole = channels_last(windows.transposed)(x, ordered(kernel, "IHWO", "OIHW"), None, Grid(stride))
    around = [
        (-before, size - (whole.shape[1 + at] - before))
        for at, (before, size) in enumerate(zip(first, wanted, strict=True))
    ]
    cut = pad(whole, [(0, 0), *around, (0, 0)])
    return cut if bias is None else cut + bias


def _pooled(operator: Operator, x: Numbers) -> Any:
    sides = (operator.scalar(_FILTER_HEIGHT, "i"), operator.scalar(_FILTER_WIDTH, "i"))
    pool = windows.max_pool if operator.op == "MAX_POOL_2D" else windows.average_pool
    return channels_last(pool)(x, sides, _grid(operator, x, sides))


def _matrices(operator: Operator, x: Numbers, other: Numbers) -> Any:
    first, second = (
        np.swapaxes(m, -1, -2) if operator.scalar(f, "B") else m for f, m in enumerate((x, other))
    )
    return first @ second


def _padded(operator: Operator, x: Numbers, table: Numbers, fill: Any = 0.0) -> Any:
    widths = [(int(before), int(after)) for before, after in table]
    if operator.op == "MIRROR_PAD":
        return pad(x, widths, "symmetric" if operator.scalar(0, "b") else "reflect")
    return pad(x, widths, value=float(np.asarray(fill).ravel()[0]))


def _squeezed(operator: Operator, x: Numbers) -> Any:
    places = _counts(operator.options.numbers(0, "i4")) if operator.options else []
    return np.squeeze(x, tuple(places) or None)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operator, x, axes: function(x, tuple(_counts(axes)), keepdims=bool(operator.scalar(0, "B")))


def _resized(operator: Operator, x: Numbers, sizes: Any) -> Any:
    """Nearest cells by half pixels are those at whole parts of places that are a half further on."""
    linear = operator.op == "RESIZE_BILINEAR"
    ends, half = (operator.scalar(field, "B") for field in ((2, 3) if linear else (0, 1)))
    coordinates = "align_corners" if ends else "half_pixel" if half else "asymmetric"
    rule = Rule(
        "linear" if linear else "nearest", coordinates, "round_prefer_ceil" if ends or half else "floor"
    )
    for axis, cells in zip((1, 2), _counts(sizes), strict=True):
        x = resize(x, axis, cells, cells / x.shape[axis], rule)
    return x


def _strided(operator: Operator, x: Numbers, *bounds: Any) -> Any:
    begin, end, ellipsis, added, shrunk = (operator.scalar(field, "i") for field in range(5))
    index: list[Any] = []
    for axis, (first, last, step) in enumerate(zip(*map(_counts, bounds), strict=True)):
        if ellipsis >> axis & 1:
            index.append(...)
        elif added >> axis & 1:
            index.append(None)
        elif shrunk >> axis & 1:
            index.append(first)
        else:
            index.append(slice(None if begin >> axis & 1 else first, None if end >> axis & 1 else last, step))
    return x[tuple(index)]


def _sliced(operator: Operator, x: Numbers, begins: Any, sizes: Any) -> Any:
    pairs = zip(_counts(begins), _counts(sizes), strict=True)
    return x[tuple(slice(begin, None if size < 0 else begin + size) for begin, size in pairs)]


def _parted(operator: Operator, x: Numbers, sizes: Any, axis: Any) -> tuple[Numbers, ...]:
    whole = _counts(sizes)
    whole = [
        x.shape[_counts(axis)[0]] - sum(size for size in whole if size > 0) if size < 0 else size
        for size in whole
    ]
    return tuple(np.split(x, np.cumsum(whole)[:-1], _counts(axis)[0]))


def _spread(operator: Operator, x: Numbers) -> Any:
    """Parts of the channels as the cells of blocks, block rows first."""
    side = operator.scalar(0, "i")
    images, rows, columns, channels = x.shape
    parts = x.reshape(images, rows, columns, side, side, channels // side**2).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(images, rows * side, columns * side, -1)


def _gathered(operator: Operator, x: Numbers) -> Any:
    """The cells of blocks as channels, block rows first."""
    side = operator.scalar(0, "i")
    images, rows, columns, channels = x.shape
    parts = x.reshape(images, rows // side, side, columns // side, side, channels).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(images, rows // side, columns // side, -1)


def _apart(operator: Operator, x: Numbers, block: Any, pads: Any) -> Any:
    """Cells that are a block apart as images, block rows first."""
    down, across = _counts(block)
    wide = pad(x, [(0, 0), *pads.tolist(), (0, 0)])
    images, rows, columns, channels = wide.shape
    cells = wide.reshape(images, rows // down, down, columns // across, across, channels).transpose(
        2, 4, 0, 1, 3, 5
    )
    return cells.reshape(images * down * across, rows // down, columns // across, channels)


def _together(operator: Operator, x: Numbers, block: Any, crops: Any) -> Any:
    down, across = _counts(block)
    images, rows, columns, channels = x.shape
    cells = x.reshape(down, across, images // (down * across), rows, columns, channels).transpose(
        2, 3, 0, 4, 1, 5
    )
    return pad(
        cells.reshape(-1, rows * down, columns * across, channels), [(0, 0), *(-crops).tolist(), (0, 0)]
    )


def _response(operator: Operator, x: Numbers) -> Any:
    size = 2 * operator.scalar(0, "i") + 1
    bias, alpha, beta = (operator.scalar(field, "f") for field in (1, 2, 3))
    return channels_last(values.response_norm)(x, size, alpha * size, beta, bias)


def _summed(operator: Operator, x: Numbers, axis: Any) -> Any:
    """Running sums: the first option leaves each number itself out, the second begins at the end."""
    (over,) = _counts(axis)
    exclusive, backwards = (operator.scalar(field, "B") for field in (0, 1))
    turned = np.flip(x, over) if backwards else x
    sums = np.cumsum(turned, over) - (turned if exclusive else 0)
    return np.flip(sums, over) if backwards else sums


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operator, *inputs: function(*inputs)


_OF_NUMBERS: Mapping[str, Callable[..., Any]] = {
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
        **{op: _each(function) for op, function in _OF_NUMBERS.items()},
        "ADD_N": _each(lambda *several: sum(several[1:], several[0])),
        "AVERAGE_POOL_2D MAX_POOL_2D": _pooled,
        "PAD PADV2 MIRROR_PAD": _padded,
        "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR": _resized,
        "BATCH_MATMUL": _matrices,
        "BATCH_TO_SPACE_ND": _together,
        "BROADCAST_TO": _each(lambda x, sizes: np.broadcast_to(x, _counts(sizes))),
        "CAST": lambda operator, x: x if operator.scalar(1, "b") == 0 else np.trunc(x).astype(np.int64),
        "CONCATENATION": lambda operator, *several: np.concatenate(several, operator.scalar(0, "i")),
        "CONV_2D": _conv,
        "CUMSUM": _summed,
        "DEPTHWISE_CONV_2D": _by_channel,
        "DEPTH_TO_SPACE": _spread,
        "EXPAND_DIMS": _each(lambda x, axis: np.expand_dims(x, _counts(axis)[0])),
        "FILL": _each(lambda sizes, number: np.full(_counts(sizes), number)),
        "FULLY_CONNECTED": lambda operator, x, kernel, bias=None: values.dense(
            x if operator.scalar(2, "B") else x.reshape(-1, kernel.shape[1]), kernel, bias
        ),
        "GATHER": lambda operator, x, places: np.take(x, np.asarray(places), operator.scalar(0, "i")),
        "GELU": lambda operator, x: values.gelu(x, bool(operator.scalar(0, "B"))),
        "L2_NORMALIZATION": _each(lambda x: x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)),
        "LEAKY_RELU": lambda operator, x: values.relu(x, slope=operator.scalar(0, "f")),
        "LOCAL_RESPONSE_NORMALIZATION": _response,
        "MEAN": _reduced(np.mean),
        "PACK": lambda operator, *several: np.stack(several, operator.scalar(1, "i")),
        "PRELU": _each(lambda x, slope: values.relu(x, math.inf, slope)),
        "RANGE": _each(lambda start, limit, step: np.arange(start.item(), limit.item(), step.item())),
        "REDUCE_MAX": _reduced(np.max),
        "REDUCE_MIN": _reduced(np.min),
        "REDUCE_PROD": _reduced(np.prod),
        "RESHAPE": lambda operator, x, sizes=None: x.reshape(
            _counts(operator.options.numbers(0, "i4") if sizes is None and operator.options else sizes)
        ),
        "REVERSE_V2": _each(lambda x, axes: np.flip(x, tuple(_counts(axes)))),
        "SHAPE": _each(lambda x: np.asarray(x.shape)),
        "SLICE": _sliced,
        "LOG_SOFTMAX": lambda operator, x: values.log_softmax(x, -1),
        "SOFTMAX": lambda operator, x: values.softmax(operator.scalar(0, "f", 1.0) * x, -1),
        "SPACE_TO_BATCH_ND": _apart,
        "SPACE_TO_DEPTH": _gathered,
        "SPLIT": lambda operator, axis, x: tuple(np.split(x, len(operator.gives), _counts(axis)[0])),
        "SPLIT_V": _parted,
        "SQUEEZE": _squeezed,
        "STRIDED_SLICE": _strided,
        "SUM": _reduced(np.sum),
        "TILE": _each(lambda x, times: np.tile(x, _counts(times))),
        "TRANSPOSE": _each(lambda x, order: x.transpose(_counts(order))),
        "TRANSPOSE_CONV": _transposed,
        "UNPACK": lambda operator, x: tuple(np.moveaxis(x, operator.scalar(1, "i"), 0)),
    }
)

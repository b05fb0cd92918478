"""What MXNet's operators compute, for porter's own engine: as a symbol says it, not as operators.py does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import depth_to_space, pad, resize_nearest, space_to_depth
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.settings import Settings
from porter.filegraph.kernels.windows import Grid
from porter.filegraph.program import KernelProgram, OperatorCall, Row, each, row
from porter.filegraph.value_names import value_name
from porter.formats.mxnet.symbol import read_symbol, split_definition


def program(definition: bytes) -> KernelProgram:
    """Return a symbol as a program of porter's own engine: a step for each operator, with the names of what
    it reads and gives, and the functions that compute the operators.

    Args:
        definition: of the graph, as `join_definition` makes it.
    """
    image, text = split_definition(definition)
    steps = []
    # All names but the image's count as held: the arrays are not looked at here.
    nodes = read_symbol(text, lambda name: name != image).nodes
    operators = {node.name for node in nodes}
    for node in nodes:
        settings = Settings({key: (word,) for key, word in node.attributes.words.items()})
        count = settings.count("num_outputs", 1) if node.op in ("SliceChannel", "split") else 1
        gives = tuple(value_name((node.name, output)) for output in range(count))
        reads = tuple(value_name(source) if source[0] in operators else source[0] for source in node.inputs)
        steps.append(OperatorCall(node.op, reads, gives, {"settings": settings}))
    return KernelProgram(image, tuple(steps), _ROWS)


def _row_with_scalar(compute: Callable[[Numbers, float], Any]) -> Row:
    """Return the row of a function of a value and of the number that the operator states."""
    return row(lambda settings, x: compute(x, settings.number("scalar", 0.0)))


def _grid(settings: Settings) -> Grid:
    """Return the stride, the dilation and the pads of a window."""
    down, across = settings.pair("pad", 0)
    return Grid(settings.pair("stride", 1), settings.pair("dilate", 1), (down, down, across, across))


def _conv(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    """Compute Convolution, with a bias unless `no_bias`."""
    return windows.conv(
        x, kernel, None if settings.flag("no_bias") else bias, _grid(settings), settings.count("num_group", 1)
    )


def _deconv(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    """Compute Deconvolution. A target shape takes the place of the pads: what is too much is cut off on both
    sides. An odd cell is cut at the beginning.
    """
    used_bias = None if settings.flag("no_bias", True) else bias
    grid = _grid(settings)
    if target_shape := settings.counts("target_shape"):
        by_axis = zip(x.shape[2:], grid.stride, kernel.shape[2:], grid.dilation, target_shape, strict=True)
        # How many cells the windows reach beyond the target.
        excess = [
            (size - 1) * step + (side - 1) * dilation + 1 - target
            for size, step, side, dilation, target in by_axis
        ]
        (top, bottom), (left, right) = (((cells + 1) // 2, cells // 2) for cells in excess)
        grid = replace(grid, pads=(top, bottom, left, right))
    else:
        grid = grid.with_more(*settings.pair("adj", 0))
    return windows.conv_transpose(x, kernel, used_bias, grid, settings.count("num_group", 1))


def _pool(settings: Settings, x: Numbers) -> Any:
    """Compute Pooling: the maximum, the mean, the sum or the root of the sum of squares, over windows or over
    the whole map.
    """
    kind = settings.word("pool_type", "max")
    if kind == "lp":
        return np.sqrt(_sum_windows(settings, x**2))
    if kind == "sum":
        return _sum_windows(settings, x)
    is_average = kind == "avg"
    if settings.flag("global_pool"):
        return x.mean((2, 3), keepdims=True) if is_average else x.max((2, 3), keepdims=True)
    grid = _pool_grid(settings)
    sides = settings.pair("kernel", 0)
    if not is_average:
        return windows.max_pool(x, sides, grid)
    counts_pads = settings.flag("count_include_pad", True)
    return windows.average_pool(x, sides, grid, "clipped_window" if counts_pads else "real_cells")


def _pool_grid(settings: Settings) -> Grid:
    """Return the strides and pads of a pool, with how it rounds its size."""
    full = settings.word("pooling_convention") == "full"
    return replace(_grid(settings), rounding="full" if full else "floor")


def _sum_windows(settings: Settings, x: Numbers) -> Any:
    """Return the sum of each window, in which pads are zeros."""
    if settings.flag("global_pool"):
        return x.sum((2, 3), keepdims=True)
    return sum(_pool_grid(settings).cells(x, settings.pair("kernel", 0)))


def _adaptive_pool(settings: Settings, x: Numbers) -> Any:
    """Compute an adaptive pool with MXNet's windows (src/operator/contrib/adaptive_avg_pooling-inl.h)."""
    for axis, count in zip((2, 3), settings.pair("output_size", 1), strict=True):
        size = x.shape[axis]
        # The cells from where a part begins, rounded down, to where it ends, rounded up.
        parts = [range(cell * size // count, -(-(cell + 1) * size // count)) for cell in range(count)]
        x = np.stack([x.take(part, axis).mean(axis) for part in parts], axis)
    return x


def _l2_normalization(settings: Settings, x: Numbers) -> Any:
    """Compute L2Normalization: over the channels, the cells, or all numbers of an image."""
    axes = {"channel": (1,), "spatial": tuple(range(2, x.ndim))}.get(settings.word("mode"))
    total = (x**2).sum(axes or tuple(range(1, x.ndim)), keepdims=True)
    return x / np.sqrt(total + settings.number("eps", 1e-10))


def _layer_norm(settings: Settings, x: Numbers, gamma: Numbers, beta: Numbers) -> Any:
    """Compute LayerNorm over one axis, with a scale and an offset for each of its cells."""
    axis = settings.count("axis", -1)
    normed = values.standardise(x, (axis,), settings.number("eps", 1e-5))
    return np.moveaxis(np.moveaxis(normed, axis, -1) * gamma + beta, -1, axis)


def _fully_connected(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    """Compute FullyConnected, of all numbers of an image or along the last axis."""
    flat = x.reshape(len(x), -1) if settings.flag("flatten", True) else x
    return values.dense(flat, kernel, None if settings.flag("no_bias") else bias)


def _batch_norm(
    settings: Settings, x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers
) -> Numbers:
    """Compute BatchNorm; with `fix_gamma`, its default, gamma counts as 1."""
    used_gamma = None if settings.flag("fix_gamma", True) else gamma
    return values.batch_norm(x, mean, variance + settings.number("eps", 1e-3), used_gamma, beta)


def _leaky_relu(settings: Settings, x: Numbers, gamma: Numbers | None = None) -> Any:
    """Compute LeakyReLU by its `act_type`; without one it is a leaky ReLU."""
    kind = settings.word("act_type", "leaky")
    slope = settings.number("slope", 0.25)
    if kind == "prelu" and gamma is not None:
        return values.relu(x, slope=values.per_channel(gamma, x))
    if kind == "selu":  # by its scale and its alpha
        return 1.0507009873554804934 * values.elu(x, 1.6732632423543772848)
    if kind == "gelu":
        return values.gelu(x)
    return values.elu(x, slope) if kind == "elu" else values.relu(x, slope=slope)


_ACTIVATIONS: Mapping[str, Callable[[Numbers], Any]] = {
    "relu": values.relu,
    "sigmoid": values.sigmoid,
    "tanh": np.tanh,
    "softrelu": lambda x: np.where(x > 20, x, np.logaddexp(0, x)),  # src/operator/mshadow_op.h
    "softsign": lambda x: x / (1 + np.abs(x)),
}


def _lrn(settings: Settings, x: Numbers) -> Numbers:
    """Compute LRN across channels."""
    numbers = (
        settings.number(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("knorm", 2.0))
    )
    return values.response_norm(x, settings.count("nsize", 0), *numbers)


def _instance_norm(settings: Settings, x: Numbers, gamma: Numbers, beta: Numbers) -> Numbers:
    """Compute InstanceNorm: each channel of an image is a group of its own."""
    return values.group_norm(x, x.shape[1], gamma, beta, settings.number("eps", 1e-3))


def _split(settings: Settings, x: Numbers) -> tuple[Numbers, ...]:
    """Compute SliceChannel: equal parts of an axis, which goes with `squeeze_axis`."""
    axis = settings.count("axis", 1)
    parts = np.split(x, settings.count("num_outputs", 1), axis)
    return tuple(part.squeeze(axis) for part in parts) if settings.flag("squeeze_axis") else tuple(parts)


def _slice_axis(settings: Settings, x: Numbers) -> Numbers:
    """Compute slice_axis: the cells of an axis from `begin` to before `end`."""
    axis = settings.count("axis", 0)
    word = settings.word("end", "None")
    cells = slice(settings.count("begin", 0), None if word == "None" else int(word))
    return x.take(range(x.shape[axis])[cells], axis)


def _slice(settings: Settings, x: Numbers) -> Numbers:
    """Compute slice: a part of each axis, by begins, ends and steps, of which None is a default."""
    bounds = (re.findall(r"None|-?\d+", settings.word(name, "()")) for name in ("begin", "end", "step"))
    begins, ends, steps = ([None if word == "None" else int(word) for word in words] for words in bounds)
    return x[tuple(slice(*bounds_of_axis) for bounds_of_axis in zip_longest(begins, ends, steps))]


def _crop(settings: Settings, x: Numbers, like: Numbers | None = None) -> Numbers:
    """Compute Crop: rows and columns of `x` to a stated size or to that of `like`, from an offset on or in
    the middle.
    """
    rows, columns = settings.pair("h_w", 0) if like is None else like.shape[2:]
    sizes = x.shape[2:]
    top, left = settings.pair("offset", 0)
    if settings.flag("center_crop"):
        top, left = (sizes[0] - rows) // 2, (sizes[1] - columns) // 2
    return x[:, :, top : top + rows, left : left + columns]


def _bilinear_resize(settings: Settings, x: Numbers, like: Numbers | None = None) -> Numbers:
    """Compute BilinearResize2D: to the size of the map `like`, by scales, or to stated sizes."""
    rule = Rule("linear", "align_corners" if settings.flag("align_corners", True) else "half_pixel")
    for axis, name in ((2, "height"), (3, "width")):
        scale = settings.number(f"scale_{name}", 0.0)
        cells = int(x.shape[axis] * scale) if scale else settings.count(name, 1)
        cells = cells if like is None else like.shape[axis]
        x = resize(x, axis, cells, cells / x.shape[axis], rule)
    return x


def _upsample(settings: Settings, x: Numbers, kernel: Numbers | None = None) -> Numbers:
    """Compute UpSampling: the nearest cells, or a transposed convolution by the kernel if there is one."""
    scale = settings.count("scale", 1)
    if kernel is None:
        return resize_nearest(x, (1, 1, scale, scale))
    grid = Grid((scale, scale), pads=(scale // 2,) * 4)
    return windows.conv_transpose(x, kernel, None, grid, x.shape[1])


def _reshape(settings: Settings, x: Numbers) -> Numbers:
    """Compute Reshape: 0 keeps a size, -2 keeps all further ones, -3 makes one of two. A size of -1 is left
    to numpy.
    """
    sizes, axis = list[int](), 0
    for code in settings.counts("shape"):
        if code == -2:
            sizes += x.shape[axis:]
        elif code == -3:
            sizes.append(x.shape[axis] * x.shape[axis + 1])
        else:
            sizes.append(code or x.shape[axis])
        axis += 2 if code == -3 else 1
    return x.reshape(sizes)


def _row_of_reduction(function: Callable[..., Any]) -> Row:
    """Return the row, the function of the operator's settings and values, of a reduction over the stated
    axes, over all but these (`exclude`), or over all where none are stated.
    """

    def reduce(settings: Settings, x: Numbers) -> Any:
        """Reduce over the axes that the settings state or leave over."""
        axes = {axis % x.ndim for axis in settings.counts("axis")}
        if settings.flag("exclude") or not axes:
            axes = {*range(x.ndim)} - axes
        return function(x, axis=tuple(axes), keepdims=settings.flag("keepdims"))

    return row(reduce)


def _softmax(settings: Settings, x: Numbers) -> Numbers:
    """Compute a softmax over a stated axis, or the last one, at a temperature."""
    return values.softmax(x / settings.number("temperature", 1.0), settings.count("axis", -1))


def _pad(settings: Settings, x: Numbers) -> Numbers:
    """Compute Pad: with a number, mirrored or with the edge; widths are before and behind each axis."""
    widths = settings.counts("pad_width")
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    mode = settings.word("mode")
    return pad(x, pairs, mode, settings.number("constant_value", 0.0))


def _softmax_output(settings: Settings, x: Numbers) -> Numbers:
    """Compute SoftmaxOutput: over the channels, over the last axis, or of all numbers of an image
    (src/operator/softmax_output-inl.h).
    """
    if settings.flag("multi_output"):
        return values.softmax(x, 1)
    if settings.flag("preserve_shape"):
        return values.softmax(x, -1)
    return values.softmax(x.reshape(len(x), -1), 1).reshape(x.shape)


_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "lesser": np.less,
    "lesser_equal": np.less_equal,
}


def _compare(function: Callable[..., Any]) -> Callable[[Numbers, float], Numbers]:
    """Return a comparison with a number that gives 0 or 1 in the value's type."""
    return lambda x, number: function(x, number).astype(x.dtype)


_ROWS: Mapping[str, Row] = by_name(
    {
        "Convolution": row(_conv),
        "Deconvolution": row(_deconv),
        "Pooling": row(_pool),
        "FullyConnected": row(_fully_connected),
        "BatchNorm": row(_batch_norm),
        "InstanceNorm": row(_instance_norm),
        "L2Normalization": row(_l2_normalization),
        "LayerNorm": row(_layer_norm),
        "_contrib_AdaptiveAvgPooling2D": row(_adaptive_pool),
        "_contrib_BilinearResize2D": row(_bilinear_resize),
        "LRN": row(_lrn),
        "Activation": row(lambda settings, x: _ACTIVATIONS[settings.word("act_type")](x)),
        "LeakyReLU": row(_leaky_relu),
        "LogisticRegressionOutput": each(values.sigmoid),
        "relu": each(values.relu),
        "sigmoid": each(values.sigmoid),
        "tanh": each(np.tanh),
        "square": each(np.square),
        **{
            name: each(getattr(np, name))
            for name in ("abs", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "sign", "floor", "ceil")
        },
        "erf": each(values.erf),
        **{name: each(getattr(np, name)) for name in ("negative", "expm1", "log1p", "trunc")},
        "fix": each(np.trunc),
        "softsign": each(_ACTIVATIONS["softsign"]),
        "_maximum_scalar _MaximumScalar": _row_with_scalar(np.maximum),
        "_minimum_scalar _MinimumScalar": _row_with_scalar(np.minimum),
        "_rdiv_scalar _RDivScalar": _row_with_scalar(lambda x, number: number / x),
        "rsqrt": each(lambda x: 1 / np.sqrt(x)),
        "_power_scalar _PowerScalar": _row_with_scalar(lambda x, number: x**number),
        "hard_sigmoid": row(
            lambda settings, x: values.hard_sigmoid(
                x, settings.number("alpha", 0.2), settings.number("beta", 0.5)
            )
        ),
        "clip": row(
            lambda settings, x: np.clip(
                x, settings.number("a_min", -math.inf), settings.number("a_max", math.inf)
            )
        ),
        "elemwise_add broadcast_add broadcast_plus _Plus _plus _add": each(np.add),
        "add_n ElementWiseSum _sum": each(lambda *several: sum(several[1:], several[0])),
        "elemwise_sub broadcast_sub broadcast_minus _Minus _minus _sub": each(np.subtract),
        "elemwise_mul broadcast_mul _Mul _mul": each(np.multiply),
        "elemwise_div broadcast_div _Div _div": each(np.divide),
        "broadcast_maximum _Maximum _maximum": each(np.maximum),
        "broadcast_minimum _Minimum _minimum": each(np.minimum),
        "_plus_scalar _PlusScalar": _row_with_scalar(lambda x, number: x + number),
        "_minus_scalar _MinusScalar": _row_with_scalar(lambda x, number: x - number),
        "_rminus_scalar _RMinusScalar": _row_with_scalar(lambda x, number: number - x),
        "_mul_scalar _MulScalar": _row_with_scalar(lambda x, number: x * number),
        "_div_scalar _DivScalar": _row_with_scalar(lambda x, number: x / number),
        **{
            f"_{name}_scalar": _row_with_scalar(_compare(function)) for name, function in _COMPARISONS.items()
        },
        "SoftmaxOutput Softmax": row(_softmax_output),
        "SoftmaxActivation": row(
            lambda settings, x: values.softmax(x, 1 if settings.word("mode") == "channel" else -1)
        ),
        "log_softmax": row(lambda settings, x: values.log_softmax(x, settings.count("axis", -1))),
        "softmax": row(_softmax),
        "softmin": row(lambda settings, x: _softmax(settings, -x)),
        "Concat concat": row(lambda settings, *several: np.concatenate(several, settings.count("dim", 1))),
        "Flatten flatten": each(lambda x: x.reshape(len(x), -1)),
        "Reshape reshape": row(_reshape),
        "SliceChannel split": row(_split),
        "Pad pad": row(_pad),
        **{name: _row_of_reduction(getattr(np, name)) for name in ("mean", "max", "min", "sum")},
        "slice_axis": row(_slice_axis),
        "slice": row(_slice),
        "Crop": row(_crop),
        "SwapAxis swapaxes": row(
            lambda settings, x: x.swapaxes(settings.count("dim1", 0), settings.count("dim2", 0))
        ),
        "depth_to_space": row(lambda settings, x: depth_to_space(x, settings.count("block_size", 1))),
        "space_to_depth": row(lambda settings, x: space_to_depth(x, settings.count("block_size", 1))),
        "transpose": row(lambda settings, x: x.transpose(settings.counts("axes"))),
        "UpSampling": row(_upsample),
    }
)

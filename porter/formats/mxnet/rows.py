"""What MXNet's operators compute, for porter's own engine: as a symbol says it, not as read.py takes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import Numbers, pad, resize_nearest
from porter.filegraph.kernels.program import Program, Row, Step, each, row, value_name
from porter.filegraph.kernels.settings import Settings
from porter.filegraph.kernels.windows import Grid
from porter.formats.mxnet.symbol import read_symbol


def program(definition: bytes) -> Program:
    """Of the image's name and, on the next line, the symbol."""
    name, _, text = definition.partition(b"\n")
    image, steps = name.decode(), []
    nodes = read_symbol(text, lambda name: name != image).nodes
    operators = {node.name for node in nodes}
    for node in nodes:
        stated = Settings({key: (word,) for key, word in node.stated.words.items()})
        count = stated.count("num_outputs", 1) if node.op in ("SliceChannel", "split") else 1
        gives = tuple(value_name((node.name, place)) for place in range(count))
        reads = tuple(value_name(source) if source[0] in operators else source[0] for source in node.inputs)
        steps.append(Step(node.op, reads, gives, {"stated": stated}))
    return Program(image, tuple(steps), _ROWS)


def _by_number(compute: Callable[[Numbers, float], Any]) -> Row:
    return row(lambda stated, x: compute(x, stated.number("scalar", 0.0)))


def _grid(stated: Settings) -> Grid:
    down, across = stated.pair("pad", 0)
    return Grid(stated.pair("stride", 1), stated.pair("dilate", 1), (down, down, across, across))


def _conv(stated: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    return windows.conv(
        x, kernel, None if stated.flag("no_bias") else bias, _grid(stated), stated.count("num_group", 1)
    )


def _deconv(stated: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    own = None if stated.flag("no_bias", True) else bias
    return windows.transposed(x, kernel, own, _grid(stated), stated.count("num_group", 1))


def _pool(stated: Settings, x: Numbers) -> Any:
    average = stated.word("pool_type", "max") == "avg"
    if stated.flag("global_pool"):
        return x.mean((2, 3), keepdims=True) if average else x.max((2, 3), keepdims=True)
    full = stated.word("pooling_convention") == "full"
    grid, sides = replace(_grid(stated), rounding="full" if full else "floor"), stated.pair("kernel", 0)
    if not average:
        return windows.max_pool(x, sides, grid)
    return windows.average_pool(
        x, sides, grid, "clipped_window" if stated.flag("count_include_pad", True) else "real_cells"
    )


def _dense(stated: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    flat = x.reshape(len(x), -1) if stated.flag("flatten", True) else x
    return values.dense(flat, kernel, None if stated.flag("no_bias") else bias)


def _norm(
    stated: Settings, x: Numbers, gamma: Numbers, beta: Numbers, mean: Numbers, variance: Numbers
) -> Numbers:
    own = None if stated.flag("fix_gamma", True) else gamma
    return values.batch_norm(x, mean, variance, own, beta, stated.number("eps", 1e-3))


def _leaky(stated: Settings, x: Numbers, gamma: Numbers | None = None) -> Any:
    kind, slope = stated.word("act_type", "leaky"), stated.number("slope", 0.25)
    if kind == "prelu" and gamma is not None:
        return values.relu(x, slope=values.across(gamma, x))
    if kind == "selu":
        return 1.0507009873554804934 * values.elu(x, 1.6732632423543772848)
    return (
        values.gelu(x)
        if kind == "gelu"
        else values.elu(x, slope)
        if kind == "elu"
        else values.relu(x, slope=slope)
    )


_ACTIVATIONS: Mapping[str, Callable[[Numbers], Any]] = {
    "relu": values.relu,
    "sigmoid": values.sigmoid,
    "tanh": np.tanh,
    "softrelu": lambda x: np.where(x > 20, x, np.logaddexp(0, x)),  # src/operator/mshadow_op.h
    "softsign": lambda x: x / (1 + np.abs(x)),
}


def _lrn(stated: Settings, x: Numbers) -> Numbers:
    numbers = (
        stated.number(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("knorm", 2.0))
    )
    return values.response_norm(x, stated.count("nsize", 0), *numbers)


def _instance_norm(stated: Settings, x: Numbers, gamma: Numbers, beta: Numbers) -> Numbers:
    return values.group_norm(x, x.shape[1], gamma, beta, stated.number("eps", 1e-3))


def _split(stated: Settings, x: Numbers) -> tuple[Numbers, ...]:
    axis = stated.count("axis", 1)
    parts = np.split(x, stated.count("num_outputs", 1), axis)
    return tuple(part.squeeze(axis) for part in parts) if stated.flag("squeeze_axis") else tuple(parts)


def _cut(stated: Settings, x: Numbers) -> Numbers:
    axis, end = stated.count("axis", 0), stated.word("end", "None")
    places = range(x.shape[axis])[stated.count("begin", 0) : None if end == "None" else int(end)]
    return x.take(places, axis)


def _reshape(stated: Settings, x: Numbers) -> Numbers:
    return x.reshape([size or x.shape[place] for place, size in enumerate(stated.counts("shape"))])


def _pad(stated: Settings, x: Numbers) -> Numbers:
    widths = stated.counts("pad_width")
    pairs, mode = list(zip(widths[::2], widths[1::2], strict=True)), stated.word("mode")
    return pad(x, pairs, mode, stated.number("constant_value", 0.0))


def _softmax_output(stated: Settings, x: Numbers) -> Numbers:
    """Of all numbers of an image, if it says nothing else (src/operator/softmax_output-inl.h)."""
    if stated.flag("multi_output"):
        return values.softmax(x, 1)
    if stated.flag("preserve_shape"):
        return values.softmax(x, -1)
    return values.softmax(x.reshape(len(x), -1), 1).reshape(x.shape)


_COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "lesser": np.less,
    "lesser_equal": np.less_equal,
}


def _compared(function: Callable[..., Any]) -> Callable[[Numbers, float], Numbers]:
    return lambda x, number: function(x, number).astype(x.dtype)


_ROWS: Mapping[str, Row] = {
    "Convolution": row(_conv),
    "Deconvolution": row(_deconv),
    "Pooling": row(_pool),
    "FullyConnected": row(_dense),
    "BatchNorm": row(_norm),
    "InstanceNorm": row(_instance_norm),
    "LRN": row(_lrn),
    "Activation": row(lambda stated, x: _ACTIVATIONS[stated.word("act_type")](x)),
    "LeakyReLU": row(_leaky),
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
    "rsqrt": each(lambda x: 1 / np.sqrt(x)),
    **dict.fromkeys(("_power_scalar", "_PowerScalar"), _by_number(lambda x, number: x**number)),
    "hard_sigmoid": row(
        lambda stated, x: values.hard_sigmoid(x, stated.number("alpha", 0.2), stated.number("beta", 0.5))
    ),
    "clip": row(
        lambda stated, x: np.clip(x, stated.number("a_min", -math.inf), stated.number("a_max", math.inf))
    ),
    **dict.fromkeys(
        ("elemwise_add", "broadcast_add", "broadcast_plus", "_Plus", "_plus", "_add"), each(np.add)
    ),
    **dict.fromkeys(("add_n", "ElementWiseSum", "_sum"), each(lambda *several: sum(several[1:], several[0]))),
    **dict.fromkeys(
        ("elemwise_sub", "broadcast_sub", "broadcast_minus", "_Minus", "_minus", "_sub"), each(np.subtract)
    ),
    **dict.fromkeys(("elemwise_mul", "broadcast_mul", "_Mul", "_mul"), each(np.multiply)),
    **dict.fromkeys(("elemwise_div", "broadcast_div", "_Div", "_div"), each(np.divide)),
    **dict.fromkeys(("broadcast_maximum", "_Maximum", "_maximum"), each(np.maximum)),
    **dict.fromkeys(("broadcast_minimum", "_Minimum", "_minimum"), each(np.minimum)),
    **dict.fromkeys(("_plus_scalar", "_PlusScalar"), _by_number(lambda x, number: x + number)),
    **dict.fromkeys(("_minus_scalar", "_MinusScalar"), _by_number(lambda x, number: x - number)),
    **dict.fromkeys(("_rminus_scalar", "_RMinusScalar"), _by_number(lambda x, number: number - x)),
    **dict.fromkeys(("_mul_scalar", "_MulScalar"), _by_number(lambda x, number: x * number)),
    **dict.fromkeys(("_div_scalar", "_DivScalar"), _by_number(lambda x, number: x / number)),
    **{f"_{name}_scalar": _by_number(_compared(function)) for name, function in _COMPARISONS.items()},
    **dict.fromkeys(("SoftmaxOutput", "Softmax"), row(_softmax_output)),
    "SoftmaxActivation": row(
        lambda stated, x: values.softmax(x, 1 if stated.word("mode") == "channel" else -1)
    ),
    "log_softmax": row(lambda stated, x: values.log_softmax(x, stated.count("axis", -1))),
    "softmax": row(lambda stated, x: values.softmax(x, stated.count("axis", -1))),
    **dict.fromkeys(
        ("Concat", "concat"), row(lambda stated, *several: np.concatenate(several, stated.count("dim", 1)))
    ),
    **dict.fromkeys(("Flatten", "flatten"), each(lambda x: x.reshape(len(x), -1))),
    **dict.fromkeys(("Reshape", "reshape"), row(_reshape)),
    **dict.fromkeys(("SliceChannel", "split"), row(_split)),
    **dict.fromkeys(("Pad", "pad"), row(_pad)),
    "mean": row(lambda stated, x: x.mean(tuple(stated.counts("axis")), keepdims=stated.flag("keepdims"))),
    "max": row(lambda stated, x: x.max(tuple(stated.counts("axis")), keepdims=stated.flag("keepdims"))),
    "slice_axis": row(_cut),
    "transpose": row(lambda stated, x: x.transpose(stated.counts("axes"))),
    "UpSampling": row(
        lambda stated, x: resize_nearest(x, (1, 1, stated.count("scale", 1), stated.count("scale", 1)))
    ),
}

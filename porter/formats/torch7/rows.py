"""What nn's modules compute, for porter's own engine: as a file says it, not as read.py takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import Numbers, pad, resize_nearest
from porter.filegraph.kernels.program import Program, Row, Step
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid
from porter.formats.torch7.network import IMAGE, Layer, network_in, read_network
from porter.formats.torch7.objects import read_objects


def program(definition: bytes) -> Program:
    module = network_in(read_objects(definition))
    assert module is not None, "a file with a graph has a module"
    steps = []
    for layer in read_network(module).layers:
        reads = (*(name for name, _ in layer.inputs), *layer.tensors.values())
        steps.append(Step(layer.op, reads, (layer.name,), {"layer": layer}))
    return Program(IMAGE, tuple(steps), {op: _called(row) for op, row in _ROWS.items()})


def _called(row: Callable[..., Any]) -> Row:
    """A row that is given its layer, its values, and its arrays by their fields."""

    def run(attributes: Mapping[str, Any], *inputs: Numbers) -> Any:
        layer: Layer = attributes["layer"]
        count = len(layer.inputs)
        return row(layer, *inputs[:count], **dict(zip(layer.tensors, inputs[count:], strict=True)))

    return run


def _grid(layer: Layer, **more: Any) -> Grid:
    rows, columns = layer.pair("padH", "padW", layer.count("padding", 0))
    strides, dilations = layer.pair("dH", "dW", 1), layer.pair("dilationH", "dilationW", 1)
    return Grid(strides, dilations, (rows, rows, columns, columns), **more)


def _conv(layer: Layer, x: Numbers, weight: Numbers, bias: Numbers | None = None) -> Any:
    kernel = weight.reshape(len(weight), -1, *layer.pair("kH", "kW", 1))
    return windows.conv(x, kernel, bias, _grid(layer), layer.count("groups", 1))


def _transposed(layer: Layer, x: Numbers, weight: Numbers, bias: Numbers | None = None) -> Any:
    return windows.transposed(
        x, weight, bias, _grid(layer), layer.count("groups", 1), layer.pair("adjH", "adjW", 0)
    )


def _largest(layer: Layer, x: Numbers) -> Any:
    return windows.max_pool(
        x, layer.pair("kH", "kW", 1), _grid(layer, rounding="ceil" if layer.flag("ceil_mode") else "floor")
    )


def _mean(layer: Layer, x: Numbers) -> Any:
    counted = layer.flag("count_include_pad", True) and "EXCLUDE" not in str(layer.stated.get("mode", ""))
    sides, grid = (
        layer.pair("kH", "kW", 1),
        _grid(layer, rounding="ceil" if layer.flag("ceil_mode") else "floor"),
    )
    found = windows.average_pool(x, sides, grid, "clipped_window" if counted else "real_cells")
    return found if layer.flag("divide", True) else found * (sides[0] * sides[1])


def _normed(layer: Layer, x: Numbers, running_mean: Numbers, **held: Numbers) -> Any:
    """Old files keep one over the deviation, with the epsilon in it."""
    epsilon = layer.number("eps", 1e-5)
    variance = held["running_var"] if "running_var" in held else held["running_std"] ** -2.0 - epsilon
    return values.batch_norm(x, running_mean, variance, held.get("weight"), held.get("bias"), epsilon)


def _normed_alone(layer: Layer, x: Numbers, weight: Numbers, bias: Numbers) -> Any:
    return values.group_norm(x, x.shape[1], weight, bias, layer.number("eps", 1e-5))


def _axis(layer: Layer, x: Numbers) -> int:
    place = layer.count("dimension", 1)
    return place if place < 0 else place if layer.count("nInputDims", 0) == x.ndim - 1 else place - 1


def _joined(layer: Layer, *several: Numbers) -> Any:
    return np.concatenate(several, _axis(layer, several[0]))


def _deep(layer: Layer, *several: Numbers) -> Any:
    rows, columns = (max(x.shape[axis] for x in several) for axis in (2, 3))
    found = []
    for x in several:
        down, across = rows - x.shape[2], columns - x.shape[3]
        found.append(
            pad(x, [(0, 0), (0, 0), (down // 2, down - down // 2), (across // 2, across - across // 2)])
        )
    return np.concatenate(found, 1)


def _seen(layer: Layer, x: Numbers) -> Any:
    sizes = layer.counts("size")
    return x.reshape(
        sizes
        if sizes[0] == -1 and len(sizes) > 1 and not layer.count("numInputDims", 0)
        else (len(x), *sizes)
    )


def _around(mode: str) -> Callable[..., Any]:
    def run(layer: Layer, x: Numbers) -> Any:
        top, bottom, left, right = (layer.count(f"pad_{side}", 0) for side in ("t", "b", "l", "r"))
        return pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], mode)

    return run


def _padded(layer: Layer, x: Numbers) -> Any:
    axis, cells = layer.count("dim", 1) - 1, layer.count("pad", 0)
    axis += 0 < layer.count("nInputDim", 0) < x.ndim
    around = [(max(-cells, 0), max(cells, 0)) if place == axis else (0, 0) for place in range(x.ndim)]
    return pad(x, around, value=layer.number("value", 0.0))


def _response(layer: Layer, x: Numbers) -> Any:
    alpha, beta, bias = layer.number("alpha", 1e-4), layer.number("beta", 0.75), layer.number("k", 1.0)
    return values.response_norm(x, layer.count("size", 5), alpha, beta, bias)


def _smooth(layer: Layer, x: Numbers) -> Any:
    for axis in (2, 3):
        factor = layer.count("scale_factor", 1)
        x = resize(x, axis, x.shape[axis] * factor, factor, Rule("linear", "align_corners"))
    return x


def _narrowed(layer: Layer, x: Numbers) -> Any:
    start, axis = layer.count("index", 1) - 1, _axis(layer, x)
    return np.take(x, np.arange(start, start + layer.count("length", 1)), axis)


def _softplus(layer: Layer, x: Numbers) -> Any:
    beta = layer.number("beta", 1.0)
    return np.logaddexp(beta * x, 0) / beta


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda layer, x: function(x, _axis(layer, x), keepdims=not layer.flag("squeeze", True))


def _merged(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda layer, *several: reduce(function, several)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda layer, x: function(x)


_ROWS: Mapping[str, Callable[..., Any]] = {
    **{"CAddTable": _merged(np.add), "CSubTable": _merged(np.subtract), "CMulTable": _merged(np.multiply)},
    **{"CDivTable": _merged(np.divide), "CMaxTable": _merged(np.maximum), "CMinTable": _merged(np.minimum)},
    **dict.fromkeys(("SpatialConvolution", "SpatialConvolutionMM", "SpatialDilatedConvolution"), _conv),
    **dict.fromkeys(("SpatialBatchNormalization", "BatchNormalization"), _normed),
    **dict.fromkeys(("Concat", "JoinTable"), _joined),
    **dict.fromkeys(("View", "Reshape"), _seen),
    **dict.fromkeys(("SoftMax", "SpatialSoftMax"), _each(lambda x: values.softmax(x, 1))),
    **dict.fromkeys(("Dropout", "SpatialDropout"), lambda layer, x: x * (1 - layer.number("p", 0.5))),
    "InstanceNormalization": _normed_alone,
    "ShaveImage": lambda layer, x: pad(
        x, [(0, 0), (0, 0), *[(-layer.count("size", 0), -layer.count("size", 0))] * 2]
    ),
    "SpatialFullConvolution": _transposed,
    "SpatialMaxPooling": _largest,
    "SpatialAveragePooling": _mean,
    "SpatialAdaptiveMaxPooling": _each(lambda x: x.max((2, 3), keepdims=True)),
    "SpatialAdaptiveAveragePooling": _each(lambda x: x.mean((2, 3), keepdims=True)),
    "Linear": lambda layer, x, weight, bias=None: values.dense(x, weight, bias),
    "DepthConcat": _deep,
    "PReLU": lambda layer, x, weight: values.relu(
        x, slope=values.across(weight, x) if weight.size > 1 else weight.ravel()[0]
    ),
    "ReLU": _each(values.relu),
    "ReLU6": _each(lambda x: values.relu(x, 6.0)),
    "Threshold": lambda layer, x: np.where(x > layer.number("threshold", 1e-6), x, layer.number("val", 0.0)),
    "HardTanh": lambda layer, x: np.clip(x, layer.number("min_val", -1.0), layer.number("max_val", 1.0)),
    "LeakyReLU": lambda layer, x: values.relu(x, slope=layer.number("negval", 0.01)),
    "ELU": lambda layer, x: values.elu(x, layer.number("alpha", 1.0)),
    "SoftPlus": _softplus,
    "SoftSign": _each(lambda x: x / (1 + np.abs(x))),
    "Sigmoid": _each(values.sigmoid),
    "Tanh": _each(np.tanh),
    "Square": _each(np.square),
    "LogSoftMax": _each(lambda x: values.log_softmax(x, 1)),
    "MulConstant": lambda layer, x: x * layer.number("constant_scalar", 1.0),
    "AddConstant": lambda layer, x: x + layer.number("constant_scalar", 0.0),
    "SpatialZeroPadding": _around("constant"),
    "SpatialReflectionPadding": _around("reflect"),
    "SpatialReplicationPadding": _around("edge"),
    "Padding": _padded,
    "SpatialCrossMapLRN": _response,
    "SpatialUpSamplingNearest": lambda layer, x: resize_nearest(
        x, (1, 1, *layer.pair("scale_factor", "scale_factor", 1))
    ),
    "SpatialUpSamplingBilinear": _smooth,
    "Narrow": _narrowed,
    "Mean": _reduced(np.mean),
    "Max": _reduced(np.max),
}

"""What nn's modules compute, for porter's own engine: as a file says it, not as read.py takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import pad, resize_nearest
from porter.filegraph.kernels.program import KernelProgram, Row
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid
from porter.formats.torch7.calls import INPUT, ModuleFields, steps_of
from porter.formats.torch7.objects import read_objects


def program(definition: bytes) -> KernelProgram:
    steps = steps_of(read_objects(definition))
    return KernelProgram(INPUT, steps, {op: _called(row) for op, row in _ROWS.items()})


def _called(row: Callable[..., Any]) -> Row:
    """A row that is given what its module states, its values, and its arrays by their fields."""

    def run(attributes: Mapping[str, Any], *inputs: Numbers) -> Any:
        roles = attributes["roles"]
        values = inputs[: len(inputs) - len(roles)]
        return row(attributes["fields"], *values, **dict(zip(roles, inputs[len(values) :], strict=True)))

    return run


def _grid(fields: ModuleFields, **more: Any) -> Grid:
    rows, columns = fields.sides("pad", fields.whole("padding", 0))
    strides, dilations = fields.sides("d", 1), fields.sides("dilation", 1)
    return Grid(strides, dilations, (rows, rows, columns, columns), **more)


def _conv(fields: ModuleFields, x: Numbers, weight: Numbers, bias: Numbers | None = None) -> Any:
    kernel = weight.reshape(len(weight), -1, *fields.sides("k", 1))
    return windows.conv(x, kernel, bias, _grid(fields), fields.whole("groups", 1))


def _mean(fields: ModuleFields, x: Numbers) -> Any:
    counted = fields.get("count_include_pad", True) and "EXCLUDE" not in str(fields.get("mode", ""))
    sides = fields.sides("k", 1)
    grid = _grid(fields, rounding="ceil" if fields.get("ceil_mode") else "floor")
    mean = windows.average_pool(x, sides, grid, "clipped_window" if counted else "real_cells")
    return mean if fields.get("divide", True) else mean * (sides[0] * sides[1])


def _normed(fields: ModuleFields, x: Numbers, running_mean: Numbers, **vectors: Numbers) -> Any:
    """Old files keep one over the deviation, with the epsilon in it."""
    epsilon = fields.get("eps", 1e-5)
    variance = (
        vectors["running_var"] + epsilon if "running_var" in vectors else vectors["running_std"] ** -2.0
    )
    return values.batch_norm(x, running_mean, variance, vectors.get("weight"), vectors.get("bias"))


def _axis(fields: ModuleFields, x: Numbers) -> int:
    dimension = fields.whole("dimension", 1)
    return (
        dimension
        if dimension < 0
        else dimension
        if fields.whole("nInputDims", 0) == x.ndim - 1
        else dimension - 1
    )


def _deep(fields: ModuleFields, *several: Numbers) -> Any:
    rows, columns = (max(x.shape[axis] for x in several) for axis in (2, 3))
    padded = []
    for x in several:
        down, across = rows - x.shape[2], columns - x.shape[3]
        padded.append(
            pad(x, [(0, 0), (0, 0), (down // 2, down - down // 2), (across // 2, across - across // 2)])
        )
    return np.concatenate(padded, 1)


def _seen(fields: ModuleFields, x: Numbers) -> Any:
    sizes = fields.sizes()
    return x.reshape(
        sizes
        if sizes[0] == -1 and len(sizes) > 1 and not fields.whole("numInputDims", 0)
        else (len(x), *sizes)
    )


def _around(mode: str) -> Callable[..., Any]:
    def run(fields: ModuleFields, x: Numbers) -> Any:
        top, bottom, left, right = (fields.whole(f"pad_{side}", 0) for side in ("t", "b", "l", "r"))
        return pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], mode)

    return run


def _padded(fields: ModuleFields, x: Numbers) -> Any:
    axis = fields.whole("dim", 1) - 1
    cells = fields.whole("pad", 0)
    axis += 0 < fields.whole("nInputDim", 0) < x.ndim
    around = [(max(-cells, 0), max(cells, 0)) if each == axis else (0, 0) for each in range(x.ndim)]
    return pad(x, around, value=fields.get("value", 0.0))


def _response(fields: ModuleFields, x: Numbers) -> Any:
    alpha, beta, bias = fields.get("alpha", 1e-4), fields.get("beta", 0.75), fields.get("k", 1.0)
    return values.response_norm(x, fields.whole("size", 5), alpha, beta, bias)


def _smooth(fields: ModuleFields, x: Numbers) -> Any:
    for axis in (2, 3):
        factor = fields.whole("scale_factor", 1)
        x = resize(x, axis, x.shape[axis] * factor, factor, Rule("linear", "align_corners"))
    return x


def _narrowed(fields: ModuleFields, x: Numbers) -> Any:
    start = fields.whole("index", 1) - 1
    axis = _axis(fields, x)
    return np.take(x, np.arange(start, start + fields.whole("length", 1)), axis)


def _softplus(fields: ModuleFields, x: Numbers) -> Any:
    beta = fields.get("beta", 1.0)
    return np.logaddexp(beta * x, 0) / beta


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda fields, x: function(x, _axis(fields, x), keepdims=not fields.get("squeeze", True))


def _merged(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda fields, *several: reduce(function, several)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda fields, x: function(x)


_ROWS: Mapping[str, Callable[..., Any]] = by_name(
    {
        "CAddTable": _merged(np.add),
        "CSubTable": _merged(np.subtract),
        "CMulTable": _merged(np.multiply),
        "CDivTable": _merged(np.divide),
        "CMaxTable": _merged(np.maximum),
        "CMinTable": _merged(np.minimum),
        "SpatialConvolution SpatialConvolutionMM SpatialDilatedConvolution": _conv,
        "SpatialBatchNormalization BatchNormalization": _normed,
        "Concat JoinTable": lambda fields, *several: np.concatenate(several, _axis(fields, several[0])),
        "View Reshape": _seen,
        "SoftMax SpatialSoftMax": _each(lambda x: values.softmax(x, 1)),
        "Dropout SpatialDropout": lambda fields, x: x * (1 - fields.get("p", 0.5)),
        "InstanceNormalization": lambda fields, x, weight, bias: values.group_norm(
            x, x.shape[1], weight, bias, fields.get("eps", 1e-5)
        ),
        "ShaveImage": lambda fields, x: pad(
            x, [(0, 0), (0, 0), *[(-fields.whole("size", 0), -fields.whole("size", 0))] * 2]
        ),
        "SpatialFullConvolution": lambda fields, x, weight, bias=None: windows.conv_transpose(
            x, weight, bias, _grid(fields).with_more(*fields.sides("adj", 0)), fields.whole("groups", 1)
        ),
        "SpatialMaxPooling": lambda fields, x: windows.max_pool(
            x, fields.sides("k", 1), _grid(fields, rounding="ceil" if fields.get("ceil_mode") else "floor")
        ),
        "SpatialAveragePooling": _mean,
        "SpatialAdaptiveMaxPooling": _each(lambda x: x.max((2, 3), keepdims=True)),
        "SpatialAdaptiveAveragePooling": _each(lambda x: x.mean((2, 3), keepdims=True)),
        "Linear": lambda fields, x, weight, bias=None: values.dense(x, weight, bias),
        "DepthConcat": _deep,
        "PReLU": lambda fields, x, weight: values.relu(
            x, slope=values.per_channel(weight, x) if weight.size > 1 else weight.ravel()[0]
        ),
        "ReLU": _each(values.relu),
        "ReLU6": _each(lambda x: values.relu(x, 6.0)),
        "Threshold": lambda fields, x: np.where(x > fields.get("threshold", 1e-6), x, fields.get("val", 0.0)),
        "HardTanh": lambda fields, x: np.clip(x, fields.get("min_val", -1.0), fields.get("max_val", 1.0)),
        "LeakyReLU": lambda fields, x: values.relu(x, slope=fields.get("negval", 0.01)),
        "ELU": lambda fields, x: values.elu(x, fields.get("alpha", 1.0)),
        "SoftPlus": _softplus,
        "SoftSign": _each(lambda x: x / (1 + np.abs(x))),
        "Sigmoid": _each(values.sigmoid),
        "Tanh": _each(np.tanh),
        "Square": _each(np.square),
        "Identity": _each(lambda x: x),
        "LogSoftMax": _each(lambda x: values.log_softmax(x, 1)),
        "MulConstant": lambda fields, x: x * fields.get("constant_scalar", 1.0),
        "AddConstant": lambda fields, x: x + fields.get("constant_scalar", 0.0),
        "SpatialZeroPadding": _around("constant"),
        "SpatialReflectionPadding": _around("reflect"),
        "SpatialReplicationPadding": _around("edge"),
        "Padding": _padded,
        "SpatialCrossMapLRN": _response,
        "SpatialUpSamplingNearest": lambda fields, x: resize_nearest(
            x, (1, 1, *[fields.whole("scale_factor", 1)] * 2)
        ),
        "SpatialUpSamplingBilinear": _smooth,
        "Narrow": _narrowed,
        "Mean": _reduced(np.mean),
        "Max": _reduced(np.max),
    }
)

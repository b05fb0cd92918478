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
from porter.filegraph.kernels.resizing import Rule, resize
from porter.filegraph.kernels.windows import Grid
from porter.filegraph.program import KernelProgram, Row, each
from porter.formats.torch7.calls import INPUT, ModuleFields, steps_of
from porter.formats.torch7.objects import read_objects


def program(definition: bytes) -> KernelProgram:
    """Return a file's module as a program of porter's own engine: a step for each call of a module that
    computes something, and the functions that compute the modules.

    Args:
        definition: the file's content.
    """
    steps = steps_of(read_objects(definition))
    return KernelProgram(INPUT, steps, {op: _row_of_module(row) for op, row in _ROWS.items()})


def _row_of_module(row: Callable[..., Any]) -> Row:
    """Return a row, the function of a step's attributes and inputs, that calls `row` with what the module
    states, its values, and its arrays by their fields' names.
    """

    def run(attributes: Mapping[str, Any], *inputs: Numbers) -> Any:
        """Call the row; the arrays are the last inputs, one for each role."""
        roles = attributes["roles"]
        value_count = len(inputs) - len(roles)
        values, arrays = inputs[:value_count], inputs[value_count:]
        return row(attributes["fields"], *values, **dict(zip(roles, arrays, strict=True)))

    return run


def _grid(fields: ModuleFields, **more: Any) -> Grid:
    """Return the stride, the dilation and the pads of a window."""
    rows, columns = fields.rows_and_columns("pad", fields.integer("padding", 0))
    strides, dilations = fields.rows_and_columns("d", 1), fields.rows_and_columns("dilation", 1)
    return Grid(strides, dilations, (rows, rows, columns, columns), **more)


def _conv(fields: ModuleFields, x: Numbers, weight: Numbers, bias: Numbers | None = None) -> Any:
    """Compute SpatialConvolution; a kernel that is stored as a matrix gets four axes."""
    kernel = weight.reshape(len(weight), -1, *fields.rows_and_columns("k", 1))
    return windows.conv(x, kernel, bias, _grid(fields), fields.integer("groups", 1))


def _average_pool(fields: ModuleFields, x: Numbers) -> Any:
    """Compute SpatialAveragePooling; without `divide`, the sum of each window."""
    count_pads = fields.get("count_include_pad", True) and "EXCLUDE" not in str(fields.get("mode", ""))
    sides = fields.rows_and_columns("k", 1)
    grid = _grid(fields, rounding="ceil" if fields.get("ceil_mode") else "floor")
    mean = windows.average_pool(x, sides, grid, "clipped_window" if count_pads else "real_cells")
    return mean if fields.get("divide", True) else mean * (sides[0] * sides[1])


def _batch_norm(fields: ModuleFields, x: Numbers, running_mean: Numbers, **vectors: Numbers) -> Any:
    """Compute a batch norm. Old files keep one over the deviation, with the epsilon in it."""
    epsilon = fields.get("eps", 1e-5)
    variance = (
        vectors["running_var"] + epsilon if "running_var" in vectors else vectors["running_std"] ** -2.0
    )
    return values.batch_norm(x, running_mean, variance, vectors.get("weight"), vectors.get("bias"))


def _axis(fields: ModuleFields, x: Numbers) -> int:
    """Return the axis of a module, which counts from 1, or from the end below 0. If `nInputDims` is one less
    than the value's axes, it is an axis of one image, and the batch is before it.
    """
    dimension = fields.integer("dimension", 1)
    is_of_image = fields.integer("nInputDims", 0) == x.ndim - 1
    return dimension if dimension < 0 or is_of_image else dimension - 1


def _depth_concat(fields: ModuleFields, *several: Numbers) -> Any:
    """Compute DepthConcat: maps along the channels, with zeros around the smaller ones."""
    rows, columns = (max(x.shape[axis] for x in several) for axis in (2, 3))
    padded = []
    for x in several:
        down, across = rows - x.shape[2], columns - x.shape[3]
        padded.append(
            pad(x, [(0, 0), (0, 0), (down // 2, down - down // 2), (across // 2, across - across // 2)])
        )
    return np.concatenate(padded, 1)


def _view(fields: ModuleFields, x: Numbers) -> Any:
    """Compute View and Reshape. The sizes are of one image; with a -1 before others, and without
    `numInputDims`, they are of the batch.
    """
    sizes = fields.sizes()
    has_batch = sizes[0] == -1 and len(sizes) > 1 and not fields.integer("numInputDims", 0)
    return x.reshape(sizes if has_batch else (len(x), *sizes))


def _row_of_padding(mode: str) -> Callable[..., Any]:
    """Return the function of a padding of rows and columns by one of numpy's modes."""

    def run(fields: ModuleFields, x: Numbers) -> Any:
        top, bottom, left, right = (fields.integer(f"pad_{side}", 0) for side in ("t", "b", "l", "r"))
        return pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], mode)

    return run


def _padding(fields: ModuleFields, x: Numbers) -> Any:
    """Compute Padding: cells before an axis, if the number is below zero, or after it."""
    cells = fields.integer("pad", 0)
    # Counted from 1, and without the batch if `nInputDim` is less than the value's axes.
    dimension = fields.integer("dim", 1)
    is_of_image = 0 < fields.integer("nInputDim", 0) < x.ndim
    padded_axis = dimension if is_of_image else dimension - 1
    pads = [(max(-cells, 0), max(cells, 0)) if axis == padded_axis else (0, 0) for axis in range(x.ndim)]
    return pad(x, pads, value=fields.get("value", 0.0))


def _response_norm(fields: ModuleFields, x: Numbers) -> Any:
    """Compute SpatialCrossMapLRN, across channels."""
    alpha, beta, bias = fields.get("alpha", 1e-4), fields.get("beta", 0.75), fields.get("k", 1.0)
    return values.response_norm(x, fields.integer("size", 5), alpha, beta, bias)


def _bilinear_upsampling(fields: ModuleFields, x: Numbers) -> Any:
    """Compute an upsampling that keeps the corners in place."""
    for axis in (2, 3):
        factor = fields.integer("scale_factor", 1)
        x = resize(x, axis, x.shape[axis] * factor, factor, Rule("linear", "align_corners"))
    return x


def _narrow(fields: ModuleFields, x: Numbers) -> Any:
    """Compute Narrow: so many cells of an axis, from `index` on, which counts from 1."""
    start = fields.integer("index", 1) - 1
    axis = _axis(fields, x)
    return np.take(x, np.arange(start, start + fields.integer("length", 1)), axis)


def _softplus(fields: ModuleFields, x: Numbers) -> Any:
    """Compute SoftPlus: log(1 + exp(beta * x)) / beta."""
    beta = fields.get("beta", 1.0)
    return np.logaddexp(beta * x, 0) / beta


def _row_of_reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the row of a reduction over one axis."""
    return lambda fields, x: function(x, _axis(fields, x), keepdims=not fields.get("squeeze", True))


def _row_of_merge(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the row of a function of two values, applied to any number of them."""
    return lambda fields, *several: reduce(function, several)


_ROWS: Mapping[str, Callable[..., Any]] = by_name(
    {
        "CAddTable": _row_of_merge(np.add),
        "CSubTable": _row_of_merge(np.subtract),
        "CMulTable": _row_of_merge(np.multiply),
        "CDivTable": _row_of_merge(np.divide),
        "CMaxTable": _row_of_merge(np.maximum),
        "CMinTable": _row_of_merge(np.minimum),
        "SpatialConvolution SpatialConvolutionMM SpatialDilatedConvolution": _conv,
        "SpatialBatchNormalization BatchNormalization": _batch_norm,
        "Concat JoinTable": lambda fields, *several: np.concatenate(several, _axis(fields, several[0])),
        "View Reshape": _view,
        "SoftMax SpatialSoftMax": each(lambda x: values.softmax(x, 1)),
        "Dropout SpatialDropout": lambda fields, x: x * (1 - fields.get("p", 0.5)),
        "InstanceNormalization": lambda fields, x, weight, bias: values.group_norm(
            x, x.shape[1], weight, bias, fields.get("eps", 1e-5)
        ),
        "ShaveImage": lambda fields, x: pad(
            x, [(0, 0), (0, 0), *[(-fields.integer("size", 0), -fields.integer("size", 0))] * 2]
        ),
        "SpatialFullConvolution": lambda fields, x, weight, bias=None: windows.conv_transpose(
            x,
            weight,
            bias,
            _grid(fields).with_more(*fields.rows_and_columns("adj", 0)),
            fields.integer("groups", 1),
        ),
        "SpatialMaxPooling": lambda fields, x: windows.max_pool(
            x,
            fields.rows_and_columns("k", 1),
            _grid(fields, rounding="ceil" if fields.get("ceil_mode") else "floor"),
        ),
        "SpatialAveragePooling": _average_pool,
        "SpatialAdaptiveMaxPooling": each(lambda x: x.max((2, 3), keepdims=True)),
        "SpatialAdaptiveAveragePooling": each(lambda x: x.mean((2, 3), keepdims=True)),
        "Linear": lambda fields, x, weight, bias=None: values.dense(x, weight, bias),
        "DepthConcat": _depth_concat,
        "PReLU": lambda fields, x, weight: values.relu(
            x, slope=values.per_channel(weight, x) if weight.size > 1 else weight.ravel()[0]
        ),
        "ReLU": each(values.relu),
        "ReLU6": each(lambda x: values.relu(x, 6.0)),
        "Threshold": lambda fields, x: np.where(x > fields.get("threshold", 1e-6), x, fields.get("val", 0.0)),
        "HardTanh": lambda fields, x: np.clip(x, fields.get("min_val", -1.0), fields.get("max_val", 1.0)),
        "LeakyReLU": lambda fields, x: values.relu(x, slope=fields.get("negval", 0.01)),
        "ELU": lambda fields, x: values.elu(x, fields.get("alpha", 1.0)),
        "SoftPlus": _softplus,
        "SoftSign": each(lambda x: x / (1 + np.abs(x))),
        "Sigmoid": each(values.sigmoid),
        "Tanh": each(np.tanh),
        "Square": each(np.square),
        "Identity": each(lambda x: x),
        "LogSoftMax": each(lambda x: values.log_softmax(x, 1)),
        "MulConstant": lambda fields, x: x * fields.get("constant_scalar", 1.0),
        "AddConstant": lambda fields, x: x + fields.get("constant_scalar", 0.0),
        "SpatialZeroPadding": _row_of_padding("constant"),
        "SpatialReflectionPadding": _row_of_padding("reflect"),
        "SpatialReplicationPadding": _row_of_padding("edge"),
        "Padding": _padding,
        "SpatialCrossMapLRN": _response_norm,
        "SpatialUpSamplingNearest": lambda fields, x: resize_nearest(
            x, (1, 1, *[fields.integer("scale_factor", 1)] * 2)
        ),
        "SpatialUpSamplingBilinear": _bilinear_upsampling,
        "Narrow": _narrow,
        "Mean": _row_of_reduction(np.mean),
        "Max": _row_of_reduction(np.max),
    }
)

"""The modules of Torch7's nn in porter's terms, by their classes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layers import pool, prelu, symmetric_pads
from porter.filegraph.readers import Functions, node_reader, op_reader
from porter.filegraph.tensors.functions import softplus
from porter.filegraph.tensors.several import concat, merge_all
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Reader
from porter.formats.torch7.network import Torch7Layer
from porter.graph import Op, ops
from porter.padding import Convention, Pads, Rounding, Window

CONVOLUTIONS = ("SpatialConvolution", "SpatialConvolutionMM", "SpatialDilatedConvolution")


def _stored_tensors(layer: Torch7Layer, x: Tensor, axes: str) -> dict[str, Stored]:
    """Return the kernel, the stored one or the one that was computed from it, and the bias of a layer by
    role.

    Args:
        axes: the order of the kernel's axes.
    """
    computed = f"{layer.name}:kernel"
    kernel = layer.tensors["weight"] if x.walk.flow.constants.declared(computed) is None else computed
    bias = {"bias": Stored(layer.tensors["bias"])} if "bias" in layer.tensors else {}
    return {"kernel": Stored(kernel, axes), **bias}


def _window(layer: Torch7Layer) -> tuple[Window, Pads]:
    """Return the window and the pads of a convolution or a pool."""
    window = Window(
        layer.pair("kH", "kW", 1), layer.pair("dH", "dW", 1), layer.pair("dilationH", "dilationW", 1)
    )
    return window, symmetric_pads(layer.pair("padH", "padW", layer.count("padding", 0)))


def _read_conv(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read a convolution, by groups if it states them."""
    window, pads = _window(layer)
    op = ops.Conv(layer.count("nOutputPlane", 0), window, Convention.stated(pads), layer.count("groups", 1))
    return x.conv(op, _stored_tensors(layer, x, "OIHW"))


def _read_full_convolution(layer: Torch7Layer, x: Tensor, *further: Tensor) -> Tensor:
    """Read SpatialFullConvolution, which is a transposed convolution. One that goes to the size of another
    value is Unsupported.
    """
    window, (top, bottom, left, right) = _window(layer)
    if further:
        raise Unsupported("to the size of another value")
    down, across = layer.pair("adjH", "adjW", 0)
    # `adj` adds rows and columns at the end, so less is cut there.
    pads = (top, bottom - down, left, right - across)
    tensors = _stored_tensors(layer, x, "OIHW")
    groups = layer.count("groups", 1)
    op = ops.ConvTranspose(layer.count("nOutputPlane", 0), window, pads, groups, "bias" in tensors)
    return x.apply_op(op, **tensors)


def _read_pool(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read a pool. With ceil_mode the last window is left out if it would begin in the last pads
    (THNN/generic/SpatialMaxPooling.c). An average may also be a sum (`divide`), which is the mean times the
    cells.
    """
    window, pads = _window(layer)
    rounding: Rounding = "ceil" if layer.flag("ceil_mode") else "floor"
    if layer.op.endswith("MaxPooling"):
        return pool(x, "max", (window, pads), rounding)
    excludes_pads = layer.fields.get("mode") == "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING"
    count_pads = layer.flag("count_include_pad", True) and not excludes_pads
    mean = pool(x, "mean", (window, pads), rounding, count_pads)
    if layer.flag("divide", True):
        return mean
    if any(pads) or rounding == "ceil":
        raise Unsupported("as a sum of windows that reach over the edge")
    return math.prod(window.kernel) * mean


def _read_adaptive_pool(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read an adaptive pool, which has to give one cell."""
    if layer.pair("H", "W", 1) != (1, 1):
        raise Unsupported("to more than one cell")
    return x.global_pool("max" if "Max" in layer.op else "mean")


def _read_linear(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read Linear, a dense layer of features."""
    units, _ = x.walk.flow.constants.declared(layer.tensors["weight"]) or (0, 0)
    return x.fully_connected(units, _stored_tensors(layer, x, "OI"))


def _read_batch_norm(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read a batch norm with stored statistics. One without would take those of the batch, and is
    Unsupported.
    """
    variance = layer.tensors.get("running_var", f"{layer.name}:variance")
    if "running_mean" not in layer.tensors or x.walk.flow.constants.declared(variance) is None:
        raise Unsupported("with the statistics of the batch")
    roles = {"mean": layer.tensors["running_mean"], "variance": variance, **_trained_tensors(layer)}
    tensors = {role: x.scope.tensor((name, 0)) for role, name in roles.items()}
    return x.batch_norm(layer.number("eps", 1e-5), layer.number("momentum", 0.1), **tensors)


def _trained_tensors(layer: Torch7Layer) -> dict[str, str]:
    """Return the gamma and the beta of a norm, as far as it has them."""
    roles = {"gamma": "weight", "beta": "bias"}
    return {role: layer.tensors[name] for role, name in roles.items() if name in layer.tensors}


def _read_instance_norm(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read the instance norm of fast-neural-style."""
    gamma, beta = (x.scope.tensor((layer.tensors[name], 0)) for name in ("weight", "bias"))
    return x.instance_norm(layer.number("eps", 1e-5), gamma=gamma, beta=beta)


def _read_shave_image(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read the ShaveImage of fast-neural-style: a map without so many rows and columns on each side."""
    cells = layer.count("size", 0)
    return x.pad({2: (-cells, -cells), 3: (-cells, -cells)})


def _axis(layer: Torch7Layer, x: Tensor) -> int:
    """Return the axis of a layer, which counts from 1, or from the end below 0. If `nInputDims` is one less
    than the value's axes, it is an axis of one image, and the batch is before it.
    """
    dimension = layer.count("dimension", 1)
    if dimension <= 0:
        return dimension
    is_of_image = layer.count("nInputDims", 0) == x.rank - 1
    return dimension if is_of_image else dimension - 1


def _read_depth_concat(layer: Torch7Layer, *values: Tensor) -> Tensor:
    """Read DepthConcat: maps along the channels. Smaller maps get zeros around them, the odd cell at the end.
    Raise Unsupported for maps of open sizes.
    """
    cells = [
        shape[1:]
        for x in values
        if x.value.is_map and (shape := x.value.shape) is not None and None not in shape
    ]
    if len(cells) < len(values):
        raise Unsupported("of maps of open sizes")
    rows, columns = (max(size[axis] or 0 for size in cells) for axis in (0, 1))
    padded = list[Tensor]()
    for x, size in zip(values, cells, strict=True):
        # How many rows and columns lack.
        down, across = rows - (size[0] or 0), columns - (size[1] or 0)
        padded.append(x.pad_map((down // 2, down - down // 2, across // 2, across - across // 2)))
    return concat(padded, 1)


def _read_view(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read View and Reshape. The sizes are of one image, or with a -1 before others of the batch. The first
    size of the value, the batch, stays in both cases.
    """
    sizes = layer.counts("size")
    sizes_of_value = x.sizes
    if not sizes:
        raise Unsupported("to no sizes")
    has_batch = sizes[0] == -1 and len(sizes) > 1 and not layer.count("numInputDims", 0)
    return x.reshape([sizes_of_value[0], *(sizes[1:] if has_batch else sizes)])


def _pads_by_axis(layer: Torch7Layer) -> dict[int, tuple[int, int]]:
    """Return the pads of rows and of columns, by axis."""
    top, bottom, left, right = (layer.count(f"pad_{side}", 0) for side in "tblr")
    return {2: (top, bottom), 3: (left, right)}


def _read_padding(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read Padding: cells before an axis, if the number is below zero, or after it."""
    cells, rank = layer.count("pad", 0), layer.count("nInputDim", 0)
    if layer.count("index", 1) != 1:
        raise Unsupported("within an axis")
    # Counted from 1, and without the batch if `nInputDim` is less than the value's axes.
    dimension = layer.count("dim", 1)
    is_of_image = 0 < rank < x.rank
    axis = dimension if is_of_image else dimension - 1
    return x.pad({axis: (max(-cells, 0), max(cells, 0))}, layer.number("value", 0.0))


def _read_threshold(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read Threshold as a lower bound; one that puts another number than its bound is Unsupported."""
    bound = layer.number("threshold", 1e-6)
    if bound != layer.number("val", 0.0):
        raise Unsupported("to another number")
    return x.clip(bound, math.inf)


def _read_lrn(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read a response norm across channels, whose alpha is divided by their number."""
    size = layer.count("size", 5)
    alpha = layer.number("alpha", 1e-4)
    return x.apply_op(
        ops.LocalResponseNorm(size, alpha / size, layer.number("beta", 0.75), layer.number("k", 1.0))
    )


def _read_bilinear_upsampling(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read an upsampling that keeps the corners in place (THNN/generic/SpatialUpSamplingBilinear.c)."""
    factor = layer.count("scale_factor", 0)
    if factor < 1:
        raise Unsupported("to a stated size")
    sizes = {axis: x.sizes[axis] * factor for axis in (2, 3)}
    return x.resize(ops.Resize("linear", coordinates="align_corners"), {}, sizes)


def _read_softplus(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read SoftPlus: log(1 + exp(beta * x)) / beta."""
    beta = layer.number("beta", 1.0)
    return softplus(x) if beta == 1 else softplus(beta * x) / beta


def _read_narrow(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read Narrow: so many cells of an axis, from `index` on, which counts from 1."""
    start = layer.count("index", 1) - 1
    return x.cut({_axis(layer, x): slice(start, start + layer.count("length", 1))})


def _read_reduce(layer: Torch7Layer, x: Tensor) -> Tensor:
    """Read Mean or Max over one axis, which goes unless `squeeze` is false."""
    function: ops.Function = "mean" if layer.op == "Mean" else "max"
    return x.reduce(function, [_axis(layer, x)], not layer.flag("squeeze", True))


_KINDS = {
    "CAddTable": "Add",
    "CSubTable": "Sub",
    "CMulTable": "Mul",
    "CDivTable": "Div",
    "CMaxTable": "Max",
    "CMinTable": "Min",
}
_FUNCTIONS: Functions = by_name(
    {
        **dict.fromkeys(_KINDS, lambda layer, *values: merge_all(_KINDS[layer.op], values)),
        **dict.fromkeys(CONVOLUTIONS, _read_conv),
        "SpatialMaxPooling SpatialAveragePooling": _read_pool,
        "SpatialAdaptiveMaxPooling SpatialAdaptiveAveragePooling": _read_adaptive_pool,
        "SpatialBatchNormalization BatchNormalization": _read_batch_norm,
        "Concat JoinTable": lambda layer, *values: concat(values, _axis(layer, values[0])),
        "View Reshape": _read_view,
        "SoftMax SpatialSoftMax": lambda layer, x: x.softmax(1),
        "Mean Max": _read_reduce,
        # Of the first kind, which does not scale what it keeps in training.
        "Dropout SpatialDropout": lambda layer, x: (1 - layer.number("p", 0.5)) * x,
        "LogSoftMax": lambda layer, x: x.softmax(1, op=ops.LogSoftmax()),
        "InstanceNormalization": _read_instance_norm,
        "ShaveImage": _read_shave_image,
        "SpatialFullConvolution": _read_full_convolution,
        "Linear": _read_linear,
        "DepthConcat": _read_depth_concat,
        "PReLU": lambda layer, x: prelu(x, layer.tensors["weight"]),
        "Threshold": _read_threshold,
        "HardTanh": lambda layer, x: x.clip(layer.number("min_val", -1.0), layer.number("max_val", 1.0)),
        "LeakyReLU": lambda layer, x: x.apply_elementwise(ops.LeakyRelu(layer.number("negval", 0.01))),
        "ELU": lambda layer, x: x.apply_elementwise(ops.Elu(layer.number("alpha", 1.0))),
        "SoftPlus": _read_softplus,
        "Square": lambda layer, x: x * x,
        "MulConstant": lambda layer, x: layer.number("constant_scalar", 1.0) * x,
        "AddConstant": lambda layer, x: x + layer.number("constant_scalar", 0.0),
        "SpatialZeroPadding": lambda layer, x: x.pad(_pads_by_axis(layer)),
        "SpatialReflectionPadding": lambda layer, x: x.extend(_pads_by_axis(layer), "reflect"),
        "SpatialReplicationPadding": lambda layer, x: x.extend(_pads_by_axis(layer), "edge"),
        "Padding": _read_padding,
        "SpatialCrossMapLRN": _read_lrn,
        "SpatialUpSamplingNearest": lambda layer, x: x.apply_op(
            ops.Upsample(layer.count("scale_factor", 1), layer.count("scale_factor", 1))
        ),
        "SpatialUpSamplingBilinear": _read_bilinear_upsampling,
        "Narrow": _read_narrow,
    }
)
_PLAIN: Mapping[str, Op] = {
    "ReLU": ops.Relu(),
    "ReLU6": ops.Relu6(),
    "Sigmoid": ops.Sigmoid(),
    "SoftSign": ops.Softsign(),
    "Tanh": ops.Tanh(),
}
READERS: Mapping[str, Reader[Torch7Layer]] = {
    **{name: node_reader(function) for name, function in _FUNCTIONS.items()},
    **{name: op_reader(op) for name, op in _PLAIN.items()},
}

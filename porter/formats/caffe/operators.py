"""Reads what Caffe's layers compute, as porter's ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layers import pool, prelu, symmetric_pads
from porter.filegraph.layouts.dims import fixed_sizes
from porter.filegraph.readers import Functions, node_reader, op_reader, refuse_unread_settings
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.several import concat, merge_all
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Reader
from porter.formats.caffe.net import CONVOLUTIONS, CaffeLayer
from porter.formats.caffe.text_format import TextMessage
from porter.graph import Op, ops
from porter.padding import Convention, Pads, Rounding, Window

_IGNORED_PARAMETERS = frozenset(
    {"weight_filler", "bias_filler", "filler", "engine", "num_output", "channel_shared"}
)
"""Parameters that a reader need not look at: of training, of how Caffe computes, and those that a layer's
blobs state too.
"""
_MOST_ONES = 1 << 24
"""The most ones of a convolution that makes channels of the cells around each cell: it takes 8 bytes for each
one and each zero.
"""
# Values of enumerations, by their names and by their numbers in caffe.proto: a net states either.
_POOLS: Mapping[str, ops.Function] = by_name({"MAX 0": "max", "AVE 1": "mean"})
_ROUNDINGS: Mapping[str, Rounding] = by_name({"CEIL 0": "ceil", "FLOOR 1": "floor"})
_OPERATIONS = by_name({"PROD 0": "Mul", "SUM 1": "Add", "MAX 2": "Max"})
_NORM_REGIONS = by_name({"ACROSS_CHANNELS 0": "across", "WITHIN_CHANNEL 1": "within"})
_T = TypeVar("_T")


def _unread_parameters(layer: CaffeLayer) -> list[str]:
    """Return the parameters of a layer that its reader did not look at."""
    return [name for name in layer.parameters.fields.passed_over if name not in _IGNORED_PARAMETERS]


def _chosen(parameters: TextMessage, name: str, choices: Mapping[str, _T], default: str) -> _T:
    """Return what an enumeration's value means. Raise Unsupported for one that Caffe does not have."""
    word = parameters.word(name, default)
    if word not in choices:
        raise Unsupported(f"of kind {word}")
    return choices[word]


def _window(parameters: TextMessage) -> tuple[Window, Pads]:
    """Return the window and the pads of a convolution or a pool."""
    window = Window(
        parameters.pair("kernel_size", 0), parameters.pair("stride", 1), parameters.pair("dilation", 1)
    )
    return window, symmetric_pads(parameters.pair("pad", 0))


def _stored_tensors(layer: CaffeLayer, axes: str) -> dict[str, Stored]:
    """Return the kernel and, if there is one, the bias of a layer by role.

    Args:
        axes: the order of the kernel's axes.
    """
    kernel, *bias = layer.blobs
    tensors = {"kernel": Stored(kernel, axes)}
    if bias:
        tensors["bias"] = Stored(bias[0])
    return tensors


def _read_conv(layer: CaffeLayer, x: Tensor, kernel: Tensor, *bias: Tensor) -> Tensor:
    """Read a convolution by groups, or one by channels (a depthwise layer of a fork)."""
    if layer.parameters.count("axis", 1) != 1:
        raise Unsupported("over another axis than the channels'")
    filters, *_ = fixed_sizes(kernel.sizes)
    parameters = layer.parameters
    window, pads = _window(parameters)
    groups = parameters.count("group", 1) if layer.op == "Convolution" else filters
    return x.conv(ops.Conv(filters, window, Convention.stated(pads), groups), _stored_tensors(layer, "OIHW"))


def _read_deconv(layer: CaffeLayer, x: Tensor, kernel: Tensor, *bias: Tensor) -> Tensor:
    """Read a transposed convolution by groups, whose kernel is channels×filters/groups×rows×columns."""
    _, width, *_ = fixed_sizes(kernel.sizes)
    groups = layer.parameters.count("group", 1)
    op = ops.ConvTranspose(groups * width, *_window(layer.parameters), groups, bool(bias))
    return x.apply_op(op, **_stored_tensors(layer, "OIHW"))


def _read_pool(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read a pool. Caffe rounds up, unless the net says otherwise: by `round_mode`, or by the `ceil_mode` of
    forks, which OpenCV reads too. A last window that would begin in the last pads is left out
    (pooling_layer.cpp), but one that would begin after a map without pads is not.
    """
    parameters = layer.parameters
    function = _chosen(parameters, "pool", _POOLS, "MAX")
    if parameters.flag("global_pooling", False):
        return x.global_pool(function)
    window, pads = _window(parameters)
    if not any(pads) and any(side < step for side, step in zip(window.kernel, window.stride, strict=True)):
        raise Unsupported("whose windows stand further apart than they are large")
    by_mode = _chosen(parameters, "round_mode", _ROUNDINGS, "CEIL")
    return pool(x, function, (window, pads), by_mode if parameters.flag("ceil_mode", True) else "floor")


def _read_inner_product(layer: CaffeLayer, x: Tensor, *tensors: Tensor) -> Tensor:
    """Read InnerProduct, a dense layer over all numbers of an image. From another axis on it is
    Unsupported.
    """
    parameters = layer.parameters
    if parameters.count("axis", 1) != 1:
        raise Unsupported("over another axis than the channels'")
    stored = _stored_tensors(layer, "IO" if parameters.flag("transpose", False) else "OI")
    return x.flatten(1).fully_connected(parameters.count("num_output", 0), stored)


def _read_batch_norm(layer: CaffeLayer, x: Tensor, *tensors: Tensor) -> Tensor:
    """Read a batch norm with stored statistics. A Scale that was joined with it gives its gamma and beta."""
    parameters = layer.parameters
    if not parameters.flag("use_global_stats", True):
        raise Unsupported("with the statistics of the batch")
    roles = dict(zip(("mean", "variance", "gamma", "beta"), tensors, strict=False))
    momentum = round(1 - parameters.number("moving_average_fraction", 0.999), 9)
    return x.batch_norm(parameters.number("eps", 1e-5), momentum, **roles)


def _read_scale(layer: CaffeLayer, x: Tensor, *tensors: Tensor) -> Tensor | Value:
    """Read a product with trained numbers, or with another value. Raise Unsupported for numbers along other
    axes, and for a bias that cannot be joined with the scale.
    """
    parameters, builder = layer.parameters, x.walk.builder
    # Two values: the second one is the factors, for each image (axis 0) or for each of its channels (axis 1).
    if layer.values == 2 and not layer.blobs and parameters.count("axis", 1) in (0, 1):
        (factors,) = tensors
        are_features = not factors.value.is_map and not factors.value.is_array
        begin_at_batch = not parameters.count("axis", 1)
        if not x.value.is_map or not are_features or not begin_at_batch:
            return x * factors
        # One factor for each channel, spread over the cells of a map.
        as_map = builder.add(f"{layer.name}:factors", ops.AsMap(), factors.value)
        return builder.add(layer.name, ops.Multiply(), x.value, as_map)
    if layer.values != 1 or parameters.count("axis", 1) != 1 or parameters.count("num_axes", 1) != 1:
        raise Unsupported("over other axes than the channels'")
    gamma, *beta = layer.blobs
    name = f"{layer.name}:scale" if beta else layer.name
    scaled = builder.scale(name, x.value, Stored(gamma))
    with_bias = builder.bias(layer.name, scaled, Stored(beta[0])) if beta else scaled
    if with_bias is None:
        raise Unsupported("with a bias behind something else than a scale")
    return with_bias


def _read_bias(layer: CaffeLayer, x: Tensor, other: Tensor) -> Tensor | Value:
    """Read a Bias: the sum of two values, or of a value and a trained number for each channel. The latter is
    a bias of the layer before it where there is one to join, and otherwise a sum with a constant.
    """
    # Two values, and nothing that is trained: a plain sum.
    if layer.values == 2:
        return x + other
    if layer.parameters.count("axis", 1) != 1 or layer.parameters.count("num_axes", 1) != 1:
        raise Unsupported("over other axes than the channels'")
    biased = x.walk.builder.bias(layer.name, x.value, Stored(layer.blobs[0]))
    # `bias` gives None where nothing before it can take a bias.
    return biased or x + _by_channel(x, other)


def _by_channel(x: Tensor, stored: Tensor) -> Tensor:
    """Return a stored number for each channel of a value, or one for all, as a tensor that broadcasts against
    the value: C numbers are C×1×1 for a map N×C×H×W.
    """
    axes_behind = [1] * (x.rank - 2)
    return x.scope.constant(stored.numbers().reshape(-1, *axes_behind))


def _read_mvn(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read MVN, over the cells of each channel or over all axes (mvn_layer.cpp)."""
    parameters = layer.parameters
    axes = (1, 2, 3) if parameters.flag("across_channels", False) else (2, 3)
    if not parameters.flag("normalize_variance", True):
        return x - x.mean(axes, True)
    return functions.divide_by_deviation(x, axes, parameters.number("eps", 1e-9))


def _read_normalize(layer: CaffeLayer, x: Tensor, scale: Tensor) -> Tensor:
    """Read SSD's Normalize: a value over its norm along the channels, or along all axes, times a number for
    each channel or one for all (normalize_layer.cpp in github.com/weiliu89/caffe).
    """
    axes = (1, 2, 3) if layer.parameters.flag("across_spatial", True) else (1,)
    normed = functions.divide_by_root_of_squares(x, axes, layer.parameters.number("eps", 1e-10))
    if layer.parameters.flag("channel_shared", True):
        return normed * _by_channel(x, scale)
    return normed.apply_op(ops.ChannelScale(), gamma=Stored(layer.blobs[0]))


def _read_permute(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read the Permute of SSD. Axes that it does not name come last."""
    order = layer.parameters.counts("order")
    return x.transpose([*order, *(axis for axis in range(x.rank) if axis not in order)])


def _read_eltwise(layer: CaffeLayer, *values: Tensor) -> Tensor:
    """Read a sum with coefficients, a product or a maximum of values."""
    parameters = layer.parameters
    kind = _chosen(parameters, "operation", _OPERATIONS, "SUM")
    factors = [float(word) for word in parameters.words("coeff")] if kind == "Add" else []
    # True also where there are none: products, maxima and plain sums.
    if all(factor == 1 for factor in factors):
        return merge_all(kind, values)
    if len(factors) != len(values):
        raise Unsupported("with another number of coefficients than of values")
    return merge_all(kind, [factor * value for factor, value in zip(factors, values, strict=True)])


def _affine(x: Tensor, scale: float, shift: float) -> Tensor:
    """Return scale * x + shift; x itself if that changes nothing."""
    return x if (scale, shift) == (1, 0) else x.apply_elementwise(ops.Affine((scale,), (shift,)))


def _read_power(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read Power: (shift + scale * x) ** power."""
    power, scale, shift = (
        layer.parameters.number(name, default)
        for name, default in (("power", 1.0), ("scale", 1.0), ("shift", 0.0))
    )
    line = _affine(x, scale, shift)
    # porter's power takes other exponents; this one is a quotient.
    if power == -1:
        return functions.ones(x) / line
    return line if power == 1 else line.apply_elementwise(ops.Power(power))


def _read_lrn(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read a response norm across channels, or within each of them."""
    parameters = layer.parameters
    size = parameters.count("local_size", 5)
    alpha = parameters.number("alpha", 1.0)
    beta = parameters.number("beta", 0.75)
    if _chosen(parameters, "norm_region", _NORM_REGIONS, "ACROSS_CHANNELS") == "across":
        # Caffe divides alpha by the cells that are summed, porter's op does not.
        return x.apply_op(ops.LocalResponseNorm(size, alpha / size, beta, parameters.number("k", 1.0)))
    return _lrn_within_channels(x, size, ops.LocalResponseNorm(size**2, alpha / size**2, beta, 1.0))


def _lrn_within_channels(x: Tensor, size: int, op: ops.LocalResponseNorm) -> Tensor:
    """Return a response norm over the cells around each cell. A convolution of single ones makes channels of
    these cells; the middle channel is the cell itself. Caffe does not read its `k` (lrn_layer.cpp).
    """
    channels = x.value.channels
    cells = size**2
    if size % 2 == 0 or not channels or not x.value.is_map:
        raise Unsupported("within channels of this shape")
    if channels * cells**2 > _MOST_ONES:
        raise Unsupported(f"within {channels} channels over {size}x{size} cells")
    kernel = np.tile(np.eye(cells).reshape(cells, 1, size, size), (channels, 1, 1, 1))
    ones = x.walk.flow.store_computed(f"{x.scope.node.name}:cells", kernel)
    conv = ops.Conv(channels * cells, Window((size, size)), Convention.stated((size // 2,) * 4), channels)
    around = x.conv(conv, {"kernel": Stored(ones.name, "OIHW")})
    return around.apply_op(op).apply_op(ops.SliceChannels(cells // 2, channels * cells, cells))


def _axis(layer: CaffeLayer, older: str) -> int:
    """Return the axis of a layer, which older nets state under another name."""
    return layer.parameters.count("axis", layer.parameters.count(older, 1))


def _read_slice(layer: CaffeLayer, x: Tensor) -> list[Tensor]:
    """Read Slice: the parts of an axis, cut at stated points, or as many equal ones as the layer gives."""
    axis = _axis(layer, "slice_dim")
    points = layer.parameters.counts("slice_point")
    (size,) = fixed_sizes([x.size(axis)])
    # Where each part ends: points 2 and 5 of 9 cells give parts of 2, 3 and 4.
    ends = [*points, size] if points else [size // layer.gives * (part + 1) for part in range(layer.gives)]
    return x.split(axis, [end - start for start, end in zip([0, *ends], ends, strict=False)])


def _read_crop(layer: CaffeLayer, x: Tensor, like: Tensor) -> Tensor:
    """Read Crop: a value cut to the size of another from an axis on, at offsets."""
    sizes, target_sizes = x.sizes, like.sizes
    axis = layer.parameters.count("axis", 2)
    offsets = layer.parameters.counts("offset")
    if len(sizes) != len(target_sizes):
        raise Unsupported(f"of {len(sizes)} axes by a value of {len(target_sizes)}")
    axes = range(axis % len(sizes), len(sizes))
    if len(offsets) != len(axes):  # one offset is for all axes
        offsets = (offsets or [0])[:1] * len(axes)
    starts = dict(zip(axes, offsets, strict=True))
    if any(start + target_sizes[index] > sizes[index] for index, start in starts.items()):
        raise Unsupported("beyond the map")
    return x.cut({index: slice(start, start + target_sizes[index]) for index, start in starts.items()})


def _read_reshape(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read Reshape, in which 0 keeps a size."""
    sizes = x.sizes
    target_sizes = layer.parameters.part("shape").counts("dim")
    if layer.parameters.count("axis", 0) or layer.parameters.count("num_axes", -1) != -1:
        raise Unsupported("of a part of the axes")
    return x.reshape([size or sizes[index] for index, size in enumerate(target_sizes)])


def _read_relu(layer: CaffeLayer, x: Tensor) -> Tensor:
    slope = layer.parameters.number("negative_slope", 0.0)
    return x.apply_elementwise(ops.LeakyRelu(slope) if slope else ops.Relu())


def _read_exp(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read Exp: base ** (scale * x + shift). A base of -1 is e (caffe/src/caffe/layers/exp_layer.cpp)."""
    base, scale, shift = _base_scale_shift(layer)
    # base ** y is exp(log(base) * y).
    factor = 1.0 if base == -1 else math.log(base)
    return functions.exp(_affine(x, factor * scale, factor * shift))


def _read_log(layer: CaffeLayer, x: Tensor) -> Tensor:
    """Read Log: log(scale * x + shift) to a base, which is stated as Exp's."""
    base, scale, shift = _base_scale_shift(layer)
    factor = 1.0 if base == -1 else 1 / math.log(base)
    return factor * functions.log(_affine(x, scale, shift))


def _base_scale_shift(layer: CaffeLayer) -> tuple[float, float, float]:
    """Return the base, scale and shift of an Exp or a Log."""
    base, scale, shift = (
        layer.parameters.number(name, usual)
        for name, usual in (("base", -1.0), ("scale", 1.0), ("shift", 0.0))
    )
    if base != -1 and (base <= 0 or base == 1):
        raise ValueError(f"a base of {base:g}")
    return base, scale, shift


_FUNCTIONS: Functions = {
    **dict.fromkeys(CONVOLUTIONS, _read_conv),
    "Deconvolution": _read_deconv,
    "Pooling": _read_pool,
    "InnerProduct": _read_inner_product,
    "BatchNorm": _read_batch_norm,
    "Scale": _read_scale,
    "Bias": _read_bias,
    "Eltwise": _read_eltwise,
    "Power": _read_power,
    "LRN": _read_lrn,
    "PReLU": lambda layer, x, alpha: prelu(x, layer.blobs[0]),
    "Concat": lambda layer, *values: concat(values, _axis(layer, "concat_dim")),
    "Slice": _read_slice,
    "Crop": _read_crop,
    "Flatten": lambda layer, x: x.flatten(
        layer.parameters.count("axis", 1), layer.parameters.count("end_axis", -1)
    ),
    "Reshape": _read_reshape,
    "Clip": lambda layer, x: x.clip(
        layer.parameters.number("min", -math.inf), layer.parameters.number("max", math.inf)
    ),
    "ReLU": _read_relu,
    "ELU": lambda layer, x: x.apply_elementwise(ops.Elu(layer.parameters.number("alpha", 1.0))),
    "Threshold": lambda layer, x: x > layer.parameters.number("threshold", 0.0),
    "Exp": _read_exp,
    "Log": _read_log,
    "MVN": _read_mvn,
    "Normalize": _read_normalize,
    "Permute": _read_permute,
    "Softmax": lambda layer, x: x.softmax(layer.parameters.count("axis", 1)),
}
_PLAIN: Mapping[str, Op] = {
    "AbsVal": ops.Abs(),
    "BNLL": ops.Softplus(),
    "ReLU6": ops.Relu6(),
    "Sigmoid": ops.Sigmoid(),
    "TanH": ops.Tanh(),
}
READERS: Mapping[str, Reader[CaffeLayer]] = refuse_unread_settings(
    {
        **{kind: node_reader(function) for kind, function in _FUNCTIONS.items()},
        **{kind: op_reader(op) for kind, op in _PLAIN.items()},
    },
    _unread_parameters,
)

"""Reads what MXNet's operators compute, as porter's ops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layers import pool, prelu, symmetric_pads
from porter.filegraph.layouts.dims import Dim, fixed_sizes, product
from porter.filegraph.places import position_of
from porter.filegraph.readers import Functions, node_reader, op_reader, refuse_unread_settings, tensor_reader
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, maximum, merge_all, minimum
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Reader
from porter.formats.mxnet.plain import OPS_OF_NUMBERS
from porter.formats.mxnet.symbol import SymbolNode
from porter.graph import Op, ops
from porter.padding import Convention, Pads, Rounding, Window

_ACTIVATIONS = {
    "relu": ops.Relu(),
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "softrelu": ops.Softplus(cut=True),
    "softsign": ops.Softsign(),
}


def _stored_tensors(node: SymbolNode, axes: str) -> dict[str, Stored]:
    """Return the kernel and the bias of a node by role. Without a word about it, a Deconvolution has no bias.

    Args:
        axes: the order of the kernel's axes.
    """
    kernel, *bias = [name for name, _ in node.inputs[1:]]
    has_no_bias = node.attributes.flag("no_bias", node.op == "Deconvolution")
    tensors = {"kernel": Stored(kernel, axes)}
    if bias and not has_no_bias:
        tensors["bias"] = Stored(bias[0])
    return tensors


def _window(node: SymbolNode) -> tuple[Window, Pads]:
    """Return the window and the pads of a convolution or a pool."""
    settings = node.attributes
    window = Window(settings.pair("kernel", 0), settings.pair("stride", 1), settings.pair("dilate", 1))
    return window, symmetric_pads(settings.pair("pad", 0))


def _read_conv(node: SymbolNode, x: Tensor, *tensors: Tensor) -> Tensor:
    """Read Convolution of maps N×C×H×W; others are Unsupported."""
    window, pads = _window(node)
    layout = node.attributes.word("layout", "None")
    if len(node.attributes.counts("kernel")) != 2 or layout not in ("None", "NCHW"):
        raise Unsupported("of other maps than N×C×H×W")
    filters, groups = node.attributes.count("num_filter", 0), node.attributes.count("num_group", 1)
    return x.conv(ops.Conv(filters, window, Convention.stated(pads), groups), _stored_tensors(node, "OIHW"))


def _read_deconv(node: SymbolNode, x: Tensor, *tensors: Tensor) -> Tensor:
    """Read Deconvolution. `adj` adds rows and columns at the end. A target shape takes the place of it and of
    pads: what is too much is cut off on both sides, an odd cell at the beginning (`InferPad` in
    src/operator/nn/deconvolution-inl.h).
    """
    settings = node.attributes
    window, (top, bottom, left, right) = _window(node)
    if target_shape := settings.counts("target_shape"):
        reach = (
            (size - 1) * stride + window.extent(axis)
            for axis, (size, stride) in enumerate(zip(fixed_sizes(x.sizes[2:]), window.stride, strict=True))
        )
        # How many rows and columns are too much.
        down, across = (whole - size for whole, size in zip(reach, target_shape, strict=True))
        if min(down, across) < 0:
            raise Unsupported("to more cells than its kernels reach")
        # Half of them, rounded up at the beginning, down at the end.
        pads = -(-down // 2), down // 2, -(-across // 2), across // 2
    else:
        rows, columns = settings.pair("adj", 0)
        pads = top, bottom - rows, left, right - columns
    stored = _stored_tensors(node, "OIHW")
    groups = settings.count("num_group", 1)
    op = ops.ConvTranspose(settings.count("num_filter", 0), window, pads, groups, "bias" in stored)
    return x.apply_op(op, **stored)


def _read_pool(node: SymbolNode, x: Tensor) -> Tensor:
    """Read Pooling: the largest number, the mean, the sum, or the root of the sum of squares of each window,
    or of the whole map. `full` rounds up and keeps a last window wherever it begins
    (src/operator/nn/pooling.cc).
    """
    settings = node.attributes
    kind = settings.word("pool_type", "max")
    rounding = settings.word("pooling_convention", "valid")
    if rounding not in ("valid", "full"):
        raise Unsupported(f"by the convention {rounding}")
    if kind == "lp":
        if settings.count("p_value", 2) != 2:
            raise Unsupported("of another order than 2")
        return functions.sqrt(_sum_windows(node, functions.square(x)))
    if kind == "sum":
        return _sum_windows(node, x)
    if kind not in ("max", "avg"):
        raise Unsupported(f"of type {kind}")
    function: ops.Function = "max" if kind == "max" else "mean"
    if settings.flag("global_pool"):
        return x.global_pool(function)
    count_pads = settings.flag("count_include_pad", True)
    return pool(x, function, _window(node), "full" if rounding == "full" else "floor", count_pads)


def _sum_windows(node: SymbolNode, x: Tensor) -> Tensor:
    """Return the sum of each window, in which pads are zeros, or of the whole map: a mean times the cells of
    a window.
    """
    if node.attributes.flag("global_pool"):
        return x.sum((2, 3), True)
    window, pads = _window(node)
    rounding: Rounding = "full" if node.attributes.word("pooling_convention") == "full" else "floor"
    mean = x.pool("mean", window, Convention.stated(pads, 0.0, "full_window", rounding))
    return math.prod(window.kernel) * mean


def _read_adaptive_pool(node: SymbolNode, x: Tensor) -> Tensor:
    """Read an adaptive pool: the mean of windows that lie evenly; without a size, of all cells."""
    counts = node.attributes.pair("output_size", 1)
    return x.adaptive_pool("mean", counts)


def _read_fully_connected(node: SymbolNode, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Read FullyConnected, of all numbers of an image or along the last axis."""
    if not node.attributes.flag("flatten", True):
        bias_reference = None if node.attributes.flag("no_bias") or bias is None else bias.reference
        return x.dense(Product(kernel.reference, "OI", bias_reference))
    return _as_features(x, kernel).fully_connected(
        node.attributes.count("num_hidden", 0), _stored_tensors(node, "OI")
    )


def _as_features(x: Tensor, kernel: Tensor) -> Tensor:
    """Return a map as features. A map of open size that has one cell, which the kernel's columns tell, loses
    its axes; any other is flattened.
    """
    shape = x.value.shape
    columns = kernel.sizes[-1]
    if shape is not None and None in shape[1:] and shape[0] == columns:
        return x.squeeze((2, 3))
    return x.flatten(1)


def _read_batch_norm(
    node: SymbolNode, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Read BatchNorm. With `fix_gamma`, its default, the stored gamma is read as 1
    (src/operator/nn/batch_norm.cc).
    """
    settings = node.attributes
    if settings.count("axis", 1) != 1:
        raise Unsupported("over another axis than the channels'")
    scale = None if settings.flag("fix_gamma", True) else gamma
    epsilon = settings.number("eps", 1e-3)
    momentum = round(1 - settings.number("momentum", 0.9), 9)
    return x.batch_norm(epsilon, momentum, gamma=scale, beta=beta, mean=mean, variance=variance)


def _read_leaky_relu(node: SymbolNode, x: Tensor, *tensors: Tensor) -> Tensor:
    """Read LeakyReLU, whose `act_type` says which activation it is. Raise Unsupported for another than those
    of the table and `prelu`.
    """
    kind = node.attributes.word("act_type", "leaky")
    slope = node.attributes.number("slope", 0.25)
    if kind == "prelu":
        return prelu(x, node.inputs[1][0])
    op_of_kind: Mapping[str, Op] = {
        "leaky": ops.LeakyRelu(slope),
        "elu": ops.Elu(slope),
        "selu": ops.Selu(),
        "gelu": ops.Gelu(),
    }
    if kind not in op_of_kind:
        raise Unsupported(f"of type {kind}")
    return x.apply_elementwise(op_of_kind[kind])


def _read_activation(node: SymbolNode, x: Tensor) -> Tensor:
    """Read Activation: the function that `act_type` names."""
    kind = node.attributes.word("act_type")
    if kind not in _ACTIVATIONS:
        raise Unsupported(f"of type {kind}")
    return x.apply_elementwise(_ACTIVATIONS[kind])


def _reader_with_scalar(
    function: Callable[[Tensor, float], Tensor],
) -> Callable[[SymbolNode, Tensor], Tensor]:
    """Return the reader of a function of a value and of the number that the operator states."""
    return lambda node, x: function(x, node.attributes.number("scalar", 0.0))


def _read_lrn(node: SymbolNode, x: Tensor) -> Tensor:
    """Read LRN across channels; MXNet divides alpha by their number."""
    settings = node.attributes
    size = settings.count("nsize", 0)
    alpha = settings.number("alpha", 1e-4) / size
    beta = settings.number("beta", 0.75)
    return x.apply_op(ops.LocalResponseNorm(size, alpha, beta, settings.number("knorm", 2.0)))


def _read_l2_normalization(node: SymbolNode, x: Tensor) -> Tensor:
    """Read L2Normalization (src/operator/l2_normalization-inl.h). It is over the channels, over the cells, or
    over all numbers of an image.
    """
    axes_of_mode: Mapping[str, Sequence[int]] = {
        "channel": [1],
        "spatial": range(2, x.rank),
        "instance": range(1, x.rank),
    }
    mode = node.attributes.word("mode", "instance")
    if mode not in axes_of_mode:
        raise Unsupported(f"by the mode {mode}")
    return functions.divide_by_root_of_squares(x, axes_of_mode[mode], node.attributes.number("eps", 1e-10))


def _read_split(node: SymbolNode, x: Tensor) -> list[Tensor]:
    """Read SliceChannel, which splits an axis into equal parts."""
    count, axis = node.attributes.count("num_outputs", 1), node.attributes.count("axis", 1)
    return x.split_evenly(axis, count, not node.attributes.flag("squeeze_axis"))


def _read_slice_axis(node: SymbolNode, x: Tensor) -> Tensor:
    """Read slice_axis, a part of one axis."""
    settings = node.attributes
    start = settings.count("begin", 0)
    end = settings.word("end", "None")
    return x.cut({settings.count("axis", 0): slice(start, None if end == "None" else int(end))})


def _read_slice(node: SymbolNode, x: Tensor) -> Tensor:
    """Read slice, a part of each axis."""
    starts, ends, steps = (node.attributes.bounds(name) for name in ("begin", "end", "step"))
    bounds = zip(starts, ends, steps or [None] * len(starts), strict=True)
    return x.cut({axis: slice(*bounds_of_axis) for axis, bounds_of_axis in enumerate(bounds)})


def _read_crop(node: SymbolNode, x: Tensor, like: Tensor | None = None) -> Tensor:
    """Read Crop: rows and columns cut to a stated size, or to that of another map, at an offset or in the
    middle. Raise Unsupported where the part is not within the map.
    """
    settings = node.attributes
    sizes = x.sizes[2:]
    target_sizes = settings.pair("h_w", 0) if like is None else like.sizes[2:]
    starts: Sequence[Dim] = settings.pair("offset", 0)
    if settings.flag("center_crop"):
        excess = fixed_sizes([size - target for size, target in zip(sizes, target_sizes, strict=True)])
        starts = [cells // 2 for cells in excess]
    if any(start + target > size for start, target, size in zip(starts, target_sizes, sizes, strict=True)):
        raise Unsupported("beyond the map")
    cells = zip((2, 3), starts, target_sizes, strict=True)
    return x.cut({axis: slice(start, start + size) for axis, start, size in cells})


def _read_reshape(node: SymbolNode, x: Tensor) -> Tensor:
    """Read Reshape, whose shape has a code for each new axis: 0 keeps a size, -1 is what is left, -2 keeps
    all further sizes, -3 makes one of two, and any other number is a size.
    """
    new_sizes = list[Dim]()
    sizes_left = list(x.sizes)
    for code in node.attributes.counts("shape"):
        if code < -3 or node.attributes.flag("reverse"):
            raise Unsupported(f"to {node.attributes.word('shape')}")
        # How many of the old sizes the code takes.
        count = {-2: len(sizes_left), -3: 2}.get(code, 1)
        sizes, sizes_left = sizes_left[:count], sizes_left[count:]
        if code == -3:
            new_sizes.append(product(sizes))
        elif code in (0, -2):
            new_sizes += sizes
        else:
            new_sizes.append(code)
    return x.reshape(new_sizes)


def _read_reduce(node: SymbolNode, x: Tensor) -> Tensor:
    """Read a mean, a maximum, a minimum or a sum over the stated axes, or over all others."""
    stated = [position_of(axis, x.rank) for axis in node.attributes.counts("axis")]
    others = [axis for axis in range(x.rank) if axis not in stated]
    axes = others if node.attributes.flag("exclude") or not stated else stated
    return x.reduce(_REDUCTIONS[node.op], axes, node.attributes.flag("keepdims"))


def _read_pad(node: SymbolNode, x: Tensor) -> Tensor:
    """Read Pad, with a number, with the map mirrored, or with its edge repeated."""
    widths = node.attributes.counts("pad_width")
    mode = node.attributes.word("mode")
    pairs = dict(enumerate(zip(widths[::2], widths[1::2], strict=True)))
    if mode == "constant":
        return x.pad(pairs, node.attributes.number("constant_value", 0.0))
    if mode not in ("reflect", "edge"):
        raise Unsupported(f"by the mode {mode}")
    return x.extend(pairs, "reflect" if mode == "reflect" else "edge")


def _read_upsampling(node: SymbolNode, x: Tensor, *others: Tensor) -> Tensor:
    """Read an upsampling by the nearest cell, or `bilinear` by a stored kernel of a transposed convolution
    (src/operator/nn/upsampling-inl.h). Raise Unsupported for several maps.
    """
    scale = node.attributes.count("scale", 1)
    kind = node.attributes.word("sample_type")
    if kind == "bilinear":
        channels = node.attributes.count("num_filter", 0)
        side = 2 * scale - scale % 2
        pad = scale // 2
        window = Window((side, side), (scale, scale))
        op = ops.ConvTranspose(channels, window, (pad, pad, pad, pad), channels, False)
        return x.apply_op(op, kernel=Stored(node.inputs[1][0], "OIHW"))
    if kind != "nearest" or others:
        raise Unsupported("that is not the nearest cell of one map")
    return x.apply_op(ops.Upsample(scale, scale))


def _read_bilinear_resize(node: SymbolNode, x: Tensor, like: Tensor | None = None) -> Tensor:
    """Read BilinearResize2D: to the size of another map (`like`), by scales, or to a size; each axis has its
    own scale or size.
    """
    settings = node.attributes
    mode = settings.word("mode", "size")
    if mode not in ("size", "like"):
        raise Unsupported(f"by the mode {mode}")
    op = ops.Resize(
        "linear", coordinates="align_corners" if settings.flag("align_corners", True) else "half_pixel"
    )
    if like is not None:
        return x.resize(op, {}, {2: like.size(2), 3: like.size(3)})
    scales, sizes = dict[int, float](), dict[int, Dim]()
    for axis, name in ((2, "height"), (3, "width")):
        scale = settings.number(f"scale_{name}", 0.0)
        if scale == int(scale) != 0:
            scales[axis] = scale
        # By another scale MXNet rounds the size, and takes the places that follow from it.
        elif scale:
            (size,) = fixed_sizes([x.size(axis)])
            sizes[axis] = int(size * scale)
        else:
            sizes[axis] = settings.count(name, 1)
    return x.resize(op, scales, sizes)


def _read_softmax(node: SymbolNode, x: Tensor, *labels: Tensor) -> Tensor:
    """Read a softmax over a stated axis. Operators that state none take the last axis, the channels, or all
    numbers of an image (src/operator/softmax_output-inl.h, src/operator/nn/softmax_activation-inl.h).
    """
    settings = node.attributes
    # The softmin is the softmax of the negative.
    x = x * ((-1 if node.op == "softmin" else 1) / settings.number("temperature", 1.0))
    if node.op in ("softmax", "log_softmax", "softmin"):
        axis = settings.count("axis", -1)
    elif settings.word("mode") == "channel" or settings.flag("multi_output"):
        axis = 1
    elif node.op == "SoftmaxActivation" or settings.flag("preserve_shape"):
        axis = -1
    elif x.rank == 2:
        axis = 1
    else:
        raise Unsupported("of all numbers of an image")
    return x.softmax(axis, op=ops.LogSoftmax() if node.op == "log_softmax" else ops.Softmax())


def _read_layer_norm(node: SymbolNode, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Read LayerNorm, over one axis."""
    axis = node.attributes.count("axis", -1)
    return x.layer_norm([axis], node.attributes.number("eps", 1e-5), gamma=gamma, beta=beta)


_REDUCTIONS: Mapping[str, Reduction] = {"mean": "mean", "max": "max", "min": "min", "sum": "sum"}
KINDS: Mapping[str, str] = by_name(
    {
        "elemwise_add broadcast_add broadcast_plus _Plus _plus _add": "Add",
        "add_n ElementWiseSum _sum": "Add",
        "elemwise_sub broadcast_sub broadcast_minus _Minus _minus _sub": "Sub",
        "elemwise_mul broadcast_mul _Mul _mul": "Mul",
        "elemwise_div broadcast_div _Div _div": "Div",
        "broadcast_maximum _Maximum _maximum": "Max",
        "broadcast_minimum _Minimum _minimum": "Min",
    }
)
"""MXNet's operators of several values, as porter.filegraph.tensors.arithmetic calls them."""


_FUNCTIONS: Functions = by_name(
    {
        **dict.fromkeys(KINDS, lambda node, *values: merge_all(KINDS[node.op], values)),
        "_plus_scalar _PlusScalar": _reader_with_scalar(operator.add),
        "_minus_scalar _MinusScalar": _reader_with_scalar(operator.sub),
        "_rminus_scalar _RMinusScalar": _reader_with_scalar(lambda x, number: number - x),
        "_mul_scalar _MulScalar": _reader_with_scalar(operator.mul),
        "_div_scalar _DivScalar": _reader_with_scalar(operator.truediv),
        "_power_scalar _PowerScalar": lambda node, x: x ** node.attributes.number("scalar", 1.0),
        "_maximum_scalar _MaximumScalar": _reader_with_scalar(maximum),
        "_minimum_scalar _MinimumScalar": _reader_with_scalar(minimum),
        "_rdiv_scalar _RDivScalar": _reader_with_scalar(lambda x, number: number / x),
        "_greater_scalar": _reader_with_scalar(operator.gt),
        "_greater_equal_scalar": _reader_with_scalar(operator.ge),
        "_lesser_scalar": _reader_with_scalar(operator.lt),
        "_lesser_equal_scalar": _reader_with_scalar(operator.le),
        "SoftmaxOutput Softmax softmax SoftmaxActivation log_softmax softmin": _read_softmax,
        "Concat concat": lambda node, *values: concat(values, node.attributes.count("dim", 1)),
        "Flatten flatten": lambda node, x: x.flatten(1),
        "Reshape reshape": _read_reshape,
        "SliceChannel split": _read_split,
        "Pad pad": _read_pad,
        **dict.fromkeys(_REDUCTIONS, _read_reduce),
        "SwapAxis swapaxes": lambda node, x: functions.swap_axes(
            x, node.attributes.count("dim1", 0), node.attributes.count("dim2", 0)
        ),
        "Convolution": _read_conv,
        "Deconvolution": _read_deconv,
        "Pooling": _read_pool,
        "FullyConnected": _read_fully_connected,
        "BatchNorm": _read_batch_norm,
        "InstanceNorm": lambda node, x, gamma, beta: x.instance_norm(
            node.attributes.number("eps", 1e-3), gamma=gamma, beta=beta
        ),
        "L2Normalization": _read_l2_normalization,
        "LayerNorm": _read_layer_norm,
        "_contrib_AdaptiveAvgPooling2D": _read_adaptive_pool,
        "_contrib_BilinearResize2D": _read_bilinear_resize,
        "Crop": _read_crop,
        "slice": _read_slice,
        "depth_to_space": lambda node, x: x.apply_op(
            ops.DepthToSpace(node.attributes.count("block_size", 1), "DCR")
        ),
        "space_to_depth": lambda node, x: x.cells_as_channels(node.attributes.count("block_size", 1)),
        "LRN": _read_lrn,
        "Activation": _read_activation,
        "LeakyReLU": _read_leaky_relu,
        "LogisticRegressionOutput": lambda node, x, *labels: x.apply_elementwise(ops.Sigmoid()),
        "hard_sigmoid": lambda node, x: x.apply_elementwise(
            ops.HardSigmoid(node.attributes.number("alpha", 0.2), node.attributes.number("beta", 0.5))
        ),
        "clip": lambda node, x: x.clip(
            node.attributes.number("a_min", 0.0), node.attributes.number("a_max", 0.0)
        ),
        "slice_axis": _read_slice_axis,
        "transpose": lambda node, x: x.transpose(node.attributes.counts("axes")),
        "UpSampling": _read_upsampling,
    }
)
_EXPRESSIONS: Mapping[str, Callable[..., Tensor]] = {
    **{name: functions.FUNCTIONS[name] for name in ("expm1", "log1p", "trunc")},
    "fix": functions.trunc,
    "negative": operator.neg,
    "rsqrt": functions.rsqrt,
    "square": functions.square,
}
"""The functions of the tensors alone."""
READERS: Mapping[str, Reader[SymbolNode]] = refuse_unread_settings(
    {
        **{name: tensor_reader(function) for name, function in _EXPRESSIONS.items()},
        **{name: node_reader(function) for name, function in _FUNCTIONS.items()},
        **{name: op_reader(_ACTIVATIONS[name]) for name in ("relu", "sigmoid", "softsign", "tanh")},
        **{name: op_reader(op) for name, op in OPS_OF_NUMBERS.items()},
    },
    lambda node: node.attributes.passed_over,
)

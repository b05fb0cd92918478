"""How Keras says each op: a layer where it has one that computes the same, otherwise operations of
`keras.ops`.

The last layer or operation of a node has the node's name, and so does the layer that holds its tensors.
Values are N×H×W×C or N×C. Windowed ops are in porter.frameworks.tf.ports.sites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from porter.formats.keras.activations import ACTIVATIONS, ActivationRow
from porter.formats.keras.operations import ELEMENTWISE
from porter.formats.tensorflow import has_cubic_shares
from porter.frameworks.tf.ports.maker import KerasNode
from porter.frameworks.tf.ports.statement import CallValue
from porter.frameworks.tf.resizing import resize_map
from porter.graph import Op, ops
from porter.graph.ops import row_of

_Spelling = Callable[[KerasNode[Any]], CallValue]
"""States the Keras calls for a node and returns the value of the last one."""
_Config = Callable[[Any], Mapping[str, Any]]
"""Returns the arguments of a layer from an op."""


def _layer_spelling(kind: str, config: _Config = lambda op: {}) -> _Spelling:
    """Return a spelling of an op as a layer of one value, with the arguments that `config` takes from
    the op.
    """
    return lambda node: node.layer(kind, **config(node.op))


def _map_layer_spelling(kind: str, config: _Config) -> _Spelling:
    """Return a spelling as `_layer_spelling` does, for a layer over maps."""
    return lambda node: node.spatial(kind, **config(node.op))


def _operation_spelling(
    function: str, arguments: Callable[[Any], tuple[float, ...]] = lambda op: ()
) -> _Spelling:
    """Return a spelling of an op as a function of `keras.ops` of the node's inputs."""
    return lambda node: node.operation(function, *node.inputs, *arguments(node.op))


def _keep_axes(op: Any) -> Mapping[str, Any]:
    """Return the argument by which a global pool keeps its axes of one cell, if the op keeps them."""
    return {"keepdims": True} if op.keep else {}


def _norm_config(op: Any) -> Mapping[str, Any]:
    """Return the arguments of a norm's layer over the last axis, the channels."""
    return {"axis": -1, "epsilon": op.epsilon, "scale": op.scale, "center": op.center}


def _rms_norm(node: KerasNode[ops.RmsNorm]) -> CallValue:
    """State an RMS norm: as a layer, or without a scale, which the layer always has, as an operation."""
    if not node.op.scale:
        return node.operation("rms_normalization", node.value, axis=-1, epsilon=node.op.epsilon)
    return node.layer("RMSNormalization", axis=[-1], epsilon=node.op.epsilon)


def _activation(function: str, node: KerasNode[Op]) -> CallValue:
    """State an Activation layer of the function of this name."""
    return node.layer("Activation", activation=function)


def _merge_layer(kind: str, node: KerasNode[Op]) -> CallValue:
    """State a layer of the class `kind` that merges all values of the node."""
    return node.layer(kind, node.inputs)


def _add(node: KerasNode[ops.Add]) -> CallValue:
    """State a sum: an Add layer where all values have one shape, otherwise x - (-y), one value after the
    other. Keras takes a second summand for a bias by its sizes, such as N×1×1×1 where N images have N
    channels, and adds it along another axis (keras/src/backend/tensorflow/numpy.py, `add`); its subtraction
    does not.
    """
    if len({value.shape for value in node.inputs}) == 1:
        return _merge_layer("Add", node)
    total = node.value if len(node.inputs) == 2 else _add(node.under("sum", *node.inputs[:-1]))
    return node.operation("subtract", total, node.step("negative", "negative", node.inputs[-1]))


def _conv_transpose(node: KerasNode[ops.ConvTranspose]) -> CallValue:
    """State a transposed convolution and its cut. Keras's layer gives at least a stride of cells for each
    cell of its input; cells that a negative cut adds are those of an input with zeros around it.
    """
    op = node.op
    window, value = op.window, node.value
    row_stride, column_stride = window.stride
    strides = (row_stride, row_stride, column_stride, column_stride)
    # By side: so many zeros, a stride apart in the result, that their cells cover a negative cut.
    top, bottom, left, right = added_pads = [
        max(-(cut // stride), 0) for cut, stride in zip(op.cut, strides, strict=True)
    ]
    if any(added_pads):
        value = node.maker.pad(value, (top, bottom, left, right), 0.0, node.part("pad"))
    # The dilated kernel, which has zeros in its holes (porter.frameworks.tf.layout).
    extent = (window.extent(0), window.extent(1))
    config = {
        "filters": op.filters,
        "kernel_size": extent,
        "strides": window.stride,
        "padding": "valid",
        "use_bias": op.bias,
    }
    result = node.spatial("Conv2DTranspose", value, **config)
    # What is cut off, with the cells of the zeros.
    cuts = [cut + pad * stride for cut, pad, stride in zip(op.cut, added_pads, strides, strict=True)]
    for axis in (0, 1):
        # Cells at the end that Keras gives where the kernel is shorter than the stride.
        cuts[2 * axis + 1] += max(window.stride[axis] - extent[axis], 0)
    top, bottom, left, right = cuts
    if not any(cuts):
        return result
    return node.under("crop").spatial("Cropping2D", result, cropping=((top, bottom), (left, right)))


def _keras_axis(op: ops.AlongAxes, axis: int, value: CallValue) -> int:
    """Return the index of an axis of a value in Keras: behind the batch for an array; of a map, rows and
    columns have 1 and 2 here too, and the channels, 0 in porter's order, are last.
    """
    if op.of_arrays:
        return 1 + axis
    return value.ndim - 1 if axis == 0 else axis


def _reduce(node: KerasNode[ops.Reduce]) -> CallValue:
    """State a reduction along one axis, which stays with one cell unless the value is an array."""
    keepdims = {} if node.op.of_arrays else {"keepdims": True}
    return node.operation(
        node.op.function, node.value, axis=_keras_axis(node.op, node.op.over, node.value), **keepdims
    )


def _pad(node: KerasNode[ops.Pad]) -> CallValue:
    """State a pad along axes that are not only the rows and columns of a map."""
    ends = {_keras_axis(node.op, axis, node.value): amounts for axis, amounts in node.op.ends.items()}
    # Of a map, only channels are padded so, by zeros.
    fill = {"constant_values": node.op.fill} if node.op.of_arrays else {}
    return node.operation(
        "pad", node.value, tuple(ends.get(axis, (0, 0)) for axis in range(node.value.ndim)), **fill
    )


def _channel_scale(node: KerasNode[ops.ChannelScale]) -> CallValue:
    """State x * gamma + beta, with numbers for each channel, as a depthwise convolution of one cell."""
    config = {
        "kernel_size": (1, 1),
        "strides": (1, 1),
        "padding": "valid",
        "depth_multiplier": 1,
        "use_bias": node.op.bias,
    }
    return _over_maps(node, "DepthwiseConv2D", data_format="channels_last", **config)


def _affine(node: KerasNode[ops.Affine]) -> CallValue:
    """State an affine as a Rescaling. It casts a Python number through float32, but an array directly
    (keras/src/layers/preprocessing/rescaling.py and tf.cast). If ~/.keras/keras.json says channels_first, it
    moves a vector of scales away from the last axis, but not an array of rank 3.
    """
    scale, offset = (
        np.array(values, np.float64).reshape(1, 1, -1) for values in (node.op.scale, node.op.offset)
    )
    return _over_maps(node, "Rescaling", scale=scale, offset=offset)


def _over_maps(node: KerasNode[Op], kind: str, **config: Any) -> CallValue:
    """State a layer that takes only maps and arrays; features become maps of one cell for it."""
    if node.value.ndim != 2:
        return node.layer(kind, **config)
    features = node.value.shape[-1]
    maps = node.under("maps").layer("Reshape", target_shape=(1, 1, features))
    output = node.layer(kind, maps, **config)
    return node.under("features").layer("Reshape", output, target_shape=(features,))


def _thresholded_relu(node: KerasNode[ops.ThresholdedRelu]) -> CallValue:
    """State a thresholded ReLU, which gives 0 up to a threshold. Keras's layer refuses thresholds below 0 and
    rounds others to float32, as comparisons do. For those, the sign of `x - threshold` is asked.
    """
    op = node.op
    if op.threshold >= 0 and _layer_has_number(node, op.threshold):
        return node.layer("ReLU", threshold=op.threshold)
    difference = node.step("over", "subtract", node.value, op.threshold)
    passed = node.step("passed", "greater", difference, 0)
    return node.operation(
        "where",
        passed,
        node.value,
        node.step("zeros", "zeros_like", node.value),
    )


def _layer_has_number(node: KerasNode[Op], number: float) -> bool:
    """Say whether a layer computes with this number although Keras rounds it to float32: in models of float32
    and narrower types, and in float64 where rounding does not change it.
    """
    return not node.maker.is_double or float(np.float32(number)) == number


def _leaky_relu(node: KerasNode[ops.LeakyRelu]) -> CallValue:
    """State a leaky ReLU. Keras's layer refuses slopes below 0, and rounds others to float32."""
    op = node.op
    if op.slope >= 0 and _layer_has_number(node, op.slope):
        return node.layer("LeakyReLU", negative_slope=op.slope)
    # For a slope up to 1, the larger of x and slope * x; for a steeper one, the smaller.
    below = node.step("below", "multiply", node.value, op.slope)
    return node.operation("maximum" if op.slope <= 1 else "minimum", node.value, below)


def _p_relu(node: KerasNode[ops.PRelu]) -> CallValue:
    """State a PReLU, whose slopes are one for each channel, of a map shared by its cells."""
    config = {"shared_axes": (1, 2)} if node.value.ndim == 4 else {}
    return node.layer("PReLU", None, **config)


def _softplus(node: KerasNode[ops.Softplus]) -> CallValue:
    """State a softplus, which torch cuts off above 20: there it is its input."""
    if not node.op.cut:
        return _activation("softplus", node)
    smooth = _activation("softplus", node.under("smooth"))
    return node.operation(
        "where",
        node.step("over", "greater", node.value, 20),
        node.value,
        smooth,
    )


def _hard_sigmoid(node: KerasNode[ops.HardSigmoid]) -> CallValue:
    """State a hard sigmoid, as an activation if it is Keras's own one."""
    if node.op == ops.HardSigmoid():
        return _activation("hard_sigmoid", node)
    scaled = node.step("scaled", "multiply", node.value, node.op.slope)
    return node.operation("clip", node.step("moved", "add", scaled, node.op.offset), 0.0, 1.0)


def _gelu(node: KerasNode[ops.Gelu]) -> CallValue:
    """State a GELU. In float64 it is made of its parts, because Keras rounds its constants to float32: x / 2
    * (1 + erf(x / sqrt(2))), or approximately x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))).
    """
    value = node.value
    if not node.maker.is_double:
        if node.op.approximate:
            return node.operation("gelu", value, approximate=True)
        return _activation("gelu", node)

    def step(function: str, *arguments: Any) -> CallValue:
        return node.step(function, function, *arguments)

    if node.op.approximate:
        cubes = step("multiply", step("power", value, 3), 0.044715)
        share = step("tanh", step("multiply", step("add", value, cubes), math.sqrt(2 / math.pi)))
    else:
        share = step("erf", step("multiply", value, math.sqrt(0.5)))
    return node.operation("multiply", step("multiply", value, 0.5), step("add", share, 1.0))


def _softmax(node: KerasNode[ops.Softmax]) -> CallValue:
    """State a softmax. Of one channel it is 1: Keras would warn at every call."""
    if node.value.shape[-1] == 1:
        return node.operation("ones_like", node.value)
    return node.layer("Softmax", axis=-1)


def _step(node: KerasNode[ops.Step]) -> CallValue:
    """State a step as a comparison with 0, cast to numbers."""
    above = node.step("above", "greater_equal" if node.op.inclusive else "greater", node.value, 0.0)
    return node.operation("cast", above, dtype=node.maker.dtype)


def _flatten(node: KerasNode[ops.Flatten]) -> CallValue:
    """State a Flatten; where the channels come first, behind a Permute."""
    value = node.value
    if node.op.order == "CHW" and (node.op.rows, node.op.columns) != (1, 1):
        value = node.under("channels_first").layer("Permute", value, dims=(3, 1, 2))
    return node.spatial("Flatten", value)


def _extend_map(node: KerasNode[ops.ExtendMap]) -> CallValue:
    """State cells of the map's own around it. Mirrored ones (`reflect`, `symmetric`) are Keras's pad; for
    `edge` the cell at each end is repeated, and for `wrap` the cells of the opposite end are taken, and
    joined to the map: first the rows, then the columns.
    """
    value, (top, bottom, left, right) = node.value, node.op.pads
    if node.op.mode in ("reflect", "symmetric"):
        return node.operation("pad", value, ((0, 0), (top, bottom), (left, right), (0, 0)), mode=node.op.mode)
    is_edge = node.op.mode == "edge"
    for axis, before, after in ((1, top, bottom), (2, left, right)):
        # Which cells of the map stand before and behind it.
        cells_before = slice(0, 1) if is_edge else slice(-before, None)
        cells_after = slice(-1, None) if is_edge else slice(0, after)
        parts_before, parts_after = (
            _end_parts(node, value, axis, cells, count)
            for cells, count in ((cells_before, before), (cells_after, after))
        )
        # The last step has the node's name.
        output = node if axis == 2 else node.under("rows")
        value = output.layer("Concatenate", [*parts_before, value, *parts_after], axis=axis)
    return value


def _end_parts(
    node: KerasNode[ops.ExtendMap], value: CallValue, axis: int, cells: slice, count: int
) -> list[CallValue]:
    """State the part of a map with these cells along an axis, and return it as often as it is joined to the
    map to add `count` cells: an edge cell so many times, a part of the other end once. Without cells to add,
    nothing is stated.
    """
    if count == 0:
        return []
    part = node.step("end", "getitem", value, (*[slice(None)] * axis, cells))
    return [part] * (count if node.op.mode == "edge" else 1)


def _dropout(node: KerasNode[ops.Dropout]) -> CallValue:
    """State a dropout, of single numbers or of whole maps (SpatialDropout2D)."""
    if node.op.maps:
        return node.spatial("SpatialDropout2D", rate=node.op.rate)
    return node.layer("Dropout", rate=node.op.rate)


def _channel_shuffle(node: KerasNode[ops.ChannelShuffle]) -> CallValue:
    """State a channel shuffle as a choice of channels, which for 4 channels in 2 groups are 0, 2, 1, 3; with
    reshapes the sizes of the map would have to be known.
    """
    order = np.arange(node.value.size(-1)).reshape(node.op.groups, -1).T
    return node.operation("take", node.value, order.ravel().tolist(), axis=-1)


def _depth_to_space(node: KerasNode[ops.DepthToSpace]) -> CallValue:
    """State keras.ops's depth_to_space; of blocks of one cell an Identity."""
    if node.op.block == 1:
        return node.layer("Identity")
    return node.operation("depth_to_space", node.value, node.op.block, data_format="channels_last")


def _space_to_depth(node: KerasNode[ops.SpaceToDepth]) -> CallValue:
    """State each cell of the blocks as a part of the map, and join the parts; with reshapes the map's size
    would have to be known.
    """
    block = node.op.block
    if block == 1:
        return node.layer("Identity")
    cells = [(row, column) for row in range(block) for column in range(block)]
    parts = [
        node.step(
            f"{row}_{column}",
            "getitem",
            node.value,
            (slice(None), slice(row, None, block), slice(column, None, block)),
        )
        for row, column in cells
    ]
    return node.layer("Concatenate", parts, axis=-1)


def resize(node: KerasNode[ops.Resize | ops.ResizeLike | ops.AsLarge]) -> CallValue:
    """State a resize as a layer where Keras's layer computes the same, which is not so in float64, otherwise
    by operations. Keras's layers compute in float32, a cubic one by a table of 1024 shares that has those of
    powers of two.
    """
    op = node.op
    if isinstance(op, ops.Resize) and op.coordinates == "half_pixel" and not node.maker.is_double:
        # 0 where a scale is no whole number, which UpSampling2D does not take.
        rows, columns = (int(scale) if scale == int(scale) else 0 for scale in op.scale or (0, 0))
        if op.mode == "linear" and op.size:
            return node.spatial("Resizing", height=op.size[0], width=op.size[1], interpolation="bilinear")
        if op.mode == "linear" and rows and columns:
            return node.spatial("UpSampling2D", size=(rows, columns), interpolation="bilinear")
        is_keras_cubic = op.mode == "cubic" and op.inside and op.a == -0.5
        if is_keras_cubic and has_cubic_shares((rows, columns)):
            return node.spatial("UpSampling2D", size=(rows, columns), interpolation="bicubic")
    return resize_by_operations(node)


def resize_by_operations(node: KerasNode[ops.Resize | ops.ResizeLike | ops.AsLarge]) -> CallValue:
    """State a resize by operations of `keras.ops`, which compute from the size of the map which cells each
    cell of the result is made of, and with what shares.
    """

    def do(function: str, *arguments: Any, **options: Any) -> CallValue:
        return node.step(function, function, *arguments, **options)

    kind = "float64" if node.maker.is_double else "float32"
    output = resize_map(node.value, node.op, do, kind, *node.inputs[1:])
    # The last call has the node's name: that of the resize, or a cast behind it.
    if node.maker.dtype == kind:
        return node.maker.rename_call(output, node.name)
    return node.operation("cast", output, node.maker.dtype)


LAYERS: Mapping[type[Op], _Spelling] = {
    **{type(op): partial(_activation, name) for name, op in ACTIVATIONS.items() if isinstance(op, Op)},
    **{
        row.op: _operation_spelling(name, row.write)
        for name, row in ACTIVATIONS.items()
        if isinstance(row, ActivationRow)
    },
    **{type(op): _operation_spelling(name) for name, op in ELEMENTWISE.items()},
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _map_layer_spelling("GlobalAveragePooling2D", _keep_axes),
    ops.GlobalMaxPool: _map_layer_spelling("GlobalMaxPooling2D", _keep_axes),
    ops.Dense: _layer_spelling("Dense", lambda op: {"units": op.units, "use_bias": op.bias}),
    # Keras's momentum is the share of the old value, porter's (and torch's) the share of the new one.
    ops.BatchNorm: _layer_spelling(
        "BatchNormalization", lambda op: {**_norm_config(op), "momentum": 1 - op.momentum}
    ),
    ops.LayerNorm: _layer_spelling("LayerNormalization", lambda op: {**_norm_config(op), "axis": [-1]}),
    ops.RmsNorm: _rms_norm,
    ops.GroupNorm: _layer_spelling(
        "GroupNormalization", lambda op: {**_norm_config(op), "groups": op.groups}
    ),
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Relu: _layer_spelling("ReLU"),
    ops.Relu6: _layer_spelling("ReLU", lambda op: {"max_value": 6.0}),
    ops.ThresholdedRelu: _thresholded_relu,
    ops.Clip: _operation_spelling("clip", lambda op: (op.low, op.high)),
    ops.LeakyRelu: _leaky_relu,
    ops.PRelu: _p_relu,
    ops.Elu: _layer_spelling("ELU", lambda op: {"alpha": op.alpha}),
    ops.Softplus: _softplus,
    ops.HardSigmoid: _hard_sigmoid,
    ops.Gelu: _gelu,
    ops.Softmax: _softmax,
    ops.LogSoftmax: partial(_activation, "log_softmax"),
    ops.Step: _step,
    ops.Add: _add,
    ops.Multiply: partial(_merge_layer, "Multiply"),
    ops.Divide: _operation_spelling("divide"),
    # Keras 3.15 says float32 of its `reciprocal` whatever it takes (keras/src/ops/numpy.py).
    ops.Reciprocal: lambda node: node.operation("divide", 1.0, node.value),
    ops.Power: _operation_spelling("power", lambda op: (op.exponent,)),
    ops.Maximum: partial(_merge_layer, "Maximum"),
    ops.Minimum: partial(_merge_layer, "Minimum"),
    ops.Concat: lambda node: node.layer(
        "Concatenate", node.inputs, axis=1 + node.op.axis if node.op.of_arrays else -1
    ),
    ops.Reduce: _reduce,
    ops.Identity: _layer_spelling("Identity"),
    ops.Dropout: _dropout,
    ops.Flatten: _flatten,
    ops.AsMap: lambda node: node.layer("Reshape", target_shape=(1, 1, node.value.shape[-1])),
    ops.PadMap: lambda node: node.maker.pad(node.value, node.op.pads, node.op.fill, node.name),
    ops.ExtendMap: _extend_map,
    ops.CropMap: _map_layer_spelling("Cropping2D", lambda op: {"cropping": (op.pads[:2], op.pads[2:])}),
    ops.Pad: _pad,
    ops.SliceChannels: lambda node: node.operation("getitem", node.value, (..., node.op.cuts[0])),
    ops.CropAxis: lambda node: node.operation(
        "getitem", node.value, (*[slice(None)] * (1 + node.op.axis), node.op.cuts[node.op.axis])
    ),
    ops.ChannelShuffle: _channel_shuffle,
    ops.DepthToSpace: _depth_to_space,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _map_layer_spelling("UpSampling2D", lambda op: {"size": (op.rows, op.columns)}),
    ops.Resize: resize,
    ops.ResizeLike: resize,
    ops.AsLarge: resize_by_operations,
}
"""Ops without a padding site that Keras has, or of which its operations compose the same numbers; those of
arrays are in porter.frameworks.tf.ports.arrays.
"""


def lacks_op(op: Op) -> bool:
    """Say whether Keras lacks an op that porter makes of others, or this kind of it, such as blocks whose
    cells come before their channels.
    """
    if isinstance(op, ops.DepthToSpace | ops.SpaceToDepth):
        return op.order == "CRD"
    return row_of(LAYERS, type(op)) is None

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

from porter.formats.keras.activations import ACTIVATIONS, Row
from porter.formats.keras.operations import OF_NUMBERS
from porter.formats.tensorflow import has_cubic_shares
from porter.frameworks.tf.ports.maker import LayerMaker
from porter.frameworks.tf.ports.statement import Symbol
from porter.frameworks.tf.resizing import resized
from porter.graph import Op, ops

_Spelling = Callable[[LayerMaker, Any, str, list[Symbol]], Symbol]
_Config = Callable[[Any], Mapping[str, Any]]


def _layer(kind: str, config: _Config = lambda op: {}) -> _Spelling:
    """A layer of one value, with the arguments that an op gives it."""
    return lambda maker, op, name, inputs: maker.layer(kind, name, inputs[0], **config(op))


def _spatial(kind: str, config: _Config) -> _Spelling:
    """As `_layer`, for one over maps."""
    return lambda maker, op, name, inputs: maker.spatial(kind, name, inputs[0], **config(op))


def _operation(function: str, arguments: Callable[[Any], tuple[float, ...]] = lambda op: ()) -> _Spelling:
    """A function of `keras.ops` of the inputs."""
    return lambda maker, op, name, inputs: maker.operation(function, name, *inputs, *arguments(op))


def _kept(op: Any) -> Mapping[str, Any]:
    return {"keepdims": True} if op.keep else {}


def _norm(op: Any) -> Mapping[str, Any]:
    return {"axis": -1, "epsilon": op.epsilon, "scale": op.scale, "center": op.center}


def _rms_norm(maker: LayerMaker, op: ops.RmsNorm, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's layer always has a scale."""
    if not op.scale:
        return maker.operation("rms_normalization", name, inputs[0], axis=-1, epsilon=op.epsilon)
    return maker.layer("RMSNormalization", name, inputs[0], axis=[-1], epsilon=op.epsilon)


def _activation(function: str, maker: LayerMaker, op: Op, name: str, inputs: list[Symbol]) -> Symbol:
    return maker.layer("Activation", name, inputs[0], activation=function)


def _merge(kind: str, maker: LayerMaker, op: Op, name: str, inputs: list[Symbol]) -> Symbol:
    return maker.layer(kind, name, inputs)


def _add(maker: LayerMaker, op: ops.Add, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras takes a second summand for a bias by its sizes, such as N×1×1×1 where N images have N channels,
    and adds it along another axis (keras/src/backend/tensorflow/numpy.py, `add`). A value that is stretched
    is subtracted with its sign turned.
    """
    if len({value.shape for value in inputs}) == 1:
        return _merge("Add", maker, op, name, inputs)
    total = inputs[0] if len(inputs) == 2 else _add(maker, op, maker.name(f"{name}_sum"), inputs[:-1])
    return maker.operation(
        "subtract", name, total, maker.operation("negative", maker.name(f"{name}_negative"), inputs[-1])
    )


def _conv_transpose(maker: LayerMaker, op: ops.ConvTranspose, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's layer gives at least a stride of cells for each cell of its input; cells that a negative cut
    adds are those of an input with zeros around it.
    """
    window, value = op.window, inputs[0]
    more = [max(-(cut // window.stride[side // 2]), 0) for side, cut in enumerate(op.cut)]
    if any(more):
        value = maker.pad(value, (more[0], more[1], more[2], more[3]), 0.0, maker.name(f"{name}_pad"))
    extent = (window.extent(0), window.extent(1))
    config = {
        "filters": op.filters,
        "kernel_size": extent,
        "strides": window.stride,
        "padding": "valid",
        "use_bias": op.bias,
    }
    result = maker.spatial("Conv2DTranspose", name, value, **config)
    cuts = [
        cut + n * window.stride[side // 2] for side, (cut, n) in enumerate(zip(op.cut, more, strict=True))
    ]
    for axis in (0, 1):
        cuts[2 * axis + 1] += max(window.stride[axis] - extent[axis], 0)
    top, bottom, left, right = cuts
    if not any(cuts):
        return result
    return maker.spatial(
        "Cropping2D", maker.name(f"{name}_crop"), result, cropping=((top, bottom), (left, right))
    )


def _axis(op: ops.AlongAxes, axis: int, value: Symbol) -> int:
    """Where Keras has an axis of porter's: the channels of maps are its last one."""
    return 1 + axis if op.of_arrays else axis or value.ndim - 1


def _reduce(maker: LayerMaker, op: ops.Reduce, name: str, inputs: list[Symbol]) -> Symbol:
    keepdims = {} if op.of_arrays else {"keepdims": True}
    return maker.operation(op.function, name, inputs[0], axis=_axis(op, op.over, inputs[0]), **keepdims)


def _crop_axis(maker: LayerMaker, op: ops.CropAxis, name: str, inputs: list[Symbol]) -> Symbol:
    return maker.part(inputs[0], (*[slice(None)] * (1 + op.axis), op.cuts[op.axis]), name)


def _pad(maker: LayerMaker, op: ops.Pad, name: str, inputs: list[Symbol]) -> Symbol:
    ends = {_axis(op, axis, inputs[0]): amounts for axis, amounts in op.ends.items()}
    fill = {"constant_values": op.fill} if op.of_arrays else {}
    return maker.operation(
        "pad", name, inputs[0], tuple(ends.get(axis, (0, 0)) for axis in range(inputs[0].ndim)), **fill
    )


def _concat(maker: LayerMaker, op: ops.Concat, name: str, inputs: list[Symbol]) -> Symbol:
    return maker.layer("Concatenate", name, inputs, axis=1 + op.axis if op.of_arrays else -1)


def _local_response_norm(
    maker: LayerMaker, op: ops.LocalResponseNorm, name: str, inputs: list[Symbol]
) -> Symbol:
    """tf.nn.local_response_normalization is not an operation of Keras, so the squares are added from shifted
    channels.
    """
    value, channels = inputs[0], inputs[0].size(-1)
    before, after = min(op.size // 2, channels - 1), min((op.size - 1) // 2, channels - 1)
    squares = maker.operation("square", maker.name(f"{name}_squares"), value)
    wide = maker.operation(
        "pad", maker.name(f"{name}_wide"), squares, ((0, 0), (0, 0), (0, 0), (before, after))
    )
    cuts = [slice(start, start + channels, 1) for start in range(before + after + 1)]
    shifted = [maker.part(wide, (..., cut), maker.name(f"{name}_shift")) for cut in cuts]
    total = maker.layer("Add", maker.name(f"{name}_sum"), shifted) if len(shifted) > 1 else shifted[0]
    scaled = maker.operation("multiply", maker.name(f"{name}_scaled"), total, op.alpha)
    moved = maker.operation("add", maker.name(f"{name}_moved"), scaled, op.bias)
    power = maker.operation("power", maker.name(f"{name}_power"), moved, op.beta)
    return maker.operation("divide", name, value, power)


def _channel_scale(maker: LayerMaker, op: ops.ChannelScale, name: str, inputs: list[Symbol]) -> Symbol:
    config = {
        "kernel_size": (1, 1),
        "strides": (1, 1),
        "padding": "valid",
        "depth_multiplier": 1,
        "use_bias": op.bias,
    }
    return _over_maps(maker, "DepthwiseConv2D", name, inputs[0], data_format="channels_last", **config)


def _affine(maker: LayerMaker, op: ops.Affine, name: str, inputs: list[Symbol]) -> Symbol:
    """A `Rescaling` casts a Python number through float32, but an array directly
    (keras/src/layers/preprocessing/rescaling.py and tf.cast). If ~/.keras/keras.json says channels_first, it
    moves a vector of scales away from the last axis, but not an array of rank 3.
    """
    scale, offset = (np.array(values, np.float64).reshape(1, 1, -1) for values in (op.scale, op.offset))
    return _over_maps(maker, "Rescaling", name, inputs[0], scale=scale, offset=offset)


def _over_maps(maker: LayerMaker, kind: str, name: str, value: Symbol, **config: Any) -> Symbol:
    """The value of a layer that takes maps and arrays; features become maps of one cell."""
    if value.ndim != 2:
        return maker.layer(kind, name, value, **config)
    features = value.shape[-1]
    maps = maker.layer("Reshape", maker.name(f"{name}_maps"), value, target_shape=(1, 1, features))
    found = maker.layer(kind, name, maps, **config)
    return maker.layer("Reshape", maker.name(f"{name}_features"), found, target_shape=(features,))


def _thresholded_relu(maker: LayerMaker, op: ops.ThresholdedRelu, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's layer refuses thresholds below 0. It rounds others to float32, as comparisons do; a difference
    keeps its sign.
    """
    if op.threshold >= 0 and (not maker.double or float(np.float32(op.threshold)) == op.threshold):
        return maker.layer("ReLU", name, inputs[0], threshold=op.threshold)
    over = maker.operation("subtract", maker.name(f"{name}_over"), inputs[0], op.threshold)
    passed = maker.operation("greater", maker.name(f"{name}_passed"), over, 0)
    return maker.operation(
        "where",
        name,
        passed,
        inputs[0],
        maker.operation("zeros_like", maker.name(f"{name}_zeros"), inputs[0]),
    )


def _leaky_relu(maker: LayerMaker, op: ops.LeakyRelu, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's layer refuses slopes below 0."""
    if op.slope >= 0 and (not maker.double or float(np.float32(op.slope)) == op.slope):
        return maker.layer("LeakyReLU", name, inputs[0], negative_slope=op.slope)
    below = maker.operation("multiply", maker.name(f"{name}_below"), inputs[0], op.slope)
    return maker.operation("maximum" if op.slope <= 1 else "minimum", name, inputs[0], below)


def _softplus(maker: LayerMaker, op: ops.Softplus, name: str, inputs: list[Symbol]) -> Symbol:
    if not op.cut:
        return _activation("softplus", maker, op, name, inputs)
    smooth = _activation("softplus", maker, op, maker.name(f"{name}_smooth"), inputs)
    return maker.operation(
        "where",
        name,
        maker.operation("greater", maker.name(f"{name}_over"), inputs[0], 20),
        inputs[0],
        smooth,
    )


def _hard_sigmoid(maker: LayerMaker, op: ops.HardSigmoid, name: str, inputs: list[Symbol]) -> Symbol:
    if op == ops.HardSigmoid():
        return _activation("hard_sigmoid", maker, op, name, inputs)
    scaled = maker.operation("multiply", maker.name(f"{name}_scaled"), inputs[0], op.slope)
    return maker.operation(
        "clip", name, maker.operation("add", maker.name(f"{name}_moved"), scaled, op.offset), 0.0, 1.0
    )


def _gelu(maker: LayerMaker, op: ops.Gelu, name: str, inputs: list[Symbol]) -> Symbol:
    value = inputs[0]
    if not maker.double:
        if op.approximate:
            return maker.operation("gelu", name, value, approximate=True)
        return _activation("gelu", maker, op, name, inputs)

    def step(function: str, *arguments: Any) -> Symbol:
        return maker.operation(function, maker.name(f"{name}_{function}"), *arguments)

    if op.approximate:
        cubes = step("multiply", step("power", value, 3), 0.044715)
        share = step("tanh", step("multiply", step("add", value, cubes), math.sqrt(2 / math.pi)))
    else:
        share = step("erf", step("multiply", value, math.sqrt(0.5)))
    return maker.operation("multiply", name, step("multiply", value, 0.5), step("add", share, 1.0))


def _softmax(maker: LayerMaker, op: ops.Softmax, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras warns at every call of a softmax over one channel, which is 1."""
    if inputs[0].shape[-1] == 1:
        return maker.operation("ones_like", name, inputs[0])
    return maker.layer("Softmax", name, inputs[0], axis=-1)


def _step(maker: LayerMaker, op: ops.Step, name: str, inputs: list[Symbol]) -> Symbol:
    above = maker.operation(
        "greater_equal" if op.inclusive else "greater", maker.name(f"{name}_above"), inputs[0], 0.0
    )
    return maker.operation("cast", name, above, dtype=maker.dtype)


def _flatten(maker: LayerMaker, op: ops.Flatten, name: str, inputs: list[Symbol]) -> Symbol:
    value = inputs[0]
    if op.order == "CHW" and (op.rows, op.columns) != (1, 1):
        value = maker.layer("Permute", maker.name(f"{name}_channels_first"), value, dims=(3, 1, 2))
    return maker.spatial("Flatten", name, value)


def _extend_map(maker: LayerMaker, op: ops.ExtendMap, name: str, inputs: list[Symbol]) -> Symbol:
    value, (top, bottom, left, right) = inputs[0], op.pads
    if op.mode in ("reflect", "symmetric"):
        return maker.operation(
            "pad", name, value, ((0, 0), (top, bottom), (left, right), (0, 0)), mode=op.mode
        )
    edge = op.mode == "edge"
    for axis, before, after in ((1, top, bottom), (2, left, right)):
        ends = (
            (before, slice(0, 1) if edge else slice(-before, None)),
            (after, slice(-1, None) if edge else slice(0, after)),
        )
        first, last = (
            [maker.part(value, (*[slice(None)] * axis, cells), maker.name(f"{name}_end"))]
            * (count if edge else 1)
            if count
            else []
            for count, cells in ends
        )
        joined = name if axis == 2 else maker.name(f"{name}_rows")
        value = maker.layer("Concatenate", joined, [*first, value, *last], axis=axis)
    return value


def _dropout(maker: LayerMaker, op: ops.Dropout, name: str, inputs: list[Symbol]) -> Symbol:
    if op.maps:
        return maker.spatial("SpatialDropout2D", name, inputs[0], rate=op.rate)
    return maker.layer("Dropout", name, inputs[0], rate=op.rate)


def _channel_shuffle(maker: LayerMaker, op: ops.ChannelShuffle, name: str, inputs: list[Symbol]) -> Symbol:
    """Reshaped as usual, a map would need a size that is known."""
    order = np.arange(inputs[0].size(-1)).reshape(op.groups, -1).T
    return _take(maker, inputs[0], order, name)


def _depth_to_space(maker: LayerMaker, op: ops.DepthToSpace, name: str, inputs: list[Symbol]) -> Symbol:
    if op.block == 1:
        return maker.layer("Identity", name, inputs[0])
    value = inputs[0]
    if op.order == "CRD":
        order = np.arange(value.size(-1)).reshape(-1, op.block**2).T
        value = _take(maker, value, order, maker.name(f"{name}_order"))
    return maker.operation("depth_to_space", name, value, op.block, data_format="channels_last")


def _space_to_depth(maker: LayerMaker, op: ops.SpaceToDepth, name: str, inputs: list[Symbol]) -> Symbol:
    """Every cell of a block is a part of the map. Reshaped, it would need a size that is known."""
    (value,), block = inputs, op.block
    places = [(row, column) for row in range(block) for column in range(block)]
    parts = [
        maker.part(
            value,
            (slice(None), slice(row, None, block), slice(column, None, block)),
            maker.name(f"{name}_{row}_{column}"),
        )
        for row, column in places
    ]
    if op.order == "DCR" or block == 1:
        return (
            maker.layer("Concatenate", name, parts, axis=-1)
            if block > 1
            else maker.layer("Identity", name, value)
        )
    cells = maker.layer("Concatenate", maker.name(f"{name}_cells"), parts, axis=-1)
    return _take(maker, cells, np.arange(cells.size(-1)).reshape(block**2, -1).T, name)


def _take(maker: LayerMaker, value: Symbol, order: Any, name: str) -> Symbol:
    """The channels of `value` in another order."""
    return maker.operation("take", name, value, order.ravel().tolist(), axis=-1)


def resize(maker: LayerMaker, op: ops.Resize | ops.ResizeLike, name: str, inputs: list[Symbol]) -> Symbol:
    """Keras's layers compute in float32, a cubic one by a table of 1024 shares that has those of powers of
    two.
    """
    if isinstance(op, ops.Resize) and op.coordinates == "half_pixel" and not maker.double:
        rows, columns = (int(scale) if scale == int(scale) else 0 for scale in op.scale or (0, 0))
        if op.mode == "linear" and op.size:
            return maker.spatial(
                "Resizing", name, inputs[0], height=op.size[0], width=op.size[1], interpolation="bilinear"
            )
        if op.mode == "linear" and rows and columns:
            return maker.spatial(
                "UpSampling2D", name, inputs[0], size=(rows, columns), interpolation="bilinear"
            )
        if op.mode == "cubic" and op.inside and op.a == -0.5 and has_cubic_shares((rows, columns)):
            return maker.spatial(
                "UpSampling2D", name, inputs[0], size=(rows, columns), interpolation="bicubic"
            )
    return resize_by_operations(maker, op, name, inputs)


def resize_by_operations(
    maker: LayerMaker, op: ops.Resize | ops.ResizeLike, name: str, inputs: list[Symbol]
) -> Symbol:
    """A resize whose cells and shares are computed from the size of the map."""

    def do(function: str, *arguments: Any, **options: Any) -> Symbol:
        return maker.operation(function, maker.name(f"{name}_{function}"), *arguments, **options)

    kind = "float64" if maker.double else "float32"
    found = resized(inputs[0], op, do, kind, *inputs[1:])
    return (
        maker.named(found, name) if maker.dtype == kind else maker.operation("cast", name, found, maker.dtype)
    )


LAYERS: Mapping[type[Op], _Spelling] = {
    **{type(op): partial(_activation, name) for name, op in ACTIVATIONS.items() if isinstance(op, Op)},
    **{row.op: _operation(name, row.write) for name, row in ACTIVATIONS.items() if isinstance(row, Row)},
    **{type(op): _operation(name) for name, op in OF_NUMBERS.items()},
    ops.ConvTranspose: _conv_transpose,
    ops.GlobalAvgPool: _spatial("GlobalAveragePooling2D", _kept),
    ops.GlobalMaxPool: _spatial("GlobalMaxPooling2D", _kept),
    ops.Dense: _layer("Dense", lambda op: {"units": op.units, "use_bias": op.bias}),
    # Keras's momentum is the share of the old value, porter's (and torch's) the share of the new one.
    ops.BatchNorm: _layer("BatchNormalization", lambda op: {**_norm(op), "momentum": 1 - op.momentum}),
    ops.LayerNorm: _layer("LayerNormalization", lambda op: {**_norm(op), "axis": [-1]}),
    ops.RmsNorm: _rms_norm,
    ops.GroupNorm: _layer("GroupNormalization", lambda op: {**_norm(op), "groups": op.groups}),
    ops.LocalResponseNorm: _local_response_norm,
    ops.ChannelScale: _channel_scale,
    ops.Affine: _affine,
    ops.Relu: _layer("ReLU"),
    ops.Relu6: _layer("ReLU", lambda op: {"max_value": 6.0}),
    ops.ThresholdedRelu: _thresholded_relu,
    ops.Clip: _operation("clip", lambda op: (op.low, op.high)),
    ops.LeakyRelu: _leaky_relu,
    ops.PRelu: lambda maker, op, name, inputs: maker.layer(
        "PReLU", name, inputs[0], **({"shared_axes": (1, 2)} if inputs[0].ndim == 4 else {})
    ),
    ops.Elu: _layer("ELU", lambda op: {"alpha": op.alpha}),
    ops.Softplus: _softplus,
    ops.HardSigmoid: _hard_sigmoid,
    ops.Gelu: _gelu,
    ops.Softmax: _softmax,
    ops.LogSoftmax: partial(_activation, "log_softmax"),
    ops.Step: _step,
    ops.Add: _add,
    ops.Multiply: partial(_merge, "Multiply"),
    ops.Divide: _operation("divide"),
    # Keras 3.15 says float32 of its `reciprocal` whatever it takes (keras/src/ops/numpy.py).
    ops.Reciprocal: lambda maker, op, name, inputs: maker.operation("divide", name, 1.0, inputs[0]),
    ops.Power: _operation("power", lambda op: (op.exponent,)),
    ops.Maximum: partial(_merge, "Maximum"),
    ops.Minimum: partial(_merge, "Minimum"),
    ops.Concat: _concat,
    ops.Reduce: _reduce,
    ops.Identity: _layer("Identity"),
    ops.Dropout: _dropout,
    ops.Flatten: _flatten,
    ops.AsMap: lambda maker, op, name, inputs: maker.layer(
        "Reshape", name, inputs[0], target_shape=(1, 1, inputs[0].shape[-1])
    ),
    ops.PadMap: lambda maker, op, name, inputs: maker.pad(inputs[0], op.pads, op.fill, name),
    ops.ExtendMap: _extend_map,
    ops.CropMap: _spatial("Cropping2D", lambda op: {"cropping": (op.pads[:2], op.pads[2:])}),
    ops.Pad: _pad,
    ops.SliceChannels: lambda maker, op, name, inputs: maker.part(inputs[0], (..., op.cuts[0]), name),
    ops.CropAxis: _crop_axis,
    ops.ChannelShuffle: _channel_shuffle,
    ops.DepthToSpace: _depth_to_space,
    ops.SpaceToDepth: _space_to_depth,
    ops.Upsample: _spatial("UpSampling2D", lambda op: {"size": (op.rows, op.columns)}),
    ops.Resize: resize,
    ops.ResizeLike: resize,
}
"""Every op without a padding site: the value of a node, from its op, its name and its inputs."""

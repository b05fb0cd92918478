"""The shapes that Keras gives the values of layers and operations, for those that porter's ports have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

from porter.frameworks.tf.ports.statement import Shape

_Config = Mapping[str, Any]
_Size = int | None


def layer_shape(kind: str, config: _Config, shapes: Sequence[Shape]) -> Shape:
    """Return the shape of a layer's value, as Keras would infer it. A Conv2D of 3 x 3 with 64 filters, stride
    2 and `valid` pads makes (None, 111, 111, 64) of (None, 224, 224, 3).

    Args:
        kind: the layer's class.
        config: the arguments of its class.
        shapes: those of the values that it is called with.
    """
    first = shapes[0]
    if kind in _SAME_LAYERS:
        return first
    if kind in _MERGES:
        return (first[0], *reduce(_merged_shape, [shape[1:] for shape in shapes]))
    if kind == "Concatenate":
        axis = range(len(first))[config["axis"]]  # counted from the front
        sizes = [shape[axis] for shape in shapes]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        return (*first[:axis], total, *first[axis + 1 :])
    return _LAYERS[kind](config, first)


def operation_shape(kind: str, config: _Config, operands: Sequence[Any]) -> Shape:
    """Return the shape of an operation's value, from the arguments of its class and what it is called with,
    constants too.
    """
    first: Shape = tuple(getattr(operands[0], "shape", ()))
    if kind in _OPERATIONS:
        return _OPERATIONS[kind](config, first, operands)
    return reduce(_broadcast_shape, [tuple(getattr(operand, "shape", ())) for operand in operands])


def _merged_shape(first: Shape, second: Shape) -> Shape:
    """Return the shape of a sum, as in keras/src/layers/merging/base_merge.py,
    `_compute_elemwise_op_output_shape`: open beside any other size is open.
    """
    return tuple(None if a is None or b is None else max(a, b) for a, b in zip(first, second, strict=True))


def _broadcast_shape(first: Shape, second: Shape) -> Shape:
    """Return the shape of a broadcast, as in keras/src/ops/operation_utils.py, `broadcast_shapes`: open
    beside another size than 1 is that size.
    """
    rank = max(len(first), len(second))
    # The shorter one gets axes of one cell in front.
    first, second = ((*[1] * (rank - len(shape)), *shape) for shape in (first, second))
    return tuple(b if a == 1 or (a is None and b != 1) else a for a, b in zip(first, second, strict=True))


def _windowed_shape(config: _Config, shape: Shape, kernel: Sequence[int], channels: int) -> Shape:
    """Return the shape of a convolution's or a pool's value, of so many channels, from the shape of its input
    and the rows and columns of its kernel.
    """
    sizes: list[_Size] = []
    dilations = config.get("dilation_rate", (1, 1))
    for size, cells, stride, dilation in zip(shape[1:3], kernel, config["strides"], dilations, strict=True):
        # SAME pads so that each stride of cells has a window, as one of one cell would.
        extent = 1 if config["padding"] == "same" else (cells - 1) * dilation + 1
        sizes.append(None if size is None else (size - extent) // stride + 1)
    return (shape[0], *sizes, channels)


def _pool_shape(config: _Config, shape: Shape) -> Shape:
    return _windowed_shape(config, shape, config["pool_size"], _last_size(shape))


def _conv_transpose_shape(config: _Config, shape: Shape) -> Shape:
    """Return the shape of a transposed convolution, as in keras/src/backend/common/backend_utils.py,
    `compute_conv_transpose_output_shape`, of valid pads.
    """
    axes = zip(shape[1:3], config["kernel_size"], config["strides"], strict=True)
    sizes = [None if size is None else size * stride + max(cells - stride, 0) for size, cells, stride in axes]
    return (shape[0], *sizes, config["filters"])


def _last_size(shape: Shape) -> int:
    """Return the size of the last axis, which is never open."""
    size = shape[-1]
    assert size is not None, "the last axis of a value is never open"
    return size


def _padded_shape(shape: Shape, sides: Sequence[Sequence[int]], sign: int) -> Shape:
    """Return the shape of a map with more (sign 1) or fewer (sign -1) rows and columns at its sides."""
    sizes = [
        None if size is None else size + sign * sum(pair)
        for size, pair in zip(shape[1:3], sides, strict=True)
    ]
    return (shape[0], *sizes, shape[3])


def _global_pool_shape(config: _Config, shape: Shape) -> Shape:
    """Return the shape of a global pool's value, with or without its axes of one cell."""
    return (shape[0], 1, 1, shape[3]) if config.get("keepdims") else (shape[0], shape[3])


def _reshaped_shape(shape: Shape, target: Sequence[int]) -> Shape:
    """Return the shape that a reshape makes of a shape; a -1 in the target is the rest of the cells, open
    where a size is: (7, 7, 512) to [-1] is (25088,).
    """
    known = prod(size for size in target if size != -1)
    rest = None if None in shape else prod(size or 0 for size in shape) // known
    return tuple(rest if size == -1 else size for size in target)


def _scaled_shape(shape: Shape, factors: Sequence[int]) -> Shape:
    """Return the shape of a map whose rows and columns are multiplied by these factors."""
    return (
        shape[0],
        *(None if size is None else size * n for size, n in zip(shape[1:3], factors, strict=True)),
        shape[3],
    )


_SAME_LAYERS = frozenset(
    {
        "Activation",
        "BatchNormalization",
        "ELU",
        "GroupNormalization",
        "Identity",
        "LayerNormalization",
        "LeakyReLU",
        "Dropout",
        "PReLU",
        "RMSNormalization",
        "ReLU",
        "Rescaling",
        "Softmax",
        "SpatialDropout2D",
    }
)
_MERGES = frozenset({"Add", "Maximum", "Minimum", "Multiply"})
_LAYERS: Mapping[str, Callable[[_Config, Shape], Shape]] = {
    "AveragePooling2D": _pool_shape,
    "Conv2D": lambda config, shape: _windowed_shape(config, shape, config["kernel_size"], config["filters"]),
    "Conv2DTranspose": _conv_transpose_shape,
    "Cropping2D": lambda config, shape: _padded_shape(shape, config["cropping"], -1),
    "Dense": lambda config, shape: (*shape[:-1], config["units"]),
    "DepthwiseConv2D": lambda config, shape: _windowed_shape(
        config, shape, config["kernel_size"], _last_size(shape) * config["depth_multiplier"]
    ),
    "EinsumDense": lambda config, shape: (shape[0], *config["output_shape"]),
    "Flatten": lambda config, shape: (shape[0], *_reshaped_shape(shape[1:], [-1])),
    "GlobalAveragePooling2D": _global_pool_shape,
    "GlobalMaxPooling2D": _global_pool_shape,
    "MaxPooling2D": _pool_shape,
    "Permute": lambda config, shape: (shape[0], *(shape[axis] for axis in config["dims"])),
    "Reshape": lambda config, shape: (shape[0], *_reshaped_shape(shape[1:], config["target_shape"])),
    "Resizing": lambda config, shape: (shape[0], config["height"], config["width"], shape[3]),
    "UpSampling2D": lambda config, shape: _scaled_shape(shape, config["size"]),
    "ZeroPadding2D": lambda config, shape: _padded_shape(shape, config["padding"], 1),
}


def _slice_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape of a part, as in keras/src/ops/numpy.py, `GetItem`: a slice of an open size is open,
    and an index takes its axis away. `config` is unused; all such rules have these parameters.
    """
    # The `...` of a key stands for all axes that it does not name; without one they come last.
    key = list(operands[1])
    if ... not in key:
        key.append(...)
    index = key.index(...)
    unnamed_axes = len(shape) - (len(key) - 1)
    key[index : index + 1] = [slice(None)] * unnamed_axes
    return tuple(
        size if size is None else len(range(*item.indices(size)))
        for item, size in zip(key, shape, strict=True)
        if isinstance(item, slice)
    )


def _reduction_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape of a reduction's value, without its axis or with one cell along it; () where it is
    over all axes.
    """
    if "axis" not in config:
        return ()
    axis = range(len(shape))[config["axis"]]  # counted from the front
    kept_axis = (1,) if config.get("keepdims") else ()
    return (*shape[:axis], *kept_axis, *shape[axis + 1 :])


def _repeat_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape of a value whose cells are repeated along an axis."""
    axis = config["axis"]
    size = shape[axis]
    repeated = None if size is None else size * config["repeats"]
    return (*shape[:axis], repeated, *shape[axis + 1 :])


def _swapaxes_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape with two axes swapped."""
    order = [*range(len(shape))]
    first, second = config["axis1"], config["axis2"]
    order[first], order[second] = order[second], order[first]
    return tuple(shape[axis] for axis in order)


def _take_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape of chosen cells along an axis; the axes of the indices replace it."""
    indices = operands[1]
    axis = range(len(shape))[config["axis"]]  # counted from the front
    count: Shape = (len(indices),) if isinstance(indices, list) else indices.shape
    return (*shape[:axis], *count, *shape[axis + 1 :])


def _matmul_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    """Return the shape of a matrix product over the last two axes; those before are stretched to each
    other.
    """
    second: Shape = operands[1].shape
    return (*_broadcast_shape(shape[:-2], second[:-2]), shape[-2], second[-1])


def _depth_to_space_shape(config: _Config, shape: Shape, operands: Sequence[Any]) -> Shape:
    block = config["block_size"]
    return (*_scaled_shape(shape, (block, block))[:3], _last_size(shape) // block**2)


_OPERATIONS: Mapping[str, Callable[[_Config, Shape, Sequence[Any]], Shape]] = {
    "DepthToSpace": _depth_to_space_shape,
    "GetItem": _slice_shape,
    "Matmul": _matmul_shape,
    **dict.fromkeys(("Max", "Mean", "Norm", "Sum"), _reduction_shape),
    "Pad": lambda config, shape, operands: tuple(
        None if size is None else size + sum(pair)
        for size, pair in zip(shape, config["pad_width"], strict=True)
    ),
    "Repeat": _repeat_shape,
    "Reshape": lambda config, shape, operands: _reshaped_shape(shape, config["newshape"]),
    "Swapaxes": _swapaxes_shape,
    "Take": _take_shape,
}
"""The shapes of operations whose value has another shape than their operands stretched to each other."""

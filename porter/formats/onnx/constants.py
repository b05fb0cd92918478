"""What ONNX makes of constants only, and what its operators state of sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from porter.base.dtypes import Dtype, Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.kernels.windows import Grid, average_pool
from porter.filegraph.layouts.dims import BATCH, PLACE, Dim, fixed_sizes
from porter.filegraph.layouts.size_arrays import as_real, as_whole, sizes_array
from porter.filegraph.places import position_of
from porter.filegraph.readers import Functions
from porter.filegraph.tensors.constants import arange, expect_room
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.onnx.nodes import OnnxNode
from porter.formats.onnx.proto import import_onnx

INTEGER_TYPES = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
HALF_TYPES: Mapping[int, Dtype] = {10: "float16", 16: "bfloat16"}
FLOAT_TYPES = frozenset({1, 11, *HALF_TYPES})
"""TensorProto.DataType of real numbers: 1 is float32, 11 is float64. INTEGER_TYPES has those of whole
numbers.
"""
_BOOL = 9
RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def is_cast_to_floats(node: OnnxNode) -> bool:
    """Return whether a node casts to real numbers. Casts to halves are read in exact arithmetic."""
    return node.op == "Cast" and node.integer("to") in FLOAT_TYPES


def is_cast_to_integers(node: OnnxNode) -> bool:
    """Return whether a node casts to INT32 or INT64."""
    return node.op == "Cast" and node.integer("to") in (6, 7)


def cast_numbers(node: OnnxNode, x: Numbers) -> Numbers:
    """Return the numbers of a Cast as booleans, as whole or as real ones; the width of a type does not
    matter.
    """
    kind = node.integer("to")
    if kind == _BOOL:
        return x.astype(np.bool_)
    if kind in INTEGER_TYPES:
        return as_whole(x)
    return as_real(x) if kind in FLOAT_TYPES else x  # kinds matter: two whole numbers divide to a whole one


def sizes_of_reshape(node: OnnxNode, own: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim]:
    """Return the sizes of a Reshape: 0 stands for the size that the value has there, unless `allowzero` is
    set.

    Args:
        own: the sizes of the value.
        wanted: the sizes that the node states.
    """
    keeps = not node.integer("allowzero")
    return [own[index] if size == 0 and keeps else size for index, size in enumerate(wanted)]


def stated_sizes(node: OnnxNode, sizes: Sequence[Dim]) -> Numbers:
    """Return the numbers that Shape and Size give of a value with these sizes: a part of the sizes, or their
    product.
    """
    part = slice(node.integer("start"), node.attributes["end"].i if "end" in node.attributes else None)
    return sizes_array(math.prod(sizes) if node.op == "Size" else sizes[part])


def filled_number(node: OnnxNode) -> float | None:
    """Return the number of which a ConstantOfShape makes an array, 0 where it states none; None if what it
    states is not one real or whole number.
    """
    if "value" not in node.attributes:
        return 0.0
    array = import_onnx().numpy_helper.to_array(node.attributes["value"].t)
    return array.ravel()[0].item() if array.size == 1 and array.dtype.kind in "iuf" else None


def _read_range(node: OnnxNode, start: Tensor, limit: Tensor, step: Tensor) -> Numbers:
    """Read a Range of known numbers, or of the images of a free batch."""
    numbers = start.item(), limit.item(), step.item()
    # A count up to the size of the batch: each image's own place in it.
    return sizes_array([PLACE]) if numbers == (0, BATCH, 1) else arange(*numbers)


def stated_slices(node: OnnxNode, rank: int, numbers: Sequence[Sequence[Dim] | None]) -> list[slice]:
    """Return the part of each axis that a Slice takes; axes that it does not name stay whole.

    Args:
        rank: how many axes the input has.
        numbers: its starts, ends, axes and steps, None for each that is missing.

    Raises:
        ValueError: starts and ends are missing, or an axis does not exist.
    """
    starts, ends, axes, steps = numbers
    if starts is None or ends is None:
        raise ValueError("a Slice without starts and ends")
    parts = [slice(None)] * rank
    axes_of_parts = list(range(len(starts))) if axes is None else fixed_sizes(axes)
    for axis, start, end, step in zip(axes_of_parts, starts, ends, steps or [1] * len(starts), strict=True):
        if not -rank <= axis < rank:
            raise ValueError("a Slice of an axis that its input lacks")
        parts[axis] = slice(start, end, step)
    return parts


def average_constant(node: OnnxNode, x: Numbers) -> Numbers:
    """Return the means of the windows of a constant map. Raise Unsupported where pads would take part, or for
    another array than a map.
    """
    if (
        any(node.integers("pads"))
        or node.integer("ceil_mode")
        or node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    ):
        raise Unsupported("of a constant over pads")
    kernel, stride, dilation = (
        node.integers(name) or (1, 1) for name in ("kernel_shape", "strides", "dilations")
    )
    if x.ndim != 4 or len(kernel) != 2:
        raise Unsupported("of a constant without rows and columns")
    expect_room(x.size * math.prod(kernel))
    return average_pool(x, (kernel[0], kernel[1]), Grid((stride[0], stride[1]), (dilation[0], dilation[1])))


def _read_dequantize(node: OnnxNode, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Read DequantizeLinear: the real numbers that integers of 8 bits stand for, by one scale, or by one for
    each index of an axis. Raise Unsupported for a value that the model computes, and for scales of blocks.
    """
    if x.array is None:
        raise Unsupported("of a value")
    if node.integer("block_size") or scale.rank > 1:
        raise Unsupported("by scales of blocks")
    # One cell along every axis but the one that has a scale for each index.
    scale_shape = [1] * x.rank
    if scale.rank:
        scale_shape[position_of(node.integer("axis", 1), x.rank)] = -1
    shifted = x.real() if zero is None else x.real() - zero.reshape(scale_shape)
    return shifted * scale.reshape(scale_shape)


def _read_eye(node: OnnxNode, x: Tensor) -> Numbers:
    """Read EyeLike, a matrix with ones on a diagonal."""
    rows, columns = fixed_sizes(x.sizes)
    expect_room(rows * columns)
    return np.eye(rows, columns, node.integer("k"))


FUNCTIONS: Functions = {
    "DequantizeLinear": _read_dequantize,
    "EyeLike": _read_eye,
    "Range": _read_range,
}

"""The tensors of a TensorFlow Lite model: those that it stores, and what it states of each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Float64Array
from porter.base.name_tables import by_name
from porter.formats.limits import most_bytes
from porter.formats.tflite import schema
from porter.formats.tflite.flatbuffer import Table
from porter.formats.tflite.sparse import fill_dense

_CONVERT_AGAIN = "convert the model again with a current TensorFlow"
_MOST_AXES = 8
_HYBRID = by_name(
    {
        "CONV_2D FULLY_CONNECTED": (schema.UINT8, schema.INT8),
        "BATCH_MATMUL DEPTHWISE_CONV_2D TRANSPOSE_CONV": (schema.INT8,),
    }
)
"""Operators of real numbers that take a kernel of whole numbers as it is stored, of these kinds of the
schema's TensorType. Both are int8 to them, whose zero is 0, whatever the file states: what TensorFlow 1.11 to
1.13 stored as UINT8 is int8. Others read what DEQUANTIZE makes of such a tensor.
"""


class Unread(Exception):
    """The model is not damaged, but porter does not read it.

    Attributes:
        next: what to do.
    """

    def __init__(self, message: str, next: str) -> None:
        super().__init__(message)
        self.next = next


def read_stored(
    data: bytes,
    names: Sequence[str],
    tensors: Sequence[Table],
    buffers: Sequence[Table],
    readers: Mapping[int, Collection[str]],
) -> dict[str, Array]:
    """Return the tensors that have numbers in the file, by name. Tensors without numbers are values of
    operators or inputs, and are left out.

    Args:
        readers: the operators that read each tensor, by its index.
    """
    arrays = dict[str, Array]()
    budget = most_bytes(len(data))
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        content = _buffer_bytes(data, buffers, tensor.scalar(schema.TENSOR_BUFFER))
        if content is None:
            continue
        arrays[name] = array = read_array(name, tensor, content, budget, readers.get(index, ()))
        # A view of the file takes no further memory.
        is_view = array.base is not None
        budget -= 0 if is_view else array.nbytes
        if budget < 0:
            raise ValueError("its tensors unpack to more than the file can hold")
    return arrays


def type_of(tensor: Table) -> int:
    """Return the number of a tensor's type in the schema."""
    number: int = tensor.scalar(schema.TENSOR_TYPE)
    return number


def _buffer_bytes(data: bytes, buffers: Sequence[Table], index: int) -> Array | None:
    """Return the bytes of a buffer, which stand behind the tables in files above 2 GiB; None for an empty
    one.
    """
    buffer = buffers[index]
    start, size = buffer.scalar(schema.BUFFER_OFFSET), buffer.scalar(schema.BUFFER_SIZE)
    is_behind_tables = start > 1  # 0 and 1 say that it is not
    if is_behind_tables and start + size <= len(data):
        return np.frombuffer(data, np.uint8, size, start)
    content = buffer.numbers(schema.BUFFER_DATA)
    return content if content.size else None


def read_array(
    name: str, tensor: Table, content: Array, byte_limit: int, readers: Collection[str] = ()
) -> Array:
    """Return a stored tensor; real numbers of a type of half the width, and quantised ones, become float32.

    Args:
        byte_limit: the bytes that a sparse one may become.
        readers: the operators that read it.
    """
    dtype = schema.NUMPY_TYPES.get(type_of(tensor))
    if dtype is None:
        message = (
            f"the tensor '{name}' has the type {type_of(tensor)} of the schema, which porter does not read"
        )
        raise Unread(message, "convert the model again with weights of float32 or float16")
    array = _stored_numbers(name, tensor, content, np.dtype(dtype).newbyteorder("<"), byte_limit)
    quantisation = quantisation_of(tensor)
    if quantisation is None:
        return array.astype(np.float32) if dtype == "f2" else array
    scale, zero, axis = quantisation
    cells = array.shape[axis] if axis < array.ndim else 1
    if scale.size not in (1, cells) or zero.size not in (0, 1, scale.size):
        raise ValueError(f"the tensor '{name}' has {scale.size} scales along an axis of other cells")
    # Operators that take real values with a quantised kernel read its bytes as signed, and no zero points.
    if not _HYBRID.keys().isdisjoint(readers):
        _expect_hybrid(name, tensor, scale.size, zero, readers)
        array = array.view("i1")
        zero = zero[:0]
    along_axis = [1] * array.ndim
    if scale.size > 1:
        along_axis[axis] = -1
    shift: Float64Array | int = 0
    if zero.size:
        shift = zero.astype(np.float64).reshape(along_axis if zero.size > 1 else -1)
    shifted = array.astype(np.float64) - shift
    return (shifted * scale.astype(np.float64).reshape(along_axis)).astype(np.float32)


def _stored_numbers(name: str, tensor: Table, content: Array, dtype: np.dtype[Any], byte_limit: int) -> Array:
    """Return a tensor's numbers in the type that the file has them in; sparse ones are filled up with zeros.
    Raise ValueError if they are not as many as the shape says.

    Args:
        dtype: of a number in the file.
        byte_limit: the bytes that a sparse tensor may become.
    """
    shape = tuple(int(size) for size in tensor.numbers(schema.TENSOR_SHAPE))
    sparsity = tensor.table(schema.TENSOR_SPARSITY)
    cells = math.prod(shape)
    fits = sparsity is not None or cells * dtype.itemsize == content.size
    if len(shape) > _MOST_AXES or min(shape, default=0) < 0 or not fits:
        raise ValueError(
            f"the tensor '{name}' has {content.size} bytes, not those of "
            f"{'x'.join(map(str, shape)) or 'one number'}"
        )
    if sparsity is None:
        return content.view(dtype).reshape(shape)
    float32_bytes = cells * 4
    if float32_bytes > byte_limit or content.size % dtype.itemsize:
        raise ValueError(f"the sparse tensor '{name}' is larger than the file can hold")
    return fill_dense(content.view(dtype), shape, sparsity)


def _expect_hybrid(name: str, tensor: Table, scales: int, zero: Array, readers: Collection[str]) -> None:
    """Raise Unread for a quantised kernel that TensorFlow Lite's operators of real numbers do not take as
    stored, and for one that its readers take for different numbers.

    Args:
        scales: how many the kernel has.
        readers: the operators that read it.
    """
    kind = type_of(tensor)
    channels = int(tensor.numbers(schema.TENSOR_SHAPE)[-1])
    unsuited = next((op for op in sorted(readers) if kind not in _HYBRID.get(op, (kind,))), None)
    problem = ""
    if unsuited is not None:
        problem = f"which TensorFlow Lite's {unsuited} does not take beside real numbers"
    elif kind == schema.UINT8 and "CONV_2D" in readers and scales > 1:
        problem = f"with {scales} scales, of which TensorFlow Lite's CONV_2D takes the first"
    elif "DEPTHWISE_CONV_2D" in readers and scales < channels:
        problem = f"and TensorFlow Lite's DEPTHWISE_CONV_2D takes {channels} scales of it, not {scales}"
    elif (kind == schema.UINT8 or zero.any()) and not _HYBRID.keys() >= {*readers}:
        problem = f"which {' and '.join(sorted(readers))} take for other numbers each"
    if problem:
        raise Unread(f"the kernel '{name}' is of whole numbers, {problem}", _CONVERT_AGAIN)


def quantisation_of(tensor: Table) -> tuple[Array, Array, int] | None:
    """Return the scales and zero points of a quantised tensor, and the axis that they are along; None for a
    tensor that is not quantised.
    """
    table = tensor.table(schema.TENSOR_QUANTISATION) if type_of(tensor) in schema.QUANTISED else None
    if table is None:
        return None
    scale = table.numbers(schema.SCALE)
    if not scale.size:
        return None
    return scale, table.numbers(schema.ZERO_POINT), abs(table.scalar(schema.QUANTISED_AXIS))


def open_sizes(tensor: Table) -> tuple[int | None, ...]:
    """Return a tensor's sizes, None where they are open, which is -1 in its signature."""
    shape, signature = (
        tensor.numbers(schema.TENSOR_SHAPE),
        tensor.numbers(schema.TENSOR_SHAPE_SIGNATURE),
    )
    sizes = signature if signature.size == shape.size else shape
    return tuple(int(size) if size > 0 else None for size in sizes)

"""What ATen makes of constants only: grids, tables and their rows, and casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors.constants import MOST_COMPUTED, arange, expect_room, full
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.walk import Outputs
from porter.formats.torch_export.archive import FLOATS, TYPES
from porter.formats.torch_export.nodes import AtenNode
from porter.formats.torch_export.rewrites import ROWS

REALS = (None, *FLOATS)
"""Types of a cast that changes no function in exact arithmetic: real numbers (ScalarType)."""
_BOOL, _WHOLE = 12, 5
"""ScalarType, of which the latter has 64 bits."""
SAME = ("alias", "contiguous", "detach", "lift_fresh")
"""Ops that give what they take, in the same memory or, for `contiguous`, perhaps in other."""
COPIES = ("clone", "lift_fresh_copy")
"""Ops that give what they take in memory of its own."""
RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})
_UPSAMPLES = (
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
SIZED = ("expand", "repeat", "tile", "zeros", "ones", "full", *RESHAPES, *_UPSAMPLES)
"""Ops that take sizes, of which one may be the number of images; of the others the program says what they
are.
"""
_ALONG_AXIS = ("cumsum", "softmax", "sum")
"""The ops that compute along an axis from all of its numbers. Others that take them together give another
size, or take one image.
"""


def is_cast(node: AtenNode) -> bool:
    """Return whether a node gives the real numbers that it takes, as real numbers: a cast such as
    `x.to(torch.float16)`, a copy, or what does nothing in inference.
    """
    return node.op in (*SAME, *COPIES, "to", "_to_copy") and node.arguments.get("dtype") in REALS


def cast(x: Numbers, kind: int | None) -> Numbers | None:
    """Return a constant cast to a ScalarType: whole numbers as real ones, ones and zeros as truths, and whole
    real numbers as such. Return None for a cast that rounds.
    """
    if kind == _BOOL and np.isin(x, (0, 1)).all():
        return x.astype(np.bool_)
    if kind == _WHOLE and np.array_equal(x, np.trunc(x)):
        return x.astype(np.int64)
    if kind not in REALS:
        return None
    # None: no cast is asked for.
    return x if kind is None else x.astype(np.float64)


def type_name(scalar_type: Any) -> str:
    """Return the name of a number type that an op states."""
    return TYPES.get(scalar_type, "another type") if isinstance(scalar_type, int) else "another type"


def constant_sizes(node: AtenNode, sizes: Sequence[Any]) -> list[Any]:
    """Return the sizes of a constant, or of its last axes. One that the program computes is known from what
    it says of the node's value; of open ones, the first may be the number of images: see
    `are_same_for_images`.
    """
    # The sizes of the value's last axes, as many as are asked for.
    value_sizes = node.sizes[0][len(node.sizes[0]) - len(sizes) :]
    known = [
        size if isinstance(size, int) else value_size
        for size, value_size in zip(sizes, value_sizes, strict=True)
    ]
    are_of_all_axes = len(value_sizes) == len(node.sizes[0])
    if are_of_all_axes and known and isinstance(known[0], str):
        known[0] = 1  # the number of images
    return known


def are_same_for_images(
    nodes: Mapping[str, AtenNode], node: AtenNode, arrays: Sequence[Numbers | None]
) -> bool:
    """Return whether constants are the same for each image: what a program repeats for each image is computed
    once, and its first axis has one cell for an open size.
    """
    # An output that is no tensor has none.
    input_sizes = [sizes for name, output in node.inputs for sizes in nodes[name].sizes[output : output + 1]]
    if not any(isinstance(size, str) for sizes in (*input_sizes, *node.sizes) for size in sizes):
        return True
    dims = node.arguments["dim"] if node.op in _ALONG_AXIS else []
    axes = dims if isinstance(dims, list) else [dims]
    # An open size is a text, and at the first axis that of the batch.
    expected = [(1, *sizes[1:]) if sizes and isinstance(sizes[0], str) else sizes for sizes in node.sizes]
    shapes = [array.shape for array in arrays if array is not None]
    return shapes == expected and not any(axis % len(input_sizes[0]) == 0 for axis in axes)


def _fill_function(number: float | None = None) -> Callable[..., Numbers]:
    """Return the function that makes an array of one number: of `number` (zeros or ones), or of the one that
    the op states (`full`) where it is None.
    """

    def fill(
        size: Sequence[int],
        fill_value: Tensor | float | None = number,
        dtype: int | None = None,
    ) -> Numbers:
        """Return an array of one number."""
        if not isinstance(fill_value, int | float):
            raise Unsupported("of a number that the program computes")
        filled_array = cast(full(size, float(fill_value)), dtype if dtype in (_BOOL, _WHOLE) else None)
        if filled_array is None:
            raise Unsupported("of a number of another type")
        return filled_array

    return fill


def _linspace(start: Tensor | float, end: Tensor | float, steps: int, dtype: int | None = None) -> Numbers:
    """Return so many numbers at equal distances, from `start` to `end`.

    Args:
        dtype: unused: kinds of numbers, not types, count here.
    """
    if not isinstance(steps, int) or not 0 < steps <= MOST_COMPUTED:
        raise Unsupported("of numbers that the program computes")
    first, last = (bound.number() if isinstance(bound, Tensor) else float(bound) for bound in (start, end))
    return np.linspace(first, last, steps)


def _meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> Outputs:
    """Return the grids of the coordinates along each axis, one for each axis."""
    arrays = [tensor.numbers() for tensor in tensors]
    expect_room(math.prod(array.size for array in arrays))
    return [np.asarray(grid) for grid in np.meshgrid(*arrays, indexing=indexing)]  # type: ignore[call-overload]


def _expect_rows(rows: Numbers, count: int, width: int) -> Numbers:
    """Return indices of rows if the table has these: it has `count` rows, of `width` numbers each.

    Raises:
        ValueError: they are no such rows.
    """
    if rows.dtype.kind != "i" or not rows.size or rows.min() < 0 or rows.max() >= count:
        raise ValueError("places of rows that the table lacks")
    expect_room(rows.size * width)
    return rows


def _take_rows(scope: Scope, dims: Sequence[int]) -> Numbers:
    """Return rows of a table by their indices; each first axis of these may have a table of its own."""
    indices, table = (scope.tensor(source).numbers() for source in scope.node.inputs)
    # `dims` puts the axes of the indices in the order of those that the product had.
    rows = indices.transpose(dims)
    *_, count, width = table.shape
    tables = np.broadcast_to(table, (*rows.shape[:-1], count, width))
    return np.take_along_axis(tables, _expect_rows(rows, count, width)[..., None], -2)


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Numbers:
    """Return rows of a table by stored indices."""
    table = weight.numbers()
    return np.asarray(table[_expect_rows(indices.numbers(), len(table), table[0].size)])


def take_indexed(x: Numbers, indices: Sequence[Numbers | None]) -> Numbers:
    """Return the numbers at these indices, axis by axis, as numpy takes them; None takes a whole axis. Raise
    Unsupported for masks.
    """
    stated = [index for index in indices if index is not None]
    # Axes that no index stands for are whole too.
    index_by_axis = (*indices, *[None] * x.ndim)
    whole_sizes = [size for size, index in zip(x.shape, index_by_axis, strict=False) if index is None]
    if any(index.dtype.kind != "i" for index in stated):
        raise Unsupported("by something else than places")
    indexed_shape = np.broadcast_shapes(*(index.shape for index in stated))
    expect_room(math.prod((*indexed_shape, *whole_sizes)))
    return np.asarray(x[tuple(slice(None) if index is None else index for index in indices)])


def convolve_pointwise(x: Numbers, kernel: Numbers, bias: Numbers | None) -> Numbers:
    """Return a 1x1 convolution of a constant map."""
    if kernel.shape[2:] != (1, 1):
        raise Unsupported("of a constant over several cells")
    expect_room(len(x) * len(kernel) * math.prod(x.shape[2:]), x, kernel)
    products: Numbers = np.einsum("nchw,fc->nfhw", x, kernel[:, :, 0, 0])
    return products if bias is None else products + bias[:, None, None]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    ROWS: _take_rows,
    "arange": lambda end, start=0, step=1, dtype=None: arange(start, end, step),
    "embedding": _embedding,
    "full": _fill_function(),
    "linspace": _linspace,
    "meshgrid": _meshgrid,
    "ones": _fill_function(1.0),
    "scalar_tensor": lambda s, dtype=None: np.asarray(float(s)),
    "zeros": _fill_function(0.0),
}

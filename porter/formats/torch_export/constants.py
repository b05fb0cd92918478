"""What ATen makes of constants only: grids, tables and their rows, and casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.constants import MOST_COMPUTED, arange, expect_room, full
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensor import Scope, Tensor
from porter.filegraph.walk import Outputs
from porter.formats.torch_export.archive import FLOATS
from porter.formats.torch_export.nodes import AtenNode
from porter.formats.torch_export.one_hots import ROWS

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
_OVER = ("cumsum", "softmax", "sum")
"""The ops that compute along an axis from all of its numbers. Others that take them together give another
size, or take one image.
"""


def is_cast(node: AtenNode) -> bool:
    return node.op in (*SAME, *COPIES, "to", "_to_copy") and node.arguments.get("dtype") in REALS


def cast(x: Numbers, kind: int | None) -> Numbers | None:
    """Whole numbers as real ones, ones and zeros as truths, and whole ones of real numbers; None for a cast
    that rounds.
    """
    if kind == _BOOL and np.isin(x, (0, 1)).all():
        return x.astype(np.bool_)
    if kind == _WHOLE and np.array_equal(x, np.trunc(x)):
        return x.astype(np.int64)
    if kind not in REALS:
        return None
    return x if kind is None else x.astype(np.float64)


def constant_sizes(node: AtenNode, sizes: Sequence[Any]) -> list[Any]:
    """Sizes of a constant, or of its last axes. One that the program computes is known from what it says of
    the node's value; of open ones, the first may be the number of images: see `of_each_image`.
    """
    own = node.sizes[0][len(node.sizes[0]) - len(sizes) :]
    at_run = [size if isinstance(size, int) else there for size, there in zip(sizes, own, strict=True)]
    is_whole = len(own) == len(node.sizes[0])
    return [
        1 if is_whole and index == 0 and isinstance(size, str) else size for index, size in enumerate(at_run)
    ]


def of_each_image(nodes: Mapping[str, AtenNode], node: AtenNode, given: Sequence[Numbers | None]) -> bool:
    """Whether constants are the same for each image: what a program repeats for each image is computed once,
    and its first axis has one cell for an open size.
    """
    taken = [sizes for name, output in node.inputs for sizes in nodes[name].sizes[output : output + 1]]
    if not any(isinstance(size, str) for sizes in (*taken, *node.sizes) for size in sizes):
        return True
    dims = node.arguments["dim"] if node.op in _OVER else []
    over = dims if isinstance(dims, list) else [dims]
    wanted = [(1, *sizes[1:]) if sizes and isinstance(sizes[0], str) else sizes for sizes in node.sizes]
    shapes = [each.shape for each in given if each is not None]
    return shapes == wanted and not any(dim % len(taken[0]) == 0 for dim in over)


def _filled(number: float | None = None) -> Callable[..., Numbers]:
    """zeros, ones, and full of a stated number."""

    def filled(
        size: Sequence[int],
        fill_value: Tensor | float | None = number,
        dtype: int | None = None,
    ) -> Numbers:
        if not isinstance(fill_value, int | float):
            raise Unsupported("of a number that the program computes")
        filled_array = cast(full(size, float(fill_value)), dtype if dtype in (_BOOL, _WHOLE) else None)
        if filled_array is None:
            raise Unsupported("of a number of another type")
        return filled_array

    return filled


def _linspace(start: Tensor | float, end: Tensor | float, steps: int, dtype: int | None = None) -> Numbers:
    if not isinstance(steps, int) or not 0 < steps <= MOST_COMPUTED:
        raise Unsupported("of numbers that the program computes")
    first, last = (each.number() if isinstance(each, Tensor) else float(each) for each in (start, end))
    return np.linspace(first, last, steps)


def _meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> Outputs:
    arrays = [each.numbers() for each in tensors]
    expect_room(math.prod(each.size for each in arrays))
    return [np.asarray(each) for each in np.meshgrid(*arrays, indexing=indexing)]  # type: ignore[call-overload]


def _places(places: Numbers, count: int, width: int) -> Numbers:
    """Places among so many rows, of which each has so many numbers.

    Raises:
        ValueError: they are no such places.
    """
    if places.dtype.kind != "i" or not places.size or places.min() < 0 or places.max() >= count:
        raise ValueError("places of rows that the table lacks")
    expect_room(places.size * width)
    return places


def _rows(scope: Scope, dims: Sequence[int]) -> Numbers:
    """Rows of a table at places, of which each first axis may have a table of its own."""
    indices, table = (scope.tensor(each).numbers() for each in scope.node.inputs)
    places = indices.transpose(dims)
    *_, count, width = table.shape
    tables = np.broadcast_to(table, (*places.shape[:-1], count, width))
    return np.take_along_axis(tables, _places(places, count, width)[..., None], -2)


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Numbers:
    """Rows of a table at stored places."""
    table = weight.numbers()
    return np.asarray(table[_places(indices.numbers(), len(table), table[0].size)])


def indexed(x: Numbers, indices: Sequence[Numbers | None]) -> Numbers:
    """Numbers at places that are whole numbers, axis by axis."""
    places = [each for each in indices if each is not None]
    rest = [size for size, each in zip(x.shape, (*indices, *[None] * x.ndim), strict=False) if each is None]
    if any(each.dtype.kind != "i" for each in places):
        raise Unsupported("by something else than places")
    expect_room(math.prod((*np.broadcast_shapes(*(each.shape for each in places)), *rest)))
    return np.asarray(x[tuple(slice(None) if each is None else each for each in indices)])


def pointwise(x: Numbers, kernel: Numbers, bias: Numbers | None) -> Numbers:
    """A 1x1 convolution of a constant map."""
    if kernel.shape[2:] != (1, 1):
        raise Unsupported("of a constant over several cells")
    expect_room(len(x) * len(kernel) * math.prod(x.shape[2:]), x, kernel)
    products: Numbers = np.einsum("nchw,fc->nfhw", x, kernel[:, :, 0, 0])
    return products if bias is None else products + bias[:, None, None]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    ROWS: _rows,
    "arange": lambda end, start=0, step=1, dtype=None: arange(start, end, step),
    "embedding": _embedding,
    "full": _filled(),
    "linspace": _linspace,
    "meshgrid": _meshgrid,
    "ones": _filled(1.0),
    "scalar_tensor": lambda s, dtype=None: np.asarray(float(s)),
    "zeros": _filled(0.0),
}

"""What ATen does with the axes of tensors. An axis is named by its place, from either end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from porter.base.dtypes import Numbers
from porter.base.left_out import LeftOut
from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import View
from porter.filegraph.layouts.dims import Dim, fixed_sizes
from porter.filegraph.places import position_of
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.several import concat, stack
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.walk import Zeros, leave_out
from porter.formats.torch_export.constants import COPIES, REALS, SAME, cast, take_indexed, type_name
from porter.formats.torch_export.op_readers import AtenFunction, as_list

DROPOUTS: Mapping[str, str] = {
    "dropout": "Dropout",
    "feature_dropout": "Dropout2d",
    "alpha_dropout": "AlphaDropout",
    "feature_alpha_dropout": "FeatureAlphaDropout",
}
"""The dropouts of torch, by the names of their ops."""


def _dropout(scope: Scope, x: Tensor, p: float, train: bool) -> Tensor | View:
    """Return the value of a dropout, which does nothing outside of training, and record it as left out."""
    if x.array is not None:
        return x
    if train:
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")
    node = scope.node
    return leave_out(scope.walk, LeftOut(node.module or node.name, DROPOUTS[node.op], float(p)), x.reference)


def _pass_on(
    x: Tensor,
    dtype: int | None = None,
    other: Tensor | None = None,
) -> Tensor | Numbers:
    """Return the value of a cast between real numbers, of a copy, or of what does nothing in inference.
    Constants are cast as numbers; a value's cast that rounds is Unsupported.

    Args:
        other: unused: the value that the op takes beside `x`.
    """
    array = x.array
    if array is not None and (converted := cast(array, dtype)) is not None:
        return converted
    if dtype not in REALS:
        raise Unsupported(f"as a cast to {type_name(dtype)}, which rounds")
    return x


def _roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Return `x` with the cells of some axes moved on, those at the end to the beginning; all axes as one are
    Unsupported.
    """
    if dims in ([], ()):
        raise Unsupported("of all axes as one")
    return x.roll(dict(zip(as_list(dims), as_list(shifts), strict=True)))


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor | Numbers:
    """Return the cells of one axis at these places, as `x[:, [2, 0, 1]]` takes them; the other axes are None.
    A constant may be indexed along several axes; a value is Unsupported then.
    """
    if x.array is not None:
        return take_indexed(x.array, [None if index is None else index.numbers() for index in indices])
    # The first axis that is indexed, and any others.
    ((axis, cells), *further) = ((axis, index) for axis, index in enumerate(indices) if index is not None)
    shape = x.walk.constant_shape(cells.source)
    if further or shape is None or len(shape) != 1:
        raise Unsupported("of several axes, or by indices that the model computes")
    return x.gather(axis, cells.integers())


def _unflatten(x: Tensor, dim: int, sizes: Sequence[Dim]) -> Tensor:
    """Return `x` with several axes in place of one."""
    axis = position_of(dim, len(x.sizes))
    return x.reshape([*x.sizes[:axis], *sizes, *x.sizes[axis + 1 :]])


def _squeeze(x: Tensor, dim: Any = None) -> Tensor:
    """Return the value without axes of one cell; those of several cells stay, also if they are named."""
    sizes = x.sizes
    axes = range(len(sizes)) if dim is None else as_list(dim)
    squeezed = [axis for axis in axes if sizes[axis] == 1]
    return x.squeeze(squeezed) if squeezed else x


def _repeat(x: Tensor, repeats: Sequence[Dim]) -> Tensor:
    """Return whole copies of `x` along each axis, one after the other; for a value, a number for each of its
    axes.
    """
    if len(repeats) != x.rank and x.array is None:
        raise Unsupported(f"of {x.rank} axes by {len(repeats)} numbers")
    return x.repeat(repeats)


def _repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, output_size: Any = None) -> Tensor:
    """Return each cell of an axis several times, one after the other; those of the first axis are images."""
    if not isinstance(repeats, int) or dim is None:
        raise Unsupported("by numbers of each cell, or of a flat tensor")
    return x.repeat_images(repeats) if dim in (0, -x.rank) else x.interleave(dim, repeats)


def _narrow(x: Tensor, dim: int, start: Dim, length: Dim) -> Tensor:
    """Return so many cells from `start` on. A start below 0 counts from the end, as where the cells end."""
    # -2 and 2 cells are the last two, whose slice has no end.
    end = start + length
    return x.cut({dim: slice(start, None if end == 0 and start != 0 else end)})


def _split(x: Tensor, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> list[Tensor]:
    """Return parts of so many cells, of which the last may have fewer, or of stated sizes."""
    sizes = split_size if split_sizes is None else split_sizes
    return x.split(dim, sizes if isinstance(sizes, list) else _piece_sizes(x, dim, sizes))


def _chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """Return at most `chunks` parts of an axis, of one size but for the last, which may be smaller."""
    (size,) = fixed_sizes([x.size(dim)])
    return x.split(dim, _piece_sizes(x, dim, -(-size // chunks)))


def _piece_sizes(x: Tensor, axis: int, most_cells: Dim) -> list[int]:
    """Return the sizes of the parts of an axis that have `most_cells`, but the last one perhaps fewer: 7
    cells in parts of 3 give [3, 3, 1].
    """
    size, largest = fixed_sizes([x.size(axis), most_cells])
    if largest < 1 or size > largest * x.scope.node.outputs:
        raise Unsupported(f"of {size} cells into parts of {largest}")
    return [min(largest, size - start) for start in range(0, size, largest)]


VIEWS: Mapping[str, AtenFunction] = by_name(
    {
        **dict.fromkeys((*SAME, "to"), _pass_on),
        **dict.fromkeys(DROPOUTS, _dropout),
        "_unsafe_view view": lambda x, size: x.reshape(as_list(size)),
        "reshape_as view_as": lambda x, other: x.reshape(other.sizes),
        "split split_with_sizes": _split,
        "chunk": _chunk,
        "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal((dim1, dim2), offset),
        "expand": lambda x, size: x.expand(as_list(size)),
        "expand_as": lambda x, other: x.expand(other.sizes),
        "flatten": lambda x, start_dim=0, end_dim=-1: x.flatten(start_dim, end_dim),
        "mT": lambda x: functions.swap_axes(x, -2, -1),
        "movedim": lambda x, source, destination: functions.move_axes(
            x, as_list(source), as_list(destination)
        ),
        "narrow": _narrow,
        "permute": lambda x, dims: x.transpose(dims),
        "reshape": lambda x, shape: x.reshape(as_list(shape)),
        "select": lambda x, dim, index: x.cut({dim: int(index)}),
        "slice": lambda x, dim=0, start=None, end=None, step=None: x.cut({dim: slice(start, end, step)}),
        "squeeze": _squeeze,
        "swapaxes": lambda x, axis0, axis1: functions.swap_axes(x, axis0, axis1),
        "numpy_T t": lambda x: x.transpose(range(x.rank)[::-1]),
        "transpose": lambda x, dim0, dim1: functions.swap_axes(x, dim0, dim1),
        "unbind": lambda x, dim=0: x.split(dim, [1] * x.scope.node.outputs, keep=False),
        "unflatten": _unflatten,
        "unfold": lambda x, dimension, size, step: x.windows(dimension, fixed_sizes([size, step])),
        "unsqueeze": lambda x, dim: x.unsqueeze([dim]),
    }
)
"""Ops whose values may be the memory of what they take."""
FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        **VIEWS,
        **dict.fromkeys((*COPIES, "_to_copy"), _pass_on),
        "cat concat": lambda tensors, dim=0: concat(tensors, dim),
        "flip": lambda x, dims: x.flip(dims),
        "glu": lambda x, dim=-1: functions.glu(x, dim),
        "index": _index,
        "index_select": lambda x, dim, index: x.gather(dim, index.integers()),
        "pixel_unshuffle": lambda x, downscale_factor: x.cells_as_channels(downscale_factor, outer=True),
        "repeat": _repeat,
        "repeat_interleave": _repeat_interleave,
        "roll": _roll,
        "rot90": lambda x, k=1, dims=(0, 1): x.rot90((dims[0], dims[1]), k),
        "stack": lambda tensors, dim=0: stack(tensors, dim),
        "tile": lambda x, dims: _repeat(x, [*[1] * (x.rank - len(dims)), *dims]),
        "tril": lambda x, diagonal=0: functions.band_part(x, None, diagonal),
        "triu": lambda x, diagonal=0: functions.band_part(x, diagonal, None),
        "zeros_like": lambda x, dtype=None: Zeros(x.sizes),
    }
)

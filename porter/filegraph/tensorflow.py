"""What TensorFlow's graphs and TensorFlow Lite's say in the same way: slices, parts, pads, resizes,
transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Dim, fixed_sizes
from porter.filegraph.places import position_of
from porter.filegraph.reading import GraphInput
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.graph import Resize
from porter.graph.ops import Coordinates, Nearest
from porter.padding import ANY, Pads, Size, Window

Index = list[slice | int | None]
MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
"""The masks of a StridedSlice: each a bit for each of its places."""


def strided_slice_index(masks: Mapping[str, int], count: int, *bounds: list[Dim]) -> Index:
    """Return what a StridedSlice takes of `count` axes, as numpy's index.

    Args:
        masks: by the names of MASKS.
        bounds: its begins, its ends and its strides.

    Raises:
        ValueError: it has more axes.
    """
    stated_axes = len(bounds[0]) - (masks["new_axis"].bit_count() + masks["ellipsis"].bit_count())
    index: Index = []
    for place, (begin, end, step) in enumerate(zip(*bounds, strict=True)):
        set_masks = {name for name, mask in masks.items() if mask >> place & 1}
        if "ellipsis" in set_masks:
            index += [slice(None)] * (count - stated_axes)
        elif "new_axis" in set_masks:
            index.append(None)
        elif "shrink_axis" in set_masks:
            index += fixed_sizes([begin])
        else:
            start = None if "begin" in set_masks else begin
            stop = None if "end" in set_masks else end
            index.append(slice(start, stop, step))
    indexed_axes = sum(part is not None for part in index)
    if indexed_axes > count:
        raise ValueError("more axes than the value has")
    return index + [slice(None)] * (count - indexed_axes)


def slice_index(begins: list[Dim], sizes: list[Dim]) -> Index:
    """Return what a Slice takes, as numpy's index: `[slice(2, 5)]` for begin 2 and size 3; a size of -1 is
    all that is left.
    """
    return [
        slice(begin, None if size < 0 else begin + size) for begin, size in zip(begins, sizes, strict=True)
    ]


def gather(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Return the cells of an axis at stored indices. The axis goes where the index is a single one. Indices
    of several axes, which take the place of the axis, are for constants only.

    Raises:
        Unsupported: the indices are others.
    """
    cells = index.integers()
    shape = x.walk.constant_shape(index.source)
    if not cells or shape is None or (len(shape) > 1 and x.is_value):
        raise Unsupported("of several places")
    if not shape:
        return x.cut({axis: cells[0]})
    position = position_of(axis, x.rank)
    gathered = x.gather(position, cells)
    if len(shape) == 1:
        return gathered
    return gathered.reshape([*x.sizes[:position], *shape, *x.sizes[position + 1 :]])


def transposed_conv_cuts(window: Window, sizes: Sequence[Dim], wanted: Sequence[Dim], rule: str) -> Pads:
    """Return the cells that a transposed convolution cuts off its result (top, bottom, left, right), as the
    gradient of a convolution that pads by SAME or VALID (tensorflow/core/framework/common_shape_fns.cc).

    Args:
        sizes: rows and columns of the value that it reads.
        wanted: those of the value that it gives.
        rule: SAME or VALID.

    Raises:
        Undecided: they depend on an open size.
    """
    cuts: list[int] = []
    for axis, (size, wanted_size) in enumerate(zip(sizes, wanted, strict=True)):
        uncut_size = (size - 1) * window.stride[axis] + window.extent(axis)
        (excess,) = fixed_sizes([uncut_size - wanted_size])
        before = max(excess, 0) // 2 if rule == "SAME" else 0
        cuts += [before, excess - before]
    top, bottom, left, right = cuts
    return top, bottom, left, right


def resize_rule(linear: bool, half: bool, ends: bool) -> Resize:
    """Return how a resize of TensorFlow's computes its cells (core/kernels/image/). The caller adds the scale
    or the size that it resizes to.

    Args:
        linear: it is a bilinear one, otherwise it takes the nearest cell.
        half: its flag half_pixel_centers.
        ends: its flag align_corners, which is the stronger one of the two.
    """
    coordinates: Coordinates = "asymmetric"
    if ends:
        coordinates = "align_corners"
    elif half:
        coordinates = "half_pixel"
    if linear:
        return Resize("linear", coordinates=coordinates)
    rounding: Nearest = "floor" if coordinates == "asymmetric" else "round_prefer_ceil"
    return Resize("nearest", coordinates=coordinates, rounding=rounding)


def further_image(
    source: NodeOutput, sizes: Sequence[int | None], batch: int | None, cells: Size
) -> GraphInput | None:
    """Return what a graph takes beside its image: a map of known channels, or numbers of stated sizes for
    each image; None for others. A map of the rows and columns of the image has them at every size.

    Args:
        source: the input.
        sizes: of its axes, batch included.
        batch, cells: the batch, and the rows and columns, of the image.
    """
    images, *axes = sizes or (None,)
    if images != batch:
        return None
    is_map = len(axes) == 3
    if not is_map:
        return GraphInput(source, 1, ANY, shape=tuple(axes)) if axes and None not in axes else None
    rows, columns, channels = axes
    if not channels:
        return None
    return GraphInput(source, channels, ANY if (rows, columns) == cells else (rows, columns))


def pads_by_axis(table: Tensor) -> dict[int, tuple[int, int]]:
    """Return the cells before and after of a pad, by axis."""
    numbers = table.numbers()
    if numbers.ndim != 2:
        raise ValueError("pads that are no pairs")
    return {index: (before, after) for index, (before, after) in enumerate(numbers.tolist())}


def resize_to(x: Tensor, sizes: Tensor, op: Resize) -> Tensor:
    """Resize a map N×H×W×C to stated rows and columns; `op` says how its cells are computed."""
    rank = len(x.sizes)
    wanted = sizes.dims()
    if rank != 4 or len(wanted) != 2:
        raise Unsupported(f"of {rank} axes")
    rows, columns = wanted
    return x.resize(op, {}, {1: rows, 2: columns})

"""What TensorFlow's graphs and TensorFlow Lite's say in the same way: slices, parts, pads, resizes,
transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.filegraph.dataflow import NodeOutput
from porter.filegraph.dims import Dim, fixed_sizes
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.reading import GraphInput
from porter.filegraph.tensor import Tensor
from porter.graph import Resize
from porter.graph.ops import Coordinates
from porter.padding import ANY, Pads, Size, Window

Index = list[slice | int | None]
MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
"""The masks of a StridedSlice: each a bit for each of its places."""


def strided_slice_index(masks: Mapping[str, int], count: int, *bounds: list[Dim]) -> Index:
    """What a StridedSlice takes of `count` axes, as numpy's index; `bounds` are its begins, ends and strides.

    Args:
        masks: by the names of MASKS.

    Raises:
        ValueError: it has more axes.
    """
    said = len(bounds[0]) - (masks["new_axis"].bit_count() + masks["ellipsis"].bit_count())
    index: Index = []
    for axis, (begin, end, step) in enumerate(zip(*bounds, strict=True)):
        has = {name for name, mask in masks.items() if mask >> axis & 1}
        if "ellipsis" in has:
            index += [slice(None)] * (count - said)
        elif "new_axis" in has:
            index.append(None)
        elif "shrink_axis" in has:
            index += fixed_sizes([begin])
        else:
            index.append(slice(None if "begin" in has else begin, None if "end" in has else end, step))
    index += [slice(None)] * (count - sum(part is not None for part in index))
    if sum(part is not None for part in index) > count:
        raise ValueError("more axes than the value has")
    return index


def slice_index(begins: list[Dim], sizes: list[Dim]) -> Index:
    """What a Slice takes; a size of -1 is all that is left."""
    return [
        slice(begin, None if size < 0 else begin + size) for begin, size in zip(begins, sizes, strict=True)
    ]


def transposed_conv_cuts(window: Window, sizes: Sequence[Dim], wanted: Sequence[Dim], rule: str) -> Pads:
    """What a transposed convolution cuts off, which is the gradient of a convolution that pads by SAME or
    VALID (tensorflow/core/framework/common_shape_fns.cc).

    Args:
        sizes: rows and columns of its value.
        wanted: those that it gives.

    Raises:
        Undecided: they depend on an open size.
    """
    cut: list[int] = []
    for axis, (size, given) in enumerate(zip(sizes, wanted, strict=True)):
        (left,) = fixed_sizes([(size - 1) * window.stride[axis] + window.extent(axis) - given])
        before = max(left, 0) // 2 if rule == "SAME" else 0
        cut += [before, left - before]
    return cut[0], cut[1], cut[2], cut[3]


def resize_rule(linear: bool, half: bool, ends: bool) -> Resize:
    """How a resize computes its cells (core/kernels/image/).

    Args:
        half, ends: its flags half_pixel_centers and align_corners.
    """
    coordinates: Coordinates = "align_corners" if ends else "half_pixel" if half else "asymmetric"
    if linear:
        return Resize("linear", coordinates=coordinates)
    return Resize(
        "nearest",
        coordinates=coordinates,
        rounding="floor" if coordinates == "asymmetric" else "round_prefer_ceil",
    )


def further_image(
    source: NodeOutput, sizes: Sequence[int | None], batch: int | None, cells: Size
) -> GraphInput | None:
    """What an input beside an image of `cells` is: a map of known channels, or numbers of stated sizes for
    each image; None of others. A map of the rows and columns of the image has them at every size.
    """
    first, *rest = sizes or (None,)
    if first != batch:
        return None
    if len(rest) != 3:
        return GraphInput(source, 1, ANY, shape=tuple(rest)) if rest and None not in rest else None
    rows, columns, channels = rest
    return (
        GraphInput(source, channels, ANY if (rows, columns) == cells else (rows, columns))
        if channels
        else None
    )


def pads_by_axis(table: Tensor) -> dict[int, tuple[int, int]]:
    """The cells before and after of a pad, by axis."""
    numbers = table.numbers()
    if numbers.ndim != 2:
        raise ValueError("pads that are no pairs")
    return {index: (before, after) for index, (before, after) in enumerate(numbers.tolist())}


def resize_to(x: Tensor, sizes: Tensor, op: Resize) -> Tensor:
    """A resize of a map to stated rows and columns, whose cells are computed as those of `op`."""
    own = x.sizes
    wanted = sizes.dims()
    if len(own) != 4 or len(wanted) != 2:
        raise Unsupported(f"of {len(own)} axes")
    return x.resize(op, {}, {1: wanted[0], 2: wanted[1]})

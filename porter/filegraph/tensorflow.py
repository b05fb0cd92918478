"""What TensorFlow's graphs and TensorFlow Lite's say in the same way: slices, the pads of transposed convolutions, and resizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.filegraph.layouts import expect_known
from porter.graph import Resize
from porter.graph.ops import Coordinates
from porter.padding import Pads, Window

MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
"""Of a StridedSlice: each a bit for each of its places."""


def strided(masks: Mapping[str, int], count: int, *bounds: list[int]) -> list[slice | int | None]:
    """What a StridedSlice takes of `count` axes, as numpy's index; `bounds` are its begins, ends and strides.

    Args:
        masks: by the names of MASKS.

    Raises:
        ValueError: it has more axes.
    """
    said = len(bounds[0]) - (masks["new_axis"].bit_count() + masks["ellipsis"].bit_count())
    index: list[slice | int | None] = []
    for place, (begin, end, step) in enumerate(zip(*bounds, strict=True)):
        has = {name for name, mask in masks.items() if mask >> place & 1}
        if "ellipsis" in has:
            index += [slice(None)] * (count - said)
        elif "new_axis" in has:
            index.append(None)
        elif "shrink_axis" in has:
            index.append(begin)
        else:
            index.append(slice(None if "begin" in has else begin, None if "end" in has else end, step))
    index += [slice(None)] * (count - sum(part is not None for part in index))
    if sum(part is not None for part in index) > count:
        raise ValueError("more axes than the value has")
    return index


def sliced(begins: list[int], sizes: list[int]) -> list[slice | int | None]:
    """What a Slice takes; a size of -1 is all that is left."""
    return [slice(begin, None if size < 0 else begin + size) for begin, size in zip(begins, sizes, strict=True)]


def cut_off(window: Window, known: Sequence[int], wanted: Sequence[int], rule: str) -> Pads:
    """What a transposed convolution cuts off, which is the gradient of a convolution that pads by SAME or VALID
    (tensorflow/core/framework/common_shape_fns.cc).

    Args:
        known: rows and columns of its value.
        wanted: those that it gives.

    Raises:
        GraphError: they depend on an open size.
    """
    cut: list[int] = []
    for axis, (size, given) in enumerate(zip(known, wanted, strict=True)):
        left = (size - 1) * window.stride[axis] + window.extent(axis) - given
        before = max(left, 0) // 2 if rule == "SAME" else 0
        cut += [before, left - before]
    expect_known(cut)
    return cut[0], cut[1], cut[2], cut[3]


def nearest_or_linear(kind: str, linear: bool, by: Sequence[int], half: bool, ends: bool) -> Resize | str:
    """How a resize computes its cells (core/kernels/image/); what porter lacks, in words.

    Args:
        kind: what the file calls it.
        by: factors of rows and columns; 0 where they have fractions.
        half, ends: its flags half_pixel_centers and align_corners.
    """
    coordinates: Coordinates = "align_corners" if ends else "half_pixel" if half else "asymmetric"
    if linear:
        return Resize("linear", coordinates=coordinates)
    # Without half pixels TensorFlow multiplies by a float32, which is exact for powers of two.
    if coordinates == "asymmetric" and all(by) and any(factor & (factor - 1) for factor in by):
        return f"{kind} by {by[0]}x{by[1]} without half_pixel_centers"
    return Resize("nearest", coordinates=coordinates, rounding="floor" if coordinates == "asymmetric" else "round_prefer_ceil")

"""Patches of a map as tokens N×(C·rows·columns)×patches, and the map that patches are together.

Patches side by side are a mere move. Others, which overlap or are padded, are a convolution whose filters
each take one cell of a window, and its transposed one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim
from porter.filegraph.walk import Walk
from porter.graph import Conv, ConvTranspose
from porter.padding import Convention, Pads, Window


def patches(walk: Walk, node: OperatorNode, source: Source, window: Window, pads: Pads) -> View:
    """Return the cells under a window at each of its places, with zeros around the map, as
    N×(C·rows·columns)×patches.
    """
    view = walk.view(source)
    batch, channels, map_rows, map_columns = view.known_sizes
    if _lie_side_by_side(window, pads):
        rows, columns = window.kernel
        split = view.reshaped([batch, channels, map_rows // rows, rows, map_columns // columns, columns])
        cells_first = split.transposed([0, 1, 3, 5, 2, 4])  # the cells of a patch, then the patches
        return cells_first.reshaped([batch, channels * rows * columns, -1])
    value = walk.layouts.in_file_layout(source)
    tensors = _cell_kernel(walk, node, value.channels, window)
    if value.channels is None or tensors is None:
        raise Unsupported("of patches that overlap or are padded, of so many channels")
    count = value.channels * window.kernel[0] * window.kernel[1]
    op = Conv(count, window, Convention.stated(pads, 0.0), value.channels)
    under_windows = walk.views.own_view(walk.builder.conv(node.name, value, op, tensors))
    return under_windows.reshaped([batch, count, -1])


def map_of_patches(
    walk: Walk, node: OperatorNode, source: Source, size: Sequence[Dim], windows: tuple[Window, Pads]
) -> View | Value:
    """Return the map that patches make together, as torch's `fold` does, of patches as `patches` gives them:
    where several have a cell, the map has their sum.

    Args:
        size: rows and columns of the map.
        windows: the window of the patches, and the pads around the map.
    """
    view = walk.view(source)
    window, pads = windows
    batch, cells_of_patch, _ = view.known_sizes
    map_rows, map_columns = size
    rows, columns = window.kernel
    channels = cells_of_patch // (rows * columns)
    if _lie_side_by_side(window, pads):
        split = view.reshaped([batch, channels, rows, columns, map_rows // rows, map_columns // columns])
        return split.transposed([0, 1, 4, 2, 5, 3]).reshaped([batch, channels, map_rows, map_columns])
    if not isinstance(channels, int) or not isinstance(map_rows, int) or not isinstance(map_columns, int):
        raise Unsupported("of an open size")
    top, bottom, left, right = pads
    patches_down, cut_bottom = _patches_along(window, 0, map_rows, (top, bottom))
    patches_across, cut_right = _patches_along(window, 1, map_columns, (left, right))
    patches_on_map = view.reshaped([batch, cells_of_patch, patches_down, patches_across])
    tensors = _cell_kernel(walk, node, channels, window)
    if tensors is None:
        raise Unsupported("of patches that overlap or are padded, of so many channels")
    op = ConvTranspose(channels, window, (top, cut_bottom, left, cut_right), channels)
    return walk.builder.conv_transpose(node.name, walk.layouts.in_file_layout(patches_on_map), op, tensors)


def _patches_along(window: Window, axis: int, cells: int, pads: tuple[int, int]) -> tuple[int, int]:
    """Return how many patches lie along an axis of a map of so many cells, and how many cells behind the map
    a transposed convolution of them gives too much.
    """
    before, after = pads
    step, extent = window.stride[axis], window.extent(axis)
    count = (cells + before + after - extent) // step + 1
    return count, (count - 1) * step + extent - before - cells


def _lie_side_by_side(window: Window, pads: Pads) -> bool:
    """Return whether patches lie side by side, without overlap, gaps or pads."""
    return window == Window(window.kernel, window.kernel) and not any(pads)


def _cell_kernel(
    walk: Walk, node: OperatorNode, channels: int | None, window: Window
) -> dict[str, Stored] | None:
    """Return a kernel whose filters each take one cell of a window, over each channel; None if it is too
    large.
    """
    rows, columns = window.kernel
    cells = rows * columns
    # float64 numbers: for each channel, as many filters of as many cells as a window has cells
    if channels is None or not walk.flow.reserve_bytes(8 * channels * cells**2):
        return None
    one_cell_each = np.eye(cells).reshape(cells, 1, rows, columns)
    kernel = walk.flow.store_computed(f"{node.name}:cells", np.tile(one_cell_each, (channels, 1, 1, 1)))
    return {"kernel": Stored(kernel.name, "OIHW")}

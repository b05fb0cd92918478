"""ATen's patches of a map as tokens N×(C·rows·columns)×patches, and the map that patches are together.

Patches side by side are a mere move. Others, which overlap or are padded, are a convolution whose filters
each take one cell of a window, and its transposed one.
"""

from __future__ import annotations

import numpy as np

from porter.filegraph.file_graph import Stored
from porter.filegraph.layers import both_sides
from porter.filegraph.walk import Lacks, Read
from porter.formats.torch_export.moves import taken
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.sizes import sizes_of, whole_numbers
from porter.graph import Conv, ConvTranspose
from porter.padding import Convention, Window


def read_patches(walk: Walk, node: AtenNode) -> Read:
    """im2col."""
    view, window, pads = walk.view(taken(node)), *_window(walk, node)
    if view.sizes is None:
        return Lacks()
    batch, channels, down, across = view.sizes
    if _beside(window, pads):
        rows, columns = window.kernel
        cells = view.reshaped([batch, channels, down // rows, rows, across // columns, columns])
        turned = cells and cells.transposed([0, 1, 3, 5, 2, 4])
        return (turned and turned.reshaped([batch, channels * rows * columns, -1])) or Lacks()
    value = walk.value(taken(node))
    tensors = _each_cell(walk, node, value.channels, window)
    if value.channels is None or tensors is None:
        return Lacks(f"{node.op} of patches that overlap or are padded, of so many channels")
    count = value.channels * window.kernel[0] * window.kernel[1]
    op = Conv(count, window, Convention.stated(both_sides(pads), 0.0), value.channels)
    found = walk.views.of(walk.builder.conv(node.name, value, op, tensors))
    return found.reshaped([batch, count, -1]) or Lacks()


def read_map(walk: Walk, node: AtenNode) -> Read:
    """col2im: the map whose patches `im2col` lists; where several have a cell, it is their sum."""
    view, window, pads = walk.view(taken(node)), *_window(walk, node)
    if view.sizes is None:
        return Lacks()
    (batch, whole, _), (down, across) = view.sizes, sizes_of(walk, node, "output_size")
    rows, columns = window.kernel
    channels = whole // (rows * columns)
    if _beside(window, pads):
        cells = view.reshaped([batch, channels, rows, columns, down // rows, across // columns])
        turned = cells and cells.transposed([0, 1, 4, 2, 5, 3])
        return (turned and turned.reshaped([batch, channels, down, across])) or Lacks()
    if not isinstance(channels, int) or not isinstance(down, int) or not isinstance(across, int):
        return Lacks(f"{node.op} of an open size")
    sizes = [
        (size + 2 * pad - window.extent(axis)) // window.stride[axis] + 1
        for axis, (size, pad) in enumerate(zip((down, across), pads, strict=True))
    ]
    tokens, tensors = view.reshaped([batch, whole, *sizes]), _each_cell(walk, node, channels, window)
    if tokens is None or tensors is None:
        return Lacks(f"{node.op} of patches that overlap or are padded, of so many channels")
    bottom, right = (
        (count - 1) * window.stride[axis] + window.extent(axis) - pads[axis] - (down, across)[axis]
        for axis, count in enumerate(sizes)
    )
    op = ConvTranspose(channels, window, (pads[0], bottom, pads[1], right), channels)
    return walk.builder.transposed(node.name, walk.value(tokens), op, tensors)


def _window(walk: Walk, node: AtenNode) -> tuple[Window, tuple[int, int]]:
    """The window of patches, and the zeros before and after rows and columns."""
    kernel, stride, dilation, pads = (
        whole_numbers(walk, node, name) for name in ("kernel_size", "stride", "dilation", "padding")
    )
    steps = (stride[0], stride[-1]), (dilation[0], dilation[-1])
    return Window((kernel[0], kernel[-1]), *steps), (pads[0], pads[-1])


def _beside(window: Window, pads: tuple[int, int]) -> bool:
    """Whether patches lie side by side."""
    return window == Window(window.kernel, window.kernel) and not any(pads)


def _each_cell(walk: Walk, node: AtenNode, channels: int | None, window: Window) -> dict[str, Stored] | None:
    """A kernel that takes each cell of a window over each channel; None where it is too large."""
    rows, columns = window.kernel
    cells = rows * columns
    if channels is None or not walk.flow.affords(8 * channels * cells**2):
        return None
    each = np.eye(cells).reshape(cells, 1, rows, columns)
    held = walk.flow.hold(f"{node.name}:cells", np.tile(each, (channels, 1, 1, 1)))
    return {"kernel": Stored(held.name, "OIHW")}

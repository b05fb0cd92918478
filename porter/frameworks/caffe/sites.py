"""The layers of one padding site in Caffe: pad, windowed layer, and what an exact composition adds."""

from __future__ import annotations

from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.caffe.maker import CaffeNode, CaffeParameter
from porter.frameworks.numpy.nets import NO_PADS
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation, Window, subtract_pads


def add_windowed(node: CaffeNode[Any], realisation: Realisation) -> None:
    """Add the layers of a windowed node, whose pads are made as its realisation says: by the layer itself, by
    a pad in front, or by layers that compose the same numbers.

    Raises:
        PaddingError: Caffe has no layers for the realisation, because the plan was made for another
            framework.
    """
    padded, front, native = node.source, realisation.front, realisation.native
    # What only other frameworks' layers have: rules of padding, and pads of other numbers than 0.
    pads_by_rule = native.rule not in ("valid", "explicit")
    has_foreign_front = front is not None and (front.rule != "explicit" or front.fill)
    skips_in_conv = isinstance(node.op, Conv) and realisation.subsample
    if pads_by_rule or has_foreign_front or skips_in_conv:
        raise PaddingError(f"Caffe has no layers for '{realisation}'", where=node.path)
    if front is not None:
        channels = node.maker.channels(node.source)
        padded = node.maker.add_move(node.part("pad"), node.source, channels, front.pads)
    if isinstance(node.op, Conv):
        _add_conv(node, realisation, padded)
    elif realisation.by_cell:
        _add_dilated_max_pool(node, padded)
    else:
        _add_pool(node, realisation, padded)


def window_parameters(
    window: Window, pads: Pads = NO_PADS, zeros_around: Pads = NO_PADS
) -> dict[str, CaffeParameter]:
    """Return a window as parameters, with so many rows and columns of zeros around its kernel; the pads of
    opposite sides are alike.
    """
    (rows, columns), (row_stride, column_stride) = window.kernel, window.stride
    parameters: dict[str, CaffeParameter] = {
        "kernel_h": rows + zeros_around[0] + zeros_around[1],
        "kernel_w": columns + zeros_around[2] + zeros_around[3],
    }
    parameters |= {"stride_h": row_stride, "stride_w": column_stride}
    if any(pads):
        # OpenCV reads neither without the other.
        parameters |= {"pad_h": pads[0], "pad_w": pads[2]}
    return parameters


def _add_conv(node: CaffeNode[Conv], realisation: Realisation, source: str) -> None:
    """Add a convolution. Pads that the layer lacks are zeros around the kernel: more of the map's own cells
    than it should read, times 0 (`realisation.skipped`).
    """
    op = node.op
    top, bottom, left, right = realisation.skipped
    row_dilation, column_dilation = op.window.dilation
    # In a dilated kernel, a cell stands for `dilation` rows or columns of the map.
    zeros_around = (
        top // row_dilation,
        bottom // row_dilation,
        left // column_dilation,
        right // column_dilation,
    )
    parameters = window_parameters(op.window, realisation.native.pads, zeros_around)
    if op.window.dilation != (1, 1):
        parameters["dilation"] = op.window.dilation
    if op.groups != 1:
        parameters["group"] = op.groups
    blobs = [node.maker.padded_kernel(node.path, zeros_around), *node.tensors("bias")]
    node.result("Convolution", source, blobs=blobs, num_output=op.filters, bias_term=op.bias, **parameters)


def _add_pool(node: CaffeNode[MaxPool | AvgPool], realisation: Realisation, padded: str) -> None:
    """Add a pool of the map, which is `padded` behind its pad. An average that Caffe does not count so is
    multiplied by the inverse of a second pool, and a stride that it lacks is taken behind it.
    """
    op, maker, counted = node.op, node.maker, realisation.counted
    # With a stride of 1, to take every stride-th window afterwards.
    window = Window(op.window.kernel) if realisation.subsample else op.window
    parameters: dict[str, CaffeParameter] = {
        "pool": "MAX" if isinstance(op, MaxPool) else "AVE",
        **window_parameters(window, realisation.native.pads),
    }
    last_ending = "every" if realisation.subsample else ""
    value = node.step(last_ending if counted is None else "cells", "Pooling", padded, **parameters)
    if counted is not None:
        # The share of counted cells in each window is the average of a map of ones: ones where cells count,
        # zeros in the pads that do not.
        uncounted = subtract_pads(realisation.front.pads if realisation.front else NO_PADS, counted)
        mask = node.source
        if any(counted):
            mask = maker.add_move(node.part("counted"), mask, node.channels, counted)
        mask = maker.add_filled(node.part("ones"), mask, 1.0)
        if any(uncounted):
            mask = maker.add_move(node.part("mask"), mask, node.channels, uncounted)
        share = node.step("share", "Pooling", mask, **parameters)
        inverse_share = node.step("by", "Power", share, power=-1.0)
        value = node.step(last_ending, "Eltwise", value, inverse_share, operation="PROD")
    if realisation.subsample:
        cut = subtract_pads(NO_PADS, realisation.skipped)
        maker.add_move(node.path, value, node.channels, cut, op.window.stride)


def _add_dilated_max_pool(node: CaffeNode[MaxPool], source: str) -> None:
    """Add a max pool of dilated windows, which Caffe's own pool lacks: for each cell of the window a strided
    move of the map by its offset, and the largest of them. A 2x2 window of dilation 2 is the largest of four
    maps, moved by (0, 0), (0, 2), (2, 0) and (2, 2).
    """
    cells, window = [], node.op.window
    rows, columns = window.extent(0), window.extent(1)
    for row in range(0, rows, window.dilation[0]):
        for column in range(0, columns, window.dilation[1]):
            # Negative pads cut rows and columns off: what remains begins at the cell of the window.
            cut = -row, row + 1 - rows, -column, column + 1 - columns
            # A window of one cell is the result itself.
            name = node.part("" if window.kernel == (1, 1) else "cell")
            cells.append(node.maker.add_move(name, source, node.channels, cut, window.stride))
    if len(cells) > 1:
        node.result("Eltwise", *cells, operation="MAX")

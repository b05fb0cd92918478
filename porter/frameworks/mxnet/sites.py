"""The nodes of one padding site in MXNet: pad, windowed operator, and what an exact composition adds."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.base.errors import PaddingError
from porter.frameworks.mxnet.maker import MxnetAttribute, MxnetNode
from porter.frameworks.numpy.nets import NO_PADS
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation, Window, subtract_pads


def add_windowed(node: MxnetNode[Any], realisation: Realisation) -> None:
    """Add the nodes of a windowed node, whose pads are made as its realisation says: by the operator itself,
    by a Pad in front, or by cells or quotients that compose the same numbers.

    Raises:
        PaddingError: MXNet has no nodes for the realisation, because the plan was made for another framework.
    """
    op, padded, front, native = node.op, node.source, realisation.front, realisation.native
    # What only other frameworks' layers have: strides and pads made by skipping, and rules of padding.
    is_made_by_skipping = realisation.subsample or any(realisation.skipped)
    pads_by_rule = native.rule not in ("valid", "explicit") or (
        front is not None and front.rule != "explicit"
    )
    if is_made_by_skipping or pads_by_rule or native.rounding == "ceil":
        raise PaddingError(f"MXNet has no operators for '{realisation}'", where=node.path)
    if front is not None:
        padded = node.maker.add_pad(node.part("pad"), node.source, front.pads, front.fill)
    if isinstance(op, Conv):
        attributes = window_attributes(op.window, native.pads) | filter_attributes(
            op.filters, op.groups, op.bias
        )
        node.result("Convolution", padded, *node.tensors("kernel", "bias"), **attributes)
    elif realisation.by_cell:
        _add_dilated_max_pool(node, padded)
    else:
        _add_pool(node, realisation, padded)


def window_attributes(window: Window, pads: Pads = NO_PADS) -> dict[str, MxnetAttribute]:
    """Return the attributes of a window: `kernel`, `stride`, `pad` (of which the pads of opposite sides are
    alike), and `dilate` if it is dilated.
    """
    top, _, left, _ = pads
    attributes: dict[str, MxnetAttribute] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": (top, left),
    }
    if window.dilation != (1, 1):
        attributes["dilate"] = window.dilation
    return attributes


def filter_attributes(count: int, groups: int, bias: bool) -> dict[str, MxnetAttribute]:
    """Return the attributes of a convolution with `count` filters."""
    return {"num_filter": count, "num_group": groups, "no_bias": not bias}


def _add_pool(node: MxnetNode[MaxPool | AvgPool], realisation: Realisation, padded: str) -> None:
    """Add a pool of the map, which is `padded` behind its pad. An average that MXNet does not count so is a
    quotient of two pools.
    """
    op, native, front, counted = node.op, realisation.native, realisation.front, realisation.counted
    attributes = window_attributes(op.window, native.pads) | {
        "pooling_convention": "full" if native.rounding == "full" else "valid"
    }
    attributes |= {"pool_type": "max" if isinstance(op, MaxPool) else "avg"}
    if isinstance(op, AvgPool):
        attributes["count_include_pad"] = native.average != "real_cells"
    if counted is None:
        node.result("Pooling", padded, **attributes)
        return
    # A map of ones over the cells and pads that count, and of zeros over the other pads.
    mask, uncounted = node.source, subtract_pads(front.pads if front else NO_PADS, counted)
    if any(counted):
        mask = node.maker.add_pad(node.part("counted"), mask, counted)
    mask = node.maker.add_filled(node.part("ones"), mask, 1.0)
    if any(uncounted):
        mask = node.maker.add_pad(node.part("mask"), mask, uncounted)
    # Of the same pool of ones, the value is the share of a window's cells that count.
    sums = node.step("cells", "Pooling", padded, **attributes)
    node.result("elemwise_div", sums, node.step("share", "Pooling", mask, **attributes))


def _add_dilated_max_pool(node: MxnetNode[MaxPool], source: str) -> None:
    """Add a max pool of dilated windows: the largest of the map's parts that the window's cells read. A
    convolution with ones, channel by channel, takes every stride-th cell of each part.
    """
    maker, window, identity = node.maker, node.op.window, np.ones((node.channels, 1))
    rows, columns = window.extent(0), window.extent(1)
    parts = []
    for row in range(0, rows, window.dilation[0]):
        for column in range(0, columns, window.dilation[1]):
            # What remains of the map begins at this cell of the window and ends at its last place.
            cut = row, rows - 1 - row, column, columns - 1 - column
            part = maker.add_crop(node.part("part"), source, cut)
            name = node.part("cell")
            parts.append(maker.add_channel_sums(name, part, identity, window.stride, groups=node.channels))
    value = parts[0]
    for number, part in enumerate(parts[1:], 2):
        # The last one has the node's name.
        value = node.step("" if number == len(parts) else "most", "broadcast_maximum", value, part)

"""The nodes of one padding site in MXNet: pad, windowed operator, and what an exact composition adds."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.base.errors import PaddingError
from porter.frameworks.mxnet.maker import MxnetAttribute, MxnetNode
from porter.frameworks.numpy.nets import NONE
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation, Window, subtract_pads


def windowed(node: MxnetNode[Any], realisation: Realisation) -> None:
    """Add the nodes of a windowed node.

    Raises:
        PaddingError: MXNet has no nodes for the realisation, because the plan was made for another framework.
    """
    op, padded, front, native = node.op, node.source, realisation.front, realisation.native
    foreign = (
        realisation.subsample or any(realisation.skipped) or (front is not None and front.rule != "explicit")
    )
    if foreign or native.rule not in ("valid", "explicit") or native.rounding == "ceil":
        raise PaddingError(f"MXNet has no operators for '{realisation}'", where=node.path)
    if front is not None:
        padded = node.maker.padded(node.part("pad"), node.source, front.pads, front.fill)
    if isinstance(op, Conv):
        attributes = sides(op.window, native.pads) | filters(op.filters, op.groups, op.bias)
        node.result("Convolution", padded, *node.trained("kernel", "bias"), **attributes)
    elif realisation.by_cell:
        _largest(node, padded)
    else:
        _pooled(node, realisation, padded)


def sides(window: Window, pads: Pads = NONE) -> dict[str, MxnetAttribute]:
    """Return a window as attributes: its sides' pads are alike."""
    attributes: dict[str, MxnetAttribute] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": (pads[0], pads[2]),
    }
    return attributes | ({"dilate": window.dilation} if window.dilation != (1, 1) else {})


def filters(count: int, groups: int, bias: bool) -> dict[str, MxnetAttribute]:
    return {"num_filter": count, "num_group": groups, "no_bias": not bias}


def _pooled(node: MxnetNode[MaxPool | AvgPool], realisation: Realisation, padded: str) -> None:
    """Pool the map, which is `padded` behind its pad layer."""
    op, native, front, counted = node.op, realisation.native, realisation.front, realisation.counted
    attributes = sides(op.window, native.pads) | {
        "pooling_convention": "full" if native.rounding == "full" else "valid"
    }
    attributes |= {"pool_type": "max" if isinstance(op, MaxPool) else "avg"}
    if isinstance(op, AvgPool):
        attributes["count_include_pad"] = native.average != "real_cells"
    if counted is None:
        node.result("Pooling", padded, **attributes)
        return
    mask, rest = node.source, subtract_pads(front.pads if front else NONE, counted)
    if any(counted):
        mask = node.maker.padded(node.part("counted"), mask, counted)
    mask = node.maker.filled(node.part("ones"), mask, 1.0)
    if any(rest):
        mask = node.maker.padded(node.part("mask"), mask, rest)
    sums = node.step("cells", "Pooling", padded, **attributes)
    node.result("elemwise_div", sums, node.step("share", "Pooling", mask, **attributes))


def _largest(node: MxnetNode[MaxPool], source: str) -> None:
    """A max pool of dilated windows: the largest of the map's parts that the window's cells read."""
    maker, window, one = node.maker, node.op.window, np.ones((node.channels, 1))
    parts = []
    for row in range(0, window.extent(0), window.dilation[0]):
        for column in range(0, window.extent(1), window.dilation[1]):
            cut = row, window.extent(0) - 1 - row, column, window.extent(1) - 1 - column
            part = maker.cropped(node.part("part"), source, cut)
            parts.append(maker.chosen(node.part("cell"), part, one, window.stride, len(one)))
    value = parts[0]
    for number, part in enumerate(parts[1:], 2):
        value = node.step("" if number == len(parts) else "most", "broadcast_maximum", value, part)

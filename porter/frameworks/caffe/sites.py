"""The layers of one padding site in Caffe: pad, windowed layer, and what an exact composition adds."""

from __future__ import annotations

from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.caffe.maker import NONE, CaffeNode, CaffeParameter
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation, Window, subtract_pads


def windowed(node: CaffeNode[Any], realisation: Realisation) -> None:
    """Add the layers of a windowed node.

    Raises:
        PaddingError: Caffe has no layers for the realisation, because the plan was made for another
            framework.
    """
    padded, front, native = node.source, realisation.front, realisation.native
    dynamic = native.rule not in ("valid", "explicit") or (
        front is not None and (front.rule != "explicit" or front.fill)
    )
    if dynamic or (isinstance(node.op, Conv) and realisation.subsample):
        raise PaddingError(f"Caffe has no layers for '{realisation}'", where=node.path)
    if front is not None:
        channels = node.maker.channels(node.source)
        padded = node.maker.moved(node.part("pad"), node.source, channels, front.pads)
    if isinstance(node.op, Conv):
        _conv(node, realisation, padded)
    elif realisation.by_cell:
        _largest(node, padded)
    else:
        _pooled(node, realisation, padded)


def sides(window: Window, pads: Pads = NONE, amid: Pads = NONE) -> dict[str, CaffeParameter]:
    """Return a window as parameters, with so many more rows and columns around it: the sides' pads are
    alike.
    """
    (rows, columns), (down, across) = window.kernel, window.stride
    parameters: dict[str, CaffeParameter] = {
        "kernel_h": rows + amid[0] + amid[1],
        "kernel_w": columns + amid[2] + amid[3],
    }
    parameters |= {"stride_h": down, "stride_w": across}
    # OpenCV reads neither without the other.
    return parameters | ({"pad_h": pads[0], "pad_w": pads[2]} if any(pads) else {})


def _conv(node: CaffeNode[Conv], realisation: Realisation, source: str) -> None:
    """Write a convolution; a pad that its layer lacks is zeros around the kernel."""
    op, skipped = node.op, realisation.skipped
    down, across = op.window.dilation
    amid = skipped[0] // down, skipped[1] // down, skipped[2] // across, skipped[3] // across
    parameters = sides(op.window, realisation.native.pads, amid)
    if op.window.dilation != (1, 1):
        parameters["dilation"] = op.window.dilation
    if op.groups != 1:
        parameters["group"] = op.groups
    blobs = [node.maker.kernel(node.path, amid), *node.trained("bias")]
    node.result("Convolution", source, blobs=blobs, num_output=op.filters, bias_term=op.bias, **parameters)


def _pooled(node: CaffeNode[MaxPool | AvgPool], realisation: Realisation, padded: str) -> None:
    """Pool the map, which is `padded` behind its pad layer."""
    op, maker, counted = node.op, node.maker, realisation.counted
    window = Window(op.window.kernel) if realisation.subsample else op.window
    own: dict[str, CaffeParameter] = {
        "pool": "MAX" if isinstance(op, MaxPool) else "AVE",
        **sides(window, realisation.native.pads),
    }
    ended = "every" if realisation.subsample else ""
    value = node.step(ended if counted is None else "cells", "Pooling", padded, **own)
    if counted is not None:
        rest = subtract_pads(realisation.front.pads if realisation.front else NONE, counted)
        mask = node.source
        if any(counted):
            mask = maker.moved(node.part("counted"), mask, node.channels, counted)
        mask = maker.filled(node.part("ones"), mask, 1.0)
        if any(rest):
            mask = maker.moved(node.part("mask"), mask, node.channels, rest)
        by = node.step("by", "Power", node.step("share", "Pooling", mask, **own), power=-1.0)
        value = node.step(ended, "Eltwise", value, by, operation="PROD")
    if realisation.subsample:
        maker.moved(
            node.path, value, node.channels, subtract_pads(NONE, realisation.skipped), op.window.stride
        )


def _largest(node: CaffeNode[MaxPool], source: str) -> None:
    """A max pool of dilated windows: the largest of the map's parts that the window's cells read."""
    cells, window = [], node.op.window
    for row in range(0, window.extent(0), window.dilation[0]):
        for column in range(0, window.extent(1), window.dilation[1]):
            cut = -row, row + 1 - window.extent(0), -column, column + 1 - window.extent(1)
            name = node.part("" if window.kernel == (1, 1) else "cell")
            cells.append(node.maker.moved(name, source, node.channels, cut, window.stride))
    if len(cells) > 1:
        node.result("Eltwise", *cells, operation="MAX")

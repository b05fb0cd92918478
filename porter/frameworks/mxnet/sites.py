"""The nodes of one padding site in MXNet: pad, windowed operator, and what an exact composition adds."""

from __future__ import annotations

import numpy as np

from porter.base.errors import PaddingError
from porter.frameworks.mxnet.maker import Attribute, SymbolMaker
from porter.frameworks.numpy.nets import NONE
from porter.graph import AvgPool, Conv, MaxPool, Node
from porter.padding import Pads, Realisation, Window, less


def windowed(maker: SymbolMaker, node: Node, op: Conv | MaxPool | AvgPool, realisation: Realisation) -> None:
    """Adds the nodes of a windowed node.

    Raises:
        PaddingError: MXNet has no nodes for the realisation, because the plan was made for another framework.
    """
    path, (source,), front, native = node.path, node.inputs, realisation.front, realisation.native
    foreign = (
        realisation.subsample or any(realisation.skipped) or (front is not None and front.rule != "explicit")
    )
    if foreign or native.rule not in ("valid", "explicit") or native.rounding == "ceil":
        raise PaddingError(f"MXNet has no operators for '{realisation}'", where=path)
    name = maker.values[path]
    padded = (
        source if front is None else maker.padded(maker.name(f"{name}_pad"), source, front.pads, front.fill)
    )
    if isinstance(op, Conv):
        stated = sides(op.window, native.pads) | filters(op.filters, op.groups, op.bias)
        maker.add("Convolution", name, padded, *maker.trained(path, name, "kernel", "bias"), **stated)
    elif realisation.by_cell:
        _largest(maker, path, op.window, padded)
    else:
        _pooled(maker, path, op, realisation, (source, padded))


def sides(window: Window, pads: Pads = NONE) -> dict[str, Attribute]:
    """A window as attributes: its sides' pads are alike."""
    stated: dict[str, Attribute] = {
        "kernel": window.kernel,
        "stride": window.stride,
        "pad": (pads[0], pads[2]),
    }
    return stated | ({"dilate": window.dilation} if window.dilation != (1, 1) else {})


def filters(count: int, groups: int, bias: bool) -> dict[str, Attribute]:
    return {"num_filter": count, "num_group": groups, "no_bias": not bias}


def _pooled(
    maker: SymbolMaker, path: str, op: MaxPool | AvgPool, realisation: Realisation, maps: tuple[str, str]
) -> None:
    """Of a map, and of the same map behind its pad layer."""
    native, front, counted = realisation.native, realisation.front, realisation.counted
    name, (source, padded) = maker.values[path], maps
    stated = sides(op.window, native.pads) | {
        "pooling_convention": "full" if native.rounding == "full" else "valid"
    }
    stated |= {"pool_type": "max" if isinstance(op, MaxPool) else "avg"}
    if isinstance(op, AvgPool):
        stated["count_include_pad"] = native.average != "real_cells"
    if counted is None:
        maker.add("Pooling", name, padded, **stated)
        return
    cells = maker.padded(maker.name(f"{name}_counted"), source, counted) if any(counted) else source
    rest = less(front.pads if front else NONE, counted)
    mask = maker.filled(maker.name(f"{name}_ones"), cells, 1.0)
    mask = maker.padded(maker.name(f"{name}_mask"), mask, rest) if any(rest) else mask
    sums = maker.add("Pooling", maker.name(f"{name}_cells"), padded, **stated)
    share = maker.add("Pooling", maker.name(f"{name}_share"), mask, **stated)
    maker.add("elemwise_div", name, sums, share)


def _largest(maker: SymbolMaker, path: str, window: Window, source: str) -> None:
    """A max pool of dilated windows: the largest of the map's parts that the window's cells read."""
    name, one = maker.values[path], np.ones((maker.channels(path), 1))
    parts = []
    for row in range(0, window.extent(0), window.dilation[0]):
        for column in range(0, window.extent(1), window.dilation[1]):
            cut = row, window.extent(0) - 1 - row, column, window.extent(1) - 1 - column
            part = maker.cropped(maker.name(f"{name}_part"), source, cut)
            parts.append(maker.chosen(maker.name(f"{name}_cell"), part, one, window.stride, len(one)))
    value = parts[0]
    for place, part in enumerate(parts[1:], 2):
        value = maker.add(
            "broadcast_maximum", name if place == len(parts) else maker.name(f"{name}_most"), value, part
        )

"""The layers of one padding site in Keras: pad, windowed layer, and the layers that an exact composition
adds.
"""

from __future__ import annotations

from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.tf.layout import pad_name
from porter.frameworks.tf.ports.layers import lacks_op
from porter.frameworks.tf.ports.maker import KerasNode
from porter.frameworks.tf.ports.statement import CallValue
from porter.graph import AvgPool, Conv, MaxPool, Op
from porter.padding import Capabilities, Pads, Realisation, Window

CAPABILITIES = Capabilities(
    symmetric=False,
    explicit=False,
    same=("same",),
    same_of_any=True,
    pool_pads="any",
    roundings=("floor",),
    averages=("real_cells",),
    dynamic=(),
    dilated_pools=(),
    dilated_strides=False,
    open_reshapes=False,
    lacks=lacks_op,
)
"""Keras 3's layers have only `valid` and `same`; Conv2D refuses a stride together with a dilation; a Reshape
finds one size.
"""


def state_windowed(
    node: KerasNode[Conv | MaxPool | AvgPool], kind: str, realisation: Realisation
) -> CallValue:
    """State the layers of a windowed node, whose pads are made as its realisation says, and return its value
    (N×H×W×C). A pad stands in front, an average is divided by the share that counts, and a stride may be
    taken behind. A layer of the class `kind` holds its weights.

    Raises:
        PaddingError: Keras has no layers for the realisation.
    """
    # `front`: how a pad layer pads; `native`: how the windowed layer itself does.
    front, native, op, window = realisation.front, realisation.native, node.op, node.op.window
    has_layer = native.rule in ("valid", "same") and native.rounding == "floor"
    has_pad_layer = front is None or front.rule == "explicit"
    if not has_layer or not has_pad_layer:
        raise PaddingError(f"Keras has no layers for '{realisation}'", where=node.name)
    config: dict[str, Any] = {
        "padding": native.rule,
        "strides": (1, 1) if realisation.subsample else window.stride,
    }
    if isinstance(op, Conv):
        config |= {"kernel_size": window.kernel, "dilation_rate": window.dilation, "use_bias": op.bias}
        if kind == "DepthwiseConv2D":
            config["depth_multiplier"] = op.filters // op.groups
        else:
            config |= {"filters": op.filters, "groups": op.groups}
    else:
        config["pool_size"] = window.kernel
    pads, fill = ((0, 0, 0, 0), 0.0) if front is None else (front.pads, front.fill)
    padded = _pad_if_any(node, node.value, pads, fill, pad_name(node.name))
    # Keras has no dilated pools.
    if realisation.by_cell:
        return _dilated_max_pool(node, window, padded)
    result = node.spatial(kind, padded, **config)
    if realisation.counted is not None:
        # The average of a map of ones where cells count is the share of a window's cells that count.
        share = node.under("share")
        counts = share.spatial(kind, _counted_cells(node, pads, realisation.counted), **config)
        result = node.step("average", "divide", result, counts)
    if realisation.subsample:
        # A pool of one cell takes every stride-th window.
        config = {"pool_size": (1, 1), "strides": window.stride, "padding": "valid"}
        result = node.under("stride").spatial("MaxPooling2D", result, **config)
    return result


def _dilated_max_pool(node: KerasNode[Op], window: Window, value: CallValue) -> CallValue:
    """State a max pool of dilated windows as the maximum of shifted maps, first down the columns, then along
    the rows.
    """
    for axis, output in ((0, node.under("columns")), (1, node)):
        # One part of the map for each cell of a window: it begins at that cell of the first window, and ends
        # at that of the last, `span - offset` cells before the end of the map.
        span, stride = window.extent(axis) - 1, window.stride[axis]
        other_axes = [slice(None)] * (axis + 1)
        parts = []
        for offset in range(0, span + 1, window.dilation[axis]):
            stop = offset - span if offset < span else None
            parts.append(node.step("cells", "getitem", value, (*other_axes, slice(offset, stop, stride))))
        value = output.layer("Maximum", parts) if len(parts) > 1 else output.layer("Identity", parts[0])
    return value


def _counted_cells(node: KerasNode[Op], pads: Pads, counted: Pads) -> CallValue:
    """State a map of ones over the node's input and the pads that an average counts, and of zeros over the
    rest of `pads`.
    """
    ones = node.step("cells", "ones_like", node.value)
    # Of each side, the pads that count, as ones; the rest stands around them, as zeros.
    top, bottom, left, right = (min(pair) for pair in zip(pads, counted, strict=True))
    inner = (top, bottom, left, right)
    outer = (pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right)
    ones = _pad_if_any(node, ones, inner, 1.0, f"{node.name}_counted")
    return _pad_if_any(node, ones, outer, 0.0, f"{node.name}_uncounted")


def _pad_if_any(node: KerasNode[Op], value: CallValue, pads: Pads, fill: float, wanted: str) -> CallValue:
    """State a pad of the map by `fill` under the wanted name, or a variation of it, and return its value;
    without pads, the map.
    """
    return node.maker.pad(value, pads, fill, node.maker.name(wanted)) if any(pads) else value

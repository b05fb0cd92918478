"""The layers of one padding site in Keras: pad, windowed layer, and the layers that an exact composition
adds.
"""

from __future__ import annotations

from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.tf.layout import pad_name
from porter.frameworks.tf.ports.layers import lacks
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
    lacks=lacks,
)
"""Keras 3's layers have only `valid` and `same`; Conv2D refuses a stride together with a dilation; a Reshape
finds one size.
"""


def windowed(node: KerasNode[Conv | MaxPool | AvgPool], kind: str, realisation: Realisation) -> CallValue:
    """Return the value of a windowed node (N×H×W×C), of which a layer of the class `kind` holds the weights.

    Raises:
        PaddingError: Keras has no layers for the realisation.
    """
    front, native, op, window = realisation.front, realisation.native, node.op, node.op.window
    if (
        native.rule not in ("valid", "same")
        or native.rounding != "floor"
        or (front is not None and front.rule != "explicit")
    ):
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
    pads = (0, 0, 0, 0) if front is None else front.pads
    padded = _padded(node, node.value, pads, 0.0 if front is None else front.fill, pad_name(node.name))
    if realisation.by_cell:
        return _largest(node, window, padded)
    result = node.spatial(kind, padded, **config)
    if realisation.counted is not None:
        share = node.under("share")
        counts = share.spatial(kind, _mask(node, pads, realisation.counted), **config)
        result = node.step("average", "divide", result, counts)
    if realisation.subsample:
        config = {"pool_size": (1, 1), "strides": window.stride, "padding": "valid"}
        result = node.under("stride").spatial("MaxPooling2D", result, **config)
    return result


def _largest(node: KerasNode[Op], window: Window, value: CallValue) -> CallValue:
    """Return a max pool of dilated windows, first down the columns, then along the rows."""
    for axis, last in ((0, node.under("columns")), (1, node)):
        reach, stride = window.extent(axis) - 1, window.stride[axis]
        firsts = range(0, reach + 1, window.dilation[axis])
        cells = [
            (*[slice(None)] * (axis + 1), slice(first, first - reach or None, stride)) for first in firsts
        ]
        parts = [node.step("cells", "getitem", value, part) for part in cells]
        value = last.layer("Maximum", parts) if len(parts) > 1 else last.layer("Identity", parts[0])
    return value


def _mask(node: KerasNode[Op], pads: Pads, counted: Pads) -> CallValue:
    """Return one over the node's input and the counted pads, zero over the rest of `pads`."""
    ones = node.step("cells", "ones_like", node.value)
    top, bottom, left, right = (min(pair) for pair in zip(pads, counted, strict=True))
    inner = (top, bottom, left, right)
    rest = (pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right)
    ones = _padded(node, ones, inner, 1.0, f"{node.name}_counted")
    return _padded(node, ones, rest, 0.0, f"{node.name}_uncounted")


def _padded(node: KerasNode[Op], value: CallValue, pads: Pads, fill: float, wanted: str) -> CallValue:
    return node.maker.pad(value, pads, fill, node.maker.name(wanted)) if any(pads) else value

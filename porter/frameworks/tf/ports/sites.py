"""The layers of one padding site in Keras: pad, windowed layer, and the layers that an exact composition
adds.
"""

from __future__ import annotations

from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.tf.layout import pad_name
from porter.frameworks.tf.ports.maker import LayerMaker
from porter.frameworks.tf.ports.statement import Symbol
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation, Window


def windowed(
    maker: LayerMaker,
    op: Conv | MaxPool | AvgPool,
    kind: str,
    name: str,
    realisation: Realisation,
    value: Symbol,
) -> Symbol:
    """The value of a windowed node over `value` (N×H×W×C); the layer called `name` holds its weights.

    Raises:
        PaddingError: Keras has no layers for the realisation.
    """
    front, native, window = realisation.front, realisation.native, op.window
    if (
        native.rule not in ("valid", "same")
        or native.rounding != "floor"
        or (front is not None and front.rule != "explicit")
    ):
        raise PaddingError(f"Keras has no layers for '{realisation}'", where=name)
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
    padded = _padded(maker, value, pads, 0.0 if front is None else front.fill, pad_name(name))
    if realisation.by_cell:
        return _largest(maker, window, name, padded)
    result = maker.spatial(kind, name, padded, **config)
    if realisation.counted is not None:
        share = maker.name(f"{name}_share")
        counts = maker.spatial(kind, share, _mask(maker, value, pads, realisation.counted, name), **config)
        result = maker.operation("divide", maker.name(f"{name}_average"), result, counts)
    if realisation.subsample:
        config = {"pool_size": (1, 1), "strides": window.stride, "padding": "valid"}
        result = maker.spatial("MaxPooling2D", maker.name(f"{name}_stride"), result, **config)
    return result


def _largest(maker: LayerMaker, window: Window, name: str, value: Symbol) -> Symbol:
    """A max pool of dilated windows, first down the columns, then along the rows."""
    for axis, layer in ((0, maker.name(f"{name}_columns")), (1, name)):
        reach, stride = window.extent(axis) - 1, window.stride[axis]
        firsts = range(0, reach + 1, window.dilation[axis])
        cells = [
            (*[slice(None)] * (axis + 1), slice(first, first - reach or None, stride)) for first in firsts
        ]
        parts = [maker.part(value, part, maker.name(f"{name}_cells")) for part in cells]
        value = (
            maker.layer("Maximum", layer, parts)
            if len(parts) > 1
            else maker.layer("Identity", layer, parts[0])
        )
    return value


def _mask(maker: LayerMaker, value: Symbol, pads: Pads, counted: Pads, name: str) -> Symbol:
    """One over `value` and the counted pads, zero over the rest of `pads`."""
    ones = maker.operation("ones_like", maker.name(f"{name}_cells"), value)
    top, bottom, left, right = (min(pair) for pair in zip(pads, counted, strict=True))
    inner = (top, bottom, left, right)
    rest = (pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right)
    ones = _padded(maker, ones, inner, 1.0, f"{name}_counted")
    return _padded(maker, ones, rest, 0.0, f"{name}_uncounted")


def _padded(maker: LayerMaker, value: Symbol, pads: Pads, fill: float, wanted: str) -> Symbol:
    return maker.pad(value, pads, fill, maker.name(wanted)) if any(pads) else value

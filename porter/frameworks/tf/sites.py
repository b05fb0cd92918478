"""The layers of one padding site in Keras: pad, windowed layer, and the layers that an exact composition adds.

Only built-in layers and `keras.ops` are used, because a functional model saves and loads them without custom objects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from porter.errors import PaddingError
from porter.filegraph.names import unused_name
from porter.frameworks.tf.layout import pad_name
from porter.frameworks.tf.runtime import import_keras
from porter.graph import AvgPool, Conv, MaxPool
from porter.padding import Pads, Realisation


@dataclass
class LayerMaker:
    """Makes the layers of one Keras model, all of one dtype.

    Attributes:
        dtype: of weights and values.
        reserved: names that belong to the nodes; layers that porter adds get other names.
        added: names of layers that porter added.
    """

    dtype: str
    reserved: Collection[str]
    added: set[str] = field(default_factory=set)

    def layer(self, kind: str, name: str, **config: Any) -> Any:
        """A layer of the Keras class `kind`."""
        return getattr(import_keras().layers, kind)(name=name, dtype=self.dtype, **config)

    def spatial(self, kind: str, name: str, **config: Any) -> Any:
        """A layer over maps. Its axis order is stated, because ~/.keras/keras.json may have another."""
        return self.layer(kind, name, data_format="channels_last", **config)

    def name(self, wanted: str) -> str:
        """`wanted`, or the first variation of it that no layer has."""
        name = unused_name(wanted, {*self.reserved, *self.added})
        self.added.add(name)
        return name

    def named(self, value: Any, wanted: str) -> Any:
        """`value` of a `keras.ops` call with a name for its operation, which Keras would number through the whole process."""
        value._keras_history.operation.name = self.name(wanted)
        return value


def windowed(
    maker: LayerMaker, op: Conv | MaxPool | AvgPool, kind: str, name: str, realisation: Realisation, value: Any
) -> tuple[Any, Any]:
    """The value of a windowed node over `value` (N×H×W×C), and the layer that holds its weights.

    Raises:
        PaddingError: Keras has no layers for the realisation.
    """
    front, native, window = realisation.front, realisation.native, op.window
    if native.rule not in ("valid", "same") or native.rounding != "floor" or (front is not None and front.rule != "explicit"):
        raise PaddingError(f"Keras has no layers for '{realisation}'", where=name)
    config: dict[str, Any] = {"padding": native.rule, "strides": (1, 1) if realisation.subsample else window.stride}
    if isinstance(op, Conv):
        config |= {"kernel_size": window.kernel, "dilation_rate": window.dilation, "use_bias": op.bias}
        if kind == "DepthwiseConv2D":
            config["depth_multiplier"] = op.filters // op.groups
        else:
            config |= {"filters": op.filters, "groups": op.groups}
    else:
        config["pool_size"] = window.kernel
    layer = maker.spatial(kind, name, **config)
    pads = (0, 0, 0, 0) if front is None else front.pads
    result = layer(_padded(maker, value, pads, 0.0 if front is None else front.fill, pad_name(name)))
    if realisation.counted is not None:
        share = maker.spatial(kind, maker.name(f"{name}_share"), **config)(_mask(maker, value, pads, realisation.counted, name))
        result = maker.named(import_keras().ops.divide(result, share), f"{name}_average")
    if realisation.subsample:
        every = maker.spatial("MaxPooling2D", maker.name(f"{name}_stride"), pool_size=1, strides=window.stride, padding="valid")
        result = every(result)
    return result, layer


def _mask(maker: LayerMaker, value: Any, pads: Pads, counted: Pads, name: str) -> Any:
    """One over `value` and the counted pads, zero over the rest of `pads`."""
    ones = maker.named(import_keras().ops.ones_like(value), f"{name}_cells")
    top, bottom, left, right = (min(pair) for pair in zip(pads, counted, strict=True))
    inner = (top, bottom, left, right)
    rest = (pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right)
    ones = _padded(maker, ones, inner, 1.0, f"{name}_counted")
    return _padded(maker, ones, rest, 0.0, f"{name}_uncounted")


def _padded(maker: LayerMaker, value: Any, pads: Pads, fill: float, wanted: str) -> Any:
    if not any(pads):
        return value
    top, bottom, left, right = pads
    if fill == 0:
        return maker.spatial("ZeroPadding2D", maker.name(wanted), padding=((top, bottom), (left, right)))(value)
    width = ((0, 0), (top, bottom), (left, right), (0, 0))
    return maker.named(import_keras().ops.pad(value, width, constant_values=fill), wanted)

"""Makes the layers and operations of one Keras model under names that are unique and the same in every process.

Only built-in layers and `keras.ops` are used, because a functional model saves and loads them without custom objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from porter.base.dtypes import Array, Dtype, cast
from porter.filegraph.names import Names
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras
from porter.padding import Pads


@dataclass
class LayerMaker:
    """Makes the layers of one Keras model, all of one dtype.

    Attributes:
        dtype: of weights and values.
        names: of the nodes; layers that porter adds get other names.
        weights: by the name of a layer and of its variable, in Keras's axis order. No layer holds other numbers before, because
            TensorFlow keeps the memory that it has had.
        made: layers by name.
    """

    dtype: str
    names: Names
    weights: Mapping[str, Mapping[str, Array]]
    made: dict[str, Any] = field(default_factory=dict)
    _initializers: list[tuple[Any, str, Any]] = field(default_factory=list, init=False)

    @property
    def double(self) -> bool:
        """Whether values are float64. TensorFlow rounds the constants of some activations to float32 then too, such as a GELU's."""
        return self.dtype == "float64"

    def layer(self, kind: str, name: str, **config: Any) -> Any:
        """A layer of the Keras class `kind`."""
        layer = self.made[name] = getattr(import_keras().layers, kind)(name=name, dtype=self.dtype, **config)
        for variable, array in self.weights.get(name, {}).items():
            of_channels = kind == "DepthwiseConv2D" and variable == "kernel"
            attribute = "depthwise_initializer" if of_channels else f"{variable}_initializer"
            if hasattr(layer, attribute):  # otherwise see `fill`
                self._initializers.append((layer, attribute, getattr(layer, attribute)))
                setattr(layer, attribute, partial(self._variable, array))
        return layer

    def fill(self, layer: Any, variable: str) -> None:
        """Gives a variable its numbers that its class makes of ones, whatever initializers a layer has."""
        held = getattr(layer, variable)
        held.assign(self._variable(self.weights[layer.name][variable], held.shape, held.dtype))

    def _variable(self, array: Array, shape: tuple[int, ...], dtype: Dtype) -> Any:
        """What a variable begins with, instead of random numbers."""
        if dtype != "float64":  # TensorFlow widens in its own memory
            array = cast(array, dtype, self.dtype, allow_overflow=True)
        return import_tensorflow().cast(array.reshape(shape), dtype)

    def restore_initializers(self) -> None:
        """Gives the layers Keras's own initializers again, for their configs."""
        for layer, attribute, initializer in self._initializers:
            setattr(layer, attribute, initializer)

    def spatial(self, kind: str, name: str, **config: Any) -> Any:
        """A layer over maps. Its axis order is stated, because ~/.keras/keras.json may have another."""
        return self.layer(kind, name, data_format="channels_last", **config)

    def operation(self, function: str, name: str, *arguments: Any, **options: Any) -> Any:
        """The value of a function of `keras.ops`."""
        return self.named(getattr(import_keras().ops, function)(*arguments, **options), name)

    def named(self, value: Any, name: str) -> Any:
        """`value` of an operation that Keras would number through the whole process, with a name for it."""
        value._keras_history.operation.name = name
        return value

    def name(self, wanted: str) -> str:
        """`wanted`, or the first variation of it that no layer has."""
        return self.names.take(wanted)

    def pad(self, value: Any, pads: Pads, fill: float, name: str) -> Any:
        """A map N×H×W×C with cells of `fill` around it."""
        top, bottom, left, right = pads
        if fill == 0:
            return self.spatial("ZeroPadding2D", name, padding=((top, bottom), (left, right)))(value)
        return self.operation("pad", name, value, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)

"""Makes the layers and operations of one Keras model under names that are unique and the same in every process.

Only built-in layers and `keras.ops` are used, because a functional model saves and loads them without custom objects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from porter.filegraph.names import unused_name
from porter.frameworks.tf.runtime import import_keras
from porter.padding import Pads


@dataclass
class LayerMaker:
    """Makes the layers of one Keras model, all of one dtype.

    Attributes:
        dtype: of weights and values.
        reserved: names that belong to the nodes; layers that porter adds get other names.
        added: names of layers that porter added.
        made: layers by name.
    """

    dtype: str
    reserved: Collection[str]
    added: set[str] = field(default_factory=set)
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def double(self) -> bool:
        """Whether values are float64. TensorFlow rounds the constants of some activations to float32 then too, such as a GELU's."""
        return self.dtype == "float64"

    def layer(self, kind: str, name: str, **config: Any) -> Any:
        """A layer of the Keras class `kind`."""
        self.made[name] = getattr(import_keras().layers, kind)(name=name, dtype=self.dtype, **config)
        return self.made[name]

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
        name = unused_name(wanted, {*self.reserved, *self.added})
        self.added.add(name)
        return name

    def pad(self, value: Any, pads: Pads, fill: float, name: str) -> Any:
        """A map N×H×W×C with cells of `fill` around it."""
        top, bottom, left, right = pads
        if fill == 0:
            return self.spatial("ZeroPadding2D", name, padding=((top, bottom), (left, right)))(value)
        return self.operation("pad", name, value, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)

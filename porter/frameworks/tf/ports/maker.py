"""States the layers and operations of one Keras model under names that are unique and the same in every
process.

Only built-in layers and `keras.ops` are used, because a functional model saves and loads them without custom
objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from porter.base.dtypes import Dtype
from porter.filegraph.names import Names
from porter.frameworks.tf.ports.operations import OPERATIONS, OperationClass
from porter.frameworks.tf.ports.shapes import layer_shape, operation_shape
from porter.frameworks.tf.ports.statement import LAYERS_MODULE, CallValue, KerasCall, Shape
from porter.graph import Op
from porter.padding import Pads


@dataclass
class CallMaker:
    """States calls of one Keras model, whose layers are all of one dtype.

    Attributes:
        dtype: of weights and values.
        names: of the nodes; layers that porter adds get other names.
        calls: in the order in which they are stated.
    """

    dtype: Dtype
    names: Names
    calls: list[KerasCall] = field(default_factory=list)

    @property
    def is_double(self) -> bool:
        """Whether values are float64. TensorFlow rounds the constants of some activations to float32 then
        too, such as a GELU's.
        """
        return self.dtype == "float64"

    def input(self, name: str, shape: Shape) -> CallValue:
        """State an input of the model and return its value."""
        config = {"batch_shape": list(shape), "dtype": self.dtype}
        return self._record(
            KerasCall(LAYERS_MODULE, "InputLayer", name, config, (), {}, self._next_value(shape, self.dtype))
        )

    def layer(self, kind: str, name: str, value: CallValue | list[CallValue], **config: Any) -> CallValue:
        """State a call of a layer of the Keras class `kind` and return its value.

        Args:
            name: of the layer.
            value: what it is called with, a list for layers such as Add.
            config: the arguments of its class.
        """
        inputs = value if isinstance(value, list) else [value]
        shape = layer_shape(kind, config, [source.shape for source in inputs])
        return self._record(
            KerasCall(LAYERS_MODULE, kind, name, config, (value,), {}, self._next_value(shape, self.dtype))
        )

    def spatial(self, kind: str, name: str, value: CallValue, **config: Any) -> CallValue:
        """State a call of a layer over maps and return its value. Its axis order is stated, because
        ~/.keras/keras.json may have another.
        """
        return self.layer(kind, name, value, data_format="channels_last", **config)

    def operation(self, function: str, name: str, *arguments: Any, **options: Any) -> CallValue:
        """State a call of a function of `keras.ops`, or of `getitem`, which takes a part of a value, and
        return its value. The first arguments are what the operation is called with; the others, and `options`
        of the same names, are arguments of its class; other options stand at the call.
        """
        operation = OPERATIONS[function]
        operands = [_python_number(operand) for operand in arguments[: operation.operands]]
        parameters = arguments[operation.operands :]
        by_name = {**dict(zip(operation.parameters, parameters, strict=False)), **options}
        config = {key: value for key, value in by_name.items() if key in operation.parameters}
        further = {key: value for key, value in by_name.items() if key not in config}
        call_options = {**operation.options, **further}
        shape = operation_shape(operation.kind, config, operands)
        value = self._next_value(shape, _dtype_of_value(operation, operands, config))
        return self._record(
            KerasCall(operation.module, operation.kind, name, config, tuple(operands), call_options, value)
        )

    def _record(self, call: KerasCall) -> CallValue:
        """Add a call to those that are stated, and return its value."""
        self.calls.append(call)
        return call.value

    def _next_value(self, shape: Shape, dtype: str) -> CallValue:
        """Return the value that the call stated next will have."""
        return CallValue(len(self.calls), shape, dtype)

    def rename_call(self, value: CallValue, name: str) -> CallValue:
        """Give the call of a value another name, and return the value."""
        self.calls[value.call] = replace(self.calls[value.call], name=name)
        return value

    def name(self, wanted: str) -> str:
        """Return `wanted`, or the first variation of it that no layer has, and reserve it."""
        return self.names.take(wanted)

    def pad(self, value: CallValue, pads: Pads, fill: float, name: str) -> CallValue:
        """State a pad of a map N×H×W×C with cells of `fill` around it."""
        top, bottom, left, right = pads
        if fill == 0:
            return self.spatial("ZeroPadding2D", name, value, padding=((top, bottom), (left, right)))
        return self.operation(
            "pad", name, value, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill
        )


OpT = TypeVar("OpT", bound=Op, covariant=True)


@dataclass(frozen=True)
class KerasNode(Generic[OpT]):
    """A node of the graph, for which calls of Keras's layers and operations are stated: its methods state
    them.

    Attributes:
        maker: states the calls of the whole model.
        name: of the node's last call; names of those before it begin so.
        inputs: the values that the node reads.
        of_map: whether the first of its inputs is a map.
    """

    maker: CallMaker
    op: OpT
    name: str
    inputs: list[CallValue]
    of_map: bool = False

    @property
    def value(self) -> CallValue:
        """The first of the values that it reads."""
        return self.inputs[0]

    def part(self, ending: str) -> str:
        """Return a name for a call before the last one."""
        return self.maker.name(f"{self.name}_{ending}")

    def of(self, op: Op, ending: str, *inputs: CallValue) -> KerasNode[Any]:
        """Return a node by which another op is stated before this one's last call, under this node's name and
        an ending; it has this node's inputs where none are given.
        """
        return KerasNode(self.maker, op, self.part(ending), [*inputs] or self.inputs, self.of_map)

    def under(self, ending: str, *inputs: CallValue) -> KerasNode[Any]:
        """Return a node by which a call is stated before this one's last call, under this node's name and an
        ending: `conv1_crop`.
        """
        return self.of(self.op, ending, *inputs)

    def layer(self, kind: str, value: CallValue | list[CallValue] | None = None, **config: Any) -> CallValue:
        """State a layer of the node's name, of its first input if no other value is given."""
        return self.maker.layer(kind, self.name, self.value if value is None else value, **config)

    def spatial(self, kind: str, value: CallValue | None = None, **config: Any) -> CallValue:
        """State a layer over maps of the node's name, of its first input if no other value is given."""
        return self.maker.spatial(kind, self.name, self.value if value is None else value, **config)

    def operation(self, function: str, *arguments: Any, **options: Any) -> CallValue:
        """State an operation of the node's name, and return its value; see CallMaker.operation."""
        return self.maker.operation(function, self.name, *arguments, **options)

    def step(self, ending: str, function: str, *arguments: Any, **options: Any) -> CallValue:
        """State an operation before the last call, under a name with this ending, and return its value: in
        `node.step("below", "multiply", x, 0.1)`, `below` is the ending and `multiply` the function.
        """
        return self.under(ending).operation(function, *arguments, **options)


def _python_number(value: Any) -> Any:
    """Return a single number as Python's own, as Keras saves it (keras/src/saving/serialization_lib.py,
    serialize_keras_object); other values unchanged.
    """
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


def _dtype_of_value(operation: OperationClass, operands: list[Any], config: Mapping[str, Any]) -> str:
    """Return the type of an operation's value: booleans of a comparison, what a cast states, that of the
    first operand for a part of it, otherwise the widest of its operands' floats. Numbers of Python have none.
    """
    if operation.kind in ("Equal", "Greater", "GreaterEqual"):
        return "bool"
    if operation.kind == "Cast":
        return str(config["dtype"])
    if operation.kind in ("GetItem", "Take"):
        return str(operands[0].dtype)
    dtypes = [
        str(value.dtype)
        for value in operands
        if isinstance(value, CallValue | np.ndarray) and value.dtype != "bool"
    ]
    from_narrow_to_wide = ("float16", "bfloat16", "float32", "float64")
    return max(dtypes, key=from_narrow_to_wide.index)

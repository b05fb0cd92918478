"""A Keras functional model from a plan, with its weights: what is stated is called in Keras."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import GraphError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import LayerNames, Tensors
from porter.frameworks.tf.ports.config import MODEL_NAME
from porter.frameworks.tf.ports.model import state_model
from porter.frameworks.tf.ports.operations import SINCE
from porter.frameworks.tf.ports.statement import CallValue, KerasCall, Statement
from porter.frameworks.tf.run import Runner, attach_runner
from porter.frameworks.tf.runtime import import_keras, tensorflow_device
from porter.graph.ops import is_map
from porter.graph.plan import Plan


def build(plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu") -> Any:
    """Build and return a `keras.Model` of what `state_model` states, in `dtype` on `device`; several outputs
    are a list. A Runner is attached, by which `run` reads its values.

    Raises:
        MappingError, GraphError: as `state_model`; or the chain of layers is too deep, or this version of
        Keras lacks one.
        NotInstalled: TensorFlow or Keras is not installed.
        UsageError: no such device.
    """
    statement = state_model(plan, tensors, layers, dtype)
    with import_tensorflow().device(tensorflow_device(device)):
        model, values = connect(statement)
    arrays = {path for path, shape in plan.lowered.open_shapes.items() if not is_map(shape)}
    attach_runner(
        Runner(model, values, device, arrays=arrays, takes=plan.lowered, usual_size=plan.usual_size)
    )
    return model


def connect(statement: Statement) -> tuple[Any, dict[str, Any]]:
    """Call the stated layers and operations in Keras. Return the model with its weights, and the symbolic
    value of every path.

    Raises:
        GraphError, NotInstalled: as `build`.
    """
    keras = import_keras()
    caller = _Caller(statement)
    for call in statement.calls:
        caller.call(call)
    values = {path: caller.results[symbol.call] for path, symbol in statement.values.items()}
    inputs, outputs = ([values[path] for path in paths] for paths in (statement.inputs, statement.outputs))
    try:
        model = keras.Model(
            inputs if len(inputs) > 1 else inputs[0],
            outputs if statement.several else outputs[0],
            name=MODEL_NAME,
        )
    except RecursionError:  # keras/src/ops/function.py, _build_map_helper
        raise statement.too_deep_error() from None
    caller.restore_initializers()
    return model, values


class _Caller:
    """Makes layers and operations in Keras, and calls them.

    No layer holds other numbers before its weights, because TensorFlow keeps the memory that it has had.
    """

    def __init__(self, statement: Statement) -> None:
        self.results: list[Any] = []
        self._layers: dict[str, Any] = {}
        self._statement = statement
        self._initializers: list[tuple[Any, str, Any]] = []

    def call(self, call: KerasCall) -> None:
        """Call a layer or an operation, which is made and gets its weights at its first call, and add its
        value to `results`.
        """
        is_first = call.name not in self._layers
        if is_first:
            self._layers[call.name] = self._make(call)
        layer = self._layers[call.name]
        weights = self._statement.weights.get(call.name, {}) if call.is_layer and is_first else {}
        to_assign = {
            variable: array
            for variable, array in weights.items()
            if not self._set_initializer(layer, call, variable, array)
        }
        arguments = self._fill_arguments(call.arguments)
        options = {key: self._fill_arguments(value) for key, value in call.options.items()}
        self.results.append(layer.output if call.kind == "InputLayer" else layer(*arguments, **options))
        for variable, array in to_assign.items():
            variable_of_layer = getattr(layer, variable)
            variable_of_layer.assign(self._tensor_of(array, variable_of_layer.shape, variable_of_layer.dtype))

    def _make(self, call: KerasCall) -> Any:
        """Make the Keras layer or operation that a call is of, under its name. Raise GraphError where this
        version of Keras lacks its class.
        """
        kind = getattr(import_module(call.module), call.kind, None)
        if kind is None:
            message = f"this version of Keras has no {call.kind}"
            raise GraphError(
                message, where=call.name, next=f"install Keras {SINCE.get(call.kind, '3.5')} or later"
            )
        if call.is_layer:
            return kind(**{"dtype": self._statement.dtype, **call.config}, name=call.name)
        operation = kind(**call.config)
        operation.name = call.name  # the classes of operations take one since Keras 3.11
        return operation

    def _fill_arguments(self, value: Any) -> Any:
        """Return an argument of a call in which Keras's own values stand for the stated ones (CallValue), in
        lists too.
        """
        if isinstance(value, CallValue):
            return self.results[value.call]
        return type(value)(map(self._fill_arguments, value)) if isinstance(value, list | tuple) else value

    def _set_initializer(self, layer: Any, call: KerasCall, variable: str, array: Array) -> bool:
        """Let a variable begin with its numbers instead of random ones, by an initializer that gives them,
        and return True. Return False if the layer has no initializer for it, so that it is assigned later.
        """
        of_channels = call.kind == "DepthwiseConv2D" and variable == "kernel"
        attribute = "depthwise_initializer" if of_channels else f"{variable}_initializer"
        if not hasattr(layer, attribute):
            return False
        self._initializers.append((layer, attribute, getattr(layer, attribute)))
        setattr(layer, attribute, partial(self._tensor_of, array))
        return True

    def _tensor_of(self, array: Array, shape: tuple[int, ...], dtype: Dtype) -> Any:
        """Return the array as a tensor; the arguments are those with which Keras calls an initializer."""
        if dtype != "float64":  # TensorFlow widens in its own memory
            array = cast(array, dtype, self._statement.dtype, allow_overflow=True)
        return import_tensorflow().cast(array, dtype)

    def restore_initializers(self) -> None:
        """Give the layers their own initializers back, for their configs."""
        for layer, attribute, initializer in self._initializers:
            setattr(layer, attribute, initializer)

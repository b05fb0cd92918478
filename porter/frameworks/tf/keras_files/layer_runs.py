"""Runs the layers and operations of a Keras file, one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from porter.base.dtypes import Dtype, storage_type
from porter.base.name_tables import JsonObject
from porter.formats.keras.call_names import NamedCall
from porter.formats.keras.channels_first import CHANNELS_LAST
from porter.formats.keras.flow import LayerCall, Result
from porter.formats.keras.graph import operands_of
from porter.formats.keras.layer_variables import CLASSES
from porter.formats.keras.precision import compute_type, policy_of
from porter.formats.keras.scaling import numbers_in
from porter.formats.keras.versions import modern, operation_name
from porter.frameworks.tf.keras_files.operations import (
    activate,
    cosine,
    einsum_dense,
    expect_plain,
    operate,
    relu,
    sum_stretched,
)
from porter.frameworks.tf.keras_files.other_forms import pad_as_theano, runnable_form
from porter.frameworks.tf.keras_files.resizing import (
    fit_aspect_ratio,
    keeps_size,
    resizes_instead,
    rounds_to_float32,
    tensorflow_resize,
)
from porter.frameworks.tf.keras_files.variables import FileTensors
from porter.frameworks.tf.resizing import resize_map
from porter.frameworks.tf.runtime import import_keras, keras_do

COMPUTED = frozenset(
    {
        "Activation",
        "Add",
        "Average",
        "CustomScaleLayer",
        "EinsumDense",
        "LayerScale",
        "LeakyReLU",
        "Merge by cos",
        "ReLU",
    }
)
"""Classes whose function is computed by keras.ops."""


_MERGES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "Add": sum_stretched,
    "Average": lambda values: sum_stretched(values) / len(values),
    "Merge by cos": lambda values: cosine(*values),
}
"""Merges of several values, by their layers' kinds."""


@dataclass
class LayerRuns:
    """The layers that were made so far, by their paths.

    Attributes:
        tensors: of the file.
        as_stated: each layer has the type that the config states for it.
        version: of the Keras that wrote the file.
        on_theano: the file's Keras ran on Theano.
        value_of: gives the value of an earlier call.
    """

    tensors: FileTensors
    as_stated: bool
    version: int
    on_theano: bool
    value_of: Callable[[Result], Any]
    _layers: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def result(self, named: NamedCall, inputs: list[Any]) -> Any:
        """Return the value of a layer or an operation on inputs that have their channels where it takes them.
        Keras's own layer computes it, or keras.ops where that layer would round or compute something else. A
        layer that does nothing in inference gives its input.
        """
        call = named.call
        operation = operation_name(call.kind, call.arguments)
        if operation is not None:
            return self._run_operation(operation, call)
        if call.kind in _MERGES:
            return _MERGES[call.kind](inputs)
        match call.kind:
            case "Activation":
                return self.activate(call, inputs[0])
            case "CustomScaleLayer":
                return sum_stretched([inputs[0], inputs[1] * self._constant(call.arguments["scale"])])
            case "EinsumDense":
                return einsum_dense(
                    str(call.arguments["equation"]),
                    inputs[0],
                    *(
                        keras_do("cast", self.tensors.tensor(named, name), inputs[0].dtype)
                        for name in named.tensors
                    ),
                )
            case "LeakyReLU" | "ReLU":
                return _relu_of(call.kind, call.arguments, inputs[0])
            case "Resizing" | "UpSampling2D" if self.tensors.dtype == "float64" and rounds_to_float32(call):
                value = fit_aspect_ratio(call.arguments, inputs[0])
                same_size = keeps_size(call.kind, call.arguments, tuple(value.shape[1:3]))
                return (
                    value
                    if same_size
                    else resize_map(value, tensorflow_resize(call), keras_do, self.tensors.dtype)
                )
            # Keras resizes the map in its aspect ratio instead of cropping it.
            case "CenterCrop" | "RandomCrop" if resizes_instead(
                call.kind, call.arguments, tuple(inputs[0].shape[1:3])
            ):
                arguments = {**call.arguments, "crop_to_aspect_ratio": True}
                resizing = replace(call, kind="Resizing", arguments=arguments)
                return self.result(replace(named, call=resizing), inputs)
            case "LayerScale":
                (variable,) = named.tensors
                scale = self.tensors.tensor(named, variable, (inputs[0].shape[-1],))
                return inputs[0] * keras_do("cast", scale, inputs[0].dtype)
            case "Conv2D" | "MaxPooling2D" | "AveragePooling2D" if (
                self.on_theano and call.arguments.get("padding") == "same"
            ):
                return pad_as_theano(named, inputs[0], self._call_layer)
        return self._call_layer(named, inputs) if call.kind in CLASSES else inputs[0]

    def _run_operation(self, operation: str, call: LayerCall) -> Any:
        """Run an operation that the file's graph calls, such as an addition, by keras.ops, and return its
        value.
        """
        operands = self._operands(operation, call)
        if operation == "cast" and self.as_stated:
            return keras_do("cast", operands[0], compute_type(call.arguments.get("dtype")))
        return operate(operation, operands, {**call.arguments, **call.inbound.keywords}, self.version)

    def _call_layer(self, named: NamedCall, inputs: list[Any]) -> Any:
        """Call Keras's own layer and return its value. The layer is made at its first call and has the file's
        tensors from then on.
        """
        call = named.call
        channels = inputs[0].shape[-1]
        is_new = call.path not in self._layers
        if is_new:
            self.tensors.expect_shapes(named, channels)
            self._layers[call.path] = self._make_layer(*runnable_form(call, channels))
        layer = self._layers[call.path]
        if call.kind == "MultiHeadAttention":
            if not self.as_stated:  # Keras would round it to float32
                layer._inverse_sqrt_key_dim = np.asarray(1 / np.sqrt(call.arguments["key_dim"]))
            value = layer(*inputs)
        else:
            # A list of values, or the only one, as the file calls it.
            value = layer(inputs if isinstance(call.inbound.arguments[0], tuple) else inputs[0])
        if is_new:
            self.tensors.fill(layer, named, channels)
        return value

    def activate(self, call: LayerCall, value: Any) -> Any:
        """Return a value after the `activation` that a call states as its argument: a function on a closed
        list by its name, or a layer on one.

        Raises:
            ValueError: the activation is neither, or not on its list.
        """
        activation = call.arguments.get("activation")
        name = resolved_activation(activation)
        if name == "linear":
            return value
        if name is not None:
            return activate(name, value, {}, self.version)
        if not isinstance(activation, Mapping):
            raise ValueError("its activation is neither a name nor a layer")
        kind, arguments = modern(activation["class_name"], activation["config"])
        if kind in ("LeakyReLU", "ReLU"):
            return _relu_of(kind, arguments, value)
        return self._make_layer(kind, arguments)(value)

    def _make_layer(self, kind: str, stated: JsonObject) -> Any:
        """Make a layer of the Keras class `kind`, which is on the list CLASSES, from those arguments in the
        file that the list has for this class.
        """
        arguments = {key: expect_plain(stated[key]) for key in CLASSES[kind].arguments if key in stated}
        if "data_format" in CLASSES[kind].arguments and arguments.get("data_format") is None:
            # Otherwise ~/.keras/keras.json would decide.
            arguments["data_format"] = CHANNELS_LAST
        if kind == "Rescaling":
            # As numpy numbers, because Keras would first round plain ones to float32.
            arguments |= {key: self._constant(stated.get(key, 0.0)) for key in ("scale", "offset")}
        if kind == "Normalization" and stated.get("mean") is not None:
            for name in ("mean", "variance"):
                numbers = np.ravel(self._constant(stated.get(name)))
                arguments[name] = numbers[0] if numbers.size == 1 else numbers
        dtype = policy_of(stated.get("dtype")) if self.as_stated else self.tensors.dtype
        return getattr(import_keras().layers, kind)(dtype=dtype, **arguments)

    def _operands(self, operation: str, call: LayerCall) -> list[Any]:
        """Return the operands of an operation in their order, as Keras's values and as constant arrays. The
        key of a slice (`get_item`), and the indices of a `take`, stay as they are.
        """
        operands = operands_of(call)
        # These take one list of values.
        if operation in ("concatenate", "stack") and operands and isinstance(operands[0], tuple):
            operands = list(operands[0])
        values = {
            index: self.value_of(operand)
            for index, operand in enumerate(operands)
            if isinstance(operand, Result)
        }
        if operation in ("get_item", "take"):
            return [values.get(index, operand) for index, operand in enumerate(operands)]
        number_type = None
        if self.as_stated:
            # In the types that the file states, a plain number takes that of the values beside it.
            number_type = next((value.dtype for value in values.values()), self.tensors.dtype)
        constants = {
            index: self._constant(operand, number_type if isinstance(operand, int | float) else None)
            for index, operand in enumerate(operands)
            if index not in values
        }
        return [value for _, value in sorted({**values, **constants}.items())]

    def _constant(self, value: Any, dtype: Dtype | None = None) -> Any:
        """Return constant numbers as an array in `dtype`, or in the model's type; a single number is a
        scalar.
        """
        numbers = numbers_in(value)
        if numbers is None:
            raise ValueError("it has a constant that is no array of numbers")
        stored = numbers.astype(storage_type(dtype or self.tensors.dtype))
        return stored.ravel()[0] if stored.size == 1 else stored


def _relu_of(kind: str, arguments: JsonObject, value: Any) -> Any:
    """Apply a ReLU or a LeakyReLU layer with these arguments."""
    slope = arguments.get("negative_slope", 0.3 if kind == "LeakyReLU" else 0.0)
    return relu(value, slope, arguments.get("max_value"), arguments.get("threshold"))


def resolved_activation(activation: Any) -> str | None:
    """Return the name of the function in an `activation` argument, as Keras resolves it: `linear` of None,
    `relu` of `keras.activations.relu`. None where the argument is an object, such as a layer's config.

    The reader has a function of its own for this, so that a mistake in either shows as a difference.
    """
    if activation is None:
        return "linear"
    return activation.rpartition(".")[2] if isinstance(activation, str) else None

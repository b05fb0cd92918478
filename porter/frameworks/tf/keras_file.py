"""The model that a whole-model Keras file describes, built by Keras 3 for comparison with a port.

The config is a stranger's text. Every layer is made from a class and arguments on a closed list; nothing that the config names is
imported or looked up, and no object that it serialises is revived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from porter.dtypes import Array, Dtype, cast, storage_type
from porter.errors import MappingError, MissingFramework
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import Foreign
from porter.formats.keras.flow import Call, Value, read_flow, values_in
from porter.formats.keras.graph import Named, fused_name, name_calls
from porter.formats.keras.layer import Layer, Shape, pair
from porter.formats.keras.layers import is_in_training, layer_step
from porter.formats.keras.scaling import (
    constant,
    keeps_dimensions,
    operands_of,
    operation_of,
    operation_step,
    statistics,
)
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.run import attach_runner
from porter.frameworks.tf.runtime import import_keras, tensorflow_device
from porter.graph import INPUT
from porter.padding import Size

_WINDOW = ("strides", "padding", "data_format")
_CONVOLUTION = (*_WINDOW, "kernel_size", "dilation_rate", "use_bias")
_LAYERS: Mapping[str, tuple[str, ...]] = {
    "Activation": (),
    "Add": (),
    "AveragePooling2D": (*_WINDOW, "pool_size"),
    "BatchNormalization": ("axis", "epsilon", "momentum", "scale", "center"),
    "Concatenate": ("axis",),
    "Conv2D": (*_CONVOLUTION, "filters", "groups"),
    "Dense": ("units", "use_bias"),
    "DepthwiseConv2D": (*_CONVOLUTION, "depth_multiplier"),
    "Flatten": ("data_format",),
    "GlobalAveragePooling2D": ("data_format", "keepdims"),
    "GlobalMaxPooling2D": ("data_format", "keepdims"),
    "MaxPooling2D": (*_WINDOW, "pool_size"),
    "Normalization": ("axis", "invert"),
    "ReLU": ("max_value", "negative_slope", "threshold"),
    "Rescaling": (),
    "Reshape": ("target_shape",),
    "Softmax": ("axis",),
    "ZeroPadding2D": ("padding", "data_format"),
}
"""Classes in keras.layers that are built, with the arguments that are taken from a config. None of them runs code from the file."""
_FUSING = frozenset({"Conv2D", "Dense", "DepthwiseConv2D"})
"""Those of them that also have an `activation` argument."""
_ACTIVATIONS = frozenset(
    {"linear", "relu", "relu6", "softmax", "sigmoid", "tanh", "elu", "selu", "silu", "swish", "gelu", "softplus"}
)
_SCALARS = (int, float, str, bool, type(None))


def build_keras_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """The model of `checkpoint.graph.definition` with the tensors of `checkpoint`, all in `dtype`, for `run_reference`.

    It is built for an input of `size` (rows, columns; None where they are free), with the pads of the config. Its values have the
    names of the taps of the graph's nodes: the names of all layers, also those of nested models. A layer's name means its value
    before its `activation`, which is another layer here, so that logits can be compared. A layer that is not on the closed list is
    left out with all layers that read it: porter refuses it where it leads to the logits.

    Raises:
        MissingFramework: TensorFlow or Keras is not installed, or the file's model begins with such a layer.
        MappingError: a layer's tensor is not in the checkpoint, or its shape differs.
        FileError: the config cannot be read.
    """
    where, graph = str(checkpoint.path), checkpoint.graph
    flow = read_flow(graph.definition, where) if graph is not None else None
    if graph is None or flow is None:
        raise MissingFramework("the file carries no Keras model's config", where=where)
    calls = name_calls(flow, checkpoint.tensors)
    with import_tensorflow().device(tensorflow_device("cpu")), _floats(dtype):
        builder = _Builder(checkpoint, dtype, size, graph.channels)
        for named in calls:
            builder.add(named)
        if not builder.taps:
            raise MissingFramework(f"the file's own model cannot be run: {'; '.join(builder.refused[:3])}", where=where)
        model = import_keras().Model(builder.source, list(builder.taps.values()))
    attach_runner(model, builder.taps, "cpu")
    return model


@contextmanager
def _floats(dtype: Dtype) -> Iterator[None]:
    """Keras converts plain numbers to its global float type, not to the layer's; the type is restored afterwards."""
    config = import_keras().config
    before = config.floatx()
    config.set_floatx(dtype)
    try:
        yield
    finally:
        config.set_floatx(before)


class _Builder:
    """Calls Keras layers one after the other, all on one symbolic input.

    Attributes:
        taps: values by name.
        refused: why layers were left out.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: Dtype, size: Size, channels: int) -> None:
        self.keras = import_keras()
        self.source = self.keras.Input((*size, channels), dtype=dtype, name=INPUT)
        self.taps: dict[str, Any] = {}
        self.refused: list[str] = []
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._values: list[Any] = []
        self._layers: dict[tuple[str, ...], Any] = {}

    def add(self, named: Named) -> None:
        """Adds one call. Its value is None where it, or a value that it reads, is not run."""
        inputs = [self._value(value) for value in values_in(named.call.given)]
        if any(value is None for value in inputs):
            self._values.append(None)
            return
        refusal = _refusal(named, inputs)
        if refusal is not None:
            self.refused.append(refusal)
            self._values.append(None)
            return
        try:
            found = self.taps[named.name] = self._result(named, inputs)
            activation = _activation(named.call) if named.call.kind in _FUSING else "linear"
            if activation != "linear":
                found = self.taps[fused_name(named)] = self.keras.layers.Activation(activation, dtype=self._dtype)(found)
        # Keras raises these for arguments that exclude each other, or shapes that do not fit.
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            message = f"Keras {self.keras.__version__} cannot build layer '{named.name}': {text:.200}"
            raise MissingFramework(message, where=str(self._checkpoint.path)) from None
        self._values.append(found)

    def _value(self, value: Value) -> Any:
        return self.source if value.call < 0 else self._values[value.call]

    def _result(self, named: Named, inputs: list[Any]) -> Any:
        call = named.call
        operation = operation_of(call)
        if operation is not None:
            return self._operation(operation, call)
        if call.kind not in _LAYERS:
            return inputs[0]
        layer = self._layers.get(call.path)
        if layer is None:
            self._expect_shapes(named, inputs[0].shape[-1])
            layer = self._layers[call.path] = self._layer(call)
        found = layer(inputs if isinstance(call.given.arguments[0], tuple) else inputs[0])
        if not call.call_index:
            self._fill(layer, named)
        return found

    def _layer(self, call: Call) -> Any:
        arguments = {key: _plain(call.arguments[key]) for key in _LAYERS[call.kind] if key in call.arguments}
        if "data_format" in _LAYERS[call.kind] and arguments.get("data_format") is None:
            # Otherwise ~/.keras/keras.json would decide.
            arguments["data_format"] = "channels_last"
        if call.kind == "Activation":
            arguments["activation"] = _activation(call)
        if call.kind == "Rescaling":
            # As numpy numbers, because Keras would first round plain ones to float32.
            arguments |= {key: self._constant(call.arguments.get(key, 0.0)) for key in ("scale", "offset")}
        if call.kind == "Normalization" and call.arguments.get("mean") is not None:
            found = statistics(call.arguments, {})
            if found is None:
                raise ValueError("it lacks one mean and variance per channel")
            arguments |= {"mean": found[0], "variance": found[1]}
        return getattr(self.keras.layers, call.kind)(dtype=self._dtype, **arguments)

    def _operation(self, operation: str, call: Call) -> Any:
        operands = [
            self._value(operand) if isinstance(operand, Value) else self._constant(operand) for operand in operands_of(call)
        ]
        settings = {**call.arguments, **call.given.keywords}
        function = getattr(self.keras.ops, operation)
        if operation in ("mean", "max"):
            return function(operands[0], axis=(1, 2), keepdims=keeps_dimensions(call))
        if operation == "softmax":
            return function(operands[0], axis=settings.get("axis", -1))
        return operands[0] if operation == "cast" else function(*operands)

    def _constant(self, value: Any) -> Any:
        found = constant(value)
        if found is None:
            raise ValueError("it has a constant that is not one number per channel")
        stored = found.astype(storage_type(self._dtype))
        return stored[0] if len(stored) == 1 else stored

    def _expect_shapes(self, named: Named, channels: int) -> None:
        """Refuses tensors of other shapes than the layer's before Keras allocates variables of the size that the config states."""
        for variable, shape in _shapes(named.call, channels).items():
            self._tensor(named, variable, shape)

    def _fill(self, layer: Any, named: Named) -> None:
        for variable in layer.weights:
            variable.assign(self._tensor(named, variable.name, tuple(variable.shape)))
        if named.call.kind == "Normalization":
            layer.finalize_state()

    def _tensor(self, named: Named, variable: str, shape: tuple[int, ...]) -> Array:
        where = str(self._checkpoint.path)
        # Keras 2's name for the kernel of a DepthwiseConv2D is `depthwise_kernel`.
        name = next((named.tensors[one] for one in (variable, f"depthwise_{variable}") if one in named.tensors), None)
        if name is None:
            raise MappingError(f"layer '{named.name}' has no '{variable}'", where=where)
        array = self._checkpoint.tensors[name]
        if array.shape != shape:
            raise MappingError(f"{name}: expected shape {shape}, got {array.shape}", where=where)
        return cast(array, self._dtype, name, allow_overflow=True)


def _refusal(named: Named, inputs: list[Any]) -> str | None:
    """Why a call is not run; None where it is."""
    call, name = named.call, f"layer '{named.name}'"
    if is_in_training(call):
        return f"{name} ({call.kind}) is called with training=True"
    operation = operation_of(call)
    if operation is not None:
        step = operation_step(operation, call)
        return f"{name} is {step.kind}" if isinstance(step, Foreign) else None
    if not inputs or (call.kind not in _LAYERS and layer_step(Layer(call.kind, call.arguments, _shape(inputs[0]))) is not None):
        function = f" {call.arguments.get('function')!r:.60}" if call.kind == "TFOpLambda" else ""
        return f"{name} ({call.kind:.60}{function}) is not on porter's list of layers that are run"
    if (call.kind in _FUSING or call.kind == "Activation") and _activation(call) not in _ACTIVATIONS:
        return f"{name} ({call.kind}) has an activation that is not on porter's list"
    return None


def _activation(call: Call) -> str:
    """The name in a layer's `activation` argument; no name of Keras's where it is an object."""
    stated = call.arguments.get("activation") or "linear"
    return stated.rpartition(".")[2] if isinstance(stated, str) else "an object"


def _shapes(call: Call, channels: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the large variables that Keras makes for a layer whose input has `channels`."""
    arguments = call.arguments
    match call.kind:
        case "Conv2D":
            groups = arguments.get("groups", 1)
            return {"kernel": (*pair(arguments["kernel_size"]), channels // groups, arguments["filters"])}
        case "DepthwiseConv2D":
            return {"kernel": (*pair(arguments["kernel_size"]), channels, arguments.get("depth_multiplier", 1))}
        case "Dense":
            return {"kernel": (channels, arguments["units"])}
        case "BatchNormalization":
            return {"moving_mean": (channels,)}
        case "Normalization" if arguments.get("mean") is None:
            return {"mean": (channels,)}
        case _:
            return {}


def _plain(value: Any) -> Any:
    """Numbers, texts and lists of them. Keras would revive an object."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise ValueError("an argument is an object")


def _shape(value: Any) -> Shape:
    shape = tuple(value.shape)
    return Shape(shape[-1], (shape[1], shape[2])) if len(shape) == 4 else Shape(shape[-1], (1, 1), flat=True)

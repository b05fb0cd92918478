"""The model that a whole-model Keras file describes, built by Keras 3 for comparison with a port.

The config is somebody else's text. Every layer is made here from a class and arguments on a closed list; nothing that the config
names is imported or looked up, and no object that it serialises is revived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from porter.dtypes import Array, Dtype, cast, storage_type
from porter.errors import MappingError, MissingFramework
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.tf.keras_flow import Value, read_flow, values_in
from porter.frameworks.tf.keras_graph import Named, name_calls
from porter.frameworks.tf.keras_layers import INERT, TRAINED, Shape, activation_step, changes_size
from porter.frameworks.tf.keras_scaling import constant, operands_of, operation_of, statistics
from porter.frameworks.tf.keras_versions import OPERATIONS
from porter.frameworks.tf.run import attach_runner
from porter.frameworks.tf.runtime import import_keras, import_tensorflow, tensorflow_device
from porter.graph import INPUT
from porter.windows import Size

_WINDOW = ("strides", "padding", "data_format")
_CONVOLUTION = (*_WINDOW, "kernel_size", "dilation_rate", "activation", "use_bias")
_LAYERS: Mapping[str, tuple[str, ...]] = {
    "Activation": ("activation",),
    "Add": (),
    "Average": (),
    "AveragePooling2D": (*_WINDOW, "pool_size"),
    "BatchNormalization": ("axis", "epsilon", "momentum", "scale", "center"),
    "CenterCrop": ("height", "width", "data_format"),
    "Concatenate": ("axis",),
    "Conv2D": (*_CONVOLUTION, "filters", "groups"),
    "Cropping2D": ("cropping", "data_format"),
    "Dense": ("units", "activation", "use_bias"),
    "DepthwiseConv2D": (*_CONVOLUTION, "depth_multiplier"),
    "Flatten": ("data_format",),
    "GlobalAveragePooling2D": ("data_format", "keepdims"),
    "GlobalMaxPooling2D": ("data_format", "keepdims"),
    "LeakyReLU": ("negative_slope",),
    "MaxPooling2D": (*_WINDOW, "pool_size"),
    "Maximum": (),
    "Multiply": (),
    "Normalization": ("axis", "invert"),
    "Permute": ("dims",),
    "ReLU": ("max_value", "negative_slope", "threshold"),
    "Rescaling": (),
    "Reshape": ("target_shape",),
    "Resizing": ("height", "width", "interpolation", "data_format"),
    "SeparableConv2D": (*_CONVOLUTION, "filters", "depth_multiplier"),
    "Softmax": ("axis",),
    "Subtract": (),
    "UpSampling2D": ("size", "interpolation", "data_format"),
    "ZeroPadding2D": ("padding", "data_format"),
}
"""Classes in keras.layers that are built, with the arguments that are taken from a config. None of them runs code of the file's."""
_ACTIVATIONS = frozenset({"linear", "relu", "relu6", "softmax", "sigmoid", "tanh", "elu", "selu", "silu", "swish", "gelu", "softplus"})
_SCALARS = (int, float, str, bool, type(None))


def build_keras_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """The model of `checkpoint.graph.definition` with the tensors of `checkpoint`, all in `dtype`, for `run_reference`.

    Built for an input of `size` (rows, columns; None where they are free), pads as the config has them.

    Its values go by the taps of the graph's nodes: the names of all layers, those of nested models included.

    Raises:
        MissingFramework: TensorFlow or Keras is not installed, or the file has a layer that is not on the closed list.
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
        model = import_keras().Model(builder.source, [builder.value(output) for output in flow.outputs])
    attach_runner(model, builder.taps, "cpu")
    return model


@contextmanager
def _floats(dtype: Dtype) -> Iterator[None]:
    """Keras makes tensors of plain numbers in its global float type, whatever the layer's; it is put back as it was."""
    config = import_keras().config
    before = config.floatx()
    config.set_floatx(dtype)
    try:
        yield
    finally:
        config.set_floatx(before)


class _Builder:
    """Calls Keras layers one after the other, all on one symbolic input."""

    def __init__(self, checkpoint: Checkpoint, dtype: Dtype, size: Size, channels: int) -> None:
        self.keras = import_keras()
        self.source = self.keras.Input((*size, channels), dtype=dtype, name=INPUT)
        self.taps: dict[str, Any] = {}
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._values: list[Any] = []
        self._layers: dict[tuple[str, ...], Any] = {}

    def value(self, value: Value) -> Any:
        return self.source if value.call < 0 else self._values[value.call]

    def add(self, named: Named) -> None:
        call = named.call
        try:
            found = self._result(named)
        # What Keras answers to arguments that it does not take together, or to shapes that do not fit.
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise self._refuse(named, f"cannot be built: {text:.200}") from None
        self._values.append(found)
        self.taps[named.name] = found
        if call.path not in self._layers:
            self._layers[call.path] = None

    def _result(self, named: Named) -> Any:
        call = named.call
        operation = operation_of(call)
        if operation in OPERATIONS.values():
            return self._operation(operation, named)
        inputs = [self.value(value) for value in values_in(call.given)]
        if call.training is True and call.kind in TRAINED:
            raise self._refuse(named, "is called with training=True")
        if call.kind in INERT and not changes_size(call.kind, call.arguments, _shape(inputs[0])):
            return inputs[0]
        if call.kind not in _LAYERS or not inputs:
            what = f" {call.arguments.get('function')!r:.60}" if call.kind == "TFOpLambda" else ""
            raise self._refuse(named, f"({call.kind:.60}{what}) is not on porter's list of layers that are run")
        layer = self._layers.get(call.path)
        if layer is None:
            layer = self._layers[call.path] = self._layer(named)
        found = layer(inputs if isinstance(call.given.arguments[0], tuple) else inputs[0])
        if not call.again:
            self._fill(layer, named)
        return found

    def _layer(self, named: Named) -> Any:
        call = named.call
        arguments = {key: _plain(call.arguments[key]) for key in _LAYERS[call.kind] if key in call.arguments}
        if "activation" in arguments:
            arguments["activation"] = self._activation(named)
        if call.kind == "Rescaling":
            # As numpy numbers, which Keras takes as they are: plain ones it would round to float32 first.
            arguments |= {key: self._constant(named, call.arguments.get(key, 0.0)) for key in ("scale", "offset")}
        if call.kind == "Normalization" and call.arguments.get("mean") is not None:
            found = statistics(call.arguments, {})
            if found is None:
                raise self._refuse(named, "does not have one mean and variance per channel")
            arguments |= {"mean": found[0], "variance": found[1]}
        return getattr(self.keras.layers, call.kind)(dtype=self._dtype, **arguments)

    def _activation(self, named: Named) -> str | None:
        stated = named.call.arguments["activation"]
        name = str(stated).rpartition(".")[2] if isinstance(stated, str) else stated
        if name is None or name in _ACTIVATIONS:
            return name
        raise self._refuse(named, f"has an activation that is not on porter's list: {activation_step(stated)}")

    def _operation(self, operation: str, named: Named) -> Any:
        operands = [
            self.value(operand) if isinstance(operand, Value) else self._constant(named, operand)
            for operand in operands_of(named.call)
        ]
        settings = {**named.call.arguments, **named.call.given.keywords}
        function = getattr(self.keras.ops, operation)
        if operation in ("mean", "max"):
            axis = settings.get("axis")
            return function(operands[0], axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=bool(settings.get("keepdims")))
        if operation == "softmax":
            return function(operands[0], axis=settings.get("axis", -1))
        if operation == "cast":
            if not str(settings.get("dtype")).startswith(("float", "bfloat")):
                raise self._refuse(named, f"casts to {settings.get('dtype')!r:.40}")
            return operands[0]
        return function(*operands)

    def _constant(self, named: Named, value: Any) -> Any:
        found = constant(value)
        if found is None:
            raise self._refuse(named, "has a constant that is not one number per channel")
        stored = found.astype(storage_type(self._dtype))
        return stored[0] if len(stored) == 1 else stored

    def _fill(self, layer: Any, named: Named) -> None:
        for variable in layer.weights:
            tensor = next((named.tensors[name] for name in (variable.name, f"depthwise_{variable.name}") if name in named.tensors), None)
            if tensor is None:
                raise MappingError(f"layer '{named.name}' has no '{variable.name}'", where=str(self._checkpoint.path))
            array = self._checkpoint.tensors[tensor]
            if array.shape != tuple(variable.shape):
                message = f"{tensor}: expected shape {tuple(variable.shape)}, got {array.shape}"
                raise MappingError(message, where=str(self._checkpoint.path))
            variable.assign(self._cast(array, tensor))
        if named.call.kind == "Normalization":
            layer.finalize_state()

    def _cast(self, array: Array, tensor: str) -> Array:
        return cast(array, self._dtype, tensor, allow_overflow=True)

    def _refuse(self, named: Named, message: str) -> MissingFramework:
        version = self.keras.__version__
        return MissingFramework(
            f"Keras {version} cannot run the file's own model: layer '{named.name}' {message}", where=str(self._checkpoint.path)
        )


def _plain(value: Any) -> Any:
    """Numbers, texts and lists of such; Keras would revive an object."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise ValueError("an argument is an object")


def _shape(value: Any) -> Shape:
    shape = tuple(value.shape)
    return Shape(shape[-1], (shape[1], shape[2])) if len(shape) == 4 else Shape(shape[-1], (1, 1), flat=True)

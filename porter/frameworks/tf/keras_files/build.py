"""The model that a whole-model Keras file describes, built by Keras 3 for comparison with a port.

The config is a stranger's text. Every layer is made from a class and arguments on a closed list; nothing that
the config names is imported or looked up, and no object that it serialises is revived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from porter.base.dtypes import HALVES, Array, Dtype, cast, storage_type
from porter.base.errors import CannotRun, Contradiction, MappingError, first_line
from porter.base.json import JsonObject
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, Foreign, Unsupported
from porter.formats.keras.activations import ACTIVATIONS, PARTS
from porter.formats.keras.arrays import variable_in
from porter.formats.keras.channels_first import (
    ACTIVATION,
    CHANNELS_FIRST,
    CHANNELS_LAST,
    IMAGE,
    read_calls,
)
from porter.formats.keras.flow import Flow, LayerCall, Result, read_flow, results_in
from porter.formats.keras.graph import NamedCall, before_activation, fused_name, name_calls, operands_of
from porter.formats.keras.layer_readers import FUSING, IDENTITY_AT_INFERENCE, is_in_training
from porter.formats.keras.layer_variables import CLASSES
from porter.formats.keras.precision import compute_type, policy_of
from porter.formats.keras.scaling import numbers_in
from porter.formats.keras.stated_layer import pair
from porter.formats.keras.versions import modern, operation_name
from porter.formats.keras.wiring import find_misreading, find_wrong_turn
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.keras_files.operations import (
    activate,
    cosine,
    einsum_dense,
    expect_plain,
    has_operation,
    operate,
    relu,
    sum_stretched,
)
from porter.frameworks.tf.keras_files.resizing import (
    fit_aspect_ratio,
    keeps_size,
    resizes_instead,
    rounds_to_float32,
    tensorflow_resize,
)
from porter.frameworks.tf.resizing import resize_map
from porter.frameworks.tf.run import attach_runner
from porter.frameworks.tf.runtime import (
    import_keras,
    keras_defaults,
    keras_do,
    tensorflow_device,
    zero_initializers,
)
from porter.graph import INPUT, Shape, input_shape
from porter.graph.ops import is_map
from porter.padding import Size

_COMPUTED = frozenset(
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
_ChannelsFirst = Literal["last", "image", "all"]
"""Which maps have channels first where the reader has them last: those of no layer, the image, or all."""


def _channels_last_shape(shape: Shape) -> Shape:
    return (*shape[1:], shape[0]) if is_map(shape) else shape


def _maps_with_channels_first(read: Flow, run: Flow) -> _ChannelsFirst:
    """Return which maps of the model that is run have channels first, where porter's reader has them last:
    none ("last") if both take the same shape; the image only, if the reader begins by turning it; otherwise
    all.

    Args:
        read: the layers as porter's reader calls them, with channels last.
        run: the layers as the file's config states them.
    """
    if read.shape == run.shape:
        return "last"
    return "image" if read.calls[0].path == (IMAGE,) else "all"


def _with_pad_layout(flow: Flow) -> Flow:
    """Return the calls of a Keras 1 model with a `data_format` on its ZeroPadding2D layers, for which Keras 1
    does not write it: that of the other layers, if they have one. Other models are unchanged.
    """
    layouts = {call.arguments.get("data_format") for call in flow.calls} - {None}
    if flow.keras > 1 or len(layouts) != 1:
        return flow
    layout = {"data_format": layouts.pop()}
    calls = (
        replace(call, arguments={**layout, **call.arguments}) if call.kind == "ZeroPadding2D" else call
        for call in flow.calls
    )
    return replace(flow, calls=tuple(calls))


def build_keras_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """Build the model of `checkpoint.graph.definition` with the tensors of `checkpoint`, all in `dtype`, for
    `run_reference`. In half precision, each layer has the type that the config states for it.

    It is built for an input of `size` (rows, columns; None where they are free), with the pads of the config.
    Its values have the names of the taps of the graph's nodes: the names of all layers, also those of nested
    models. A layer's name means its value before its `activation`, which is another layer here, so that
    logits can be compared. A layer that is not on the closed list is left out with all layers that read it:
    porter refuses it where it leads to the logits.

    Layers with channels first are called as the config states them, and not as porter's reader turns them.

    Raises:
        CannotRun: TensorFlow or Keras is not installed, or the file's model begins with such a layer.
        MappingError: a layer's tensor is not in the checkpoint, or its shape differs.
        FileError: the config cannot be read.
    """
    where, graph = str(checkpoint.path), checkpoint.graph
    flow_as_read = read_calls(graph.definition, where) if graph is not None else None
    flow = read_flow(graph.definition, where) if graph is not None else None
    if graph is None or flow_as_read is None or flow is None:
        raise CannotRun("the file carries no Keras model's config", where=where)
    # Both readings of the config are compared: a mistake in one of them would not show in the comparison with
    # the port.
    wrong = find_misreading(flow, graph.definition) or find_wrong_turn(flow_as_read, flow)
    if wrong is not None:
        raise Contradiction(f"porter reads the file's config in two ways: {wrong}", where=where)
    # In half precision, layers have the types that the config states.
    as_stated = dtype in HALVES
    compute_dtype = "float32" if as_stated else dtype
    with (
        import_tensorflow().device(tensorflow_device("cpu")),
        keras_defaults(compute_dtype),
        zero_initializers(),
    ):
        builder = _Builder(
            checkpoint,
            graph,
            compute_dtype,
            as_stated,
            size,
            flow,
            _maps_with_channels_first(flow_as_read, flow),
        )
        for named in name_calls(_with_pad_layout(flow), checkpoint.tensors):
            builder.add(named)
        if not builder.taps:
            raise CannotRun(
                f"the file's own model cannot be run: {'; '.join(builder.refused[:3])}", where=where
            )
        model = import_keras().Model([builder.source, *builder.further.values()], list(builder.taps.values()))
    attach_runner(model, builder.taps, "cpu", arrays=graph.arrays, takes=graph, moved=builder.moved)
    return model


class _Builder:
    """Calls Keras layers one after the other, on symbolic inputs.

    Attributes:
        source: the image, or the first input.
        further: the other inputs, by name.
        taps: the values that can be asked for, by their names (taps), which are those of layers.
        moved: names of those that are other values with their axes moved.
        refused: why layers were left out.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        graph: FileGraph,
        dtype: Dtype,
        as_stated: bool,
        size: Size,
        flow: Flow,
        order: _ChannelsFirst,
    ) -> None:
        self.keras = import_keras()
        self.source = self.keras.Input(
            _channels_last_shape(input_shape(graph.channels, graph.axes, size)), dtype=dtype, name=INPUT
        )
        self.further = {
            further.name: self.keras.Input(
                _channels_last_shape(further.shape(size)), dtype=dtype, name=further.path
            )
            for further in graph.further_inputs
        }
        self.taps: dict[str, Any] = {}
        self.moved: set[str] = set()
        self.refused: list[str] = []
        self._checkpoint = checkpoint
        self._foreign = {node.tap: node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)}
        self._dtype = dtype
        self._as_stated = as_stated
        self._version = flow.keras
        self._on_theano = flow.backend == "theano"
        self._maps_with_channels_first = order
        image = self.source if not as_stated else keras_do("cast", self.source, flow.type)
        # The image as the file's first layer takes it.
        self._image = image if order == "last" else _move_axis(image, -1, 1)
        if order == "image":
            self.taps[IMAGE] = self._image
        self._values: list[Any] = []
        self._layers: dict[tuple[str, ...], Any] = {}

    def add(self, named: NamedCall) -> None:
        """Call one layer or operation of the file and keep its value for the calls that read it. The value is
        None where the call, or one whose value it reads, is not run; `refused` then has the reason.
        """
        inputs = [self._value_of(result) for result in results_in(named.call.inbound)]
        # an InputLayer after the first has its value already
        value = self.further.get(named.name)
        if value is None and all(value is not None for value in inputs):
            refusal = self._refusal(named, inputs)
            if refusal is None:
                value = self._call(named, inputs)
            else:
                self.refused.append(refusal)
        self._values.append(value)

    def _value_of(self, result: Result) -> Any:
        """Return the value that a call has given, of several the one that the result names; the image for the
        result of no call, whose index is below 0.
        """
        value = self._image if result.call < 0 else self._values[result.call]
        return value[result.output] if isinstance(value, list | tuple) else value

    def _refusal(self, named: NamedCall, inputs: list[Any]) -> str | None:
        """Return the reason why a call is not run, as a clause with the layer's name: it is made in training,
        porter's reader has no op for it, or it is on no list. None where it is run.
        """
        call, name = named.call, f"layer '{named.name}'"
        if is_in_training(call):
            return f"{name} ({call.kind}) is called with training=True"
        for tap in (before_activation(named), fused_name(named)):
            if tap in self._foreign:
                return f"{name} is {self._foreign[tap]}"
        operation = operation_name(call.kind, call.arguments)
        if operation:
            is_listed = has_operation(operation)
        else:
            is_listed = call.kind in CLASSES.keys() | _COMPUTED | IDENTITY_AT_INFERENCE
        if is_listed and inputs:
            return None
        return f"{name} ({operation or call.kind:.60}) is not on porter's list of layers that are run"

    def _call(self, named: NamedCall, inputs: list[Any]) -> Any:
        """Run a call and return its value; None if its activation is not on the list. The value is noted
        before and after the activation, under the names (taps) by which a comparison asks for it. Raise
        CannotRun where Keras does not take the layer.
        """
        try:
            result = self._result_in_layout(named, self._cast_inputs(named.call, inputs))
            self._note_value(before_activation(named), named.call, result)
            if _is_channels_first(named.call):
                self.taps[f"{named.name}_{CHANNELS_LAST}"] = _move_axis(inputs[0], 1, -1)
                self.taps[f"{named.name}_{CHANNELS_FIRST}"] = result
            activation = named.call.arguments.get("activation")
            # An Activation, and a layer without an activation, have no second value.
            is_activation = named.call.kind == "Activation"
            has_no_activation = named.call.kind not in FUSING and activation is None
            if is_activation or has_no_activation:
                return result
            name = _activation_name(activation)
            if name not in (None, "linear", *ACTIVATIONS, *PARTS):
                self.refused.append(
                    f"the activation of layer '{named.name}' ({name:.60}) is not on porter's list"
                )
                return None
            result = self._activate(named.call, result)
            self._note_value(fused_name(named), named.call, result)
            if _is_channels_first(named.call):
                self.taps[f"{named.name}_{ACTIVATION}"] = result
            return result
        # Keras raises these for arguments that exclude each other, or shapes that do not fit.
        except (ValueError, TypeError, KeyError, AttributeError, Unsupported) as error:
            message = f"Keras {self.keras.__version__} cannot build layer '{named.name}': {first_line(error)}"
            raise CannotRun(message, where=self._checkpoint.path) from None

    def _note_value(self, name: str, call: LayerCall, result: Any) -> None:
        """Put a call's first value into `taps` under a name, with its channels last where the reader has them
        last; such a value is also in `moved`.
        """
        value = result[0] if isinstance(result, list | tuple) else result
        has_moved_channels = self._maps_with_channels_first == "all" and len(value.shape) == 4
        is_moved = has_moved_channels or (_is_channels_first(call) and len(value.shape) > 2)
        self.taps[name] = _move_axis(value, 1, -1) if is_moved else value
        if is_moved:
            self.moved.add(name)

    def _cast_inputs(self, call: LayerCall, inputs: list[Any]) -> list[Any]:
        """Return a layer's inputs in the type that the config states for the layer, as Keras casts them;
        unchanged if all layers have one type, and for operations and whole numbers.
        """
        if not self._as_stated or operation_name(call.kind, call.arguments) is not None:
            return inputs
        call_dtype = compute_type(call.arguments.get("dtype"))
        return [keras_do("cast", value, call_dtype) if "float" in value.dtype else value for value in inputs]

    def _result_in_layout(self, named: NamedCall, inputs: list[Any]) -> Any:
        """Return the value of a call. TensorFlow runs few of Keras's layers with channels first on a CPU:
        they run with channels last, between two moves of the axis.
        """
        if not _is_channels_first(named.call):
            return self._result(named, inputs)
        arguments = {**named.call.arguments, "data_format": CHANNELS_LAST}
        channels_last_call = replace(named, call=replace(named.call, arguments=arguments))
        result = self._result(channels_last_call, [_move_axis(value, 1, -1) for value in inputs])
        return _move_axis(result, -1, 1) if len(result.shape) > 2 else result

    def _result(self, named: NamedCall, inputs: list[Any]) -> Any:
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
                return self._activate(call, inputs[0])
            case "CustomScaleLayer":
                return sum_stretched([inputs[0], inputs[1] * self._constant(call.arguments["scale"])])
            case "EinsumDense":
                return einsum_dense(
                    str(call.arguments["equation"]),
                    inputs[0],
                    *(keras_do("cast", self._tensor(named, name), inputs[0].dtype) for name in named.tensors),
                )
            case "LeakyReLU" | "ReLU":
                return _relu_of(call.kind, call.arguments, inputs[0])
            case "Resizing" | "UpSampling2D" if self._dtype == "float64" and rounds_to_float32(call):
                value = fit_aspect_ratio(call.arguments, inputs[0])
                same_size = keeps_size(call.kind, call.arguments, tuple(value.shape[1:3]))
                return (
                    value if same_size else resize_map(value, tensorflow_resize(call), keras_do, self._dtype)
                )
            # Keras resizes the map in its aspect ratio instead of cropping it.
            case "CenterCrop" | "RandomCrop" if resizes_instead(
                call.kind, call.arguments, tuple(inputs[0].shape[1:3])
            ):
                arguments = {**call.arguments, "crop_to_aspect_ratio": True}
                resizing = replace(call, kind="Resizing", arguments=arguments)
                return self._result(replace(named, call=resizing), inputs)
            case "LayerScale":
                (variable,) = named.tensors
                scale = self._tensor(named, variable, (inputs[0].shape[-1],))
                return inputs[0] * keras_do("cast", scale, inputs[0].dtype)
            case "Conv2D" | "MaxPooling2D" | "AveragePooling2D" if (
                self._on_theano and call.arguments.get("padding") == "same"
            ):
                return self._pad_as_theano(named, inputs[0])
        return self._call_layer(named, inputs) if call.kind in CLASSES else inputs[0]

    def _run_operation(self, operation: str, call: LayerCall) -> Any:
        """Run an operation that the file's graph calls, such as an addition, by keras.ops, and return its
        value.
        """
        operands = self._operands(operation, call)
        if operation == "cast" and self._as_stated:
            return keras_do("cast", operands[0], compute_type(call.arguments.get("dtype")))
        return operate(operation, operands, {**call.arguments, **call.inbound.keywords}, self._version)

    def _pad_as_theano(self, named: NamedCall, value: Any) -> Any:
        """Run a layer with the `same` padding that Keras used on Theano (its keras/backend/theano_backend.py,
        `conv2d` and `pool2d`): as many cells behind the map as before it, and of the result no more than the
        strides make of the map. Here the cells behind are so few that no more comes out.
        """
        call = named.call
        pads = _pads_of_theano(call.kind, call.arguments)
        without_padding = replace(named, call=replace(call, arguments={**call.arguments, "padding": "valid"}))
        padded = keras_do("pad", value, pads, constant_values=-np.inf if call.kind == "MaxPooling2D" else 0)
        result = self._call_layer(without_padding, [padded])
        if call.kind != "AveragePooling2D":
            return result
        # Theano's `average_exc_pad` divides by the number of the map's own cells in each window.
        ones = keras_do("pad", keras_do("ones_like", value), pads)
        return result / self._call_layer(without_padding, [ones])

    def _call_layer(self, named: NamedCall, inputs: list[Any]) -> Any:
        """Call Keras's own layer and return its value. The layer is made at its first call and has the file's
        tensors from then on.
        """
        call = named.call
        channels = inputs[0].shape[-1]
        is_new = call.path not in self._layers
        if is_new:
            self._expect_shapes(named, channels)
            self._layers[call.path] = self._make_layer(*_runnable_form(call, channels))
        layer = self._layers[call.path]
        if call.kind == "MultiHeadAttention":
            if not self._as_stated:  # Keras would round it to float32
                layer._inverse_sqrt_key_dim = np.asarray(1 / np.sqrt(call.arguments["key_dim"]))
            value = layer(*inputs)
        else:
            # A list of values, or the only one, as the file calls it.
            value = layer(inputs if isinstance(call.inbound.arguments[0], tuple) else inputs[0])
        if is_new:
            self._fill(layer, named, channels)
        return value

    def _activate(self, call: LayerCall, value: Any) -> Any:
        """Return a value after the `activation` that a call states as its argument: a function on a closed
        list by its name, or a layer on one.

        Raises:
            ValueError: the activation is neither, or not on its list.
        """
        activation = call.arguments.get("activation")
        name = _activation_name(activation)
        if name == "linear":
            return value
        if name is not None:
            return activate(name, value, {}, self._version)
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
        dtype = policy_of(stated.get("dtype")) if self._as_stated else self._dtype
        return getattr(self.keras.layers, kind)(dtype=dtype, **arguments)

    def _operands(self, operation: str, call: LayerCall) -> list[Any]:
        """Return the operands of an operation in their order, as Keras's values and as constant arrays. The
        key of a slice (`get_item`), and the indices of a `take`, stay as they are.
        """
        operands = operands_of(call)
        # These take one list of values.
        if operation in ("concatenate", "stack") and operands and isinstance(operands[0], tuple):
            operands = list(operands[0])
        values = {
            index: self._value_of(operand)
            for index, operand in enumerate(operands)
            if isinstance(operand, Result)
        }
        if operation in ("get_item", "take"):
            return [values.get(index, operand) for index, operand in enumerate(operands)]
        number_type = None
        if self._as_stated:
            # In the types that the file states, a plain number takes that of the values beside it.
            number_type = next((value.dtype for value in values.values()), self._dtype)
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
        stored = numbers.astype(storage_type(dtype or self._dtype))
        return stored.ravel()[0] if stored.size == 1 else stored

    def _expect_shapes(self, named: NamedCall, channels: int) -> None:
        """Refuse tensors of other shapes than the layer's, before Keras allocates variables of the size that
        the config states.
        """
        for variable, shape in _shapes(named.call, channels).items():
            self._tensor(named, variable, shape)

    def _fill(self, layer: Any, named: NamedCall, channels: int) -> None:
        """Assign the file's tensors to the layer's variables. The kernel of a dilated Conv2DTranspose gets
        zeros between its cells, as the layer is made (`_runnable_form`).
        """
        shapes = _shapes(named.call, channels)
        for variable, name, variable_of_file in self._variables_to_fill(layer, named):
            array = self._tensor(named, variable_of_file, shapes.get(name, tuple(variable.shape)))
            if named.call.kind == "Conv2DTranspose" and name == "kernel":
                array = _dilate_kernel(array, named.call.arguments, tuple(variable.shape))
            variable.assign(array.reshape(variable.shape))
        if named.call.kind == "Normalization":
            layer.finalize_state()

    def _variables_to_fill(self, layer: Any, named: NamedCall) -> Iterator[tuple[Any, str, str]]:
        """Yield each of a layer's variables with two names: Keras's, which says its shape, and porter's for
        its tensor in the file, such as `kernel` and `kernel`. A .keras file has a layer's tensors in the
        order of its variables (keras/src/layers/layer.py, `save_own_variables`). They are taken by that
        order, so that where porter names one wrongly, the reference still has the right one.
        """
        variables = [*layer._trainable_variables, *layer._non_trainable_variables]
        if self._checkpoint.format == "keras" and 0 < len(variables) == len(named.tensors):
            yield from (
                (variable, variable.name, variable_of_file)
                for variable, variable_of_file in zip(variables, named.tensors, strict=True)
            )
            return
        is_nested = named.call.kind == "MultiHeadAttention"
        for variable in layer.weights:
            # The layers within an attention have names of their own: `query/kernel`.
            name = variable_in(*variable.path.split("/")[-2:]) if is_nested else variable.name
            yield variable, name, name

    def _tensor(self, named: NamedCall, variable: str, shape: tuple[int, ...] | None = None) -> Array:
        """Return the file's tensor for a layer's variable; one that is missing, or of another shape than
        `shape`, is refused.
        """
        where = str(self._checkpoint.path)
        # Keras 2's name for the kernel of a DepthwiseConv2D is `depthwise_kernel`.
        name = named.tensors.get(variable) or named.tensors.get(f"depthwise_{variable}")
        if name is None:
            raise MappingError(f"layer '{named.name}' has no '{variable}'", where=where)
        array = self._checkpoint.tensors[name]
        if shape not in (None, array.shape):
            raise MappingError(f"{name}: expected shape {shape}, got {array.shape}", where=where)
        return cast(array, self._dtype, name, allow_overflow=True)


def _is_channels_first(call: LayerCall) -> bool:
    """Say whether a call is of a layer that has its channels first, and not only reads them so, as Flatten
    does.
    """
    is_layer = operation_name(call.kind, call.arguments) is None and call.kind != "Flatten"
    return is_layer and call.arguments.get("data_format") == CHANNELS_FIRST


def _move_axis(value: Any, source: int, target: int) -> Any:
    """Return a value with one axis at another place, by keras.ops."""
    return keras_do("moveaxis", value, source, target)


def _runnable_form(call: LayerCall, channels: int) -> tuple[str, JsonObject]:
    """Return the class of a layer and its arguments in the form in which they are run.

    A convolution whose groups are its channels is a depthwise one: Keras runs groups on a CPU by XLA (`conv`
    in its keras/src/backend/tensorflow/nn.py), which took ConvNeXt-Tiny ten times as long. Filter c *
    multiplier + m of the first is filter m of channel c of the second, so the kernel's numbers stay in their
    order. A transposed convolution with dilation, which TensorFlow lacks on a CPU, is one with zeros in its
    kernel.
    """
    arguments = call.arguments
    if call.kind == "Conv2D" and 1 < channels == arguments.get("groups", 1):
        row_stride, column_stride = pair(arguments.get("strides") or 1)
        is_dilated = pair(arguments.get("dilation_rate") or 1) != (1, 1)
        # What a DepthwiseConv2D takes: equal strides, and none beside a dilation.
        if row_stride == column_stride and (row_stride == 1 or not is_dilated):
            return "DepthwiseConv2D", {**arguments, "depth_multiplier": arguments["filters"] // channels}
    if call.kind == "Conv2DTranspose":
        return call.kind, {**arguments, "kernel_size": _extents(arguments), "dilation_rate": 1}
    return call.kind, arguments


def _activation_name(activation: Any) -> str | None:
    """Return the name of the function in an `activation` argument, as Keras resolves it: `linear` of None,
    `relu` of `keras.activations.relu`. None where the argument is an object, such as a layer's config.
    """
    if activation is None:
        return "linear"
    return activation.rpartition(".")[2] if isinstance(activation, str) else None


def _pads_of_theano(kind: str, arguments: JsonObject) -> list[list[int]]:
    """Return how many cells Theano's `same` adds before and behind each axis of N x H x W x C. A Conv2D of 3
    x 3 has [[0, 0], [1, 1], [1, 1], [0, 0]].
    """
    pads = []
    if kind == "Conv2D":
        for extent in _extents(arguments):
            before = extent // 2
            pads.append([before, extent - 1 - before])
    else:
        for cells in pair(arguments["pool_size"]):
            is_odd = cells > 2 and cells % 2 == 1
            before = cells - (2 if is_odd else 1)
            pads.append([before, cells - 1 - before])
    return [[0, 0], *pads, [0, 0]]


def _extents(arguments: JsonObject) -> tuple[int, int]:
    """Return how many rows and columns a kernel spans, its dilation included: (5, 5) for 3 x 3 and 2."""
    sizes = zip(pair(arguments["kernel_size"]), pair(arguments.get("dilation_rate") or 1), strict=True)
    rows, columns = ((size - 1) * dilation + 1 for size, dilation in sizes)
    return rows, columns


def _dilate_kernel(kernel: Array, arguments: JsonObject, shape: tuple[int, ...]) -> Array:
    """Return a kernel of this shape, with zeros between the cells of the given one, as far apart as the
    layer's `dilation_rate` says.
    """
    row_dilation, column_dilation = pair(arguments.get("dilation_rate") or 1)
    dilated = np.zeros(shape, kernel.dtype)
    dilated[::row_dilation, ::column_dilation] = kernel
    return dilated


def _relu_of(kind: str, arguments: JsonObject, value: Any) -> Any:
    """Apply a ReLU or a LeakyReLU layer with these arguments."""
    slope = arguments.get("negative_slope", 0.3 if kind == "LeakyReLU" else 0.0)
    return relu(value, slope, arguments.get("max_value"), arguments.get("threshold"))


def _shapes(call: LayerCall, channels: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the large variables that Keras makes for a layer whose input has `channels`, by
    the variable's name: `{"kernel": (3, 3, 64, 128)}`. Empty for layers without, or where arguments that are
    not read here decide.
    """
    arguments = call.arguments
    match call.kind:
        case "Conv1D":
            groups = arguments.get("groups", 1)
            return {
                "kernel": (
                    *np.atleast_1d(arguments["kernel_size"]).tolist(),
                    channels // groups,
                    arguments["filters"],
                )
            }
        case "Conv2D":
            groups = arguments.get("groups", 1)
            return {"kernel": (*pair(arguments["kernel_size"]), channels // groups, arguments["filters"])}
        case "DepthwiseConv2D":
            return {
                "kernel": (*pair(arguments["kernel_size"]), channels, arguments.get("depth_multiplier", 1))
            }
        case "Dense":
            return {"kernel": (channels, arguments["units"])}
        case "Conv2DTranspose":
            return {"kernel": (*pair(arguments["kernel_size"]), arguments["filters"], channels)}
        case "SeparableConv2D":
            multiplier = arguments.get("depth_multiplier", 1)
            pointwise = (1, 1, channels * multiplier, arguments["filters"])
            return {
                "depthwise_kernel": (*pair(arguments["kernel_size"]), channels, multiplier),
                "pointwise_kernel": pointwise,
            }
        case "BatchNormalization" if arguments.get("axis", -1) in (-1, [-1]):
            return {"moving_mean": (channels,)}
        case "MultiHeadAttention":
            heads, key = arguments["num_heads"], arguments["key_dim"]
            value, units = arguments.get("value_dim") or key, arguments.get("output_shape") or channels
            return {
                "query/kernel": (channels, heads, key),
                "output/kernel": (heads, value, *np.atleast_1d(units).tolist()),
            }
        case "Normalization" if arguments.get("mean") is None and arguments.get("axis", -1) in (-1, [-1]):
            return {"mean": (channels,)}
        case _:
            return {}

"""The model that a whole-model Keras file describes, built by Keras 3 for comparison with a port.

The config is a stranger's text. Every layer is made from a class and arguments on a closed list; nothing that
the config names is imported or looked up, and no object that it serialises is revived.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from porter.base.dtypes import HALVES, Dtype
from porter.base.errors import CannotRun, Contradiction, first_line
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import Foreign, Unsupported
from porter.formats.keras.activations import ACTIVATIONS, PARTS
from porter.formats.keras.call_names import NamedCall, before_activation, fused_name, name_calls
from porter.formats.keras.channels_first import ACTIVATION, CHANNELS_FIRST, CHANNELS_LAST, IMAGE, read_calls
from porter.formats.keras.flow import Flow, LayerCall, Result, read_flow, results_in
from porter.formats.keras.layer_readers import FUSING, IDENTITY_AT_INFERENCE, is_in_training
from porter.formats.keras.layer_variables import CLASSES
from porter.formats.keras.precision import compute_type
from porter.formats.keras.versions import operation_name
from porter.formats.keras.wiring import find_misreading, find_wrong_turn
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.keras_files.layer_runs import COMPUTED, LayerRuns, resolved_activation
from porter.frameworks.tf.keras_files.operations import has_operation
from porter.frameworks.tf.keras_files.variables import FileTensors
from porter.frameworks.tf.layout import channels_last_shape
from porter.frameworks.tf.run import Runner, attach_runner
from porter.frameworks.tf.runtime import (
    import_keras,
    keras_defaults,
    keras_do,
    tensorflow_device,
    zero_initializers,
)
from porter.graph import INPUT, input_shape
from porter.padding import Size

_ChannelsFirst = Literal["none", "image", "all"]
"""Which maps have channels first where the reader has them last: of none, the image, or all."""


def _maps_with_channels_first(read: Flow, run: Flow) -> _ChannelsFirst:
    """Return which maps of the model that is run have channels first, where porter's reader has them last:
    none if both take the same shape; the image only, if the reader begins by turning it; otherwise all.

    Args:
        read: the layers as porter's reader calls them, with channels last.
        run: the layers as the file's config states them.
    """
    if read.shape == run.shape:
        return "none"
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
    order = _maps_with_channels_first(flow_as_read, flow)
    with (
        import_tensorflow().device(tensorflow_device("cpu")),
        keras_defaults(_default_type(dtype)),
        zero_initializers(),
    ):
        builder = _Builder(checkpoint, flow, order, dtype, size)
        for named in name_calls(_with_pad_layout(flow), checkpoint.tensors):
            builder.add(named)
        if not builder.taps:
            raise CannotRun(
                f"the file's own model cannot be run: {'; '.join(builder.refused[:3])}", where=where
            )
        model = import_keras().Model([builder.source, *builder.further.values()], list(builder.taps.values()))
    attach_runner(Runner(model, builder.taps, arrays=graph.arrays, takes=graph, moved=builder.moved))
    return model


def _default_type(dtype: Dtype) -> Dtype:
    """Return the type of what the config states no type for: in half precision, layers have the types that it
    states.
    """
    return "float32" if dtype in HALVES else dtype


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
        self, checkpoint: Checkpoint, flow: Flow, order: _ChannelsFirst, dtype: Dtype, size: Size
    ) -> None:
        self.keras = import_keras()
        graph, default_type = checkpoint.carried, _default_type(dtype)
        self.source = self.keras.Input(
            channels_last_shape(input_shape(graph.channels, graph.axes, size)), dtype=default_type, name=INPUT
        )
        self.further = {
            further.name: self.keras.Input(
                channels_last_shape(further.shape(size)), dtype=default_type, name=further.path
            )
            for further in graph.further_inputs
        }
        self.taps: dict[str, Any] = {}
        self.moved: set[str] = set()
        self.refused: list[str] = []
        self._checkpoint = checkpoint
        self._foreign = {node.tap: node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)}
        self._as_stated = dtype in HALVES
        self._runs = LayerRuns(
            FileTensors(checkpoint, default_type),
            self._as_stated,
            flow.keras,
            flow.backend == "theano",
            self._value_of,
        )
        self._maps_with_channels_first = order
        image = keras_do("cast", self.source, flow.input_type) if self._as_stated else self.source
        # The image as the file's first layer takes it.
        self._image = image if order == "none" else keras_do("moveaxis", image, -1, 1)
        if order == "image":
            self.taps[IMAGE] = self._image
        self._values: list[Any] = []

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
            is_listed = call.kind in CLASSES.keys() | COMPUTED | IDENTITY_AT_INFERENCE
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
                self.taps[f"{named.name}_{CHANNELS_LAST}"] = keras_do("moveaxis", inputs[0], 1, -1)
                self.taps[f"{named.name}_{CHANNELS_FIRST}"] = result
            activation = named.call.arguments.get("activation")
            # An Activation, and a layer without an activation, have no second value.
            is_activation = named.call.kind == "Activation"
            has_no_activation = named.call.kind not in FUSING and activation is None
            if is_activation or has_no_activation:
                return result
            name = resolved_activation(activation)
            if name not in (None, "linear", *ACTIVATIONS, *PARTS):
                self.refused.append(
                    f"the activation of layer '{named.name}' ({name:.60}) is not on porter's list"
                )
                return None
            result = self._runs.activate(named.call, result)
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
        self.taps[name] = keras_do("moveaxis", value, 1, -1) if is_moved else value
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
            return self._runs.result(named, inputs)
        arguments = {**named.call.arguments, "data_format": CHANNELS_LAST}
        channels_last_call = replace(named, call=replace(named.call, arguments=arguments))
        result = self._runs.result(
            channels_last_call, [keras_do("moveaxis", value, 1, -1) for value in inputs]
        )
        return keras_do("moveaxis", result, -1, 1) if len(result.shape) > 2 else result


def _is_channels_first(call: LayerCall) -> bool:
    """Say whether a call is of a layer that has its channels first, and not only reads them so, as Flatten
    does.
    """
    is_layer = operation_name(call.kind, call.arguments) is None and call.kind != "Flatten"
    return is_layer and call.arguments.get("data_format") == CHANNELS_FIRST

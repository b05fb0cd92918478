"""A model.tflite as an object that is called with arrays, run by TensorFlow's interpreter with its default
delegate, as people run the file.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import CheckFailed, FileError, first_line
from porter.formats.tensorflow import import_tensorflow, quiet_stderr
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.batches import arrays_for_inputs, expect_axes, expect_count, expect_fit
from porter.frameworks.tf.layout import channels_last_shape, keras_class, layer_names
from porter.frameworks.tflite import FILE, FILE_BYTES
from porter.frameworks.tflite.conversion import (
    SCOPE,
    convert,
    expect_rounding,
    has_rounded_weights,
    input_names,
    output_names,
)
from porter.frameworks.tflite.cutting import cut_tensors
from porter.graph import INPUT, Node, Op, ops
from porter.graph.ops import Axes, is_map
from porter.graph.plan import Plan, taken_shapes

_LAST_OPERATION: Mapping[type[Op], str] = {
    ops.BatchNorm: "batchnorm/add_1",
    ops.MaxPool: "MaxPool2d",
    ops.AvgPool: "AvgPool",
    ops.GlobalAvgPool: "Mean",
    ops.GlobalMaxPool: "Max",
    ops.Relu: "Relu",
    ops.Relu6: "Relu6",
    ops.Add: "Add",
    ops.ConcatChannels: "concat",
}
"""The last of the operations by which Keras computes an op, where there is one such."""

_FUSED_WITH_LAYER_BEFORE = ops.AddArray, ops.Affine, ops.ChannelScale, ops.MultiplyArray
"""What the converter may compute into the layer before it, whose name the value of both then has."""


@dataclass
class LiteModel:
    """A file, and the plan that it was made of.

    Attributes:
        content: of the file.
        delegated: whether XNNPACK runs what it can, as it does by default.
    """

    plan: Plan = field(repr=False)
    content: bytes = field(repr=False)
    delegated: bool = True

    def __call__(self, *batches: Array) -> Array | tuple[Array, ...]:
        """Run the model on a batch N×H×W×C. Return its output, or a tuple of several: maps N×H×W×C, features
        N×C. An input that is no map has its own axes; several inputs come in the graph's order.

        Raises:
            UsageError: a batch does not fit its input, or there are more or fewer.
        """
        graph = self.plan.lowered
        shapes = taken_shapes(self.plan)
        if graph.axes:  # the first input is no map
            shapes |= {INPUT: Axes(graph.axes)}
        expect_count(len(batches), shapes)
        arrays = [np.asarray(batch) for batch in batches]
        for batch, shape in zip(arrays, shapes.values(), strict=True):
            expect_axes(batch.shape, channels_last_shape(shape))
        outputs = self._outputs(arrays)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def values(self, batch: Array, paths: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Run the model on a batch N×C×H×W and return the values at paths of the graph that the file keeps;
        maps are N×C×H×W. Outputs are those of the file as it is run; others are of a run that keeps them.

        Args:
            cut: see porter.frameworks.PortEngine.run; of values that the file does not keep, nothing is cut.

        Raises:
            UsageError: the batch does not fit.
        """
        graph = self.plan.lowered
        expect_fit(batch.shape, graph.channels, *(self.plan.only_size or (None, None)))
        inputs = arrays_for_inputs(batch, graph, channels_last=True)
        maps = {path for path, shape in graph.open_shapes.items() if is_map(shape)}
        if cut:
            cut_channels_last = {
                path: np.moveaxis(array, 1, -1) if path in maps else array for path, array in cut.items()
            }
            values = self._values_cut(inputs, cut_channels_last)
        else:
            # Outputs of the file as people run it; others need an interpreter that keeps all values.
            values = dict(zip(graph.outputs, self._outputs(inputs), strict=True))
            if any(path not in values for path in paths):
                _run(self._keeping_interpreter, input_names(graph), inputs)
                kept_values = {
                    path: self._keeping_interpreter.get_tensor(index)
                    for path, index in self._kept_tensors.items()
                }
                values = {**kept_values, **values}
        return {
            path: np.moveaxis(value, -1, 1) if path in maps else value
            for path in paths
            if (value := values.get(path)) is not None
        }

    def _values_cut(self, batches: Sequence[Array], cut: NamedArrays) -> dict[str, Array]:
        """Run the file with other numbers in place of some values: the operators that read such a value read
        the array in `cut` as an input of the file.

        Returns:
            Every value that the file keeps, by path, with the axes that the file has.
        """
        replacements = {
            self._kept_tensors[path]: value for path, value in cut.items() if path in self._kept_tensors
        }
        content, inputs = cut_tensors(self.content, replacements, self._kept_tensors.values())
        interpreter = _make_interpreter(content, self.delegated, keeps_all=False)
        inputs_by_tensor = {inputs[index]: value for index, value in replacements.items()}
        _run(interpreter, input_names(self.plan.lowered), batches, inputs_by_tensor)
        tensors = {
            **self._kept_tensors,
            **dict(zip(self.plan.lowered.outputs, self._output_tensors, strict=True)),
        }
        return {path: interpreter.get_tensor(index) for path, index in tensors.items()}

    def _outputs(self, batches: Sequence[Array]) -> list[Array]:
        """Run the file on a batch for each input and return its outputs in the order of the graph, maps
        N×H×W×C.
        """
        _run(self._interpreter, input_names(self.plan.lowered), batches)
        return [self._interpreter.get_tensor(index) for index in self._output_tensors]

    @cached_property
    def _output_tensors(self) -> list[int]:
        """The indices of the tensors that are the outputs, in the graph's order."""
        details = self._interpreter.get_signature_runner().get_output_details()
        return [details[name]["index"] for name in output_names(self.plan.lowered)]

    @cached_property
    def _interpreter(self) -> Any:
        return _make_interpreter(self.content, self.delegated, keeps_all=False)

    @cached_property
    def _keeping_interpreter(self) -> Any:
        return _make_interpreter(self.content, self.delegated, keeps_all=True)

    @cached_property
    def _kept_tensors(self) -> dict[str, int]:
        """The indices of the tensors that are values of nodes, by path. The converter names an operator's
        value by the operations of Keras that it is made of, the last one first; those of layers that have
        more, and of values that it names anew, are not found.
        """
        kept = dict[str, int]()
        layers, graph = layer_names(self.plan.lowered, {}), self.plan.lowered
        # Values before such an op have no tensor of their own.
        computed_into_others = {
            node.source for node in graph.nodes if isinstance(node.op, _FUSED_WITH_LAYER_BEFORE)
        }
        # By the names of layer and operation; a layer that is called several times has several values of one
        # name.
        nodes = {
            (layers[node.path], _last_operation(self.plan, node)): node.path
            for node in graph.nodes
            if len(graph.calls[node.holder]) == 1 and node.path not in computed_into_others
        }
        for detail in self._keeping_interpreter.get_tensor_details():
            match = SCOPE.fullmatch(detail["name"].split(";")[0])
            axes = detail["shape_signature"].tolist()
            # A value of the network has an open batch.
            if match is None or not axes or axes[0] != -1:  # a constant
                continue
            layer, operation = match.groups()
            # Later calls of an operation have a number behind its name.
            path = nodes.get((layer, operation)) or nodes.get((layer, operation.rstrip("0123456789")))
            if path is not None:
                kept[path] = detail["index"]
        return kept


def build(plan: Plan, tensors: Tensors, file: NamedArrays | None) -> LiteModel:
    """Return a model of the file, if there is one, otherwise of what the converter makes of `tensors`. For a
    file with rounded weights and `tensors` it is the model before they were rounded.

    Raises:
        CheckFailed: the weights of the file are not the rounding of these.
    """
    content = None if file is None else file[FILE_BYTES].tobytes()
    if content is not None and not (tensors and has_rounded_weights(content)):
        return LiteModel(plan, content)
    exact = convert(plan, tensors)
    if content is not None:
        expect_rounding(content, exact)
    return LiteModel(plan, exact)


def _last_operation(plan: Plan, node: Node) -> str | None:
    """Return the last of the operations by which Keras computes a node, whose name its value has in the file;
    None where that depends on more than the op: for composed pads, sums of more than two values, and ops that
    _LAST_OPERATION lacks.
    """
    op, realisation = node.op, plan.realisations.get(node.path)
    if realisation is not None and realisation.kind == "composition":
        return None
    if isinstance(op, ops.Add) and len(node.inputs) > 2:
        return None
    if isinstance(op, ops.Conv | ops.Dense):
        names = {"Conv2D": "convolution", "DepthwiseConv2D": "depthwise", "Dense": "MatMul"}
        return "BiasAdd" if op.bias else names[str(keras_class(plan.lowered, node))]
    return _LAST_OPERATION.get(type(op))


def _make_interpreter(content: bytes, delegated: bool, keeps_all: bool) -> Any:
    """Make TensorFlow Lite's interpreter of a model, with its default delegate or without.

    Args:
        keeps_all: whether the values of all tensors can be read after a run.
    """
    lite = import_tensorflow().lite
    kind = lite.experimental.OpResolverType
    resolver = kind.AUTO if delegated else kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with quiet_stderr(), warnings.catch_warnings():  # it tells of its successor
        warnings.simplefilter("ignore")
        try:
            return lite.Interpreter(
                model_content=content,
                experimental_op_resolver_type=resolver,
                experimental_preserve_all_tensors=keeps_all,
            )
        except ValueError as error:
            raise FileError(
                f"TensorFlow Lite does not open it: {first_line(error)}", where=FILE, next="convert again"
            ) from None


def _run(
    interpreter: Any,
    names: Sequence[str],
    batches: Sequence[Array],
    further: Mapping[int, Array] = MappingProxyType({}),
) -> None:
    """Run the interpreter on batches of the inputs `names`, whose sizes it takes over; its tensors then hold
    the values. Raise CheckFailed where the file does not run.

    Args:
        further: arrays for inputs that have no name in the signature, by the indices of their tensors.
    """
    details = interpreter.get_signature_runner().get_input_details()
    by_tensor = {details[name]["index"]: batch for name, batch in zip(names, batches, strict=True)}
    arrays = {index: batch.astype(np.float32) for index, batch in {**by_tensor, **further}.items()}
    try:
        for index, array in arrays.items():
            interpreter.resize_tensor_input(index, array.shape)
        with quiet_stderr():  # a delegate announces itself
            interpreter.allocate_tensors()
        for index, array in arrays.items():
            interpreter.set_tensor(index, array)
        interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        raise CheckFailed(f"the port's own file does not run: {first_line(error)}", where=FILE) from None

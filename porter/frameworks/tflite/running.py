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
from porter.base.errors import CheckFailed, FileError, UsageError, first_line
from porter.formats.tensorflow import import_tensorflow, quiet_stderr
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.images import as_taken, expect_axes, expect_fit
from porter.frameworks.tf.layout import keras_class, layer_names
from porter.frameworks.tflite import FILE, WHOLE
from porter.frameworks.tflite.conversion import (
    SCOPE,
    convert,
    expect_rounding,
    input_names,
    is_rounded,
    output_names,
)
from porter.frameworks.tflite.cutting import with_cuts
from porter.graph import INPUT, Node, Op, ops
from porter.graph.ops import Axes, is_map
from porter.graph.plan import Plan, taken_shapes

_LAST: Mapping[type[Op], str] = {
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

_OF_CONSTANTS = ops.AddArray, ops.Affine, ops.ChannelScale, ops.MultiplyArray
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
        """Return the output for a batch N×H×W×C, or a tuple of several: maps N×H×W×C, features N×C. An input
        that is no map has its own axes; several inputs come in the graph's order.

        Raises:
            UsageError: a batch does not fit its input, or there are more or fewer.
        """
        graph = self.plan.lowered
        shapes = taken_shapes(self.plan) | ({INPUT: Axes(graph.axes)} if graph.axes else {})
        if len(batches) != len(shapes):
            text = ", ".join(shapes)
            raise UsageError(
                f"the model takes {len(shapes)} inputs, got {len(batches)}", next=f"give it {text}"
            )
        arrays = [np.asarray(batch) for batch in batches]
        for batch, shape in zip(arrays, shapes.values(), strict=True):
            expect_axes(batch.shape, (*shape[1:], shape[0]) if is_map(shape) else shape)
        outputs = self._outputs(arrays)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def values(self, batch: Array, paths: Sequence[str], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Return the values at paths of the graph for a batch N×C×H×W, those that the file keeps; maps come
        back as N×C×H×W. Outputs are those of the file as it is run; others are of a run that keeps them.

        Args:
            cut: see porter.frameworks.PortEngine.run; of values that the file does not keep, nothing is cut.

        Raises:
            UsageError: the batch does not fit.
        """
        graph = self.plan.lowered
        expect_fit(batch.shape, graph.channels, *(self.plan.only_size or (None, None)))
        given = as_taken(batch, graph, channels_last=True)
        maps = {path for path, shape in graph.open_shapes.items() if is_map(shape)}
        if cut:
            known = self._values_cut(
                given, {path: np.moveaxis(cut[path], 1, -1) if path in maps else cut[path] for path in cut}
            )
        else:
            known = dict(zip(graph.outputs, self._outputs(given), strict=True))
            if any(path not in known for path in paths):
                _run(self._keeping, input_names(graph), given)
                known = {path: self._keeping.get_tensor(index) for path, index in self._kept.items()} | known
        return {
            path: np.moveaxis(value, -1, 1) if path in maps else value
            for path in paths
            if (value := known.get(path)) is not None
        }

    def _values_cut(self, batches: Sequence[Array], cut: NamedArrays) -> dict[str, Array]:
        """Return all values that the file keeps, where some are cut off; each as the file has it."""
        given = {self._kept[path]: value for path, value in cut.items() if path in self._kept}
        content, inputs = with_cuts(self.content, given, self._kept.values())
        interpreter = _interpreter(content, self.delegated, keeping=False)
        instead = {inputs[index]: value for index, value in given.items()}
        _run(interpreter, input_names(self.plan.lowered), batches, instead)
        shown = {**self._kept, **dict(zip(self.plan.lowered.outputs, self._output_places, strict=True))}
        return {path: interpreter.get_tensor(index) for path, index in shown.items()}

    def _outputs(self, batches: Sequence[Array]) -> list[Array]:
        _run(self._plain, input_names(self.plan.lowered), batches)
        return [self._plain.get_tensor(index) for index in self._output_places]

    @cached_property
    def _output_places(self) -> list[int]:
        """The tensors that are the outputs, in the graph's order."""
        details = self._plain.get_signature_runner().get_output_details()
        return [details[name]["index"] for name in output_names(self.plan.lowered)]

    @cached_property
    def _plain(self) -> Any:
        return _interpreter(self.content, self.delegated, keeping=False)

    @cached_property
    def _keeping(self) -> Any:
        return _interpreter(self.content, self.delegated, keeping=True)

    @cached_property
    def _kept(self) -> dict[str, int]:
        """The places of the tensors that are values of nodes. The converter names an operator's value by the
        operations of Keras that it is made of, the last one first; those of layers that have more, and of
        values that it names anew, are not found.
        """
        kept = dict[str, int]()
        layers, graph = layer_names(self.plan.lowered, {}), self.plan.lowered
        changed = {node.source for node in graph.nodes if isinstance(node.op, _OF_CONSTANTS)}
        nodes = {
            (layers[node.path], _last(self.plan, node)): node.path
            for node in graph.nodes
            if len(graph.calls[node.holder]) == 1 and node.path not in changed
        }
        for detail in self._keeping.get_tensor_details():
            match = SCOPE.fullmatch(detail["name"].split(";")[0])
            axes = detail["shape_signature"].tolist()
            if match is None or not axes or axes[0] != -1:  # a constant
                continue
            layer, operation = match.groups()
            path = nodes.get((layer, operation)) or nodes.get((layer, operation.rstrip("0123456789")))
            if path is not None:
                kept[path] = detail["index"]
        return kept


def build(plan: Plan, tensors: Tensors, file: NamedArrays | None) -> LiteModel:
    """Return the file, if there is one, otherwise what the converter makes of canonical `tensors`. Of a file
    with rounded weights and `tensors`, the model before they were rounded.

    Raises:
        CheckFailed: the weights of the file are not the rounding of these.
    """
    content = None if file is None else file[WHOLE].tobytes()
    if content is not None and not (tensors and is_rounded(content)):
        return LiteModel(plan, content)
    plain = convert(plan, tensors)
    if content is not None:
        expect_rounding(content, plain)
    return LiteModel(plan, plain)


def _last(plan: Plan, node: Node) -> str | None:
    """Return the last of the operations by which Keras computes a node; None where it depends."""
    op, realised = node.op, plan.realisations.get(node.path)
    if realised is not None and realised.kind == "composition":
        return None
    if isinstance(op, ops.Conv | ops.Dense):
        names = {"Conv2D": "convolution", "DepthwiseConv2D": "depthwise", "Dense": "MatMul"}
        return "BiasAdd" if op.bias else names[str(keras_class(plan.lowered, node))]
    return None if isinstance(op, ops.Add) and len(node.inputs) > 2 else _LAST.get(type(op))


def _interpreter(content: bytes, delegated: bool, keeping: bool) -> Any:
    """TensorFlow Lite's interpreter of a model, with its default delegate or without."""
    lite = import_tensorflow().lite
    kind = lite.experimental.OpResolverType
    resolver = kind.AUTO if delegated else kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with quiet_stderr(), warnings.catch_warnings():  # it tells of its successor
        warnings.simplefilter("ignore")
        try:
            return lite.Interpreter(
                model_content=content,
                experimental_op_resolver_type=resolver,
                experimental_preserve_all_tensors=keeping,
            )
        except ValueError as error:
            raise FileError(
                f"TensorFlow Lite does not open it: {first_line(error)}", where=FILE, next="convert again"
            ) from None


def _run(
    interpreter: Any,
    names: Sequence[str],
    batches: Sequence[Array],
    others: Mapping[int, Array] = MappingProxyType({}),
) -> None:
    """Run it for batches of its inputs, whose sizes it takes over. Args: others: inputs by their tensors."""
    places = interpreter.get_signature_runner().get_input_details()
    named = {places[name]["index"]: batch for name, batch in zip(names, batches, strict=True)}
    arrays = {index: batch.astype(np.float32) for index, batch in {**named, **others}.items()}
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

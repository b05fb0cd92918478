"""TensorFlow's converter, given porter's Keras build of a plan.

The converter computes with the tensors: it folds norms into the layers before them, and constants into each
other. So a file does not hold the graph's tensors.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import CheckFailed, GraphError, first_line
from porter.base.options import TO
from porter.filegraph.names import Names
from porter.formats.limits import MOST_NODES
from porter.formats.tensorflow import import_tensorflow, quiet_stderr
from porter.formats.tflite import schema
from porter.formats.tflite.flatbuffer import root
from porter.formats.tflite.model import read_model
from porter.frameworks import Tensors
from porter.frameworks.tf.ports.build import connect
from porter.frameworks.tf.ports.config import MODEL_NAME
from porter.frameworks.tf.ports.model import state_model
from porter.frameworks.tf.runtime import quiet_logger
from porter.frameworks.tflite.spellings import SPELLINGS
from porter.graph import Graph
from porter.graph.plan import Plan

SCOPE = re.compile(rf"{MODEL_NAME}(?:_\d+)?/(.+?)_\d+/(.+)")
"""The name of a value in the function of a Keras model: that of the model, of the layer and of its
operation.
"""
_LACKING_OPERATOR = re.compile(r"'(tf\.\w+)' op is neither a custom op nor a flex op")


WeightKind = Literal["float32", "float16", "dynamic"]
"""What weights are stored as; `dynamic` is 8 bits and a scale for each filter."""
_HALF_A_STEP = 0.5 / 127
"""Half a step of the rounding, as a part of a filter's largest weight."""


def convert(plan: Plan, tensors: Tensors, weights: WeightKind = "float32") -> bytes:
    """Convert a plan to a model for a batch of any number, rows and columns as the plan says; it has
    TensorFlow Lite's own operators only.

    Its signature has the inputs and outputs under `input_names` and `output_names`.

    Raises:
        GraphError: the converter has no operator for an op.
        MappingError: the tensors do not fit the graph. NotInstalled: TensorFlow or Keras is not
            installed.
    """
    tensorflow = import_tensorflow()
    with TemporaryDirectory() as folder, quiet_logger(tensorflow):
        _save_for_converter(tensorflow, plan, tensors, folder)
        gc.collect()  # Keras's model and its functions refer to themselves, and each holds all weights
        converter = tensorflow.lite.TFLiteConverter.from_saved_model(folder)
        converter.optimizations = [] if weights == "float32" else [tensorflow.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tensorflow.float16] if weights == "float16" else []
        with quiet_stderr(), _raising_graph_errors():
            content: bytes = converter.convert()
    return content


def _save_for_converter(tensorflow: Any, plan: Plan, tensors: Tensors, folder: str) -> None:
    """Save the Keras model of a plan, its variables as constants, as a SavedModel in `folder`, which the
    converter reads.
    """
    with tensorflow.device("/CPU"):
        model, _ = connect(state_model(plan, tensors, {}, "float32", SPELLINGS))
    signature = _with_signature(tensorflow, _without_variables(tensorflow, model), plan.lowered)
    # The module holds nothing: a function in it would be saved, and read again, beside the signature.
    holder, options = tensorflow.Module(), tensorflow.saved_model.SaveOptions
    tensorflow.saved_model.save(holder, folder, signature, options(experimental_custom_gradients=False))


def has_rounded_weights(content: bytes) -> bool:
    """Say whether a file has weights of fewer bits than float32."""
    # Model.subgraphs is field 2, SubGraph.tensors field 0, and Tensor.type field 1 of the schema.
    graph = root(content).tables(schema.MODEL_GRAPHS, MOST_NODES)[0]
    tensors = graph.tables(schema.GRAPH_TENSORS, MOST_NODES)
    return any(tensor.scalar(schema.TENSOR_TYPE) in (schema.FLOAT16, schema.INT8) for tensor in tensors)


def expect_rounding(content: bytes, plain: bytes) -> None:
    """Expect that the tensors of a file are those of a plain one, rounded, bit for bit in float16. Tensors
    are paired by the operators that read them: the converter counts the names of constants anew.

    Raises:
        CheckFailed: one is not.
    """
    rounded, exact = read_model(content), read_model(plain)
    rounded_operators, exact_operators = (
        [(operator.op, len(operator.inputs)) for operator in model.operators] for model in (rounded, exact)
    )
    if rounded_operators != exact_operators:
        raise CheckFailed(
            "the quantized file and the float32 file have different operators", next="convert again"
        )
    # Each stored tensor of the plain file with the one that stands in its place.
    pairs = dict.fromkeys(
        (exact_name, rounded_name)
        for rounded_operator, exact_operator in zip(rounded.operators, exact.operators, strict=True)
        for (rounded_name, _), (exact_name, _) in zip(
            rounded_operator.inputs, exact_operator.inputs, strict=True
        )
        if exact_name in exact.stored
    )
    for exact_name, rounded_name in pairs:
        if not _is_rounding(rounded.stored.get(rounded_name), exact.stored[exact_name]):
            raise CheckFailed(
                f"the tensor '{exact_name}' is not the rounding of the source's", next="convert again"
            )


def _is_rounding(stored: Array | None, exact: Array) -> bool:
    """Say whether the converter's tensor is the exact one, or its rounding to float16 or to 8 bits."""
    if stored is None or stored.shape != exact.shape:
        return False
    if np.array_equal(stored, exact):
        return True
    if exact.dtype == np.float32 and np.array_equal(stored, exact.astype(np.float16)):
        return True
    exact_double = exact.astype(np.float64)
    # The scale is that of a filter, which is at most that of the whole tensor; 0.1 % are for the rounding of
    # scales.
    limit = 1.001 * _HALF_A_STEP * np.abs(exact_double).max()
    return bool(np.all(np.abs(stored.astype(np.float64) - exact_double) <= limit))


def input_names(graph: Graph) -> list[str]:
    """Return the names of the graph's inputs in the signature, in their order."""
    free = Names()
    return [free.take(path.replace("/", "_")) for path in graph.inputs]


def output_names(graph: Graph) -> list[str]:
    """Return the names of the graph's outputs in the signature, in their order: `output`, or `output_0` and
    so on for several.
    """
    if not graph.further:
        return ["output"]
    return [f"output_{index}" for index in range(len(graph.outputs))]


def _without_variables(tensorflow: Any, model: Any) -> Any:
    """Return a model as a concrete function in which variables are constants; of variables the converter
    would make variables too.
    """
    # As TensorFlow's own guides import it.
    module = import_module("tensorflow.python.framework.convert_to_constants")
    specs = [tensorflow.TensorSpec(value.shape, value.dtype) for value in model.inputs]

    def call(*inputs: Any) -> Any:
        return tensorflow.nest.flatten(model(list(inputs) if len(inputs) > 1 else inputs[0], training=False))

    return module.convert_variables_to_constants_v2(
        tensorflow.function(call, autograph=False).get_concrete_function(*specs)
    )


def _with_signature(tensorflow: Any, function: Any, graph: Graph) -> Any:
    """Return a function whose inputs and outputs have the names of the signature."""
    specs = [
        tensorflow.TensorSpec(tensor.shape, tensor.dtype, name)
        for tensor, name in zip(function.inputs, input_names(graph), strict=True)
    ]

    def call(*inputs: Any) -> Any:
        return dict(zip(output_names(graph), function(*inputs), strict=True))

    return tensorflow.function(call, autograph=False).get_concrete_function(*specs)


@contextmanager
def _raising_graph_errors() -> Iterator[None]:
    """Raise a GraphError, within the context, in place of the converter's own error: with the operators that
    TensorFlow Lite lacks, if the error names any.
    """
    try:
        yield
    except Exception as error:  # ConverterError is no public name
        if type(error).__name__ != "ConverterError":
            raise
        operators = dict.fromkeys(_LACKING_OPERATOR.findall(str(error)))
        words = (
            f"has no operator for {', '.join(operators)}"
            if operators
            else f"is not given a model: {first_line(error)}"
        )
        raise GraphError(
            f"TensorFlow Lite {words}", next=f"torch, tf and onnx say every op: {TO('onnx')}"
        ) from None

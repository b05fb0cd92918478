"""TF-slim's own implementations of the zoo `slim`, with weights by the names of their variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from porter.dtypes import Dtype
from porter.errors import MappingError, UsageError
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.tf.graph_files.definition import op_name
from porter.frameworks.tf.graph_files.run import GraphRunner
from porter.frameworks.tf.layout import expect_cover
from porter.frameworks.tf.runtime import import_tensorflow, quiet_logger
from porter.frameworks.tf.slim.code import import_mobilenet_v1, import_mobilenet_v2, import_net, import_slim

_MOST_POOLED = 7 * 32
"""Up to here slim's MobileNet v1 pools the whole last map; above, its 7x7 pool leaves several cells that its squeeze refuses."""

_MOST_INCEPTION = 330
"""Up to here slim's Inception v3 has a last map of at most 8x8, which its one average takes; above, its squeeze refuses."""


@dataclass(frozen=True)
class SlimNetwork:
    """What slim's code put into the current graph.

    Attributes:
        logits: the op that gives N×classes, or N×1×1×classes.
        probabilities: the op that gives their softmax.
        variables: shapes of the variables by name.
        points: slim's own names for what its layers give (`Conv2d_1_depthwise`, `layer_2/output`), to ops.
    """

    logits: str
    probabilities: str
    variables: Mapping[str, tuple[int, ...]]
    points: Mapping[str, str]


def build_slim(variant: str, classes: int, size: tuple[int, int], checkpoint: Checkpoint, dtype: Dtype) -> GraphRunner:
    """Slim's network of a variant for images of `size` (rows, columns), with the checkpoint's tensors as its variables.

    Taps are the scopes that hold variables (`MobilenetV1/Conv2d_0` is the convolution with its bias, `.../BatchNorm` the norm),
    slim's end points, and the names of ops.

    Raises:
        UsageError: no such variant.
        MappingError: checkpoint and network do not cover each other, or a shape differs.
        MissingFramework: TensorFlow, tf-slim, tf_keras or mmdnn is not installed.
    """
    frozen, network = _frozen_network(variant, classes, size)
    variables = network.variables
    tensors = checkpoint.tensors
    expect_cover(variables.keys() - tensors.keys(), tensors.keys() - variables.keys(), where=str(checkpoint.path))
    for name, shape in variables.items():
        if tensors[name].shape != shape:
            raise MappingError(f"{name}: expected shape {shape}, got {tensors[name].shape}", where=str(checkpoint.path))
    layers = {**network.points, **_layers(frozen, variables)}
    return GraphRunner(frozen.SerializeToString(), tensors, [network.logits], dtype, layers, decimal_epsilons=True)


@lru_cache(maxsize=1)
def _frozen_network(variant: str, classes: int, size: tuple[int, int]) -> tuple[Any, SlimNetwork]:
    """Slim's network without contents. A check asks for it in each number type, and slim's code takes seconds."""
    tensorflow, v1 = import_tensorflow(), import_tensorflow().compat.v1
    graph = tensorflow.Graph()
    with graph.as_default():
        images = v1.placeholder(tensorflow.float32, [None, *size, 3], name="input")
        network = construct(variant, images, classes)
    return _frozen(graph.as_graph_def()), network


def construct(variant: str, images: Any, classes: int) -> SlimNetwork:
    """Runs slim's code, for inference, in the current graph of TensorFlow 1: `images` is N×H×W×3.

    Its variables are of the old kind, as in the checkpoints and frozen graphs that people have, and no others may be there yet.

    Raises:
        UsageError: no such variant.
        MissingFramework: tf-slim, tf_keras or mmdnn is not installed.
    """
    if variant not in _CONSTRUCTORS:
        raise UsageError(f"reference 'tf_slim' has no variant '{variant}'", next=f"it has {', '.join(_CONSTRUCTORS)}")
    v1 = import_tensorflow().compat.v1
    constructor, arguments = _CONSTRUCTORS[variant]
    with v1.variable_scope(v1.get_variable_scope(), use_resource=False), _quiet():
        logits, points = constructor(images, classes, arguments)
    variables = {variable.op.name: tuple(variable.shape.as_list()) for variable in v1.global_variables()}
    probabilities = points.pop("Predictions" if "Predictions" in points else "predictions")
    return SlimNetwork(logits.op.name, probabilities.op.name, variables, {name: tensor.op.name for name, tensor in points.items()})


def _mobilenet_v1(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    slim, code = import_slim(), import_mobilenet_v1()
    with slim.arg_scope(code.mobilenet_v1_arg_scope(is_training=False)):
        large = max(images.shape.as_list()[1:3]) > _MOST_POOLED
        logits, points = code.mobilenet_v1(images, classes, is_training=False, global_pool=large, **arguments)
    # One name at every size for what makes one cell of the last map.
    return logits, points if large else points | {"global_pool": points["AvgPool_1a"]}


def _mobilenet_v2(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    slim, code = import_slim(), import_mobilenet_v2()
    with slim.arg_scope(code.training_scope(is_training=False)):
        return code.mobilenet(images, classes, **arguments)


def _inception_v3(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    rows, columns = images.shape.as_list()[1:3]
    if max(rows, columns) > _MOST_INCEPTION:
        raise UsageError(f"slim's Inception v3 takes images up to {_MOST_INCEPTION} rows and columns, got {rows}x{columns}")
    slim, code = import_slim(), import_net("inception_v3")
    with slim.arg_scope(code.inception_v3_arg_scope()):
        return code.inception_v3(images, classes, is_training=False, create_aux_logits=False, **arguments)


def _resnet_v2(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    slim, code = import_slim(), import_net("resnet_v2")
    with slim.arg_scope(code.resnet_arg_scope()):
        return getattr(code, f"resnet_v2_{arguments['layers']}")(images, classes, is_training=False)


Constructor = Callable[[Any, int, Mapping[str, Any]], Any]
# The widths and `finegrain_classification_mode` as nets/mobilenet_v1.py and nets/mobilenet/mobilenet_v2.py name them
# (mobilenet_v1_075, mobilenet_v2_140, mobilenet_v2_050, mobilenet_v2_035): below 1.0, v2 keeps its last layer at 1280.
_CONSTRUCTORS: Mapping[str, tuple[Constructor, Mapping[str, Any]]] = {
    "inception_v3": (_inception_v3, {}),
    "mobilenet_v1": (_mobilenet_v1, {"depth_multiplier": 1.0}),
    "mobilenet_v1_0.75": (_mobilenet_v1, {"depth_multiplier": 0.75}),
    "mobilenet_v1_0.5": (_mobilenet_v1, {"depth_multiplier": 0.5}),
    "mobilenet_v1_0.25": (_mobilenet_v1, {"depth_multiplier": 0.25}),
    "mobilenet_v2": (_mobilenet_v2, {"depth_multiplier": 1.0}),
    "mobilenet_v2_1.4": (_mobilenet_v2, {"depth_multiplier": 1.4}),
    "mobilenet_v2_1.3": (_mobilenet_v2, {"depth_multiplier": 1.3}),
    "mobilenet_v2_0.75": (_mobilenet_v2, {"depth_multiplier": 0.75, "finegrain_classification_mode": True}),
    "mobilenet_v2_0.5": (_mobilenet_v2, {"depth_multiplier": 0.5, "finegrain_classification_mode": True}),
    "mobilenet_v2_0.35": (_mobilenet_v2, {"depth_multiplier": 0.35, "finegrain_classification_mode": True}),
    "resnet50v2": (_resnet_v2, {"layers": 50}),
    "resnet101v2": (_resnet_v2, {"layers": 101}),
    "resnet152v2": (_resnet_v2, {"layers": 152}),
    "resnet200v2": (_resnet_v2, {"layers": 200}),
}
"""Variant to slim's code and its arguments. A closed table: nothing from a recipe names what is imported or called."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Slim and TensorFlow 1's layers warn of their own age, once for each layer."""
    with warnings.catch_warnings(), quiet_logger(import_tensorflow()):
        warnings.simplefilter("ignore")
        yield


def _frozen(graph: Any) -> Any:
    """The graph with a Const of no content for each variable."""
    found = type(graph)()
    found.CopyFrom(graph)
    for node in found.node:
        if node.op == "VariableV2":
            dtype, shape = node.attr["dtype"].type, node.attr["shape"].shape
            constant = type(node)(name=node.name, op="Const")
            constant.attr["dtype"].type = constant.attr["value"].tensor.dtype = dtype
            constant.attr["value"].tensor.tensor_shape.CopyFrom(shape)
            node.CopyFrom(constant)
    return found


_TAPPED = {"weights": ("Conv2D", "MatMul"), "depthwise_weights": ("DepthwiseConv2dNative",), "biases": ("BiasAdd",)}
_NORMALISED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def _layers(graph: Any, variables: Mapping[str, Any]) -> dict[str, str]:
    """The op that gives each layer's output, by the scope of its variables: found by what reads them, not by name.

    A layer with biases gives what adds them.
    """
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for source in node.input:
            readers.setdefault(op_name(source), []).append(node)
    found: dict[str, str] = {}
    for variable in sorted(variables, key=lambda name: name.endswith("/biases")):
        layer, _, role = variable.rpartition("/")
        kinds = _TAPPED.get(role, _NORMALISED)
        for read in readers.get(f"{variable}/read", []):
            if read.op in kinds:
                found[layer] = read.name
    return found

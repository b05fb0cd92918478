"""A network that TensorFlow 1's code makes, as a reference with weights by the names of its variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from porter.base.errors import MappingError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import RETURNED
from porter.frameworks.tf.frozen.definition import op_name
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.layout import expect_cover
from porter.frameworks.tf.runtime import quiet_logger
from porter.padding import KnownSize
from porter.zoos.implementation import Build, BuildRequest, Implementation, expect_usual


@dataclass(frozen=True)
class SlimNetwork:
    """The network that code put into the current graph.

    Attributes:
        logits: the op that gives N×classes, or N×1×1×classes.
        probabilities: the op that gives their softmax.
        variables: shapes of the variables by name, in the order in which they were made.
        points: the code's own names of its layers' values (`Conv2d_1_depthwise`, `layer_2/output`), to ops.
    """

    logits: str
    probabilities: str
    variables: Mapping[str, tuple[int, ...]]
    points: Mapping[str, str]


Construct = Callable[[str, Any, int], SlimNetwork]
"""Runs the code of a variant, for inference, in the current graph of TensorFlow 1, for images N×H×W×3 and a
number of classes.
"""


_ANY_SIZE = (224, 224)


def implementation(library: str, construct: Construct, by_position: bool = False) -> Implementation:
    """Make an implementation of networks of TensorFlow 1; each is built for one size.

    Args:
        by_position: its loader takes a file's tensors by their places.
    """

    def variables(variant: str, classes: int) -> Mapping[str, tuple[int, ...]]:
        return variables_of(construct, variant, classes, _ANY_SIZE)

    return Implementation(
        _build_by(library, construct), lambda variant: False, variables=variables if by_position else None
    )


def _build_by(library: str, construct: Construct) -> Build:
    """Return a function that builds networks with the checkpoint's tensors as their variables. Taps, the
    names under which a run gives values, are the scopes that hold variables (`MobilenetV1/Conv2d_0` is the
    convolution with its bias, `.../BatchNorm` the norm), the code's end points, and the names of ops.
    """

    def build(request: BuildRequest) -> GraphRunner:
        """Build the network of a request; its variables and the checkpoint's tensors have to cover each
        other.
        """
        expect_usual(library, request.options)
        frozen, network = _frozen_network(construct, request.variant, request.classes, request.size)
        variables, tensors = network.variables, request.checkpoint.tensors
        expect_cover(
            variables.keys() - tensors.keys(),
            tensors.keys() - variables.keys(),
            where=request.checkpoint.path,
        )
        for name, shape in variables.items():
            if tensors[name].shape != shape:
                raise MappingError(
                    f"{name}: expected shape {shape}, got {tensors[name].shape}",
                    where=request.checkpoint.path,
                )
        layers = {**network.points, **layer_ops(frozen, variables), RETURNED: network.logits}
        return GraphRunner(
            frozen.SerializeToString(),
            tensors,
            [network.logits],
            request.dtype,
            layers,
            decimal_epsilons=True,
        )

    return build


def variables_of(
    construct: Construct, variant: str, classes: int, size: KnownSize
) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of a network's variables by name, in the order in which its code makes them."""
    return _frozen_network(construct, variant, classes, size)[1].variables


@lru_cache(maxsize=1)
def _frozen_network(
    construct: Construct, variant: str, classes: int, size: KnownSize
) -> tuple[Any, SlimNetwork]:
    """Run a network's code, and return its graph without weights. It is cached, because a check needs it in
    each number type and the code takes seconds.
    """
    tensorflow = import_tensorflow()
    v1 = tensorflow.compat.v1
    graph = tensorflow.Graph()
    with graph.as_default():
        images = v1.placeholder(tensorflow.float32, [None, *size, 3], name="input")
        network = construct(variant, images, classes)
    return _freeze(graph.as_graph_def()), network


@contextmanager
def old_variables() -> Iterator[None]:
    """Make variables of the old kind inside this context, as in the checkpoints and frozen graphs that people
    have.

    Slim and TensorFlow 1's layers warn for each layer that they are old; these warnings are switched off.
    """
    v1 = import_tensorflow().compat.v1
    with (
        v1.variable_scope(v1.get_variable_scope(), use_resource=False),
        quiet_logger(import_tensorflow()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def graph_variables() -> dict[str, tuple[int, ...]]:
    """Return the shapes by name of the current graph's variables, in the order in which they were made."""
    return {
        variable.op.name: tuple(variable.shape.as_list())
        for variable in import_tensorflow().compat.v1.global_variables()
    }


def _freeze(graph: Any) -> Any:
    """Return the graph with an empty Const, of its type and shape, for each variable: the tensors are filled
    in when it is run.
    """
    frozen = type(graph)()
    frozen.CopyFrom(graph)
    for node in frozen.node:
        if node.op == "VariableV2":
            dtype, shape = node.attr["dtype"].type, node.attr["shape"].shape
            constant = type(node)(name=node.name, op="Const")
            constant.attr["dtype"].type = dtype
            constant.attr["value"].tensor.dtype = dtype
            constant.attr["value"].tensor.tensor_shape.CopyFrom(shape)
            node.CopyFrom(constant)
    return frozen


_OPS_OF_ROLES = {
    "weights": ("Conv2D", "MatMul"),
    "depthwise_weights": ("DepthwiseConv2dNative",),
    "biases": ("BiasAdd",),
}
_NORM_OPS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def layer_ops(graph: Any, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the op that gives each layer's output, by the scope of the layer's variables: that
    of `conv1/weights` is a Conv2D, or with `conv1/biases` the op that adds these. It is found by what it
    reads, not by name.
    """
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for source in node.input:
            readers.setdefault(op_name(source), []).append(node)
    ops: dict[str, str] = {}
    # Biases come last: where a layer has some, their op replaces the kernel's.
    for variable in sorted(variables, key=lambda name: name.endswith("/biases")):
        layer, _, role = variable.rpartition("/")
        kinds = _OPS_OF_ROLES.get(role, _NORM_OPS)
        # TensorFlow 1 reads a variable by an op of its own.
        for reader in readers.get(f"{variable}/read", []):
            if reader.op in kinds:
                ops[layer] = reader.name
    return ops

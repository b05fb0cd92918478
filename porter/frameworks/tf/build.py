"""A Keras functional model from a plan, with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.dtypes import Dtype, cast
from porter.errors import GraphError, MappingError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import Tensors
from porter.frameworks.tf.layout import expect_cover, from_canonical, keras_class, layer_names
from porter.frameworks.tf.run import attach_runner
from porter.frameworks.tf.runtime import import_keras, tensorflow_device
from porter.frameworks.tf.sites import LayerMaker, windowed
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Identity,
    MaxPool,
    Node,
    Relu,
    Relu6,
    tensor_shapes,
)
from porter.graph.plan import Plan
from porter.padding import ANY

_VARIABLES = {
    "kernel": "kernel",
    "bias": "bias",
    "gamma": "gamma",
    "beta": "beta",
    "mean": "moving_mean",
    "variance": "moving_variance",
}


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str) -> Any:
    """A `keras.Model` from N×H×W×C to N×classes, only of built-in layers.

    With a `plan.size` its input has that size and Keras refuses any other; without it, rows and columns are free. Weights are cast
    to `dtype`; the caller checks whether they fit its range. `batches` is left out, because Keras keeps no such count.

    Raises:
        MappingError: `tensors` and the graph do not cover each other, or a shape differs.
        GraphError: a node with weights does not lead to the output.
        MissingFramework: TensorFlow or Keras is not installed.
        UsageError: no such device.
    """
    shapes = tensor_shapes(plan.graph)
    _expect_cover(shapes, tensors)
    with import_tensorflow().device(tensorflow_device(device)):
        model, values, holders = _connect(plan, layers, dtype)
        for path, layer in holders.items():
            node = plan.graph.by_path[path]
            for role in shapes[path]:
                array = cast(tensors[path][role], dtype, f"{path}:{role}", allow_overflow=True)
                getattr(layer, _VARIABLES[role]).assign(from_canonical(plan.graph, node, role, array))
    attach_runner(model, values, device)
    return model


def _expect_cover(shapes: Mapping[str, Mapping[str, tuple[int, ...]]], tensors: Tensors) -> None:
    wanted = {f"{path}:{role}": shape for path, roles in shapes.items() for role, shape in roles.items()}
    given = {f"{path}:{role}": array.shape for path, roles in tensors.items() for role, array in roles.items() if role != "batches"}
    expect_cover(wanted.keys() - given.keys(), given.keys() - wanted.keys())
    for name, shape in wanted.items():
        if given[name] != shape:
            raise MappingError(f"expected shape {shape}, got {given[name]}", where=name)


def _connect(plan: Plan, layers: Mapping[str, str], dtype: Dtype) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The model, the symbolic value of every path, and the layer that holds the weights of every path that has any."""
    keras, graph = import_keras(), plan.graph
    names = layer_names(graph, layers)
    maker = LayerMaker(dtype, frozenset(names.values()))
    rows, columns = plan.size or ANY
    source = keras.Input((rows, columns, graph.channels), dtype=dtype, name=maker.name(INPUT))
    values, holders = {INPUT: source}, {}
    for node in graph.nodes:
        value, layer = _apply(maker, plan, node, names[node.path], [values[path] for path in node.inputs])
        values[node.path] = value
        if layer.weights:
            holders[node.path] = layer
    model = keras.Model(source, values[graph.output], name="port")
    held = {id(variable) for variable in model.variables}
    for path, layer in holders.items():
        if any(id(variable) not in held for variable in layer.variables):
            raise GraphError("its weights do not lead to the output", where=path)
    return model, values, holders


def _apply(maker: LayerMaker, plan: Plan, node: Node, name: str, inputs: list[Any]) -> tuple[Any, Any]:
    """The value of a node, and the layer that gives it."""
    op = node.op
    if isinstance(op, Conv | MaxPool | AvgPool):
        pools = {MaxPool: "MaxPooling2D", AvgPool: "AveragePooling2D"}
        kind = keras_class(plan.graph, node) or pools[type(op)]
        return windowed(maker, op, kind, name, plan.realisations[node.path], inputs[0])
    if isinstance(op, Add):
        layer = maker.layer("Add", name)
        return layer(inputs), layer
    if isinstance(op, Concat):
        layer = maker.layer("Concatenate", name, axis=-1)
        return layer(inputs), layer
    if isinstance(op, Affine):
        return _affine(maker, op, name, inputs[0])
    if isinstance(op, BatchNorm):
        # Keras's momentum is the share of the old value, porter's (and torch's) the share of the new one.
        statistics = {"momentum": 1 - op.momentum, "epsilon": op.epsilon}
        layer = maker.layer("BatchNormalization", name, axis=-1, scale=op.scale, center=op.center, **statistics)
    elif isinstance(op, Relu):
        layer = maker.layer("ReLU", name)
    elif isinstance(op, Relu6):
        layer = maker.layer("ReLU", name, max_value=6.0)
    elif isinstance(op, GlobalAvgPool):
        layer = maker.spatial("GlobalAveragePooling2D", name)
    elif isinstance(op, GlobalMaxPool):
        layer = maker.spatial("GlobalMaxPooling2D", name)
    elif isinstance(op, Dense):
        layer = maker.layer("Dense", name, units=op.units, use_bias=op.bias)
    else:
        assert isinstance(op, Identity)
        layer = maker.layer("Identity", name)
    return layer(inputs[0]), layer


def _affine(maker: LayerMaker, op: Affine, name: str, value: Any) -> tuple[Any, Any]:
    """The value of an affine node over maps or features, and its layer.

    A `Rescaling` casts a Python number through float32, but an array directly (keras/src/layers/preprocessing/rescaling.py and
    tf.cast). If ~/.keras/keras.json says channels_first, it moves a vector of scales away from the last axis, but not an array of
    rank 3. So features become 1x1 maps.
    """
    scale, offset = (np.array(values, np.float64).reshape(1, 1, -1) for values in (op.scale, op.offset))
    layer = maker.layer("Rescaling", name, scale=scale, offset=offset)
    if value.ndim == 4:
        return layer(value), layer
    features = value.shape[-1]
    maps = maker.layer("Reshape", maker.name(f"{name}_maps"), target_shape=(1, 1, features))(value)
    return maker.layer("Reshape", maker.name(f"{name}_features"), target_shape=(features,))(layer(maps)), layer

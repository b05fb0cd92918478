"""A Keras functional model from a plan, with its weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from porter.base.dtypes import Array, Dtype
from porter.base.errors import GraphError, MappingError
from porter.filegraph.names import Names
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import Tensors
from porter.frameworks.tf.arrays import ARRAYS
from porter.frameworks.tf.layers import LAYERS
from porter.frameworks.tf.layout import expect_cover, from_canonical, keras_class, layer_names, variable_name
from porter.frameworks.tf.maker import LayerMaker
from porter.frameworks.tf.run import attach_runner
from porter.frameworks.tf.runtime import import_keras, tensorflow_device
from porter.frameworks.tf.sites import windowed
from porter.graph import INPUT, AvgPool, Conv, Graph, MaxPool, Node, tensor_shapes
from porter.graph.ops import is_map
from porter.graph.plan import Plan
from porter.padding import ANY

POOLS = {MaxPool: "MaxPooling2D", AvgPool: "AveragePooling2D"}
"""The Keras classes of pools."""


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str = "cpu") -> Any:
    """A `keras.Model` from N×H×W×C to the graph's outputs, maps N×H×W×C too; several are a list. It has only built-in layers.

    With a `plan.only_size` its input has that size and Keras refuses any other; without it, rows and columns are free. Weights are
    cast to `dtype`; the caller checks whether they fit its range. `batches` is left out, because Keras keeps no such count.

    Raises:
        MappingError: `tensors` and the graph do not cover each other, or a shape differs.
        GraphError: a node with weights does not lead to the output.
        MissingFramework: TensorFlow or Keras is not installed.
        UsageError: no such device.
    """
    _expect_cover(tensor_shapes(plan.graph), tensors)
    with import_tensorflow().device(tensorflow_device(device)):
        model, values = _connect(plan, tensors, layers, dtype)
    arrays = {path for path, shape in plan.graph.open_shapes.items() if not is_map(shape)}
    attach_runner(model, values, device, arrays=arrays)
    return model


def _expect_cover(shapes: Mapping[str, Mapping[str, tuple[int, ...]]], tensors: Tensors) -> None:
    wanted = {f"{path}:{role}": shape for path, roles in shapes.items() for role, shape in roles.items()}
    given = {f"{path}:{role}": array.shape for path, roles in tensors.items() for role, array in roles.items() if role != "batches"}
    expect_cover(wanted.keys() - given.keys(), given.keys() - wanted.keys())
    for name, shape in wanted.items():
        if given[name] != shape:
            raise MappingError(f"expected shape {shape}, got {given[name]}", where=name)


def _connect(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype) -> tuple[Any, dict[str, Any]]:
    """The model with its weights, and the symbolic value of every path."""
    keras, graph = import_keras(), plan.graph
    names, shapes = layer_names(graph, layers), tensor_shapes(graph)
    weights = {names[path]: _variables(graph, graph.by_path[path], tensors[path], shapes[path]) for path in shapes}
    maker = LayerMaker(dtype, Names(names.values()), weights)
    rows, columns = plan.only_size or ANY
    source = keras.Input((rows, columns, graph.channels), dtype=dtype, name=maker.name(INPUT))
    values = {INPUT: source}
    for node in graph.nodes:
        values[node.path] = _apply(maker, plan, node, names[node.path], [values[path] for path in node.inputs])
    outputs = [values[path] for path in graph.outputs]
    try:
        model = keras.Model(source, outputs if graph.further else outputs[0], name="port")
    except RecursionError:  # keras/src/ops/function.py, _build_map_helper; load_model would end in it, too
        raise GraphError(
            f"Keras follows a model by a call for each layer, and a chain of {len(graph.nodes)} layers is too deep for Python",
            next="fold the norms (--fold-bn), or port it to torch or onnx",
        ) from None
    maker.restore_initializers()
    held = {id(variable) for variable in model.variables}
    for path in shapes:
        if any(id(variable) not in held for variable in maker.made[names[path]].variables):
            raise GraphError("its weights do not lead to the output", where=path)
    return model, values


def _variables(graph: Graph, node: Node, tensors: Mapping[str, Array], roles: Collection[str]) -> dict[str, Array]:
    """The tensors of a node by the names of its layer's variables, as views where possible."""
    return {variable_name(node.op, role): from_canonical(graph, node, role, tensors[role]) for role in roles}


def _apply(maker: LayerMaker, plan: Plan, node: Node, name: str, inputs: list[Any]) -> Any:
    """The value of a node. If it has tensors, the layer called `name` holds them."""
    if isinstance(node.op, Conv | MaxPool | AvgPool):
        kind = keras_class(plan.graph, node) or POOLS[type(node.op)]
        return windowed(maker, node.op, kind, name, plan.realisations[node.path], inputs[0])
    if type(node.op) in ARRAYS:
        return ARRAYS[type(node.op)](maker, node.op, name, inputs, is_map(plan.graph.open_shapes[node.inputs[0]]))
    return LAYERS[type(node.op)](maker, node.op, name, inputs)

"""The Keras model of a plan, stated with its weights; nothing here imports a framework."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Concatenate

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import GraphError, MappingError
from porter.filegraph.names import Names
from porter.frameworks import LayerNames, Tensors
from porter.frameworks.tf.layout import (
    channels_last_shape,
    expect_cover,
    from_canonical,
    keras_class,
    layer_names,
    variable_name,
)
from porter.frameworks.tf.ports.arrays import ARRAYS
from porter.frameworks.tf.ports.layers import LAYERS
from porter.frameworks.tf.ports.maker import CallMaker, KerasNode
from porter.frameworks.tf.ports.sites import state_windowed
from porter.frameworks.tf.ports.statement import CallValue, Statement
from porter.graph import INPUT, AvgPool, Conv, Graph, MaxPool, Node, Op, ops, tensor_shapes
from porter.graph.ops import Axes, is_map, row_of
from porter.graph.plan import Plan, taken_shapes

POOLS: Mapping[type[Op], str] = {MaxPool: "MaxPooling2D", AvgPool: "AveragePooling2D"}
"""The Keras classes of pools."""


Spelling = Callable[Concatenate[KerasNode[Any], ...], CallValue]
"""The value of a node, and of the array that it holds, with the channels last, if it holds one."""


def state_model(
    plan: Plan,
    tensors: Tensors,
    layers: LayerNames,
    dtype: Dtype,
    spellings: Mapping[type[Op], Spelling] = {},
) -> Statement:
    """State a model from N×H×W×C to the graph's outputs, maps N×H×W×C too, of built-in layers and operations
    only.

    With a `plan.only_size` its input has that size and Keras refuses any other; without it, rows and columns
    are free. `batches` is left out, because Keras keeps no such count.

    Args:
        spellings: other forms than layers, for ops of a model that is not saved: an array is a constant then.

    Raises:
        MappingError: `tensors` and the graph do not cover each other, or a shape differs.
        GraphError: a node with weights does not lead to the output.
    """
    graph, shapes = plan.lowered, tensor_shapes(plan.lowered)
    _expect_tensors(shapes, tensors)
    names = layer_names(graph, layers)
    maker = CallMaker(dtype, Names(names.values()))
    input_shapes = taken_shapes(plan)
    if graph.axes:  # the first input is no map
        input_shapes |= {INPUT: Axes(graph.axes)}
    values = {
        path: maker.input(maker.name(path), (None, *channels_last_shape(shape)))
        for path, shape in input_shapes.items()
    }
    weights: dict[str, NamedArrays] = {}
    for node in graph.nodes:
        inputs = [values[path] for path in node.inputs]
        of_map = is_map(graph.open_shapes[node.source])
        keras_node = KerasNode(maker, node.op, names[node.path], inputs, of_map)
        spelling = spellings.get(type(node.op))
        if spelling is not None:
            arrays = _constant_arrays(graph, node, tensors.get(node.path, {}), dtype)
            values[node.path] = spelling(keras_node, *arrays)
            continue
        values[node.path] = _state_node(keras_node, plan, node)
        # A further call of a layer has its first call's weights.
        if node.path in shapes and node.shares is None:
            weights[names[node.path]] = _layer_variables(
                graph, node, tensors[node.path], shapes[node.path], inputs[0]
            )
    statement = Statement(
        dtype, tuple(maker.calls), values, graph.inputs, graph.outputs, bool(graph.further), weights
    )
    # The layers that lead to an output.
    reaching = {calls[0].name for calls in statement.calls_in_order}
    for path in shapes:
        if names[path] not in reaching and type(graph.by_path[path].op) not in spellings:
            raise GraphError("its weights do not lead to the output", where=path)
    return statement


def _constant_arrays(graph: Graph, node: Node, tensors: NamedArrays, dtype: Dtype) -> list[Array]:
    """Return the arrays that a node holds, in `dtype` and with the channels of a map last."""
    arrays = [array.astype(dtype) for array in tensors.values()]
    if is_map(graph.open_shapes[node.path]):
        return [array.transpose(1, 2, 0) for array in arrays]
    return arrays


def _expect_tensors(shapes: Mapping[str, Mapping[str, tuple[int, ...]]], tensors: Tensors) -> None:
    """Expect a tensor of the right shape for each weight of the model, and no others but counters of batches.
    Raise MappingError where that is not so.
    """
    wanted = {f"{path}:{role}": shape for path, roles in shapes.items() for role, shape in roles.items()}
    actual = {
        f"{path}:{role}": array.shape
        for path, roles in tensors.items()
        for role, array in roles.items()
        if role != "batches"
    }
    expect_cover(wanted.keys() - actual.keys(), actual.keys() - wanted.keys())
    for name, shape in wanted.items():
        if actual[name] != shape:
            raise MappingError(f"expected shape {shape}, got {actual[name]}", where=name)


def _layer_variables(
    graph: Graph, node: Node, tensors: NamedArrays, roles: Collection[str], value: CallValue
) -> dict[str, Array]:
    """Return the tensors of a node that reads `value`, by the names of its layer's variables and in their
    shapes, as views where possible.
    """
    variables = {
        variable_name(node.op, role): from_canonical(graph, node, role, tensors[role]) for role in roles
    }
    if isinstance(node.op, ops.PRelu) and value.ndim == 4:
        return {"alpha": variables["alpha"].reshape(1, 1, -1)}
    if isinstance(node.op, ops.ChannelScale):
        return {**variables, "kernel": variables["kernel"].reshape(1, 1, -1, 1)}
    if "value" in roles:  # an EinsumDense, see porter.frameworks.tf.ports.arrays
        return {
            name: array.reshape([size for size in array.shape if size != 1] or [1])
            for name, array in variables.items()
        }
    return variables


def _state_node(keras_node: KerasNode[Any], plan: Plan, node: Node) -> CallValue:
    """State a node's layers and operations, and return the value of the last: by its realisation, which says
    how it pads, if it has a window, otherwise by its row of ARRAYS or LAYERS. If it has tensors, the layer of
    its name holds them.
    """
    if isinstance(node.op, Conv | MaxPool | AvgPool):
        kind = keras_class(plan.lowered, node) or POOLS[type(node.op)]
        return state_windowed(keras_node, kind, plan.realisations[node.path])
    spelling = ARRAYS.get(type(node.op)) or row_of(LAYERS, type(node.op))
    assert spelling is not None  # a test holds the tables to all ops
    return spelling(keras_node)

"""A plan as an ONNX model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.filegraph.names import Names
from porter.formats.onnx.proto import import_onnx
from porter.frameworks import Tensors
from porter.frameworks.onnx.double import make_float64_session, replay
from porter.frameworks.onnx.layout import fillings, stored_shapes, tensor_names
from porter.frameworks.onnx.maker import NodeMaker, OnnxSpelled
from porter.frameworks.onnx.session import Session, make_session
from porter.frameworks.onnx.sites import add_windowed
from porter.frameworks.onnx.spellings import PLAIN
from porter.frameworks.port_tensors import expect_tensor
from porter.graph import INPUT, AvgPool, Conv, MaxPool, Op, Shape, shapes, tensor_shapes
from porter.graph.ops import Axes, is_map, row_of
from porter.graph.plan import Plan
from porter.padding import ANY

OPSET, IR = 20, 9
"""The first version with all that porter writes: average pools with a dilation (19) and Gelu (20). onnx 1.15
and onnxruntime 1.17, of the winter of 2023, are the first that read it.
"""
EXTERNAL = 1
"""TensorProto.DataLocation: in another file."""


@dataclass(frozen=True)
class ModelParts:
    """A model and its tensors.

    Attributes:
        proto: ModelProto with the constants of its nodes. The port's tensors are initialisers without
            content.
        tensors: these, by name, as the file has them; in a model of float64, in any type.
        exact: see porter.frameworks.onnx.maker.NodeMaker.
    """

    proto: Any
    tensors: NamedArrays
    exact: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def port_tensors(self) -> list[Any]:
        """The initialisers (TensorProto) that hold the port's tensors."""
        return [tensor for tensor in self.proto.graph.initializer if tensor.name in self.tensors]


def make_model(plan: Plan, tensors: Tensors, dtype: Dtype) -> ModelParts:
    """Make the model of a plan: a batch of any size, rows and columns as the plan says, and the shape of
    every value.

    Raises:
        MappingError: the tensors and the graph do not cover each other, or a shape differs.
        CannotRun: the package `onnx` is not installed.
    """
    onnx = import_onnx()
    graph = plan.lowered
    dtype_in_file = storage_type(dtype)
    names = tensor_names(graph)
    value_shapes = shapes(graph, plan.only_size or ANY)
    maker = _make_nodes(plan, names, value_shapes, dtype_in_file)
    stored = _arrays_by_name(plan, tensors, names, dtype_in_file)
    element_type = onnx.helper.np_dtype_to_tensor_dtype(dtype_in_file)
    graph_proto = onnx.helper.make_graph(
        maker.nodes,
        "port",
        [
            onnx.helper.make_tensor_value_info(path, element_type, ("N", *axes))
            for path, axes in _input_axes(plan, value_shapes).items()
        ],
        [
            onnx.helper.make_tensor_value_info(path, element_type, ("N", *value_shapes[path]))
            for path in graph.outputs
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in maker.constants.items()],
    )
    # The port's tensors: shapes and types, without content.
    for name, array in stored.items():
        graph_proto.initializer.add(name=name, dims=array.shape, data_type=element_type)
    proto = onnx.helper.make_model(
        graph_proto, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR
    )
    with_shapes = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    return ModelParts(with_shapes, stored, maker.exact)


def _input_axes(plan: Plan, value_shapes: Mapping[str, Shape]) -> dict[str, list[int | str]]:
    """Return the axes of each input behind its batch, with a letter for each open one: `{"input": [3, "H",
    "W"]}`.
    """
    shapes_of_inputs = {path: value_shapes[path] for path in plan.lowered.inputs}
    if plan.lowered.axes:  # the first input is no map
        shapes_of_inputs[INPUT] = Axes(plan.lowered.axes)

    def name_open_axes(shape: Shape) -> list[int | str]:
        """Return a shape with letters for its open sizes: of a map C, H and W, of others L, M and -."""
        letters = "CHW" if is_map(shape) else "LM" + "-" * len(shape)
        return [letter if size is None else size for size, letter in zip(shape, letters, strict=False)]

    return {path: name_open_axes(shape) for path, shape in shapes_of_inputs.items()}


def _make_nodes(
    plan: Plan, names: Mapping[str, Mapping[str, str]], value_shapes: Mapping[str, Shape], kind: np.dtype[Any]
) -> NodeMaker:
    """Make the nodes of a plan and their constants, and return their maker. `names` are those of the stored
    tensors by path and role, `kind` the number type.
    """
    used_names = Names({*value_shapes, *(name for roles in names.values() for name in roles.values())})
    maker = NodeMaker(kind, names, value_shapes, used_names)
    for node in plan.lowered.nodes:
        spelled = OnnxSpelled[Op](maker, node, node.op, node.path)
        if isinstance(node.op, Conv | MaxPool | AvgPool):
            add_windowed(spelled, plan.realisations[node.path])
        else:
            spelling = row_of(PLAIN, type(node.op))
            assert spelling is not None  # a test holds the table to all ops
            spelling(spelled)
    maker.state_all_axes()
    return maker


def _arrays_by_name(
    plan: Plan,
    tensors: Tensors,
    names: Mapping[str, Mapping[str, str]],
    kind: np.dtype[Any],
) -> dict[str, Array]:
    """Return the arrays of an ONNX file by their names in it, in its shapes and in the number type `kind`;
    where that is float64 they keep their own type (see `make_model_session`). Tensors that only ONNX's
    operators take, such as a norm's scale of 1, are filled. Raise MappingError where a tensor of the graph
    is missing or has another shape.
    """
    canonical_shapes = tensor_shapes(plan.lowered)
    fill_values = fillings(plan.lowered, tensors)
    shapes_in_file = stored_shapes(plan.lowered)
    arrays: dict[str, Array] = {}
    # Only first calls of layers have tensors.
    for path in plan.lowered.calls:
        for role, name in names.get(path, {}).items():
            shape = shapes_in_file[path][role]
            if name in fill_values:
                arrays[name] = np.full(shape, fill_values[name], kind)
                continue
            array = expect_tensor(tensors.get(path, {}).get(role), canonical_shapes[path][role], role, path)
            stored_type = None if kind == np.float64 else kind
            with np.errstate(over="ignore"):  # porter.base.dtypes.cast decides on overflow, before this
                arrays[name] = np.ascontiguousarray(array, stored_type).reshape(shape)
    return arrays


def state_location(tensor: Any, file: str, offset: int, size: int) -> None:
    """State in a TensorProto that its content is in another file: so many bytes from `offset` on."""
    tensor.data_location = EXTERNAL
    for key, value in (("location", file), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))


def make_model_session(
    model: ModelParts, dtype: Dtype, outputs: Sequence[Any], *, optimised: bool
) -> Session:
    """Make a session that runs a model in its number type and gives `outputs` (ValueInfoProto). It does not
    copy the model's tensors.

    Raises:
        CannotRun: as `make_session` and `make_float64_session`.
    """
    onnx = import_onnx()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    if dtype == "float64":
        return make_float64_session(_with_tensors_as_inputs(proto, model.tensors), model.tensors, model.exact)
    for tensor in proto.graph.initializer:
        if tensor.name in model.tensors:
            # No file: onnxruntime gets the arrays themselves.
            state_location(tensor, "memory", 0, model.tensors[tensor.name].nbytes)
    return make_session(proto, model.tensors, optimised=optimised)


def replay_model(model: ModelParts, values: NamedArrays) -> Iterator[tuple[Any, Sequence[Array]]]:
    """Run each node of a model by ONNX's reference implementation on values that another runtime gave, and
    yield it with its outputs; see porter.frameworks.onnx.double.replay.
    """
    proto = import_onnx().ModelProto()
    proto.CopyFrom(model.proto)
    return replay(_with_tensors_as_inputs(proto, model.tensors), model.tensors, values)


def _with_tensors_as_inputs(proto: Any, tensors: NamedArrays) -> Any:
    """Make the initialisers of `proto` whose content is in `tensors` its last inputs, in place, and return
    it: the reference implementation takes them from outside then.
    """
    as_inputs = [tensor for tensor in proto.graph.initializer if tensor.name in tensors]
    remaining = [tensor for tensor in proto.graph.initializer if tensor.name not in tensors]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(remaining)
    make_info = import_onnx().helper.make_tensor_value_info
    proto.graph.input.extend(make_info(tensor.name, tensor.data_type, tensor.dims) for tensor in as_inputs)
    return proto

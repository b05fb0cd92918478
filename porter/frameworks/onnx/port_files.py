"""The files of an ONNX port: `model.onnx`, and its tensors beside it if they are too large for one protobuf
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from porter.base.dtypes import Array, Dtype
from porter.base.errors import FileError, UsageError
from porter.base.options import DTYPE
from porter.base.package import __version__
from porter.files import digest
from porter.formats.onnx.proto import import_onnx, read_message
from porter.frameworks import LayerNames, OwnTensors, Tensors
from porter.frameworks.onnx.layout import DATA_FILE, MODEL_FILE, stored_shapes, tensor_names
from porter.frameworks.onnx.model import ModelParts, make_model, state_location
from porter.frameworks.port_tensors import expect_tensor
from porter.graph import tensor_shapes
from porter.graph.plan import Plan

MAX_BYTES = (1 << 31) - (1 << 24)
"""The most bytes of tensors in one file: a protobuf message has at most 2 GiB, and the graph takes a part of
it.
"""
_ALIGNMENT = 4096
"""Tensors beside a model begin at such multiples, so that a runtime can map them into memory."""


def write(
    folder: Path,
    plan: Plan,
    tensors: Tensors,
    layers: LayerNames,
    dtype: Dtype,
    about: Mapping[str, str],
) -> dict[str, str]:
    """Write `model.onnx`, and `model.onnx.data` if the tensors are too large for it, into `folder`. Return
    the sha256 of each by its name.

    Raises:
        UsageError: onnxruntime has no convolution in this type. MappingError: the tensors do not fit the
            graph.
        NotInstalled: the package `onnx` is not installed.
    """
    if dtype not in ("float32", "float16"):
        raise UsageError(
            f"onnxruntime has no convolutions in {dtype}, so nothing could run the port",
            where=DTYPE,
            next=f"write {DTYPE('float32')} or float16",
        )
    model = make_model(plan, tensors, dtype)
    proto = model.proto
    proto.producer_name, proto.producer_version = "porter", __version__
    import_onnx().helper.set_model_props(proto, dict(about))
    # One protobuf message is too small for them.
    has_data_file = sum(array.nbytes for array in model.tensors.values()) > MAX_BYTES
    if has_data_file:
        _write_data_file(folder / DATA_FILE, model)
    else:
        for tensor in model.port_tensors:
            tensor.raw_data = _little_endian(model.tensors[tensor.name]).tobytes()
    (folder / MODEL_FILE).write_bytes(proto.SerializeToString(deterministic=True))
    names = (MODEL_FILE, DATA_FILE) if has_data_file else (MODEL_FILE,)
    return {name: digest(folder / name) for name in names}


def _write_data_file(path: Path, model: ModelParts) -> None:
    """Write the tensors one after the other, and state in the model where each is."""
    with path.open("wb") as file:
        for tensor in model.port_tensors:
            array = model.tensors[tensor.name]
            # to the next multiple: divided and rounded up
            file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
            state_location(tensor, path.name, file.tell(), array.nbytes)
            _little_endian(array).tofile(file)


def _little_endian(array: Array) -> Array:
    """Return the array with its bytes in ONNX's order, which is little-endian."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def read_port(folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
    """Read the tensors of a port that `write` wrote, in porter's axis order and shapes, by path and role.
    Tensors that were filled, because only ONNX's operators take them, are not read.

    Raises:
        FileError: `model.onnx` is missing or cannot be read. MappingError: it lacks a tensor, or one has
            another shape.
        NotInstalled: the package `onnx` is not installed.
    """
    path = folder / MODEL_FILE
    if not path.is_file():
        raise FileError("the port has no model", where=path, next="convert again")
    try:
        arrays = read_message(path).arrays
    except FileError as error:  # what helps with another's file does not help with a port
        raise FileError(error.message, where=path, next="convert again") from None
    shapes = tensor_shapes(plan.lowered)
    shapes_in_file = stored_shapes(plan.lowered)
    tensors = dict[str, dict[str, Array]]()
    for node_path, names in tensor_names(plan.lowered).items():
        for role in shapes.get(node_path, {}):
            name, shape = names[role], shapes_in_file[node_path][role]
            array = expect_tensor(arrays.get(name), shape, "tensor", name)
            tensors.setdefault(node_path, {})[role] = array.reshape(shapes[node_path][role])
    return tensors

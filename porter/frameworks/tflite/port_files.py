"""The file of a TensorFlow Lite port: `model.tflite`."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from porter.base.dtypes import Dtype
from porter.base.errors import FileError, UsageError
from porter.base.options import DTYPE
from porter.files import digest
from porter.formats.limits import MOST_NODES
from porter.formats.tflite import schema
from porter.formats.tflite.flatbuffer import root
from porter.formats.tflite.model import read_model
from porter.frameworks import OwnTensors, Tensors
from porter.frameworks.tflite import FILE, FILE_BYTES
from porter.frameworks.tflite.conversion import convert
from porter.graph.plan import Plan


def write(
    folder: Path, plan: Plan, tensors: Tensors, dtype: Dtype, about: Mapping[str, str]
) -> dict[str, str]:
    """Write `model.tflite` into `folder` and return its sha256 by its name.

    Args:
        tensors: in float32, from which the converter computes what it rounds.
        about: has the source's own rows and columns, and how weights are rounded to 8 bits.

    Raises:
        UsageError: TensorFlow Lite does not compute in this type. GraphError, MappingError, NotInstalled:
            as `convert`.
    """
    if dtype not in ("float32", "float16"):
        message, next = f"TensorFlow Lite has no weights of {dtype}", f"write {DTYPE('float32')} or float16"
        raise UsageError(message, where=DTYPE, next=next)
    content = convert(plan, tensors, "dynamic" if "porter.quantize" in about else dtype)
    if dtype == "float16":
        stored = read_model(content).stored.values()
        if not all(np.isfinite(array).all() for array in stored):
            message, next = "a weight is too large for float16", f"write {DTYPE('float32')}"
            raise UsageError(message, where=DTYPE, next=next)
    # One image of any size is the only input.
    if plan.only_size is None and not (plan.lowered.axes or plan.lowered.further_inputs):
        content = _with_usual_size(content, *json.loads(about.get("porter.native_size", "[1, 1]")))
    (folder / FILE).write_bytes(content)
    return {FILE: digest(folder / FILE)}


def _with_usual_size(content: bytes, rows: int, columns: int) -> bytes:
    """Return a file of open sizes whose only input has this size until it is given another; the converter
    writes one cell.
    """
    graph = root(content).tables(schema.MODEL_GRAPHS, 1)[0]
    changed = bytearray(content)
    image = graph.tables(schema.GRAPH_TENSORS, MOST_NODES)[int(graph.numbers(schema.GRAPH_INPUTS)[0])]
    shape_start, _ = image.vector(schema.TENSOR_SHAPE.place, 4)
    # The shape is four int32: the batch, which stays, rows, columns, channels.
    struct.pack_into("<2i", changed, shape_start + 4, rows, columns)
    return bytes(changed)


def read_file(folder: Path) -> OwnTensors:
    """Read the file of a port that `write` wrote, as one tensor of its bytes.

    Raises:
        FileError: it is missing.
    """
    try:
        return {FILE: {FILE_BYTES: np.fromfile(folder / FILE, np.uint8)}}
    except OSError as error:
        raise FileError(
            f"the port's model cannot be read: {error}", where=folder / FILE, next="convert again"
        ) from None

"""The weights of a model.json: groups of shards, in which tensors stand one after the other
(tfjs-core/src/io/io_utils.ts).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.files.regular_files import is_in_folder
from porter.formats.limits import MOST_NODES, most_bytes
from porter.formats.tfjs.javascript_modules import find_shard, read_shard

_NUMPY_TYPES = {
    "float32": "<f4",
    "float16": "<f2",
    "int32": "<i4",
    "uint8": "|u1",
    "uint16": "<u2",
    "bool": "|b1",
}
_MOST_AXES = 16


def find_shards(groups: Sequence[Any], folder: Path) -> list[list[Path]]:
    """Return the files of each group, which are in the folder of the model.

    Raises:
        ValueError: they are elsewhere, or not there.
    """
    return [[_find_in(folder, PurePosixPath(str(path))) for path in group["paths"]] for group in groups]


def _find_in(folder: Path, path: PurePosixPath) -> Path:
    """Return the file of one shard. Raises as `find_shards`."""
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"its shard '{path}' is not in its folder")
    file = find_shard(folder / path)
    if file is None:
        raise ValueError(f"its shard '{path.name}' is not beside it")
    if not is_in_folder(folder, str(file.relative_to(folder))):
        raise ValueError(f"its shard '{path.name}' is a link to another folder")
    return file


def read_weights(groups: Sequence[Any], files: Sequence[Sequence[Path]]) -> NamedArrays:
    """Read the tensors by name; quantised ones, and those of half the width, become the float32 that
    TensorFlow.js makes of them.

    Raises:
        ValueError: a group does not hold what it states.
    """
    tensors: dict[str, Array] = {}
    for group, paths in zip(groups, files, strict=True):
        data = b"".join(map(read_shard, paths))
        start = 0
        budget = most_bytes(len(data))
        for weight in group["weights"]:
            name = str(weight["name"])
            quantisation = weight.get("quantization") or {}
            if len(tensors) > MOST_NODES:
                raise ValueError(f"it has more than {MOST_NODES} weights")
            if name in tensors:
                raise ValueError(f"the weight '{name}' stands twice")
            array = _view_tensor(weight, data, start)
            start += array.nbytes
            # A quantised number becomes one of four bytes.
            budget -= 4 * array.size if quantisation else 0
            if budget < 0:
                raise ValueError("its weights unpack to more than its shards can hold")
            tensors[name] = _dequantise(array, quantisation, str(weight["dtype"])) if quantisation else array
    return tensors


def _view_tensor(weight: dict[str, Any], data: bytes, start: int) -> Array:
    """Return a tensor that begins at a place of its group's bytes, in the type that it is stored in. Raise
    ValueError for a type that porter does not read, and where the bytes end before the tensor.
    """
    shape = tuple(int(size) for size in weight["shape"])
    quantised_type = (weight.get("quantization") or {}).get("dtype")
    dtype = _NUMPY_TYPES.get(quantised_type or weight["dtype"])
    if dtype is None or len(shape) > _MOST_AXES or min(shape, default=0) < 0:
        raise ValueError(
            f"the weight '{weight['name']}' is {weight['dtype']} of shape {shape}, which porter does not read"
        )
    count = math.prod(shape)
    if start + count * np.dtype(dtype).itemsize > len(data):
        raise ValueError(f"the weight '{weight['name']}' ends behind its shards")
    return np.frombuffer(data, dtype, count, start).reshape(shape)


def _dequantise(array: Array, quantisation: dict[str, Any], dtype: str) -> Array:
    """Return a quantised tensor as TensorFlow.js reads it: in double precision, then rounded to its type."""
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = array.astype(np.float64) * float(quantisation["scale"]) + float(quantisation["min"])
        return np.floor(numbers + 0.5).astype(np.int32) if dtype == "int32" else numbers.astype(np.float32)

"""The files of a torch port, written and read without torch."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from porter.base.dtypes import Dtype, NamedArrays, cast
from porter.base.errors import FileError
from porter.formats.safetensors.tensors import read_safetensors, write_safetensors
from porter.frameworks import LayerNames, OwnTensors, Tensors
from porter.frameworks.port_tensors import WEIGHTS_FILE
from porter.frameworks.torch.code import model_source
from porter.frameworks.torch.layout import module_name
from porter.frameworks.torch.state import canonical_tensors, state_arrays
from porter.graph import Graph
from porter.graph.plan import Plan

SOURCE_FILE = "model.py"


def write_port(folder: Path, plan: Plan, tensors: Tensors, dtype: Dtype) -> dict[str, str]:
    """Write `model.safetensors`, a plain state_dict in `dtype`, and `model.py`, its module, into `folder`.
    Return the sha256 of each file by its name.

    Raises:
        MappingError: the tensors do not fit the graph. GraphError: an attribute cannot have such a path.
    """
    arrays = state_arrays(plan.lowered, tensors)
    return _write(
        folder, plan, {}, {key: cast(array, dtype, key, allow_overflow=True) for key, array in arrays.items()}
    )


def write_stock(folder: Path, plan: Plan, arrays: NamedArrays, layers: LayerNames) -> dict[str, str]:
    """Write the files of `write_port`; `arrays` is the whole state_dict of a stock class, and `layers` names
    its modules by path.
    """
    return _write(folder, plan, layers, arrays)


def code_files(plan: Plan, layers: LayerNames) -> dict[str, bytes]:
    """Return `model.py`, by its name; `layers` is empty, or names a stock class's modules by path."""
    names = {layer: module_name(path) for path, layer in layers.items()}
    return {SOURCE_FILE: model_source(plan, names).encode()}


def _write(folder: Path, plan: Plan, layers: LayerNames, arrays: NamedArrays) -> dict[str, str]:
    """Write the code and the tensors into `folder`. Return the sha256 of each file by its name."""
    code = code_files(plan, layers)
    for name, text in code.items():
        (folder / name).write_bytes(text)
    digests = {name: sha256(text).hexdigest() for name, text in code.items()}
    return {**digests, WEIGHTS_FILE: write_safetensors(folder / WEIGHTS_FILE, arrays)}


def read_weights(folder: Path, graph: Graph, layers: LayerNames) -> OwnTensors:
    """Read the tensors of the port in `folder`, in porter's axis order; `layers` is empty, or names a stock
    class's modules by path.

    Raises:
        FileError: there is no such file, or it is not a safetensors file. MappingError: the tensors do not
            fit the graph.
    """
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise FileError("the port has no weights", where=path, next="convert again")
    return canonical_tensors(graph, read_safetensors(path).tensors, layers)

"""The port's `model.keras`: written by Keras, read back without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfileobj
from typing import Any
from zipfile import ZipFile, ZipInfo

from porter.base.dtypes import Array, Dtype
from porter.files import digest
from porter.frameworks import Tensors
from porter.frameworks.tf.build import build
from porter.frameworks.tf.layout import expect_cover, layer_names, tensor_names, to_canonical
from porter.graph import tensor_shapes
from porter.graph.plan import Plan

MODEL_FILE = "model.keras"

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can state."""
_PIECE_BYTES = 1 << 20


def write(
    folder: Path, plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, about: Mapping[str, str]
) -> dict[str, str]:
    """Writes `model.keras` into `folder`; plain `keras.models.load_model` opens it, without custom objects. Returns the
    sha256 of the file by its name.

    The same plan and tensors give the same bytes, under one version of Keras and HDF5.

    Raises:
        MappingError: `tensors` and the graph do not cover each other, or a shape differs.
        MissingFramework: TensorFlow or Keras is not installed.
    """
    return save(build(plan, tensors, layers, dtype, "cpu"), folder)


def save(model: Any, folder: Path) -> dict[str, str]:
    """Writes a Keras model as `write` does."""
    dated = folder / f"dated-{MODEL_FILE}"
    try:
        model.save(dated)
        _undate(dated, folder / MODEL_FILE)
    finally:
        dated.unlink(missing_ok=True)
    return {MODEL_FILE: digest(folder / MODEL_FILE)}


def _undate(dated: Path, target: Path) -> None:
    """Copies Keras's archive without its times: those of its members, and `date_saved` in its metadata."""
    with ZipFile(dated) as source, ZipFile(target, "w") as copy:
        for member in source.infolist():
            plain = ZipInfo(member.filename, _EPOCH)
            plain.external_attr = 0o644 << 16
            if member.filename == "metadata.json":
                stated = {**json.loads(source.read(member)), "date_saved": "1980-01-01@00:00:00"}
                copy.writestr(plain, json.dumps(stated))
                continue
            plain.file_size = member.file_size
            with source.open(member) as content, copy.open(plain, "w") as place:
                copyfileobj(content, place, _PIECE_BYTES)


def read_port(folder: Path, plan: Plan, layers: Mapping[str, str]) -> dict[str, dict[str, Array]]:
    """The canonical tensors of a port that `write` or `save` wrote. It imports neither TensorFlow nor Keras.

    Raises:
        FileError: `model.keras` is missing or cannot be read.
        MappingError: the file and the graph do not cover each other.
    """
    from porter.formats.keras.read_keras import read_keras

    path = folder / MODEL_FILE
    checkpoint = read_keras(path)
    computed = checkpoint.graph.evaluated if checkpoint.graph is not None else {}
    unused = {name: array for name, array in checkpoint.tensors.items() if name not in computed}
    names = layer_names(plan.graph, layers)
    found: dict[str, dict[str, Array]] = {}
    missing: list[str] = []
    for node_path in tensor_shapes(plan.graph):
        node = plan.graph.by_path[node_path]
        found[node_path] = {}
        for role, spellings in tensor_names(plan.graph, node, names[node_path]).items():
            name = next((spelling for spelling in spellings if spelling in unused), None)
            if name is None:
                missing.append(spellings[0])
            else:
                found[node_path][role] = to_canonical(plan.graph, node, role, unused.pop(name))
    expect_cover(missing, unused, where=str(path))
    return found

"""A tree of arrays in a folder of orbax. Its _METADATA lists the leaves, and tensorstore reads them, in a
process of its own.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from porter.base.dtypes import Array, storage_type
from porter.base.errors import FileError, some
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.apart import run_apart
from porter.formats.damage import OF_JSON, refusing_damage
from porter.formats.limits import MOST_NODES, most_bytes, read_bounded, read_json
from porter.formats.msgpack.read import NOT_THE_MODEL, TYPES, left_out
from porter.formats.orbax import METADATA, copy, trees_in

_NUMBERS = ("jax.Array", "np.ndarray", "scalar")
_MOST_METADATA = 64 << 20
_VARIABLE = "/value"
"""The end of each name where an nnx.State was saved, whose leaves are variables."""


def read_orbax(path: Path) -> Checkpoint:
    """The arrays and numbers of a tree, by the names on the way to them with `/` between.

    Raises:
        FileError: it is damaged, or the folder has several trees.
        MissingFramework: tensorstore is not installed.
    """
    expect_installed("tensorstore", "pip install orbax-checkpoint")
    folder, *others = trees_in(path)
    if others:
        named = some([str(found.relative_to(path)) for found in (folder, *others)])
        raise FileError(
            f"the folder has several trees of arrays: {named}",
            where=str(path),
            next="name the folder of one of them",
        )
    with refusing_damage(path, what="this folder of orbax", further=OF_JSON):
        files = tuple(sorted(file for file in folder.rglob("*") if file.is_file()))
        stated = read_json(read_bounded(folder / METADATA, _MOST_METADATA))
        leaves = dict(map(_leaf, stated["tree_metadata"].values()))
        numbers = {name for name, kind in leaves.items() if kind in _NUMBERS}
        kept = [name for name in leaves if name in numbers and name[0] not in NOT_THE_MODEL]
        if len(leaves) > MOST_NODES or len(files) > MOST_NODES:
            raise ValueError(f"it has more than {MOST_NODES} values or files")
        arrays = _arrays(
            folder, kept, bool(stated.get("use_zarr3")), sum(file.stat().st_size for file in files)
        )
    tensors = dict(zip(map("/".join, kept), arrays, strict=True))
    if all(name.endswith(_VARIABLE) for name in tensors):
        tensors = {name.removesuffix(_VARIABLE): array for name, array in tensors.items()}
    no_numbers = {"/".join(name) for name in leaves.keys() - numbers if name[0] not in NOT_THE_MODEL}
    return Checkpoint(
        path, "orbax", "jax", tensors, left_out({name[0] for name in leaves}, no_numbers), files=files
    )


def _leaf(stated: Any) -> tuple[tuple[str, ...], str]:
    """The names on the way to a leaf, and its kind."""
    keys = tuple(step["key"] for step in stated["key_metadata"])
    if not keys or not all(isinstance(key, str) and key and "/" not in key for key in keys):
        raise ValueError(f"it has an array of the name {keys!r:.80}")
    value = stated["value_metadata"]
    return keys, "" if value.get("skip_deserialize") else value["value_type"]


def _arrays(folder: Path, names: list[tuple[str, ...]], zarr3: bool, size: int) -> list[Array]:
    with TemporaryDirectory() as scratch:
        wanted, most = Path(scratch) / "wanted", most_bytes(size)
        ocdbt = (folder / "manifest.ocdbt").is_file()
        wanted.write_text(json.dumps({"ocdbt": ocdbt, "zarr3": zarr3, "names": [*map(".".join, names)]}))
        run_apart(copy.__file__, [folder.absolute(), wanted, scratch, str(most)], size, "tensorstore")
        data = np.fromfile(Path(scratch) / "arrays", np.uint8)
        described = json.loads((Path(scratch) / "described").read_text())
    found, at = list[Array](), 0
    for kind, shape in described:
        if kind not in TYPES:
            raise ValueError(f"it has an array of {kind!r:.40}")
        dtype = storage_type(kind)
        end = at + prod(shape) * dtype.itemsize
        found.append(data[at:end].view(dtype).reshape(shape))
        at = end
    return found

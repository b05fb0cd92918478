"""A tree of arrays in a folder of orbax. Its _METADATA lists the leaves, and tensorstore reads them, in a
process of its own. In older folders the file `checkpoint` has the tree, with the names of arrays in their
places.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from porter.base.dtypes import Array, storage_type
from porter.base.errors import FileError, some
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.apart import run_apart
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.limits import MOST_NODES, most_bytes, read_bounded, read_json
from porter.formats.msgpack.read import (
    NOT_THE_MODEL,
    PLACEHOLDER,
    TYPES,
    is_elsewhere,
    left_out,
    numbers,
    read_tree,
)
from porter.formats.orbax import METADATA, STRUCTURE, copy, find_trees, is_ocdbt

_NUMBER_TYPES = ("jax.Array", "np.ndarray", "scalar")
_MOST_METADATA = 64 << 20
_VARIABLE = "/value"
"""The end of each name where an nnx.State was saved, whose leaves are variables."""


def read_orbax(path: Path) -> Checkpoint:
    """Return the arrays and numbers of a tree, by the names on the path to each with `/` between.

    Raises:
        FileError: it is damaged, or the folder has several trees.
        NotInstalled: tensorstore is not installed.
    """
    expect_installed("tensorstore", "pip install orbax-checkpoint")
    folder, *further = find_trees(path)
    if further:
        named = some([str(tree.relative_to(path)) for tree in (folder, *further)])
        raise FileError(
            f"the folder has several trees of arrays: {named}",
            where=path,
            next="name the folder of one of them",
        )
    with refusing_damage(path, message="this folder of orbax is damaged", further=ERRORS_OF_JSON):
        files = tuple(sorted(file for file in folder.rglob("*") if file.is_file()))
        tree = _tree_of_metadata(folder) if (folder / METADATA).is_file() else _tree_of_structure(folder)
        if len(tree.leaves) > MOST_NODES or len(files) > MOST_NODES:
            raise ValueError(f"it has more than {MOST_NODES} values or files")
        arrays = _read_arrays(
            folder, [*tree.stored.values()], tree.zarr3, sum(file.stat().st_size for file in files)
        )
    tensors = {**tree.inline, **dict(zip(tree.stored, arrays, strict=True))}
    if all(name.endswith(_VARIABLE) for name in tensors):
        tensors = {name.removesuffix(_VARIABLE): array for name, array in tensors.items()}
    # Leaves that are no numbers, which a note names.
    others = tree.leaves - tree.stored.keys() - tree.inline.keys()
    return Checkpoint(path, "orbax", "jax", tensors, left_out(tree.parts, others), files=files)


class _OrbaxTree(NamedTuple):
    """What a folder says of its tree.

    Attributes:
        parts: of the tree, by their names.
        leaves: the names of all leaves that are of the model.
        stored: by the names of arrays and numbers, those that tensorstore has for them.
        inline: arrays that stand in the tree itself.
        zarr3: the version of zarr.
    """

    parts: Collection[str]
    leaves: frozenset[str]
    stored: Mapping[str, str]
    inline: Mapping[str, Array] = {}
    zarr3: bool = False


def _tree_of_metadata(folder: Path) -> _OrbaxTree:
    """Return the tree that a folder's metadata states, without what is not the model's. The leaf on the path
    `params`, `conv1`, `kernel` is called `params/conv1/kernel`, and tensorstore has it as
    `params.conv1.kernel`.
    """
    metadata = read_json(read_bounded(folder / METADATA, _MOST_METADATA))
    leaves = dict(map(_parse_leaf, metadata["tree_metadata"].values()))
    of_model = {keys: kind for keys, kind in leaves.items() if keys[0] not in NOT_THE_MODEL}
    return _OrbaxTree(
        {keys[0] for keys in leaves},
        frozenset(map("/".join, of_model)),
        {"/".join(keys): ".".join(keys) for keys, kind in of_model.items() if kind in _NUMBER_TYPES},
        zarr3=bool(metadata.get("use_zarr3")),
    )


def _tree_of_structure(folder: Path) -> _OrbaxTree:
    """Return the tree as orbax 0.1 to 0.3 wrote it (pytree_checkpoint_handler.py, utils.py): msgpack, in
    which the text `PLACEHOLDER://NAME` stands for an array.
    """
    parts, leaves = read_tree(folder / STRUCTURE)
    stored = {name: value.removeprefix(PLACEHOLDER) for name, value in leaves.items() if is_elsewhere(value)}
    for name_of_array in stored.values():
        if "/" in name_of_array or not all(name_of_array.split(".")):
            raise ValueError(f"it has an array of the name {name_of_array!r:.80}")
    return _OrbaxTree(parts, frozenset(leaves), stored, numbers(leaves))


def _parse_leaf(entry: Any) -> tuple[tuple[str, ...], str]:
    """Return the names on the path to a leaf, and its kind; an empty kind for a leaf that is not read. Raise
    ValueError for a name that could be a path.
    """
    keys = tuple(step["key"] for step in entry["key_metadata"])
    if not keys or not all(isinstance(key, str) and key and "/" not in key for key in keys):
        raise ValueError(f"it has an array of the name {keys!r:.80}")
    value = entry["value_metadata"]
    return keys, "" if value.get("skip_deserialize") else value["value_type"]


def _read_arrays(folder: Path, names: list[str], zarr3: bool, size: int) -> list[Array]:
    """Return the arrays of these names, in their order, which another process reads by tensorstore.

    Args:
        zarr3: whether they are stored by version 3 of zarr.
        size: bytes of the folder's files, which bounds what they may unpack to.
    """
    with TemporaryDirectory() as scratch:
        request_file = Path(scratch) / "wanted"
        most = most_bytes(size)
        request_file.write_text(json.dumps({"ocdbt": is_ocdbt(folder), "zarr3": zarr3, "names": names}))
        run_apart(copy.__file__, [folder.absolute(), request_file, scratch, str(most)], size, "tensorstore")
        data = np.fromfile(Path(scratch) / "arrays", np.uint8)
        types_and_shapes = json.loads((Path(scratch) / "described").read_text())
    arrays, start = list[Array](), 0
    for kind, shape in types_and_shapes:
        if kind not in TYPES:
            raise ValueError(f"it has an array of {kind!r:.40}")
        dtype = storage_type(kind)
        end = start + prod(shape) * dtype.itemsize
        arrays.append(data[start:end].view(dtype).reshape(shape))
        start = end
    return arrays

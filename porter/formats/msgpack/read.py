"""Flax's trees of arrays in MessagePack.

An array is an extension of code 1, a scalar of 3: shape, name of the type, and bytes. One above a gigabyte is
a map of flat chunks. msgpack decodes, within limits: nothing is made that the file does not hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays, storage_type
from porter.base.errors import FileError, some
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import refusing_damage
from porter.formats.limits import MOST_NODES

_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_CHUNKED = "__msgpack_chunked_array__"
PLACEHOLDER = "PLACEHOLDER://"
"""What orbax before 0.3.3 wrote before the name of an array, in the array's place."""
NOT_THE_MODEL = {"opt_state": "the optimiser's state"}
_MOST_LISTED = 256
"""Values in one list: msgpack takes 8 bytes for each before it reads it, and lists may be nested a thousand
deep. Flax has few.
"""
_MOST_NAME = 1 << 12
_WHOLE = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
TYPES = frozenset({"float16", "float32", "float64", "bfloat16", "bool", *_WHOLE})


def read_msgpack(path: Path) -> Checkpoint:
    """Read the arrays and numbers of a tree, by the names on the way to them with `/` between.

    Raises:
        FileError: it is damaged, or holds extensions or types that Flax does not write.
        NotInstalled: msgpack is not installed.
    """
    with refusing_damage(path, message="this tree of arrays is damaged"):
        parts, leaves = read_tree(path)
    if any(map(is_elsewhere, leaves.values())):
        raise FileError(
            "this file has the names of arrays, which are beside it in a folder of orbax",
            where=path,
            next=f"name the folder {path.absolute().parent}",
        )
    tensors = numbers(leaves)
    return Checkpoint(path, "flax-msgpack", "jax", tensors, left_out(parts, leaves.keys() - tensors.keys()))


def read_tree(path: Path) -> tuple[Collection[str], dict[str, Any]]:
    """Return the names of a tree's parts, and the leaves of the parts that are of the model, by the names on
    the way to them with `/` between.

    Raises:
        Exception: of many kinds, where the file is damaged (porter.formats.damage).
        NotInstalled: msgpack is not installed.
    """
    expect_installed("msgpack", "pip install msgpack")
    data = path.read_bytes()
    count = _Count()
    tree = _unpack(
        data,
        raw=False,
        ext_hook=_extension,
        object_hook=count.read_map,
        max_map_len=MOST_NODES,
        max_array_len=_MOST_LISTED,
        max_str_len=_MOST_NAME,
        max_ext_len=len(data),
    )
    if not isinstance(tree, dict):
        raise ValueError(f"it is a {type(tree).__name__}, expected a map")
    of_model = {key: part for key, part in tree.items() if key not in NOT_THE_MODEL}
    leaves = {name: value for key, part in of_model.items() for name, value in _leaves(key, part)}
    return tree.keys(), leaves


def numbers(leaves: Mapping[str, Any]) -> NamedArrays:
    """Return the leaves that are arrays or numbers, as arrays, by their names."""
    return {
        name: np.asarray(value)
        for name, value in leaves.items()
        if isinstance(value, np.ndarray | int | float)
    }


def is_elsewhere(value: Any) -> bool:
    """Whether a leaf is the place of an array that orbax keeps outside the tree."""
    return isinstance(value, str) and value.startswith(PLACEHOLDER)


def left_out(parts: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    """Return notes on what is left out of a tree, one line each.

    Args:
        parts: the names of the tree's parts.
        others: the names of its leaves that are not numbers.
    """
    notes = [f"ignored {what}" for key, what in NOT_THE_MODEL.items() if key in parts]
    if others:
        notes.append(f"ignored {some(sorted(others))}, which are not numbers")
    return tuple(notes)


class _Count:
    """The entries of all maps that were read."""

    entries = 0

    def read_map(self, read: dict[str, Any]) -> Any:
        """Return a map as it is, or the array whose chunks it holds. Raise ValueError for more entries than
        any model has.
        """
        self.entries += len(read)
        if self.entries > MOST_NODES:
            raise ValueError(f"it has more than {MOST_NODES} values")
        return _join_chunks(read) if _CHUNKED in read else read


def _unpack(data: bytes, **limits: Any) -> Any:
    """Return the object in these bytes; what `limits` do not name may have no length at all."""
    none = dict.fromkeys(("max_map_len", "max_array_len", "max_str_len", "max_bin_len", "max_ext_len"), 0)
    return import_module("msgpack").unpackb(data, **{**none, **limits})


def _extension(code: int, data: bytes) -> Any:
    """Return the array, or the number, of an extension that Flax defines for msgpack; None for a complex
    number. Raise ValueError for another extension.
    """
    if code == _COMPLEX:
        return None
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"it has an extension of code {code}")
    shape, kind, content = _unpack(
        data, raw=True, max_array_len=64, max_str_len=len(data), max_bin_len=len(data)
    )
    return _array(shape, kind.decode() if isinstance(kind, bytes) else kind, content)


def _array(shape: Any, kind: Any, content: Any) -> Array:
    """Return an array of Flax's. Raise ValueError for a type that is not among TYPES, or for other content
    than bytes.
    """
    if kind not in TYPES or not isinstance(content, bytes):
        raise ValueError(f"it has an array of {kind!r:.40}")
    return _reshape(np.frombuffer(content, storage_type(kind)), shape)


def _reshape(flat: Array, shape: Any) -> Array:
    """Return numbers in a shape. Raise ValueError if that has another number of cells."""
    if any(type(side) is not int or side < 0 for side in shape) or prod(shape) != flat.size:
        raise ValueError(f"it has an array of {flat.size} numbers in the shape {shape!r:.80}")
    return flat.reshape(shape)


def _join_chunks(read: Mapping[str, Any]) -> Array:
    """Return the array whose flat chunks a map holds."""
    shape, chunks = (_list_items(read.get(name)) for name in ("shape", "chunks"))
    if not all(isinstance(chunk, np.ndarray) and chunk.ndim == 1 for chunk in chunks):
        raise ValueError("it has a chunk that is no flat array")
    return _reshape(np.concatenate(chunks), shape)


def _list_items(numbered: Any) -> list[Any]:
    """Return the items of a tuple, which Flax writes as a map of numbers from 0. Raise ValueError for another
    map.
    """
    if not isinstance(numbered, dict) or numbered.keys() != {*map(str, range(len(numbered)))}:
        raise ValueError("it has a tuple whose numbers are not those from 0")
    return [numbered[str(number)] for number in range(len(numbered))]


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree of maps and lists, by the names on the way to them with `/` between:
    `params/conv1/kernel`, `params/blocks/0`.
    """
    parts: Iterable[tuple[Any, Any]]
    if isinstance(tree, dict):
        parts = tree.items()
    elif isinstance(tree, list):
        parts = enumerate(tree)
    else:
        yield name, tree
        return
    for key, part in parts:
        yield from _leaves(f"{name}/{key}", part)

"""Whether HDF5's library says of a Keras file what porter reads in it. See
porter.verification.witnesses.Witness.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import CannotRun, FileError, escaped
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import refusing_damage
from porter.formats.format import look_at
from porter.formats.keras import HDF5_MAGIC, hdf5
from porter.formats.keras.hdf5_bytes import Hdf5Bytes, UnknownPart
from porter.formats.keras.hdf5_library import read_with_library
from porter.formats.keras.hdf5_objects import DatasetValues
from porter.formats.keras.read_keras import read_archive
from porter.padding import KnownSize

NAME = "h5py"


def disagreement(checkpoint: Checkpoint, size: KnownSize, whole: bool) -> str | None:
    """Return a sentence about a value that porter and h5py read otherwise; None if they agree. The signature
    is that of porter.verification.witnesses.Witness: `size` and `whole` do not matter here.

    Raises:
        CannotRun: h5py is not installed, or does not read the file.
    """
    expect_installed("h5py", "pip install h5py")
    for path, image in _hdf5_files(checkpoint):
        data = hdf5.map_file(path) if image is None else image
        try:
            objects, root = read_with_library(path, image, data)
        except ValueError as error:
            raise CannotRun(str(error), where=path) from None
        ours = hdf5.Hdf5(path, Hdf5Bytes(data).object_at, root, len(data))
        theirs = hdf5.Hdf5(path, objects.__getitem__, root, len(data))
        for name in (*_find_differences(ours, theirs), *_find_unturned_kernels(checkpoint, theirs)):
            return f"porter and {NAME} read other values of '{escaped(name)}'"
    return None


def _hdf5_files(checkpoint: Checkpoint) -> Iterator[tuple[Path, bytes | None]]:
    """Yield the HDF5 files of a checkpoint; for a .keras also the bytes of the one within it."""
    for path in checkpoint.files or (checkpoint.path,):
        if look_at(path).head.startswith(HDF5_MAGIC):
            yield path, None
        elif checkpoint.format == "keras":
            yield path, read_archive(path).weights


def _find_differences(ours: hdf5.Hdf5, theirs: hdf5.Hdf5) -> Iterator[str]:
    """Yield the names of groups and datasets that porter (`ours`) and the library (`theirs`) read otherwise:
    their links, texts, shapes, types or values.
    """
    visited: set[int] = set()  # addresses
    waiting = [("", theirs.top)]
    while waiting:
        name, address = waiting.pop()
        if address in visited:
            continue
        visited.add(address)
        described = theirs.object_at(address)
        # What porter's reader does not know, it has not read: the library has, or nobody.
        with suppress(UnknownPart, FileError), refusing_damage(theirs.path):
            node = ours.node(name, address)
            if node.object != described or not _has_values(ours, node, described.values):
                yield name or "/"
        waiting += [
            (f"{name}/{link}", address) for link, address in described.links.items() if address is not None
        ]


def _has_values(file: hdf5.Hdf5, node: hdf5.Hdf5Node, values: DatasetValues | None) -> bool:
    """Return whether the array that porter reads from a node has the type and, bit by bit, the numbers that
    lie at the place which the library names. True where there are none to compare.
    """
    if values is None or values.lack is not None:
        return True
    array = file.read_datasets({node.name: node})[node.name]
    view = np.ndarray(values.shape, values.dtype, values.data, values.start)
    native = view.astype(view.dtype.newbyteorder("="), copy=False)
    # Not as numbers, of which some are equal to nothing.
    return array.dtype == native.dtype and np.array_equal(_bytes(array), _bytes(native))


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _find_unturned_kernels(checkpoint: Checkpoint, file: hdf5.Hdf5) -> Iterator[str]:
    """Yield the names of kernels of convolutions that Keras stored otherwise than TensorFlow has them, and
    that porter does not give as Keras turns them when it loads them: Keras 1 stored the filters first, and
    Theano the last cell (keras/engine/saving.py of Keras 2.2, `preprocess_weights_for_loading`).
    """
    is_whole_model = hdf5.has_child(file.root, "model_weights")
    weights = file.group_of(file.root, "model_weights") if is_whole_model else file.root
    config = file.read_text_attribute(file.root, "model_config") or ""
    is_theano = file.read_text_attribute(weights, "backend") == "theano"
    # "th" may stand elsewhere in the text, so the parsed fields decide.
    has_filters_first = '"th"' in config and any(
        fields.get("dim_ordering") == "th" for fields in _objects(json.loads(config))
    )
    if not has_filters_first and not is_theano:
        return
    kernels = _turned_kernels(file, weights, has_filters_first, is_theano)
    turned = {(kernel.shape, kernel.tobytes()) for kernel in kernels}
    for name, array in checkpoint.tensors.items():
        if array.ndim == 4 and name.endswith("/kernel") and (array.shape, array.tobytes()) not in turned:
            yield name


def _turned_kernels(
    file: hdf5.Hdf5, weights: hdf5.Hdf5Node, has_filters_first: bool, is_theano: bool
) -> Iterator[Array]:
    """Yield every kernel of four axes below `weights` as TensorFlow has it: axes moved if the filters are
    first, cells turned round if Theano wrote it.
    """
    for _, group in file.walk_groups(weights):
        datasets = {name: file.child_of(group, name) for name in file.children(group)}
        by_name = {
            name: node
            for name, node in datasets.items()
            if node.object.values and len(node.object.values.shape) == 4
        }
        for kernel in file.read_datasets(by_name).values():
            kernel = kernel.transpose(2, 3, 1, 0) if has_filters_first else kernel
            yield np.flip(kernel, (0, 1)) if is_theano else kernel


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in JSON, at any depth."""
    items: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield value
        items = value.values()
    for item in items:
        yield from _objects(item)

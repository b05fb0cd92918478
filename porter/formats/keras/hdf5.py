"""Reads HDF5 files from strangers: nothing outside the file is opened, and every declared size is compared with the file's."""

from __future__ import annotations

import math
import mmap
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np

from porter.base.dtypes import Array, storage_type
from porter.base.errors import FileError
from porter.formats.keras.chunks import oversized
from porter.formats.keras.heaps import largest_collection
from porter.formats.limits import most_bytes

# TensorFlow 2.13 wrote the second (keras/src/saving/saving_lib.py, H5IOStore.get).
CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
"""Groups that hold a model's layers in `.weights.h5`."""
_MOST_NAMES = 1 << 16
_NAME_BYTES = 64
"""What Python takes for a name besides its letters."""
_MOST_DEPTH = 64

_FLOAT_BYTES = (2, 4, 8)


@dataclass(frozen=True)
class Hdf5:
    """An open file.

    Attributes:
        path: the file, for messages.
        root: its root group.
        size: bytes of the file.
        data: the file's bytes, in memory or mapped.
        taken: the bytes of the names read so far, under its only key. Any number of names may be the same bytes of a file.
    """

    path: Path
    root: h5py.File
    size: int
    data: bytes | mmap.mmap
    taken: Counter[str] = field(default_factory=Counter)

    @property
    def image(self) -> bytes | mmap.mmap | None:
        """The file's bytes, so that tensors can be views of them; None if other bytes stand before HDF5's."""
        return None if self.root.userblock_size else self.data

    @cached_property
    def longest_text(self) -> int:
        """The most bytes that a text of any length has in this file. No such text may be read before this is known. Any number of
        texts may be the same bytes, and HDF5 takes memory for each.

        Raises:
            FileError: libhdf5 may never end reading the texts.
        """
        try:
            return largest_collection(self.data, self.root.id.get_create_plist().get_sizes()[1])
        except ValueError as error:
            raise self.refuse(f"this HDF5 file is damaged: {error}", "fetch or copy it again") from None

    def holds(self, size: int) -> bool:
        """Counts the bytes of a name: False if all are more than a file of this size may make."""
        self.taken["names"] += size + _NAME_BYTES
        return self.taken["names"] <= most_bytes(self.size)

    def too_long(self, names: str) -> FileError:
        return self.refuse(f"{names} have more than {most_bytes(self.size)} bytes")

    def refuse(self, message: str, next: str | None = None) -> FileError:
        return FileError(message, where=str(self.path), next=next)


@contextmanager
def open_hdf5(path: Path, image: bytes | None = None) -> Iterator[Hdf5]:
    """Opens `path`, or the HDF5 bytes `image` that were read from it.

    Raises:
        FileError: it is not HDF5, is cut short or damaged. Errors of h5py inside the `with` become this one too.
    """
    try:
        size = path.stat().st_size if image is None else len(image)
        # best-effort: read-only and network file systems have no locks, and a reader does not need one.
        with h5py.File(path if image is None else BytesIO(image), "r", locking="best-effort" if image is None else None) as root:
            yield Hdf5(path, root, size, _mapped(path) if image is None else image)
    # h5py raises any of these for a damaged file: it depends on what the C library was doing.
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError, zlib.error) as error:
        raise FileError(
            f"this HDF5 file is cut short or damaged: {_first_line(error)}", where=str(path), next="fetch or copy it again"
        ) from None


def _mapped(path: Path) -> mmap.mmap:
    """The file's bytes: tensors that are views of them need no copy, and no memory until they are used."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _first_line(error: BaseException) -> str:
    """An error's text on one line, without the addresses and times that HDF5 adds."""
    text = str(error.args[0]) if error.args else type(error).__name__
    return re.sub(r", (?:errno|time|buf|total|cur) ?=[^,)]*", "", text.splitlines()[0] if text else type(error).__name__)


def hdf5_format(file: Hdf5) -> str:
    """A file's layout: Keras's `keras-h5` (by layer name) or `keras-weights-h5` (by class and counter), otherwise `hdf5`."""
    root = file.root
    if has_child(root, "model_weights") or "layer_names" in root.attrs or "layer_names0" in root.attrs:
        return "keras-h5"
    # A subclassed model's layers are at the root, under the names of its attributes.
    groups = [root[name] for name in children(file, root) if root.get(name, getclass=True, getlink=True) is h5py.HardLink]
    by_attribute = any(isinstance(group, h5py.Group) and has_child(group, "vars") for group in groups)
    return "keras-weights-h5" if by_attribute or any(has_child(root, name) for name in CONTAINERS) else "hdf5"


def children(file: Hdf5, group: h5py.Group) -> list[str]:
    """The names in a group. `list(group)` has no bound: all of its links may have the same long name.

    Raises:
        FileError: the names read so far are larger than a file of this size may make them.
    """
    names: list[bytes] = []

    def add(name: bytes) -> bool | None:
        names.append(name)
        return None if file.holds(len(name)) else True  # anything but None ends the walk; an error may not leave it

    tracked = group.id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    stopped, _ = group.id.links.iterate(add, idx_type=h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME)
    if stopped:
        raise file.too_long(f"the names in '{group.name:.200}'")
    return [name.decode("utf-8", "surrogateescape") for name in names]


def has_child(group: h5py.Group, name: str) -> bool:
    """Whether a link of that name exists. h5py's `in` would follow it, even into another file."""
    return group.get(name, getclass=True, getlink=True) is not None


def child_of(file: Hdf5, group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset:
    """The group or dataset at `name`, a path relative to `group`, each step of which is a hard link.

    Raises:
        FileError: it does not exist, or a step is a soft or an external link.
    """
    current = group
    for part in name.split("/"):
        kind = current.get(part, getclass=True, getlink=True) if isinstance(current, h5py.Group) and part else None
        if kind is None:
            raise file.refuse(f"expected '{name:.200}' in group '{group.name}', found none", "the file is incomplete")
        if kind is not h5py.HardLink:
            raise file.refuse(f"'{name}' in group '{group.name}' is a {kind.__name__}; porter follows no links")
        current = current[part]
    return current


def group_of(file: Hdf5, group: h5py.Group, name: str) -> h5py.Group:
    """As `child_of`, for a group.

    Raises:
        FileError: as `child_of`, or it is a dataset.
    """
    found = child_of(file, group, name)
    if not isinstance(found, h5py.Group):
        raise file.refuse(f"expected a group at '{name}' in '{group.name}', got a {type(found).__name__.lower()}")
    return found


def dataset_of(file: Hdf5, group: h5py.Group, name: str) -> h5py.Dataset:
    """As `child_of`, for a dataset whose bytes are in this file.

    Raises:
        FileError: as `child_of`, or it is a group, or its bytes are in another file.
    """
    found = child_of(file, group, name)
    if not isinstance(found, h5py.Dataset):
        raise file.refuse(f"expected a dataset at '{name}' in '{group.name}', got a {type(found).__name__.lower()}")
    if found.is_virtual or found.external:
        raise file.refuse(f"dataset '{found.name}' keeps its values in another file; porter reads only this file")
    return found


def walk(file: Hdf5, group: h5py.Group, skip: frozenset[str] = frozenset()) -> Iterator[tuple[tuple[str, ...], h5py.Group]]:
    """Every group below `group` with its path, parents first; `skip` names children of `group` to leave out.

    Raises:
        FileError: a link is not a hard link, a group is inside itself, or groups are nested too deep.
    """
    seen: set[object] = set()
    waiting: list[tuple[tuple[str, ...], h5py.Group]] = [((), group)]
    while waiting:
        path, current = waiting.pop()
        # Two hard links may close a circle.
        address = h5py.h5o.get_info(current.id).addr
        if address in seen or len(path) > _MOST_DEPTH:
            raise file.refuse(f"group '{'/'.join(path)}' is twice in the file, or nested too deep")
        seen.add(address)
        yield path, current
        for name in children(file, current):
            if not path and name in skip:
                continue
            found = child_of(file, current, name)
            if isinstance(found, h5py.Group):
                waiting.append(((*path, name), found))


def text_attribute(file: Hdf5, owner: h5py.Group, name: str) -> str | None:
    """A scalar text attribute, or None where there is none.

    Raises:
        FileError: it is an array, longer than the file, or not UTF-8.
    """
    if name not in owner.attrs:
        return None
    attribute = owner.attrs.get_id(name)
    if attribute.shape != ():
        raise file.refuse(f"expected one text in attribute '{name}' of '{owner.name}', got an array")
    if _longest(file, attribute) > file.size:
        raise file.too_long(f"the text in attribute '{name}' of '{owner.name}'")
    value = owner.attrs[name]
    # h5py gives bytes that are no UTF-8 as surrogates, which no encoder accepts again.
    return (value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")).decode("utf-8")


def names_attribute(file: Hdf5, owner: h5py.Group, name: str) -> tuple[str, ...]:
    """A list of names. Keras splits one that is too long for an HDF5 header into `name0`, `name1` and so on.

    Raises:
        FileError: it does not exist, or is not a list of texts.
    """
    if name in owner.attrs:
        return _names(file, owner, name)
    chunks: list[str] = []
    count = 0
    while f"{name}{count}" in owner.attrs:
        chunks += _names(file, owner, f"{name}{count}")
        count += 1
    if not count:
        raise file.refuse(f"expected attribute '{name}' on group '{owner.name}', found none", "the file is incomplete")
    return tuple(chunks)


def _names(file: Hdf5, owner: h5py.Group, name: str) -> tuple[str, ...]:
    attribute = owner.attrs.get_id(name)
    if len(attribute.shape) != 1 or attribute.shape[0] > _MOST_NAMES or attribute.shape[0] * attribute.dtype.itemsize > file.size:
        raise file.refuse(f"expected a list of names in attribute '{name}' of '{owner.name}', got shape {attribute.shape}")
    if attribute.shape == (0,):  # numpy makes an empty list of names an array of floats
        return ()
    if h5py.check_string_dtype(attribute.dtype) is None:
        raise file.refuse(f"expected texts in attribute '{name}' of '{owner.name}', got {attribute.dtype}")
    if attribute.shape[0] * _longest(file, attribute) > most_bytes(file.size):
        raise file.too_long(f"the names in attribute '{name}' of '{owner.name}'")
    found = tuple(value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in owner.attrs[name])
    if not all(file.holds(len(name)) for name in found):
        raise file.too_long(f"the names up to attribute '{name}' of '{owner.name}'")
    return found


def _longest(file: Hdf5, attribute: h5py.h5a.AttrID) -> int:
    """The most bytes that a value of an attribute has."""
    return file.longest_text if attribute.dtype.hasobject else int(attribute.dtype.itemsize)


def read_datasets(file: Hdf5, found: Mapping[str, h5py.Dataset]) -> dict[str, Array]:
    """The values of every dataset, under its key, in native byte order. The sizes of all are checked before any is read.

    Raises:
        FileError: a type is not a number, the file cannot hold the sizes, or chunks unpack to more than they declare.
    """
    types = {name: _number_type(file, dataset) for name, dataset in found.items()}
    plain = packed = 0
    for dataset in found.values():
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        plain, packed = (plain + size, packed) if dataset.chunks is None else (plain, packed + size)
    if plain > file.size or packed > most_bytes(file.size):
        raise file.refuse(f"the file declares {plain + packed} bytes of tensors, more than its {file.size} bytes can hold")
    for dataset in found.values():
        if (complaint := oversized(dataset)) is not None:
            raise file.refuse(f"dataset '{dataset.name}' {complaint}", "save the weights again, without compression")
    return {name: _read(file, dataset).view(types[name]) for name, dataset in found.items()}


def _number_type(file: Hdf5, dataset: h5py.Dataset) -> np.dtype[np.generic]:
    kind = dataset.dtype
    if dataset.shape is not None:
        # HDF5 has no bfloat16: Keras writes it as two opaque bytes (keras/src/saving/saving_lib.py, H5IOStore.__setitem__).
        if kind.kind == "V" and kind.itemsize == 2 and kind.names is None:
            return storage_type("bfloat16")
        if kind.kind in "iub" or (kind.kind == "f" and kind.itemsize in _FLOAT_BYTES):
            native: np.dtype[np.generic] = kind.newbyteorder("=")
            return native
    raise file.refuse(f"dataset '{dataset.name}' holds {kind}, expected numbers")


def _read(file: Hdf5, dataset: h5py.Dataset) -> Array:
    offset = dataset.id.get_offset() if file.image is not None and dataset.chunks is None and dataset.size else None
    if file.image is not None and offset is not None:
        array = np.frombuffer(file.image, dataset.dtype, math.prod(dataset.shape), offset).reshape(dataset.shape)
    else:
        array = np.asarray(dataset[()])
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

"""Keras's HDF5 files from strangers: nothing outside the file is opened, and every declared size is compared
with the file's.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError, first_line
from porter.formats.keras.hdf5_objects import Image, Node, Unknown, open_node
from porter.formats.keras.hdf5_values import Unreadable, Values, oversized, read_values, texts_of, values_of
from porter.formats.limits import most_bytes

# TensorFlow 2.13 wrote the second (keras/src/saving/saving_lib.py, H5IOStore.get).
CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
"""Groups that hold a model's layers in `.weights.h5`."""
_MOST_NAMES = 1 << 16
_NAME_BYTES = 64
"""What Python takes for a name besides its letters."""
_MOST_DEPTH = 64
_SAVE = "save the weights again, without compression"
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Hdf5:
    """An open file.

    Attributes:
        path: the file, for messages.
        root: its root group.
        size: bytes of the file.
        taken: the bytes of the names read so far, under its only key. Any number of names may be the same
            bytes of a file.
    """

    path: Path
    root: Node
    size: int
    taken: Counter[str] = field(default_factory=Counter)

    def holds(self, size: int) -> bool:
        """Counts the bytes of a name: False if all are more than a file of this size may make."""
        self.taken["names"] += size + _NAME_BYTES
        return self.taken["names"] <= most_bytes(self.size)

    def too_long(self, names: str) -> FileError:
        return self.refuse(f"{names} have more than {most_bytes(self.size)} bytes")

    def refuse(self, message: str, next: str | None = None) -> FileError:
        return FileError(message, where=str(self.path), next=next)


def read_hdf5(path: Path, read: Callable[[Hdf5], _Found], image: bytes | None = None) -> _Found:
    """What `read` makes of the HDF5 file `path`, or of the HDF5 bytes `image` that were read from it.

    Where the file has what porter's reader does not know, as h5py writes on request, `read` is called again,
    with a copy.

    Raises:
        FileError: it is not HDF5, is cut short or damaged.
    """
    try:
        data = _mapped(path) if image is None else image
        try:
            return _read(path, read, data, len(data))
        except Unknown:
            from porter.formats.keras.hdf5_copy import copied  # few files need it

            return _read(path, read, copied(path, image), len(data))
    # A damaged file may state any number in any place.
    except (
        OSError,
        ValueError,
        TypeError,
        IndexError,
        OverflowError,
        MemoryError,
        struct.error,
        zlib.error,
        Unknown,
    ) as error:
        message = f"this HDF5 file is cut short or damaged: {first_line(error)}"
        raise FileError(message, where=str(path), next="fetch or copy it again") from None


def _read(path: Path, read: Callable[[Hdf5], _Found], data: bytes | mmap.mmap, size: int) -> _Found:
    image = Image(data)
    return read(Hdf5(path, open_node(image, image.root(), "/"), size))


def _mapped(path: Path) -> mmap.mmap:
    """The file's bytes: tensors that are views of them need no copy, and no memory until they are used."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def hdf5_format(file: Hdf5) -> str:
    """A file's layout: Keras's `keras-h5` (by layer name) or `keras-weights-h5` (by class and counter),
    otherwise `hdf5`.
    """
    root = file.root
    if (
        has_child(root, "model_weights")
        or "layer_names" in root.attributes
        or "layer_names0" in root.attributes
    ):
        return "keras-h5"
    # A subclassed model's layers are at the root, under the names of its attributes.
    groups = [root.child(name) for name, (kind, _) in root.links.items() if kind == "HardLink"]
    by_attribute = any(group.kind == "group" and has_child(group, "vars") for group in groups)
    return "keras-weights-h5" if by_attribute or any(has_child(root, name) for name in CONTAINERS) else "hdf5"


def children(file: Hdf5, group: Node) -> list[str]:
    """The names in a group.

    Raises:
        FileError: the names read so far are larger than a file of this size may make them.
    """
    if not all(file.holds(len(name)) for name in group.links):
        raise file.too_long(f"the names in '{group.name:.200}'")
    return list(group.links)


def has_child(group: Node, name: str) -> bool:
    """Whether a link of that name exists."""
    return name in group.links


def child_of(file: Hdf5, group: Node, name: str) -> Node:
    """The group or dataset at `name`, a path relative to `group`, each step of which is a hard link.

    Raises:
        FileError: it does not exist, or a step is a soft or an external link.
    """
    current = group
    for part in name.split("/"):
        kind, _ = current.links.get(part, (None, 0)) if current.kind == "group" else (None, 0)
        if kind is None:
            raise file.refuse(
                f"expected '{name:.200}' in group '{group.name}', found none", "the file is incomplete"
            )
        if kind != "HardLink":
            raise file.refuse(f"'{name:.200}' in group '{group.name}' is a {kind}; porter follows no links")
        current = current.child(part)
    return current


def group_of(file: Hdf5, group: Node, name: str) -> Node:
    """As `child_of`, for a group.

    Raises:
        FileError: as `child_of`, or it is a dataset.
    """
    return _expect("group", file, group, name)


def dataset_of(file: Hdf5, group: Node, name: str) -> Node:
    """As `child_of`, for a dataset.

    Raises:
        FileError: as `child_of`, or it is a group.
    """
    return _expect("dataset", file, group, name)


def _expect(kind: str, file: Hdf5, group: Node, name: str) -> Node:
    found = child_of(file, group, name)
    if found.kind != kind:
        raise file.refuse(f"expected a {kind} at '{name:.200}' in '{group.name}', got a {found.kind}")
    return found


def walk(file: Hdf5, group: Node, skip: Collection[str] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every group below `group` with its path, parents first. Those with a name in `skip` are left out, if no
    container holds them.

    Raises:
        FileError: a link is not a hard link, a group is inside itself, or groups are nested too deep.
    """
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Node]] = [((), group)]
    while waiting:
        path, current = waiting.pop()
        # Two hard links may close a circle.
        if current.address in seen or len(path) > _MOST_DEPTH:
            raise file.refuse(f"group '{'/'.join(path)}' is twice in the file, or nested too deep")
        seen.add(current.address)
        yield path, current
        of_layers = bool(path) and path[-1] in CONTAINERS
        for name in children(file, current):
            if name in skip and not of_layers:
                continue
            found = child_of(file, current, name)
            if found.kind == "group":
                waiting.append(((*path, name), found))


def text_attribute(file: Hdf5, owner: Node, name: str) -> str | None:
    """A scalar text attribute, or None where there is none.

    Raises:
        FileError: it is no text, or an array.
    """
    if name not in owner.attributes:
        return None
    found = texts_of(owner.image, owner.attributes[name])
    if found is None or found[0] != ():
        raise file.refuse(
            f"expected one text in attribute '{name}' of '{owner.name}', got "
            f"{'an array' if found else 'none'}"
        )
    return _text(owner, found[1][0])


def names_attribute(file: Hdf5, owner: Node, name: str) -> tuple[str, ...]:
    """A list of names. Keras splits one that is too long for an HDF5 header into `name0`, `name1` and so on.

    Raises:
        FileError: it does not exist, or is not a list of texts.
    """
    if name in owner.attributes:
        return _names(file, owner, name)
    chunks: list[str] = []
    count = 0
    while f"{name}{count}" in owner.attributes:
        chunks += _names(file, owner, f"{name}{count}")
        count += 1
    if not count:
        raise file.refuse(
            f"expected attribute '{name}' on group '{owner.name}', found none", "the file is incomplete"
        )
    return tuple(chunks)


def _names(file: Hdf5, owner: Node, name: str) -> tuple[str, ...]:
    found = texts_of(owner.image, owner.attributes[name])
    if found is None or len(found[0]) != 1 or len(found[1]) > _MOST_NAMES:
        said = f"shape {found[0]}" if found else "other values"
        raise file.refuse(f"expected a list of names in attribute '{name}' of '{owner.name}', got {said}")
    if not all(file.holds(len(text) if isinstance(text, bytes) else text[1]) for text in found[1]):
        raise file.too_long(f"the names up to attribute '{name}' of '{owner.name}'")
    return tuple(_text(owner, text) for text in found[1])


def _text(owner: Node, text: tuple[int, int] | bytes) -> str:
    return (text if isinstance(text, bytes) else owner.image.cut(*text)).decode("utf-8")


def read_datasets(file: Hdf5, found: Mapping[str, Node]) -> dict[str, Array]:
    """The values of every dataset, under its key, in native byte order. The sizes of all are checked before
    any is read.

    Raises:
        FileError: a type is not a number, values are in another file, the file cannot hold the sizes, or
            chunks unpack to more than they declare.
    """
    held = {name: _numbers(file, node) for name, node in found.items()}
    plain = sum(values.nbytes for values, _ in held.values() if not values.chunked)
    packed = sum(values.unpacked_bytes for values, _ in held.values() if values.chunked)
    if plain > file.size or packed > most_bytes(file.size):
        raise file.refuse(
            f"the file declares {plain + packed} bytes of tensors, more than its {file.size} bytes can hold"
        )
    for values, _ in held.values():
        if (complaint := oversized(values)) is not None:
            raise file.refuse(f"dataset '{values.node.name}' {complaint}", _SAVE)
    return {name: _native(file, values, dtype) for name, (values, dtype) in held.items()}


def _numbers(file: Hdf5, node: Node) -> tuple[Values, np.dtype[np.generic]]:
    try:
        values = values_of(node)
    except Unreadable as error:
        raise file.refuse(f"dataset '{node.name}' {error.message}", error.next) from None
    if values.dtype is None:
        raise file.refuse(f"dataset '{node.name}' holds {values.words}, expected numbers")
    return values, values.dtype


def _native(file: Hdf5, values: Values, dtype: np.dtype[np.generic]) -> Array:
    try:
        array = read_values(values, dtype)
    except Unreadable as error:
        raise file.refuse(f"dataset '{values.node.name}' {error.message}", error.next) from None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

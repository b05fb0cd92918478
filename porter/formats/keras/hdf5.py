"""Keras's HDF5 files from strangers: nothing outside the file is opened, and every declared size is compared
with the file's.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError
from porter.formats.damage import refusing_damage
from porter.formats.keras.hdf5_bytes import Hdf5Bytes, UnknownPart
from porter.formats.keras.hdf5_objects import DatasetValues, Object
from porter.formats.limits import expect_held, most_bytes

# TensorFlow 2.13 wrote the second (keras/src/saving/saving_lib.py, H5IOStore.get).
CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
"""Groups that hold a model's layers in `.weights.h5`."""
_MOST_NAMES = 1 << 16
_BYTES_PER_NAME = 64
"""What Python takes for a name besides its letters."""
_MOST_DEPTH = 64
_MOST_PATH = 500
_SAVE_AGAIN = "save the weights again, without compression, into a new file"
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Hdf5Node:
    """A group, or a dataset.

    Attributes:
        name: its path in the file, cut, for messages.
    """

    name: str
    address: int
    object: Object

    @property
    def kind(self) -> str:
        return "group" if self.object.values is None else "dataset"


@dataclass
class Hdf5:
    """An open file.

    Attributes:
        path: the file, for messages.
        object_at: what is at an address.
        top: the root's address.
        size: bytes of the file.
        name_bytes: of the names read so far: any number of names may be the same bytes of a file.
    """

    path: Path
    object_at: Callable[[int], Object]
    top: int
    size: int
    name_bytes: int = 0

    @property
    def root(self) -> Hdf5Node:
        return self.node("/", self.top)

    def node(self, name: str, address: int) -> Hdf5Node:
        return Hdf5Node(name[:_MOST_PATH], address, self.object_at(address))

    def count_name(self, size: int) -> bool:
        """Count the bytes of one more name; return False if all names together are more than a file of this
        size may make.
        """
        self.name_bytes += size + _BYTES_PER_NAME
        return self.name_bytes <= most_bytes(self.size)

    def names_too_long(self, names: str) -> FileError:
        return self.refuse(f"{names} have more than {most_bytes(self.size)} bytes")

    def refuse(self, message: str, next: str | None = None) -> FileError:
        """Return the error of a file that porter does not read on."""
        return FileError(message, where=self.path, next=next)

    def children(self, group: Hdf5Node) -> list[str]:
        """Return the names in a group.

        Raises:
            FileError: the names read so far are larger than a file of this size may make them.
        """
        if not all(self.count_name(len(name)) for name in group.object.links):
            raise self.names_too_long(f"the names in '{group.name:.200}'")
        return list(group.object.links)

    def child_of(self, group: Hdf5Node, name: str) -> Hdf5Node:
        """Return the group or dataset at `name`, a path relative to `group`, each step of which has to be a
        hard link, an entry that holds an address in this file.

        Raises:
            FileError: it does not exist, or a step is a soft or an external link.
        """
        current = group
        for part in name.split("/"):
            if not has_child(current, part):
                raise self.refuse(
                    f"expected '{name:.200}' in group '{group.name}', found none", "the file is incomplete"
                )
            address = current.object.links[part]
            if address is None:
                raise self.refuse(
                    f"'{name:.200}' in group '{group.name}' leads elsewhere; porter follows no links"
                )
            current = self.node(f"{current.name.rstrip('/')}/{part}", address)
        return current

    def group_of(self, group: Hdf5Node, name: str) -> Hdf5Node:
        """Return the child that `child_of` gives, which is a group.

        Raises:
            FileError: as `child_of`, or it is a dataset.
        """
        return self._expect_child("group", group, name)

    def dataset_of(self, group: Hdf5Node, name: str) -> Hdf5Node:
        """Return the child that `child_of` gives, which is a dataset.

        Raises:
            FileError: as `child_of`, or it is a group.
        """
        return self._expect_child("dataset", group, name)

    def _expect_child(self, kind: str, group: Hdf5Node, name: str) -> Hdf5Node:
        """Return the child at `name`. Raise FileError for one of another kind (`group` or `dataset`) than
        `kind`.
        """
        node = self.child_of(group, name)
        if node.kind != kind:
            raise self.refuse(f"expected a {kind} at '{name:.200}' in '{group.name}', got a {node.kind}")
        return node

    def walk_groups(
        self, group: Hdf5Node, skip: Collection[str] = ()
    ) -> Iterator[tuple[tuple[str, ...], Hdf5Node]]:
        """Yield `group` and every group below it, each with its path from there, such as `("layers",
        "conv2d", "vars")`, parents first. Groups with a name in `skip` are left out, unless a container holds
        them.

        Raises:
            FileError: a link is not a hard link, a group is inside itself, or groups are nested too deep.
        """
        visited: set[int] = set()
        waiting: list[tuple[tuple[str, ...], Hdf5Node]] = [((), group)]
        while waiting:
            path, current = waiting.pop()
            # Two hard links may close a circle.
            if current.address in visited or len(path) > _MOST_DEPTH:
                raise self.refuse(f"group '{'/'.join(path)}' is twice in the file, or nested too deep")
            visited.add(current.address)
            yield path, current
            is_container = bool(path) and path[-1] in CONTAINERS
            for name in self.children(current):
                if name in skip and not is_container:
                    continue
                child = self.child_of(current, name)
                if child.kind == "group":
                    waiting.append(((*path, name), child))

    def read_text_attribute(self, owner: Hdf5Node, name: str) -> str | None:
        """Return the text of a scalar attribute, or None where there is no such attribute.

        Raises:
            FileError: it is no text, or an array.
        """
        if not has_attribute(owner, name):
            return None
        attribute = owner.object.attributes[name]
        if attribute is None or attribute.shape:
            raise self.refuse(
                f"expected one text in attribute '{name}' of '{owner.name}', got "
                f"{'an array' if attribute else 'none'}"
            )
        return str(attribute.texts[0], "utf-8")

    def read_names_attribute(self, owner: Hdf5Node, name: str) -> tuple[str, ...]:
        """Return the names in an attribute, in order. Keras splits a list that is too long for an HDF5 header
        into `name0`, `name1` and so on.

        Raises:
            FileError: it does not exist, or is not a list of texts.
        """
        if has_attribute(owner, name):
            return self._read_names(owner, name)
        chunks: list[str] = []
        count = 0
        while has_attribute(owner, f"{name}{count}"):
            chunks += self._read_names(owner, f"{name}{count}")
            count += 1
        if not count:
            raise self.refuse(
                f"expected attribute '{name}' on group '{owner.name}', found none", "the file is incomplete"
            )
        return tuple(chunks)

    def _read_names(self, owner: Hdf5Node, name: str) -> tuple[str, ...]:
        """Return the texts of an attribute, whose size is bounded before they are decoded. Raise FileError if
        they are no list of texts, or too many or too long.
        """
        attribute = owner.object.attributes[name]
        if attribute is None or len(attribute.shape) != 1 or len(attribute.texts) > _MOST_NAMES:
            found = f"shape {attribute.shape}" if attribute else "other values"
            raise self.refuse(
                f"expected a list of names in attribute '{name}' of '{owner.name}', got {found}"
            )
        if not all(self.count_name(len(text)) for text in attribute.texts):
            raise self.names_too_long(f"the names up to attribute '{name}' of '{owner.name}'")
        return tuple(str(text, "utf-8") for text in attribute.texts)

    def read_datasets(self, datasets: Mapping[str, Hdf5Node]) -> NamedArrays:
        """Return the values of every dataset by its key, in native byte order. The sizes of all are checked
        before any is read. A key whose node is a group is left out.

        Raises:
            FileError: a type is not a number, values are in another file or were never written, or the file
                cannot hold the sizes.
        """
        values_by_name = {
            name: node.object.values for name, node in datasets.items() if node.object.values is not None
        }
        expect_held(sum(values.nbytes for values in values_by_name.values()), self.size, self.path)
        for name, values in values_by_name.items():
            if values.lack is not None:
                raise self.refuse(f"dataset '{datasets[name].name}' {values.lack:.400}", _SAVE_AGAIN)
        return {name: _array(values) for name, values in values_by_name.items()}


def read_hdf5(path: Path, read: Callable[[Hdf5], _Found], image: bytes | None = None) -> _Found:
    """Return what `read` makes of the HDF5 file `path`, or of the HDF5 bytes `image` that were read from it.

    If the file has a part that porter's reader does not know, HDF5's own library reads the file, and `read`
    is called a second time.

    Raises:
        FileError: it is not HDF5, is cut short or damaged.
    """
    with refusing_damage(path, "fetch or copy it again", "this HDF5 file is damaged", (MemoryError,)):
        data = map_file(path) if image is None else image
        try:
            parsed = Hdf5Bytes(data)
            return read(Hdf5(path, parsed.object_at, parsed.root(), len(data)))
        except UnknownPart:
            from porter.formats.keras.hdf5_library import read_with_library  # few files need it

            objects, root = read_with_library(path, image, data)
            return read(Hdf5(path, objects.__getitem__, root, len(data)))


def map_file(path: Path) -> mmap.mmap:
    """Return the file's bytes, mapped: tensors that are views of them need no copy, and no memory until they
    are used.
    """
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def recognise_layout(file: Hdf5) -> str:
    """Return a file's layout: Keras's `keras-h5` (by layer name) or `keras-weights-h5` (by class and
    counter), otherwise `hdf5`.
    """
    root = file.root
    if (
        has_child(root, "model_weights")
        or has_attribute(root, "layer_names")
        or has_attribute(root, "layer_names0")
    ):
        return "keras-h5"
    # A subclassed model's layers are at the root, under the names of its attributes; a group that is a layer
    # holds its variables in `vars`.
    items = (file.object_at(address) for address in root.object.links.values() if address is not None)
    has_layers_at_root = any("vars" in item.links for item in items)
    if has_layers_at_root or any(has_child(root, name) for name in CONTAINERS):
        return "keras-weights-h5"
    return "hdf5"


def has_child(group: Hdf5Node, name: str) -> bool:
    """Return whether a link of that name exists."""
    return name in group.object.links


def has_attribute(owner: Hdf5Node, name: str) -> bool:
    return name in owner.object.attributes


def _array(values: DatasetValues) -> Array:
    """Return the values as an array, which is a view of the file if they have native byte order there."""
    stored = np.frombuffer(values.data, values.dtype, math.prod(values.shape), values.start)
    return stored.reshape(values.shape).astype(stored.dtype.newbyteorder("="), copy=False)

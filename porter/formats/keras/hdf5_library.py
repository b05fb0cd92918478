"""HDF5's own library, in a process of its own: it says what a file holds. It reads files that porter's reader
(porter.formats.keras.hdf5_bytes) does not know, and is the witness of what that one reads.

h5py writes such a file only if a script asks for a later version of the format, for chunks or for the order
of links, or if a name is beyond ASCII.
"""

from __future__ import annotations

import json
import math
import mmap
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from porter.formats.keras.hdf5_objects import Object

IN_ANOTHER_FILE = "keeps its values in another file; porter reads only this file"
_OPAQUE, _ENUM = 5, 8
"""HDF5's classes of types."""
_ANY_BYTES = "latin-1"
"""Any bytes are texts in it, and so can be said in JSON."""


def read_with_library(
    path: Path, image: bytes | None, data: bytes | mmap.mmap
) -> tuple[Mapping[int, Object], int]:
    """Return the objects by address of the HDF5 file `path`, or of the HDF5 bytes `image`, and the root's
    address.

    Args:
        data: the bytes of either.

    Raises:
        ValueError: the library cannot read it, or takes more than it may.
    """
    # This file is also the program of that process, which has nothing of porter.
    from porter.formats.apart import READING, run_apart
    from porter.formats.limits import most_bytes, read_json

    with TemporaryDirectory() as folder:
        source = path
        index = Path(folder) / "index.json"
        values = Path(folder) / "values"
        if image is not None:
            source = Path(folder) / "source.h5"
            source.write_bytes(image)
        limits = replace(READING, written=most_bytes(len(data)))
        run_apart(__file__, [source.absolute(), index, values], len(data), "HDF5", limits)
        description = read_json(index.read_bytes())
        written = values.read_bytes()
    objects = {address: _build_object(data, written, *parts) for address, *parts in description["objects"]}
    return objects, description["root"]


def _build_object(
    data: bytes | mmap.mmap,
    written: bytes,
    links: Mapping[str, int | None],
    attributes: Mapping[str, Any],
    values: list[Any] | None,
) -> Object:
    """Build an object from what the child process said of it.

    Args:
        data: the bytes of the HDF5 file.
        written: values that the child process copied together, because they do not lie together in the file.
        links: the address of each, None for a link to elsewhere.
        values: of a dataset, as `_values_of` describes them; None for a group.
    """
    from porter.base.dtypes import storage_type
    from porter.formats.keras.hdf5_objects import DatasetValues, Object, Texts, values_at

    def name_of(link: str) -> str:
        return link.encode(_ANY_BYTES).decode("utf-8", "surrogateescape")

    def texts_of(attribute: Any) -> Texts | None:
        """Return the texts of an attribute; None if its values are no texts."""
        if attribute is None:
            return None
        shape, texts = attribute
        return Texts(tuple(shape), tuple(text.encode(_ANY_BYTES) for text in texts))

    dataset_values = None
    if values is not None:
        start, is_written, shape, kind, dtype_text, lack = values
        dtype = None
        if dtype_text:
            # HDF5 has no bfloat16: Keras writes it as two opaque bytes.
            dtype = storage_type("bfloat16") if kind == _OPAQUE else np.dtype(dtype_text)
        content = written if is_written else data
        dataset_values = values_at(start, DatasetValues(tuple(shape), dtype, 0, content, lack), kind)
    return Object(
        {name_of(link): address for link, address in links.items()},
        {name_of(name): texts_of(attribute) for name, attribute in attributes.items()},
        dataset_values,
    )


def _describe(item: Any, target: BinaryIO) -> list[Any]:
    """Return the links, the texts and the values of a group or a dataset, for the process that started this
    one. Values that do not lie together are written to `target`.
    """
    from h5py import h5a, h5d, h5g, h5l

    links, texts = {}, {}
    for name in item if isinstance(item, h5g.GroupID) else ():
        link = item.links.get_info(name)
        links[name.decode(_ANY_BYTES)] = link.u if link.type == h5l.TYPE_HARD else None
    for index in range(h5a.get_num_attrs(item)):
        attribute = h5a.open(item, index=index)
        texts[attribute.name.decode(_ANY_BYTES)] = _texts_of(attribute)
    return [links, texts, _values_of(item, target) if isinstance(item, h5d.DatasetID) else None]


def _texts_of(attribute: Any) -> list[Any] | None:
    """Return the shape and the texts of an attribute; None if its values are no texts."""
    from h5py import h5s, h5t

    if attribute.get_space().get_simple_extent_type() == h5s.NULL:
        return None
    texts = np.empty(attribute.shape, attribute.dtype)
    if texts.size and not isinstance(attribute.get_type(), h5t.TypeStringID):
        return None
    if texts.size:
        attribute.read(texts)
    return [texts.shape, [text.decode(_ANY_BYTES) for text in texts.flat]]


def _values_of(dataset: Any, target: BinaryIO) -> list[Any]:
    """Return what `_build_object` needs of a dataset's values: where they begin, whether they were written to
    `target`, their shape, HDF5's class of their type, numpy's name of it, and why they are not read. What is
    not known is None.
    """
    import h5py
    from h5py import h5t

    opened = h5py.Dataset(dataset)
    kind = dataset.get_type()
    number = _numpy_type(kind) if opened.shape is not None else None
    description = [opened.shape or (), kind.get_class(), number and number.str]
    if opened.is_virtual or opened.external:
        return [None, False, *description, IN_ANOTHER_FILE]
    # No numbers, none at all, or some that were never written: there is nothing to locate.
    if number is None or not opened.size or not _is_complete(opened):
        return [None, False, *description, None]
    base = kind.get_super() if kind.get_class() == _ENUM else kind
    start = dataset.get_offset()
    # They lie together and as numpy has them, so they are read from the file itself.
    if start is not None and (kind.get_class() == _OPAQUE or base.equal(h5t.py_create(base.dtype))):
        return [start, False, *description, None]
    try:
        numbers = np.asarray(opened[()], number)
        start = target.tell()
    except (OSError, MemoryError) as error:  # other filters than HDF5's own, and damage
        return [None, False, *description, f"cannot be read by HDF5: {error}"]
    target.write(numbers.tobytes())
    return [start, True, *description, None]


def _numpy_type(kind: Any) -> np.dtype[np.generic] | None:
    """Return the numpy type of numbers that porter reads; None for another type."""
    try:
        dtype: np.dtype[np.generic] = kind.dtype
    except TypeError:  # numpy has no such type
        return None
    is_number = dtype.kind in "biuf" and dtype.itemsize <= 8
    return dtype if is_number or (kind.get_class() == _OPAQUE and dtype.itemsize == 2) else None


def _is_complete(dataset: Any) -> bool:
    """Return whether every value was written: the library gives another one in place of one that lacks."""
    if dataset.chunks is None:
        return bool(dataset.id.get_storage_size())
    # The number of chunks along each axis, rounded up.
    chunks = (-(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() == math.prod(chunks))


def main() -> None:
    """Write what a file holds, as h5py reads it, for the process that started this one. Its arguments are the
    HDF5 file, the JSON to write, and the file for values that do not lie together.
    """
    import h5py
    from h5py import h5o

    source, index, values = sys.argv[1:]
    with h5py.File(source, "r", locking="best-effort") as file, Path(values).open("wb") as target:
        root = h5o.get_info(file.id).addr
        described: dict[int, list[Any]] = {}
        waiting: list[tuple[int, Any, bytes]] = [(root, file.id, b"/")]
        while waiting:
            address, group, name = waiting.pop()
            if address not in described:
                item = h5o.open(group, name)
                described[address] = _describe(item, target)
                links = described[address][0].items()  # `_describe` gives them first
                waiting += [
                    (address, item, link.encode(_ANY_BYTES)) for link, address in links if address is not None
                ]
    objects = [[address, *parts] for address, parts in described.items()]
    Path(index).write_text(json.dumps({"root": root, "objects": objects}))


if __name__ == "__main__":
    main()

"""h5py, in a process of its own: it writes down the type, the shape and the digest of each dataset.

Nothing of porter is imported here, because the process runs this file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import h5py

_NUMBERS = "biufV"
"""Kinds of numpy's types; `V` are bytes, as Keras writes bfloat16."""


def described(array: Any) -> tuple[str, list[int], str]:
    """The type of numbers, their shape, and the digest of their bytes, the smallest part of each first."""
    found = np.asarray(array)
    kind = "bfloat16" if found.dtype.itemsize == 2 and found.dtype.kind == "V" else found.dtype.name
    if found.dtype.kind in "iuf":
        found = found.astype(found.dtype.newbyteorder("<"), copy=False)
    content = hashlib.sha256(np.ascontiguousarray(found).view(np.uint8).data if found.size else b"")
    return kind, list(found.shape), content.hexdigest()


def _datasets(group: h5py.Group, skipped: Collection[str] = ()) -> Iterator[tuple[str, h5py.Dataset]]:
    import h5py

    for name in group:
        if name in skipped or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from ((f"{name}/{below}", found) for below, found in _datasets(item))
        elif isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind in _NUMBERS:
            yield name, item


def main() -> None:
    import h5py

    source, target, *skipped = sys.argv[1:]
    with h5py.File(source, "r", locking="best-effort") as file:
        found = {name: described(item[()]) for name, item in _datasets(file, skipped)}
    Path(target).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

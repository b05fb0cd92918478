"""h5py, in a process of its own: it writes down the type, the shape and the digest of each dataset, and those
of kernels as Keras turns them when it loads them.

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


def _turned(file: h5py.File) -> Iterator[Any]:
    """The kernels of convolutions that Keras stored otherwise than TensorFlow has them: Keras 1 with the
    filters first, and Theano with the last cell first (keras/engine/saving.py of Keras 2.2,
    `preprocess_weights_for_loading`).
    """
    within = file.get("model_weights", file)
    config, backend = (
        text.decode() if isinstance(text, bytes) else text
        for text in (file.attrs.get("model_config", ""), within.attrs.get("backend", ""))
    )
    is_first = '"th"' in config and any(
        one.get("dim_ordering") == "th" for one in _objects(json.loads(config))
    )
    if not is_first and backend != "theano":
        return
    for _, item in _datasets(within):
        if item.ndim == 4:
            kernel = item[()].transpose(2, 3, 1, 0) if is_first else item[()]
            yield np.flip(kernel, (0, 1)) if backend == "theano" else kernel


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in JSON."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def main() -> None:
    import h5py

    source, target, *skipped = sys.argv[1:]
    with h5py.File(source, "r", locking="best-effort") as file:
        found = {name: described(item[()]) for name, item in _datasets(file, skipped)}
        kernels = [described(kernel) for kernel in _turned(file)]
    Path(target).write_text(json.dumps({"datasets": found, "kernels": kernels}))


if __name__ == "__main__":
    main()

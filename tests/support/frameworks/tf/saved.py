"""What Keras itself would save of a model, compared with what porter has written."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np

from tests.support.arrays import Array

Tree = dict[str, tuple[dict[str, Any], Array | None]]


def config_of(path: Path) -> Any:
    with ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def weights_of(path: Path) -> Tree:
    """The attributes and the numbers of each group and dataset of the weights, by its path."""
    found: Tree = {}

    def visit(name: str, item: Any) -> None:
        found[name] = dict(item.attrs), item[()] if isinstance(item, h5py.Dataset) else None

    with ZipFile(path) as archive, h5py.File(BytesIO(archive.read("model.weights.h5")), "r") as file:
        file.visititems(visit)
    return found


def unlike(written: Any, saved: Any, where: str = "") -> list[str]:
    """Where a config says something else than Keras's own, which may state more."""
    if isinstance(written, dict) and isinstance(saved, dict):
        parts = [(f"{where}/{key}", value, saved.get(key, "nothing")) for key, value in written.items()]
    elif isinstance(written, list) and isinstance(saved, list) and len(written) == len(saved):
        parts = [(f"{where}/{place}", *pair) for place, pair in enumerate(zip(written, saved, strict=True))]
    else:
        return [] if written == saved else [f"{where}: {written} is {saved} in Keras's"]
    return [line for place, one, other in parts for line in unlike(one, other, place)]


def unlike_saved(written: Path, model: Any) -> list[str]:
    """Where a port's file is not what Keras saves of the model that it loaded from it."""
    saved = written.with_name("saved.keras")
    model.save(saved)
    ours, theirs = weights_of(written), weights_of(saved)
    differing = [
        name for name in sorted(ours.keys() | theirs.keys()) if not _same(ours.get(name), theirs.get(name))
    ]
    return [*unlike(config_of(written), config_of(saved)), *differing]


def _same(
    one: tuple[dict[str, Any], Array | None] | None, other: tuple[dict[str, Any], Array | None] | None
) -> bool:
    if one is None or other is None or one[0] != other[0]:
        return False
    return one[1] is other[1] is None or (
        one[1] is not None and other[1] is not None and _equal(one[1], other[1])
    )


def _equal(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)

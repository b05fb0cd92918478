"""Reading back a `model.keras` that porter wrote, without Keras's deserialiser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import h5py
import ml_dtypes

from porter.dtypes import Array
from porter.errors import FileError
from porter.frameworks.tf.layout import COUNTER_NAMES


def read_archive(path: Path) -> dict[str, Array]:
    """The tensors of a functional model's `.keras` file as `layer/variable`, in Keras's axis order.

    Raises:
        FileError: a missing or damaged file, or one that is not of the form in which Keras writes a functional model.
    """
    try:
        with ZipFile(path) as archive:
            # Stored, not deflated, as Keras does it: nothing grows beyond the size of the file.
            if any(member.compress_type != ZIP_STORED for member in archive.infolist()):
                raise FileError("a member of this archive is compressed, which Keras never does", where=str(path))
            layers = json.loads(archive.read("config.json"))["config"]["layers"]
            with h5py.File(BytesIO(archive.read("model.weights.h5")), "r") as weights:
                return _tensors(layers, weights, path)
    except FileNotFoundError:
        raise FileError("there is no such file", where=str(path)) from None
    except (OSError, EOFError, BadZipFile, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise FileError(f"this is no readable .keras file: {error}", where=str(path)) from None


def _tensors(layers: list[Mapping[str, Any]], weights: h5py.File, path: Path) -> dict[str, Array]:
    found: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for layer in layers:
        kind = COUNTER_NAMES.get(layer["class_name"])
        if kind is None:
            continue
        count = counts.get(kind, 0)
        counts[kind] = count + 1
        group = _child(_child(_child(weights, "layers"), kind + (f"_{count}" if count else "")), "vars")
        for index, variable in enumerate(_variables(layer["class_name"], layer["config"])):
            found[f"{layer['name']}/{variable}"] = _array(group, str(index), path)
    return found


def _variables(kind: str, config: Mapping[str, Any]) -> list[str]:
    """A layer's variables in the order in which Keras creates and so numbers them."""
    if kind == "BatchNormalization":
        own = [name for name, switch in (("gamma", "scale"), ("beta", "center")) if config[switch]]
        return [*own, "moving_mean", "moving_variance"]
    return ["kernel", "bias"] if config["use_bias"] else ["kernel"]


def _array(group: h5py.Group, name: str, path: Path) -> Array:
    dataset = _child(group, name)
    # Contiguous and complete, as Keras stores it: a few bytes can declare a dataset of any size.
    stored = isinstance(dataset, h5py.Dataset) and dataset.chunks is None and not dataset.external
    if not stored or dataset.id.get_storage_size() != dataset.nbytes:
        raise FileError(f"{group.name}/{name} is not stored as Keras stores a variable", where=str(path))
    array: Array = dataset[()]
    return array.view(ml_dtypes.bfloat16) if dataset.attrs.get("dtype") == "bfloat16" else array


def _child(group: Any, name: str) -> Any:
    """A member of an HDF5 group; links, which may lead to other files, are not followed."""
    if not isinstance(group, h5py.Group) or not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise KeyError(f"no group or dataset '{name}'")
    return group[name]

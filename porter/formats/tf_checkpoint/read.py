"""TensorFlow's checkpoints, V1 and V2, by TensorFlow's own reader, which reads tables of numbers and runs nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError, first_line
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.limits import most_bytes
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_checkpoint.files import CheckpointFiles, find_checkpoint
from porter.formats.tf_checkpoint.names import OBJECT_GRAPH, Owner, Shape, model_names, training_state

_LISTED = 5


@dataclass(frozen=True)
class Bundle:
    """An open checkpoint: the shapes of its numeric tensors, none of them read yet.

    Attributes:
        path: the checkpoint, for messages.
        others: keys of values that are not arrays of numbers: strings, such as a layer's config.
    """

    path: Path
    files: CheckpointFiles
    reader: Any
    shapes: Mapping[str, Shape]
    others: tuple[str, ...]

    def read(self, keys: Collection[str]) -> dict[str, Array]:
        """The values of `keys`.

        Raises:
            FileError: the data is cut short or damaged.
        """
        values: dict[str, Array] = {}
        for key in keys:
            with _refusing(self.path, f"tensor '{key}' of "):
                values[key] = np.asarray(self.reader.get_tensor(key))
        return values

    def object_graph(self) -> Any | None:
        """The TrackableObjectGraph of a TF 2 checkpoint, or None.

        Raises:
            FileError: it is damaged.
        """
        if OBJECT_GRAPH not in self.others:
            return None
        graph = import_module("tensorflow.core.protobuf.trackable_object_graph_pb2").TrackableObjectGraph()
        with _refusing(self.path):
            graph.ParseFromString(self.reader.get_tensor(OBJECT_GRAPH))
        return graph


def open_bundle(path: Path) -> Bundle:
    """Opens the checkpoint that `path` names (porter.formats.tf_checkpoint.files).

    Raises:
        FileError: it is incomplete or damaged, or its index declares more than its files can hold.
        MissingFramework: TensorFlow is not installed.
    """
    files = find_checkpoint(path)
    tf = import_tensorflow()
    with _refusing(path):
        reader = tf.train.load_checkpoint(files.prefix)
        shapes: Mapping[str, Any] = reader.get_variable_to_shape_map()
        types: Mapping[str, Any] = reader.get_variable_to_dtype_map()
        numbers = {key: tuple(map(int, shape)) for key, shape in shapes.items() if _number_type(types[key]) is not None}
        declared = sum(math.prod(shape) * (_number_type(types[key]) or 0) for key, shape in numbers.items())
    # V2 does not compress its data; V1's only table is not compressed either, but may pack integers.
    data = files.files[1:] if files.format == "tf-checkpoint-v2" else files.files
    held = sum(file.stat().st_size for file in data)
    limit = held if files.format == "tf-checkpoint-v2" else most_bytes(held)
    if declared > limit:
        raise FileError(
            f"the checkpoint declares {declared} bytes of tensors, its data files hold {held}",
            where=str(path),
            next="fetch it again",
        )
    return Bundle(path, files, reader, numbers, tuple(key for key in shapes if key not in numbers))


def read_tf_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a checkpoint, V1 or V2, in the order of their names.

    Moving averages of weights keep their names (`X/ExponentialMovingAverage`).

    Raises:
        FileError: as `open_bundle`, or the data is damaged.
        MissingFramework: TensorFlow is not installed.
    """
    bundle = open_bundle(path)
    owners = owners_of(bundle.object_graph())
    training = training_state(bundle.shapes, owners)
    kept = sorted(bundle.shapes.keys() - training)
    notes = [f"ignored the training's state: {len(training)} tensors, such as {_some(training)}"] if training else []
    others = [key for key in bundle.others if key != OBJECT_GRAPH]
    if others:
        notes.append(f"ignored {_some(others)}, which are not numbers")
    values = bundle.read(kept)
    doubles = _doubles(kept, owners, values)
    if doubles:
        notes.append(f"ignored {len(doubles)} second copies, such as {_some(doubles)}")
    names = model_names([key for key in kept if key not in doubles], owners)
    tensors = {name: values[key] for key, name in names.items()}
    return Checkpoint(path, bundle.files.format, "tf", tensors, tuple(notes), files=bundle.files.files)


def owners_of(graph: Any | None) -> list[Owner]:
    """The variables in an object graph, by object and attribute."""
    if graph is None:
        return []
    return [Owner(part.checkpoint_key, part.full_name) for node in graph.nodes for part in node.attributes]


def _doubles(keys: Collection[str], owners: Collection[Owner], values: Mapping[str, Array]) -> set[str]:
    """Keys of second copies, with the same name and values; keras.Model.export writes every variable twice."""
    first: dict[str, str] = {}
    found: set[str] = set()
    for owner in owners:
        if owner.key not in keys or not owner.full_name:
            continue
        other = first.setdefault(owner.full_name, owner.key)
        if other != owner.key and np.array_equal(values[other], values[owner.key], equal_nan=False):
            found.add(owner.key)
    return found


def _number_type(type: Any) -> int | None:
    """Bytes of an element of a TensorFlow type; None for strings, resources, complex and quantised numbers."""
    kind = np.dtype(type.as_numpy_dtype)
    plain = kind.kind in "iubf" or kind == ml_dtypes.bfloat16
    return kind.itemsize if plain and not type.is_quantized else None


@contextmanager
def _refusing(path: Path, what: str = "") -> Iterator[None]:
    """For damaged files TensorFlow raises its own errors, and its Python wrapper raises any error for a broken string."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        message = f"TensorFlow cannot read {what}this checkpoint; it is cut short or damaged: {first_line(error)}"
        raise FileError(message, where=str(path), next="fetch or copy it again") from None


def _some(keys: Collection[str]) -> str:
    listed = ", ".join(f"'{key}'" for key in sorted(keys)[:_LISTED])
    return f"{listed} and {len(keys) - _LISTED} more" if len(keys) > _LISTED else listed

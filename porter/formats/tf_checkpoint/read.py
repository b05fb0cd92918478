"""TensorFlow's checkpoints, V1 and V2. TensorFlow's own reader ends the process where an index is damaged in
some ways.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, first_line, some
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.limits import most_bytes
from porter.formats.tf_checkpoint.bundle import read_index, tensors_of, text_of
from porter.formats.tf_checkpoint.files import CheckpointFiles, find_checkpoint
from porter.formats.tf_checkpoint.messages import SavedObject, objects_of
from porter.formats.tf_checkpoint.model_tensors import OBJECT_GRAPH, ObjectTensor, model_names, training_state
from porter.formats.tf_checkpoint.slices import tensors_of_tables
from porter.formats.tf_checkpoint.tensors import CheckpointTensor, mapped

_AGAIN = "_all_variables/"
"""Where Keras's export writes every variable a second time
(keras/src/export/saved_model_export_archive.py).
"""


@dataclass(frozen=True)
class Bundle:
    """An open checkpoint: its numeric tensors, none of them read yet.

    Attributes:
        path: the checkpoint, for messages.
        others: keys of values that are not arrays of numbers: strings, such as a layer's config.
        objects: of a TF 2 checkpoint, the root first.
    """

    path: Path
    files: CheckpointFiles
    tensors: Mapping[str, CheckpointTensor]
    others: tuple[str, ...]
    objects: Sequence[SavedObject]

    @property
    def owners(self) -> list[ObjectTensor]:
        """The variables in the object graph, by object and attribute."""
        return [owner for each in self.objects for owner in each.variables]

    def read(self, keys: Collection[str]) -> NamedArrays:
        """The values of `keys`; views of the files where one holds a value in one piece.

        Raises:
            FileError: the data is cut short or damaged.
        """
        values: dict[str, Array] = {}
        for key in keys:
            with _refusing(self.path, f"tensor '{key}' of "):
                values[key] = self.tensors[key].read()
        return values


def open_bundle(path: Path) -> Bundle:
    """Opens the checkpoint that `path` names (porter.formats.tf_checkpoint.files).

    Raises:
        FileError: it is incomplete or damaged, or its index declares more than its files can hold.
    """
    files = find_checkpoint(path)
    with _refusing(path):
        first, *shards = map(mapped, files.files)
        old = files.format == "tf-checkpoint-v1"
        entries = {} if old else read_index(first, len(shards))
        tensors_by_key = tensors_of_tables((first, *shards)) if old else tensors_of(entries, shards)
        tensors = {key: tensor for key, tensor in tensors_by_key.items() if tensor is not None}
        declared = sum(tensor.nbytes for tensor in tensors.values())
        # The data of V2 is not compressed, nor is the table of V1, which may pack integers.
        stored_bytes = sum(map(len, shards)) + (len(first) if old else 0)
        if declared > (most_bytes(stored_bytes) if old else stored_bytes):
            message = (
                f"the checkpoint declares {declared} bytes of tensors, its data files hold {stored_bytes}"
            )
            raise FileError(message, where=path, next="fetch it again")
        object_graph = entries.get(OBJECT_GRAPH.encode())
        objects = objects_of(text_of(object_graph, shards)) if object_graph is not None else []
    return Bundle(path, files, tensors, tuple(key for key in tensors_by_key if key not in tensors), objects)


def read_tf_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a checkpoint, V1 or V2, in the order of their names.

    Moving averages of weights keep their names (`X/ExponentialMovingAverage`).

    Raises:
        FileError: as `open_bundle`, or the data is damaged.
    """
    bundle = open_bundle(path)
    owners = bundle.owners
    training = training_state({key: tensor.shape for key, tensor in bundle.tensors.items()}, owners)
    keys = sorted(bundle.tensors.keys() - training)
    notes = (
        [f"ignored the training's state: {len(training)} tensors, such as {_some(training)}"]
        if training
        else []
    )
    others = [key for key in bundle.others if key != OBJECT_GRAPH]
    if others:
        notes.append(f"ignored {_some(others)}, which are not numbers")
    values = bundle.read(keys)
    doubles = _doubles(owners, values)
    if doubles:
        notes.append(f"ignored {len(doubles)} second copies, such as {_some(doubles)}")
    names = model_names([key for key in keys if key not in doubles], owners)
    tensors = {name: values[key] for key, name in names.items()}
    return Checkpoint(path, bundle.files.format, "tf", tensors, tuple(notes), files=bundle.files.files)


def _doubles(owners: Collection[ObjectTensor], values: NamedArrays) -> set[str]:
    """Keys of second copies, with the name and the values of another tensor. Others that are alike are
    tensors of their own: many layers call a variable `bias`, and begin with zeros.
    """
    firsts: dict[str, list[Array]] = {}
    again: list[ObjectTensor] = []
    for owner in owners:
        if owner.key.startswith(_AGAIN):
            again.append(owner)
        elif owner.key in values and owner.full_name:
            firsts.setdefault(owner.full_name, []).append(values[owner.key])
    return {
        owner.key
        for owner in again
        if owner.key in values
        and any(np.array_equal(first, values[owner.key]) for first in firsts.get(owner.full_name, ()))
    }


@contextmanager
def _refusing(path: Path, what: str = "") -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, OSError) as error:
        message = f"{what}this checkpoint is cut short or damaged: {first_line(error)}"
        raise FileError(message, where=path, next="fetch or copy it again") from None


def _some(keys: Collection[str]) -> str:
    return some([f"'{key}'" for key in sorted(keys)])

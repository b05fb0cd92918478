"""TensorFlow's checkpoints, V1 and V2. TensorFlow's own reader ends the process where an index is damaged in
some ways.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.tf_checkpoint.bundle import locate_tensors, read_index, read_text
from porter.formats.tf_checkpoint.files import CheckpointFiles, find_checkpoint
from porter.formats.tf_checkpoint.messages import Entry, SavedObject, read_objects
from porter.formats.tf_checkpoint.model_tensors import OBJECT_GRAPH, ObjectTensor, model_names, training_state
from porter.formats.tf_checkpoint.slices import read_tables
from porter.formats.tf_checkpoint.tensors import CheckpointTensor, map_file

_AGAIN = "fetch or copy it again"
_DAMAGED = "this checkpoint is cut short or damaged"
_FURTHER = (LookupError,)
_SECOND_COPIES = "_all_variables/"
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
        return [owner for saved_object in self.objects for owner in saved_object.variables]

    def read(self, keys: Collection[str]) -> NamedArrays:
        """Read the values of `keys`; they are views of the files where one holds a value in one piece.

        Raises:
            FileError: the data is cut short or damaged.
        """
        values: dict[str, Array] = {}
        for key in keys:
            with refusing_damage(self.path, _AGAIN, f"tensor '{key}' of {_DAMAGED}", _FURTHER):
                values[key] = self.tensors[key].read()
        return values


def open_bundle(path: Path) -> Bundle:
    """Open the checkpoint that `path` names (porter.formats.tf_checkpoint.files).

    Raises:
        FileError: it is incomplete or damaged, or its index declares more than its files can hold.
    """
    files = find_checkpoint(path)
    with refusing_damage(path, _AGAIN, _DAMAGED, _FURTHER):
        # The index and the shards of V2, or all files of V1.
        first, *shards = map(map_file, files.files)
        stored_bytes = sum(map(len, shards))
        entries = dict[bytes, Entry]()
        # The data of V2 is not compressed, nor is the table of V1, which may pack integers.
        if files.format == "tf-checkpoint-v1":
            tensors_by_key = read_tables((first, *shards))
            stored_bytes += len(first)
            most_declared = most_bytes(stored_bytes)
        else:
            entries = read_index(first, len(shards))
            tensors_by_key = locate_tensors(entries, shards)
            most_declared = stored_bytes
        tensors = {key: tensor for key, tensor in tensors_by_key.items() if tensor is not None}
        declared = sum(tensor.nbytes for tensor in tensors.values())
        if declared > most_declared:
            message = (
                f"the checkpoint declares {declared} bytes of tensors, its data files hold {stored_bytes}"
            )
            raise FileError(message, where=path, next="fetch it again")
        object_graph = entries.get(OBJECT_GRAPH.encode())
        objects = read_objects(read_text(object_graph, shards)) if object_graph is not None else []
    return Bundle(path, files, tensors, tuple(key for key in tensors_by_key if key not in tensors), objects)


def read_tf_checkpoint(path: Path) -> Checkpoint:
    """Read the tensors of a checkpoint, V1 or V2, in the order of their names. Notes say what was left out:
    the training's state, values that are no numbers, and second copies.

    Moving averages of weights keep their names (`X/ExponentialMovingAverage`).

    Raises:
        FileError: as `open_bundle`, or the data is damaged.
    """
    bundle = open_bundle(path)
    owners = bundle.owners
    training = training_state({key: tensor.shape for key, tensor in bundle.tensors.items()}, owners)
    keys = sorted(bundle.tensors.keys() - training)
    notes = list[str]()
    if training:
        notes.append(
            f"ignored the training's state: {len(training)} tensors, such as {_quote_some(training)}"
        )
    others = [key for key in bundle.others if key != OBJECT_GRAPH]
    if others:
        notes.append(f"ignored {_quote_some(others)}, which are not numbers")
    values = bundle.read(keys)
    copies = _second_copies(owners, values)
    if copies:
        notes.append(f"ignored {len(copies)} second copies, such as {_quote_some(copies)}")
    names = model_names([key for key in keys if key not in copies], owners)
    tensors = {name: values[key] for key, name in names.items()}
    return Checkpoint(path, bundle.files.format, "tf", tensors, tuple(notes), files=bundle.files.files)


def _second_copies(owners: Collection[ObjectTensor], values: NamedArrays) -> set[str]:
    """Return the keys of second copies, which have the name and the values of another tensor. Others that are
    alike are tensors of their own: many layers call a variable `bias`, and begin with zeros.
    """
    originals: dict[str, list[Array]] = {}
    candidates: list[ObjectTensor] = []
    for owner in owners:
        if owner.key.startswith(_SECOND_COPIES):
            candidates.append(owner)
        elif owner.key in values and owner.full_name:
            originals.setdefault(owner.full_name, []).append(values[owner.key])
    return {
        owner.key
        for owner in candidates
        if owner.key in values
        and any(np.array_equal(array, values[owner.key]) for array in originals.get(owner.full_name, ()))
    }


def _quote_some(keys: Collection[str]) -> str:
    return some([f"'{key}'" for key in sorted(keys)])

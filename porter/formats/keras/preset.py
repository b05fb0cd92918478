"""KerasHub's preset folders (keras_hub/src/utils/preset_utils.py): config.json describes a backbone, whose tensors are in
`model.weights.h5`; task.json describes the network around it, whose own tensors are in `task.weights.h5`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import BACKBONE_WEIGHTS, PRESET, TASK_WEIGHTS
from porter.formats.keras.read_keras import read_weights_h5


def read_preset(folder: Path) -> Checkpoint:
    """The tensors of a backbone, and those of its task, whose names begin with `task/`. Its path is that of the backbone's file.

    Raises:
        FileError: a file is damaged, or the backbone's is not there.
    """
    weights = folder / BACKBONE_WEIGHTS
    if not weights.is_file():
        next = "save it again with max_shard_size=None: porter reads no preset in several files"
        raise FileError(f"this preset has no {BACKBONE_WEIGHTS}", where=str(folder), next=next)
    backbone = replace(read_weights_h5(weights), format=PRESET, files=(weights,))
    if not (folder / TASK_WEIGHTS).is_file():
        return backbone
    task = read_weights_h5(folder / TASK_WEIGHTS)
    tensors = {**backbone.tensors, **{f"task/{name}": array for name, array in task.tensors.items()}}
    return replace(backbone, tensors=tensors, files=(weights, task.path))

"""KerasHub's preset folders (keras_hub/src/utils/preset_utils.py): config.json describes a backbone, whose
tensors are in `model.weights.h5`, or in the files that `model.weights.json` lists; task.json describes the
network around it, whose own tensors are in `task.weights.h5`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import BACKBONE_INDEX, BACKBONE_WEIGHTS, PRESET, TASK_WEIGHTS, hdf5
from porter.formats.keras.read_keras import read_weights_h5
from porter.formats.sharded.read import read_index, shards_beside

_FETCH_AGAIN = "fetch the folder again, whole"


def read_preset(folder: Path) -> Checkpoint:
    """Read the tensors of a backbone, and those of its task, whose names begin with `task/`. The checkpoint's
    path is that of the backbone's file, or of its index.

    Raises:
        FileError: a file is damaged, the backbone's is not there, or its index and the files beside it
            contradict each other.
    """
    weights, index = folder / BACKBONE_WEIGHTS, folder / BACKBONE_INDEX
    if weights.is_file():
        backbone = replace(read_weights_h5(weights), format=PRESET, files=(weights,))
    elif index.is_file():
        backbone = _read_sharded(index)
    else:
        raise FileError(
            f"this preset has neither {BACKBONE_WEIGHTS} nor {BACKBONE_INDEX}",
            where=folder,
            next=_FETCH_AGAIN,
        )
    if not (folder / TASK_WEIGHTS).is_file():
        return backbone
    task = read_weights_h5(folder / TASK_WEIGHTS)
    tensors = {**backbone.tensors, **{f"task/{name}": array for name, array in task.tensors.items()}}
    return replace(backbone, tensors=tensors, files=(*backbone.files, task.path))


def _read_sharded(index: Path) -> Checkpoint:
    """Read the tensors of a backbone in several files, by their places in these
    (keras/src/saving/saving_lib.py, ShardedH5IOStore).
    """
    tensors: dict[str, Array] = {}
    groups_by_shard = read_index(index)
    files = shards_beside(index, groups_by_shard)
    for name, file in files.items():
        arrays = hdf5.read_hdf5(file, _read_variables)
        groups = {f"/{path.rpartition('/')[0]}" for path in arrays}
        if in_one_only := sorted(groups_by_shard[name] ^ groups):
            message = (
                f"index and shard '{name}' do not hold the same layers: only one of them has "
                f"{some(in_one_only)}"
            )
            raise FileError(message, where=index, next=_FETCH_AGAIN)
        if repeated := sorted(tensors.keys() & arrays.keys()):
            raise FileError(f"several of its shards hold {some(repeated)}", where=index, next=_FETCH_AGAIN)
        tensors |= arrays
    # Random states are not weights.
    weights = {path: array for path, array in tensors.items() if "seed_generator" not in path.split("/")}
    return Checkpoint(index, PRESET, "tf", weights, files=(index, *files.values()))


def _read_variables(file: hdf5.Hdf5) -> NamedArrays:
    """Return the variables of all layers by their paths, `LAYERS/vars/NUMBER`."""
    datasets: dict[str, hdf5.Hdf5Node] = {}
    for path, group in file.walk_groups(file.root):
        if path[-1:] == ("vars",):
            datasets |= {
                "/".join((*path, number)): file.dataset_of(group, number) for number in file.children(group)
            }
    return file.read_datasets(datasets)

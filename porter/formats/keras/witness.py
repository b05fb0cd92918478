"""Whether h5py finds the values in a Keras file that porter reads in it. See
porter.verification.witnesses.Witness.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from porter.base.errors import CannotRun, FileError, escaped
from porter.base.package import expect_installed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.apart import run_apart
from porter.formats.format import look_at
from porter.formats.keras import HDF5_MAGIC, hdf5, hdf5_digests
from porter.formats.keras.read_keras import read_archived

NAME = "h5py"
_NOT_THE_MODEL = ("optimizer", "optimizer_weights", "metrics")
"""Groups of a file that no port has anything of."""
_Described = Sequence[Any]
"""See porter.formats.keras.hdf5_digests."""


def disagreement(checkpoint: Checkpoint, size: tuple[int, int], whole: bool) -> str | None:
    """See porter.verification.witnesses.Witness.

    Raises:
        CannotRun: h5py is not installed, or does not read the file.
    """
    expect_installed("h5py", "pip install h5py")
    with TemporaryDirectory() as folder:
        for path in _files(checkpoint, Path(folder)):
            theirs, turned = _by_h5py(path, Path(folder) / "described")
            ours = hdf5.read_hdf5(path, partial(_by_porter, theirs))
            wrong = [name for name, found in ours.items() if found != theirs[name]]
            wrong += [name for name, found in _kernels(checkpoint) if turned and found not in turned]
            for other in wrong:
                return f"porter and {NAME} read other numbers of '{escaped(other)}'"
    return None


def _files(checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
    """The HDF5 files of a checkpoint, of which a .keras has one within it."""
    for path in checkpoint.files or (checkpoint.path,):
        if look_at(path).head.startswith(HDF5_MAGIC):
            yield path
        elif checkpoint.format == "keras":
            within = folder / "within.h5"
            within.write_bytes(read_archived(path).weights)
            yield within


def _by_h5py(path: Path, target: Path) -> tuple[dict[str, _Described], list[_Described]]:
    """Its datasets by name, and the kernels that Keras turns when it loads them, as it turns them."""
    try:
        arguments = (path.absolute(), target, *_NOT_THE_MODEL)
        run_apart(hdf5_digests.__file__, arguments, path.stat().st_size, NAME)
    except ValueError as error:
        raise CannotRun(str(error), where=str(path)) from None
    found = json.loads(target.read_text())
    return found["datasets"], found["kernels"]


def _kernels(checkpoint: Checkpoint) -> Iterator[tuple[str, _Described]]:
    """Of convolutions, as porter's reader gives them."""
    for name, array in checkpoint.tensors.items():
        if array.ndim == 4 and name.endswith("/kernel"):
            yield name, [*hdf5_digests.described(array)]


def _by_porter(names: Mapping[str, _Described], file: hdf5.Hdf5) -> dict[str, _Described]:
    """What porter reads of these datasets, but for those that it refuses."""
    found: dict[str, _Described] = {}
    for name in names:
        with suppress(FileError):
            values = hdf5.read_datasets(file, {name: hdf5.dataset_of(file, file.root, name)})[name]
            found[name] = [*hdf5_digests.described(values)]
    return found

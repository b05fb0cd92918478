"""`model.keras`, a zip archive: of parts, or of a model that Keras saves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any
from zipfile import ZipFile, ZipInfo

from porter.files import digest

MODEL_FILE = "model.keras"
_METADATA, _CONFIG, _WEIGHTS = "metadata.json", "config.json", "model.weights.h5"
_KERAS_VERSION = "3.15.1"
"""The version whose form is written."""
_DATE = "1980-01-01@00:00:00"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can state."""
_PIECE_BYTES = 1 << 20


def write_archive(folder: Path, config: Any, write_weights: Callable[[Path], None]) -> dict[str, str]:
    """Write `model.keras` into `folder` and return its sha256 by its name.

    Args:
        write_weights: writes the weights to a path.
    """
    weights = folder / _WEIGHTS
    try:
        write_weights(weights)
        with ZipFile(folder / MODEL_FILE, "w") as archive:
            archive.writestr(
                _zip_member(_METADATA), json.dumps({"keras_version": _KERAS_VERSION, "date_saved": _DATE})
            )
            archive.writestr(_zip_member(_CONFIG), json.dumps(config))
            with weights.open("rb") as content:
                _copy_member(content, archive, _WEIGHTS, weights.stat().st_size)
    finally:
        weights.unlink(missing_ok=True)
    return {MODEL_FILE: digest(folder / MODEL_FILE)}


def save(model: Any, folder: Path) -> dict[str, str]:
    """Write a Keras model as Keras saves it, without its times: those of its members, and `date_saved` in its
    metadata. Return the sha256 of `model.keras` by its name.
    """
    dated = folder / f"dated-{MODEL_FILE}"
    try:
        model.save(dated)
        with ZipFile(dated) as source, ZipFile(folder / MODEL_FILE, "w") as archive:
            for member in source.infolist():
                if member.filename == _METADATA:
                    metadata = {**json.loads(source.read(member)), "date_saved": _DATE}
                    archive.writestr(_zip_member(_METADATA), json.dumps(metadata))
                    continue
                with source.open(member) as content:
                    _copy_member(content, archive, member.filename, member.file_size)
    finally:
        dated.unlink(missing_ok=True)
    return {MODEL_FILE: digest(folder / MODEL_FILE)}


def _copy_member(content: IO[bytes], archive: ZipFile, name: str, size: int) -> None:
    """Copy a file of `size` bytes into the archive in pieces, without its time."""
    member = _zip_member(name)
    member.file_size = size  # for the form of the archive, which is another for 2 GiB
    with archive.open(member, "w") as target:
        copyfileobj(content, target, _PIECE_BYTES)


def _zip_member(name: str) -> ZipInfo:
    """Return a member's entry with the earliest time, so that the same content gives the same bytes."""
    member = ZipInfo(name, _EPOCH)
    # the rights of a file, as Unix has them
    member.external_attr = 0o644 << 16
    return member

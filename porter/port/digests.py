"""Whether the files of a port are those that porter wrote."""

from __future__ import annotations

from pathlib import Path

from porter.base.commands import CONVERT
from porter.base.errors import ChecksumError, FileError
from porter.files import digest, is_plain
from porter.frameworks import TRAINED, Destination, other_than

AGAIN = "restore the file, or convert again; a changed copy belongs outside of the port"


def advice_for_other_model(folder: Path, destination: Destination) -> str:
    """Say what to do with a port whose model file is another one, which may have been trained on."""
    if destination.NAME not in TRAINED:
        return AGAIN
    line = CONVERT.advise(
        subject=folder, weights=folder / destination.MODEL_FILE, to=other_than(destination.NAME)
    )
    return f"restore the file, or convert again; if it was trained on, {line} makes a port of it"


def expect_digest(path: Path, sha256: str, next: str) -> None:
    """Refuse a file of a port that is not the one that porter wrote, by its sha256.

    Args:
        next: the advice of the error.

    Raises:
        FileError, ChecksumError: it is missing, or another one.
    """
    if not is_plain(path):  # a pipe would never end
        raise FileError(
            "port.json lists this file, and it is missing or is not a plain file", where=path, next=next
        )
    actual = digest(path)
    if actual != sha256:
        message = (
            f"this is not the file that porter wrote: its sha256 is {actual[:12]}..., port.json says "
            f"{sha256[:12]}..."
        )
        raise ChecksumError(message, where=path, next=next)

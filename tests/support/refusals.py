"""What is refused is refused in one line, which says where and what."""

from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.formats.reading import read_checkpoint
from tests.support.fixtures import Ran


def refused(ran: Ran, *words: str, status: int = 2) -> None:
    """Expects that the command refuses."""
    assert ran.status == status
    assert (
        ran.out == ""
        and ran.err.startswith("error: ")
        and ran.err.count("\n") == 1
        and "Traceback" not in ran.err
    )
    for word in words:
        assert word in ran.err


def unreadable(path: Path, *words: str, where: Path | None = None) -> str:
    """A file, which the message names as itself or as `where`; gives the message."""
    with pytest.raises(FileError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert str(where or path) in message and "\n" not in message
    for word in words:
        assert word in message
    return message

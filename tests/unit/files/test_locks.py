"""Locks between writers."""

import errno
import sys
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.files.locks import locked

if sys.platform == "win32":
    pytest.skip("nothing is locked", allow_module_level=True)


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        with (
            pytest.raises(FileError, match="another process is writing here"),
            locked(tmp_path / "lock", wait=False),
        ):
            pass
        assert (tmp_path / "lock").exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_hinders_no_writer(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", refused)
    with locked(tmp_path / "lock"):
        pass
    assert not list(tmp_path.iterdir())
    number = errno.EIO
    with pytest.raises(OSError, match="no locks"), locked(tmp_path / "lock"):
        pass

"""Folders that appear complete or not at all, whatever happens on the way."""

import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from porter.base.errors import FileError, UsageError
from porter.files import folders, new_folder, recover_folder
from porter.files.locks import locked
from porter.port import OWN_FOLDERS

NO_PORT = re.escape("not a port (it has neither port.json nor into.json)")
CAN_EXCHANGE = sys.platform == "linux"


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of putting a folder in place; the second is what systems without renameat2 get."""
    if request.param == "two renames":
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    return str(request.param)


def port(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "port.json").write_text(content)
    return folder


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def killed(target: Path, script: str) -> None:
    """Runs `script` with `target`, `new_folder` and `folders` at hand, and expects it to kill itself."""
    head = f"""
        import os, signal
        from pathlib import Path
        from porter.files import folders, new_folder
        from porter.port import OWN_FOLDERS
        target = Path({str(target)!r})
        def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)], check=False
    )
    assert done.returncode == -signal.SIGKILL


def test_a_new_folder_appears_when_it_is_complete(tmp_path: Path, way: str) -> None:
    target = tmp_path / "deep" / "port"
    with new_folder(target) as folder:
        port(folder, "new")
        assert not target.exists()
    assert content(target) == {"port.json": "new"}
    assert [path.name for path in target.parent.iterdir()] == ["port"]


def test_an_existing_port_is_replaced_whole(tmp_path: Path, way: str) -> None:
    target = port(tmp_path / "port", "old")
    (target / "model.onnx").touch()
    with new_folder(target, OWN_FOLDERS) as folder:
        port(folder, "new")
        assert content(target)["port.json"] == "old"
    assert content(target) == {"port.json": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


def test_a_failure_leaves_the_old_port_and_nothing_else(tmp_path: Path, way: str) -> None:
    target = port(tmp_path / "port", "old")
    with pytest.raises(ZeroDivisionError), new_folder(target, OWN_FOLDERS) as folder:
        port(folder, "half")
        raise ZeroDivisionError
    assert content(target) == {"port.json": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


def test_a_failure_without_an_old_port_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "port") as folder:
        port(folder, "half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    target = port(tmp_path / "port", "old")
    with pytest.raises(UsageError, match="exists") as caught, new_folder(target):
        pytest.fail("the block must not run")
    assert (caught.value.status, caught.value.where) == (2, str(target))
    assert "--overwrite" in (caught.value.next or "")


def test_a_folder_that_is_no_port_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with (
        pytest.raises(UsageError, match=NO_PORT),
        new_folder(tmp_path / "home", OWN_FOLDERS),
    ):
        pytest.fail("the block must not run")
    assert content(tmp_path / "home") == {"thesis.tex": ""}


def test_a_folder_that_others_fill_meanwhile_is_kept(tmp_path: Path, way: str) -> None:
    target = tmp_path / "port"
    with (
        pytest.raises(UsageError, match=NO_PORT),
        new_folder(target, OWN_FOLDERS) as folder,
    ):
        port(folder, "new")
        target.mkdir()
        (target / "thesis.tex").touch()
    assert content(target) == {"thesis.tex": ""}


def test_an_empty_folder_is_taken_only_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "port").mkdir()
    with pytest.raises(UsageError), new_folder(tmp_path / "port"):
        pytest.fail("the block must not run")
    with new_folder(tmp_path / "port", OWN_FOLDERS) as folder:
        port(folder, "new")
    assert content(tmp_path / "port") == {"port.json": "new"}


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "port").touch()
    with pytest.raises(UsageError, match="a file"), new_folder(tmp_path / "port", OWN_FOLDERS):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("parent", ["file", "file/deeper", "/proc/none"])
def test_a_place_that_cannot_be_written_is_a_file_error(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"), new_folder(tmp_path / parent / "port"):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("own", [True, False])
def test_an_error_of_a_file_names_the_file(own: bool, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught, new_folder(tmp_path / "port") as folder:
        ((folder if own else tmp_path) / "none" / "model.onnx").open("wb")
    assert str(caught.value.where) == str(tmp_path / ("port/none" if own else "none") / "model.onnx")
    assert ("choose another --out" in str(caught.value)) is own


def test_an_error_that_names_no_file_is_the_disks_only_where_it_is_of_writing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: No space"), new_folder(tmp_path / "port"):
        raise OSError(errno.ENOSPC, "No space left on device")
    if Path("/dev/full").exists():  # Linux's disk that is always full
        with pytest.raises(FileError, match="written: 100000 req"), new_folder(tmp_path / "port"):
            np.zeros(100_000).tofile("/dev/full")
    with pytest.raises(ConnectionResetError), new_folder(tmp_path / "port"):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


@pytest.mark.skipif(not CAN_EXCHANGE, reason="folders are exchanged on Linux only")
def test_a_folder_that_cannot_be_exchanged_is_a_file_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = port(tmp_path / "port", "old")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(renameat2=lambda *_: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EBUSY)
    with pytest.raises(FileError, match="cannot be written: ") as caught, new_folder(target, OWN_FOLDERS):
        pass
    assert caught.value.where == str(target) and content(target) == {"port.json": "old"}


def test_through_a_link_the_folder_behind_it_is_replaced(tmp_path: Path, way: str) -> None:
    port(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    with new_folder(tmp_path / "link", OWN_FOLDERS) as folder:
        port(folder, "new")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real") == {"port.json": "new"}


def test_folders_get_the_permissions_that_mkdir_gives(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with new_folder(tmp_path / "port"):
        pass
    assert (tmp_path / "port").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        new_folder(tmp_path / "port"),
        pytest.raises(FileError, match="another process"),
        new_folder(tmp_path / "port"),
    ):
        pytest.fail("the block must not run")


def test_killed_while_filling_the_old_port_stands(tmp_path: Path) -> None:
    target = port(tmp_path / "port", "old")
    killed(
        target,
        """
        with new_folder(target, OWN_FOLDERS) as folder:
            (folder / "port.json").write_text("half")
            die()
        """,
    )
    assert content(target) == {"port.json": "old"}
    with new_folder(target, OWN_FOLDERS) as folder:
        assert content(folder) == {}
        port(folder, "new")
    assert content(target) == {"port.json": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


@pytest.mark.skipif(not CAN_EXCHANGE, reason="renameat2 is Linux's")
def test_killed_after_the_exchange_the_new_port_stands(tmp_path: Path) -> None:
    target = port(tmp_path / "port", "old")
    killed(
        target,
        """
        folders.shutil.rmtree = die
        with new_folder(target, OWN_FOLDERS) as folder:
            (folder / "port.json").write_text("new")
        """,
    )
    assert content(target) == {"port.json": "new"}
    with new_folder(target, OWN_FOLDERS) as folder:
        port(folder, "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_killed_between_two_renames_a_complete_port_is_recovered(tmp_path: Path, renames: int) -> None:
    target = port(tmp_path / "port", "old")
    killed(
        target,
        f"""
        folders._exchange = lambda one, other: False
        rename, left = Path.rename, [{renames}]
        def rename_or_die(self, other):
            if not left[0]:
                die()
            left[0] -= 1
            return rename(self, other)
        Path.rename = rename_or_die
        folders.shutil.rmtree = die
        with new_folder(target, OWN_FOLDERS) as folder:
            (folder / "port.json").write_text("new")
        """,
    )
    recover_folder(target)
    assert content(target) == {"port.json": "new" if renames == 2 else "old"}
    with new_folder(target, OWN_FOLDERS) as folder:
        port(folder, "newer")
    assert content(target) == {"port.json": "newer"}
    assert [path.name for path in tmp_path.iterdir()] == ["port"]


def test_a_port_moved_aside_counts_as_existing(tmp_path: Path) -> None:
    target = tmp_path / "port"
    port(tmp_path / ".port.porter-old", "old")
    with pytest.raises(UsageError, match="exists"), new_folder(target):
        pytest.fail("the block must not run")
    assert content(target) == {"port.json": "old"}


def test_nothing_is_recovered_where_nothing_was_lost(tmp_path: Path) -> None:
    recover_folder(tmp_path / "port")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not CAN_EXCHANGE, reason="renameat2 is Linux's")
def test_a_port_that_is_replaced_is_never_missing(tmp_path: Path) -> None:
    target, seen, done = port(tmp_path / "port", "old"), set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(target.is_dir())

    observer = threading.Thread(target=look)
    observer.start()
    for _ in range(200):
        with new_folder(target, OWN_FOLDERS) as folder:
            port(folder, "new")
    done.set()
    observer.join()
    assert seen == {True}


@pytest.mark.skipif(not CAN_EXCHANGE, reason="renameat2 is Linux's")
def test_an_exchange_that_fails_for_another_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        folders._exchange(tmp_path / "none", tmp_path / "neither")


def test_a_lock_is_exclusive_and_leaves_no_file(tmp_path: Path) -> None:
    counter, most = [0], [0]

    def work() -> None:
        for _ in range(50):
            with locked(tmp_path / "lock"):
                counter[0] += 1
                most[0] = max(most[0], counter[0])
                os.sched_yield()
                counter[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []

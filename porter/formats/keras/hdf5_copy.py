"""HDF5's own library, in a process of its own: it copies a file into the form that porter reads.

h5py writes such a file only if a script asks for a later version of the format or for the order of links, or
if a group has more than eight links and one of their names is beyond ASCII.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py


def copied(path: Path, image: bytes | None) -> bytes:
    """A copy of the HDF5 file `path`, or of the HDF5 bytes `image`, without its links to elsewhere.

    Raises:
        ValueError: the library cannot read it, or takes more than it may.
    """
    # This file is also the program of that process, which has nothing of porter.
    from porter.formats.apart import run_apart

    with TemporaryDirectory() as folder:
        source, copy = path, Path(folder) / "copy.h5"
        if image is not None:
            source = Path(folder) / "source.h5"
            source.write_bytes(image)
        run_apart(__file__, [source.absolute(), copy], source.stat().st_size, "HDF5")
        return copy.read_bytes()


def _copy(source: h5py.Group, target: h5py.Group) -> None:
    import h5py

    for name, value in source.attrs.items():
        texts = isinstance(value, bytes | str) or (
            hasattr(value, "dtype") and h5py.check_string_dtype(value.dtype) is not None
        )
        # In this form, a text of a fixed length may not be longer than a header. What a file calls ASCII may
        # be UTF-8.
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        target.attrs.create(name, text, dtype=h5py.string_dtype() if texts else None)
    # A link to another file, or one whose name is said to be UTF-8, would give its group another form. Names
    # in bytes are not.
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
            target.create_dataset(
                coded, item.shape, item.dtype, external=[("elsewhere", 0, h5py.h5f.UNLIMITED)]
            )
        else:
            target.create_dataset(coded, data=item[()], dtype=item.dtype)


def main() -> None:
    import h5py

    source, target = sys.argv[1:]
    with h5py.File(source, "r", locking="best-effort") as file, h5py.File(target, "w") as copy:
        _copy(file, copy)


if __name__ == "__main__":
    main()

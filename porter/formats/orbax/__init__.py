"""Folders of orbax, as people who train in Flax save: a tree of arrays, in OCDBT or in zarr."""

from __future__ import annotations

from pathlib import Path

from porter.formats.format import Content, Format, reader
from porter.formats.msgpack import is_tree

METADATA = "_METADATA"
STRUCTURE = "checkpoint"
"""The file that says the structure in a folder without `_METADATA`, as orbax wrote it before 0.3.3."""
_PATTERNS = ("", "*/", "[0-9]*/*/")
"""The folder of a tree, of a step of a CheckpointManager, and of a CheckpointManager."""
_MANIFEST = "manifest.ocdbt"


def find_trees(folder: Path) -> list[Path]:
    """Return the folders of trees in a folder, which may be one itself; none where there are none. Today's
    trees come before older ones, and nearer ones before those further within.
    """
    of_today = (sorted(folder.glob(f"{pattern}{METADATA}")) for pattern in _PATTERNS)
    older = (sorted(filter(_is_structure, folder.glob(f"{pattern}{STRUCTURE}"))) for pattern in _PATTERNS)
    files = next(filter(None, (*of_today, *older)), [])
    return [file.parent for file in files]


def is_ocdbt(folder: Path) -> bool:
    """Return whether the arrays of a tree are in one store (OCDBT), and not each in a folder (zarr)."""
    return (folder / _MANIFEST).is_file()


def _is_structure(file: Path) -> bool:
    """Return whether a file holds the structure of an older tree, which is MessagePack; False where there is
    no file.
    """
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return is_tree(stream.read(8))


def _is_orbax(content: Content) -> bool:
    return content.path.is_dir() and bool(find_trees(content.path))


def holds_arrays(content: Content) -> bool:
    """Return whether a folder has arrays as orbax keeps them."""
    folder = content.path
    return folder.is_dir() and (is_ocdbt(folder) or any(folder.glob("*/.zarray")))


FORMATS = (
    Format("orbax", "a folder of orbax", _is_orbax, reader("porter.formats.orbax.read", "read_orbax")),
)

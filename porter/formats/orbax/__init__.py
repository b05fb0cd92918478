"""Folders of orbax, as people who train in Flax save: a tree of arrays, in OCDBT or in zarr."""

from __future__ import annotations

from pathlib import Path

from porter.formats.format import Content, Format, reader
from porter.formats.msgpack import is_tree

METADATA = "_METADATA"
STRUCTURE = "checkpoint"
"""The file that says the structure in a folder without `_METADATA`, as orbax wrote it before 0.3.3."""
_FOLDERS = ("", "*/", "[0-9]*/*/")
"""The folder of a tree, of a step of a CheckpointManager, and of a CheckpointManager."""
_MANIFEST = "manifest.ocdbt"


def trees_in(folder: Path) -> list[Path]:
    """The folders of trees in a folder, which may be one itself."""
    of_today = (sorted(folder.glob(f"{within}{METADATA}")) for within in _FOLDERS)
    older = (sorted(filter(_is_structure, folder.glob(f"{within}{STRUCTURE}"))) for within in _FOLDERS)
    files = next(filter(None, (*of_today, *older)), [])
    return [file.parent for file in files]


def is_ocdbt(folder: Path) -> bool:
    """Whether the arrays of a tree are in one store, and not each in a folder."""
    return (folder / _MANIFEST).is_file()


def _is_structure(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return is_tree(stream.read(8))


def _is_orbax(content: Content) -> bool:
    return content.path.is_dir() and bool(trees_in(content.path))


def holds_arrays(content: Content) -> bool:
    """Whether a folder has arrays as orbax keeps them."""
    folder = content.path
    return folder.is_dir() and (is_ocdbt(folder) or any(folder.glob("*/.zarray")))


FORMATS = (
    Format("orbax", "a folder of orbax", _is_orbax, reader("porter.formats.orbax.read", "read_orbax")),
)

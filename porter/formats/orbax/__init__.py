"""Folders of orbax, as people who train in Flax save: a tree of arrays, in OCDBT or in zarr."""

from __future__ import annotations

from pathlib import Path

from porter.formats.format import Content, Format, reader

METADATA = "_METADATA"
_TREES = (METADATA, f"*/{METADATA}", f"[0-9]*/*/{METADATA}")
"""In the folder of a tree, of a step of a CheckpointManager, and of a CheckpointManager."""


def trees_in(folder: Path) -> list[Path]:
    """The folders of trees in a folder, which may be one itself."""
    found = (sorted(file.parent for file in folder.glob(pattern)) for pattern in _TREES)
    return next(filter(None, found), [])


def _is_orbax(content: Content) -> bool:
    return content.path.is_dir() and bool(trees_in(content.path))


FORMATS = (
    Format("orbax", "a folder of orbax", _is_orbax, reader("porter.formats.orbax.read", "read_orbax")),
)

"""Paths as callers of the API give them, and as the Hub's cache links them."""

from __future__ import annotations

from pathlib import Path

from porter.base.options import AnyPath


def path_of(path: AnyPath | None) -> Path | None:
    """Return a Path; None for None."""
    return None if path is None else Path(path)


def is_hub_blob(file: Path, folder: Path) -> bool:
    """Return whether a file, whose links are resolved, is one to which a folder of the Hub's cache has links:
    `snapshots` has links to the files in `blobs` of the same repository
    (huggingface_hub/file_download.py, `_create_symlink`).

    Args:
        folder: a snapshot or a folder in one, whose links are resolved.
    """
    snapshots = next((parent for parent in folder.parents if parent.name == "snapshots"), None)
    return snapshots is not None and file.parent == snapshots.parent / "blobs"

"""Paths as callers of the API give them."""

from __future__ import annotations

from pathlib import Path

from porter.base.options import AnyPath


def path_of(path: AnyPath | None) -> Path | None:
    """Return a Path; None for None."""
    return None if path is None else Path(path)

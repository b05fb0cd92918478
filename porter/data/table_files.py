"""What holds for every file of rows with a photo each: Parquet, Arrow, TFRecord."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from porter.base.errors import NotInstalled
from porter.base.package import install

MAX_ROWS = 2_000_000
"""The most rows of one file: a few kilobytes can declare 10**9 empty rows. ImageNet has 1.4 million photos,
in hundreds of files.
"""
MAX_NAME = 4096
"""Characters, or bytes, of one label or file name: the longest path on Linux."""


def import_pyarrow(kind: str, module: str = "pyarrow") -> Any:
    """Import a module of pyarrow, which reads files of this kind, and return it.

    Raises:
        NotInstalled: pyarrow is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise NotInstalled(
            f"pyarrow, which reads {kind} files, cannot be imported: {error}", next=install("data")
        ) from None

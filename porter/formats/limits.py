"""How much memory a weights file may ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from porter.base.errors import FileError

MOST_NODES = 1 << 16
"""What a file lists: its nodes, with the tensors that it stores where these are nodes, or its tensors."""
MOST_LAYERS = 20_000
"""Nodes of the graph that porter reads in a file: each takes a quarter of a millisecond, and more of their
parts are no model's.
"""
MOST_TENSOR_AXES = 32
"""Axes of a stored tensor: numpy before 2 takes no more."""
_MOST_EXPANSION = 64
_NEVER_REFUSED = 64 << 20
_MOST_VALUES = 1 << 21
"""Lists, objects and values in a JSON: Python takes some 100 bytes for each, and 3 bytes of text may state
one. The largest models' have a tenth of that.
"""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""A surrogate: JSON writes a character above 16 bits as two of them, and a single one is no character."""


def most_bytes(file_size: int) -> int:
    """Return the most bytes of tensors that a file of `file_size` bytes may unpack or alias to.

    Deflate expands zeros, and so a bomb, 1032 times; a pruned network stays far below 64 times, and trained
    weights below 2.
    """
    return max(_NEVER_REFUSED, _MOST_EXPANSION * file_size)


def expect_held(tensor_bytes: int, file_size: int, path: Path) -> None:
    """Raise FileError for more bytes of tensors than a file of `file_size` bytes can hold (`most_bytes`)."""
    most = most_bytes(file_size)
    if tensor_bytes > most:
        message = f"the file declares {tensor_bytes} bytes of tensors, more than the {most} it can hold"
        raise FileError(message, where=path)


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file. Raise ValueError if it has more than `most` bytes."""
    if path.stat().st_size > most:
        raise ValueError(f"{path.name} has more than {most >> 20} MiB")
    return path.read_bytes()


class StatedFields(dict[str, Any]):
    """The values that a file states by name. A missing name is damage of the file, so it is a ValueError: a
    KeyError is a fault of porter's.
    """

    def __missing__(self, name: object) -> Any:
        raise ValueError(f"it lacks {name!r:.40}")


def read_json(text: str | bytes) -> Any:
    """Return the content of a stranger's JSON, whose objects are `StatedFields`.

    Raises:
        ValueError: it is no JSON in UTF-8, has half of a character, which no text that is written can hold,
            or more values than any model's. RecursionError: it is nested too deeply.
    """
    # json.loads would take halves of characters.
    text = text if isinstance(text, str) else text.decode("utf-8-sig")
    # Counted before parsing, because the parsed values are what takes the memory.
    if sum(text.count(mark) for mark in ("[", "{", ",")) > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES} values")
    content = json.loads(text, object_pairs_hook=StatedFields)
    if _SURROGATE.search(text):  # encoding raises UnicodeEncodeError, a ValueError, for a single one
        json.dumps(content, ensure_ascii=False).encode()
    return content

"""Parses the protobuf messages of files. The message's class comes from the framework that declares it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from porter.base.errors import FileError

_MOST_BYTES = (1 << 31) - 1
"""protobuf's own limit of a message."""


def parse(path: Path, message: Any, instead: str = "fetch or copy it again") -> Any:
    """`message` with the content of a file.

    Args:
        instead: what to do where the file is larger than a message may be.

    Raises:
        FileError: it cannot be read, is too large, or is no such message.
    """
    decode_error = import_module("google.protobuf.message").DecodeError
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise FileError(
                f"the file has {size} bytes, and a protobuf message has at most {_MOST_BYTES}", where=str(path), next=instead
            )
        message.ParseFromString(path.read_bytes())
    except decode_error:
        raise FileError("the file is cut short or damaged", where=str(path), next="fetch or copy it again") from None
    except OSError as error:
        raise FileError(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    return message

"""Parses the protobuf messages of files: by the class of the framework that declares them, or field by field
without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.errors import FileError
from porter.filegraph.places import Reading

MOST_BYTES = (1 << 31) - 1
"""protobuf's own limit of a message."""
MOST_PARTS = 1 << 20
"""Messages and texts in a message. Two bytes state one, and protobuf takes some 150 for it; a model of 20,000
nodes has 400,000.
"""
_LARGE = 1 << 12
# Wire types, the lower three bits of a field's key.
_VARINT, _DELIMITED = 0, 2
_LONGEST_VARINT = 10
"""Bytes of a varint."""
_FIXED_BYTES = {1: 8, 5: 4}
"""Bytes of a number whose length does not vary, by the kind of its field."""


def parse_message(
    path: Path, message: Any, instead: str = "fetch or copy it again", most_parts: int = MOST_PARTS
) -> Any:
    """Return `message` with the content of a file.

    Args:
        instead: what to do where the file is larger than a message may be.
        most_parts: the messages and texts that it may have.
        message: an empty message of the class that the framework declares.

    Raises:
        FileError: it cannot be read, is too large, has too many parts, or is no such message.
    """
    decode_error = import_module("google.protobuf.message").DecodeError
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise FileError(
                f"the file has {size} bytes, and a protobuf message has at most {MOST_BYTES}",
                where=path,
                next=instead,
            )
        data = path.read_bytes()
        if has_more_parts(data, message.DESCRIPTOR, most_parts):
            raise FileError(
                f"the file has more than {most_parts} messages and texts",
                where=path,
                next="export it again",
            )
        message.ParseFromString(data)
    except decode_error:
        raise FileError(
            "the file is cut short or damaged", where=path, next="fetch or copy it again"
        ) from None
    except OSError as error:
        raise FileError(f"the file cannot be read: {error.strerror}", where=path) from None
    return message


def has_more_parts(data: bytes, descriptor: Any, most: int) -> bool:
    """Return whether a serialised message has more messages and texts in it than `most`, without parsing it.

    Tensors are most of a file: they are passed over first, and a rest that is too short for so many parts is
    not looked at.
    """
    parts = 0
    bytes_left = len(data)
    large = [(0, len(data), descriptor)]
    small = list[tuple[int, int, Any]]()
    # A part takes at least two bytes, so this bounds the parts that are not counted yet.
    while (large or small) and parts + bytes_left // 2 > most:
        start, end, kind = large.pop() if large else small.pop()
        bytes_left -= end - start
        for number, first, last in _delimited_fields(data, start, end):
            field = kind.fields_by_number.get(number)
            if field is None or field.cpp_type not in (field.CPPTYPE_MESSAGE, field.CPPTYPE_STRING):
                continue
            parts += 1
            if parts > most:
                return True
            if field.cpp_type == field.CPPTYPE_MESSAGE and last > first:
                bytes_left += last - first
                waiting = large if last - first >= _LARGE else small
                waiting.append((first, last, field.message_type))
    return False


def _delimited_fields(data: bytes, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the numbers of a message's fields of bytes between `offset` and `end`, and where the content of
    each begins and ends. Other fields are skipped; a damaged one ends the message.
    """
    end_of_data = 0, len(data)  # where a number is cut short, the message ends
    while offset < end:
        key, offset = _varint(data, offset) or end_of_data
        wire_type = key & 7
        if wire_type == _DELIMITED:
            length, offset = _varint(data, offset) or end_of_data
            yield key >> 3, offset, min(offset + length, end)
            offset += length
        elif wire_type == _VARINT:
            _, offset = _varint(data, offset) or end_of_data
        else:
            offset += _FIXED_BYTES.get(wire_type, 0)


def iterate_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a message in their order: the number and the value of each. Integers are those of
    64 bits without a sign.

    Raises:
        ValueError: it is cut short or damaged.
    """
    position = 0
    while position < len(data):
        key, position = expect_varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = expect_varint(data, position)
            yield number, value
            continue
        if kind == _DELIMITED:
            length, position = expect_varint(data, position)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise ValueError(f"a message has a field of kind {kind}")
        content = data[position : position + length]
        if len(content) != length:
            raise ValueError("a message ends inside a field")
        position += length
        yield number, content if kind == _DELIMITED else int.from_bytes(content, "little")


def first_fields(data: bytes, count: int) -> Iterator[tuple[int, int | bytes]]:
    """Yield the first `count` fields of a message, as (number, value). A value longer than `data` is cut.
    Yield fewer where the bytes are no such message: only integers and bytes begin one.
    """
    offset = 0
    for _ in range(count):
        key, offset = _varint(data, offset) or (0, 0)
        if key >> 3 == 0 or key & 7 not in (_VARINT, _DELIMITED) or offset >= len(data):
            return
        value, offset = _varint(data, offset) or (0, len(data))
        if key & 7 == _VARINT:
            yield key >> 3, value
        else:
            yield key >> 3, data[offset : offset + value]
            offset += value


def expect_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a varint and the position after it.

    Raises:
        ValueError: the data ends inside it, or it has more than 64 bits.
    """
    value_and_end = _varint(data, position)
    if value_and_end is None and len(data) - position < _LONGEST_VARINT:
        raise ValueError("it ends inside a number")
    if value_and_end is None or value_and_end[0] >= 1 << 64:
        raise ValueError("a number has more than 64 bits")
    return value_and_end


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int] | None:
    """Return a varint and the position after it; None if the data ends inside it, or if it is longer than
    any.
    """
    if position < len(data) and data[position] < 128:  # nearly every one
        return data[position], position + 1
    value = 0
    for width, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        # Seven bits in each byte, the lowest first.
        value |= (byte & 127) << 7 * width
        if byte < 128:
            return value, position + width + 1
    return None


class AttributeReading(Reading):
    """A node whose attributes are messages with fields of these letters: ONNX's AttributeProto and
    TensorFlow's AttrValue.
    """

    attributes: Mapping[str, Any]

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attributes[name].i) if name in self.attributes else default

    def text(self, name: str, default: str) -> str:
        return self.attributes[name].s.decode("utf-8", "replace") if name in self.attributes else default

    def real(self, name: str, default: float) -> float:
        """Return a float of 32 bits: 0.001 reads as 0.0010000000474974513, also if it is the `default` that
        the file leaves out.
        """
        return float(self.attributes[name].f if name in self.attributes else np.float32(default))

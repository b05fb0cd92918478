"""Unpacks Snappy, in which TensorFlow 1 wrote the index that it put together of several shards'
(format_description.txt).
"""

from __future__ import annotations

from porter.formats.protobuf import expect_varint

_MOST_EXPANSION = 22
"""Three bytes of a copy state at most 64."""


def unpacked(data: bytes) -> bytes:
    """The content of a block.

    Raises:
        ValueError: it is damaged.
    """
    size, position = expect_varint(data, 0)
    if size > _MOST_EXPANSION * len(data):
        raise ValueError(f"{len(data)} compressed bytes state {size}")
    content = bytearray()
    while position < len(data) and len(content) <= size:
        tag = data[position]
        position = position + 1
        kind, length = tag & 3, tag >> 2
        if kind == 0:
            wide = max(0, length - 59)
            length = int.from_bytes(data[position : position + wide], "little") if wide else length
            position += wide
            content += data[position : position + length + 1]
            position += length + 1
            continue
        wide = {1: 1, 2: 2, 3: 4}[kind]
        offset = int.from_bytes(data[position : position + wide], "little")
        position += wide
        if kind == 1:
            offset, length = tag >> 5 << 8 | offset, length & 7
        length += 4 if kind == 1 else 1
        if not 0 < offset <= len(content):
            raise ValueError("a compressed block copies what is before it")
        piece = content[-offset:][:length]
        content += (piece * (length // len(piece) + 1))[:length]
    if len(content) != size or position != len(data):
        raise ValueError(f"{len(content)} bytes in a compressed block that states {size}")
    return bytes(content)

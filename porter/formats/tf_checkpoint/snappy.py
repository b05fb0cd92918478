"""Unpacks Snappy, in which TensorFlow 1 wrote the index that it put together of several shards'
(format_description.txt).
"""

from __future__ import annotations

from porter.formats.protobuf import expect_varint

_MOST_EXPANSION = 22
"""Three bytes of a copy state at most 64."""
_LITERAL, _SHORT_COPY = 0, 1
"""Kinds of elements, the lowest two bits of a tag."""
_OFFSET_BYTES = {1: 1, 2: 2, 3: 4}
"""The bytes of a copy's offset, by its kind."""


def unpack(data: bytes) -> bytes:
    """Return the content of a compressed block.

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
        if kind == _LITERAL:
            # From 60 on, it says in how many bytes behind the tag the length stands: in one to four.
            width = max(0, length - 59)
            length = int.from_bytes(data[position : position + width], "little") if width else length
            position += width
            content += data[position : position + length + 1]
            position += length + 1
            continue
        width = _OFFSET_BYTES[kind]
        offset = int.from_bytes(data[position : position + width], "little")
        position += width
        if kind == _SHORT_COPY:
            # The tag's three highest bits are the offset's, and the next three the length's.
            offset |= tag >> 5 << 8
            length = (length & 7) + 4
        else:
            length += 1
        if not 0 < offset <= len(content):
            raise ValueError("a compressed block copies what is before it")
        # A copy may be longer than what lies before it: it then repeats that.
        piece = content[-offset:][:length]
        content += (piece * (length // len(piece) + 1))[:length]
    if len(content) != size or position != len(data):
        raise ValueError(f"{len(content)} bytes in a compressed block that states {size}")
    return bytes(content)

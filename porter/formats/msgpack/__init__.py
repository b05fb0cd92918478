"""MessagePack as Flax writes trees of arrays (flax/serialization.py): transformers' `flax_model.msgpack`,
checkpoints of linen.
"""

from __future__ import annotations

import re

from porter.formats.format import Format, reader

_MAP_OF_NAMES = re.compile(rb"([\x81-\x8f]|\xde..|\xdf....)([\xa1-\xbf]|\xd9.|\xda..)", re.DOTALL)
"""A map with entries, whose first key is text."""


def is_tree(head: bytes) -> bool:
    """Whether a file that begins so may be such a tree."""
    return _MAP_OF_NAMES.match(head) is not None


FORMATS = (
    Format(
        "flax-msgpack",
        "a .msgpack of Flax",
        lambda content: is_tree(content.head),
        reader("porter.formats.msgpack.read", "read_msgpack"),
    ),
)

"""Caffe's models: a net as text (.prototxt) and its weights (.caffemodel), which stand beside each other."""

from __future__ import annotations

import re
from functools import partial

from porter.formats.format import Content, Format, reader

_LAYER = re.compile(
    r"^\s*layers?\s*\{|^\s*input_(dim|shape)\s*[:{]|^\s*input\s*:\s*[\"']"
    r"|^\s*name\s*:\s*[\"'][^\n]*\slayers?\s*\{",  # a net on one line
    re.MULTILINE,
)
"""What a net's text has: a layer, or an input."""


def _is_net(content: Content) -> bool:
    """Return whether a file is the text of a Caffe net."""
    return bool(_LAYER.search(content.text or ""))


def _is_weights(content: Content) -> bool:
    """Return whether a file is a NetParameter: either it has a name, then layers of the first format, inputs
    or layers; or it has layers only.
    """
    if not content.fields:
        return False
    # Fields of a NetParameter: 1 is its name, 2 layers of the first format, 3 inputs, 100 layers.
    (number, value), *following = content.fields
    if not isinstance(value, bytes):
        return False
    if number == 1:
        is_name = value.isascii() and value.decode().isprintable()
        return is_name and [field for field, _ in following] in ([2], [3], [100])
    # A layer begins with its own name, which is field 1 of bytes: the byte is a line feed.
    return number == 100 and value[:1] == b"\n"


_format = partial(
    Format,
    read=reader("porter.formats.caffe.read", "read_caffe"),
    framework="caffe",
    engine="numpy",
    rows="porter.formats.caffe.rows",
)
FORMATS = (
    _format("caffe-net", "a Caffe net (.prototxt)", _is_net, weights="caffe"),
    _format("caffe", "a .caffemodel of Caffe", _is_weights),
)

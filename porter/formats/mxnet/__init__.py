"""MXNet's models: a graph (NAME-symbol.json) and its arrays (NAME-0000.params), which stand beside each
other.
"""

from __future__ import annotations

import re
from functools import partial

from porter.formats.format import Content, Format, reader, starts_with

_SYMBOL = re.compile(r'\s*\{\s*"nodes"\s*:\s*\[')
LIST_MAGIC = 0x112
"""The number that a .params begins with, in eight bytes: kMXAPINDArrayListMagic (src/c_api/c_api.cc)."""


def _is_symbol(content: Content) -> bool:
    """Return whether a file is the JSON of an MXNet graph."""
    return bool(_SYMBOL.match(content.text or ""))


_format = partial(
    Format,
    read=reader("porter.formats.mxnet.read", "read_mxnet"),
    engine="numpy",
    rows="porter.formats.mxnet.rows",
)
FORMATS = (
    _format("mxnet-symbol", "an MXNet graph (-symbol.json)", _is_symbol, weights="mxnet"),
    _format("mxnet", "MXNet's .params", starts_with(LIST_MAGIC.to_bytes(8, "little"))),
)

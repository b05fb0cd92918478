"""The index of weights in several files of safetensors or PyTorch, as transformers writes them."""

from __future__ import annotations

import re

from porter.formats.format import Content, Format, reader

_INDEX = re.compile(r'\s*\{.*"weight_map"\s*:', re.DOTALL)


def _is_index(content: Content) -> bool:
    return content.text is not None and _INDEX.match(content.text) is not None


FORMATS = (
    Format(
        "sharded",
        "an index of weights in several files (.index.json)",
        _is_index,
        reader("porter.formats.sharded.read", "read_sharded"),
    ),
)

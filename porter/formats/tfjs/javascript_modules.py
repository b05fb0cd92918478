"""Models that a JavaScript package holds as modules: model.json as an object, and each shard as a text in
base 64. They are read as text, and nothing of them is run.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

MODULE = re.compile(r"exports\s*=\s*\{\s*[\"']?(?:modelTopology|weightsManifest|format)\b")
_SHARD = re.compile(rb"exports\s*=\s*[\"']([A-Za-z0-9+/=]*)[\"']")
_TOKEN = re.compile(
    r"""\s*(?:("(?:[^"\\\n]|\\.)*")|'((?:[^'\\\n]|\\.)*)'|([{}\[\]:,])"""
    r"""|(![01]|void 0|[\w$]+(?=\s*:))|(-?[\d.][\w.+-]*|\w+))"""
)
_WORDS = {"!0": "true", "!1": "false", "void 0": "null", "undefined": "null"}
_SUFFIXES = ("", ".js", ".min.js")
"""What the name of a shard's file has behind the name that the model has for it."""


def to_json(text: str) -> str:
    """Return the object that a module exports, as JSON.

    Raises:
        ValueError: it exports none, or computes what it exports.
    """
    module = MODULE.search(text)
    position = text.index("{", module.start()) if module else len(text)
    depth = 0
    parts = list[str]()
    # Until the object's brace is closed.
    while depth or not parts:
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"its module has more than plain values: {text[position : position + 40]!r}")
        # A text in either kind of quotes; a bracket, colon or comma; a key or `!0`; a number or another word.
        quoted, single, mark, word, plain = token.groups()
        position = token.end()
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark or "", 0)
        if single is not None:
            quoted = '"' + single.replace('"', '\\"').replace("\\'", "'") + '"'
        if word is not None:
            quoted = _WORDS.get(word) or f'"{word}"'
        parts.append(quoted or mark or _WORDS.get(plain) or _json_number(plain))
    return "".join(parts)


def _json_number(plain: str) -> str:
    """Return a number as JSON writes it: `.5` and `5.` have their zeros."""
    return re.sub(r"\.(?=\D|$)", ".0", re.sub(r"^(-?)\.", r"\g<1>0.", plain))


def find_shard(path: Path) -> Path | None:
    """Return the file of a shard, which may be a module; None where there is none."""
    return next(
        (file for suffix in _SUFFIXES if (file := path.with_name(path.name + suffix)).is_file()), None
    )


def read_shard(file: Path) -> bytes:
    """Read the bytes of a shard.

    Raises:
        ValueError: it is a module that exports no text in base 64.
    """
    data = file.read_bytes()
    if file.suffix != ".js":
        return data
    match = _SHARD.search(data)
    if match is None:
        raise ValueError(f"its shard '{file.name}' exports no text in base 64")
    return base64.b64decode(match[1], validate=True)

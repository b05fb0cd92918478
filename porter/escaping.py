"""Escapes text from files for a terminal or a report."""

from __future__ import annotations

from unicodedata import category

_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of characters that control a terminal or the order of its text, break a line, or are no text."""
_JOINERS = "\u200c\u200d"
"""Harmless characters of category Cf: Persian words and composed emoji have them."""


def escaped(text: str) -> str:
    r"""`text` with control characters, bidi overrides, line breaks and bytes that are no text (lone surrogates) written as \x1b.

    Everything else stays, such as letters of every script and text that is already escaped.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    acts = category(character) in _ESCAPED and character not in _JOINERS
    return character.encode("unicode_escape").decode() if acts else character

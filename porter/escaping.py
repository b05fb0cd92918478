"""Text that comes from files, as a terminal or a report can show it."""

from __future__ import annotations

from unicodedata import category

_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of what acts on a terminal or on the order of what it shows, breaks a line, or is no text."""
_JOINERS = "\u200c\u200d"
"""Of category Cf and harmless: Persian words and composed emoji have them."""


def escaped(text: str) -> str:
    r"""`text` with control characters, bidi overrides, line breaks and bytes that are no text (lone surrogates) written as \x1b.

    Everything else stays, letters of every script included. What is escaped already stays too.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    acts = category(character) in _ESCAPED and character not in _JOINERS
    return character.encode("unicode_escape").decode() if acts else character

"""Protobuf's text format, which Caffe's nets are written in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from porter.filegraph.places import Watched

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([{}<>\[\]:;,])|([^\s{}<>\[\]:;,"'#]+)|\Z)"""
)
_FALSE = ("false", "f", "0")


@dataclass
class TextMessage:
    """A message: the values of each field, in the file's order."""

    fields: Watched[list[str | TextMessage]] = field(default_factory=Watched)

    def words(self, name: str) -> list[str]:
        """Return the words and texts of a field, in order; none where it is left out."""
        return [value for value in self.fields.get(name, ()) if isinstance(value, str)]

    def word(self, name: str, default: str = "") -> str:
        """Return a field's last value: later ones replace earlier ones, as in protobuf."""
        return (self.words(name) or [default])[-1]

    def number(self, name: str, default: float) -> float:
        return float(self.word(name, str(default)))

    def counts(self, name: str) -> list[int]:
        return [int(value) for value in self.words(name)]

    def count(self, name: str, default: int) -> int:
        """Return the last whole number of a field; the default where it is left out."""
        return (self.counts(name) or [default])[-1]

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """Return rows and columns: `stride_h` and `stride_w`, otherwise one or two numbers of `stride`.
        `kernel_size` is short for `kernel_h` and `kernel_w`.
        """
        values = self.counts(name) or [default]
        short = name.removesuffix("_size")
        return self.count(f"{short}_h", values[0]), self.count(f"{short}_w", values[-1])

    def flag(self, name: str, default: bool) -> bool:
        return self.word(name).lower() not in _FALSE if self.words(name) else default

    def parts(self, name: str) -> list[TextMessage]:
        """Return the messages in a field, in order; none where it is left out."""
        return [value for value in self.fields.get(name, ()) if isinstance(value, TextMessage)]

    def part(self, name: str) -> TextMessage:
        """Return a field's message; an empty one if it is left out."""
        return (self.parts(name) or [TextMessage()])[-1]


def parse_text(text: str) -> TextMessage:
    """Return the message that a text of protobuf states, with all messages in it.

    Raises:
        ValueError: it is no such text.
    """
    root = TextMessage()
    open_messages = [root]
    tokens = _tokens(text)
    for kind, token in tokens:
        if token in (";", ",") and kind == "mark":
            continue
        if token in ("}", ">") and kind == "mark":
            open_messages.pop()
            if not open_messages:
                raise ValueError("a message ends that has not begun")
            continue
        if kind != "word":
            raise ValueError(f"a field has a name, got {token!r}")
        values = open_messages[-1].fields.setdefault(token, [])
        kind, value = next(tokens, ("end", ""))
        # The colon may be left out before a message.
        if (kind, value) == ("mark", ":"):
            kind, value = next(tokens, ("end", ""))
        if (kind, value) == ("mark", "["):
            values += _read_list(tokens)
        elif kind == "mark" and value in ("{", "<"):
            message = TextMessage()
            values.append(message)
            open_messages.append(message)
        elif kind in ("word", "text"):
            values.append(value)
        else:
            raise ValueError(f"the field {token!r} has no value")
    if len(open_messages) > 1:
        raise ValueError("a message does not end")
    return root


def _read_list(tokens: Iterator[tuple[str, str]]) -> list[str]:
    """Return the values of a list in brackets, from the tokens after its beginning."""
    values: list[str] = []
    for kind, token in tokens:
        if (kind, token) == ("mark", "]"):
            return values
        if kind in ("word", "text"):
            values.append(token)
        elif token != ",":
            break
    raise ValueError("a list does not end")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words, numbers, texts and marks of a text, each with its kind."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(
                f"line {text.count(chr(10), 0, position) + 1} is no protobuf text: "
                f"{text[position : position + 40].strip()!r}"
            )
        position = match.end()
        double, single, mark, word = match.groups()
        if mark or word:
            yield ("mark", mark) if mark else ("word", word)
        elif double is not None or single is not None:
            yield "text", double if double is not None else single
        # Nothing but blanks or a comment matched: the end.
        elif position >= len(text):
            return

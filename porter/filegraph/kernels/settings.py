"""What a file states of an operator in words, as porter's own engine decodes it: by Python's literals, and by
nothing that a reader decodes with. A mistake in one of the two is a difference between them.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TRUTHS = {"true": True, "t": True, "false": False, "f": False}
_LONG = re.compile(r"(?<=\d)L")
"""Behind whole numbers that Python 2 wrote, as in `(3L, 3L)`."""
_LONGEST = 1_000
"""So many characters a tuple of numbers has at most."""


@dataclass(frozen=True)
class Settings:
    """The words of an operator by name, each as often as it stands there; of one number, the last one holds.
    What has its default may be left out.
    """

    words: Mapping[str, Sequence[str]]

    def word(self, name: str, default: str = "") -> str:
        """Return the last word of this name, or the default."""
        return [default, *self.words.get(name, ())][-1]

    def values(self, name: str) -> list[Any]:
        """Return the numbers and truths that the words of this name say: `["2", "(3, 3)"]` are 2, 3, 3. A
        word `None` says none.
        """
        values: list[Any] = []
        for literal in map(_literal, self.words.get(name, ())):
            values += literal if isinstance(literal, tuple | list) else [literal]
        return [value for value in values if value is not None]

    def number(self, name: str, default: float) -> float:
        return float([default, *self.values(name)][-1])

    def count(self, name: str, default: int) -> int:
        return int([default, *self.values(name)][-1])

    def counts(self, name: str) -> list[int]:
        return [*map(int, self.values(name))]

    def flag(self, name: str, default: bool = False) -> bool:
        return bool([default, *self.values(name)][-1])

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """Return rows and columns, which names of their own may give: `kernel_h`, `kernel_w` of
        `kernel_size`.
        """
        stated = self.counts(name) or [default]
        stem = name.removesuffix("_size")
        return self.count(f"{stem}_h", stated[0]), self.count(f"{stem}_w", stated[-1])


def _literal(word: str) -> Any:
    """Return the literal that a text is. Raises ValueError if it is none."""
    if word.lower() in _TRUTHS:
        return _TRUTHS[word.lower()]
    if len(word) > _LONGEST:
        raise ValueError(f"a setting of {len(word)} characters is no number")
    try:
        return literal_eval(_LONG.sub("", word.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return float(word)  # such as `inf`, or `08`

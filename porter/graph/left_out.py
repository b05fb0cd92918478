"""Layers of a source that compute something in training only, and that its graph lacks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from porter.graph.graph import INPUT

_KIND = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)


@dataclass(frozen=True)
class LeftOut:
    """A layer that gives its input back outside of training.

    Attributes:
        name: what the file calls it.
        kind: its class: `Dropout`, `RandomFlip`.
        rate: the share that it drops, or the deviation of its noise; None where it has neither, or no number.
        after: path of the node whose value it takes, or `input`; of a file's graph, the node's name. None where no node gives it.
    """

    name: str
    kind: str
    rate: float | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):  # it becomes a comment in code
            raise ValueError(f"'{self.kind[:64]}' is no class of a layer")
        if self.rate is not None and not math.isfinite(self.rate):
            object.__setattr__(self, "rate", None)

    @property
    def words(self) -> str:
        return self.kind if self.rate is None else f"{self.kind}({self.rate:g})"


def notes_on(left_out: Iterable[LeftOut]) -> Mapping[str, str]:
    """By path, what the source has behind a node, for the code of a port."""
    found: dict[str, list[str]] = {}
    for layer in left_out:
        if layer.after is not None:
            found.setdefault(layer.after, []).append(layer.words)
    return {path: _note(path, words) for path, words in found.items()}


def _note(path: str, words: list[str]) -> str:
    where = "in front of it" if path == INPUT else "behind it"
    acts = "which acts" if len(words) == 1 else "which act"
    return f"{where} the source has {', '.join(words)}, {acts} in training only"

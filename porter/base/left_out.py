"""Layers of a source that compute something in training only, and that its graph lacks."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_KIND = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)


@dataclass(frozen=True)
class LeftOut:
    """A layer that gives its input back outside of training.

    Attributes:
        name: what the file calls it.
        kind: its class: `Dropout`, `RandomFlip`.
        rate: the share that it drops, or the deviation of its noise; None where it has neither, or no number.
        after: path of the node whose value it takes, or `input`; of a file's graph, the node's name. None
            where no node gives it.
    """

    name: str
    kind: str
    rate: float | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):  # it becomes a comment in code
            raise ValueError(f"'{self.kind[:64]}' is not the name of a layer's class")
        if self.rate is not None and not math.isfinite(self.rate):
            object.__setattr__(self, "rate", None)

    @property
    def words(self) -> str:
        return self.kind if self.rate is None else f"{self.kind}({self.rate:g})"

"""A difference between two models, and its kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "padding",
    "epsilon",
    "activation",
    "weights",
    "bias",
    "order",
    "scale",
    "operator",
    "missing",
    "extra",
    "preprocessing",
    "labels",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
Finding: TypeAlias = tuple[Kind, str, str]
"""What differs in a pair of units: the kind of the difference, the layer, and the difference in words."""


@dataclass(frozen=True)
class FoundDifference:
    """One difference between two models.

    Attributes:
        kind: one of KINDS.
        a, b: the layers' names in each; None where it has none.
        text: in words.
        apart: how far apart the two layers' values are for the same numbers (relative L2); None where they
            were not run.
        pair: the paths of the units.
    """

    kind: Kind
    a: str | None
    b: str | None
    text: str
    apart: float | None = None
    pair: tuple[str | None, str | None] = (None, None)

    def record(self) -> dict[str, Any]:
        return {"kind": self.kind, "a": self.a, "b": self.b, "text": self.text}

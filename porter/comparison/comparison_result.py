"""What `porter.compare` finds of two models: in lines, as a record, and as a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from porter.base.options import AnyPath
from porter.comparison.found_difference import FoundDifference
from porter.comparison.side_by_side import COLOURS, LayerPair, drawn, page_of
from porter.comparison.sides import SideProof
from porter.files import write_whole
from porter.verification.results import Distance
from porter.verification.verdict import finite_values

Decision: TypeAlias = Literal["same", "differs", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """What `porter.compare` finds.

    Attributes:
        verdict: `same`, `differs` or `undecided`.
        differences: all that were found, in the order of the first model's computation.
        parity: of the outputs of the graphs that were read, in float64; None where they were not run.
        layers: pairs of layers, and those that only one model has.
        size: rows and columns that were compared, `any` where pads are compared for every size.
        proofs: of each model's graph.
        notes: what a reader has to know.
        undecided: why nothing is decided.
    """

    a: str
    b: str
    verdict: Decision
    differences: tuple[FoundDifference, ...]
    parity: Distance | None
    layers: tuple[LayerPair, ...] = ()
    size: str = ""
    proofs: tuple[SideProof, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both models are the same function."""
        return self.verdict == "same"

    @property
    def only_a(self) -> tuple[str, ...]:
        return tuple(each.a for each in self.layers if each.a is not None and each.b is None)

    @property
    def only_b(self) -> tuple[str, ...]:
        return tuple(each.b for each in self.layers if each.b is not None and each.a is None)

    @property
    def summary(self) -> str:
        """The verdict in one line: `A and B differ: 3 differences`."""
        if self.verdict == "same":
            return f"A and B are the same function at {self.size}"
        if self.verdict == "undecided":
            return "undecided: " + "; ".join(self.undecided)
        if not self.differences:
            return "A and B differ: the outputs do"
        if all(difference.kind in ("weights", "bias") for difference in self.differences):
            layers = len({difference.pair for difference in self.differences})
            plural = "s" if layers > 1 else ""
            return f"A and B differ: the same graph, other weights at {layers} layer{plural}"
        count = len(self.differences)
        return f"A and B differ: {count} difference{'s' if count > 1 else ''}"

    def lines(self) -> list[str]:
        """Return the verdict, and each difference, in lines."""
        return [self.summary, *(f"  {each.kind:<13} {each.text}" for each in self.differences)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Show a notebook the verdict, the differences, and both models side by side."""
        proofs = [f"{name}: {proof.words}" for name, proof in zip("AB", self.proofs, strict=False)]
        verdict = self.summary, COLOURS[self.verdict]
        return drawn((self.a, self.b), verdict, self.differences, self.layers, (*proofs, *self.notes))

    def report(self, out: AnyPath) -> Path:
        """Write the same as a self-contained HTML page, and return its path."""
        path = Path(out)
        write_whole(path, page_of((self.a, self.b), self._repr_html_()))
        return path

    def record(self) -> dict[str, Any]:
        """Return the record that `porter compare --json` prints."""
        parity = None if self.parity is None else finite_values(asdict(self.parity))
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "differences": [each.record() for each in self.differences],
            "nodes": {
                "paired": sum(None not in (each.a, each.b) for each in self.layers),
                "only_a": [*self.only_a],
                "only_b": [*self.only_b],
            },
            "parity": parity,
            "size": self.size,
            "proofs": [asdict(each) for each in self.proofs],
            "notes": [*self.notes],
            "undecided": [*self.undecided],
        }

"""The results of comparisons, and their JSON: port.json has a `VerdictRecord`, and `porter verify --json`
prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Protocol, TypeVar

from pydantic import BeforeValidator, Field

from porter.base.dtypes import Dtype
from porter.padding.sizes import size_text
from porter.port import AGREES, OWN_BUILD, UNHELD

NOT_FINITE = "is not finite"
ALIKE = "is the same for every input"

Amount = Annotated[float, BeforeValidator(lambda value: inf if value is None else value)]
"""A number of which JSON has null where it is infinite or undefined, which is read as infinite."""


class _Measured(Protocol):
    @property
    def rel_l2(self) -> float: ...


Measured = TypeVar("Measured", bound=_Measured)


def severity(rel_l2: float) -> float:
    """Return a relative distance, and infinity for one that is undefined: the norms of numbers near float64's
    largest are infinite, and their ratio is NaN, which no comparison finds larger than another number.
    """
    return rel_l2 if rel_l2 >= 0 else inf


def farthest(distances: Iterable[Measured]) -> Measured:
    """Return the first of those with the largest `rel_l2`. An undefined one counts as infinite."""
    return max(distances, key=lambda measured: severity(measured.rel_l2))


@dataclass(frozen=True)
class Distance:
    """The distance of a port's values from its source's.

    Attributes:
        max_abs: the largest absolute difference.
        l1: the mean absolute difference.
        rel_l2: the norm of the difference over the norm of the source's values.
        snr_db: 20 log10 of the inverse of `rel_l2`; None if the values are equal.
        psnr_db: as `snr_db`, but from the source's largest absolute value and the root mean square
            difference.
        argmax_equal: whether every image has its largest logit at the same place; None for anything but N x
            C.
    """

    max_abs: Amount
    l1: Amount
    rel_l2: Amount
    snr_db: float | None
    psnr_db: float | None
    argmax_equal: bool | None

    def argmax(self, changed: bool) -> str | None:
        """Say `argmax_equal` in words. Return None for anything but N x C, which has no top class.

        Args:
            changed: whether a top class differs by more than rounding can explain.
        """
        if self.argmax_equal is None:
            return None
        if self.argmax_equal:
            return "equal"
        return "DIFFERS" if changed else "differs in a tie"


@dataclass(frozen=True)
class NodeDistance:
    """A compared node. `rel_l2` must not exceed `limit`; `rounding` is the source's distance from itself in
    float64.
    """

    path: str
    rel_l2: Amount
    max_abs: Amount
    limit: Amount
    rounding: Amount = 0.0

    @property
    def ok(self) -> bool:
        """Whether its distance is finite and within its limit, which is finite too."""
        return 0 <= self.rel_l2 <= self.limit < inf


@dataclass(frozen=True)
class FirstBad:
    """The first node, in the order of computation, at which the port differs from its source.

    `site` is the padding site that it may come from, with its decision: the node itself or the nearest of
    `unseen`, if the window is larger than 1x1. `shapes` are the source's and the port's, where they differ.
    `unseen` are the nodes between this one and the nearest ones before it that the source shows, whose values
    are equal. `alone` says that it differs for random inputs of its own (porter.verification.cut_points).
    """

    path: str
    rel_l2: Amount
    site: str | None
    source: str | None
    realised: str | None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    unseen: tuple[str, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class CutCounts:
    """How many nodes were compared at cut points (porter.verification.cut_points).

    Attributes:
        linear: linear ones, each from random numbers for all that it reads.
        others: other ones, likewise.
        inside: the paths of those that were compared inside the network only.
        joined: those that were compared together with what they read, or with what reads them, because one
            side does not show what lies between.
        least: the rows and columns from which on what was shown holds at every size; None where it was shown
            for the sizes that were run.
    """

    linear: int
    others: int
    inside: tuple[str, ...] = ()
    joined: int = 0
    least: tuple[int, int] | None = None

    def __str__(self) -> str:
        """Say how many of all nodes were compared alone, together with others, or inside the network only,
        and from which size on this holds.
        """
        alone, inside = self.linear + self.others, len(self.inside)
        joined = f"; {self.joined} together with those beside them" if self.joined else ""
        only = f"; {inside} inside the network only" if inside else ""
        sizes = "" if self.least is None else f"; for every size from {size_text(self.least)} on"
        return (
            f"{alone} of {alone + self.joined + inside} nodes equal for random inputs of their own, "
            f"{self.linear} of them linear{joined}{only}{sizes}"
        )


@dataclass(frozen=True)
class Parity:
    """A comparison of a port with a reference in one number type.

    Attributes:
        ok: the values tell, and all are within their limits; or float64 proves the port, and what exceeds
            them is rounding.
        reference: the name of the reference; OWN_BUILD counts as no proof.
        dtype: in which both sides ran.
        limit: for `logits.rel_l2`.
        source_rounding: the distance of the source in this dtype from itself in float64, at the logits.
        logits: the worst over `sizes`.
        nodes: the worst of each compared node over `sizes`, in order of computation.
        uncompared: nodes for which the reference has no value.
        unexcited: compared nodes that have the same values for every input, which say nothing of what
            computes them.
        unreached: activations with a bound, such as a ReLU6's 6, that no value reached, max pools whose pads
            and norms whose epsilon no value showed: nothing is known of these.
        silent: why the values prove nothing though they are equal, such as an output of the reference that is
            the same for every input (porter.verification.evidence); None if they tell.
        top_changed: an image has another top class, by more than rounding can explain.
        rounds_from: the first node whose float32 error is above its limit, where float64 proves the port.
        run_by: what ran the reference, in words; empty in records of older porters.
        unheld: the program that was not asked whether it reads the file as porter does, which the port and
            the reference rest on, and why (porter.verification.witnesses).
        faint: compared nodes whose values are smaller than what float32 computes them from, whose distances
            are over what it may be off by (porter.verification.float32_errors).
        cut: what was compared at cut points, in float64, and where a converter made the port's file in its
            number type; None where the reference takes no other values than its own.
    """

    ok: bool
    reference: str
    dtype: Dtype
    sizes: tuple[tuple[int, int], ...]
    inputs: int
    limit: Amount
    source_rounding: Amount
    logits: Distance
    first_bad: FirstBad | None
    nodes: Annotated[tuple[NodeDistance, ...], Field(min_length=1, max_length=20_000)] = field(repr=False)
    uncompared: tuple[str, ...] = field(repr=False)
    unexcited: tuple[str, ...] = field(default=(), repr=False)
    unreached: tuple[str, ...] = field(default=(), repr=False)
    silent: str | None = None
    top_changed: bool = False
    rounds_from: str | None = None
    run_by: str = ""
    faint: tuple[str, ...] = field(default=(), repr=False)
    unheld: str | None = None
    cut: CutCounts | None = None

    @property
    def proves(self) -> bool:
        """Whether the reference is one that porter did not write, and the port is its function."""
        return self.ok and self.reference != OWN_BUILD and self.unheld is None

    @property
    def outcome(self) -> str:
        """What the comparison shows, in words that a place can follow."""
        if not self.ok:
            return f"{'DIFFERS from' if self.silent is None else 'NOT PROVED by'} {self.reference}"
        if self.unheld is not None:
            return f"{UNHELD} {self.unheld}; {self.reference}"
        return f"same function as {self.reference}" if self.proves else f"{AGREES},"

    @property
    def infinite(self) -> bool:
        """Whether an output of the reference is infinite or undefined in float64, where no image is too large
        for right weights.
        """
        return self.dtype == "float64" and NOT_FINITE in (self.silent or "")

    @property
    def argmax(self) -> str | None:
        """Where the largest logits are; None for anything but N x C."""
        return self.logits.argmax(self.top_changed)

    @property
    def worst(self) -> NodeDistance:
        """The node farthest from its source."""
        return farthest(self.nodes)

    def without_nodes(self, paths: Set[str]) -> Parity:
        """Return the comparison without the nodes at `paths`, which are none of the outputs. They count as
        not compared, and whether it is `ok` is judged by those that are left.
        """
        nodes = tuple(node for node in self.nodes if node.path not in paths)
        bad = self.first_bad
        if bad is not None and bad.path in paths:
            next_wrong = next((node for node in nodes if not node.ok), None)
            bad = FirstBad(next_wrong.path, next_wrong.rel_l2, None, None, None) if next_wrong else None
        uncompared = (*self.uncompared, *(node.path for node in self.nodes if node.path in paths))
        ok = self.silent is None and not self.top_changed and all(node.ok for node in nodes)
        return replace(self, nodes=nodes, first_bad=bad, uncompared=uncompared, ok=ok)


@dataclass(frozen=True)
class DtypeRecord:
    """What is recorded of a comparison in each number type; see Parity. Older porters did not record `sizes`
    and `inputs` here.
    """

    ok: bool
    rounds_from: str | None = field(default=None, kw_only=True)
    sizes: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    inputs: int = field(default=0, kw_only=True)
    logits: Distance
    limit: Amount
    source_rounding: Amount

    @property
    def argmax(self) -> str | None:
        """Where the largest logits are, as Parity.argmax says it; where the record is not ok, a difference is
        no tie.
        """
        return self.logits.argmax(not self.ok)


@dataclass(frozen=True)
class ShippedRecord:
    """What is recorded of a proof of the shipped pads (porter.verification.verdict.Shipped)."""

    reference: str
    rel_l2: Amount
    argmax_differ: int
    images: int
    dtypes: Mapping[str, DtypeRecord]


def rounds_more(dtype: str, path: str) -> str:
    """Say from which node on a number type's error is above its limit, where float64 proves the port."""
    return f"the {dtype} error is above its limit from {path} on"


def most_exact(parities: Sequence[Parity]) -> Parity:
    """Return of the comparisons with one source, of which each is in a more exact number type than the one
    before, that in the most exact.
    """
    return parities[-1]


@dataclass(frozen=True)
class UserProofRecord:
    """What is recorded of a proof by the user's own reference (porter.verification.verdict.UserProof)."""

    reference: str
    dtypes: Mapping[str, DtypeRecord]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class VerdictRecord(Parity):
    """What is recorded of a porter.verification.verdict.Verdict: its proof, and every comparison's logits by
    number type.

    `range` is the verdict's `fed`, in words. What older porters did not record has a default.
    """

    range: str = ""
    disagreement: str | None = None
    held: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    dtypes: Mapping[str, DtypeRecord] = field(kw_only=True)
    shipped: ShippedRecord | None = None
    given: UserProofRecord | None = None
    loss: Distance | None = None
    rounding: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the figures, and not only the record's `ok`, say that the functions are equal."""
        other_comparisons = [
            comparison
            for proof in (self.shipped, self.given)
            if proof is not None
            for comparison in proof.dtypes.values()
        ]
        return (
            self.ok
            and all(comparison.ok for comparison in other_comparisons)
            and not self.top_changed
            and all(node.ok for node in self.nodes)
        )

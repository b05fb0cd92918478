"""The verdict on a port: its comparisons with its references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, TypeVar

from porter.base.errors import some
from porter.base.options import CHECK, REFERENCE
from porter.port import AGREES, PASSED, UNHELD, ReferenceFile
from porter.verification.inputs import InputRange
from porter.verification.results import (
    ALIKE,
    Distance,
    DtypeRecord,
    Parity,
    ShippedRecord,
    UserProofRecord,
    VerdictRecord,
    most_exact,
)

Proof = TypeVar("Proof", "Verdict", "UserProof")


@dataclass(frozen=True)
class Shipped:
    """The proof of the shipped pads, for a port with training pads.

    Attributes:
        parities: comparisons of the same graph with the shipped pads, in the source's framework, with the
            reference.
        rel_l2: the relative L2 distance between the reference's logits and those with training pads, in
            float64.
        argmax_differ: the number of `images` whose largest logit is at another place.
    """

    parities: tuple[Parity, ...]
    rel_l2: float
    argmax_differ: int
    images: int

    def record(self) -> ShippedRecord:
        return ShippedRecord(
            most_exact(self.parities).reference,
            self.rel_l2,
            self.argmax_differ,
            self.images,
            _summaries(self.parities),
        )


@dataclass(frozen=True)
class UserProof:
    """The comparisons with the user's own reference, and notes on what it ran with.

    Attributes:
        file: None where it is the model in memory that was ported.
        apart: see porter.verification.references.user_reference.UserReference.
        fed: see Verdict.
    """

    file: ReferenceFile | None
    parities: tuple[Parity, ...]
    notes: tuple[str, ...]
    apart: Mapping[str, float]
    fed: InputRange

    @property
    def all(self) -> tuple[Parity, ...]:
        return self.parities

    def record(self) -> UserProofRecord:
        return UserProofRecord(most_exact(self.parities).reference, _summaries(self.parities), self.notes)


@dataclass(frozen=True)
class Verdict:
    """The comparisons in each number type; the last is the most exact.

    Attributes:
        fed: the range of the numbers that both sides were fed.
        shipped: the proof of the shipped pads, if the port has training pads.
        rounding: see porter.port.Record.
        notes: on code that no comparison covers.
        loss: of the port's output by the rounding of its weights, where it was measured.
        user_proof: the proof by the user's own reference; `parities` is empty if no other reference can run.
        disagreement: what two implementations that porter did not write disagree on, if the comparison
            failed or only rounding explains it; one is wrong, so that nothing is proved.
        held: to what other programs the reading is held that both sides share
            (porter.verification.witnesses), in sentences.
        not_run: better references than the one of `parities`, and why they were not run, in sentences.
    """

    parities: tuple[Parity, ...]
    fed: InputRange
    shipped: Shipped | None = None
    rounding: str | None = None
    notes: tuple[str, ...] = ()
    loss: Distance | None = None
    user_proof: UserProof | None = None
    disagreement: str | None = None
    held: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.proof.ok and self.disagreement is None

    @property
    def check(self) -> str:
        """What port.json says of a verdict that is ok; see porter.port.Record.check."""
        if self.proof.proves or (self.user_proof is not None and most_exact(self.user_proof.parities).proves):
            return PASSED
        return AGREES if self.proof.unheld is None else f"{UNHELD} {self.proof.unheld}"

    @property
    def all(self) -> tuple[Parity, ...]:
        """Return every comparison, in the order in which they are judged: with the shipped pads, with the
        source, with the user's own reference.
        """
        return (
            *(self.shipped.parities if self.shipped else ()),
            *self.parities,
            *(self.user_proof.all if self.user_proof else ()),
        )

    @property
    def decisive(self) -> tuple[Parity, ...]:
        """The comparisons with the source, or those with the user's own reference where no other can run."""
        return self.parities or (self.user_proof.parities if self.user_proof else ())

    @property
    def proof(self) -> Parity:
        """Return the most exact comparison, or the first that failed, in float64 if one did."""
        failed = [parity for parity in self.all if not parity.ok]
        if failed:
            return min(failed, key=lambda parity: parity.dtype != "float64")
        return most_exact(self.decisive)

    @property
    def rounds(self) -> Parity | None:
        """The comparison whose values round more than they should, though float64 proves the port."""
        return next((parity for parity in self.all if parity.rounds_from is not None), None)

    @property
    def advice(self) -> str | None:
        """Return what to do next where the reference's values tell nothing, or two references disagree; None
        otherwise.
        """
        if self.disagreement is not None:
            return f"compare the port with another implementation: {REFERENCE('FILE.py:CALLABLE')}"
        if self.proof.silent is None:
            return None
        if self._is_alike:
            return (
                "train the network further, or check that these are its trained weights; or write the port "
                f"without a proof: {CHECK(False)}"
            )
        return (
            f"compare the port with another implementation: {REFERENCE('FILE.py:CALLABLE')}; or write it "
            f"without a proof: {CHECK(False)}"
        )

    @property
    def _is_alike(self) -> bool:
        """Whether the network itself, and no reference, is why nothing is proved."""
        return (
            self.disagreement is None
            and self.user_proof is None
            and (self.proof.silent or "").endswith(ALIKE)
        )

    def held_to(self, held: tuple[str, ...], unheld: str | None) -> Verdict:
        """Return the verdict with what a program that porter did not write says of porter's reading of the
        file (porter.verification.witnesses).

        Args:
            held: a line for each thing of the file that the program reads as porter does.
            unheld: the program that could not be asked and why; None if there is none. A proof by the user's
                reference stays as it is, because it does not rest on porter's reading.
        """

        def with_unheld(parities: Iterable[Parity]) -> tuple[Parity, ...]:
            return tuple(replace(parity, unheld=unheld or parity.unheld) for parity in parities)

        shipped = self.shipped and replace(self.shipped, parities=with_unheld(self.shipped.parities))
        return replace(self, parities=with_unheld(self.parities), shipped=shipped, held=held)

    def failure(self) -> str:
        """Say in one line what failed, with the first node that differs and its padding decision."""
        proof = self.proof
        if self.disagreement is not None or proof.silent is not None:
            return self._unproved()
        if self.user_proof is not None and proof in self.user_proof.parities:
            notes = "".join(f"; {note}" for note in self.user_proof.notes)
            difference = self._first_difference("the port", self.user_proof)
            return f"the port is not the function of {proof.reference}: {difference}{notes}"
        subject = "the port" if proof in self.parities else "porter's own build with the shipped pads"
        difference = self._first_difference(subject, None)
        if proof.first_bad is None:  # only the top class differs
            return difference
        return f"{subject} is not the source's function: {difference}"

    def _unproved(self) -> str:
        """Say why nothing is proved: two references disagree, or the reference's values tell nothing."""
        proof, bad = self.proof, self.proof.first_bad
        if self.disagreement is not None:
            where = ""
            if bad:
                distance = f"{bad.rel_l2:.1e} from {proof.reference}'s in {proof.dtype}"
                where = f"; {bad.path} of the port is {distance}"
            return f"not proved: {self.disagreement}{where}"
        differs = f"; {bad.path} is the first node that differs, relative L2 {bad.rel_l2:.1e}" if bad else ""
        constant = "the network gives the same output for all images: " if self._is_alike else ""
        return (
            f"not proved: {constant}{proof.silent} on inputs of {self.fed.words}, so a wrong port "
            f"would pass too{differs}"
        )

    def _first_difference(self, subject: str, user_proof: UserProof | None) -> str:
        """Say which node of `subject` differs first and how, or that only the top class does, for instance
        `conv1 is the first node that differs, relative L2 2.1e-02 in float64; padding at conv1: ...`.

        Args:
            user_proof: the proof by the user's own reference, if that one failed.
        """
        proof, bad = self.proof, self.proof.first_bad
        if bad is None:
            distance = f"relative L2 {proof.logits.rel_l2:.1e}"
            return f"the largest logit has another index in {proof.dtype} ({distance})"
        difference = f"relative L2 {bad.rel_l2:.1e} in {proof.dtype}"
        if bad.alone:
            difference += " for random inputs of its own"
        if bad.shapes is not None:
            of_source, of_port = ("x".join(map(str, shape)) for shape in bad.shapes)
            difference = f"{of_port} in {subject} and {of_source} in {proof.reference}"
        if bad.unseen:
            difference += f"; before it {some(bad.unseen)} could not be compared"
        distances = {} if user_proof is None else user_proof.apart
        differing = next((path for path in (bad.path, *bad.unseen) if path in distances), None)
        if differing is not None:
            difference += f"; the weights of {differing} are {distances[differing]:.1e} from the source's"
        elif bad.site is not None:
            source = f"{bad.source} in the source, " if user_proof is None else ""
            difference += f"; padding at {bad.site}: {source}{bad.realised} in {subject}"
        return f"{bad.path} is the first node that differs, {difference}"

    def record(self) -> dict[str, Any]:
        """Return the record that `porter verify --json` prints and port.json has:
        porter.verification.results.VerdictRecord.
        """
        verdict_record = VerdictRecord(
            **{**vars(self.proof), "ok": self.ok},
            range=self.fed.words,
            disagreement=self.disagreement,
            held=self.held,
            not_run=self.not_run,
            dtypes=_summaries(self.decisive),
            shipped=self.shipped.record() if self.shipped else None,
            given=self.user_proof.record() if self.user_proof else None,
            rounding=self.rounding,
            loss=self.loss,
            notes=self.notes,
        )
        record: dict[str, Any] = finite_values(asdict(verdict_record))
        return record


def first_telling(proofs: Iterable[Proof]) -> Proof:
    """Return the first proof on values that tell, otherwise the first of all. It stops where values are
    infinite in float64, because no input helps there.
    """
    first: Proof | None = None
    for proof in proofs:
        if all(parity.ok or parity.silent is None for parity in proof.all):
            return proof
        first = first or proof
        if any(parity.infinite for parity in proof.all):
            break
    assert first is not None, "a network takes one range of inputs at least"
    return first


def _summaries(parities: Sequence[Parity]) -> dict[str, DtypeRecord]:
    """Return by number type what port.json has of each comparison."""
    return {
        parity.dtype: DtypeRecord(
            parity.ok,
            parity.logits,
            parity.limit,
            parity.source_rounding,
            rounds_from=parity.rounds_from,
            sizes=parity.sizes,
            inputs=parity.inputs,
        )
        for parity in parities
    }


def finite_values(value: Any) -> Any:
    """Return the value for JSON: an infinite or undefined distance becomes null."""
    if isinstance(value, dict):
        return {key: finite_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_values(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value

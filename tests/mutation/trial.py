"""Asks the proof about mutants, and the judge whether it was right."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.base.errors import PorterError
from porter.verification.inputs import FALLBACKS, InputRange
from tests.mutation.judge import MOVED, Judge
from tests.mutation.memory import ask, with_function
from tests.mutation.mistakes import Mutant, plant, right
from tests.mutation.of_wiring import KINDS
from tests.mutation.reasons import reason
from tests.mutation.rewrites import rewrites
from tests.mutation.subjects import Subject, subject
from tests.support.arrays import Array

BEYOND = (
    "nothing states the range of the inputs, and it is another function beyond the one that the "
    "proof took and names"
)


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant.

    Attributes:
        state: `killed`, `escaped`, `equivalent`, or `refused, equal`, of a mutant that is refused and moves
            no output; of a right port `right` or `right, refused`.
        why: of an equivalent one where its difference ends; of the others what the proof said.
        moved: the judge's distance.
        seconds: of processor time, of all outcomes of a port, at its first.
    """

    key: str
    index: int
    kind: str
    what: str
    state: str
    why: str
    moved: float
    seconds: float = 0.0


def trials(subject: Subject, kinds: Sequence[str], count: int, index: int | None = None) -> Iterator[Outcome]:
    """The right port, and `count` mutants of it, or the one at `index` only."""
    outcomes, fed = rights(subject, index is None)
    yield from outcomes
    if fed is not None:
        yield from mutants(subject, fed, kinds, range(count) if index is None else (index,))


def rights(subject: Subject, also_rewritten: bool = True) -> tuple[list[Outcome], InputRange | None]:
    """The right port, as it is and written otherwise, and on which inputs it was proved; None if it was
    not.
    """
    found, said = ask(subject.port, subject.source)
    if found is None or not found.ok:
        fair = (
            found is not None
            and found.proof.silent is not None
            and _tells_nothing(subject, str(found.proof.silent))
        )
        return [
            Outcome(
                subject.key, -1, "none", "", "right, not provable" if fair else "right, refused", said, 0.0
            )
        ], None
    outcomes = [Outcome(subject.key, -1, "none", "", "right", said, 0.0)]
    for what, rewritten in rewrites(subject.port) if also_rewritten else ():
        other, said = ask(rewritten, subject.source)
        fine = other is not None and other.ok
        outcomes.append(
            Outcome(subject.key, -2, f"right: {what}", "", "right" if fine else "right, refused", said, 0.0)
        )
    return outcomes, found.fed


def mutants(
    subject: Subject, fed: InputRange, kinds: Sequence[str], indices: Iterable[int]
) -> Iterator[Outcome]:
    """What becomes of mistakes of these kinds in the right port, which was proved on inputs of the range
    `fed`.
    """
    graph, tensors = subject.port.graph, subject.port.held
    native = subject.port.plan.only_size or subject.port.record.input.native_size
    judge = Judge(graph, tensors, subject.taken or fed, subject.sizes, subject.seed)
    function = right(graph, tensors, native)
    for at in indices:
        rng = np.random.default_rng([subject.seed, at])
        for kind in rng.permutation(list(kinds)):
            mutant = plant(function, str(kind), KINDS[str(kind)], rng)
            outcome = None if mutant is None else _outcome(subject, at, mutant, judge)
            if outcome is not None:
                yield outcome
                break


def of_key(task: tuple[str, str, int, int | None]) -> list[Outcome]:
    """The outcomes of a right port's key, for kinds that contain a text, how many mutants, and of one index
    only or of all.
    """
    key, text, count, index = task
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = subject(key)
        if made is None:
            return [Outcome(key, -1, "none", "", "no subject", "", 0.0)]
        found = list(trials(made, [kind for kind in KINDS if text in kind], count, index))
        return [replace(found[0], seconds=time.process_time() - start), *found[1:]]


def _tells_nothing(subject: Subject, silent: str) -> bool:
    """Whether the output that a proof says to tell nothing has the same values for all of the judge's images,
    two only, or some that are infinite in float32.
    """
    path = next((path for path in subject.port.graph.outputs if f"'s {path} " in silent), None)
    for taken in (subject.taken,) if subject.taken else FALLBACKS:
        judge, values = (
            Judge(subject.port.graph, subject.port.held, taken, subject.sizes[:1], subject.seed),
            list[Array](),
        )
        values = [outputs[path] for _, outputs, _ in judge.batches()] if path else []
        whole = np.concatenate(values)
        if np.abs(whole).max() > np.finfo(np.float32).max or np.isnan(whole).any():
            continue
        rounded = np.round(whole / (np.abs(whole).max() or 1), 6)
        if not (whole.std(axis=0).max() <= 1e-6 * np.abs(whole).max() or np.unique(rounded).size <= 2):
            return False
    return True


def _moves_beyond(subject: Subject, mutant: Mutant, judge: Judge) -> bool:
    """Whether a mutant is another function in a range that the network may take, but that the proof did not:
    nothing states it.
    """
    others = [] if subject.taken else [taken for taken in FALLBACKS if taken is not judge.taken]
    return any(replace(judge, taken=taken).moved(mutant.graph, mutant.tensors) > MOVED for taken in others)


def _outcome(subject: Subject, index: int, mutant: Mutant, judge: Judge) -> Outcome | None:
    """None if the mutant is no port: it has no exact form in the destination."""
    try:
        port = with_function(subject.port, mutant.graph, mutant.tensors)
    except PorterError:
        return None
    verdict, said = ask(port, subject.source)
    accepted = verdict is not None and verdict.ok
    shown = {node.path: node.rel_l2 for node in verdict.proof.nodes} if verdict is not None else {}
    far = max((shown.get(path, 0.0) for path in mutant.graph.outputs), default=0.0)
    moved = far if not accepted and far > 100 * MOVED else judge.moved(mutant.graph, mutant.tensors)
    is_moved = moved > MOVED
    state = (
        ("escaped" if is_moved else "equivalent") if accepted else "killed" if is_moved else "refused, equal"
    )
    why = (
        said
        if state != "equivalent"
        else BEYOND
        if _moves_beyond(subject, mutant, judge)
        else reason(judge, mutant)
    )
    return Outcome(subject.key, index, mutant.kind, mutant.what, state, why, moved)

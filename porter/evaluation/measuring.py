"""One pass of ports over a set of photos, with or without their sources beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from porter.base.dtypes import NamedArrays
from porter.base.ways_to_run import FP32, Run
from porter.data.photos import Photo
from porter.data.preprocess import Preprocess
from porter.evaluation.distributed import Process
from porter.evaluation.photo_distances import (
    PLAIN_ROLE,
    PORT_ROLE,
    SOURCE_ROLE,
    PhotoDistances,
    merge_distances,
)
from porter.evaluation.photo_options import Options
from porter.evaluation.scoring import Logits, Scored, Watching, merge_scored, score
from porter.evaluation.source_run import source_classifier
from porter.evaluation.speed import AS_ASKED, LONG, Tried, Way, images_a_second, try_runs
from porter.frameworks import Classifier
from porter.port import Facts, StoredPort
from porter.source.opened import Opened

KEPT_EVERY = 60.0
"""Seconds. To keep what was measured of 50,000 photos takes one."""


def logits_of(facts: Facts) -> Logits:
    """Say what the logits of a model are, from the facts of its port."""
    return Logits(facts.background, facts.activation)


@dataclass(frozen=True)
class Measured:
    """The result of a pass.

    Attributes:
        compared: source and port photo by photo; None if only the port ran.
        reference: the name of the model that computed the source's logits.
        earlier: the number of photos that a run scored which was ended.
        way: how the port ran.
    """

    scored: Scored
    compared: PhotoDistances | None = None
    reference: str = ""
    warnings: tuple[str, ...] = ()
    earlier: int = 0
    way: Way = AS_ASKED


@dataclass(frozen=True)
class Entrant:
    """A port to measure.

    Attributes:
        protocol: how photos are prepared for it; ports of one pass have its `geometry` and its crop in
            common.
        opened: the source to run beside the port, or None.
    """

    port: StoredPort
    protocol: Preprocess
    opened: Opened | None = None


def measure(
    entrants: Sequence[Entrant],
    photos: Sequence[Photo],
    options: Options,
    process: Process,
    earlier: Sequence[Measured] | None = None,
    keep: Callable[[Sequence[Measured]], object] | None = None,
) -> list[Measured]:
    """Run the models over this process's part of the photos, in one pass for all ports, and return what was
    measured of each port.

    Args:
        entrants: the ports with their protocols, and their sources if these run beside them.
        earlier: what a run of the same ports, photos and settings measured before it was ended. This one goes
            on there.
        keep: is given what was measured so far, every KEPT_EVERY seconds.

    Raises:
        PorterError: a device, a precision or a framework is not available.
    """
    device = process.device(options.device)
    ready = [_make_ready(entrant, options, device, len(photos)) for entrant in entrants]
    passing = _Pass(ready, earlier, keep)
    models, logits = passing.models()
    done = int(earlier[0].scored.reached.sum()) if earlier else 0
    feed = replace(options.feed(options.crops, len(photos), process), done=done)
    scored = score(
        photos, entrants[0].protocol, models, feed, logits, Watching(passing.watch, passing.keep_so_far)
    )
    # After a long pass, each port is timed by itself: was it the network or the photos that took the time?
    if scored.complete and scored.seconds >= LONG:
        for of_entrant in ready:
            pixels = options.made_pixels(of_entrant.entrant.protocol)
            of_entrant.network = images_a_second(of_entrant.models[PORT_ROLE], pixels)
    return passing.results(scored)


@dataclass
class _ReadyEntrant:
    """An entrant whose models can be called.

    Attributes:
        models: by role.
        tried: the runs that were tried, where the fastest one is wanted.
        pair: what is seen of the port beside its source.
        reference, warnings: what its source is run by, and what limits that.
        network: images a second of the port alone.
    """

    entrant: Entrant
    run: Run
    tried: tuple[Tried, ...]
    models: dict[str, Classifier]
    pair: PhotoDistances | None = None
    reference: str = ""
    warnings: tuple[str, ...] = ()
    network: float | None = None

    def result(self, number: int, scored: Scored) -> Measured:
        """Return what was measured of this entrant in the pass `scored` of all.

        Args:
            number: its place among the entrants, which is in the names of its models.
        """
        roles = [role for role in (PORT_ROLE, SOURCE_ROLE, PLAIN_ROLE) if role in self.models]
        by_role = {role: scored.models[_name_in_pass(role, number)] for role in roles}
        way = Way(self.run, self.tried, self.network)
        return Measured(replace(scored, models=by_role), self.pair, self.reference, self.warnings, way=way)


class _Pass:
    """A pass of entrants over the photos that is under way; `earlier` and `keep` are those of `measure`."""

    def __init__(
        self,
        ready: Sequence[_ReadyEntrant],
        earlier: Sequence[Measured] | None,
        keep: Callable[[Sequence[Measured]], object] | None,
    ) -> None:
        self.ready, self.earlier, self.keep = ready, earlier, keep
        self.last_kept = perf_counter()

    def models(self) -> tuple[dict[str, Classifier], dict[str, Logits]]:
        """Return the models of all entrants, and what their logits are, under their names in the pass."""
        models: dict[str, Classifier] = {}
        logits: dict[str, Logits] = {}
        for number, of_entrant in enumerate(self.ready):
            # The models of all entrants share one pass, so that each needs its own name.
            named = {_name_in_pass(role, number): model for role, model in of_entrant.models.items()}
            models |= named
            logits |= dict.fromkeys(named, logits_of(of_entrant.entrant.port.record))
        return models, logits

    def watch(self, positions: Sequence[int], by_name: NamedArrays) -> None:
        """Show the logits of a batch to the entrants whose source runs beside them."""
        for number, of_entrant in enumerate(self.ready):
            if of_entrant.pair is not None:
                by_role = {role: by_name[_name_in_pass(role, number)] for role in (PORT_ROLE, SOURCE_ROLE)}
                of_entrant.pair.watch(positions, by_role)

    def results(self, scored: Scored) -> list[Measured]:
        """Return what was measured of each entrant, with what an earlier run measured."""
        results = [of_entrant.result(number, scored) for number, of_entrant in enumerate(self.ready)]
        if not self.earlier:
            return results
        return [_continue_pass(before, now) for before, now in zip(self.earlier, results, strict=True)]

    def keep_so_far(self, scored: Callable[[], Scored]) -> None:
        """Keep what was measured so far, unless that was done less than KEPT_EVERY seconds ago."""
        if self.keep is not None and perf_counter() - self.last_kept >= KEPT_EVERY:
            self.keep(self.results(scored()))
            self.last_kept = perf_counter()


def _make_ready(entrant: Entrant, options: Options, device: str, photo_count: int) -> _ReadyEntrant:
    """Build an entrant's models and return them by role: the port; for `--fast` the port in its fastest run,
    with one in fp32 beside it if the fastest is another; and the source if it takes part.
    """
    tried: tuple[Tried, ...] = ()
    if options.fast:
        tried = try_runs(
            partial(classifier_of, entrant, device), options.made_pixels(entrant.protocol), device
        )
    run = tried[0].run if tried else options.run
    ready = _ReadyEntrant(entrant, run, tried, {PORT_ROLE: classifier_of(entrant, device, run)})
    if options.fast and run != FP32:
        ready.models[PLAIN_ROLE] = classifier_of(entrant, device, FP32)
    # A first run, so that compiling, and what a GPU does at its first batch, take none of the photos' time.
    if device != "cpu" or run.compiled:
        ready.models[PORT_ROLE](options.made_pixels(entrant.protocol))()
    if entrant.opened is not None:
        ready.reference, ready.models[SOURCE_ROLE], ready.warnings = source_classifier(
            entrant.port, entrant.opened, entrant.protocol, device
        )
        ready.pair = PhotoDistances(photo_count)
    return ready


def classifier_of(entrant: Entrant, device: str, run: Run) -> Classifier:
    """Build a port as it runs over photos: its weights as it stores them, computed in float32 for every
    storage type.
    """
    return entrant.port.destination.ENGINE.classifier(
        entrant.port.build("float32", device), entrant.protocol, device, run
    )


def _continue_pass(earlier: Measured, later: Measured) -> Measured:
    """Join a pass with the earlier, unfinished one that it continues."""
    joined = merge_measured([later, earlier])
    seconds = earlier.scored.seconds + later.scored.seconds
    waited = earlier.scored.waited + later.scored.waited
    scored = replace(joined.scored, complete=later.scored.complete, seconds=seconds, waited=waited)
    return replace(joined, scored=scored, earlier=int(earlier.scored.reached.sum()), way=later.way)


def _name_in_pass(role: str, number: int) -> str:
    """Return the name of a model in a pass: `port 0` is the first entrant's port, `source 0` its source."""
    return f"{role} {number}"


def merge_measured(parts: Sequence[Measured]) -> Measured:
    """Return what several processes measured together, each of its part of the photos."""
    compared = [part.compared for part in parts if part.compared is not None]
    return Measured(
        merge_scored([part.scored for part in parts]),
        merge_distances(compared) if compared else None,
        parts[0].reference,
        parts[0].warnings,
        sum(part.earlier for part in parts),
        parts[0].way,
    )

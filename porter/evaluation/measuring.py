"""One pass of ports over a set of photos, with or without their sources beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, get_args

from numpy.typing import NDArray

from porter.base.commands import MeasuringOptions, PhotosOptions
from porter.base.dtypes import NamedArrays
from porter.base.errors import UsageError
from porter.base.options import BATCH_SIZE, CROPS, LIMIT, PRECISION, WORKERS, Option
from porter.base.ways_to_run import FP32, Precision, Run
from porter.data.photos import Photo
from porter.data.pipeline.batching import Feed
from porter.data.preprocess import Preprocess
from porter.evaluation import comparison, scoring
from porter.evaluation.comparison import PLAIN, PORT, SOURCE, PhotoDistances
from porter.evaluation.distributed import Process
from porter.evaluation.results import Crops
from porter.evaluation.scoring import Logits, Scored, Watching, score
from porter.evaluation.source_run import source_classifier
from porter.evaluation.speed import AS_ASKED, LONG, Tried, Way, images_a_second, made_pixels, try_runs
from porter.files import path_of
from porter.frameworks import Classifier
from porter.port import Facts, StoredPort
from porter.source.opened import Opened
from porter.source.stated_photos import NOTHING, PhotoFacts, read_statements

T = TypeVar("T")

PHOTOS_PER_WORKER = 32
"""Another process does not pay for fewer photos: they are decoded before it has started."""


KEPT_EVERY = 60.0
"""Seconds. To keep what was measured of 50,000 photos takes one."""

LARGE_BATCH = 64
BATCHES = {"cpu": 16}
"""Photos at a time by device. On a CPU the maps of more do not stay in its caches: MobileNet v2 in torch on
two cores takes 45 to 68 images a second by 16, and 29 to 44 by 64, in torchvision's own module too.
"""


@dataclass(frozen=True)
class Options:
    """How photos are read and run.

    Attributes:
        batch_size: None for what suits the device.
        workers: processes that decode; None for one per core, fewer for few photos.
        limit: of photos.
        cache: a folder for prepared photos.
        split: of the data set.
        labels: a file of labels, instead of the data set's own.
        stated: what the user says of the model's photos and classes.
        class_names: the file of the classes' names in it.
        fast: take the fastest run instead of `run`, and run the port in fp32 beside it.

    Raises:
        UsageError: a number is too small.
    """

    device: str = "cpu"
    run: Run = FP32
    crops: Crops = 1
    batch_size: int | None = None
    workers: int | None = None
    limit: int | None = None
    cache: Path | None = None
    split: str | None = None
    labels: Path | None = None
    stated: PhotoFacts = NOTHING
    class_names: Path | None = None
    fast: bool = False

    @classmethod
    def of(cls, asked: PhotosOptions) -> Options:
        """Read the options of a command. A study, which has none of MeasuringOptions, runs in float32.

        Raises:
            UsageError: a precision or a number of crops is none of those that there are.
        """
        run = Run()
        if isinstance(asked, MeasuringOptions):
            precision = one_of(asked.precision, get_args(Precision), PRECISION)
            run = Run(precision, asked.compiled, asked.channels_last)
        return cls(
            device=asked.device,
            run=run,
            crops=one_of(asked.crops, get_args(Crops), CROPS),
            batch_size=asked.batch_size,
            workers=asked.workers,
            limit=asked.limit,
            cache=path_of(asked.cache),
            split=asked.split,
            labels=path_of(asked.labels),
            stated=read_statements(asked.preprocess, asked.class_names),
            class_names=path_of(asked.class_names),
            fast=isinstance(asked, MeasuringOptions) and asked.fast,
        )

    def __post_init__(self) -> None:
        counts = ((BATCH_SIZE, self.batch_size, 1), (WORKERS, self.workers, 0), (LIMIT, self.limit, 1))
        for option, value, least in counts:
            if value is not None and value < least:
                raise UsageError(
                    f"expected at least {least}, got {value}",
                    where=option,
                    next=f"write {option(least)}",
                )

    @property
    def photos_at_once(self) -> int:
        return self.batch_size or BATCHES.get(self.device, LARGE_BATCH)

    def made_pixels(self, entrant: Entrant) -> NDArray[Any]:
        """Make a batch of photos as the port is given it."""
        return made_pixels(entrant.protocol, self.crops, self.photos_at_once)

    def feed(self, crops: int, photos: int, process: Process) -> Feed:
        """Say how this process's part of so many photos is prepared."""
        workers = default_workers(photos, process) if self.workers is None else self.workers
        return Feed(crops, self.photos_at_once, workers, self.cache, (process.rank, process.world))


def logits_of(facts: Facts) -> Logits:
    """Say what the logits of a model are, from the facts of its port."""
    return Logits(facts.background, facts.activation)


def one_of(value: object, choices: tuple[T, ...], option: Option) -> T:
    """Return the choice that equals `value`.

    Raises:
        UsageError: it is none of them.
    """
    for choice in choices:
        if choice == value:
            return choice
    expected = ", ".join(map(str, choices))
    raise UsageError(
        f"expected one of {expected}, got '{value}'", where=option, next=f"write {option(choices[0])}"
    )


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
    models: dict[str, Classifier] = {}
    logits: dict[str, Logits] = {}
    for number, of_entrant in enumerate(ready):
        # The models of all entrants share one pass, so that each needs its own name.
        named = {_name_in_pass(role, number): model for role, model in of_entrant.models.items()}
        models |= named
        logits |= dict.fromkeys(named, logits_of(of_entrant.entrant.port.record))

    def watch(positions: Sequence[int], by_name: NamedArrays) -> None:
        """Show the logits of a batch to the entrants whose source runs beside them."""
        for number, of_entrant in enumerate(ready):
            if of_entrant.pair is not None:
                by_role = {role: by_name[_name_in_pass(role, number)] for role in (PORT, SOURCE)}
                of_entrant.pair.watch(positions, by_role)

    def results_of(scored: Scored) -> list[Measured]:
        """Return what was measured of each entrant, with what an earlier run measured."""
        results = [of_entrant.result(number, scored) for number, of_entrant in enumerate(ready)]
        if not earlier:
            return results
        return [_continue_pass(before, now) for before, now in zip(earlier, results, strict=True)]

    last_kept = perf_counter()

    def keep_so_far(scored: Callable[[], Scored]) -> None:
        """Keep what was measured so far, unless that was done less than KEPT_EVERY seconds ago."""
        nonlocal last_kept
        if keep is not None and perf_counter() - last_kept >= KEPT_EVERY:
            keep(results_of(scored()))
            last_kept = perf_counter()

    done = int(earlier[0].scored.reached.sum()) if earlier else 0
    feed = replace(options.feed(options.crops, len(photos), process), done=done)
    scored = score(photos, entrants[0].protocol, models, feed, logits, Watching(watch, keep_so_far))
    # After a long pass, each port is timed by itself: was it the network or the photos that took the time?
    if scored.complete and scored.seconds >= LONG:
        for of_entrant in ready:
            pixels = options.made_pixels(of_entrant.entrant)
            of_entrant.network = images_a_second(of_entrant.models[PORT], pixels)
    return results_of(scored)


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
        roles = [role for role in (PORT, SOURCE, PLAIN) if role in self.models]
        by_role = {role: scored.models[_name_in_pass(role, number)] for role in roles}
        way = Way(self.run, self.tried, self.network)
        return Measured(replace(scored, models=by_role), self.pair, self.reference, self.warnings, way=way)


def _make_ready(entrant: Entrant, options: Options, device: str, photo_count: int) -> _ReadyEntrant:
    """Build an entrant's models and return them by role: the port; for `--fast` the port in its fastest run,
    with one in fp32 beside it if the fastest is another; and the source if it takes part.
    """
    tried: tuple[Tried, ...] = ()
    if options.fast:
        tried = try_runs(partial(classifier_of, entrant, device), options.made_pixels(entrant), device)
    run = tried[0].run if tried else options.run
    ready = _ReadyEntrant(entrant, run, tried, {PORT: classifier_of(entrant, device, run)})
    if options.fast and run != FP32:
        ready.models[PLAIN] = classifier_of(entrant, device, FP32)
    # A first run, so that compiling, and what a GPU does at its first batch, take none of the photos' time.
    if device != "cpu" or run.compiled:
        ready.models[PORT](options.made_pixels(entrant))()
    if entrant.opened is not None:
        ready.reference, ready.models[SOURCE], ready.warnings = source_classifier(
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
    joined = merged([later, earlier])
    seconds = earlier.scored.seconds + later.scored.seconds
    waited = earlier.scored.waited + later.scored.waited
    scored = replace(joined.scored, complete=later.scored.complete, seconds=seconds, waited=waited)
    return replace(joined, scored=scored, earlier=int(earlier.scored.reached.sum()), way=later.way)


def _name_in_pass(role: str, number: int) -> str:
    """Return the name of a model in a pass: `port 0` is the first entrant's port, `source 0` its source."""
    return f"{role} {number}"


def merged(parts: Sequence[Measured]) -> Measured:
    """Return what several processes measured together, each of its part of the photos."""
    compared = [part.compared for part in parts if part.compared is not None]
    return Measured(
        scoring.merged([part.scored for part in parts]),
        comparison.merged(compared) if compared else None,
        parts[0].reference,
        parts[0].warnings,
        sum(part.earlier for part in parts),
        parts[0].way,
    )


def default_workers(photos: int, process: Process) -> int:
    """Return the default number of processes that decode: this process's part of the machine's cores, none
    for a few photos.
    """
    # where the system says it, the cores that this process may use
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own_cores = max(1, cores // process.local_world)
    own_photos = photos // process.world
    return min(own_cores, own_photos // PHOTOS_PER_WORKER)

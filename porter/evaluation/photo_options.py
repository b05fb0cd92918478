"""How photos are read and run, as a command's options say it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from numpy.typing import NDArray

from porter.base.commands import MeasuringOptions, PhotosOptions
from porter.base.errors import UsageError
from porter.base.options import (
    BATCH_SIZE,
    CPU_BATCH,
    CROPS,
    GPU_BATCH,
    LIMIT,
    PRECISION,
    WORKERS,
    Option,
    path_of,
)
from porter.base.ways_to_run import FP32, Precision, Run
from porter.data.pipeline.batching import Feed
from porter.data.preprocess import Preprocess
from porter.evaluation.distributed import Process
from porter.evaluation.results import Crops
from porter.evaluation.speed import made_pixels
from porter.source.stated_photos import NOTHING, PhotoFacts, read_statements

T = TypeVar("T")

PHOTOS_PER_WORKER = 32
"""Another process does not pay for fewer photos: they are decoded before it has started."""


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
        return self.batch_size or (CPU_BATCH if self.device == "cpu" else GPU_BATCH)

    def made_pixels(self, protocol: Preprocess) -> NDArray[Any]:
        """Make a batch of photos as a port of this protocol is given it."""
        return made_pixels(protocol, self.crops, self.photos_at_once)

    def feed(self, crops: int, photos: int, process: Process) -> Feed:
        """Say how this process's part of so many photos is prepared."""
        workers = default_workers(photos, process) if self.workers is None else self.workers
        return Feed(crops, self.photos_at_once, workers, self.cache, (process.rank, process.world))


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


def default_workers(photos: int, process: Process) -> int:
    """Return the default number of processes that decode: this process's part of the machine's cores, none
    for a few photos.
    """
    # where the system says it, the cores that this process may use
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own_cores = max(1, cores // process.local_world)
    own_photos = photos // process.world
    return min(own_cores, own_photos // PHOTOS_PER_WORKER)

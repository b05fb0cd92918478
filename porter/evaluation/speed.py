"""How fast a model runs by itself, over made photos, and which way of running it is the fastest on a
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.errors import UsageError
from porter.base.options import FAST
from porter.base.ways_to_run import FP32, Precision, Run
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier

LONG = 5.0
"""Seconds. Of a shorter pass, its start is most."""
_MEASURED = 1.0
"""Seconds for which a model runs."""
_PRECISIONS: dict[str, tuple[Precision, ...]] = {"cpu": ("fp32", "bf16")}
_GPU_PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True)
class Tried:
    """A way of running a model.

    Attributes:
        per_second: images.
        refused: why the model does not run so, or may not; None if it does.
    """

    run: Run
    per_second: float
    refused: str | None = None


@dataclass(frozen=True)
class Way:
    """How a port ran over photos.

    Attributes:
        tried: the runs that this one was chosen from, the fastest first; none if it was asked for.
        network: images a second of the port by itself; None if the pass was too short to measure it.
    """

    run: Run = FP32
    tried: tuple[Tried, ...] = ()
    network: float | None = None


AS_ASKED = Way()


def made_pixels(protocol: Preprocess, crops: int, photos: int) -> NDArray[Any]:
    """Make a batch of noise as porter.data.pipeline gives photos: N x crops x H x W x RGB."""
    noise = np.random.default_rng(0).integers(
        0, 256, (photos, crops, protocol.square, protocol.square, 3), np.uint8
    )
    return noise.astype(np.float32) if protocol.resampling.floats else noise


def images_a_second(model: Classifier, pixels: NDArray[Any]) -> float:
    """Measure how fast a model takes a batch again and again. As in a pass, the next one begins before the
    last one's logits are waited for.
    """
    images_in_batch = pixels.shape[0] * pixels.shape[1]
    model(pixels)()  # a first run, which may take longer
    start = perf_counter()
    images = 0
    wait_for_last = model(pixels)
    while perf_counter() - start < _MEASURED:
        wait_for_next = model(pixels)
        wait_for_last()
        images += images_in_batch
        wait_for_last = wait_for_next
    wait_for_last()
    images += images_in_batch
    return float(images / (perf_counter() - start))


def try_runs(make: Callable[[Run], Classifier], pixels: NDArray[Any], device: str) -> tuple[Tried, ...]:
    """Try every precision of a device with both orders of the channels, then the fastest of these compiled.
    The fastest one that runs comes first, and those that do not come last.

    Args:
        make: gives the model as it runs so.

    Raises:
        UsageError: the model does not run in fp32 either.
    """
    tried = [_try_run(make, run, pixels) for run in _plain_runs(device)]
    running = [way for way in tried if way.refused is None]
    if not running:
        raise UsageError(f"the model does not run: {tried[0].refused}", where=FAST, next="leave it out")
    best = max(running, key=lambda way: way.per_second)
    tried.append(_try_run(make, replace(best.run, compiled=True), pixels))
    return tuple(sorted(tried, key=lambda way: (way.refused is not None, -way.per_second)))


def _plain_runs(device: str) -> Iterator[Run]:
    """Yield a device's ways to run that are not compiled: each precision with both orders of the channels."""
    for precision in _PRECISIONS.get(device, _GPU_PRECISIONS):
        yield Run(precision)
        yield Run(precision, channels_last=False)


def _try_run(make: Callable[[Run], Classifier], run: Run, pixels: NDArray[Any]) -> Tried:
    """Try a way to run, and return its speed or why it fails."""
    try:
        model = make(run)
        if not np.isfinite(model(pixels)()).all():
            return Tried(run, 0.0, "its logits are not finite")
        return Tried(run, images_a_second(model, pixels))
    except UsageError as error:
        return Tried(run, 0.0, error.message)

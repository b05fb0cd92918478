"""Batches of cropped photos, made of chunks that workers decode ahead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.call_context import Threads
from porter.base.errors import UsageError
from porter.base.options import CROPS
from porter.data.jpeg import fast_decoder
from porter.data.photos import Failure, Photo
from porter.data.pipeline.ahead import map_ahead, take_ahead
from porter.data.pipeline.chunks import Resized
from porter.data.pipeline.store import Store, open_folder
from porter.data.pipeline.workers import Workers
from porter.data.preparing import centre_crop, mirror_pair, ten_crops
from porter.data.preprocess import Preprocess

CHUNK = 16
"""Photos per chunk. It depends neither on the number of photos nor on that of workers: otherwise another
--limit would find nothing in the cache. 500 photos keep 16 workers busy, and a chunk's own cost is small
beside the 100 ms that decoding it takes.
"""
_BATCHES_AHEAD = 1
"""A batch of 256 is cropped and stacked in 10 to 100 ms, mostly for pages that the system fills: two at a
time, because a GPU takes one in 10 ms.
"""
_CROPS: dict[int, Callable[[Any, Preprocess], Sequence[Any]]] = {
    1: lambda pixels, protocol: [centre_crop(pixels, protocol)],
    2: mirror_pair,
    10: ten_crops,
}


@dataclass(frozen=True)
class Feed:
    """How photos are prepared.

    Attributes:
        crops: 1, 2 (the centre and its mirror image) or 10; see porter.data.preparing.
        batch_size: of photos; a model sees `crops` times as many images at once.
        workers: processes that decode; 0 decodes in this one. From a full cache none is started.
        cache: a folder that keeps the resized photos; those of other photos and protocols stay in it.
        share: (rank, world): this process takes every `world`-th chunk, from `rank` on.
        done: the first photos of this share that are left out, because an earlier run scored them.

    Raises:
        UsageError: impossible numbers.
    """

    crops: int = 1
    batch_size: int = 64
    workers: int = 0
    cache: Path | None = None
    share: tuple[int, int] = (0, 1)
    done: int = 0

    def __post_init__(self) -> None:
        rank, world = self.share
        are_counts = self.batch_size >= 1 and self.workers >= 0 and self.done >= 0
        if self.crops not in _CROPS or not are_counts or not 0 <= rank < world:
            raise UsageError(f"no batches can be made of {self}")


@dataclass(frozen=True)
class Batch:
    """Some of the photos, in their order.

    Attributes:
        positions: of the photos that `pixels` holds, in the sequence that was given.
        pixels: N x crops x H x W x RGB as resized and cropped, for `normalise` or what does the same on a
            device: see porter.data.preparing.resize_image.
        failed: positions of the others, and why.
    """

    positions: tuple[int, ...]
    pixels: NDArray[np.uint8] | NDArray[np.float32]
    failed: tuple[tuple[int, Failure], ...] = ()


def batches(photos: Sequence[Photo], protocol: Preprocess, feed: Feed) -> Generator[Batch, None, None]:
    """Yield every photo once, in batches of its size; the last one may be smaller. Photos that failed are in
    the batches too, with the reason.

    Nothing is started before the first batch is asked for. Closing the generator ends the workers and removes
    temporary files: wrap it in `contextlib.closing`, so that an exception in between closes it at once.

    Raises:
        UsageError: ten crops of a protocol that does not crop; a protocol whose results differ in size.
        FileError: while iterating: the cache cannot be written, or the system ends the workers whatever they
            decode.
        NotInstalled: the protocol's decoder is not installed.
    """
    if protocol.crop is None and (feed.crops == 10 or protocol.fed_side is None):
        raise UsageError(
            "the protocol takes no crop after resizing", next=f"use {CROPS(1)}" if protocol.fed_side else None
        )
    if protocol.jpeg == "fast":
        fast_decoder()
    # Whole chunks that were done are not decoded again.
    chunks = chunks_of_share(len(photos), feed.share)[feed.done // CHUNK :]
    return _make_batches(photos, protocol, replace(feed, workers=min(feed.workers, len(chunks))), chunks)


def chunks_of_share(photos: int, share: tuple[int, int]) -> list[range]:
    """Return the positions of the photos in the chunks of one of several processes: (rank, world) takes every
    `world`-th chunk, from `rank` on.
    """
    rank, world = share
    chunks = [range(start, min(start + CHUNK, photos)) for start in range(0, photos, CHUNK)]
    return chunks[rank::world]


def _make_batches(
    photos: Sequence[Photo], protocol: Preprocess, feed: Feed, chunks: Sequence[range]
) -> Generator[Batch, None, None]:
    """Yield batches of photos in their order; worker processes decode the chunks ahead meanwhile."""
    cache, workers = feed.cache, feed.workers
    if cache is not None:
        open_folder(cache)
    pool = Workers(workers, protocol.geometry)
    # One thread more than workers: it reads a chunk while every worker makes the next.
    with TemporaryDirectory(prefix="porter-", ignore_cleanup_errors=True) as temporary:
        store = Store(cache or Path(temporary), cache is not None, pool, protocol.geometry)
        readers = Threads(workers + 1 if workers else 1)
        stackers = Threads(2 + _BATCHES_AHEAD)
        try:
            decoded = map_ahead(
                readers,
                lambda chunk: store.chunk([photos[position] for position in chunk]),
                chunks,
                2 * workers,
            )
            # each photo's position and its pixels
            pairs = chain.from_iterable(
                zip(chunk, read.photos, strict=True) for chunk, read in zip(chunks, decoded, strict=True)
            )
            # An earlier run may have done a part of the first chunk.
            not_done = islice(pairs, feed.done % CHUNK, None)
            groups = take_ahead(stackers, _groups(not_done, feed.batch_size), 1)
            yield from map_ahead(
                stackers,
                lambda group: _make_batch(group, photos, protocol, feed.crops),
                groups,
                _BATCHES_AHEAD,
            )
        finally:
            pool.stop()
            readers.shutdown(cancel_futures=True)
            stackers.shutdown(cancel_futures=True)
            pool.close()


def _groups(pairs: Iterable[tuple[int, Resized]], size: int) -> Iterator[list[tuple[int, Resized]]]:
    """Yield the pairs of positions and pixels in lists of `size`, the last one with what is left."""
    pairs = iter(pairs)
    while group := list(islice(pairs, size)):
        yield group


def _make_batch(
    group: Sequence[tuple[int, Resized]], photos: Sequence[Photo], protocol: Preprocess, crops: int
) -> Batch:
    """Return a batch of decoded photos, cut into crops, and the failures among them."""
    decoded = [(position, photo) for position, photo in group if not isinstance(photo, str)]
    side = protocol.crop or protocol.size
    kind = np.float32 if protocol.resampling.floats else np.uint8
    pixels: NDArray[Any] = np.empty((len(decoded), crops, side, side, 3), kind)
    for crops_of_photo, (_, photo) in zip(pixels, decoded, strict=True):
        for target, view in zip(crops_of_photo, _CROPS[crops](photo, protocol), strict=True):
            target[...] = view
    failed = tuple(
        (position, Failure(photos[position].name, why)) for position, why in group if isinstance(why, str)
    )
    return Batch(tuple(position for position, _ in decoded), pixels, failed)

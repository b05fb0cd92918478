"""The folder of the chunks: one that the user named, in which later runs find them again, or a temporary
one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import PIL

from porter.base.errors import FileError
from porter.base.options import CACHE
from porter.data.photos import Photo, PhotoPlace
from porter.data.pipeline.chunks import Chunk, DamagedChunk, Resized, read_chunk
from porter.data.pipeline.workers import WorkerEnded, Workers
from porter.data.preprocess import Preprocess

_CACHE_VERSION = 1
"""Raise it with every change to what porter makes of the same photo."""
_LEFT_OVER_SECONDS = 24 * 3600


class Store:
    """Chunks by what they are made from.

    A chunk is written under a name of its own and renamed after it was read back whole. So any number of
    processes can share a folder: at worst, two make the same chunk.
    """

    def __init__(self, folder: Path, keep: bool, workers: Workers, geometry: Preprocess) -> None:
        self._folder, self._keep, self._workers, self._geometry = folder, keep, workers, geometry

    def chunk(self, photos: Sequence[Photo]) -> Chunk:
        """Return the photos' chunk (their decoded and resized pixels), from the cache, or made anew if it is
        not there or is damaged.

        Raises:
            FileError: it cannot be written, or every one of these photos ends its worker.
        """
        in_cache = self._folder / f"{_digest_of_chunk(photos, self._geometry)}.pixels" if self._keep else None
        if in_cache:
            with suppress(DamagedChunk, OSError):
                chunk = read_chunk(in_cache)
                if len(chunk.photos) == len(photos):
                    return chunk
        # written under a name that no other process has, and renamed once it is whole
        part = self._folder / f"{uuid4().hex}.part"
        try:
            chunk = self._make(photos, part)
            if in_cache and chunk.lasting:
                part.replace(in_cache)
            return chunk
        except DamagedChunk:
            raise FileError(
                "what was written does not read back the same", where=self._folder, next="check the disk"
            ) from None
        except OSError as error:
            raise FileError(f"cannot be used as a cache: {error.strerror}", where=self._folder) from None
        finally:
            part.unlink(missing_ok=True)

    def _make(self, photos: Sequence[Photo], part: Path) -> Chunk:
        """Return a chunk that a worker makes; photo by photo if the worker is ended."""
        try:
            self._workers.make(photos, part)
            return read_chunk(part)
        except WorkerEnded as ended:
            return self._make_one_by_one(photos, part, ended)

    def _make_one_by_one(self, photos: Sequence[Photo], part: Path, ended: WorkerEnded) -> Chunk:
        """Return a chunk of the photos whose worker ended, made one by one: a photo fails only if it ends
        another worker. None is tried a third time.

        The reason may be that memory ran out, so the chunk is not lasting. If each of several photos ends its
        worker, the photos are not the reason.

        Args:
            part: the file that a worker writes.
            ended: the error of the worker that had all of them.
        """
        resized: list[Resized] = []
        fatal = 0
        for photo in photos:
            try:
                self._workers.make([photo], part)
                resized += read_chunk(part).photos
            except WorkerEnded as again:
                resized.append(f"{again.message}, also with only this photo")
                fatal += 1
        if fatal == len(photos) > 1:
            raise ended
        return Chunk(tuple(resized), lasting=False)


def open_folder(folder: Path) -> None:
    """Make the user's folder, and remove the files that killed runs left in it.

    Raises:
        FileError: there is none and it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob("*.part"):
            with suppress(FileNotFoundError):  # the process that made it removed it first
                if time.time() - part.lstat().st_mtime > _LEFT_OVER_SECONDS:
                    part.unlink()
    except OSError as error:
        raise FileError(
            f"cannot be used as a cache: {error.strerror}", where=folder, next=f"choose another {CACHE}"
        ) from None


def _digest_of_chunk(photos: Sequence[Photo], geometry: Preprocess) -> str:
    """Return the digest by which a chunk is found in a cache: of everything that decides its content, with
    the version of Pillow, which brings the codecs.
    """
    content = [
        _CACHE_VERSION,
        PIL.__version__,
        asdict(geometry),
        [identity_of_place(photo.place) for photo in photos],
    ]
    return sha256(json.dumps(content).encode()).hexdigest()


def identity_of_place(place: PhotoPlace) -> list[Any]:
    """Return what a cache recognises a photo by: where it is, and the size and the time of change of its
    file, or None if there is no file. The file is not read: a change that keeps both is not noticed.
    """
    fields = {**asdict(place), "path": str(place.path.absolute())}
    try:
        status = place.path.stat()
    except OSError:
        return [fields, None]
    return [fields, status.st_size, status.st_mtime_ns]

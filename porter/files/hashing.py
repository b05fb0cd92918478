"""The digests of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from porter.base.errors import FileError

_PART_BYTES = 1 << 23
"""Large parts, because a thread that hashes waits for the interpreter after each one, up to 5 ms while
another thread computes.
"""

_ALGORITHMS = ("sha256", "md5")

Digests = Mapping[Path, Mapping[str, str]]
"""The digests of each file in hex, by algorithm: `sha256`, `md5`."""


def digest(path: Path) -> str:
    """Compute the sha256 of a file, in hex.

    Raises:
        FileError: it cannot be read.
    """
    return digests(path, {"sha256"})["sha256"]


class LazyDigests(Mapping[str, str]):
    """The digests of a file as `digests` gives them, each computed when it is first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._computed: dict[str, str] = {}

    def __getitem__(self, algorithm: str) -> str:
        if algorithm not in self._computed:
            self._computed |= digests(self.path, {algorithm})
        return self._computed[algorithm]

    def __iter__(self) -> Iterator[str]:
        return iter(_ALGORITHMS)

    def __len__(self) -> int:
        return len(_ALGORITHMS)


def digests(path: Path, algorithms: Collection[str]) -> dict[str, str]:
    """Compute the digests of a file in hex, by algorithm: `sha256`, `md5`; several at once in threads.

    Raises:
        FileError: it cannot be read.
    """
    if len(algorithms) == 1:
        return {name: _hash_file(path, name) for name in algorithms}
    with ThreadPoolExecutor() as threads:
        computed = threads.map(lambda name: _hash_file(path, name), algorithms)
        return dict(zip(algorithms, computed, strict=True))


def _hash_file(path: Path, algorithm: str) -> str:
    """Hash a file part by part, and return the digest in hex."""
    running = hashlib.new(algorithm, usedforsecurity=False)
    part = memoryview(bytearray(_PART_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(part):
                running.update(part[:count])
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", where=path) from None
    return running.hexdigest()

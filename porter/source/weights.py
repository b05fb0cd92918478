"""Files of weights: read, hashed, fetched, and told apart by their digests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from porter.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.files import Digests, Fetched, WeightsFile, digests, fetch, is_published
from porter.formats.reading import read_checkpoint
from porter.recipe import Member, find_member


def read_weights(weights: Path, with_md5: bool) -> tuple[Checkpoint, Digests]:
    """What is in a weights file, and the digests of each file that it consists of: sha256 and, if asked for, md5.

    A file is hashed while it is read: hashing takes as long, and leaves the interpreter to the reader.
    """
    algorithms = ("sha256", "md5") if with_md5 else ("sha256",)
    with ThreadPoolExecutor(1) as beside:
        whole = beside.submit(digests, weights, algorithms) if weights.is_file() else None
        checkpoint = read_checkpoint(weights)
        if whole is not None and not checkpoint.files:
            return checkpoint, {checkpoint.path: whole.result()}
    return checkpoint, {path: digests(path, algorithms) for path in checkpoint.files or (checkpoint.path,)}


def digest_of(files: Digests) -> str:
    """The sha256 of one file; of several, the sha256 of their names and digests, in lines as sha256sum prints them."""
    if len(files) == 1:
        return next(iter(files.values()))["sha256"]
    lines = "".join(f"{found['sha256']}  {path.name}\n" for path, found in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def fetch_weights(variant: str, source: str, recipes: Path | None) -> Fetched:
    """The zoo's published file of a variant, from the cache or the network, checked. See porter.files.fetch."""
    return fetch(published_file(find_member(variant, source, recipes)))


def published_file(member: Member) -> WeightsFile:
    """The file that a zoo publishes of a variant.

    Raises:
        UsageError: it publishes none.
    """
    if member.file is not None:
        return member.file
    message = f"zoo '{member.zoo.name}' publishes no weights of {member.variant}"
    raise UsageError(message, where=str(member.recipe.path), next="give --weights FILE")


def publisher_of(member: Member, files: Digests) -> Member | None:
    """The variant in the zoo that publishes exactly these weights, among the zoos with the same names as its own.

    Every set of weights has its own protocol: torchvision's two zoos differ only in preprocessing and published figures.
    """
    for other in member.kin():
        if other.file is not None and other.zoo.names == member.zoo.names and is_published(other.file, files):
            return other
    return None

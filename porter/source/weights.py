"""What zoos publish: fetched, and told by its digests."""

from __future__ import annotations

from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.files import Fetched, fetch, is_published
from porter.recipe import Member


def fetch_published(member: Member) -> Fetched:
    """The zoo's published file of a variant, from the cache or the network, checked. See porter.files.fetch.

    Raises:
        UsageError: the zoo publishes none.
    """
    if member.file is not None:
        return fetch(member.file)
    message = f"zoo '{member.zoo.name}' publishes no weights of {member.variant}"
    raise UsageError(message, where=str(member.recipe.path), next="give --weights FILE")


def publisher_of(member: Member, checkpoint: Checkpoint) -> Member | None:
    """The variant in the zoo that publishes exactly these weights, among the zoos with the same names as its own.

    Every set of weights has its own protocol: torchvision's two zoos differ only in preprocessing and published figures.
    """
    for other in member.kin():
        if other.file is not None and other.zoo.names == member.zoo.names and is_published(other.file, checkpoint.digests):
            return other
    return None


def needs_md5(member: Member) -> bool:
    """Whether one of the files that `publisher_of` compares with is published with its md5 only."""
    return any("md5" in other.file.published for other in member.kin() if other.file)

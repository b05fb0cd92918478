"""What zoos publish: fetched, and told by its digests."""

from __future__ import annotations

from porter.base.errors import UsageError
from porter.base.options import WEIGHTS
from porter.files import Fetched, fetch
from porter.recipe import Member


def fetch_published(member: Member) -> Fetched:
    """The zoo's published file of a variant, from the cache or the network, checked. See porter.files.fetch.

    Raises:
        UsageError: the zoo publishes none.
    """
    if member.file is not None:
        return fetch(member.file)
    message = f"zoo '{member.zoo.name}' publishes no weights of {member.variant}"
    raise UsageError(message, where=str(member.recipe.path), next=f"give {WEIGHTS.placeholder}")


def needs_md5(member: Member) -> bool:
    """Whether one of the files that `Candidate.publisher` compares with is published with its md5 only."""
    return any("md5" in other.file.published for other in member.kin() if other.file)

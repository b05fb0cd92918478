"""How well a file can fit a variant at best: told by the variant's fingerprint, before it is expanded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from porter.filegraph.checkpoint import Checkpoint
from porter.graph import Conv
from porter.recipe.fingerprints import Fingerprint, kind_of


class Limit(NamedTuple):
    """Bounds of a match's score, see porter.source.ranking.rank.Match.

    Attributes:
        score: the score is no higher.
        opened: the score is at least this if the file can be opened as the variant, with any head; more than
            1 if it cannot.
    """

    score: float
    opened: float


UNKNOWN = Limit(1.0, 0.0)
_NEVER = 2.0


def limits(checkpoint: Checkpoint) -> Callable[[Fingerprint], Limit]:
    """The limit of a variant for this file."""
    sizes = Counter(str(math.prod(array.shape)) for array in checkpoint.tensors.values())
    if checkpoint.graph is None:
        return cache(lambda variant: Limit(_by_names(variant, sizes), _whole(variant, sizes)))
    kinds = Counter(kind_of(node.op) for node in checkpoint.graph.nodes if isinstance(node.op, Conv))

    def limit(variant: Fingerprint) -> Limit:
        reached = _reached(variant, kinds)
        named = max(min(reached / variant.weighted, 1), _by_names(variant, sizes))
        opened = variant.trunk / variant.nodes / 2 if reached >= variant.trunk else _NEVER
        return Limit((reached / variant.nodes + named) / 2, opened)

    return cache(limit)


def _whole(variant: Fingerprint, sizes: Counter[str]) -> float:
    """See `Limit.opened`: the score if the file has all tensors but the head's, and no other of its own is
    the variant's.
    """
    if any(count > sizes[size] for size, count in variant.sizes.items()):
        return _NEVER
    needed = sum(variant.sizes.values())
    return needed / (needed + variant.free + variant.norms + sizes.total())


def _by_names(variant: Fingerprint, sizes: Counter[str]) -> float:
    """The largest share of the variant's tensors that the file can have, whatever their names. A norm of
    torch's also counts its batches.
    """
    there = sum(min(count, sizes[size]) for size, count in variant.sizes.items()) + variant.free
    batches = min(variant.norms, sizes["1"])
    return (there + batches) / (sum(variant.sizes.values()) + variant.free + batches)


def _reached(variant: Fingerprint, kinds: Counter[str]) -> int:
    """The largest number of nodes that the file's graph can have.

    The convolutions on a way through the recipe's graph are as many on a way through the file's: a file with
    fewer of a kind has nothing behind them.
    """
    ends = (
        reached[kinds[kind]] for kind, reached in variant.convolutions.items() if kinds[kind] < len(reached)
    )
    return min(ends, default=variant.nodes)

"""How well a file can fit a variant at best: told by the variant's fingerprint, before it is expanded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, Protocol

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.graph import Conv, Dense
from porter.recipe.fingerprints import Fingerprint, LayersByName, beginnings_of, kind_of, unnumbered
from porter.source.fitting.alignment import inputs_of, without_cells


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


class LimitOf(Protocol):
    """The limit of a variant for one file, by its fingerprint and its layers' names if they are known."""

    def __call__(self, variant: Fingerprint, names: LayersByName | None = None) -> Limit: ...


def limits(checkpoint: Checkpoint) -> LimitOf:
    """The limits of variants for this file."""
    sizes = Counter(str(math.prod(array.shape)) for array in checkpoint.tensors.values())
    if checkpoint.graph is None:
        by_tensors = cache(lambda variant: Limit(_by_names(variant, sizes), _whole(variant, sizes)))
        return lambda variant, names=None: by_tensors(variant)
    file = without_cells(checkpoint.graph)
    kinds = Counter(kind_of(node.op) for node in file.nodes if isinstance(node.op, Conv))
    inputs = {name: str(index) for index, prepared in enumerate(inputs_of(file)) for name in prepared}
    digests = beginnings_of(((node.name, node.op, node.inputs) for node in file.nodes), inputs)
    beginnings = frozenset(digests.values())
    texts = "\n".join(dict.fromkeys(map(unnumbered, _texts(checkpoint, file))))

    @cache
    def by_graph(variant: Fingerprint) -> tuple[int, float]:
        reached = min(_reached(variant, kinds), _begun(variant, beginnings))
        return reached, _by_names(variant, sizes)

    @cache
    def is_there(alike: str) -> bool:
        return checkpoint.counted or any(name in texts for name in alike.split("|"))

    def limit(variant: Fingerprint, names: LayersByName | None = None) -> Limit:
        reached, by_names = by_graph(variant)
        nameless = sum(count for alike, count in (names or {}).items() if not is_there(alike))
        tensors = sum(variant.sizes.values()) + variant.free + variant.norms
        named = max(  # a layer has one tensor at least
            min(reached, variant.weighted - nameless) / variant.weighted,
            min(by_names, 1 - nameless / tensors),
        )
        opened = variant.trunk / variant.nodes / 2 if reached >= variant.trunk else _NEVER
        return Limit((reached / variant.nodes + named) / 2, opened)

    return limit


def _texts(checkpoint: Checkpoint, file: FileGraph) -> Iterator[str]:
    """What a file calls its tensors and its layers with weights."""
    yield from checkpoint.tensors
    for node in file.nodes:
        if isinstance(node.op, Conv | Dense):
            yield node.name
            yield from (stored.name for stored in node.tensors.values())


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


def _begun(variant: Fingerprint, beginnings: frozenset[str]) -> int:
    """The largest number of nodes that the file's graph can have, by how it begins."""
    lacking = (reached for digest, reached in variant.beginnings.items() if digest not in beginnings)
    return min(lacking, default=variant.nodes)


def _reached(variant: Fingerprint, kinds: Counter[str]) -> int:
    """The largest number of nodes that the file's graph can have.

    The convolutions on a way through the recipe's graph are as many on a way through the file's: a file with
    fewer of a kind has nothing behind them.
    """
    ends = (
        reached[kinds[kind]] for kind, reached in variant.convolutions.items() if kinds[kind] < len(reached)
    )
    return min(ends, default=variant.nodes)

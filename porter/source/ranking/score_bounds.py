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
from porter.recipe.fingerprints import Fingerprint, LayersByName, beginnings_of, kind_of_conv, without_numbers
from porter.source.fitting.alignment import inputs_of
from porter.source.fitting.without_cells import without_cells


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
_CANNOT_BE_OPENED = 2.0


class LimitOf(Protocol):
    """The limit of a variant for one file, by its fingerprint and its layers' names if they are known."""

    def __call__(self, variant: Fingerprint, names: LayersByName | None = None) -> Limit: ...


def limits_for(checkpoint: Checkpoint) -> LimitOf:
    """Return a function that bounds the score which a variant can have for this file, by the variant's
    fingerprint: numbers about its graph that are known without expanding it. Where the file has a graph, the
    bounds count nodes, tensors and names; otherwise they count tensors by their sizes only, and the names
    are not used.
    """
    sizes = Counter(str(math.prod(array.shape)) for array in checkpoint.tensors.values())
    if checkpoint.graph is None:
        by_tensors = cache(
            lambda variant: Limit(_most_by_sizes(variant, sizes), _least_score_if_opened(variant, sizes))
        )
        return lambda variant, names=None: by_tensors(variant)
    file = without_cells(checkpoint.graph)
    # What the file has, to be compared with fingerprints: its convolutions by their kinds, a digest of each
    # node with all that leads to it, and its names.
    kinds = Counter(kind_of_conv(node.op) for node in file.nodes if isinstance(node.op, Conv))
    inputs = {name: str(index) for index, prepared in enumerate(inputs_of(file)) for name in prepared}
    digests = beginnings_of(((node.name, node.op, node.inputs) for node in file.nodes), inputs)
    beginnings = frozenset(digests.values())
    texts = "\n".join(dict.fromkeys(map(without_numbers, _texts_of_names(checkpoint, file))))

    @cache
    def bounds_by_graph(variant: Fingerprint) -> tuple[int, float]:
        """Return the most nodes that the file can have of a variant, and the largest share of its tensors."""
        most_nodes = min(
            _most_nodes_by_convolutions(variant, kinds), _most_nodes_by_beginnings(variant, beginnings)
        )
        return most_nodes, _most_by_sizes(variant, sizes)

    @cache
    def has_name(names_of_layer: str) -> bool:
        """Return whether a name of the layer, of several with `|` between them, may be in the file."""
        return checkpoint.counted or any(name in texts for name in names_of_layer.split("|"))

    def limit(variant: Fingerprint, names: LayersByName | None = None) -> Limit:
        """Return the bounds of a variant's score: the mean of the share of its nodes and that of its named
        tensors. A layer whose names are nowhere in the file (`nameless`) counts as absent.
        """
        most_nodes, share_by_sizes = bounds_by_graph(variant)
        nameless = sum(
            count for names_of_layer, count in (names or {}).items() if not has_name(names_of_layer)
        )
        tensors = sum(variant.sizes.values()) + variant.free + variant.norms
        most_named = max(  # a layer has one tensor at least
            min(most_nodes, variant.weighted - nameless) / variant.weighted,
            min(share_by_sizes, 1 - nameless / tensors),
        )
        # A file opens as the variant only if it can have the whole trunk, which is half of the score.
        opened = variant.trunk / variant.nodes / 2 if most_nodes >= variant.trunk else _CANNOT_BE_OPENED
        return Limit((most_nodes / variant.nodes + most_named) / 2, opened)

    return limit


def _texts_of_names(checkpoint: Checkpoint, file: FileGraph) -> Iterator[str]:
    """Yield the file's names of its tensors and of its layers with weights."""
    yield from checkpoint.tensors
    for node in file.nodes:
        if isinstance(node.op, Conv | Dense):
            yield node.name
            yield from (stored.name for stored in node.tensors.values())


def _least_score_if_opened(variant: Fingerprint, sizes: Counter[str]) -> float:
    """Return the least score of a file that can be opened as the variant, as `Limit.opened`: that of a file
    with all tensors but the head's, and many tensors that are not the variant's.
    """
    if any(count > sizes[size] for size, count in variant.sizes.items()):
        return _CANNOT_BE_OPENED
    needed = sum(variant.sizes.values())
    return needed / (needed + variant.free + variant.norms + sizes.total())


def _most_by_sizes(variant: Fingerprint, sizes: Counter[str]) -> float:
    """Return the largest share of the variant's tensors that the file can have, whatever their names: a
    tensor counts if the file has one of as many numbers. Torch's norms also have `num_batches_tracked`, of
    size 1.
    """
    # `free` counts those tensors whose size the file may choose, as that of the head.
    fitting = sum(min(count, sizes[size]) for size, count in variant.sizes.items()) + variant.free
    batches = min(variant.norms, sizes["1"])
    return (fitting + batches) / (sum(variant.sizes.values()) + variant.free + batches)


def _most_nodes_by_beginnings(variant: Fingerprint, beginnings: frozenset[str]) -> int:
    """Return the largest number of the variant's nodes that the file's graph can have, told by beginnings:
    digests of a node with all that leads to it. A node whose digest the file lacks is not in the file, and
    neither is what follows it.
    """
    bounds = (most_nodes for digest, most_nodes in variant.beginnings.items() if digest not in beginnings)
    return min(bounds, default=variant.nodes)


def _most_nodes_by_convolutions(variant: Fingerprint, kinds: Counter[str]) -> int:
    """Return the largest number of the variant's nodes that the file's graph can have.

    A node that comes after n convolutions of a kind comes after n of them in the file too. So a file with
    fewer of a kind lacks all nodes that come after more.
    """
    # most_nodes[n] is the number of nodes that a file with n convolutions of the kind can have.
    bounds = (
        most_nodes[kinds[kind]]
        for kind, most_nodes in variant.convolutions.items()
        if kinds[kind] < len(most_nodes)
    )
    return min(bounds, default=variant.nodes)

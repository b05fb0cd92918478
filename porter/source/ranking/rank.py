"""The variants and zoos that a weights file could be, ranked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.base.errors import MappingError, RecipeError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Conv, Dense, Graph, tensor_shapes, with_classes
from porter.recipe import Member, NodeNames, Recipe, expand, expand_within, known_variants
from porter.recipe.faults import Faults
from porter.recipe.fingerprints import fingerprint_of
from porter.recipe.transforms import apply_transforms
from porter.source.fitting.alignment import Alignment
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.heads import head_rows
from porter.source.fitting.locating import Located
from porter.source.ranking.score_bounds import UNKNOWN, limits_for
from porter.source.ranking.screening import zoo_screen

_NUMBER = re.compile(r"_\d+/")
LIKELY = 0.5
"""A file looks like a variant if its score is at least this."""
NEAR = 0.3
"""A draft names the match whose score is at least this."""
CLOSE = 0.02
"""Matches whose scores differ by no more than this are about as good."""
OUT_OF_REACH = 2.01 * CLOSE
"""A match whose score is lower than the best one's by more than this is neither tried nor about as good as
one that is.
"""
MOST_TRIED = 8
"""The most matches that are tried."""
LARGER = 4
"""A graph of more nodes than so many times those of a file's graph is not half in the file, even if each of
the file's nodes is two of its own because a norm is folded.
"""


@dataclass(frozen=True)
class Match:
    """How well a file fits a variant of a zoo.

    Attributes:
        candidate: the file as the variant, from which it is opened.
        score: the number of tensors that fit by name and shape, divided by the number of those that the
            variant needs and of the file's other tensors. For a file that carries its graph, the mean of the
            share of the nodes that the graph has, and of the tensors or the names of layers that fit,
            whichever is larger.
        missing: tensors that the variant needs and the file lacks, or holds in another shape.
        unexpected: tensors of the file that the variant does not need.
        notes: how the file's names differ from the zoo's: a prefix, an older table of names.
    """

    candidate: Candidate = field(repr=False, compare=False)
    score: float
    missing: tuple[str, ...] = field(repr=False)
    unexpected: tuple[str, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def member(self) -> Member:
        return self.candidate.member

    def record(self) -> dict[str, Any]:
        """Return the record that `porter inspect --json` prints."""
        variant, zoo = self.member.is_a
        return {
            "variant": variant,
            "zoo": zoo,
            **{key: value for key, value in vars(self).items() if key != "candidate"},
        }


@dataclass(frozen=True)
class Ranked:
    """The variants and zoos that have a part of a file, best first, and the errors of recipes that cannot be
    used. Those that are much worse than the best may be missing.
    """

    matches: tuple[Match, ...]
    faults: tuple[RecipeError, ...]

    @property
    def contenders(self) -> tuple[Match, ...]:
        """The best match and those that are about as good, at most MOST_TRIED."""
        about_as_good = [match for match in self.matches if match.score >= self.matches[0].score - CLOSE]
        return tuple(about_as_good[:MOST_TRIED])

    @property
    def likely(self) -> tuple[Match, ...]:
        """The contenders that the file looks like: their scores are at least LIKELY."""
        return tuple(match for match in self.contenders if match.score >= LIKELY)


def rank(checkpoint: Checkpoint, recipes: Path | None = None, least: float = LIKELY) -> Ranked:
    """Return the variants and zoos that could be the file, best first. A wrong recipe is left out, with its
    error.

    Args:
        least: a match of at least this score is wanted, even if the file cannot be opened as it.

    To save time, a variant is expanded and compared with the file only if its bound, the largest score that
    it can have, is near the best score so far. Variants that the file can neither look like nor be opened as
    come last, and only if the file is one of the others.
    """
    variants, wrong = known_variants(recipes)
    limit = limits_for(checkpoint)
    compare = _comparer(checkpoint)
    faults = Faults()
    bounds = [
        UNKNOWN if variant.fingerprint is None else limit(variant.fingerprint, variant.names)
        for variant in variants
    ]
    could_be = [bound.score >= min(least, bound.opened) for bound in bounds]
    matches: dict[int, Match] = {}
    is_variant = False  # whether the file is one of those compared so far
    best = 0.0
    # First those that the file could be, by the largest score that they can reach.
    order = sorted(range(len(variants)), key=lambda index: (not could_be[index], -bounds[index].score))
    for index in order:
        is_out_of_reach = bounds[index].score < best - OUT_OF_REACH
        if is_out_of_reach or not (could_be[index] or is_variant):
            continue
        with faults.collect():
            member = variants[index].load()
            match = compare(member)
            if match is not None:
                # The bound of a variant without a fingerprint (a recipe of the user's) is known only now.
                if variants[index].fingerprint is None and not member.zoo.generations:
                    bounds[index] = limit(fingerprint_of(expand(member)))
                matches[index] = match
                best = max(best, match.score)
                is_variant |= match.score >= min(least, bounds[index].opened)
    return Ranked(_best_first(matches[index] for index in sorted(matches)), (*wrong, *faults.errors))


def rank_variants(checkpoint: Checkpoint, recipe: Recipe) -> Ranked:
    """Compare the file with all variants of one recipe, none left out, and return the matches, best first,
    with the errors of those that cannot be read.
    """
    compare = _comparer(checkpoint)
    faults = Faults()
    matches = list[Match]()
    for member in recipe.members():
        with faults.collect():
            match = compare(member)
            if match is not None:
                matches.append(match)
    return Ranked(_best_first(matches), faults.errors)


def _best_first(matches: Iterable[Match]) -> tuple[Match, ...]:
    return tuple(sorted(matches, key=lambda match: -match.score))


def _comparer(checkpoint: Checkpoint) -> Callable[[Member], Match | None]:
    """Return a function that compares the file with a variant of a zoo. A recipe is expanded only if the
    zoo's names could be those of the file's tensors, because expanding takes longest.
    """
    could_name = zoo_screen(checkpoint)

    def compare(member: Member) -> Match | None:
        """Return the match of a variant; None if nothing of it is in the file, or the file cannot be of its
        zoo.
        """
        if checkpoint.dialect not in (None, member.zoo.framework) or not could_name(member.zoo):
            return None
        with suppress(MappingError):
            match = _match(member, checkpoint)
            return match if match is not None and match.score > 0 else None
        return None

    return compare


def _match(member: Member, checkpoint: Checkpoint) -> Match | None:
    """Return how well the file fits a member: the share of found tensors among those needed and unexpected,
    and for a file with a graph the mean of that and the share of aligned nodes. Return None if the variant is
    much larger than the file's graph.

    Raises:
        MappingError: the file is not this variant.
        RecipeError: the recipe is wrong.
    """
    dialect, file = get_dialect(member.zoo.framework), checkpoint.graph
    draft = expand(member) if file is None else expand_within(member, LARGER * len(file.nodes))
    if draft is None:
        return None
    candidate = Candidate(member, checkpoint, draft)
    naming, located = candidate.naming, candidate.located
    rows = head_rows(candidate, naming.layers[candidate.head.path].name)
    graph = draft if rows is None else with_classes(draft, rows)
    misfits = _misfits(graph, dialect, naming.layers, located, checkpoint)
    missing = (*located.missing, *misfits)
    needed = len(located.tensors) + len(located.missing)
    score = (len(located.tensors) - len(misfits)) / (needed + len(located.unexpected))
    if file is not None:  # the ops of a file's graph count as much as its names
        aligned = candidate.alignment
        score = (aligned.share + max(score, _share_named(aligned, naming.layers))) / 2
    return Match(candidate, score, missing, located.unexpected, naming.notes())


def _share_named(aligned: Alignment, layers: NodeNames) -> float:
    """Return the share of the convolutions and dense layers whose layer in the file, or one of its tensors,
    has the zoo's name in its own.

    Exporters rename tensors and number layers: `Conv1` is in `model/Conv1_2/convolution/merged:0`.
    """
    weighted = [node.path for node in aligned.graph.nodes if isinstance(node.op, Conv | Dense)]
    nodes = aligned.file.by_name

    def has_zoos_name(path: str) -> bool:
        """Return whether a layer that the node may be, or one of its tensors, has the zoo's name for it in
        its own.
        """
        name = f"/{layers[path].name}/".replace(".", "/")
        texts = (
            text
            for layer in aligned.candidates[path]
            for text in (layer, *(stored.name for stored in nodes[layer].tensors.values()))
        )
        between_slashes = (f"/{text}/".replace(".", "/") for text in texts)
        return any(name in text or name in _NUMBER.sub("/", text) for text in between_slashes)

    return sum(map(has_zoos_name, weighted)) / len(weighted) if weighted else 0.0


def _misfits(
    graph: Graph, dialect: Dialect, layers: NodeNames, located: Located, checkpoint: Checkpoint
) -> list[str]:
    """Return the names of tensors that have another shape than the graph needs, or axes that its dialect
    cannot order. The background's row is not taken off: rows of a head do not count here.
    """
    shapes = tensor_shapes(graph)
    misfits = []
    for (path, role), name in located.tensors.items():
        transforms = [transform for transform in layers[path].transforms if transform != "drop_background"]
        try:
            array = dialect.to_canonical(graph, graph.by_path[path], role, checkpoint.tensors[name])
            array = apply_transforms(transforms, role, array)
        except MappingError:
            misfits.append(name)
            continue
        if role in shapes[path] and array.shape != shapes[path][role]:
            misfits.append(name)
    return misfits

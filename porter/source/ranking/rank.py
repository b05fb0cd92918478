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
from porter.source.ranking.score_bounds import UNKNOWN, limits
from porter.source.ranking.screening import screen

_NUMBER = re.compile(r"_\d+/")
LIKELY = 0.5
"""A file looks like a variant if its score is at least this."""
NEAR = 0.3
"""A draft names the match whose score is at least this."""
CLOSE = 0.02
"""Matches whose scores differ by no more than this are about as good."""
REACH = 2.01 * CLOSE
"""A match whose score is lower than the best one's by more than this is neither tried nor about as good as
one that is.
"""
TRIED = 8
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
        """The record that `porter inspect --json` prints."""
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
        """The best match and those that are about as good, at most TRIED."""
        return tuple(match for match in self.matches if match.score >= self.matches[0].score - CLOSE)[:TRIED]

    @property
    def likely(self) -> tuple[Match, ...]:
        """The contenders that the file looks like: their scores are at least LIKELY."""
        return tuple(match for match in self.contenders if match.score >= LIKELY)


def rank(checkpoint: Checkpoint, recipes: Path | None = None, least: float = LIKELY) -> Ranked:
    """The variants and zoos that could be the file. A wrong recipe is left out, with its error.

    Args:
        least: a match of this score is wanted, even if the file cannot be opened as it.

    A variant is compared with the file only if it can be nearly as good as the best one. Those that can
    neither be near the file nor be what it is opened as come last, and only if one of the others is.
    """
    variants, wrong = known_variants(recipes)
    limit = limits(checkpoint)
    compare = _comparison(checkpoint)
    faults = Faults()
    most = [UNKNOWN if one.fingerprint is None else limit(one.fingerprint, one.names) for one in variants]
    could_be = [best.score >= min(least, best.opened) for best in most]
    matches: dict[int, Match] = {}
    is_one, best = False, 0.0
    for place in sorted(range(len(variants)), key=lambda place: (not could_be[place], -most[place].score)):
        if most[place].score < best - REACH or not (could_be[place] or is_one):
            continue
        with faults.kept():
            member = variants[place].load()
            match = compare(member)
            if match is not None:
                if variants[place].fingerprint is None and not member.zoo.generations:
                    most[place] = limit(fingerprint_of(expand(member)))
                matches[place], best = match, max(best, match.score)
                is_one |= match.score >= min(least, most[place].opened)
    return Ranked(_best_first(matches[place] for place in sorted(matches)), (*wrong, *faults.errors))


def rank_variants(checkpoint: Checkpoint, recipe: Recipe) -> Ranked:
    """Ranks, as `rank` does, all variants of one recipe."""
    compare = _comparison(checkpoint)
    faults = Faults()
    matches = list[Match]()
    for member in recipe.members():
        with faults.kept():
            matches += filter(None, (compare(member),))
    return Ranked(_best_first(matches), faults.errors)


def _best_first(matches: Iterable[Match]) -> tuple[Match, ...]:
    return tuple(sorted(matches, key=lambda match: -match.score))


def _comparison(checkpoint: Checkpoint) -> Callable[[Member], Match | None]:
    """Compares the file with a variant: None if nothing of it is there. Variants of zoos whose names are not
    the file's are not expanded, and those that are much larger than the file's graph not to their end.
    """
    could_name = screen(checkpoint)

    def compare(member: Member) -> Match | None:
        if checkpoint.dialect not in (None, member.zoo.framework) or not could_name(member.zoo):
            return None
        with suppress(MappingError):
            match = _match(member, checkpoint)
            return match if match is not None and match.score > 0 else None
        return None

    return compare


def _match(member: Member, checkpoint: Checkpoint) -> Match | None:
    """The match; None if the variant is much larger than the file's graph.

    Raises:
        MappingError: the file is not this variant. RecipeError: the recipe is wrong.
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
    missing, needed = (*located.missing, *misfits), len(located.tensors) + len(located.missing)
    score = (len(located.tensors) - len(misfits)) / (needed + len(located.unexpected))
    if file is not None:  # the ops of a file's graph count as much as its names
        score = (candidate.alignment.share + max(score, _named(candidate.alignment, naming.layers))) / 2
    return Match(candidate, score, missing, located.unexpected, naming.notes())


def _named(aligned: Alignment, layers: NodeNames) -> float:
    """The share of the convolutions and dense layers whose layer in the file, or one of its tensors, has the
    zoo's name in its own.

    Exporters rename tensors and number layers: `Conv1` is in `model/Conv1_2/convolution/merged:0`.
    """
    weighted = [node.path for node in aligned.graph.nodes if isinstance(node.op, Conv | Dense)]
    nodes = aligned.file.by_name

    def has(path: str) -> bool:
        name = f"/{layers[path].name}/".replace(".", "/")
        texts = (
            text
            for each in aligned.candidates[path]
            for text in (each, *(s.name for s in nodes[each].tensors.values()))
        )
        whole = (f"/{text}/".replace(".", "/") for text in texts)
        return any(name in text or name in _NUMBER.sub("/", text) for text in whole)

    return sum(map(has, weighted)) / len(weighted) if weighted else 0.0


def _misfits(
    graph: Graph, dialect: Dialect, layers: NodeNames, located: Located, checkpoint: Checkpoint
) -> list[str]:
    """Names of tensors that have another shape than the graph needs."""
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

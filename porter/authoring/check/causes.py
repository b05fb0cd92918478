"""One cause for several errors: where many places say a word that nothing declares, its declaration may be what is misspelt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from porter.errors import RecipeError
from porter.recipe.source import Location, Source
from porter.recipe.steps import OPERATIONS
from porter.recipe.unknown import Unknown


def by_cause(errors: Sequence[RecipeError], source: Source) -> tuple[RecipeError, ...]:
    """The errors; those of several words that one declaration is like are one error there, if nothing else says that as it does.

    Args:
        source: the recipe's file. What it extends is right.
    """
    groups: dict[Location, list[Unknown]] = {}
    for error in errors:
        if isinstance(error, Unknown) and error.declared is not None and source.mark(error.declared):
            groups.setdefault(error.declared, []).append(error)
    found: dict[str | None, RecipeError] = {error.where: error for error in errors}
    for declared, group in groups.items():
        said, first = _said(source, declared), group[0]
        if len(group) > 1 and _count(said, source, group) == 1:
            message = f"this is '{said}', and {len(group)} places want another name, such as {first.where}: {first.message}"
            cause = RecipeError(message, where=source.where(declared, key=True), next=f"did you mean '{first.word}'?")
            found = {where: cause if error is first else error for where, error in found.items() if error not in group[1:]}
    return tuple(found.values())


def _count(word: str, source: Source, group: Sequence[Unknown]) -> int:
    """How often a word is written in the recipe's file and in those of the errors."""
    paths = {source.path, *(Path(str(error.where).rsplit(":", 2)[0]) for error in group)}
    return sum(len(re.findall(rf"(?<![\w/]){re.escape(word)}(?![\w/])", path.read_text(encoding="utf-8"))) for path in paths)


def _said(source: Source, declared: Location) -> str:
    """The word of a declaration: a key, or the path of a step."""
    if isinstance(declared[-1], str):
        return declared[-1]
    step = source.value(declared)
    return next(str(value) for key, value in step.items() if key in OPERATIONS or key in source.data.get("blocks", {}))

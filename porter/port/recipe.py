"""The recipe that a port was made with, found again."""

from __future__ import annotations

import shlex
from pathlib import Path

from porter.errors import UsageError
from porter.port.folder import Record
from porter.recipe import Recipe, find_recipe


def recipe_of(record: Record, recipes: Path | None) -> Recipe | None:
    """The recipe of a port's variant; None for a port without one.

    Args:
        recipes: the folder that `--recipes` names.

    Raises:
        UsageError: there is no such recipe, or it was in the folder of `--recipes`, which may have a name of porter's own recipes.
    """
    if record.variant is None:
        return None
    if record.recipes is not None and recipes is None:
        next = f"add --recipes {shlex.quote(record.recipes)}"
        raise UsageError(f"the recipe of '{record.variant}' was found in {record.recipes}", next=next)
    return find_recipe(record.variant, recipes)

"""The command that ports a file as a variant of a zoo, and the folder of recipes that it has to name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from porter.base.commands import CONVERT
from porter.recipe.find_recipes import recipe_folders
from porter.recipe.recipe import Member, Recipe


def convert_command(
    member: Member,
    to: str,
    weights: Path,
    recipes: Path | None,
    mapped: Sequence[str] = (),
    write_command: Callable[..., str] = CONVERT.advise,
) -> str:
    """Return the command that ports a file as a variant of a zoo.

    Args:
        recipes: a folder of recipes, which the command names if only it has the variant's recipe.
        mapped: what the command says with `--map`.
        write_command: writes the command; CONVERT.line if it is printed to be typed.
    """
    folder, zoo = folder_to_name(member.recipe, recipes), member.zoo.name
    return write_command(
        subject=member.variant, source=zoo, to=to, weights=weights, mapped=mapped, recipes=folder
    )


def folder_to_name(recipe: Recipe, given: Path | None) -> str | None:
    """Return the folder `given` if a command has to name it so that it finds a recipe again, because no other
    folder has the recipe; otherwise None.
    """
    only_there = (
        given is not None
        and recipe.path.parent == given
        and given.resolve() not in map(Path.resolve, recipe_folders())
    )
    return str(given) if only_there else None

"""Finding recipes: in a folder asked for, in a checkout, or in the installed package."""

from __future__ import annotations

from pathlib import Path

from porter.errors import UsageError
from porter.recipe.errors import did_you_mean
from porter.recipe.schema import Recipe, load_recipe

_PACKAGE = Path(__file__).parents[1]


def recipes_folder() -> Path:
    """Where porter's own recipes are: inside an installed package, beside it in a checkout."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parent / "recipes"


def all_recipes(folder: Path | None = None) -> tuple[Recipe, ...]:
    """Every recipe of a folder (porter's own where it is None), by architecture.

    Raises:
        UsageError: a folder without recipes. RecipeError: a recipe that is wrong.
    """
    paths = sorted((folder or recipes_folder()).glob("*.yaml"))
    if not paths:
        raise UsageError("no recipes here", where=str(folder or recipes_folder()), next="--recipes names a folder of YAML files")
    return tuple(load_recipe(path.resolve()) for path in paths)


def find_recipe(name: str, folder: Path | None = None) -> Recipe:
    """The recipe of a variant, or of an architecture.

    Raises:
        UsageError: no recipe has it; `next` names the nearest variant.
    """
    recipes = all_recipes(folder)
    for recipe in recipes:
        if name in recipe.variants or name == recipe.architecture:
            return recipe
    known = [variant for recipe in recipes for variant in recipe.variants]
    raise UsageError(f"there is no variant '{name}'", next=did_you_mean(name, known))

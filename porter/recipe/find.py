"""Where recipes are: `recipes/` in a checkout, `porter/recipes/` in an installed porter, or a folder that the user names."""

from __future__ import annotations

from pathlib import Path

from porter.errors import RecipeError, UsageError
from porter.recipe.load import load_recipe
from porter.recipe.model import Recipe
from porter.recipe.source import declared_names
from porter.recipe.spelling import hint


def recipes_folder() -> Path:
    """The folder of porter's own recipes."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def all_recipes(directory: Path | None = None) -> tuple[Recipe, ...]:
    """Every recipe of a folder, by file name; porter's own without a folder.

    Raises:
        UsageError: the folder does not exist or holds no recipe.
        RecipeError: a recipe is wrong, or two declare the same variant.
    """
    recipes, faults = whole_recipes(directory)
    if faults:
        raise faults[0]
    owners: dict[str, Recipe] = {}
    for recipe in recipes:
        for variant in recipe.variants:
            if variant in owners:
                where = recipe.source.where(("variants", variant), key=True)
                raise RecipeError(f"'{variant}' is a variant of {owners[variant].path.name} too", where=where)
            owners[variant] = recipe
    return recipes


def whole_recipes(directory: Path | None = None) -> tuple[tuple[Recipe, ...], tuple[RecipeError, ...]]:
    """The recipes of a folder that can be loaded, and the errors of the others: a wrong recipe spoils itself only.

    Raises:
        UsageError: as `all_recipes`.
    """
    recipes, faults = [], []
    for path in _paths(directory):
        try:
            recipes.append(load_recipe(path))
        except RecipeError as error:
            faults.append(error)
    return tuple(recipes), tuple(faults)


def _paths(directory: Path | None) -> list[Path]:
    folder = directory or recipes_folder()
    paths = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not paths:
        raise UsageError("there are no recipes (*.yaml) here", where=str(folder), next="give --recipes a folder of recipes")
    return paths


def find_recipe(name: str, directory: Path | None = None) -> Recipe:
    """The recipe that declares the variant `name`, or the architecture of that name. If only one does, no other is loaded.

    Raises:
        UsageError: there is none; `next` has the nearest spelling.
        RecipeError: as `all_recipes`.
    """
    declaring = [path for path in _paths(directory) if name in declared_names(path)]
    if len(declaring) == 1:
        return load_recipe(declaring[0])
    recipes = all_recipes(directory)
    for recipe in recipes:
        if name in recipe.variants:
            return recipe
    for recipe in recipes:
        if name == recipe.architecture:
            return recipe
    known = [word for recipe in recipes for word in (recipe.architecture, *recipe.variants)]
    raise UsageError(f"there is no variant '{name}'", next=hint(name, known))

"""Recipes: the YAML file of an architecture, and what follows from it for a variant in a zoo."""

from porter.files import WeightsFile
from porter.recipe.expand import expand
from porter.recipe.find import all_recipes, find_recipe, recipes_folder
from porter.recipe.names import LayerName, layer_names
from porter.recipe.schema import IgnoreRule, Published, Recipe, Zoo, load_recipe

__all__ = [
    "IgnoreRule",
    "LayerName",
    "Published",
    "Recipe",
    "WeightsFile",
    "Zoo",
    "all_recipes",
    "expand",
    "find_recipe",
    "layer_names",
    "load_recipe",
    "recipes_folder",
]

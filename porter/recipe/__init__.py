"""Recipes: one YAML file per architecture, which gives the graph of every variant and the names of every
zoo.
"""

from porter.recipe.convert_line import convert_command, folder_to_name
from porter.recipe.expansion import expand, expand_within, expect_head, options_of, trained_conventions
from porter.recipe.find_recipes import (
    declared_recipes,
    find_member,
    find_recipe,
    known_variants,
    replaced_recipe,
    sound_recipes,
)
from porter.recipe.load import load_recipe, recipes_folder
from porter.recipe.proofs import Proof, proof_of
from porter.recipe.recipe import IgnoreRule, LayerName, Member, NodeNames, Published, Recipe, Zoo
from porter.recipe.zoo_names import layer_names, tap_names
from porter.recipe.zoo_options import assumed_options, assumed_size, choose_options, with_options

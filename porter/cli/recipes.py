"""The commands of `porter recipe`."""

from __future__ import annotations

from pathlib import Path

import typer

from porter.base import commands
from porter.base.errors import MappingError, UsageError
from porter.base.options import OUT, OVERWRITE
from porter.cli import recipe_text
from porter.cli.arguments import command, help_without_command
from porter.cli.terminal import say, show, write

recipe_app = typer.Typer(
    help="The recipes: one YAML file per architecture.", invoke_without_command=True, rich_markup_mode=None
)
recipe_app.callback()(help_without_command)


@command(recipe_app, commands.RECIPE_LIST)
def recipe_list(recipes: Path | None, as_json: bool) -> None:
    """Print the recipes that porter finds; those that cannot be read are named on stderr."""
    from porter.recipe import declared_recipes, recipes_folder
    from porter.recipe.json_records import declared_record

    declared = declared_recipes(recipes, with_zoos=True)
    listed = [recipe for recipe in declared if recipe.fault is None and recipe.names]
    faults = [str(recipe.fault) for recipe in declared if recipe.fault is not None]
    if as_json:
        show({"recipes": [declared_record(recipe) for recipe in listed], "left_out": faults})
    else:
        show(recipe_text.recipe_list(listed, recipes_folder()))
        say((f"left out: {fault}" for fault in faults), err=True)


@command(recipe_app, commands.RECIPE_SHOW)
def recipe_show(name: str, recipes: Path | None, as_json: bool) -> None:
    """Print a recipe with the graph of a variant: the one that is named, or the recipe's first."""
    from porter.recipe import expand, find_recipe
    from porter.recipe.json_records import recipe_record

    recipe = find_recipe(name, recipes)
    variant = name if name in recipe.variants else next(iter(recipe.variants))
    # the variant in the recipe's first zoo that has it
    member = next(recipe.members(variant))
    record = recipe_record(member, expand(member))
    show(record if as_json else recipe_text.recipe(record))


@command(recipe_app, commands.RECIPE_CHECK)
def recipe_check(file: Path, weights: Path | None, as_json: bool) -> None:
    """Check a recipe, try it on a file of weights if one is given, print what was found, and end with the
    status of the first problem.
    """
    from porter.authoring.check.recipe_check import check_and_try

    outcome = check_and_try(file, weights)
    show(outcome.record() if as_json else recipe_text.recipe_check(outcome.checked, outcome.trial))
    if outcome.problem is not None:
        raise typer.Exit(outcome.problem.status)


@command(recipe_app, commands.RECIPE_NEW)
def recipe_new(
    name: str,
    model: Path | None,
    weights: Path | None,
    zoo: str | None,
    out: Path | None,
    overwrite: bool,
    input_size: str | None,
    as_json: bool,
) -> None:
    """Draft a recipe, and print what it has. A draft from a graph that does not load the weights ends with an
    error's status.
    """
    from porter.authoring.new_recipe import OWN, new_recipe
    from porter.padding.sizes import parse_size

    size = None if input_size is None else parse_size(input_size)
    path = out or Path(f"{name}.yaml")
    if path.exists() and not overwrite:
        raise UsageError(
            "this file exists", where=path, next=f"add {OVERWRITE()} to replace it, or {OUT.placeholder}"
        )
    drafted = new_recipe(name, path, model, weights, zoo or OWN, size)
    show(drafted.record() if as_json else recipe_text.new_recipe(drafted))
    # A draft from weights only is there to be completed.
    if drafted.problem is not None and model is not None:
        raise typer.Exit(MappingError.status)


@command(recipe_app, commands.RECIPE_SCHEMA)
def recipe_schema(as_json: bool) -> None:
    from porter.authoring.json_schema import schema_text

    write(schema_text().rstrip())

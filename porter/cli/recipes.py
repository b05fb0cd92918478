"""The commands of `porter recipe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from porter.base.errors import MappingError, UsageError
from porter.cli import printing
from porter.cli.arguments import InputSize, Json, Recipes, help_without_command
from porter.cli.terminal import say, show, write

recipe_app = typer.Typer(help="The recipes: one YAML file per architecture.", invoke_without_command=True, rich_markup_mode=None)
recipe_app.callback()(help_without_command)


@recipe_app.command("list")
def recipe_list(recipes: Recipes = None, as_json: Json = False) -> None:
    """List architectures, their variants and zoos."""
    from porter.recipe import declared_recipes, recipes_folder

    found = declared_recipes(recipes, with_zoos=True)
    listed = [recipe for recipe in found if recipe.fault is None and recipe.names]
    faults = [str(recipe.fault) for recipe in found if recipe.fault is not None]
    if as_json:
        show({"recipes": [printing.declared_record(recipe) for recipe in listed], "left_out": faults})
    else:
        show(printing.recipe_list(listed, recipes_folder()))
        say((f"left out: {fault}" for fault in faults), err=True)


@recipe_app.command("show")
def recipe_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="an architecture or a variant")],
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Print a recipe; for a variant, its graph and zoos."""
    from porter.recipe import expand, find_recipe

    recipe = find_recipe(name, recipes)
    variant = name if name in recipe.variants else next(iter(recipe.variants))
    member = next(recipe.members(variant))
    shown = printing.recipe_record(member, expand(member))
    show(shown if as_json else printing.recipe(shown))


@recipe_app.command("check")
def recipe_check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a recipe")],
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="try the recipe on this file: mapping and numbers")] = None,
    as_json: Json = False,
) -> None:
    """Check every variant of a recipe in every zoo: graph, shapes, names, pads, expressions, figures."""
    from porter.authoring.check.check import check_recipe

    found, trial = check_recipe(file), None
    if weights is not None and found.recipe is not None and not found.errors:
        from porter.authoring.trial import try_weights

        trial = try_weights(found.recipe, weights)
    problem = next(iter(found.errors), trial.error if trial else None)
    stated = {"ok": problem is None, **found.record(), "weights": trial and trial.record()}
    show(stated if as_json else printing.recipe_check(found, trial))
    if problem is not None:
        raise typer.Exit(problem.status)


@recipe_app.command("new")
def recipe_new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the variant, and of its architecture")],
    model: Annotated[Path | None, typer.Option("--from-model", metavar="FILE", help="a file that carries its own graph")] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", metavar="FILE", help="try the recipe on this file; without --from-model, draft it from this file"
        ),
    ] = None,
    zoo: Annotated[str | None, typer.Option("--zoo", metavar="ZOO", help="the name of the recipe's zoo; default: own")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="default: ./NAME.yaml")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an existing file")] = False,
    input_size: InputSize = None,
    as_json: Json = False,
) -> None:
    """Draft a recipe from a file that carries its own graph, whole, or from a file of weights, with # TODO where it is a guess."""
    from porter.authoring.drafting import OWN, new_recipe
    from porter.padding.sizes import parse_size

    size = None if input_size is None else parse_size(input_size)
    path = out or Path(f"{name}.yaml")
    if path.exists() and not overwrite:
        raise UsageError("this file exists", where=str(path), next="add --overwrite to replace it, or --out FILE")
    drafted = new_recipe(name, path, model, weights, zoo or OWN, size)
    show(drafted.record() if as_json else printing.new_recipe(drafted))
    if drafted.problem is not None and model is not None:  # a draft from weights only is there to be completed
        raise typer.Exit(MappingError.status)


@recipe_app.command("schema")
def recipe_schema(as_json: Json = False) -> None:
    """Print the JSON Schema of recipes and of zoos' files, for editors: the same with --json and without it."""
    from porter.authoring.json_schema import schema_text

    write(schema_text().rstrip())

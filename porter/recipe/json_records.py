"""Recipes and what is published of their variants, as `--json` prints them."""

from __future__ import annotations

from typing import Any

from porter.frameworks import DESTINATION_NAMES
from porter.graph import Graph, shapes, window_words
from porter.recipe.declared import Declared
from porter.recipe.proofs import proof_of
from porter.recipe.recipe import Member, Recipe, Zoo


def declared_record(file: Recipe | Declared) -> dict[str, Any]:
    """Return the record of a recipe that `porter recipe list --json` prints."""
    return {
        "architecture": file.architecture,
        "variants": list(file.variants),
        "zoos": list(file.zoos),
        "file": str(file.path),
    }


def recipe_record(member: Member, graph: Graph) -> dict[str, Any]:
    """Return a recipe, the weights of one of its variants in each zoo, and the variant's graph, for JSON;
    `window` is null of a step without one.
    """
    file, variant, _ = member
    known = shapes(graph, member.native_size())
    nodes = [
        {
            "path": node.path,
            "op": node.op_name,
            "window": window_words(node.op),
            "output": list(known[node.path]),
        }
        for node in graph.nodes
    ]
    return {
        **declared_record(file),
        "paper": file.paper,
        "variant": variant,
        "weights": [_weights(file, variant, zoo) for zoo in file.zoos_of(variant).values()],
        "proofs": {
            of_zoo.zoo.name: {name: proof_of(of_zoo, name).record() for name in DESTINATION_NAMES}
            for of_zoo in file.members(variant)
        },
        "nodes": nodes,
    }


def _weights(file: Recipe, variant: str, zoo: Zoo) -> dict[str, Any]:
    """Return what a zoo publishes of a variant, for JSON: its accuracies, licence and file, with null for
    what it does not.
    """
    figures, published = zoo.published.get(variant), zoo.files.get(variant)
    return {
        "zoo": zoo.name,
        "framework": zoo.framework,
        "top1": figures and figures.top1,
        "top5": figures and figures.top5,
        "licence": zoo.licence_of(variant),
        "file": published and published.name,
        "written_in": _written(file, variant, zoo),
    }


def _written(file: Recipe, variant: str, zoo: Zoo) -> str | None:
    """Return the line of a variant's weights in the zoo's file, otherwise that of the zoo in the recipe; None
    if neither is known.
    """
    keys_of_zoo = ("zoos", zoo.name)
    # a place in a file
    mark = file.source.mark((*keys_of_zoo, "weights", variant), key=True)
    mark = mark or file.source.mark(keys_of_zoo, key=True)
    if mark is None:
        return None
    folder, path = file.path.parent, mark.path
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return f"{path}:{mark.line}"

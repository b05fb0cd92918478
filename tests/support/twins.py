"""The twins among porter's own recipes. `python -m tests.support.twins` writes recipes/twins.json and
docs/twins.md.
"""

import json
from collections import defaultdict
from dataclasses import asdict
from itertools import permutations

from porter.graph import Graph
from porter.graph.difference import differences
from porter.recipe import Member, Recipe, expand, recipes_folder
from porter.recipe.fingerprints import digest_of_recipes
from porter.recipe.twins import FILE, TRAINING_ATTRIBUTES, Twin, tensors_of
from tests.support.checkout import ROOT
from tests.support.recipe.recipes import all_recipes

PAGE = ROOT / "docs" / "twins.md"
Found = dict[str, dict[str, dict[str, tuple[Twin, ...]]]]


def computed() -> Found:
    """The twins among all pairs of members of all recipes, by the name of the recipe's file, by variant and
    by zoo.
    """
    alike: dict[object, list[tuple[Member, Graph]]] = defaultdict(list)
    for recipe in all_recipes():
        for member in recipe.members():
            graph = expand(member)
            alike[member.zoo.framework, tensors_of(member, graph)].append((member, graph))
    found: Found = defaultdict(lambda: defaultdict(dict))
    for group in alike.values():
        for (one, graph), (other, theirs) in permutations(group, 2):
            assert (one.recipe.path, one.variant) == (other.recipe.path, other.variant), (
                f"{one.name} is a twin of {other.name}"
            )
            lines = tuple(
                each.in_words(one.zoo.name, other.zoo.name)
                for each in differences(graph, theirs, TRAINING_ATTRIBUTES)
            )
            if lines:
                known = found[one.recipe.path.name][one.variant]
                known[one.zoo.name] = (
                    *known.get(one.zoo.name, ()),
                    Twin(other.variant, other.zoo.name, lines),
                )
    return found


def text(found: Found) -> str:
    """The content of twins.json."""
    return (
        json.dumps({"sha256": digest_of_recipes(recipes_folder()), "twins": found}, indent=1, default=asdict)
        + "\n"
    )


def page(found: Found) -> str:
    """The content of docs/twins.md: each pair once."""
    start = PAGE.read_text(encoding="utf-8").split("| architecture |")[0]
    rows = ["| architecture | variants | zoos | what differs |", "|---|---|---|---|"]
    for recipe in all_recipes():
        rows += _rows(recipe, found.get(recipe.path.name, {}))
    return start + "\n".join(rows) + "\n"


def _rows(recipe: Recipe, variants: dict[str, dict[str, tuple[Twin, ...]]]) -> list[str]:
    """A row for the variants whose twins differ in the same way."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for variant, zoos in variants.items():
        order = list(zoos)
        for zoo, twins in zoos.items():
            for twin in twins:
                if order.index(zoo) < order.index(twin.zoo):
                    alike[zoo, twin.zoo, twin.differs].append(variant)
    return [
        f"| {recipe.architecture} | {', '.join(f'`{name}`' for name in names)} | {zoo}, {other} | "
        f"{'; '.join(differs)} |"
        for (zoo, other, differs), names in alike.items()
    ]


if __name__ == "__main__":
    everything = computed()
    (recipes_folder() / FILE).write_text(text(everything), encoding="utf-8", newline="\n")
    PAGE.write_text(page(everything), encoding="utf-8", newline="\n")

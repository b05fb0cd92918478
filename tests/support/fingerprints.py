"""The fingerprints of porter's own recipes. `python -m tests.support.fingerprints` writes them into
recipes/.
"""

import json
from dataclasses import asdict

from porter.recipe import Member, expand, layer_names, recipes_folder
from porter.recipe.fingerprints import (
    FILE,
    Fingerprints,
    Recorded,
    digest_of_recipes,
    fingerprint_of,
    layers_by_name,
)
from tests.support.recipe.recipes import all_recipes


def text() -> str:
    found = {
        recipe.path.name: {
            variant: {
                zoo.name: recorded(Member(recipe, variant, zoo)) for zoo in recipe.zoos_of(variant).values()
            }
            for variant in recipe.variants
        }
        for recipe in all_recipes()
    }
    return written(found, digest_of_recipes(recipes_folder()))


def recorded(member: Member) -> Recorded:
    graph = expand(member)
    tables = (layer_names(member, graph, label) for label in (None, *member.zoo.generations))
    return Recorded(fingerprint_of(graph), layers_by_name(graph, tables))


def written(found: Fingerprints, texts: str) -> str:
    """The content of fingerprints.json. Zoos mostly have the same graph, which stands there once."""
    graphs: dict[str, int] = {}
    names: dict[str, int] = {}

    def index(listed: dict[str, int], value: object) -> int:
        return listed.setdefault(json.dumps(value, separators=(",", ":")), len(listed))

    recipes = {
        name: {
            variant: {
                zoo: (index(graphs, asdict(one.fingerprint)), index(names, one.names))
                for zoo, one in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in found.items()
    }
    rows, other_rows = (",\n".join(listed) for listed in (graphs, names))
    return (
        f'{{"sha256": "{texts}",\n"recipes": {json.dumps(recipes)},\n'
        f'"fingerprints": [\n{rows}\n],\n"names": [\n{other_rows}\n]}}\n'
    )


if __name__ == "__main__":
    (recipes_folder() / FILE).write_text(text(), encoding="utf-8", newline="\n")

"""The fingerprints of porter's own recipes. `python -m tests.support.fingerprints` writes them into
recipes/.
"""

import json
from dataclasses import asdict

from porter.recipe import Member, expand, recipes_folder
from porter.recipe.fingerprints import FILE, Fingerprints, digest, fingerprint_of
from tests.support.recipe.recipes import all_recipes


def text() -> str:
    found = {
        recipe.path.name: {
            variant: {
                zoo.name: fingerprint_of(expand(Member(recipe, variant, zoo)))
                for zoo in recipe.zoos_of(variant).values()
            }
            for variant in recipe.variants
        }
        for recipe in all_recipes()
    }
    return written(found, digest(recipes_folder()))


def written(found: Fingerprints, texts: str) -> str:
    """The content of fingerprints.json. Zoos mostly have the same graph, which stands there once."""
    listed: dict[str, int] = {}
    recipes = {
        name: {
            variant: {
                zoo: listed.setdefault(json.dumps(asdict(one), separators=(",", ":")), len(listed))
                for zoo, one in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in found.items()
    }
    rows = ",\n".join(listed)
    return f'{{"sha256": "{texts}",\n"recipes": {json.dumps(recipes)},\n"fingerprints": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    (recipes_folder() / FILE).write_text(text(), encoding="utf-8", newline="\n")

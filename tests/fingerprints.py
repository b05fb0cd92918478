"""The fingerprints of porter's own recipes. `python -m tests.fingerprints` writes them into recipes/."""

from porter.recipe import Member, all_recipes, expand, recipes_folder
from porter.recipe.fingerprints import FILE, digest, fingerprint_of, fingerprints_text


def text() -> str:
    found = {
        recipe.path.name: {
            variant: {zoo.name: fingerprint_of(expand(Member(recipe, variant, zoo))) for zoo in recipe.zoos_of(variant).values()}
            for variant in recipe.variants
        }
        for recipe in all_recipes()
    }
    return fingerprints_text(found, digest(recipes_folder()))


if __name__ == "__main__":
    (recipes_folder() / FILE).write_text(text(), encoding="utf-8", newline="\n")

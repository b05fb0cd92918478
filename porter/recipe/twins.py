"""Twins: two zoos' variants that take the same tensors and compute something else, such as timm's tf_ models
and its others.

A strict load of a twin's weights succeeds, and its answers are wrong. Those among porter's own recipes are
kept beside them in twins.json, so that no recipe has to be expanded to know them. `python -m
tests.support.twins` computes the file from the recipes, and a test holds it to them. If it was made from
other texts than those beside it, it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from porter.recipe.fingerprints import beside_recipes
from porter.recipe.load import recipes_folder
from porter.recipe.model import Member

FILE = "twins.json"


@dataclass(frozen=True)
class Twin:
    """A variant of another zoo. `differs` says what it computes otherwise, a line for each kind of steps."""

    variant: str
    zoo: str
    differs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.variant} from {self.zoo}"


Twins = Mapping[str, Mapping[str, Mapping[str, tuple[Twin, ...]]]]
"""By the name of the recipe's file, by variant, by zoo."""


def shipped_twins(member: Member) -> tuple[Twin, ...] | None:
    """Those of a member of porter's own recipes; None if they are not known: of another recipe, or with other
    options.
    """
    folder = recipes_folder()
    if member.zoo.chosen or member.recipe.path.parent.resolve() != folder.resolve():
        return None
    found = beside_recipes(folder / FILE, _parsed)
    return (
        None
        if found is None
        else found.get(member.recipe.path.name, {}).get(member.variant, {}).get(member.zoo.name, ())
    )


def _parsed(content: Mapping[str, Any]) -> Twins:
    return {
        name: {
            variant: {
                zoo: tuple(Twin(each["variant"], each["zoo"], tuple(each["differs"])) for each in listed)
                for zoo, listed in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in content["twins"].items()
    }

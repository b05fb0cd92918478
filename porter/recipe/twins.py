"""Twins: two zoos' variants that take the same tensors and compute something else, such as timm's tf_ models
and its others.

A strict load of a twin's weights succeeds, and its answers are wrong. Those among porter's own recipes are
kept beside them in twins.json, so that no recipe has to be expanded to know them. `python -m
tests.support.twins` computes the file from the recipes, and a test holds it to them. If it was made from
other texts than those beside it, it is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from porter.base.errors import RecipeError
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph, tensor_shapes
from porter.graph.difference import Difference, differences
from porter.recipe.expansion import expand
from porter.recipe.fingerprints import read_beside_recipes
from porter.recipe.load import recipes_folder
from porter.recipe.recipe import TRAINING_OPTIONS, Member
from porter.recipe.zoo_names import layer_names, tensor_names
from porter.recipe.zoo_options import with_options

FILE = "twins.json"
TRAINING_ATTRIBUTES = frozenset(name.removeprefix("bn_") for name in TRAINING_OPTIONS)
"""Attributes of ops that do not change what a trained network computes."""


@dataclass(frozen=True)
class Twin:
    """A variant of another zoo.

    Attributes:
        differs: what it computes otherwise, a line for each kind of steps.
    """

    variant: str
    zoo: str
    differs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.variant} from {self.zoo}"


Twins = Mapping[str, Mapping[str, Mapping[str, tuple[Twin, ...]]]]
"""Twins by the name of the recipe's file, by variant and by zoo."""


def shipped_twins(member: Member) -> tuple[Twin, ...] | None:
    """Return the twins of a member of porter's own recipes: variants of other zoos that take the same tensors
    and compute something else. Return None if they are not known, because it is of another recipe or has
    other options.
    """
    folder = recipes_folder()
    if member.zoo.chosen or member.recipe.path.parent.resolve() != folder.resolve():
        return None
    twins = read_beside_recipes(folder / FILE, _parse_twins)
    if twins is None:
        return None
    return twins.get(member.recipe.path.name, {}).get(member.variant, {}).get(member.zoo.name, ())


def _parse_twins(content: Mapping[str, Any]) -> Twins:
    """Return the twins that a twins.json lists, by the recipe's file, by variant and by zoo."""
    return {
        name: {
            variant: {
                zoo: tuple(Twin(twin["variant"], twin["zoo"], tuple(twin["differs"])) for twin in listed)
                for zoo, listed in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in content["twins"].items()
    }


def twins_of(member: Member) -> tuple[Twin, ...]:
    """Return the twins of a member: the same variant in other zoos of its recipe that take the same tensors
    and compute something else. They are read from twins.json, or computed where that does not know them.
    """
    shipped = shipped_twins(member)
    return compute_twins(member) if shipped is None else shipped


def compute_twins(member: Member) -> tuple[Twin, ...]:
    """Return the twins of a member: the same variant in other zoos, whose files have the same tensors, but
    whose graphs differ, for example in a pad. Each has what tells it from the member, in words.
    """
    return tuple(
        Twin(
            member.variant,
            sibling.zoo.name,
            tuple(difference.in_words(member.zoo.name, sibling.zoo.name) for difference in different),
        )
        for sibling, different in members_with_same_tensors(member)
        if different
    )


def members_with_same_tensors(member: Member) -> Iterator[tuple[Member, tuple[Difference, ...]]]:
    """Yield the same variant in other zoos of its recipe where it takes the same tensors, each with what it
    computes otherwise, which is nothing where it is the same function. Zoos of other frameworks, and with
    faults, are left out.
    """
    zoo = member.zoo
    others = [
        sibling
        for sibling in member.recipe.sound_members(member.variant)
        if sibling.zoo.name != zoo.name and sibling.zoo.framework == zoo.framework
    ]
    if not others:
        return
    graph = expand(member)
    tensors = tensors_of(member, graph)
    for sibling in others:
        # What a user sets holds for each of them.
        sibling_as_chosen = with_options(sibling, zoo.chosen)
        with suppress(RecipeError):
            sibling_graph = expand(sibling_as_chosen)
            if tensors_of(sibling_as_chosen, sibling_graph) == tensors:
                yield sibling_as_chosen, differences(graph, sibling_graph, TRAINING_ATTRIBUTES)


def tensors_of(member: Member, graph: Graph) -> frozenset[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Return the tensors that a file of the variant's weights holds: the likeliest name of each, its
    transforms, and its shape.
    """
    dialect = get_dialect(member.zoo.framework)
    layers = layer_names(member, graph)
    return frozenset(
        (names[0], layers[path].transforms, roles[role])
        for path, roles in tensor_shapes(graph).items()
        for role, names in tensor_names(dialect, graph, path, layers[path]).items()
        if role in roles
    )

"""Computes from the graphs of the recipes which zoos' variants take the same tensors, and whether they
compute the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from porter.base.errors import RecipeError
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph, tensor_shapes
from porter.graph.difference import Difference, differences
from porter.recipe import Member, expand, layer_names, with_options
from porter.recipe.model import TRAINING_OPTIONS
from porter.recipe.twins import Twin, shipped_twins
from porter.source.fitting.locating import tensor_names

TRAINING = frozenset(name.removeprefix("bn_") for name in TRAINING_OPTIONS)
"""Attributes of ops that do not change what a trained network computes."""


def twins_of(member: Member) -> tuple[Twin, ...]:
    """The same variant in other zoos of its recipe, where it is a twin."""
    shipped = shipped_twins(member)
    return computed_twins(member) if shipped is None else shipped


def computed_twins(member: Member) -> tuple[Twin, ...]:
    """As `twins_of`, from the recipe's graphs."""
    return tuple(
        Twin(
            member.variant,
            other.zoo.name,
            tuple(each.in_words(member.zoo.name, other.zoo.name) for each in apart),
        )
        for other, apart in alike(member)
        if apart
    )


def alike(member: Member) -> Iterator[tuple[Member, tuple[Difference, ...]]]:
    """The same variant in other zoos of its recipe that take the same tensors, each with what it computes
    otherwise.
    """
    zoo = member.zoo
    others = [
        each
        for each in member.recipe.sound_members(member.variant)
        if each.zoo.name != zoo.name and each.zoo.framework == zoo.framework
    ]
    if not others:
        return
    graph = expand(member)
    tensors = tensors_of(member, graph)
    # What a user sets holds for each of them.
    for other in (with_options(each, zoo.chosen) for each in others):
        with suppress(RecipeError):
            theirs = expand(other)
            if tensors_of(other, theirs) == tensors:
                yield other, differences(graph, theirs, TRAINING)


def tensors_of(member: Member, graph: Graph) -> frozenset[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """The tensors that a file of the variant's weights holds: the likeliest name of each, what is done with
    it, and its shape.
    """
    dialect, layers = get_dialect(member.zoo.framework), layer_names(member, graph)
    return frozenset(
        (names[0], layers[path].transforms, roles[role])
        for path, roles in tensor_shapes(graph).items()
        for role, names in tensor_names(dialect, graph, path, layers[path]).items()
        if role in roles
    )

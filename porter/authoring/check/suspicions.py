"""What is legal in a recipe and rarely meant: pads that nobody decided on, and what nothing uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.authoring.check.uses import uses_in_graph, uses_in_zoo
from porter.authoring.todo import TO_DO, to_do
from porter.base.errors import RecipeError
from porter.graph import Graph, site_of
from porter.recipe import NodeNames
from porter.recipe.find_recipes import error_of_taken_name
from porter.recipe.paddings import PadRule
from porter.recipe.recipe import STANDARD_OPTIONS, NameRule, Recipe, Zoo
from porter.recipe.source import Location
from porter.recipe.steps import RecipeStep, with_branches


@dataclass(frozen=True)
class ExpandedVariant:
    """A variant in a zoo: its graph, the step of each node, and the names of nodes."""

    variant: str
    zoo: Zoo
    graph: Graph
    steps: Mapping[str, Location]
    names: NodeNames


def suspicions(recipe: Recipe, members: Sequence[ExpandedVariant]) -> Iterator[RecipeError]:
    """Yield what looks like a mistake, one for each place, as errors that nobody raises.

    Args:
        members: every variant in every zoo.
    """
    yield from _undecided_places(recipe)
    yield from filter(None, [error_of_taken_name(recipe.path)])
    yield from _undecided_pads(recipe, members)
    yield from _unused_names(recipe)
    yield from _repeated_paths(recipe, recipe.graph)
    for block in recipe.blocks.values():
        yield from _repeated_paths(recipe, block.steps)
    yield from _steps_without_repeats(recipe)
    yield from _empty_names(recipe, members)
    for name in recipe.zoos:
        yield from _hidden_rules(recipe, [member for member in members if member.zoo.name == name])


def _undecided_places(recipe: Recipe) -> Iterator[RecipeError]:
    """Yield the places that a draft left for its author to decide."""
    for line, column, question in to_do(recipe.path.read_text(encoding="utf-8")):
        yield RecipeError(
            f"to decide: {question}", where=f"{recipe.path}:{line}:{column}", next=f"then remove the {TO_DO}"
        )


def _undecided_pads(recipe: Recipe, members: Sequence[ExpandedVariant]) -> Iterator[RecipeError]:
    """Yield a suspicion for each step with a strided window whose pads are stated nowhere: neither by `pad`
    in the step nor by the padding section of the zoo. porter takes them for none then ('valid').
    """
    undecided: dict[Location, dict[str, str]] = {}
    for member in members:
        for node in member.graph.nodes:
            # the window and pads of a convolution or a pool
            site, step = site_of(node.op), member.steps[node.path]
            if site is None or max(site.window.stride) == 1 or max(site.window.kernel) == 1:
                continue
            step_says = recipe.source.mark((*step, "pad"), key=True) is not None
            zoo_says = any(rule.matches(node.path, site.kind) for rule in member.zoo.padding)
            if not step_says and not zoo_says:
                undecided.setdefault(step, {}).setdefault(member.zoo.name, node.path)
    # Of each step: the zoos that say nothing, each with a path of the step there.
    for step, zoos in undecided.items():
        path = next(iter(zoos.values()))
        names = ", ".join(f"'{name}'" for name in zoos)
        message = f"'{path}' has a stride, and neither its step nor zoo {names} says a pad: 'valid' is taken"
        yield _suspicion(
            recipe, step, message, f"write 'pad' here, or '{path}' in the zoo's padding", key=False
        )


def _unused_names(recipe: Recipe) -> Iterator[RecipeError]:
    """Yield a suspicion for each option, constant, parameter and block that nothing reads."""
    in_graph = list(uses_in_graph(recipe))
    shared = [*in_graph, *(use for zoo in recipe.zoos.values() for use in uses_in_zoo(recipe, zoo))]
    used = frozenset[str]().union(*(use.names for use in shared))
    for name in recipe.options:
        if name not in used and name not in STANDARD_OPTIONS:
            yield _suspicion(recipe, ("options", name), f"option '{name}' is not used")
    for name in recipe.constants:
        if name not in used:
            yield _suspicion(recipe, ("constants", name), f"constant '{name}' is not used")
    unused: set[str] = set()
    for variant, parameters in recipe.variants.items():
        for name in parameters:
            if name not in used and name not in unused:
                unused.add(name)
                yield _suspicion(recipe, ("variants", variant, name), f"variable '{name}' is not used")
    used_blocks = _used_blocks(recipe)
    for block in recipe.blocks.values():
        if block.name not in used_blocks:
            yield _suspicion(recipe, block.location, f"block '{block.name}' is not used")
        used_in_block = frozenset[str]().union(*(use.names for use in in_graph if use.block == block.name))
        for name in block.parameters:
            if name not in used_in_block:
                yield _suspicion(
                    recipe, block.place(name), f"parameter '{name}' of block '{block.name}' is not used"
                )


def _used_blocks(recipe: Recipe) -> set[str]:
    """Return the names of the blocks that the graph uses, directly or in another block."""
    used: set[str] = set()
    waiting = list(with_branches(recipe.graph))
    while waiting:
        kind = waiting.pop().kind
        if kind in recipe.blocks and kind not in used:
            used.add(kind)
            waiting += with_branches(recipe.blocks[kind].steps)
    return used


def _repeated_paths(recipe: Recipe, steps: Sequence[RecipeStep]) -> Iterator[RecipeError]:
    """Yield the steps that have the path and the condition of a step before, which no variant can have both.
    Numbered and repeated steps get different paths.
    """
    first_steps: dict[tuple[str, str], RecipeStep] = {}
    for step in steps:
        before = first_steps.setdefault((step.path, str(step.when)), step)
        if before is not step and not step.numbered and step.repeat is None:
            where = recipe.source.where((*before.location, before.kind))
            yield _suspicion(
                recipe,
                (*step.location, step.kind),
                f"'{step.path}' is the path of the step at {where} too",
                key=False,
            )
        for branch in step.branches:
            yield from _repeated_paths(recipe, branch)


def _steps_without_repeats(recipe: Recipe) -> Iterator[RecipeError]:
    """Yield steps that are repeated 0 times wherever they are used."""
    steps_of_blocks = (step for block in recipe.blocks.values() for step in block.steps)
    for step in with_branches((*recipe.graph, *steps_of_blocks)):
        if type(step.repeat) is int and step.repeat == 0:
            advice = "remove the step, or write how often it repeats"
            yield _suspicion(
                recipe,
                (*step.location, "repeat"),
                f"'{step.path}' is repeated 0 times: no variant has it",
                advice,
                key=False,
            )


def _empty_names(recipe: Recipe, members: Sequence[ExpandedVariant]) -> Iterator[RecipeError]:
    """Yield a suspicion for each line of a zoo's names that gives a layer the name ''."""
    nameless = {
        layer.location: path for member in members for path, layer in member.names.items() if not layer.name
    }
    for location, path in nameless.items():
        yield _suspicion(
            recipe, location, f"the name of '{path}' is empty", "write the layer's name in the zoo", key=False
        )


def _hidden_rules(recipe: Recipe, members: Sequence[ExpandedVariant]) -> Iterator[RecipeError]:
    """Yield a zoo's own rules that apply nowhere, because rules before them match all their nodes. Rules that
    the zoo inherits are passed over.
    """
    if not members:
        return
    zoo = recipe.zoos[members[0].zoo.name]
    nodes = {(node.path, site_of(node.op)) for member in members for node in member.graph.nodes}
    sites = {(path, site.kind) for path, site in nodes if site}
    matching = ([rule.location for rule in zoo.padding if rule.matches(path, kind)] for path, kind in sites)
    # The first rule that matches applies.
    applied_pads = {rules[0] for rules in matching if rules}
    # a location ends in the part of the rule that gave the name
    applied_names = {layer.location[:-1] for member in members for layer in member.names.values()}
    # Each with another reason why it may apply nowhere.
    hidden: list[tuple[PadRule | NameRule, str]] = [
        (rule, "") for rule in zoo.padding if rule.location not in applied_pads
    ]
    hidden += [
        (rule, ", or it computes with a word there")
        for rule in zoo.names
        if rule.location not in applied_names
    ]
    for rule, otherwise in hidden:
        location = rule.location
        if location[:2] == ("zoos", zoo.name):
            message = (
                f"'{rule.pattern}' applies to no node: lines before it match all that it matches{otherwise}"
            )
            yield _suspicion(recipe, location, message, "move it up, or remove it")


def _suspicion(
    recipe: Recipe, location: Location, message: str, next: str | None = None, *, key: bool = True
) -> RecipeError:
    return RecipeError(message, where=recipe.source.where(location, key=key), next=next)

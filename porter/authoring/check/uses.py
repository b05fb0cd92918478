"""The variables that a recipe's expressions use, reached in some variant or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from porter.graph import INPUT
from porter.recipe.expressions import placeholders, variables_of
from porter.recipe.path_patterns import compile_pattern
from porter.recipe.recipe import OWN, PLACE, NameRule, Recipe, Zoo
from porter.recipe.source import Location
from porter.recipe.steps import OPERATIONS, RecipeStep, expressions

KnownNames = frozenset[str]
_PLACE: KnownNames = frozenset({"index", "first", "last"})


class VariableUse(NamedTuple):
    """Variables that one value uses.

    Attributes:
        location: of the value, in the recipe or in the zoo.
        known: the variables in scope there.
        block: whose parameters are in scope; None outside blocks.
    """

    location: Location
    names: KnownNames
    known: KnownNames
    block: str | None = None

    def unknown(self) -> list[str]:
        return sorted(self.names - self.known)


def uses_in_graph(recipe: Recipe) -> Iterator[VariableUse]:
    """The uses in the graph and in the blocks."""
    shared = _shared(recipe)
    if isinstance(recipe.input_size, str):
        yield from _in_value(("input", "size"), recipe.input_size, shared, None)
    yield from _in_steps(recipe.graph, shared, None)
    for block in recipe.blocks.values():
        known = shared | _PLACE | {"channels"}
        for name, default in block.parameters.items():
            yield from _in_value(block.place(name), default, known, block.name)
            known |= {name}
        yield from _in_steps(block.steps, known, block.name)


def uses_in_zoo(recipe: Recipe, zoo: Zoo) -> Iterator[VariableUse]:
    """The uses in a zoo's pads and names, inherited ones included."""
    shared = _shared(recipe)
    older = zoo.generations.values()
    parts = (*(part.padding for part in older), *(part.padding for part in zoo.overrides.values()))
    for pads in (zoo.padding, zoo.padding_as_trained, *parts):
        for pad in pads:
            yield from _in_value(pad.location, pad.value, shared, None)
    for rules, own in ((zoo.names, ()), (zoo.taps, (OWN,)), *((part.names, ()) for part in older)):
        for rule in rules:
            yield from _in_name(rule, shared | {"variant", "count", INPUT, *own})


def _shared(recipe: Recipe) -> KnownNames:
    return frozenset(recipe.options).union(recipe.constants, *recipe.variants.values())


def _in_name(rule: NameRule, known: KnownNames) -> Iterator[VariableUse]:
    """The variables that a name of tensors uses."""
    for location, text in rule.parts:
        counted = {PLACE} if location[-1] == "name" or str(location[-2]).endswith("/") else frozenset[str]()
        yield VariableUse(
            location, placeholders(text), known | counted | compile_pattern(rule.pattern).groupindex.keys()
        )


def _in_steps(steps: tuple[RecipeStep, ...], known: KnownNames, block: str | None) -> Iterator[VariableUse]:
    """The variables that the expressions of steps use, and those of the steps within them."""
    for step in steps:
        local = known if step.repeat is None else known | _PLACE
        yield from _in_value((*step.location, "repeat"), step.repeat, known, block)
        yield VariableUse(
            (*step.location, step.kind), placeholders(step.path), known | _PLACE | {"count"}, block
        )
        written = {"when": step.when, "from": step.inputs, **step.arguments, **step.overrides}
        yield from _in_value(step.location, written, local, block)
        for default in OPERATIONS.get(step.kind, {}).items():
            if default[0] not in step.arguments:
                yield from _in_value(step.location, dict([default]), local | {"bn_epsilon"}, block)
        for branch in step.branches:
            yield from _in_steps(branch, known, block)


def _in_value(
    location: Location, value: Mapping[str, Any] | Any, known: KnownNames, block: str | None
) -> Iterator[VariableUse]:
    for here, text in expressions(location, value):
        yield VariableUse(here, variables_of(text), known, block)

"""The variables that a recipe's expressions use, reached in some variant or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from porter.graph import INPUT
from porter.recipe.expressions import placeholders, variables_of
from porter.recipe.path_patterns import compile_pattern
from porter.recipe.recipe import OWN_NAME, PLACE, NameRule, Recipe, Zoo
from porter.recipe.source import Location
from porter.recipe.steps import OPERATIONS, RecipeStep, find_expressions

KnownNames = frozenset[str]
_OF_REPEATS: KnownNames = frozenset({"index", "first", "last"})
"""The variables of a step that is repeated, and of a block."""


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
    """Yield the uses of variables in the graph and in the blocks, with the names that each of them can see. A
    block's parameter sees those before it.
    """
    shared = _variables_everywhere(recipe)
    if isinstance(recipe.input_size, str):
        yield from _uses_in_value(("input", "size"), recipe.input_size, shared, None)
    yield from _uses_in_steps(recipe.graph, shared, None)
    for block in recipe.blocks.values():
        known = shared | _OF_REPEATS | {"channels"}
        for name, default in block.parameters.items():
            yield from _uses_in_value(block.place(name), default, known, block.name)
            known |= {name}
        yield from _uses_in_steps(block.steps, known, block.name)


def uses_in_zoo(recipe: Recipe, zoo: Zoo) -> Iterator[VariableUse]:
    """Yield the uses of variables in a zoo's pads and names, inherited ones included."""
    shared = _variables_everywhere(recipe)
    older = zoo.generations.values()
    parts = (*(part.padding for part in older), *(part.padding for part in zoo.overrides.values()))
    for pads in (zoo.padding, zoo.padding_as_trained, *parts):
        for pad in pads:
            yield from _uses_in_value(pad.location, pad.value, shared, None)
    known = shared | {"variant", "count", INPUT}
    # A tap, the name under which the zoo's code shows a value, may be made of the node's own name.
    tables = [(zoo.names, known), (zoo.taps, known | {OWN_NAME}), *((part.names, known) for part in older)]
    for rules, known_there in tables:
        for rule in rules:
            yield from _uses_in_name(rule, known_there)


def _variables_everywhere(recipe: Recipe) -> KnownNames:
    """Return the variables that every expression of a recipe can see."""
    return frozenset(recipe.options).union(recipe.constants, *recipe.variants.values())


def _uses_in_name(rule: NameRule, known: KnownNames) -> Iterator[VariableUse]:
    """Yield the variables that a line of a table of names uses, in the prefixes before its name too."""
    captured = compile_pattern(rule.pattern).groupindex.keys()
    for location, text in rule.parts:
        # Whole names, and the rows of a table of names, have a place in their table.
        has_place = location[-1] == "name" or str(location[-2]).endswith("/")
        place = {PLACE} if has_place else frozenset[str]()
        yield VariableUse(location, placeholders(text), known | place | captured)


def _uses_in_steps(
    steps: tuple[RecipeStep, ...], known: KnownNames, block: str | None
) -> Iterator[VariableUse]:
    """Yield the variables that the expressions of steps use, and those of the steps within them.

    Args:
        known: the names that an expression there can see.
        block: the block of the steps; None in the graph.
    """
    for step in steps:
        local = known if step.repeat is None else known | _OF_REPEATS
        yield from _uses_in_value((*step.location, "repeat"), step.repeat, known, block)
        yield VariableUse(
            (*step.location, step.kind), placeholders(step.path), known | _OF_REPEATS | {"count"}, block
        )
        written = {"when": step.when, "from": step.inputs, **step.arguments, **step.overrides}
        yield from _uses_in_value(step.location, written, local, block)
        for name, default in OPERATIONS.get(step.kind, {}).items():
            if name not in step.arguments:
                yield from _uses_in_value(step.location, {name: default}, local | {"bn_epsilon"}, block)
        for branch in step.branches:
            yield from _uses_in_steps(branch, known, block)


def _uses_in_value(
    location: Location, value: Mapping[str, Any] | Any, known: KnownNames, block: str | None
) -> Iterator[VariableUse]:
    """Yield the variables that the expressions in a value use, at any depth.

    Args:
        known, block: see VariableUse.
    """
    for expression_location, text in find_expressions(location, value):
        yield VariableUse(expression_location, variables_of(text), known, block)

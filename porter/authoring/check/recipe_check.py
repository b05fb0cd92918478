"""What can be known of a recipe without weights: every variant in every zoo is expanded and named, every
expression read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.authoring.check.suspicions import ExpandedVariant, suspicions
from porter.authoring.check.uses import VariableUse, uses_in_graph, uses_in_zoo
from porter.base.errors import PorterError, RecipeError
from porter.graph import site_of
from porter.recipe.expansion import expand, expand_steps, expect_head
from porter.recipe.expressions import UnknownVariable
from porter.recipe.faults import Faults
from porter.recipe.find_recipes import recipe_files
from porter.recipe.load import expect_sections, load_recipe
from porter.recipe.recipe import Member, Recipe, Zoo
from porter.recipe.zoo_names import layer_names, tap_names

if TYPE_CHECKING:
    from porter.authoring.trial import WeightsTrial


@dataclass(frozen=True)
class Checked:
    """What was found in a recipe, and how much was looked at.

    Attributes:
        recipe: None if it cannot be loaded.
        errors: none follows from another one.
        warnings: what is legal and suspicious.
        nodes: the nodes that have names, of every variant in every zoo; `sites`: their padding sites.
    """

    recipe: Recipe | None
    errors: tuple[RecipeError, ...]
    warnings: tuple[RecipeError, ...] = ()
    variants: int = 0
    zoos: int = 0
    nodes: int = 0
    sites: int = 0

    def record(self) -> dict[str, Any]:
        """Return what `porter recipe check --json` prints of it."""
        return {
            "errors": [error.record() for error in self.errors],
            "warnings": [warning.record() for warning in self.warnings],
            "checked": {
                "variants": self.variants,
                "zoos": self.zoos,
                "nodes": self.nodes,
                "sites": self.sites,
            },
        }


@dataclass(frozen=True)
class CheckOutcome:
    """What was found in a recipe and, if a file of weights was given and the recipe has no error, by its
    trial on that file.
    """

    checked: Checked
    trial: WeightsTrial | None

    @property
    def problem(self) -> PorterError | None:
        """The first error; None if all is right."""
        return next(iter(self.checked.errors), self.trial.error if self.trial else None)

    def record(self) -> dict[str, Any]:
        """Return the record that `porter recipe check --json` prints."""
        weights = self.trial and self.trial.record()
        return {"ok": self.problem is None, **self.checked.record(), "weights": weights}


def check_and_try(path: Path, weights: Path | None) -> CheckOutcome:
    """Check a recipe's file, and try the recipe on a file of weights if one is given.

    Raises:
        FileError: the weights cannot be read.
    """
    checked = check_recipe(path)
    if weights is None or checked.recipe is None or checked.errors:
        return CheckOutcome(checked, None)
    from porter.authoring.trial import try_weights

    return CheckOutcome(checked, try_weights(checked.recipe, weights))


def check_recipe(path: Path) -> Checked:
    """Check a recipe's file and the zoos' files that it needs; import no framework and read no weights.

    An error in a part hides those of what is made from the part: in the graph, those of all variants; in a
    zoo, those of the zoo.
    """
    faults = Faults()
    faults.attempt(expect_sections, path)
    with faults.collect():
        recipe = load_recipe(*recipe_files(path))
    if faults.errors:
        return Checked(None, faults.errors)
    with faults.collect():
        _expect_known(recipe, uses_in_graph(recipe))
    if faults.errors:
        return Checked(recipe, faults.errors)
    members = [member for name in recipe.zoos for member in _check_zoo(recipe, recipe.zoos[name], faults)]
    return Checked(
        recipe,
        faults.errors,
        () if faults.errors else tuple(suspicions(recipe, members)),
        len(recipe.variants),
        len(recipe.zoos),
        sum(len(member.names) for member in members),
        sum(site_of(node.op) is not None for member in members for node in member.graph.nodes),
    )


def _check_zoo(recipe: Recipe, zoo: Zoo, faults: Faults) -> list[ExpandedVariant]:
    """Check a zoo, add what is wrong to `faults`, and return its variants that are right. Errors of the zoo
    itself hide those of its variants.
    """
    members: list[ExpandedVariant] = []
    with faults.collect():
        _expect_known(recipe, uses_in_zoo(recipe, zoo))
        faults_of_variants = Faults()
        for variant in recipe.variants:
            if zoo.has(variant):
                with faults_of_variants.collect():
                    members.append(_check_variant(recipe.member(variant, zoo.name)))
        faults_of_variants.expect_none()
    return members


def _check_variant(member: Member) -> ExpandedVariant:
    """Expand a variant of a zoo, try all that the zoo says of it (pads of training, names, taps, older code),
    and return its graph, the steps of its nodes and their names.

    Raises:
        RecipeError: with all that is wrong.
    """
    recipe, variant, zoo = member
    graph, steps = expand_steps(member)
    faults = Faults()
    if zoo.padding_as_trained:
        faults.attempt(expand, member, as_trained=True)
    faults.attempt(expect_head, recipe, graph)
    names = faults.attempt(layer_names, member, graph)
    if zoo.taps:
        faults.attempt(tap_names, member, graph, names)
    for label in zoo.generations:
        with faults.collect():
            older = member.at(label)
            layer_names(member, graph if older.zoo is zoo else expand(older), label)
    faults.expect_none()
    return ExpandedVariant(variant, zoo, graph, steps, names)


def _expect_known(recipe: Recipe, uses: Iterator[VariableUse]) -> None:
    """Refuse expressions that use a variable which is not known where they stand."""
    faults = Faults()
    for use in uses:
        for name in use.unknown():
            with faults.collect(), recipe.source.at(use.location):
                raise UnknownVariable(name, use.known)
    faults.expect_none()

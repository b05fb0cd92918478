"""Makes the op of a graph's node of a step's evaluated attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from porter.base.errors import RecipeError
from porter.graph import OPS, Conv, Op
from porter.graph.ops.kinds import COUNT, short_text
from porter.padding import Convention, SiteKind, Window
from porter.recipe.expressions import Variables
from porter.recipe.kinds import MULTIPLIER, PAD
from porter.recipe.paddings import default_convention
from porter.recipe.steps import ATTRIBUTES

_SITES: Mapping[str, SiteKind] = {
    "conv": "conv",
    "depthwise_conv": "conv",
    "max_pool": "max_pool",
    "avg_pool": "avg_pool",
}

MakeConvention = Callable[[SiteKind, Convention], Convention]
"""Gives the zoo's convention for a site's kind and the graph's own convention."""


def make_op(attributes: Attributes, channels: int, pad: MakeConvention) -> Op:
    """The op of a step's node.

    Args:
        channels: of the step's input.
        pad: gives the zoo's convention for the one that the graph declares.

    Raises:
        RecipeError: a value is out of its range; with its place.
    """
    kind = attributes.operation
    given = {key: attributes.read(key) for key in attributes.values}
    if "kernel" in given:
        given["window"] = Window(given.pop("kernel"), given.pop("stride"), given.pop("dilation"))
    if "pad" in given:
        given["convention"] = pad(_SITES[kind], given.pop("pad"))
    if kind == "depthwise_conv":
        return Conv(filters=channels * given.pop("multiplier"), groups=channels, **given)
    return OPS[kind](**given)


@dataclass(frozen=True)
class Attributes:
    """The attributes of a node.

    Attributes:
        values: of every one, evaluated.
        variables: those in scope; a value that is the name of one lacks its `=`.
        written: gives the place where an attribute's value is written.
    """

    operation: str
    path: str
    values: Mapping[str, Any]
    variables: Variables
    written: Callable[[str], str]

    def read(self, key: str) -> Any:
        """An attribute as its kind says."""
        kind, value = ATTRIBUTES[self.operation][key].kind, self.values[key]
        if kind is PAD:
            try:
                return default_convention(value, _SITES[self.operation])
            except RecipeError as error:
                raise error.at(self.written(key)) from None
        converted = kind.convert(value)
        if converted is None:
            counted = isinstance(value, float) and kind in (COUNT, MULTIPLIER)
            raise self._refused(key, kind.words, "write int(...) or round8(...)" if counted else None)
        return converted

    def _refused(self, key: str, expected: str, advice: str | None = None) -> RecipeError:
        """The error that an attribute is none that its operation takes."""
        if isinstance(self.values[key], str) and self.values[key] in self.variables:
            advice = f"write ={self.values[key]}, which is the variable"
        message = f"'{key}' of '{self.path}' must be {expected}, got {short_text(self.values[key])}"
        return RecipeError(message, where=self.written(key), next=advice)

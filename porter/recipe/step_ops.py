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
    """Return the op of a step's node: a Conv for `conv` and for `depthwise_conv`, with the pads that the zoo
    has there.

    Args:
        channels: of the step's input.
        pad: gives the zoo's convention for the one that the graph declares.

    Raises:
        RecipeError: a value is out of its range; with its place.
    """
    kind = attributes.operation
    arguments = {key: attributes.read(key) for key in attributes.values}
    if "kernel" in arguments:
        arguments["window"] = Window(
            arguments.pop("kernel"), arguments.pop("stride"), arguments.pop("dilation")
        )
    if "pad" in arguments:
        arguments["convention"] = pad(_SITES[kind], arguments.pop("pad"))
    # recipes call it an operation of its own; the graph has a convolution with a group for each channel
    if kind == "depthwise_conv":
        return Conv(filters=channels * arguments.pop("multiplier"), groups=channels, **arguments)
    return OPS[kind](**arguments)


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
        """Return an attribute converted as its kind says; of a `pad`, the convention.

        Raises:
            RecipeError: its value is of another kind; with the place where it is written.
        """
        kind, value = ATTRIBUTES[self.operation][key].kind, self.values[key]
        if kind is PAD:
            try:
                return default_convention(value, _SITES[self.operation])
            except RecipeError as error:
                raise error.at(self.written(key)) from None
        converted = kind.convert(value)
        if converted is None:
            is_fraction = isinstance(value, float) and kind in (COUNT, MULTIPLIER)
            raise self._error(key, kind.words, "write int(...) or round8(...)" if is_fraction else None)
        return converted

    def _error(self, key: str, expected: str, advice: str | None = None) -> RecipeError:
        """Return the error for an attribute whose value its operation does not take."""
        if isinstance(self.values[key], str) and self.values[key] in self.variables:
            advice = f"write ={self.values[key]}, which is the variable"
        message = f"'{key}' of '{self.path}' must be {expected}, got {short_text(self.values[key])}"
        return RecipeError(message, where=self.written(key), next=advice)

"""From a step's evaluated attributes to the op of a graph's node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from porter.errors import RecipeError
from porter.graph import OPS, Affine, AvgPool, BatchNorm, Conv, ConvTranspose, MaxPool, Op
from porter.graph.record import attributes, read_attribute
from porter.padding import Convention, SiteKind, Window
from porter.recipe.expressions import Variables
from porter.recipe.paddings import default_convention
from porter.recipe.steps import SPELLED, Step

MAX_CHANNELS = 1 << 20
MAX_SIDE = 1024

Pad = Callable[[SiteKind, Convention], Convention]
"""From a site's kind and the graph's own convention to the zoo's convention."""


def make_op(
    step: Step, path: str, values: Mapping[str, Any], variables: Variables, channels: int, written: Callable[[str], str], pad: Pad
) -> Op:
    """The op of a step's node.

    Args:
        values: every attribute of the operation, evaluated.
        variables: those in scope; a value that is the name of one lacks its `=`.
        channels: of the step's input.
        written: gives the place where an attribute's value is written.
        pad: gives the zoo's convention for the one that the graph declares.

    Raises:
        RecipeError: a value is out of its range; with its place.
    """
    checked = _Attributes(path, values, variables, written)
    if step.kind not in SPELLED:
        kind = OPS[step.kind]
        return kind(**{name: checked.plain(kind, name) for name in values})
    if step.kind == "affine":
        return Affine(checked.constants("scale"), checked.constants("offset"))
    if step.kind == "batch_norm":
        epsilon, momentum = checked.share("epsilon"), checked.share("momentum")
        return BatchNorm(epsilon, momentum, checked.flag("scale"), checked.flag("center"))
    window = Window(checked.pair("kernel"), checked.pair("stride"), checked.pair("dilation"))
    if step.kind == "max_pool":
        return MaxPool(window, pad("max_pool", checked.convention("max_pool")))
    if step.kind == "avg_pool":
        return AvgPool(window, pad("avg_pool", checked.convention("avg_pool")))
    if step.kind == "conv_transpose":
        filters, groups = checked.whole("filters", MAX_CHANNELS), checked.whole("groups", MAX_CHANNELS)
        return ConvTranspose(filters, window, checked.plain(ConvTranspose, "cut"), groups, checked.flag("bias"))
    convention, bias = pad("conv", checked.convention("conv")), checked.flag("bias")
    if step.kind == "depthwise_conv":
        return Conv(channels * checked.whole("multiplier", 64), window, convention, channels, bias)
    return Conv(checked.whole("filters", MAX_CHANNELS), window, convention, checked.whole("groups", MAX_CHANNELS), bias)


class _Attributes:
    """The attributes of a node; each method checks the type and the range of one."""

    def __init__(self, path: str, values: Mapping[str, Any], variables: Variables, written: Callable[[str], str]) -> None:
        self.path = path
        self.values = values
        self.variables = variables
        self.written = written

    def plain(self, kind: type[Op], key: str) -> Any:
        """An attribute that is spelled as in port.json."""
        value = self.values[key]
        if type(value) is int and attributes(kind)[key] == "Count" and value > MAX_CHANNELS:
            raise self._refused(key, f"a whole number from 1 to {MAX_CHANNELS}")
        try:
            return read_attribute(kind, key, list(value) if isinstance(value, tuple) else value)
        except ValueError as error:
            raise RecipeError(f"'{key}' of '{self.path}': {error}", where=self.written(key)) from None

    def whole(self, key: str, most: int) -> int:
        value = self.values[key]
        if type(value) is int and 1 <= value <= most:
            return value
        advice = "write int(...) or round8(...)" if isinstance(value, float) else None
        raise self._refused(key, f"a whole number from 1 to {most}", advice)

    def pair(self, key: str) -> tuple[int, int]:
        value = self.values[key]
        sides = value if isinstance(value, tuple) else (value, value)
        if len(sides) == 2 and all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
            return sides
        raise self._refused(key, f"a whole number from 1 to {MAX_SIDE}, or two: [rows, columns]")

    def flag(self, key: str) -> bool:
        value = self.values[key]
        if isinstance(value, bool):
            return value
        raise self._refused(key, "true or false")

    def share(self, key: str) -> float:
        value = self.values[key]
        if isinstance(value, float) and 0 < value <= 1:
            return value
        raise self._refused(key, "a number above 0 and at most 1")

    def constants(self, key: str) -> tuple[float, ...]:
        value = self.values[key]
        listed = value if isinstance(value, tuple) else (value,)
        if listed and all(type(number) in (int, float) and abs(number) <= sys.float_info.max for number in listed):
            return tuple(map(float, listed))
        raise self._refused(key, "a finite number, or a list with one for each channel")

    def convention(self, kind: SiteKind) -> Convention:
        try:
            return default_convention(self.values["pad"], kind)
        except RecipeError as error:
            raise RecipeError(error.message, where=self.written("pad"), next=error.next) from None

    def _refused(self, key: str, expected: str, advice: str | None = None) -> RecipeError:
        got = repr(self.values[key])
        if isinstance(self.values[key], str) and self.values[key] in self.variables:
            advice = f"write ={self.values[key]}, which is the variable"
        message = f"'{key}' of '{self.path}' is {expected}, got {got if len(got) <= 80 else f'{got[:77]}...'}"
        return RecipeError(message, where=self.written(key), next=advice)

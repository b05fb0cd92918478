"""From a step's evaluated attributes to the op of a graph's node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from porter.errors import RecipeError
from porter.graph import OPS, Conv, Op
from porter.graph.record import read_attribute
from porter.padding import Convention, SiteKind, Window
from porter.recipe.expressions import Variables
from porter.recipe.paddings import default_convention
from porter.recipe.steps import ATTRIBUTES, Step

MAX_CHANNELS = 1 << 20
MAX_SIDE = 1024
MAX_MULTIPLIER = 64

_SITES: Mapping[str, SiteKind] = {"conv": "conv", "depthwise_conv": "conv", "max_pool": "max_pool", "avg_pool": "avg_pool"}

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
    checked = _Attributes(step.kind, path, values, variables, written)
    given = {key: checked.read(key) for key in values}
    if "kernel" in given:
        given["window"] = Window(given.pop("kernel"), given.pop("stride"), given.pop("dilation"))
    if "pad" in given:
        given["convention"] = pad(_SITES[step.kind], given.pop("pad"))
    if step.kind == "depthwise_conv":
        return Conv(filters=channels * given.pop("multiplier"), groups=channels, **given)
    return OPS[step.kind](**given)


def _whole(value: Any, most: int) -> int | None:
    return value if type(value) is int and 1 <= value <= most else None


def _pair(value: Any) -> tuple[int, int] | None:
    rows, columns = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
    return (rows, columns) if _whole(rows, MAX_SIDE) and _whole(columns, MAX_SIDE) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _epsilon(value: Any) -> float | None:
    return value if isinstance(value, float) and 0 < value <= 1 else None


def _constants(value: Any) -> tuple[float, ...] | None:
    listed = value if isinstance(value, tuple) else (value,)
    finite = all(type(number) in (int, float) and abs(number) <= sys.float_info.max for number in listed)
    return tuple(map(float, listed)) if listed and finite else None


class Kind(NamedTuple):
    """What an attribute may be.

    Attributes:
        words: for messages.
        read: the attribute from an evaluated value; None if the value is of another kind.
    """

    words: str
    read: Callable[[Any], Any]


KINDS: Mapping[str, Kind] = {
    "Count": Kind(f"a whole number from 1 to {MAX_CHANNELS}", partial(_whole, most=MAX_CHANNELS)),
    "Multiplier": Kind(f"a whole number from 1 to {MAX_MULTIPLIER}", partial(_whole, most=MAX_MULTIPLIER)),
    "Pair": Kind(f"a whole number from 1 to {MAX_SIDE}, or two: [rows, columns]", _pair),
    "bool": Kind("true or false", _flag),
    "Epsilon": Kind("a number above 0 and at most 1", _epsilon),
    "Constants": Kind("a finite number, or a list with one for each channel", _constants),
}
"""The kinds that recipes read in their own way; porter.recipe.paddings reads a `Pad`, porter.graph.record the others."""


class _Attributes:
    """The attributes of a node, evaluated."""

    def __init__(
        self, operation: str, path: str, values: Mapping[str, Any], variables: Variables, written: Callable[[str], str]
    ) -> None:
        self.operation = operation
        self.path = path
        self.values = values
        self.variables = variables
        self.written = written

    def read(self, key: str) -> Any:
        """An attribute as its kind says."""
        kind, value = ATTRIBUTES[self.operation][key].kind, self.values[key]
        if kind == "Pad":
            try:
                return default_convention(value, _SITES[self.operation])
            except RecipeError as error:
                raise RecipeError(error.message, where=self.written(key), next=error.next) from None
        if kind not in KINDS:
            try:
                return read_attribute(OPS[self.operation], key, list(value) if isinstance(value, tuple) else value)
            except ValueError as error:
                raise RecipeError(f"'{key}' of '{self.path}': {error}", where=self.written(key)) from None
        found = KINDS[kind].read(value)
        if found is None:
            counted = isinstance(value, float) and kind in ("Count", "Multiplier")
            raise self._refused(key, KINDS[kind].words, "write int(...) or round8(...)" if counted else None)
        return found

    def _refused(self, key: str, expected: str, advice: str | None = None) -> RecipeError:
        got = repr(self.values[key])
        if isinstance(self.values[key], str) and self.values[key] in self.variables:
            advice = f"write ={self.values[key]}, which is the variable"
        message = f"'{key}' of '{self.path}' is {expected}, got {got if len(got) <= 80 else f'{got[:77]}...'}"
        return RecipeError(message, where=self.written(key), next=advice)

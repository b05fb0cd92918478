"""What an attribute of an operation may be, where recipes write it in another way than port.json."""

from __future__ import annotations

from typing import Any

from porter.graph.ops.kinds import Kind, integer, number, numbers, whole_number
from porter.padding import LARGEST

MULTIPLIER = whole_number("Multiplier", 1, 64)


def _pair(value: Any) -> tuple[int, int] | None:
    """Return (rows, columns) from one whole number or a pair of them; None for anything else."""
    rows, columns = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
    return (rows, columns) if integer(rows, 1, LARGEST) and integer(columns, 1, LARGEST) else None


def _epsilon(value: Any) -> float | None:
    """Return a number above 0 and at most 1; None for anything else."""
    return number(value, 0, 1) or None


_SIDE = {"type": "integer", "minimum": 1, "maximum": LARGEST}
PAIR = Kind(
    "Pair",
    f"a whole number from 1 to {LARGEST}, or two: [rows, columns]",
    _pair,
    {"anyOf": [_SIDE, {"type": "array", "items": _SIDE, "minItems": 2, "maxItems": 2}]},
)
EPSILON = Kind(
    "Epsilon",
    "a number above 0 and at most 1",
    _epsilon,
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
)
CONSTANTS = Kind(
    "Constants",
    "a finite number, or a list with one for each channel",
    lambda value: numbers(value if isinstance(value, tuple) else (value,)),
    {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1}]},
)
PAD = Kind(
    "Pad",
    "a convention, such as same, 1, or {pad: 1, fill: 0}",
    lambda value: value,
    {"$ref": "#/$defs/padding"},
)
"""porter.recipe.paddings reads it, because what it may be depends on the site."""

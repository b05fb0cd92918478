"""The conventions that a recipe's text stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Rule, SiteKind
from porter.recipe.errors import did_you_mean
from porter.recipe.expressions import ExpressionError

_RULES = tuple(rule for rule in get_args(Rule) if rule != "explicit")
_KEYS: Mapping[SiteKind, tuple[str, ...]] = {
    "conv": ("pad",),
    "max_pool": ("pad", "fill", "rounding"),
    "avg_pool": ("pad", "average", "rounding"),
}
MAX_PAD = 64


def convention(value: Any, kind: SiteKind) -> Convention:
    """The convention that `value` says for a site.

    A rule's name, one number for all sides, `[rows, columns]`, `[top, bottom, left, right]`, or a mapping of one of those under
    `pad` with `fill` (0 or -inf; max pools), `average` (what it divides by) and `rounding`. Unsaid, a max pool's pad takes no
    part, an average divides by the real cells, and sizes are floored.

    Raises:
        ExpressionError: the value says none of that.
    """
    written = value if isinstance(value, dict) else {"pad": value}
    for key in written:
        if key not in _KEYS[kind]:
            raise ExpressionError(f"unknown key '{key}' in the padding of a {kind}", did_you_mean(key, _KEYS[kind]))
    rule, pads = _pad(written.get("pad", "valid"))
    return Convention(
        rule=rule,
        pads=pads,
        fill=_fill(written.get("fill", "-inf" if kind == "max_pool" else 0)),
        average=_one_of(written.get("average", "real_cells"), get_args(Average)),
        rounding=_one_of(written.get("rounding", "floor"), get_args(Rounding)),
    )


def _pad(value: Any) -> tuple[Rule, Pads]:
    if isinstance(value, str):
        return _one_of(value, _RULES), (0, 0, 0, 0)
    sides = value if isinstance(value, list) else [value]
    if not all(isinstance(side, int) and not isinstance(side, bool) and 0 <= side <= MAX_PAD for side in sides):
        raise ExpressionError(f"a pad is a rule or numbers from 0 to {MAX_PAD}, got {value!r}", f"rules: {', '.join(_RULES)}")
    if len(sides) == 1:
        return _explicit((sides[0],) * 4)
    if len(sides) == 2:
        return _explicit((sides[0], sides[0], sides[1], sides[1]))
    if len(sides) == 4:
        return _explicit((sides[0], sides[1], sides[2], sides[3]))
    raise ExpressionError(f"pads are one, two or four numbers, got {value!r}", "write [top, bottom, left, right]")


def _explicit(pads: tuple[Any, ...]) -> tuple[Rule, Pads]:
    top, bottom, left, right = pads
    return ("explicit" if any(pads) else "valid"), (top, bottom, left, right)


def _fill(value: Any) -> float:
    if value in (0, "-inf", LOWEST):
        return 0.0 if value == 0 else LOWEST
    raise ExpressionError(f"a pad is filled with 0 or -inf, got {value!r}")


def _one_of(value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ExpressionError(f"'{value}' is not one of {', '.join(known)}", did_you_mean(str(value), known))
    return value

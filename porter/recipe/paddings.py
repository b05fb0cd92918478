"""How a recipe writes a convention, and the tables of a zoo's conventions by site.

A convention is written as `same`, `valid`, `same_lower`, `cntk`, a number of cells, [top, bottom, left,
right], or a mapping of `pad` (one of these), `fill` (of a max pool: 0 or -.inf), `average` (what an average
divides by) and `rounding` (of pools). Where a zoo says nothing, the graph's own convention applies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from porter.base.errors import RecipeError
from porter.padding import LOWEST, Average, Convention, Rounding, Rule, SiteKind
from porter.recipe.expressions import Variables, evaluate
from porter.recipe.faults import Faults
from porter.recipe.path_patterns import match_path
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint

MAX_PAD = 1024

_SITES_OF_KEY: Mapping[str, tuple[SiteKind, ...]] = {
    "pad": ("conv", "max_pool", "avg_pool"),
    "fill": ("max_pool",),
    "average": ("avg_pool",),
    "rounding": ("max_pool", "avg_pool"),
}
_RULE_NAMES = [rule for rule in get_args(Rule) if rule != "explicit"]
_NO_FILL = Convention()
_FILLED_LOWEST = Convention(fill=LOWEST)


@dataclass(frozen=True)
class PadRule:
    """One line of a zoo's padding table."""

    pattern: str
    value: Any
    location: Location

    def matches(self, path: str, kind: SiteKind) -> bool:
        """Return whether the rule applies to this site: `average` only to average pools, `fill` only to max
        pools, `rounding` only to pools.
        """
        keys = self.value if isinstance(self.value, dict) else ()
        return (
            all(kind in _SITES_OF_KEY.get(key, ()) for key in keys)
            and match_path(self.pattern, path) is not None
        )


def read_pad_rules(source: RecipeSource, location: Location, table: Mapping[str, Any]) -> tuple[PadRule, ...]:
    """Return a padding table, whose patterns and keys are checked. Its expressions are not evaluated yet.

    Raises:
        RecipeError: with the line.
    """
    faults, rules = Faults(), []
    for pattern, value in table.items():
        line = (*location, pattern)
        with faults.collect(), source.at(line, key=True):
            match_path(pattern, "")
        for key in value if isinstance(value, dict) else ():
            with faults.collect(), source.at((*line, key), key=True):
                if key not in _SITES_OF_KEY:
                    raise RecipeError(f"a padding has no '{key}'", next=hint(key, _SITES_OF_KEY))
        rules.append(PadRule(pattern, value, line))
    faults.expect_none()
    return tuple(rules)


def default_convention(value: Any, kind: SiteKind) -> Convention:
    """Return the convention of a step's own `pad`: only max pools are filled with -inf, and averages divide
    by the real cells.

    Raises:
        RecipeError: without `where`.
    """
    return _read_convention(value, kind, _FILLED_LOWEST if kind == "max_pool" else _NO_FILL)


def site_convention(
    rules: Sequence[PadRule],
    path: str,
    kind: SiteKind,
    default: Convention,
    variables: Variables,
    source: RecipeSource,
) -> Convention:
    """Return the convention at a site, for one node: by the first of the zoo's rules that matches, otherwise
    `default`, which the graph declares.

    Args:
        variables: for the expressions in the rule's value.

    Raises:
        RecipeError: with the rule's line.
    """
    rule = next((rule for rule in rules if rule.matches(path, kind)), None)
    if rule is None:
        return default
    with source.at(rule.location):
        return _read_convention(evaluate_padding(rule.value, variables), kind, default)


def evaluate_padding(value: Any, variables: Variables) -> Any:
    """Return a convention as a recipe writes it, with its expressions computed."""
    if isinstance(value, dict):
        return {key: evaluate(item, variables) for key, item in value.items()}
    return evaluate(value, variables)


def _read_convention(value: Any, kind: SiteKind, default: Convention) -> Convention:
    """Return the convention that a rule's value states, with the rest from `default`, the graph's own.

    Raises:
        RecipeError: a key does not belong to this kind of site, or a value is wrong.
    """
    if not isinstance(value, dict):
        return _with_amount(value, default)
    convention = _with_amount(value["pad"], default) if "pad" in value else default
    for key in value:
        if kind not in _SITES_OF_KEY.get(key, ()):
            raise RecipeError(
                f"a {kind} has no '{key}'",
                next=hint(key, [key for key, kinds in _SITES_OF_KEY.items() if kind in kinds]),
            )
    if "fill" in value:
        convention = replace(convention, fill=_read_fill(value["fill"]))
    if "average" in value:
        convention = replace(
            convention, average=_expect_choice("average", value["average"], get_args(Average))
        )
    if "rounding" in value:
        convention = replace(
            convention, rounding=_expect_choice("rounding", value["rounding"], get_args(Rounding))
        )
    return convention


def _with_amount(value: Any, default: Convention) -> Convention:
    """Return the convention with the pads that `value` states: a rule by its name, one number of cells for
    all sides, or a number for each side.

    Raises:
        RecipeError: it is none of these.
    """
    if isinstance(value, str):
        return replace(default, rule=_expect_choice("pad", value, _RULE_NAMES), pads=(0, 0, 0, 0))
    amounts = value if isinstance(value, tuple) else (value,) * 4
    if len(amounts) != 4 or not all(type(amount) is int and 0 <= amount <= MAX_PAD for amount in amounts):
        raise RecipeError(
            f"a pad must be {', '.join(_RULE_NAMES)}, a number of cells up to {MAX_PAD} or "
            f"[top, bottom, left, right], got {value!r}"
        )
    top, bottom, left, right = amounts
    return replace(default, rule="explicit" if any(amounts) else "valid", pads=(top, bottom, left, right))


def _read_fill(value: Any) -> float:
    """Return the value of `fill`, a number or -inf; refuse anything else. Raises RecipeError for it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value == math.inf:
        raise RecipeError(
            f"'fill' must be a number or -.inf, got {value!r}", next="write 0 for zeros", key="fill"
        )
    return float(value)


def _expect_choice(key: str, value: Any, known: Sequence[str]) -> Any:
    """Return a value that is one of the known words; refuse any other. Raises RecipeError for it."""
    if value not in known:
        raise RecipeError(
            f"'{key}' must be one of {', '.join(known)}, got {value!r}", next=hint(str(value), known), key=key
        )
    return value

"""Plain values as the YAML of recipes: sections as blocks, steps and short tables in flow style."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 132
MODELINE = "# yaml-language-server: $schema=schema.json"
"""The first line of a recipe: where an editor finds the schema, which `porter recipe schema` prints."""
# What YAML would read as something else than a word.
_NO_WORD = re.compile(r"(true|false|yes|no|on|off|null|y|n|~|[-+.]?\d.*|[-+]?\.(inf|nan))", re.IGNORECASE)
_PLAIN_SCALAR = re.compile(r"[A-Za-z_/=][^,\[\]{}#\"\\\n]*(?<! )")


def section(values: Mapping[str, Any], depth: int = 0) -> list[str]:
    """Return a mapping as lines of a recipe's YAML: mappings and lists of mappings with one entry a line,
    the others in flow style, as `{conv: stem, filters: 32}`.

    Args:
        depth: how many levels the lines are indented.
    """
    margin = "  " * depth
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value and _is_table(value):
            lines += [f"{margin}{scalar(key)}:", *section(value, depth + 1)]
        elif _is_listing(value):
            lines += [f"{margin}{scalar(key)}:", *(f"{margin}  - {flow(item)}" for item in value)]
        else:
            lines.append(f"{margin}{scalar(key)}: {flow(value)}")
    return lines


def _is_table(value: Mapping[str, Any]) -> bool:
    """Return whether a mapping takes a line for each key: it has mappings or steps in it, or is long."""
    has_inner_table = any(
        (isinstance(item, Mapping) and item) or _is_listing(item) for item in value.values()
    )
    # 16 columns are left for the key and the indentation
    return has_inner_table or len(value) > 6 or len(flow(value)) > WIDTH - 16


def _is_listing(value: Any) -> bool:
    """Return whether a value is a list of mappings, such as steps."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and isinstance(value[0], Mapping)
    )


def flow(value: Any) -> str:
    """Return a value as YAML on one line: `{conv: stem, kernel: [3, 1]}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(flow, value))}]"
    return scalar(value)


def scalar(value: Any) -> str:
    """Return a word, a number, a boolean or None as YAML; a text that YAML would read as something else is
    in quotes.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        return str(value)
    plain = (
        _PLAIN_SCALAR.fullmatch(value)
        and not _NO_WORD.fullmatch(value)
        and ": " not in value
        and not value.endswith(":")
    )
    return value if plain else json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Write a number as YAML 1.2 reads it back, with a dot in every real one."""
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    base, _, exponent = repr(value).partition("e")
    if not exponent:
        return base
    mantissa = base if "." in base else f"{base}.0"
    return f"{mantissa}e{int(exponent):+d}"

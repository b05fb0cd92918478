"""Patterns over node paths: `**` for any part, `*` within one level, `{name}` for what a template uses again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from porter.recipe.expressions import evaluate

_TOKEN = re.compile(r"\*\*|\*|\{([a-z_]+)\}")
_FIELD = re.compile(r"\{([^{}]+)\}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts, end = [], 0
    for token in _TOKEN.finditer(pattern):
        parts.append(re.escape(pattern[end : token.start()]))
        name = token.group(1)
        parts.append({"**": ".*", "*": "[^/]*"}[token.group()] if name is None else f"(?P<{name}>[^/]+?)")
        end = token.end()
    return re.compile("".join([*parts, re.escape(pattern[end:])]))


def match(pattern: str, path: str) -> dict[str, int | str] | None:
    """What each `{name}` stands for where the whole path matches, numbers as numbers; None where it does not."""
    found = _compiled(pattern).fullmatch(path)
    if found is None:
        return None
    return {name: int(part) if part.isdecimal() else part for name, part in found.groupdict().items()}


def fill(template: str, scope: Mapping[str, Any]) -> str:
    """The template with the value of each `{expression}`, such as `conv{s+1}_block{u}`.

    Raises:
        ExpressionError: an expression fails.
    """
    return _FIELD.sub(lambda field: str(evaluate(field.group(1), scope)), template)

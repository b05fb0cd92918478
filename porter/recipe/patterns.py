"""Patterns over the paths of a graph.

`stage{s}/unit{u}/conv{k}` captures what stands at the braces, within one part of the path; whole numbers are captured as numbers.
`*` stands for any one part or piece of one, `**` for any number of parts, none included.
"""

from __future__ import annotations

import re
from functools import lru_cache

from porter.errors import RecipeError

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\{([^{}]*)\}")
# Matching backtracks over these: unbounded, a pattern could cost more than its length.
MAX_IN_PART, MAX_DEEP, MAX_PARTS = 2, 2, 16


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern.

    Raises:
        RecipeError: a capture that is no plain name or occurs twice, stray braces, or too many wildcards.
    """
    segments = pattern.split("/")
    if (
        len(segments) > MAX_PARTS
        or pattern.count("**") > MAX_DEEP
        or any(len(_TOKEN.findall(segment)) > MAX_IN_PART for segment in segments)
    ):
        raise RecipeError(f"'{pattern}' has more wildcards than {MAX_IN_PART} in one part and {MAX_DEEP} '**'")
    parts: list[str] = []
    names: set[str] = set()
    end = 0
    for token in _TOKEN.finditer(pattern):
        parts.append(_literal(pattern, pattern[end : token.start()]))
        end = token.end()
        if token[0] == "**/":
            parts.append("(?:[^/]+/)*")
        elif token[0] == "**":
            parts.append(".*")
        elif token[0] == "*":
            parts.append("[^/]*")
        else:
            name = token[1]
            if not re.fullmatch(r"[a-z]\w*", name, re.ASCII) or name in names:
                raise RecipeError(f"'{pattern}': a capture is a plain name, used once, such as {{s}}")
            names.add(name)
            parts.append(f"(?P<{name}>[^/]+)")
    return re.compile("".join([*parts, _literal(pattern, pattern[end:])]))


def match_path(pattern: str, path: str) -> dict[str, int | str] | None:
    """What `pattern` captures in `path`, or None where it does not match."""
    found = compile_pattern(pattern).fullmatch(path)
    if found is None:
        return None
    return {name: int(text) if text.isdecimal() else text for name, text in found.groupdict().items()}


def _literal(pattern: str, text: str) -> str:
    if "{" in text or "}" in text:
        raise RecipeError(f"'{pattern}' has a brace without its pair")
    return re.escape(text)

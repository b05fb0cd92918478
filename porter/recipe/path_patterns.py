"""Patterns over the paths of a graph.

`stage{s}/unit{u}/conv{k}` captures the text at the braces, within one part of the path; whole numbers are
captured as numbers. `*` matches one part or a piece of it, `**` any number of parts, including none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from porter.base.errors import RecipeError
from porter.recipe.spelling import hint, nearest

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\{([^{}]*)\}")
# Matching backtracks over wildcards. Without these limits a short pattern could take very long.
MAX_WILDCARDS, MAX_ANY_DEPTH, MAX_PARTS = 2, 2, 16


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern: of `stage{s}/*`, `stage(?P<s>[^/]+)/[^/]*`.

    Raises:
        RecipeError: a capture is not a plain name or occurs twice, a brace has no pair, or there are too
            many wildcards.
    """
    segments = pattern.split("/")
    has_many_in_one_part = any(len(_TOKEN.findall(segment)) > MAX_WILDCARDS for segment in segments)
    if len(segments) > MAX_PARTS or pattern.count("**") > MAX_ANY_DEPTH or has_many_in_one_part:
        raise RecipeError(
            f"'{pattern}' has more wildcards than {MAX_WILDCARDS} in one part and {MAX_ANY_DEPTH} '**'"
        )
    parts: list[str] = []
    names: set[str] = set()
    end = 0
    for token in _TOKEN.finditer(pattern):
        parts.append(_escape_literal(pattern, pattern[end : token.start()]))
        end = token.end()
        if token[0] == "**/":
            # any number of whole parts
            parts.append("(?:[^/]+/)*")
        elif token[0] == "**":
            parts.append(".*")
        elif token[0] == "*":
            # any text within a part
            parts.append("[^/]*")
        else:
            # a capture within a part
            name = token[1]
            if not re.fullmatch(r"[a-z]\w*", name, re.ASCII) or name in names:
                raise RecipeError(f"'{pattern}': a capture is a plain name, used once, such as {{s}}")
            names.add(name)
            parts.append(f"(?P<{name}>[^/]+)")
    return re.compile("".join([*parts, _escape_literal(pattern, pattern[end:])]))


def match_path(pattern: str, path: str) -> dict[str, int | str] | None:
    """Return the captures of `pattern` in `path`; None if it does not match."""
    match = compile_pattern(pattern).fullmatch(path)
    return None if match is None else captures_of(match)


def captures_of(match: re.Match[str]) -> dict[str, int | str]:
    """Return what a pattern captured in a path that it matches: `{'s': 2}` for `stage{s}/conv` in
    `stage2/conv`. Whole numbers are numbers.
    """
    return {name: int(text) if text.isdecimal() else text for name, text in match.groupdict().items()}


def _escape_literal(pattern: str, text: str) -> str:
    """Return the regular expression of a text without wildcards; refuse a brace without its pair."""
    if "{" in text or "}" in text:
        raise RecipeError(f"'{pattern}' has a brace without its pair")
    return re.escape(text)


def unmatched_error(message: str, pattern: str, steps: Iterable[str], others: Sequence[str]) -> RecipeError:
    """Return the error of a pattern that matches none of the paths `steps`, with the path that was likely
    meant. One that another pattern matches is not suggested.

    Args:
        others: the patterns of the other rules.
    """
    # a path that the pattern would match
    example = re.sub(r"\{\w+\}", "1", pattern)
    paths = tuple(steps)
    unmatched = [path for path in paths if not any(match_path(other, path) is not None for other in others)]
    similar = nearest(example, unmatched)
    return RecipeError(message, next=hint(example, [similar] if similar else paths))

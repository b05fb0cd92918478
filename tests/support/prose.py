"""Prose of pages in Markdown has lines of at most 110 columns, as code has. `python -m tests.support.prose`
wraps what is longer; tables, code and headings stay as they are. Docstrings begin with what they are about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkout import ROOT

COLUMNS = 110
FENCE = re.compile(r"\s*(```+|~~~+)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
OTHER = re.compile(r"\s*(?:[|#<]|!\[)")
MARK = re.compile(r"[-+*>#|]|\d+[.)]$")
"""What would make a line another thing than prose if it began with it."""
CODE = re.compile(r"(`+[^`]+`+)")
FRAGMENT = re.compile(r"(Among|As|At|Beside|By|Of|On|That of|Those|Under|Whose|With|Without) ")
"""How a docstring begins that says nothing of what it is about: `Of a pool that cannot round down.`"""


def pages() -> list[Path]:
    """The pages that people write or programs make, without those that the site makes for itself."""
    written = [path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts]
    return sorted([*ROOT.glob("*.md"), *written])


def wrapped(page: str) -> str:
    """The page with its long prose in lines of at most 110 columns; words and code stay whole."""
    found: list[str] = []
    for block in _blocks(page.split("\n")):
        is_prose = not OTHER.match(block[0]) and not FENCE.match(block[0])
        long = any(len(line) > COLUMNS for line in block)
        found += _filled(block) if is_prose and long else block
    return "\n".join(found)


def fragments(module: Path) -> Iterator[str]:
    """The docstrings of a module, those of its variables too, that begin as a fragment, each with its
    place.
    """
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and FRAGMENT.match(str(node.value.value))
        ):
            yield f"{module.relative_to(ROOT)}:{node.lineno}: {str(node.value.value).splitlines()[0]}"


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs, items of lists and fenced code; each other line by itself."""
    block: list[str] = []
    fence = ""
    for line in lines:
        mark = FENCE.match(line)
        if fence:
            block.append(line)
            if mark and mark[1].startswith(fence):
                yield block
                block, fence = [], ""
            continue
        if block and (mark or ITEM.match(line) or OTHER.match(line) or not line.strip()):
            yield block
            block = []
        if mark:
            fence = mark[1]
        if mark or (line.strip() and not OTHER.match(line)):
            block.append(line)
        else:
            yield [line]
    if block:
        yield block


def _filled(block: list[str]) -> list[str]:
    mark = ITEM.match(block[0])
    first = mark[0] if mark else block[0][: len(block[0]) - len(block[0].lstrip())]
    lines, begun = [first], False
    for word in _words(" ".join([block[0][len(first) :], *(line.strip() for line in block[1:])])):
        if begun and len(lines[-1]) + 1 + len(word) > COLUMNS and not MARK.match(word):
            lines.append(" " * len(first) + word)
        else:
            lines[-1] += f" {word}" if begun else word
        begun = True
    return lines


def _words(text: str) -> list[str]:
    """Words, of which one that holds code has all of it."""
    words = [""]
    for number, part in enumerate(CODE.split(text)):
        first, *others = [part] if number % 2 else part.split(" ")
        words[-1] += first
        words += others
    return words


if __name__ == "__main__":
    for path in pages():
        path.write_text(wrapped(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")

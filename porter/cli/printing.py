"""What the texts of several commands are made of: tables, first lines, and words. A text is a list of plain
lines, which the command line escapes and joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

from porter.base.errors import LISTED

if TYPE_CHECKING:
    from porter.port import Origin, Record, TensorLists
    from porter.source.inspection import Inspection


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: a header and rows of as many cells, in left-aligned columns, two spaces
    apart.
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def first_lines(
    label: str, items: Sequence[str], most: int = LISTED, others: str = " (--json names all)"
) -> list[str]:
    """Return a line for each of the first items, after a label, and one that says how many more there are and
    what names these `others`: `failed  a.jpg: ...`.
    """
    lines = [f"{label}{item}" for item in items[:most]]
    if len(items) > most:
        lines.append(f"{' ' * len(label)}and {len(items) - most:,} more{others}")
    return lines


def tells(origin: Origin | None) -> TypeGuard[Origin]:
    """Return whether an origin says more than that the file carries its graph."""
    return origin is not None and origin.by != "graph"


def tensors_words(lists: TensorLists) -> str:
    """Say how many tensors of the file are used, and how many are not, by the reason."""
    ignored = [f"{count} ignored: {reason}" for reason, count in lists.reasons.items()]
    return "; ".join((f"{len(lists.used)} used", *ignored))


def classes_words(facts: Record | Inspection) -> str:
    """Return the number of classes, and of the file's where it differs. One class is one number for each
    image, as under a sigmoid.
    """
    count = "1 (one number for each image)" if facts.classes == 1 else str(facts.classes or "none")
    if facts.classes == facts.source_classes:
        return count
    return f"{count} of the file's {facts.source_classes}"


def of_subject(subject: str | None) -> str:
    """Return what a proof is of, where that is not the port's file, and a space; otherwise nothing."""
    return f"{subject} " if subject else ""

"""What a drafted recipe leaves to decide: comments that begin with TODO."""

from __future__ import annotations

from collections.abc import Iterator

TO_DO = "# TODO"


def to_do(text: str) -> Iterator[tuple[int, int, str]]:
    """Line and column of each, both from 1, and what it says."""
    for number, line in enumerate(text.splitlines(), 1):
        before, mark, said = line.partition(TO_DO)
        if mark:
            yield number, len(before) + 1, said.strip(" :")

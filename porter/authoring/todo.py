"""What a drafted recipe leaves to decide: comments that begin with TODO."""

from __future__ import annotations

from collections.abc import Iterator

TO_DO = "# TODO"


def to_do(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield line and column of each comment, both from 1, and what it says."""
    for number, line in enumerate(text.splitlines(), 1):
        before, mark, question = line.partition(TO_DO)
        if mark:
            yield number, len(before) + 1, question.strip(" :")

"""The page of a batch: what became of each port of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from porter.reporting.page import page_environment

State = Literal["done", "refused", "failed", "waiting"]
"""What may become of a port, in the order in which it is told (porter.batch.results.JobResult)."""
STATES: tuple[State, ...] = get_args(State)


def batch_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page, the same for the same rows (porter.batch.results.JobResult.row)."""
    counts = Counter(row["state"] for row in rows)
    sentence = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return page_environment().get_template("batch.html").render(rows=rows, sentence=sentence)

"""The page of a batch: what became of each port of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from porter.reporting.page import page_environment


def batch_page(rows: Sequence[Mapping[str, Any]], states: Sequence[str]) -> str:
    """Return the page, the same for the same rows (porter.batch.results.JobResult.row).

    Args:
        states: what may become of a port, in the order in which it is told.
    """
    counts = Counter(row["state"] for row in rows)
    sentence = ", ".join(f"{counts[state]} {state}" for state in states if counts[state])
    return page_environment().get_template("batch.html").render(rows=rows, sentence=sentence)

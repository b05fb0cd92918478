"""Tables by names, of which several may have the same entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def by_name(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return a table whose keys are single names, from one whose keys are names with spaces between them."""
    return {name: entry for names, entry in entries.items() for name in names.split()}

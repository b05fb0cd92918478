"""Tables by names: what a file of JSON states, and a table of which several names have the same entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Entry = TypeVar("Entry")
JsonObject = Mapping[str, Any]
"""What a file of JSON states."""


def by_name(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return a table whose keys are single names, from one whose keys are names with spaces between them."""
    return {name: entry for names, entry in entries.items() for name in names.split()}

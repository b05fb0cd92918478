"""Tables by names: what a file of JSON states, a table of which several names have the same entry, and the
order of names with numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

Entry = TypeVar("Entry")
JsonObject = Mapping[str, Any]
"""What a file of JSON states."""


def by_name(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return a table whose keys are single names, from one whose keys are names with spaces between them."""
    return {name: entry for names, entry in entries.items() for name in names.split()}


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts `output_10` after `output_2`: it compares numbers in names by their size, of
    more than 18 digits by parts.
    """
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d{1,18})", name)]

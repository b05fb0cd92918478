"""Names that nobody has yet."""

from __future__ import annotations

from collections.abc import Collection


def unused_name(name: str, taken: Collection[str]) -> str:
    """`name`, or `name_2`, `name_3`, ... where it is taken."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate

"""For tests: expects that two models are the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.api.entry_points import compare

if TYPE_CHECKING:
    from os import PathLike

    from porter.base.commands import Model


def assert_same(a: str | PathLike[str] | Model, b: str | PathLike[str] | Model, **options: Any) -> None:
    """Expects that two models are the same function.

    Args:
        a, b: as porter.compare takes them.
        options: those of porter.compare.

    Raises:
        AssertionError: they differ, or nothing decides; its message lists every difference.
        PorterError: as porter.compare.
    """
    found = compare(a, b, **options)
    if not found.ok:
        raise AssertionError(str(found))

"""When the values of a graph that runs are needed for the last time, so that none is held until the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

Key = TypeVar("Key")


def last_uses(steps: Iterable[Iterable[Key]], kept: Collection[Key] = ()) -> list[list[Key]]:
    """List, for each step, the values of the step that no later step reads, so that they can be freed behind
    it: the steps (a, b), (b, c), (c, d) give [a], [b], [c, d].

    Args:
        steps: the values that each step reads and makes.
        kept: values that stay until the end.
    """
    uses = [dict.fromkeys(values) for values in steps]
    # The last entry of a value wins.
    last_step = {value: index for index, values in enumerate(uses) for value in values}
    return [
        [value for value in values if last_step[value] == index and value not in kept]
        for index, values in enumerate(uses)
    ]

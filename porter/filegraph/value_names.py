"""What a value of a file's graph is called, by readers and by the rows of porter's engine alike."""

from __future__ import annotations

import re
from typing import TypeAlias

NodeOutput: TypeAlias = tuple[str, int]
"""A value: the name of the node that gives it, and which of its outputs it is."""


_PLACE = re.compile(r":\d+$")


def value_name(source: NodeOutput) -> str:
    """Return the name of a value. The first that an operator gives has the operator's own name, others are
    `split:1`, and `split:1:0` is of an operator that is itself called `split:1`: no two values have one name.
    """
    name, index = source
    return f"{name}:{index}" if index or _PLACE.search(name) else name


def take_name(name: str, index: int, taken: set[str]) -> str:
    """Return a name that no other operator of a file has, and add it to `taken`: the operator's own, or
    `conv:7` for the operator number 7 (`index`) if `conv` is taken.
    """
    while name in taken:
        name = f"{name}:{index}"
    taken.add(name)
    return name

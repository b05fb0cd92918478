"""A file's graph as porter's own engine runs it: what the file says, operator by operator, before anything is
made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from porter.base.dtypes import Numbers

Row: TypeAlias = Callable[..., Numbers | tuple[Numbers, ...]]
"""What an operator gives: called with the attributes of a step, then with its inputs (None for one that is
left out).
"""
NodeOutput: TypeAlias = tuple[str, int]
"""A value: the name of the node that gives it, and which of its outputs it is."""
_PLACE = re.compile(r":\d+$")


def row(compute: Callable[..., Any]) -> Row:
    """Make the row of an operator, its entry in a table of kernels, from a function that takes what the
    operator states, its attribute `settings`, then its inputs.
    """
    return lambda attributes, *inputs: compute(attributes["settings"], *inputs)


def each(compute: Callable[..., Any]) -> Row:
    """Make the row of an operator, its entry in a table of kernels, from a function that takes only the
    inputs.
    """
    return lambda attributes, *inputs: compute(*inputs)


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


@dataclass(frozen=True)
class OperatorCall:
    """An operator as the file says it.

    Attributes:
        inputs: names of values, or of the file's tensors, which come in the file's own axis order; empty for
            one that is left out.
        outputs: names of the values that it gives. A name may be given again: what comes later reads the
            later value.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class KernelProgram:
    """What the rows of a format make of a file.

    Attributes:
        image: the name of the input.
        rows: by the name of an operator.
        channels_last: the file's maps are N×H×W×C.
        single: the file states a batch of one image, so that each image is run by itself.
    """

    image: str
    steps: tuple[OperatorCall, ...]
    rows: Mapping[str, Row]
    channels_last: bool = False
    single: bool = False

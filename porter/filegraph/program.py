"""A file's graph as porter's own engine runs it: what the file says, operator by operator, before anything is
made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from porter.base.dtypes import Numbers

Row: TypeAlias = Callable[..., Numbers | tuple[Numbers, ...]]
"""What an operator gives: called with the attributes of a step, then with its inputs (None for one that is
left out).
"""


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

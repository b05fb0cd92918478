"""Arguments of layers that several frameworks state alike."""

from __future__ import annotations

from porter.graph import ops
from porter.graph.blocks.parameters import PlainValue


def pair(values: tuple[int, ...] | tuple[float, ...]) -> PlainValue:
    """Return a single number if both axes agree, as layers accept it, otherwise both."""
    return values[0] if values[0] == values[1] else values


def constants(values: tuple[float, ...]) -> PlainValue:
    """Return a single number if it is the same for all channels, otherwise one for each."""
    return values[0] if len(values) == 1 else values


def padding_of_cut(op: ops.ConvTranspose) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the arguments `padding`, which cuts both sides of an axis alike, and `output_padding`, which
    gives back cells at the end, of a transposed convolution: fewer than the larger of its stride and its
    dilation. None where they cannot say what the op cuts off.
    """
    window, (top, bottom, left, right) = op.window, op.cut
    padding, output_padding = (top, left), (top - bottom, left - right)
    limits = map(max, window.stride, window.dilation)
    given_back = all(0 <= cells < limit for cells, limit in zip(output_padding, limits, strict=True))
    return (padding, output_padding) if min(padding) >= 0 and given_back else None

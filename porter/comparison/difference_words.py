"""Units, and what a model does to its input, in the words of a difference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.comparison.unit import Unit
from porter.graph import Node, ops
from porter.padding import KnownSize, Site, pad_amounts
from porter.padding.windows import pads_text


def names_of_pair(name_a: str, name_b: str) -> str:
    return name_a if name_a == name_b else f"{name_a} (B: {name_b})"


def unit_words(unit: Unit) -> str:
    """Return a unit in words, with its article: `a 3x3 conv`, `a relu6`."""
    if unit.kind == "scale":
        return "a scale of channels" if not unit.tensors["beta"].any() else "a scale and a shift of channels"
    if unit.kind == "move":
        return "a rearrangement"
    if unit.kind == "clip":
        low, high = unit.says["low"], unit.says["high"]
        if high == math.inf and low == 0:
            return "a relu"
        return "a relu6" if (low, high) == (0, 6) else f"a clip from {low:g} to {high:g}"
    op_words = next((node.op.words for node in unit.nodes if node.op.name == unit.kind), None)
    return op_words or f"a {unit.kind.replace('_', ' ')}"


def number_words(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def pads_words(site: Site, size: KnownSize) -> str:
    """Return in words what a window is padded with at a size of its input, such as `pads 1` or
    `pads nothing`.
    """
    sides = [pad_amounts(site.convention, site.window, axis, size[axis]) for axis in (0, 1)]
    amounts = *sides[0], *sides[1]
    return f"pads {pads_text(amounts)}".replace(",", ", ") if any(amounts) else "pads nothing"


def order_words(order: NDArray[np.int64]) -> str:
    """Return the end of a sentence that says an order of parts, as `order_of_parts` gives it: `: reversed`,
    or one part as an example.
    """
    if (order == np.arange(len(order))[::-1]).all():
        return ": reversed, as RGB is beside BGR" if len(order) == 3 else ": reversed"
    example = int(np.flatnonzero(order != np.arange(len(order)))[0])
    return f" (B's {example} is A's {order[example]})"


def input_change_words(node: Node) -> str:
    """Return in words what a node does to a model's input: `divided by 255`."""
    if isinstance(node.op, ops.Affine):
        return _scaled_by(np.array(node.op.scale), np.array(node.op.offset))
    if isinstance(node.op, ops.SliceChannels):
        return "in another order of channels"
    return f"put through {node.op.words}"


def _scaled_by(gamma: Any, beta: Any) -> str:
    """Return a scale and a shift in words: `divided by 255, plus 1`. The text is empty where both change
    nothing.
    """
    changes = []
    if np.any(np.abs(gamma - 1) > 1e-12):
        divides = np.all((np.abs(gamma) < 1) & (gamma != 0))
        changes.append(f"divided by {_values(1 / gamma)}" if divides else f"times {_values(gamma)}")
    if np.any(beta):
        changes.append(f"plus {_values(beta)}")
    return ", ".join(changes)


def _values(array: Any) -> str:
    values = [float(f"{value:.6g}") for value in np.unique(array)]
    if len(values) == 1:
        return f"{values[0]:.6g}"
    return f"({', '.join(f'{value:.6g}' for value in np.ravel(array)[:4])})"


def input_difference_words(change_a: str, change_b: str) -> str:
    """Return a sentence on what both models do to their input; either text may be empty."""
    if not change_a or not change_b:
        has, lacks = ("A", "B") if change_a else ("B", "A")
        return f"{has}'s input is {change_a or change_b}, {lacks}'s is not"
    return f"A's input is {change_a}, B's is {change_b}"

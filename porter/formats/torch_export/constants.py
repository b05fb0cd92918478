"""What numpy computes from the tensors and numbers of a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from porter.filegraph.dataflow import Evaluator, Numbers
from porter.formats.torch_export.nodes import AtenNode
from porter.graph import MOST_CONSTANTS


def _plain(function: Any) -> Evaluator:
    return lambda node, *values: function(*values)


EXACT_TYPES = (None, 7, 8)
"""Types of a cast that changes no function: real numbers of single and double precision (ScalarType)."""
SAME = ("alias", "contiguous", "detach", "lift_fresh")
"""Ops that give what they take, in the same memory or, for `contiguous`, perhaps in other."""
COPIES = ("clone", "lift_fresh_copy")
"""Ops that give what they take in memory of its own."""
RESHAPED = ("view", "_unsafe_view", "reshape")


def is_cast(node: AtenNode) -> bool:
    return (
        node.op in (*SAME, *COPIES, "to", "_to_copy")
        and node.arguments.get("dtype") in EXACT_TYPES
        and "other" not in node.arguments
    )


def _divided(node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    """Two whole numbers give a real one, unlike in other formats."""
    if node.arguments.get("rounding_mode"):
        raise ValueError("a rounded quotient")
    return np.asarray(first / second)


def _scaled(function: Any, node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    if math.prod(np.broadcast_shapes(first.shape, second.shape)) > max(MOST_CONSTANTS, first.size, second.size):
        raise ValueError("more numbers than an op states")
    return np.asarray(function(first, second * node.arguments.get("alpha", 1)))


def _given(node: AtenNode, name: str, values: Sequence[Numbers]) -> Numbers | None:
    """The array of an argument, which may be missing."""
    source = node.arguments.get(name)
    return None if source is None else dict(zip(node.inputs, values, strict=True))[source]


def _total(value: Numbers) -> Numbers:
    """The sum over the last axis, one number after the other: `sum` adds in another order on each processor, and a port's numbers
    are computed again where it is verified.
    """
    return np.add.accumulate(value, -1)[..., -1:]


def _standardised(node: AtenNode, *values: Numbers) -> list[Numbers]:
    """A batch norm by the statistics of its input."""
    if not node.arguments.get("training", node.op.endswith("legit")):
        raise ValueError("stored statistics")
    found = {name: _given(node, name, values) for name in ("input", "weight", "bias")}
    x = found.pop("input")
    if x is None or x.ndim < 2 or x.size == 0:
        raise ValueError("no channels")
    rows, over = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1), (-1, *[1] * (x.ndim - 2))
    apart = rows - _total(rows) / rows.shape[1]
    spread = _total(apart**2) / rows.shape[1]
    normed = apart / np.sqrt(spread + node.arguments["eps"])
    turned = np.moveaxis(normed.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
    scale, offset = (each if each is None else each.reshape(over) for each in found.values())
    scaled = turned if scale is None else turned * scale
    return [scaled if offset is None else scaled + offset]


def _expanded(node: AtenNode, value: Numbers) -> Numbers:
    """The same numbers along more axes; a value that is repeated has more than an op states."""
    sizes = [*node.arguments["size"]]
    more = len(sizes) - value.ndim
    if any(size not in (-1, own) for size, own in zip(sizes, [1] * more + [*value.shape], strict=True)):
        raise ValueError("a repeated constant")
    return value.reshape([1] * more + [*value.shape])


def _reshaped(node: AtenNode, value: Numbers) -> Numbers:
    return value.reshape(node.arguments["size" if "size" in node.arguments else "shape"])


RESHAPES = frozenset({*RESHAPED, "unsqueeze", "squeeze"})
EVALUATORS: Mapping[str, Evaluator] = {
    "add": partial(_scaled, np.add),
    "sub": partial(_scaled, np.subtract),
    "div": _divided,
    "rsub": partial(_scaled, lambda first, second: second - first),
    **dict.fromkeys((*SAME, *COPIES), _plain(lambda value: value)),
    **dict.fromkeys(RESHAPED, _reshaped),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit", "native_batch_norm"), _standardised),
    **dict.fromkeys(("reshape_as", "view_as"), _plain(lambda value, other: value.reshape(other.shape))),
    "expand": _expanded,
    "unsqueeze": lambda node, value: np.expand_dims(value, node.arguments["dim"]),
}
"""What they give has no more numbers than they take, or than an op states (porter.filegraph.dataflow)."""

"""What numpy computes from the tensors and numbers of a program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from porter.filegraph.dataflow import Evaluator, Numbers
from porter.formats.torch_export.nodes import AtenNode
from porter.graph import MOST_CONSTANTS


def _plain(function: Any) -> Evaluator:
    return lambda node, *values: function(*values)


def _scaled(function: Any, node: AtenNode, first: Numbers, second: Numbers) -> Numbers:
    if math.prod(np.broadcast_shapes(first.shape, second.shape)) > MOST_CONSTANTS:
        raise ValueError("more numbers than an op states")
    return np.asarray(function(first, second * node.arguments.get("alpha", 1)))


def _reshaped(node: AtenNode, value: Numbers) -> Numbers:
    return value.reshape(node.arguments["size" if "size" in node.arguments else "shape"])


CASTS = frozenset({"lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "contiguous", "to", "_to_copy"})
RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})
EVALUATORS: Mapping[str, Evaluator] = {
    "add": partial(_scaled, np.add),
    "sub": partial(_scaled, np.subtract),
    "rsub": partial(_scaled, lambda first, second: second - first),
    **dict.fromkeys(("lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "contiguous"), _plain(lambda value: value)),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _reshaped),
    "unsqueeze": lambda node, value: np.expand_dims(value, node.arguments["dim"]),
}
"""What they give has no more numbers than they take, or than an op states (porter.filegraph.dataflow)."""

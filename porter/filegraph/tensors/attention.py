"""Attention over the tokens of three values, as a format states it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import View
from porter.filegraph.tensors.arithmetic import apply_constant_array
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Walk
from porter.graph import (
    Add,
    Affine,
    MatMul,
    Softmax,
    Tanh,
)


class AttentionScores(NamedTuple):
    """How an attention weighs its values: softmax(scale * q @ k^T + mask).

    Attributes:
        scale: None for the usual one, one over the root of q's channels.
        cap: where it is not 0, scores are cap * tanh(score / cap).
    """

    mask: NodeOutput | None = None
    scale: float | None = None
    cap: float = 0.0


PLAIN = AttentionScores()


def attention(walk: Walk, node: OperatorNode, arrays: Sequence[View], scores: AttentionScores) -> View:
    """Add softmax(scale * q @ k^T + mask) @ v over the last two axes (positions, channels), and return its
    view, in the axes of q.

    Args:
        arrays: q, k and v.
        scores: how the scores become weights: their scale (1 / sqrt(channels) unless it says another), a cap
            (cap * tanh(scores / cap)) and a mask that is added, which is computed or stored in the file.

    Raises:
        Unsupported: the number of channels is not known.
    """
    query, key, value = arrays
    if not query.value.channels:
        raise Unsupported("of values of unknown size")
    factor = 1 / math.sqrt(query.value.channels) if scores.scale is None else scores.scale
    scaled_query = walk.builder.affine(f"{node.name}:scale", query.value, (factor,), (0.0,))
    logits = walk.builder.add(f"{node.name}:scores", MatMul(True), scaled_query, key.value)
    if scores.cap:
        cap_steps = Affine((1 / scores.cap,), (0.0,)), Tanh(), Affine((scores.cap,), (0.0,))
        logits = walk.builder.chain(f"{node.name}:capped", logits, cap_steps)
    if scores.mask is not None and walk.is_live(scores.mask):
        logits = walk.builder.add(f"{node.name}:mask", Add(), logits, walk.layouts.array(scores.mask).value)
    elif scores.mask is not None:
        logits = apply_constant_array(walk, f"{node.name}:mask", "Add", logits, scores.mask)
    weights = walk.builder.add(f"{node.name}:shares", Softmax(), logits)
    return walk.views.as_rank_of(query, walk.builder.add(node.name, MatMul(), weights, value.value))

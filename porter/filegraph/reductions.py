"""Reductions that a file says by other ops, or that porter says by others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from porter.filegraph import moves
from porter.filegraph.arithmetic import of_values
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.file_graph import LOG_SOFTMAX
from porter.filegraph.layouts import View
from porter.filegraph.walk import Lacks, Read, Walk


def least(walk: Walk[N], node: N, source: Reference, places: Collection[int], keep: bool) -> Read:
    """The smallest number over axes: the opposite of the largest of the opposites."""
    view = walk.kept(source)
    opposite = walk.views.like(view, walk.builder.negative(f"{node.name}:each", view.value))
    most = moves.reduce(walk, node, opposite, "max", places, keep)
    return walk.views.like(most, walk.builder.negative(f"{node.name}:least", most.value)) if isinstance(most, View) else most


def log_softmax(walk: Walk[N], node: N, source: Reference, place: int) -> Read:
    """The logarithms of a softmax, for which porter has no op: one over the channels may be the end of a graph of logits."""
    if not walk.views.has_channels(walk.kept(source), place):
        return Lacks(f"{node.op} over other axes than the channels")
    return walk.builder.foreign(node.name, LOG_SOFTMAX, walk.value(source), reads=(walk.tap(source),))


def root(walk: Walk[N], node: N, keeps: Callable[[N], bool]) -> Read:
    """A root, which porter reads as the last op of a norm.

    Args:
        keeps: whether a sum keeps its axes, with one cell.
    """
    for square in (("Mul", "x", "x"), ("Square", "x")):
        found = walk.flow.match(node, ("Sqrt", ("Sum", square, "#axes")))
        if found is not None:
            total = walk.flow.nodes[node.inputs[0][0]]
            return moves.reduce(walk, node, found["x"], "norm", found["#axes"], keeps(total))
    return Lacks()


def unit_of(walk: Walk[N], node: N) -> Read | None:
    """A product that is a value over its norm, as tf.math.l2_normalize and TensorFlow Lite's converter write it."""
    for square in (("Mul", "x", "x"), ("Square", "x")):
        total = "Sum", square, "#axes"
        if (found := walk.flow.match(node, ("Mul", "x", ("Rsqrt", ("Max", total, "$least"))))) is not None:
            return over_norm(walk, node, found["x"], found["#axes"], math.sqrt(found["$least"]))
        if (found := walk.flow.match(node, ("Mul", "x", ("Min", ("Rsqrt", total), "$most")))) is not None:
            return over_norm(walk, node, found["x"], found["#axes"], 1 / found["$most"])
    return None


def over_norm(walk: Walk[N], node: N, source: Reference, places: Collection[int], least: float) -> Read:
    """A value over its norm along axes, or over `least` where the norm is smaller."""
    norm = moves.reduce(walk, node, source, "norm", places, True)
    if not isinstance(norm, View):
        return norm
    bound = walk.views.like(norm, walk.builder.clip(f"{node.name}:bound", norm.value, low=least))
    return of_values(walk, node, "Div", (source, bound))

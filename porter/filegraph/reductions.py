"""Reductions that a file says by other ops, or that porter says by others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from porter.filegraph import moves
from porter.filegraph.arithmetic import of_values
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.dims import Open
from porter.filegraph.file_graph import LOG_SOFTMAX
from porter.filegraph.layouts import View
from porter.filegraph.walk import Lacks, Read, Walk, apply
from porter.graph import Affine, Op, Sigmoid, Sqrt


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
    """A root, which may be the last op of a norm.

    Args:
        keeps: whether a sum keeps its axes, with one cell.
    """
    for square in (("Mul", "x", "x"), ("Square", "x")):
        found = walk.flow.match(node, ("Sqrt", ("Sum", square, "#axes")))
        if found is not None:
            total = walk.flow.nodes[node.inputs[0][0]]
            return moves.reduce(walk, node, found["x"], "norm", found["#axes"], keeps(total))
    return apply(walk, node, node.inputs[0], Sqrt())


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


def glu(walk: Walk[N], node: N, source: Reference, place: int) -> Read:
    """The first half of an axis, times the sigmoid of the second."""
    size = walk.view(source).size(place)
    if isinstance(size, Open) or size % 2:
        return Lacks(f"{node.op} over an axis that has no known halves")
    halves = [moves.cut(walk, node, source, {place: part}) for part in (slice(0, size // 2), slice(size // 2, size))]
    first, second = (half if isinstance(half, View) else None for half in halves)
    if first is None or second is None:
        return next((half for half in halves if isinstance(half, Lacks)), Lacks())
    gate = walk.views.like(second, walk.builder.add(f"{node.name}:gate", Sigmoid(), second.value))
    return of_values(walk, node, "Mul", (first, gate))


def variance(walk: Walk[N], node: N, source: Reference, places: Collection[int], keep: bool, less: float) -> Read:
    """The mean square distance from the mean along axes, where `less` is taken from the count that it is divided by; the root of it
    for an operator that is called `std`.
    """
    sizes = [walk.view(source).size(place) for place in places]
    known = [size for size in sizes if isinstance(size, int)]
    count = math.prod(known)
    if less and (len(known) < len(sizes) or count <= less):
        return Lacks(f"{node.op} over axes of open sizes, or of one cell")
    found = moves.reduce(walk, node, source, "mean", places, True)
    steps: Sequence[Callable[[View], Read]] = (
        lambda mean: of_values(walk, node, "Sub", (source, mean)),
        lambda apart: of_values(walk, node, "Mul", (apart, apart)),
        lambda squares: moves.reduce(walk, node, squares, "mean", places, keep),
    )
    for step in steps:
        if not isinstance(found, View):
            return found if isinstance(found, Lacks) else Lacks()
        found = step(found)
    if not isinstance(found, View):
        return found if isinstance(found, Lacks) else Lacks()
    links: list[Op] = [Affine((count / (count - less),), (0.0,))] if less else []
    links += [Sqrt()] if node.op == "std" else []
    return walk.views.like(found, walk.builder.chain(node.name, found.value, links))

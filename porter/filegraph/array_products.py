"""What an op graph computes with arrays: reductions, products of matrices, attention. See porter.filegraph.arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from porter.filegraph.arrays import has_batch, like, place_in, with_array
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.dims import Open, product as product_of
from porter.filegraph.layouts import View
from porter.filegraph.places import place_of
from porter.filegraph.walk import Lacks, Read, Walk
from porter.graph import Add, MatMul, ReduceAxis, Softmax
from porter.graph.ops import Function


def reduce(walk: Walk[N], node: N, view: View, function: Function, places: Collection[int], keep: bool) -> Read:
    """A function along axes of an array, which stay with one cell if `keep`."""
    gone = sorted({place_of(place, len(view.axes or ())) for place in places}, reverse=True)
    if not gone or has_batch(view, gone[-1]):
        return Lacks(f"{node.op} over the batch")
    images = [] if walk.views.whole else [(view.sizes or ())[0]]
    if len(gone) == len(view.axes or ()) - len(images) and (len(gone) > len(images) or not view.value.is_array):
        flat = view.reshaped([*images, 1, -1])
        whole = walk.as_array(f"{node.name}:whole", flat) if flat is not None else None
        found = reduce(walk, node, whole, function, [-1], True) if whole is not None else Lacks()
        one = found.without([-1]) if isinstance(found, View) else None  # N×1, as features
        return (one and (one.with_axes(gone[::-1][1:]) if keep else one.without([-1]))) or Lacks()
    value = walk.builder.chain(node.name, view.value, [ReduceAxis(function, place_in(view, place)) for place in gone])
    lead = len(view.value.shape or ()) - len(view.axes or ()) + 1
    found = walk.views.led(value, lead)
    return found.with_axes(gone[::-1]) or Lacks() if keep else found


def total(walk: Walk[N], node: N, view: View, places: Collection[int], keep: bool) -> Read:
    """The sum along axes of known sizes, as so many times the mean."""
    count = product_of(view.size(place) for place in places)
    if isinstance(count, Open):
        return Lacks(f"{node.op} over an axis of open size")
    mean = reduce(walk, node, view, "mean", places, keep)
    if not isinstance(mean, View):
        return mean
    return walk.views.like(mean, walk.builder.affine(node.name, mean.value, (float(count),), (0.0,)))


def softmax(walk: Walk[N], node: N, source: Reference, places: Collection[int]) -> Read:
    """A softmax along any axes of an array, or over all cells of several: they become the last one, and go back."""
    whole = walk.view(source)
    if whole.sizes is None:
        return Lacks()
    last = sorted(whole.places(places))
    order = [*(place for place in range(len(whole.sizes)) if place not in last), *last]
    sizes = [whole.sizes[place] for place in order]
    turned = whole.transposed(order)
    flat = turned and turned.reshaped([*sizes[: -len(last)], product_of(sizes[-len(last) :])]) if len(last) > 1 else turned
    view = walk.as_array(f"{node.name}:last", flat) if flat is not None else None
    if view is None or has_batch(whole, last[0]):
        return Lacks(f"{node.op} over the batch")
    found = like(walk, view, walk.builder.add(node.name, Softmax(), view.value))
    apart = found.reshaped(sizes) if len(last) > 1 else found
    return (apart and apart.transposed([order.index(axis) for axis in range(len(order))])) or Lacks()


def matmul(walk: Walk[N], node: N, sources: Sequence[Reference], turned: Sequence[bool] = (False, False)) -> Read:
    """The product of two values over their last two axes, or over these axes `turned`."""
    views = []
    for source, turns, is_held in zip(sources, turned, (False, True), strict=True):
        view = walk.view(source)
        if not turns and not (is_held and _turned(walk, view) is not None):
            walk.array(source)
        views.append(_with_last_turned(view) if turns else view)
    found = [view for view in views if view is not None]
    return product(walk, node, found) if len(found) == len(views) else Lacks(f"{node.op} of values of fewer than two axes")


def product(walk: Walk[N], node: N, views: Sequence[View]) -> Read:
    """As `matmul`, of views."""
    rank, held = len(views[1].axes or ()), _turned(walk, views[1])
    first, second = walk.as_array(f"{node.name}:first", views[0]), held or walk.as_array(f"{node.name}:second", views[1])
    if first is None or second is None or len(first.axes or ()) != rank or rank < 3:
        return Lacks(f"{node.op} of values of different axes")
    value = walk.builder.add(node.name, MatMul(held is not None), first.value, second.value)
    return walk.views.led(value, len(value.shape or ()) - rank + 1)


def _turned(walk: Walk[N], view: View) -> View | None:
    """An array that a file turns for a product, before that: what is turned in the file, is not turned again."""
    turned = _with_last_turned(view)
    return walk.settled_array(turned) if turned is not None else None


def _with_last_turned(view: View) -> View | None:
    rank = len(view.axes or ())
    return view.transposed([*range(rank - 2), rank - 1, rank - 2]) if rank > 2 else None


def attention(walk: Walk[N], node: N, heads: Sequence[View | None], mask: Reference | None, scale: float | None) -> Read:
    """softmax(scale * q @ k^T + mask) @ v over the last two axes of q, k and v, which are arrays; the usual scale is one over the
    root of q's channels.
    """
    query, key, value = heads
    if query is None or key is None or value is None or not query.value.channels:
        return Lacks(f"{node.op} of values of different axes")
    factor = scale if scale is not None else 1 / math.sqrt(query.value.channels)
    scaled = walk.builder.affine(f"{node.name}:scale", query.value, (factor,), (0.0,))
    scores = walk.builder.add(f"{node.name}:scores", MatMul(True), scaled, key.value)
    if mask is not None and walk.flow.is_value(mask):
        added = walk.array(mask)
        if added is None:
            return Lacks(f"{node.op} with a mask of other axes")
        scores = walk.builder.add(f"{node.name}:mask", Add(), scores, added.value)
    elif mask is not None:
        masked = with_array(walk, f"{node.name}:mask", "Add", scores, mask)
        if masked is None:
            return Lacks(f"{node.op} with a mask of other axes")
        scores = masked
    shares = walk.builder.add(f"{node.name}:shares", Softmax(), scores)
    return like(walk, query, walk.builder.add(node.name, MatMul(), shares, value.value))

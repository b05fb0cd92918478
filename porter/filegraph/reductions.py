"""What an op graph computes along axes: means, sums and extremes, softmaxes, and what files say by several of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from porter.filegraph import moves
from porter.filegraph.arithmetic import of_values
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.dims import Open, product
from porter.filegraph.file_graph import LOG_SOFTMAX
from porter.filegraph.places import place_of
from porter.filegraph.views import View
from porter.filegraph.walk import Lacks, Read, Source, Walk, apply
from porter.graph import (
    Add,
    Affine,
    Op,
    ReduceAxis,
    Sigmoid,
    Softmax,
    Sqrt,
)
from porter.graph.ops import AXES, Function

_MOST_PARTS = 64
"""More than a model adds. Each part is a node of its own, however short the file is."""


def reduce(walk: Walk[N], node: N, source: Source, function: Function, places: Collection[int], keep: bool) -> Read:
    """The mean, the largest value or the norm over axes of a map, which stay with one cell if `keep`."""
    view = walk.kept(source)
    names = walk.views.names(view)
    if names is None or not view.value.is_map:
        own = walk.view(source)
        order = own.batch_first
        turned = own.transposed(order)
        name, tap = (own.value.node, None) if isinstance(source, View) else (source[0], walk.tap(source))
        array = None if turned is None else walk.as_array(name, turned, tap if order[0] == 0 else None)
        gone = {place_of(place, len(order)) for place in places}
        inner = [order.index(place) for place in gone]
        found = Lacks() if array is None else _reduce_array(walk, node, array, function, inner, keep)
        left = [place for place in order if keep or place not in gone]
        return found.transposed([left.index(place) for place in sorted(left)]) or Lacks() if isinstance(found, View) else found
    gone = {place_of(place, len(names)) for place in places}
    axes = {names[place] for place in gone}
    if "batch" in axes:
        return Lacks(f"{node.op} over the batch")
    cells_only = axes == {"rows", "columns"}
    value = walk.builder.reduce(node.name, view.value, function, [axis for axis in AXES if axis in axes], keep or not cells_only)
    if cells_only and not keep:
        return walk.views.laid(value, tuple(name for name in names if name not in axes)) or Lacks()
    whole = walk.views.laid(value, names)
    return (whole if keep or whole is None else whole.without(gone)) or Lacks()


def _reduce_array(walk: Walk[N], node: N, view: View, function: Function, places: Collection[int], keep: bool) -> Read:
    """A function along axes of an array, which stay with one cell if `keep`."""
    gone = sorted({place_of(place, len(view.axes or ())) for place in places}, reverse=True)
    if not gone or view.has_batch(gone[-1]):
        return Lacks(f"{node.op} over the batch")
    images = [] if walk.views.whole else [(view.sizes or ())[0]]
    if len(gone) == len(view.axes or ()) - len(images) and (len(gone) > len(images) or not view.value.is_array):
        flat = view.reshaped([*images, 1, -1])
        whole = walk.as_array(f"{node.name}:whole", flat) if flat is not None else None
        found = _reduce_array(walk, node, whole, function, [-1], True) if whole is not None else Lacks()
        one = found.without([-1]) if isinstance(found, View) else None  # N×1, as features
        return (one and (one.with_axes(gone[::-1][1:]) if keep else one.without([-1]))) or Lacks()
    value = walk.builder.chain(node.name, view.value, [ReduceAxis(function, view.axis_at(place)) for place in gone])
    lead = len(view.value.shape or ()) - len(view.axes or ()) + 1
    found = walk.views.led(value, lead)
    return found.with_axes(gone[::-1]) or Lacks() if keep else found


def total(walk: Walk[N], node: N, source: Source, places: Collection[int], keep: bool) -> Read:
    """The sum over an axis that counts parts of the channels, such as that of a stack."""
    parts = _parts(walk, node, walk.kept(source), *places) if len(places) == 1 else ()
    array = None if parts else walk.array(source)
    if array is not None:
        return _total_of_array(walk, node, array, places, keep)
    if not parts:
        return Lacks(f"{node.op} over other axes than one of parts of the channels")
    found = walk.views.like(parts[0], walk.builder.add(node.name, Add(), *(part.value for part in parts)))
    return found.with_axes(places) or Lacks() if keep else found


def _total_of_array(walk: Walk[N], node: N, view: View, places: Collection[int], keep: bool) -> Read:
    """The sum along axes of known sizes, as so many times the mean."""
    count = product(view.size(place) for place in places)
    if isinstance(count, Open):
        return Lacks(f"{node.op} over an axis of open size")
    mean = _reduce_array(walk, node, view, "mean", places, keep)
    if not isinstance(mean, View):
        return mean
    return walk.views.like(mean, walk.builder.affine(node.name, mean.value, (float(count),), (0.0,)))


def _parts(walk: Walk[N], node: N, view: View, place: int) -> Sequence[View]:
    """The parts of the channels that an axis counts, without that axis; none if it counts something else."""
    count, channels = walk.views.groups(view, place) if view.axes is not None else None, view.value.channels
    if count is None or channels is None or count in (1, channels) or count > _MOST_PARTS:
        return ()
    gone, size = view.places([place]), channels // count
    left = replace(view, axes=tuple(axis for other, axis in enumerate(view.axes or ()) if other not in gone))
    slices = [{AXES[0]: slice(start, start + size)} for start in range(0, channels, size)]
    return [walk.views.like(left, walk.builder.cut(f"{node.name}:part", view.value, each)) for each in slices]


def least(walk: Walk[N], node: N, source: Reference, places: Collection[int], keep: bool) -> Read:
    """The smallest number over axes: the opposite of the largest of the opposites."""
    view = walk.kept(source)
    opposite = walk.views.like(view, walk.builder.negative(f"{node.name}:each", view.value))
    most = reduce(walk, node, opposite, "max", places, keep)
    return walk.views.like(most, walk.builder.negative(f"{node.name}:least", most.value)) if isinstance(most, View) else most


def softmax(walk: Walk[N], node: N, source: Reference, place: int) -> Read:
    """A softmax over the channels, or over two parts of them, which is a sigmoid of what they differ by."""
    view = walk.kept(source)
    parts = _parts(walk, node, view, place)
    if len(parts) == 2:
        apart = walk.builder.subtract(f"{node.name}:difference", *(part.value for part in parts))
        both = apart, walk.builder.affine(f"{node.name}:opposite", apart, (-1.0,), (0.0,))
        shares = [walk.builder.add(f"{node.name}:share", Sigmoid(), value) for value in both]
        return walk.views.like(view, walk.builder.concat(node.name, *shares))
    if parts or not walk.views.has_channels(view, place):
        return softmax_of_cells(walk, node, source, [place])
    return walk.views.like(view, walk.builder.add(node.name, Softmax(), view.value))


def softmax_of_cells(walk: Walk[N], node: N, source: Reference, places: Collection[int]) -> Read:
    """A softmax along any axes of an array, or over all cells of several: they become the last one, and go back."""
    whole = walk.view(source)
    if whole.sizes is None:
        return Lacks()
    last = sorted(whole.places(places))
    order = [*(place for place in range(len(whole.sizes)) if place not in last), *last]
    sizes = [whole.sizes[place] for place in order]
    turned = whole.transposed(order)
    flat = turned and turned.reshaped([*sizes[: -len(last)], product(sizes[-len(last) :])]) if len(last) > 1 else turned
    view = walk.as_array(f"{node.name}:last", flat) if flat is not None else None
    if view is None or whole.has_batch(last[0]):
        return Lacks(f"{node.op} over the batch")
    found = walk.views.led_like(view, walk.builder.add(node.name, Softmax(), view.value))
    apart = found.reshaped(sizes) if len(last) > 1 else found
    return (apart and apart.transposed([order.index(axis) for axis in range(len(order))])) or Lacks()


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
            return reduce(walk, node, found["x"], "norm", found["#axes"], keeps(total))
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
    norm = reduce(walk, node, source, "norm", places, True)
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
    found = reduce(walk, node, source, "mean", places, True)
    steps: Sequence[Callable[[View], Read]] = (
        lambda mean: of_values(walk, node, "Sub", (source, mean)),
        lambda apart: of_values(walk, node, "Mul", (apart, apart)),
        lambda squares: reduce(walk, node, squares, "mean", places, keep),
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

"""What an op graph computes along axes: means, sums and extremes, softmaxes, and what files say by several of
these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal

from porter.filegraph import moves
from porter.filegraph.arithmetic import of_values
from porter.filegraph.dataflow import N, Node, Reference
from porter.filegraph.dims import Open, product
from porter.filegraph.functions import pair, then, within
from porter.filegraph.places import place_of
from porter.filegraph.views import View
from porter.filegraph.walk import Lacks, NodeWalk, Read, Source, Walk, apply
from porter.graph import (
    Abs,
    Add,
    Affine,
    Exp,
    Log,
    LogSoftmax,
    Op,
    Power,
    Sigmoid,
    SliceChannels,
    Softmax,
    Sqrt,
)
from porter.graph.ops import AXES, Function

Reduction = Function | Literal["sum", "min"]


def reduce(
    walk: Walk, node: Node, source: Source, function: Reduction, places: Collection[int], keep: bool
) -> Read:
    """What a function makes of all numbers along axes, which stay with one cell if `keep`."""
    if function == "sum":
        return _total(walk, node, source, places, keep)
    if function == "min":
        return _least(walk, node, source, places, keep)
    view = walk.kept(source)
    names = walk.views.names(view) if view.value.is_map else None
    if names is None:
        return _of_array(walk, node, source, function, places, keep)
    gone = {place_of(place, len(names)) for place in places}
    axes = {names[place] for place in gone}
    if "batch" in axes:
        return Lacks(f"{node.op} over the batch")
    stays = keep or axes != {"rows", "columns"}
    value = walk.builder.reduce(
        node.name, view.value, function, [AXES.index(axis) for axis in AXES if axis in axes], stays
    )
    found = walk.views.laid(value, names if stays else tuple(name for name in names if name not in axes))
    return (found if keep or not stays or found is None else found.without(gone)) or Lacks()


def _of_array(
    walk: Walk, node: Node, source: Source, function: Function, places: Collection[int], keep: bool
) -> Read:
    view = walk.view(source)
    order, gone = view.batch_first, view.places(places)
    array = walk.array(source, order)
    found = (
        Lacks()
        if array is None
        else _along(walk, node, array, function, sorted(order.index(place) for place in gone))
    )
    if not isinstance(found, View):
        return found
    whole = found.restored(order)
    return (whole if keep or whole is None else whole.without(gone)) or Lacks()


def _along(walk: NodeWalk[N], node: N, view: View, function: Function, places: Sequence[int]) -> Read:
    """A function along axes of an array whose first axis is the batch; they stay with one cell."""
    if not places or view.has_batch(places[0]):
        return Lacks(f"{node.op} over the batch")
    images = [] if walk.views.whole else [(view.sizes or ())[0]]
    if len(places) == len(view.axes or ()) - len(images) and (
        len(places) > len(images) or not view.value.is_array
    ):
        flat = view.reshaped([*images, 1, -1])
        whole = walk.as_array(f"{node.name}:whole", flat) if flat is not None else None
        found = _along(walk, node, whole, function, [len(images) + 1]) if whole is not None else Lacks()
        one = found.without([-1]) if isinstance(found, View) else None  # N×1, as features
        return one.with_axes(places[1:]) if one is not None else Lacks()
    value = walk.builder.reduce(node.name, view.value, function, [view.axis_at(place) for place in places])
    return walk.views.led(value, len(view.axes or ()) - len(places)).with_axes(places)


def _total(walk: Walk, node: Node, source: Source, places: Collection[int], keep: bool) -> Read:
    """The sum along axes of known sizes, as so many times the mean; over an axis that counts parts of the
    channels, such as that of a stack, as a sum of these.
    """
    parts = _parts(walk, node, walk.kept(source), *places) if len(places) == 1 else ()
    if parts:
        found = walk.views.like(parts[0], walk.builder.add(node.name, Add(), *(part.value for part in parts)))
        return found.with_axes(places) if keep else found
    view = walk.view(source)
    count = product(view.size(place) for place in places) if view.axes is not None else 0
    if isinstance(count, Open):
        return Lacks(f"{node.op} over an axis of open size")
    mean = _of_array(walk, node, source, "mean", places, keep)
    if not isinstance(mean, View):
        return mean
    return walk.views.like(mean, walk.builder.affine(node.name, mean.value, (float(count),), (0.0,)))


def _least(walk: Walk, node: Node, source: Source, places: Collection[int], keep: bool) -> Read:
    """The smallest number along axes: the opposite of the largest of the opposites."""
    view = walk.kept(source)
    opposite = walk.views.like(view, walk.builder.negative(f"{node.name}:each", view.value))
    most = reduce(walk, node, opposite, "max", places, keep)
    return (
        walk.views.like(most, walk.builder.negative(f"{node.name}:least", most.value))
        if isinstance(most, View)
        else most
    )


def _parts(walk: Walk, node: Node, view: View, place: int) -> Sequence[View]:
    """The parts of the channels that an axis counts, without that axis; none if it counts something else."""
    count, channels = walk.views.groups(view, place) if view.axes is not None else None, view.value.channels
    if count is None or channels is None or count in (1, channels) or count > moves.MOST_PARTS:
        return ()
    gone, size = view.places([place]), channels // count
    left = replace(view, axes=tuple(axis for other, axis in enumerate(view.axes or ()) if other not in gone))
    parts = [SliceChannels(start, start + size) for start in range(0, channels, size)]
    return [walk.views.like(left, walk.builder.add(f"{node.name}:part", op, view.value)) for op in parts]


_SOFTMAX = Softmax()


def softmax(
    walk: Walk, node: Node, source: Reference, *places: int, op: Softmax | LogSoftmax = _SOFTMAX
) -> Read:
    """A softmax over the channels, over two parts of them, which is a sigmoid of what they differ by, or
    along other axes, of which several are one; or with that `op` its logarithm.
    """
    if not places:
        return Lacks(f"{node.op} over no axes")
    if len(places) == 1:
        view = walk.kept(source)
        parts = _parts(walk, node, view, *places)
        if len(parts) == 2 and isinstance(op, Softmax):
            apart = walk.builder.subtract(f"{node.name}:difference", *(part.value for part in parts))
            both = apart, walk.builder.negative(f"{node.name}:opposite", apart)
            shares = [walk.builder.add(f"{node.name}:share", Sigmoid(), value) for value in both]
            return walk.views.like(view, walk.builder.concat(node.name, *shares))
        if not parts and walk.views.has_channels(view, *places):
            return walk.views.like(view, walk.builder.add(node.name, op, view.value))
    return _softmax_of_last(walk, node, walk.view(source), sorted(walk.view(source).places(places)), op)


def _softmax_of_last(walk: Walk, node: Node, whole: View, last: Sequence[int], op: Op) -> Read:
    """A softmax along axes that become the last one, and go back."""
    if whole.sizes is None:
        return Lacks()
    order = [*(place for place in range(len(whole.sizes)) if place not in last), *last]
    sizes = [whole.sizes[place] for place in order]
    turned = whole.transposed(order)
    flat = (
        turned and turned.reshaped([*sizes[: -len(last)], product(sizes[-len(last) :])])
        if len(last) > 1
        else turned
    )
    view = walk.as_array(f"{node.name}:last", flat) if flat is not None else None
    if view is None or whole.has_batch(last[0]):
        return Lacks(f"{node.op} over the batch")
    found = walk.views.led_like(view, walk.builder.add(node.name, op, view.value))
    apart = found.reshaped(sizes) if len(last) > 1 else found
    return (apart and apart.restored(order)) or Lacks()


def log_softmax(walk: Walk, node: Node, source: Reference, place: int) -> Read:
    """As `softmax`, of its logarithm."""
    return softmax(walk, node, source, place, op=LogSoftmax())


def root(walk: NodeWalk[N], node: N, keeps: Callable[[N], bool]) -> Read:
    """A root, which may be the last op of a norm.

    Args:
        keeps: whether a sum keeps its axes, with one cell.
    """
    for square in (("Mul", "x", "x"), ("Square", "x")):
        found = walk.flow.match(node, ("Sqrt", ("Sum", square, "#axes")))
        if found is not None:
            total = walk.flow.nodes[node.source[0]]
            return reduce(walk, node, found["x"], "norm", found["#axes"], keeps(total))
    return apply(walk, node, node.source, Sqrt())


def unit_of(walk: Walk, node: Node) -> Read | None:
    """A product that is a value over its norm, as tf.math.l2_normalize and TensorFlow Lite's converter write
    it.
    """
    for square in (("Mul", "x", "x"), ("Square", "x")):
        total = "Sum", square, "#axes"
        if (found := walk.flow.match(node, ("Mul", "x", ("Rsqrt", ("Max", total, "$least"))))) is not None:
            return over_norm(walk, node, found["x"], found["#axes"], math.sqrt(found["$least"]))
        if (found := walk.flow.match(node, ("Mul", "x", ("Min", ("Rsqrt", total), "$most")))) is not None:
            return over_norm(walk, node, found["x"], found["#axes"], 1 / found["$most"])
    return None


def over_norm(
    walk: Walk, node: Node, source: Reference, places: Collection[int], least: float, order: int = 2
) -> Read:
    """A value over its norm of order 1 or 2 along axes, or over `least` where the norm is smaller."""
    if order == 1:
        view = walk.kept(source)
        each = walk.views.like(view, walk.builder.add(f"{node.name}:each", Abs(), view.value))
        norm = reduce(walk, node, each, "sum", places, True)
    else:
        norm = reduce(walk, node, source, "norm", places, True)
    if not isinstance(norm, View):
        return norm
    bound = walk.views.like(norm, walk.builder.clip(f"{node.name}:bound", norm.value, low=least))
    return of_values(walk, node, "Div", (source, bound))


def log_sum_exp(walk: Walk, node: Node, source: Reference, places: Collection[int], keep: bool) -> Read:
    """The logarithm of the sum of exp(x) along axes: the largest number, and what the others add to it."""
    most = reduce(walk, within(node, "largest"), source, "max", places, True)
    powers = then(walk, within(node, "powers"), pair(walk, within(node, "apart"), "Sub", source, most), Exp())
    if not isinstance(powers, View):
        return powers
    total = reduce(walk, within(node, "sum"), powers, "sum", places, True)
    found = pair(walk, node, "Add", then(walk, within(node, "log"), total, Log()), most)
    return found if keep or not isinstance(found, View) else found.without(places) or Lacks()


def norm(walk: Walk, node: Node, source: Source, places: Collection[int], keep: bool, order: float) -> Read:
    """A norm along axes: of order 1 the sum of sizes, of infinity the largest size, of others the root of a
    sum of powers.
    """
    if order == 2:
        return reduce(walk, node, source, "norm", places, keep)
    size = apply(walk, within(node, "size"), source, Abs())
    if math.isinf(order):
        return reduce(walk, node, size, "max" if order > 0 else "min", places, keep)
    if order == 1:
        return reduce(walk, node, size, "sum", places, keep)
    if order <= 0:
        return Lacks(f"{node.op} of order {order:g}")
    powers = apply(walk, within(node, "powers"), size, Power(order))
    total = reduce(walk, within(node, "sum"), powers, "sum", places, keep)
    return then(walk, node, total, Power(1 / order))


def factors(walk: Walk, node: Node, source: Source, places: Collection[int], keep: bool) -> Read:
    """The product of the numbers along axes of few cells."""
    found: Read = walk.view(source)
    for place in places:
        if isinstance(found, View):
            found = _factors_along(walk, node, found, place)
    return found if keep or not isinstance(found, View) else found.without(places) or Lacks()


def _factors_along(walk: Walk, node: Node, view: View, place: int) -> Read:
    """The product of the numbers along an axis, which stays with one cell."""
    size = view.size(place)
    if isinstance(size, Open) or not 0 < size <= moves.MOST_PARTS:
        return Lacks(f"{node.op} over an axis of open size, or of more than {moves.MOST_PARTS} cells")
    found: Read = moves.cut(walk, within(node, "cell"), view, {place: slice(0, 1)})
    for cell in range(1, size):
        part = moves.cut(walk, within(node, "cell"), view, {place: slice(cell, cell + 1)})
        found = pair(walk, node if cell == size - 1 else within(node, "product"), "Mul", found, part)
    return found


def glu(walk: Walk, node: Node, source: Reference, place: int) -> Read:
    """The first half of an axis, times the sigmoid of the second."""
    size = walk.view(source).size(place)
    if isinstance(size, Open) or size % 2:
        return Lacks(f"{node.op} over an axis that has no known halves")
    halves = [
        moves.cut(walk, node, source, {place: part}) for part in (slice(0, size // 2), slice(size // 2, size))
    ]
    first, second = (half if isinstance(half, View) else None for half in halves)
    if first is None or second is None:
        return next((half for half in halves if isinstance(half, Lacks)), Lacks())
    gate = walk.views.like(second, walk.builder.add(f"{node.name}:gate", Sigmoid(), second.value))
    return of_values(walk, node, "Mul", (first, gate))


def variance(
    walk: Walk, node: Node, source: Reference, places: Collection[int], keep: bool, less: float
) -> Read:
    """The mean square distance from the mean along axes, where `less` is taken from the count that it is
    divided by; the root of it for an operator that is called `std`.
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
    links += [Sqrt()] if node.op.startswith("std") else []
    return walk.views.like(found, walk.builder.chain(node.name, found.value, links))

"""What an op graph computes along axes: means, sums and extremes, softmaxes, and what files say by several of
these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from porter.filegraph.axes import View
from porter.filegraph.dataflow import N, OperatorNode
from porter.filegraph.dims import Open, product
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.parts import MOST_PARTS
from porter.filegraph.walk import NodeWalk, Source, Walk
from porter.graph import (
    Add,
    LogSoftmax,
    Op,
    Sigmoid,
    SliceChannels,
    Softmax,
)
from porter.graph.ops import AXES, Function

Reduction = Function | Literal["sum", "min"]


def reduce(
    walk: Walk,
    node: OperatorNode,
    source: Source,
    function: Reduction,
    positions: Collection[int],
    keep: bool,
) -> View:
    """Reduce a value along axes by a function, and return the view; the axes stay with one cell if `keep`.
    Over both rows and columns, a map that does not keep them becomes features.

    Raises:
        Unsupported: the batch is among the axes, or porter has no op for the function there.
    """
    if function == "sum":
        return _sum_along(walk, node, source, positions, keep)
    if function == "min":
        return _min_along(walk, node, source, positions, keep)
    view = walk.try_lay_out(source)
    names = walk.views.axis_names(view) if view.value.is_map else None
    if names is None:
        reduced = _reduce_array(walk, node, source, function, positions)
        return reduced if keep else reduced.without_axes(positions)
    reduced_positions = view.positions(positions)
    axes = {names[position] for position in reduced_positions}
    if "batch" in axes:
        raise Unsupported("over the batch")
    keeps_cells = keep or axes != {"rows", "columns"}
    axis_numbers = [index for index, axis in enumerate(AXES) if axis in axes]
    value = walk.builder.reduce(node.name, view.value, function, axis_numbers, keeps_cells)
    if not keeps_cells:
        return walk.views.in_axis_order(value, tuple(name for name in names if name not in axes))
    reduced = walk.views.in_axis_order(value, names)
    return reduced if keep else reduced.without_axes(reduced_positions)


def _reduce_array(
    walk: Walk, node: OperatorNode, source: Source, function: Function, positions: Collection[int]
) -> View:
    """Reduce an array along axes, which stay with one cell."""
    view = walk.view(source)
    order = view.batch_first
    axes = sorted(order.index(position) for position in view.positions(positions))
    return _reduce_along(walk, node, walk.array(source, order), function, axes).untransposed(order)


def _reduce_along(
    walk: NodeWalk[N], node: N, view: View, function: Function, positions: Sequence[int]
) -> View:
    """Reduce an array, whose first axis is the batch, along axes; they stay with one cell. All axes of an
    image are reduced as one, so that they give one feature.
    """
    if not positions or view.has_batch(positions[0]):
        raise Unsupported("over the batch")
    images = [] if walk.views.lacks_batch else [(view.sizes or ())[0]]
    if len(positions) == view.rank - len(images) and (
        len(positions) > len(images) or not view.value.is_array
    ):
        joined = walk.as_array(f"{node.name}:whole", view.reshaped([*images, 1, -1]))
        features = _reduce_along(walk, node, joined, function, [len(images) + 1]).without_axes(
            [-1]
        )  # N×1, as features
        return features.with_axes(positions[1:])
    value = walk.builder.reduce(
        node.name, view.value, function, [view.axis_at(position) for position in positions]
    )
    return walk.views.as_rank(value, view.rank - len(positions)).with_axes(positions)


def _sum_along(
    walk: Walk, node: OperatorNode, source: Source, positions: Collection[int], keep: bool
) -> View:
    """Sum along axes of known sizes, and return the view. An axis that counts parts of the channels, such as
    that of a stack, gives a sum of these parts; other axes give the mean times their number of cells.
    """
    parts = _channel_parts(walk, node, walk.try_lay_out(source), *positions) if len(positions) == 1 else ()
    if parts:
        sums = walk.views.with_axes_of(
            parts[0], walk.builder.add(node.name, Add(), *(part.value for part in parts))
        )
        return sums.with_axes(positions) if keep else sums
    view = walk.view(source)
    count = product(view.size(position) for position in positions) if view.axes is not None else 0
    if isinstance(count, Open):
        raise Unsupported("over an axis of open size")
    mean = _reduce_array(walk, node, source, "mean", positions)
    total = walk.views.with_axes_of(mean, walk.builder.affine(node.name, mean.value, (float(count),), (0.0,)))
    return total if keep else total.without_axes(positions)


def _min_along(
    walk: Walk, node: OperatorNode, source: Source, positions: Collection[int], keep: bool
) -> View:
    """Take the smallest number along axes: the opposite of the largest of the opposites."""
    view = walk.try_lay_out(source)
    opposite = walk.views.with_axes_of(view, walk.builder.negative(f"{node.name}:each", view.value))
    largest = reduce(walk, node, opposite, "max", positions, keep)
    return walk.views.with_axes_of(largest, walk.builder.negative(f"{node.name}:least", largest.value))


def _channel_parts(walk: Walk, node: OperatorNode, view: View, position: int) -> Sequence[View]:
    """Return the parts of the channels that an axis counts, as views without that axis; nothing if it counts
    something else, or too many.
    """
    count = walk.views.groups_at(view, position) if view.axes is not None else None
    channels = view.value.channels
    if count is None or channels is None or count in (1, channels) or count > MOST_PARTS:
        return ()
    counting = view.positions([position])
    size = channels // count
    axes = tuple(axis for other, axis in enumerate(view.axes or ()) if other not in counting)
    part_view = replace(view, axes=axes)
    parts = [SliceChannels(start, start + size) for start in range(0, channels, size)]
    return [
        walk.views.with_axes_of(part_view, walk.builder.add(f"{node.name}:part", op, view.value))
        for op in parts
    ]


SOFTMAX = Softmax()


def softmax(
    walk: Walk, node: OperatorNode, source: Source, *positions: int, op: Softmax | LogSoftmax = SOFTMAX
) -> View:
    """Add a softmax, or with that `op` its logarithm: over the channels, along other axes, of which several
    are joined, or over two parts of the channels, which is a sigmoid of what they differ by.
    """
    if not positions:
        raise Unsupported("over no axes")
    if len(positions) == 1:
        view = walk.try_lay_out(source)
        parts = _channel_parts(walk, node, view, *positions)
        if len(parts) == 2 and isinstance(op, Softmax):
            # a softmax of a and b is sigmoid(a - b) and sigmoid(b - a)
            difference = walk.builder.subtract(f"{node.name}:difference", *(part.value for part in parts))
            opposite = walk.builder.negative(f"{node.name}:opposite", difference)
            shares = [
                walk.builder.add(f"{node.name}:share", Sigmoid(), value) for value in (difference, opposite)
            ]
            return walk.views.with_axes_of(view, walk.builder.concat(node.name, *shares))
        if not parts and walk.views.has_channels(view, *positions):
            return walk.views.with_axes_of(view, walk.builder.add(node.name, op, view.value))
    view = walk.view(source)
    return _softmax_along(walk, node, view, sorted(view.positions(positions)), op)


def _softmax_along(walk: Walk, node: OperatorNode, view: View, positions: Sequence[int], op: Op) -> View:
    """Add a softmax along axes, which are moved to the end and joined for it, and then moved back."""
    if view.has_batch(positions[0]):
        raise Unsupported("over the batch")
    others = [position for position in range(len(view.known_sizes)) if position not in positions]
    order = [*others, *positions]
    sizes = [view.known_sizes[position] for position in order]
    joined = view.transposed(order)
    if len(positions) > 1:
        joined = joined.reshaped([*sizes[: len(others)], product(sizes[len(others) :])])
    array = walk.as_array(f"{node.name}:last", joined)
    shares = walk.views.as_rank_of(array, walk.builder.add(node.name, op, array.value))
    split = shares.reshaped(sizes) if len(positions) > 1 else shares
    return split.untransposed(order)

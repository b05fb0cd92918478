"""What an op graph computes along axes: means, sums and extremes, softmaxes, and what files say by several of
these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from porter.filegraph.dataflow import N, OperatorNode
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Open, product
from porter.filegraph.tensors.parts import MOST_PARTS
from porter.filegraph.walk import NodeWalk, Walk
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
    """Add the mean, sum, extreme or norm along axes, and return the view; the axes stay with one cell if
    `keep`. Over both rows and columns, a map that does not keep them becomes features.

    Raises:
        Unsupported: the batch is among the axes, or porter has no op for the function there.
    """
    if function == "sum":
        return _sum_along(walk, node, source, positions, keep)
    if function == "min":
        return _min_along(walk, node, source, positions, keep)
    view = walk.layouts.operand(source)
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
    """Reduce an array along axes, which stay with one cell, and return the view."""
    view = walk.view(source)
    order = view.batch_first
    axes = sorted(order.index(position) for position in view.positions(positions))
    return _reduce_along(walk, node, walk.layouts.array(source, order), function, axes).untransposed(order)


def _reduce_along(
    walk: NodeWalk[N], node: N, view: View, function: Function, positions: Sequence[int]
) -> View:
    """Reduce an array, whose first axis is the batch, along axes; they stay with one cell. All axes of an
    image are reduced as one, so that they give one feature.
    """
    if not positions or view.has_batch(positions[0]):
        raise Unsupported("over the batch")
    batch_sizes = [] if walk.views.lacks_batch else [(view.sizes or ())[0]]
    batch_axes = len(batch_sizes)  # 1, or 0 without a batch
    is_whole_image = len(positions) == view.rank - batch_axes
    if is_whole_image and (len(positions) > batch_axes or not view.value.is_array):
        joined = walk.layouts.as_array(f"{node.name}:whole", view.reshaped([*batch_sizes, 1, -1]))
        reduced = _reduce_along(walk, node, joined, function, [batch_axes + 1])
        features = reduced.without_axes([-1])  # N×1
        return features.with_axes(positions[1:])
    axes = [view.axis_at(position) for position in positions]
    value = walk.builder.reduce(node.name, view.value, function, axes)
    return walk.views.as_rank(value, view.rank - len(positions)).with_axes(positions)


def _sum_along(
    walk: Walk, node: OperatorNode, source: Source, positions: Collection[int], keep: bool
) -> View:
    """Sum along axes of known sizes, and return the view. An axis that counts parts of the channels, such as
    that of a stack, gives a sum of these parts; other axes give the mean times their number of cells.
    """
    parts = (
        _channel_parts(walk, node, walk.layouts.operand(source), *positions) if len(positions) == 1 else ()
    )
    if parts:
        sum_of_parts = walk.builder.add(node.name, Add(), *(part.value for part in parts))
        sums = walk.views.with_axes_of(parts[0], sum_of_parts)
        return sums.with_axes(positions) if keep else sums
    view = walk.view(source)
    count = product(view.size(position) for position in positions) if view.axes is not None else 0
    if isinstance(count, Open):
        raise Unsupported("over an axis of open size")
    mean = _reduce_array(walk, node, source, "mean", positions)
    scaled_mean = walk.builder.affine(node.name, mean.value, (float(count),), (0.0,))
    sums = walk.views.with_axes_of(mean, scaled_mean)
    return sums if keep else sums.without_axes(positions)


def _min_along(
    walk: Walk, node: OperatorNode, source: Source, positions: Collection[int], keep: bool
) -> View:
    """Add the smallest number along axes, as the negative of the largest of the negatives, and return the
    view.
    """
    view = walk.layouts.operand(source)
    opposite = walk.views.with_axes_of(view, walk.builder.negative(f"{node.name}:each", view.value))
    largest = reduce(walk, node, opposite, "max", positions, keep)
    return walk.views.with_axes_of(largest, walk.builder.negative(f"{node.name}:least", largest.value))


def _channel_parts(walk: Walk, node: OperatorNode, view: View, position: int) -> Sequence[View]:
    """Slice the channels of a value into the parts that an axis of its tensor counts, as a tensor
    N×2×8×H×W counts two parts of 16 channels at axis 1, and return them as views without that axis. Empty if
    the axis counts something else, or too many parts.
    """
    count = walk.views.groups_at(view, position) if view.axes is not None else None
    channels = view.value.channels
    if count is None or channels is None or count in (1, channels) or count > MOST_PARTS:
        return ()
    counting_axes = view.positions([position])
    axes = tuple(axis for index, axis in enumerate(view.axes or ()) if index not in counting_axes)
    part_view = replace(view, axes=axes)
    size = channels // count
    slices = [SliceChannels(start, start + size) for start in range(0, channels, size)]
    return [
        walk.views.with_axes_of(part_view, walk.builder.add(f"{node.name}:part", op, view.value))
        for op in slices
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
        view = walk.layouts.operand(source)
        parts = _channel_parts(walk, node, view, *positions)
        if len(parts) == 2 and isinstance(op, Softmax):
            # a softmax of a and b is sigmoid(a - b) and sigmoid(b - a)
            difference = walk.builder.subtract(f"{node.name}:difference", *(part.value for part in parts))
            opposite = walk.builder.negative(f"{node.name}:opposite", difference)
            probabilities = [
                walk.builder.add(f"{node.name}:share", Sigmoid(), value) for value in (difference, opposite)
            ]
            return walk.views.with_axes_of(view, walk.builder.concat(node.name, *probabilities))
        if not parts and walk.views.has_channels(view, *positions):
            return walk.views.with_axes_of(view, walk.builder.add(node.name, op, view.value))
    view = walk.view(source)
    return _softmax_along(walk, node, view, sorted(view.positions(positions)), op)


def _softmax_along(walk: Walk, node: OperatorNode, view: View, positions: Sequence[int], op: Op) -> View:
    """Add a softmax along axes, which are moved to the end and joined for it, and then moved back."""
    if view.has_batch(positions[0]):
        raise Unsupported("over the batch")
    other_positions = [position for position in range(len(view.known_sizes)) if position not in positions]
    order = [*other_positions, *positions]
    axes_last = view.transposed(order)
    other_sizes = [view.known_sizes[position] for position in other_positions]
    sizes = [view.known_sizes[position] for position in positions]
    joined = axes_last.reshaped([*other_sizes, product(sizes)]) if len(positions) > 1 else axes_last
    array = walk.layouts.as_array(f"{node.name}:last", joined)
    result = walk.views.as_rank_of(array, walk.builder.add(node.name, op, array.value))
    split = result.reshaped([*other_sizes, *sizes]) if len(positions) > 1 else result
    return split.untransposed(order)

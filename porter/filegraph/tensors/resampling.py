"""A map with other cells, which are computed from its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np

from porter.filegraph.builder import CELLS
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.file_graph import Unsupported, none_if_unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Open, Undecided, ratio, sizes_text
from porter.filegraph.layouts.views import AxisNames
from porter.filegraph.walk import Walk
from porter.graph import AdaptiveAvgPool, AdaptiveMaxPool, CropLike, Op, PadLike, Resize, ResizeLike, Upsample
from porter.graph.adaptive import common_size_and_step, windows
from porter.graph.ops import AXES, Axis, Function, Side
from porter.padding import LOWEST, Convention, Window

_SAME_SCALE = 1e-12
"""Scales that differ by less, relatively, are the same."""
_ASYMMETRIC = Resize("nearest", coordinates="asymmetric", rounding="floor")
"""The way in which torch, and ONNX's asymmetric resize, take the nearest cell."""


def adaptive_pool(
    walk: Walk, node: OperatorNode, value: Value, function: Function, counts: tuple[Dim, Dim]
) -> Value:
    """Add the mean or the largest value of so many windows of rows and of columns, which lie evenly over a
    map, and return its value. Where they do not divide the map they overlap, and may differ by a cell
    (start_index and end_index in torch's aten/src/ATen/native/AdaptivePooling.h): then an op of its own
    computes them.

    Raises:
        Unsupported: the input's size decides the number of windows.
    """
    sizes = _rows_and_columns(walk, value)
    # one window over all cells, or one for each
    if all(count in (1, size) for size, count in zip(sizes, counts, strict=True)):
        reduced_axes = [axis for axis, count in zip(CELLS, counts, strict=True) if count == 1]
        return walk.builder.reduce(node.name, value, function, reduced_axes) if reduced_axes else value
    rows, columns = counts
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported(f"to {sizes_text(counts)} of a map of any size: export the model for one size")
    down, across = (_even_grid(size, count) for size, count in zip(sizes, (rows, columns), strict=True))
    if down is None or across is None:
        adaptive = AdaptiveMaxPool if function == "max" else AdaptiveAvgPool
        return walk.builder.add(node.name, adaptive(rows, columns), value)
    (size_down, step_down), (size_across, step_across) = down, across
    window = Window((size_down, size_across), (step_down, step_across))
    convention = Convention("explicit", fill=LOWEST if function == "max" else 0.0)
    return walk.builder.pool(node.name, value, function, window, convention)


def _even_grid(size: Dim, count: int) -> tuple[int, int] | None:
    """Return the size and the step of `count` windows along an axis of `size` cells, if all have the same:
    (2, 2) of 4 windows along 8 cells. None for others, and if the size is open.
    """
    return None if isinstance(size, Open) or count > size else common_size_and_step(windows(size, count))


def resize(
    walk: Walk,
    node: OperatorNode,
    source: Source,
    op: Resize,
    scales: Mapping[int, float],
    sizes: Mapping[int, Dim],
) -> View:
    """Resize a map, by scales or to sizes of its axes, and return the view.

    Args:
        op: says how cells are computed; its own scale and size are not read.
        scales, sizes: by the positions of axes. A position has one of the two, and an axis without either
            keeps its size.
    """
    view, names = _map_of(walk, source)
    old_sizes = dict(zip(names, view.known_sizes, strict=True))
    new_sizes = {
        names[position]: size for position, size in sizes.items() if size != view.known_sizes[position]
    }
    new_scales = {names[position]: scale for position, scale in scales.items() if scale != 1}
    if other_axes := {*new_sizes, *new_scales} - {"rows", "columns"}:
        raise Unsupported(f"of {'channels' if 'channels' in other_axes else 'the batch'}")
    if not new_sizes and not new_scales:
        return view
    cell_axes = AXES[1:]  # rows and columns
    rows, columns = (
        _target(old_sizes[axis], new_sizes.get(axis), new_scales.get(axis, 1.0)) for axis in cell_axes
    )
    resize_op = _resize_op(op, rows, columns)
    if resize_op is not None:
        resized = walk.builder.add(node.name, resize_op, view.value)
    else:
        # the scale and the size depend on the input: the map gets the size of another map
        wanted_sizes = {axis: new_sizes.get(axis, old_sizes[axis]) for axis in cell_axes}
        like = _map_of_size(walk, wanted_sizes)
        resize_like = _resize_like_op(op, [(old_sizes[axis], size) for axis, size in wanted_sizes.items()])
        resized = walk.builder.add(node.name, resize_like, view.value, like)
    return walk.views.in_axis_order(resized, names)


def _map_of(walk: Walk, source: Source) -> tuple[View, AxisNames]:
    """Return the view of a value as a map, and the name of each of the view's axes.

    Raises:
        Unsupported: it is no map.
    """
    view = walk.layouts.operand(source)
    if view.value.is_array and view.rank == 4:
        view = walk.views.own_view(walk.layouts.in_file_layout(source))
    names = walk.views.axis_names(view)
    if names is None or not view.value.is_map:
        raise Unsupported("of something else than a map")
    return view, names


def _resize_op(op: Resize, rows: _Target, columns: _Target) -> Op | None:
    """Return the op of a resize: an Upsample where it repeats cells, otherwise a Resize by scales or to
    sizes. None if neither is known of both axes.
    """
    # whole scales repeat each cell, which an Upsample says at every size
    if op.mode == "nearest" and _repeats_cells(op, (rows.scale, columns.scale)):
        return Upsample(int(rows.scale or 1), int(columns.scale or 1))
    if rows.scale and columns.scale:
        return replace(op, scale=(rows.scale, columns.scale))
    return replace(op, size=(rows.size, columns.size)) if rows.size and columns.size else None


def _resize_like_op(op: Resize, changes: Iterable[tuple[Dim, Dim]]) -> ResizeLike:
    """Return a resize to the size of another map. `changes` are from one size to another, for each axis.

    Raises:
        Unsupported: it takes nearest cells, and which these are may depend on how float32 rounds places.
    """
    is_certain = op == _ASYMMETRIC and all(starmap(_rounds_alike, changes))
    if op.mode == "nearest" and not is_certain:
        raise Unsupported("(nearest) to the size of another value, which float32 may round otherwise")
    return ResizeLike(op.mode, op.coordinates, op.a, op.inside, op.rounding)


def match_cells(walk: Walk, node: OperatorNode, view: View, ends: Mapping[int, tuple[Dim, Dim]]) -> View:
    """Add cells of 0 before and after the rows and columns of a map, or cut cells off where `ends` are below
    0. The input's size decides how many, so the map gets as many cells as another map has.

    Raises:
        Undecided: it may decide whether there are more or less.
        Unsupported: no map has as many, or these are other axes.
    """
    names = walk.views.axis_names(view)
    is_map = names is not None and view.value.is_map
    if names is None or not is_map or not {names[position] for position in ends} <= {"rows", "columns"}:
        raise Unsupported("of something else than the cells of a map, by a size that depends on the input's")
    value = view.value
    sizes = dict(zip(names, view.known_sizes, strict=True))
    # an axis that gets more cells is padded, and one that gets fewer is cropped
    for op_class in (PadLike, CropLike):
        new_sizes = dict[Axis, Dim]()
        sides = dict[Axis, Side]()
        for position, (before, after) in ends.items():
            axis = names[position]
            added = before + after
            if axis != "batch" and _grows(added) == op_class.grows:
                # what stands before the map if both sides get a half, rounded towards 0
                half = added // 2 if op_class.grows else -(-added // 2)
                new_sizes[axis] = sizes[axis] + added
                sides[axis] = _side(before, after, half)
        if new_sizes:
            op = op_class(sides.get("rows", "none"), sides.get("columns", "none"))
            value = walk.builder.add(node.name, op, value, _map_of_size(walk, new_sizes))
    return walk.views.in_axis_order(value, names)


def _grows(added: Dim) -> bool:
    """Return whether cells are added, not cut off. Where there may be none, either is right. Raises Undecided
    if the input's size decides it.
    """
    with suppress(Undecided):
        return added >= 0
    return not added <= 0


def _side(before: Dim, after: Dim, half: Dim) -> Side:
    """Return the side of a map on which cells are added or cut off: its end, its start, or both, half on each
    side. Raises Undecided for other shares.

    Args:
        before, after: how many cells on each side.
        half: what an op puts before the map if it acts on both sides.
    """
    if before == 0:
        return "end"
    if after == 0:
        return "start"
    if before != half:
        raise Undecided
    return "both"


def _map_of_size(walk: Walk, wanted: Mapping[Axis, Dim]) -> Value:
    """Return a map among the values so far that has so many rows, columns or both: the last one.

    Raises:
        Unsupported: there is none.
    """
    layout = walk.views.layout()
    size_at = {layout.index(axis): size for axis, size in wanted.items()}
    for source, view in reversed(walk.view_of.items()):
        sizes = view.sizes or ()
        if len(sizes) == len(layout) and all(sizes[position] == size for position, size in size_at.items()):
            value = none_if_unsupported(partial(walk.layouts.in_file_layout, source))
            if value is not None and value.is_map:
                return value
    raise Unsupported("to a size that depends on the input's")


def _rounds_alike(old: Dim, new: Dim) -> bool:
    """Return whether torch takes the same nearest cells however it rounds their places: if the new size is
    1, 2, 4, ... or 32 times the old one, or one cell more or less than that. Then the place of each new cell
    is exact in float32, or farther from a whole number than float32 can miss it, up to 3226 cells.
    """
    for times in (1, 2, 4, 8, 16, 32):
        with suppress(Undecided):
            if new - old * times >= -1 and old * times - new >= -1:
                return True
    return False


def _rows_and_columns(walk: Walk, value: Value) -> tuple[Dim, ...]:
    """Return the rows and columns of a map."""
    sizes = dict(zip(walk.views.layout(), walk.views.own_view(value).sizes or (), strict=False))
    return tuple(sizes.get(axis, 0) for axis in AXES[1:])


class _Target(NamedTuple):
    """What an axis becomes: by a scale, at a size, or both where they say the same."""

    scale: float | None
    size: int | None


def _target(old: Dim, wanted: Dim | None, scale: float) -> _Target:
    """Return what a resize makes of an axis: a scale, a size, or both where they say the same.

    Args:
        old: cells of the axis before.
        wanted: cells after it; None if the resize is by `scale`.
    """
    if wanted is not None:
        times = ratio(wanted, old)
        return _Target(None if times is None else float(times), None if isinstance(wanted, Open) else wanted)
    if isinstance(old, Open):
        return _Target(scale, None)
    new = math.floor(old * scale)
    is_same_as_size = abs(new / old - scale) < scale * _SAME_SCALE
    if not is_same_as_size:
        return _Target(scale, None)
    is_float32 = float(np.float32(scale)) == scale  # no ONNX file has another scale, so the size says it
    return _Target(scale if is_float32 else None, new)


def _repeats_cells(op: Resize, scales: tuple[float | None, float | None]) -> bool:
    """Return whether a resize to nearest cells by these scales takes every cell equally often, one copy after
    the other, as an Upsample does.
    """
    if any(not scale or scale != int(scale) for scale in scales):
        return False
    if op.coordinates == "half_pixel":
        return op.rounding.startswith("round")  # no place is a half, so both ways to round one are right
    # up to a scale of 2, the place of a copy is at most half a cell behind its cell
    rounds_halves_down = op.rounding == "round_prefer_floor" and max(scale or 1 for scale in scales) <= 2
    return op.coordinates == "asymmetric" and (op.rounding == "floor" or rounds_halves_down)

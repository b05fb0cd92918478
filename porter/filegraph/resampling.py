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

from porter.filegraph.axes import View
from porter.filegraph.builder import CELLS, Value
from porter.filegraph.dataflow import OperatorNode
from porter.filegraph.dims import Dim, Open, Undecided, ratio, sizes_text
from porter.filegraph.file_graph import Unsupported, none_if_unsupported
from porter.filegraph.views import Names
from porter.filegraph.walk import Source, Walk
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
        reduced = [axis for axis, count in zip(CELLS, counts, strict=True) if count == 1]
        return walk.builder.reduce(node.name, value, function, reduced) if reduced else value
    rows, columns = counts
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported(f"to {sizes_text(counts)} of a map of any size: export the model for one size")
    down, across = (_even_grid(*each) for each in zip(sizes, (rows, columns), strict=True))
    if down is None or across is None:
        adaptive = AdaptiveMaxPool if function == "max" else AdaptiveAvgPool
        return walk.builder.add(node.name, adaptive(rows, columns), value)
    convention = Convention("explicit", fill=LOWEST if function == "max" else 0.0)
    window = Window((down[0], across[0]), (down[1], across[1]))
    return walk.builder.pool(node.name, value, function, window, convention)


def _even_grid(size: Dim, count: int) -> tuple[int, int] | None:
    """Return the size and the step of windows that are alike; None for others, and if the size is open."""
    return None if isinstance(size, Open) or count > size else common_size_and_step(windows(size, count))


def resize(
    walk: Walk,
    node: OperatorNode,
    source: Source,
    op: Resize,
    scales: Mapping[int, float],
    sizes: Mapping[int, Dim],
) -> View:
    """Resize a map, by scales or to sizes of its axes. `op` says how cells are computed, and has no scale or
    size itself.
    """
    view, names = _map_of(walk, source)
    old = dict(zip(names, view.known_sizes, strict=True))
    wanted = {names[position]: size for position, size in sizes.items() if size != view.known_sizes[position]}
    by = {names[position]: scale for position, scale in scales.items() if scale != 1}
    if other := {*wanted, *by} - {"rows", "columns"}:
        raise Unsupported(f"of {'channels' if 'channels' in other else 'the batch'}")
    if not wanted and not by:
        return view
    targets = [_target(old[axis], wanted.get(axis), by.get(axis, 1.0)) for axis in AXES[1:]]
    # if the scale and the size depend on the input, the size is that of another map
    resize_op = _resize_op(op, *targets)
    if resize_op is not None:
        resized = walk.builder.add(node.name, resize_op, view.value)
    else:
        new = {axis: wanted.get(axis, old[axis]) for axis in AXES[1:]}
        like = _map_of_size(walk, new)
        resize_like = _resize_like_op(op, [(old[axis], size) for axis, size in new.items()])
        resized = walk.builder.add(node.name, resize_like, view.value, like)
    return walk.views.in_axis_order(resized, names)


def _map_of(walk: Walk, source: Source) -> tuple[View, Names]:
    """Return the value as a map, and the name of each of its axes.

    Raises:
        Unsupported: it is no map.
    """
    view = walk.try_lay_out(source)
    if view.value.is_array and view.rank == 4:
        view = walk.views.own_view(walk.value(source))
    names = walk.views.axis_names(view)
    if names is None or not view.value.is_map:
        raise Unsupported("of something else than a map")
    return view, names


def _resize_op(op: Resize, rows: _Target, columns: _Target) -> Op | None:
    """Return a resize by scales or to sizes; None if neither is known of both axes."""
    # whole scales repeat each cell, which an Upsample says at every size
    if op.mode == "nearest" and _repeats_cells(op, (rows.scale, columns.scale)):
        return Upsample(int(rows.scale or 1), int(columns.scale or 1))
    if rows.scale and columns.scale:
        return replace(op, scale=(rows.scale, columns.scale))
    return replace(op, size=(rows.size, columns.size)) if rows.size and columns.size else None


def _resize_like_op(op: Resize, changes: Iterable[tuple[Dim, Dim]]) -> ResizeLike:
    """Return a resize to the size of another map. `changes` are from one size to another, for each axis."""
    decided = op == _ASYMMETRIC and all(starmap(_rounds_alike, changes))
    if op.mode == "nearest" and not decided:
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
    for kind in (PadLike, CropLike):
        wanted = dict[Axis, Dim]()
        sides = dict[Axis, Side]()
        for position, (before, after) in ends.items():
            axis = names[position]
            more = before + after
            if axis != "batch" and _grows(more) == kind.grows:
                # what stands before the map if both sides get a half
                half = more // 2 if kind.grows else -(-more // 2)  # rounded towards 0
                wanted[axis] = sizes[axis] + more
                sides[axis] = _side(before, after, half)
        if wanted:
            op = kind(sides.get("rows", "none"), sides.get("columns", "none"))
            value = walk.builder.add(node.name, op, value, _map_of_size(walk, wanted))
    return walk.views.in_axis_order(value, names)


def _grows(more: Dim) -> bool:
    """Return whether cells are added, not cut off. Where there may be none, either is right."""
    with suppress(Undecided):
        return more >= 0
    return not more <= 0


def _side(before: Dim, after: Dim, half: Dim) -> Side:
    """Return the side on which cells are added, by how many are before and behind, and half of all."""
    if before == 0:
        return "end"
    if after == 0:
        return "start"
    if before != half:
        raise Undecided
    return "both"


def _map_of_size(walk: Walk, wanted: Mapping[Axis, Dim]) -> Value:
    """Return the last map that has so many rows, columns or both.

    Raises:
        Unsupported: there is none.
    """
    layout = walk.views.layout()
    positions = {layout.index(axis): size for axis, size in wanted.items()}
    for source, view in reversed(walk.view_of.items()):
        sizes = view.sizes or ()
        if len(sizes) == len(layout) and all(sizes[position] == size for position, size in positions.items()):
            value = none_if_unsupported(partial(walk.value, source))
            if value is not None and value.is_map:
                return value
    raise Unsupported("to a size that depends on the input's")


def _rounds_alike(old: Dim, new: Dim) -> bool:
    """Return whether torch takes the same nearest cells however it computes the places: a cell more or less
    than one or several times as many is a multiple of none of them, and up to 3226 cells too far from one for
    float32.
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
    if wanted is None:
        new = None if isinstance(old, Open) else math.floor(old * scale)
        says_size = (
            not isinstance(old, Open) and new is not None and abs(new / old - scale) < scale * _SAME_SCALE
        )
        if not says_size:
            return _Target(scale, None)
        # A scale that is no float32 is one in no ONNX file, so that the size says it.
        return _Target(scale if float(np.float32(scale)) == scale else None, new)
    times = ratio(wanted, old)
    return _Target(None if times is None else float(times), None if isinstance(wanted, Open) else wanted)


def _repeats_cells(op: Resize, scales: tuple[float | None, float | None]) -> bool:
    """Return whether the nearest cells are every cell equally often. A half is never reached, because a half
    pixel of a whole factor is none.
    """
    if any(not scale or scale != int(scale) for scale in scales):
        return False
    if op.coordinates == "half_pixel":
        return op.rounding.startswith("round")
    rounds_down = op.rounding == "floor" or (
        op.rounding == "round_prefer_floor" and max(scale or 1 for scale in scales) <= 2
    )
    return op.coordinates == "asymmetric" and rounds_down

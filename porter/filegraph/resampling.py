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
from porter.graph.adaptive import alike, windows
from porter.graph.ops import AXES, Axis, Function, Side
from porter.padding import LOWEST, Convention, Window

_SAME_SCALE = 1e-12
_ASYMMETRIC = Resize("nearest", coordinates="asymmetric", rounding="floor")
"""The way in which torch, and ONNX's asymmetric resize, take the nearest cell."""


def adaptive_pool(
    walk: Walk, node: OperatorNode, value: Value, function: Function, counts: tuple[Dim, Dim]
) -> Value:
    """The mean or the largest value of so many windows of rows and of columns, which lie evenly over a map.
    Where they do not divide it they overlap, and may differ by a cell (start_index and end_index in torch's
    aten/src/ATen/native/AdaptivePooling.h).
    """
    own = _rows_and_columns(walk, value)
    if all(count in (1, size) for size, count in zip(own, counts, strict=True)):
        over = [axis for axis, count in zip(CELLS, counts, strict=True) if count == 1]
        return walk.builder.reduce(node.name, value, function, over) if over else value
    rows, columns = counts
    if isinstance(rows, Open) or isinstance(columns, Open):
        raise Unsupported(f"to {sizes_text(counts)} of a map of any size: export the model for one size")
    down, across = (_steps(*each) for each in zip(own, (rows, columns), strict=True))
    if down is None or across is None:
        return walk.builder.add(
            node.name, (AdaptiveMaxPool if function == "max" else AdaptiveAvgPool)(rows, columns), value
        )
    convention = Convention("explicit", fill=LOWEST if function == "max" else 0.0)
    return walk.builder.pool(
        node.name, value, function, Window((down[0], across[0]), (down[1], across[1])), convention
    )


def _steps(size: Dim, count: int) -> tuple[int, int] | None:
    """The size and the step of windows that are alike; None for others, and where the size is open."""
    return None if isinstance(size, Open) or count > size else alike(windows(size, count))


def resize(
    walk: Walk,
    node: OperatorNode,
    source: Source,
    op: Resize,
    scales: Mapping[int, float],
    sizes: Mapping[int, Dim],
) -> View:
    """A map with other cells, by scales or at sizes of its axes. `op` says how they are computed, and has
    none of these.
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
    if (of_known_size := _resize_op(op, *targets)) is not None:
        resized = walk.builder.add(node.name, of_known_size, view.value)
    else:
        given = {axis: wanted.get(axis, old[axis]) for axis in AXES[1:]}
        like = _map_of_size(walk, given)
        how = _resize_like_op(op, [(old[axis], size) for axis, size in given.items()])
        resized = walk.builder.add(node.name, how, view.value, like)
    return walk.views.in_axis_order(resized, names)


def _map_of(walk: Walk, source: Source) -> tuple[View, Names]:
    """The value, and what each of its axes is.

    Raises:
        Unsupported: it is no map.
    """
    view = walk.try_lay_out(source)
    if view.value.is_array and view.rank == 4:
        view = walk.views.of(walk.value(source))
    names = walk.views.axis_names(view)
    if names is None or not view.value.is_map:
        raise Unsupported("of something else than a map")
    return view, names


def _resize_op(op: Resize, rows: _Target, columns: _Target) -> Op | None:
    """A resize by scales or at sizes; None where neither is known of both axes."""
    if op.mode == "nearest" and _repeats(op, (rows.scale, columns.scale)):
        return Upsample(int(rows.scale or 1), int(columns.scale or 1))
    if rows.scale and columns.scale:
        return replace(op, scale=(rows.scale, columns.scale))
    return replace(op, size=(rows.size, columns.size)) if rows.size and columns.size else None


def _resize_like_op(op: Resize, changes: Iterable[tuple[Dim, Dim]]) -> ResizeLike:
    """A resize to the size of another map, whose changes of each axis are from one size to another."""
    decided = op == _ASYMMETRIC and all(starmap(_rounds_alike, changes))
    if op.mode == "nearest" and not decided:
        raise Unsupported("(nearest) to the size of another value, which float32 may round otherwise")
    return ResizeLike(op.mode, op.coordinates, op.a, op.inside, op.rounding)


def match_cells(walk: Walk, node: OperatorNode, view: View, ends: Mapping[int, tuple[Dim, Dim]]) -> View:
    """A map with so many cells of 0 more before and after its rows and columns, or so many less where they
    are below 0, of which the input's size decides how many: as many as another map has.

    Raises:
        Undecided: it may decide whether there are more or less.
        Unsupported: no map has as many, or these are other axes.
    """
    names = walk.views.axis_names(view)
    if (
        names is None
        or not view.value.is_map
        or not {names[position] for position in ends} <= {"rows", "columns"}
    ):
        raise Unsupported("of something else than the cells of a map, by a size that depends on the input's")
    value = view.value
    sizes = dict(zip(names, view.known_sizes, strict=True))
    for kind in (PadLike, CropLike):
        wanted, sides = dict[Axis, Dim](), dict[Axis, Side]()
        for position, (before, after) in ends.items():
            axis = names[position]
            more = before + after
            if axis != "batch" and _grows(more) == kind.grows:
                half = more // 2 if kind.grows else -(-more // 2)
                wanted[axis] = sizes[axis] + more
                sides[axis] = _side(before, after, half)
        if wanted:
            op = kind(sides.get("rows", "none"), sides.get("columns", "none"))
            value = walk.builder.add(node.name, op, value, _map_of_size(walk, wanted))
    return walk.views.in_axis_order(value, names)


def _grows(more: Dim) -> bool:
    """Whether there are more cells, not less. Where there may be none, either is right."""
    with suppress(Undecided):
        return more >= 0
    return not more <= 0


def _side(before: Dim, after: Dim, half: Dim) -> Side:
    """The side on which cells are added, by how many are before, behind and half of all."""
    if before == 0:
        return "end"
    if after == 0:
        return "start"
    if before != half:
        raise Undecided
    return "both"


def _map_of_size(walk: Walk, wanted: Mapping[Axis, Dim]) -> Value:
    """The last map that has so many rows, columns or both.

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
    """Whether torch takes the same nearest cells however it computes the places: a cell more or less than one
    or several times as many is a multiple of none of them, and up to 3226 cells too far from one for float32.
    """
    for times in (1, 2, 4, 8, 16, 32):
        with suppress(Undecided):
            if new - old * times >= -1 and old * times - new >= -1:
                return True
    return False


def _rows_and_columns(walk: Walk, value: Value) -> tuple[Dim, ...]:
    """The rows and columns of a map."""
    sizes = dict(zip(walk.views.layout(), walk.views.of(value).sizes or (), strict=False))
    return tuple(sizes.get(axis, 0) for axis in AXES[1:])


class _Target(NamedTuple):
    """What an axis becomes: by a scale, at a size, or both where they say the same."""

    scale: float | None
    size: int | None


def _target(old: Dim, wanted: Dim | None, scale: float) -> _Target:
    """The target of a resize along an axis: a scale, a size, or both where they say the same."""
    if wanted is None:
        new = None if isinstance(old, Open) else math.floor(old * scale)
        # A scale that is no float32 is one in no ONNX file; at a known size it may say the same as that.
        same = not isinstance(old, Open) and new is not None and abs(new / old - scale) < scale * _SAME_SCALE
        return _Target(
            scale if not same or float(np.float32(scale)) == scale else None, new if same else None
        )
    times = ratio(wanted, old)
    return _Target(None if times is None else float(times), None if isinstance(wanted, Open) else wanted)


def _repeats(op: Resize, scales: tuple[float | None, float | None]) -> bool:
    """Whether the nearest cells are every cell equally often. A half is never reached, because a half pixel
    of a whole factor is none.
    """
    if any(not scale or scale != int(scale) for scale in scales):
        return False
    if op.coordinates == "half_pixel":
        return op.rounding.startswith("round")
    down = op.rounding == "floor" or (
        op.rounding == "round_prefer_floor" and max(scale or 1 for scale in scales) <= 2
    )
    return op.coordinates == "asymmetric" and down

"""What an op graph does with the axes of its tensors, in files of both layouts: which ops it becomes, and what porter lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from porter.filegraph import moves, reductions, resampling
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Arrays, Dataflow, Reference
from porter.filegraph.file_graph import FileGraph, Foreign
from porter.filegraph.walk import Lacks, Walk, apply
from porter.graph import (
    Add,
    AsMap,
    ChannelShuffle,
    ConcatChannels,
    CropMap,
    DepthToSpace,
    Flatten,
    GlobalAvgPool,
    GlobalMaxPool,
    Identity,
    MaxPool,
    Op,
    PadChannels,
    PadMap,
    Rearrange,
    ReduceMap,
    Relu,
    Resize,
    SliceChannels,
    Softmax,
    Upsample,
)
from porter.graph.ops import Order
from porter.padding import LOWEST, Convention, Window

Step = tuple[Callable[..., Any], *tuple[Any, ...]]
IMAGE: Reference = ("image", 0)
HALF = MaxPool(Window((1, 1), (2, 1)), Convention(fill=LOWEST))


class Node(NamedTuple):
    name: str
    op: str
    inputs: tuple[Reference, ...] = ()


NEAREST, LINEAR = Resize("nearest", rounding="round_prefer_ceil"), Resize("linear")


def moved(steps: Sequence[Step], order: Order, size: tuple[int | None, int | None] = (8, 6)) -> FileGraph:
    """The graph of steps one after the other, over an image of four channels; after a split with all parts."""
    builder = Builder(4, size, order)
    names = [f"step{place}" for place in range(len(steps))]
    flow: Dataflow[Node] = Dataflow({}, {IMAGE[0], *names}, Arrays({}), lambda node: node.op)
    walk: Walk[Node] = Walk(builder, flow)
    walk.found[IMAGE] = walk.views.of(builder.input)
    sources = [IMAGE]
    for name, (function, *arguments) in zip(names, steps, strict=True):
        node = Node(name, function.__name__)
        found = function(walk, node, sources if function is moves.concat else sources[0], *arguments)
        if isinstance(found, Lacks):
            found = walk.foreign(node, found.what or node.op)
        given = found if isinstance(found, list) else [found]
        walk.give(node, given)
        sources = [(name, place) for place in range(len(given))]
    return builder.finish(walk.values(sources))


CASES: dict[str, tuple[list[Step], list[Step], list[Op | Foreign]]] = {
    "flatten": ([(moves.flatten, 1)], [(moves.flatten, 1)], [Flatten(8, 6, "HWC")]),
    "a cell": (
        [(reductions.reduce, "max", (1, 2), True), (moves.squeeze,)],
        [(reductions.reduce, "max", (2, -1), True), (moves.squeeze, (2, 3))],
        [GlobalMaxPool(True), Flatten()],
    ),
    "a map of a cell": (
        [(reductions.reduce, "mean", (1, 2), False), (moves.unsqueeze, (1, 1 - 3))],
        [(reductions.reduce, "mean", (2, 3), False), (moves.unsqueeze, (-1, -2))],
        [GlobalAvgPool(), AsMap()],
    ),
    "axes that go and come one by one": (
        [(moves.reshape, (-1, 48, 4)), (moves.reshape, (-1, 8, 1, 6, 4)), (moves.squeeze,)],
        [(moves.reshape, (-1, 4, 48)), (moves.reshape, (-1, 4, 8, 1, 6)), (moves.squeeze,)],
        [Identity()],
    ),
    "a list of cells": (
        [(moves.reshape, (-1, 48, 4))],
        [(moves.reshape, (-1, 4, 48)), (moves.transpose, (0, 2, 1))],
        [Rearrange("c h w -> (h w) c")],
    ),
    "a list of cells, each with its own softmax": (
        [(moves.reshape, (-1, 48, 4)), (reductions.softmax, 2), (moves.reshape, (-1, 8, 6, 4))],
        [(moves.flatten, 2), (reductions.softmax, 1), (moves.reshape, (-1, 4, 8, 6))],
        [Softmax()],
    ),
    "a reshape that does not fit": (
        [(moves.reshape, (-1, 7, 5))],
        [(moves.reshape, (-1, 7, 5))],
        [Foreign("a reshape of 8x6x4 to 7x5")],
    ),
    "channels shuffled": (
        [(moves.reshape, (-1, 8, 6, 2, 2)), (moves.transpose, (0, 1, 2, 4, 3)), (moves.flatten, 3)],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (moves.transpose, (0, 2, 1, 3, 4)), (moves.flatten, 1, 2)],
        [ChannelShuffle(2)],
    ),
    "cells from channels": (
        [(moves.reshape, (-1, 8, 6, 2, 2, 1)), (moves.transpose, (0, 1, 3, 2, 4, 5)), (moves.reshape, (-1, 16, 12, 1))],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (moves.transpose, (0, 3, 1, 4, 2)), (moves.reshape, (-1, 1, 16, 12))],
        [DepthToSpace(2)],
    ),
    "mean over channels, which come back": (
        [(reductions.reduce, "mean", (-1,), False), (moves.unsqueeze, (3,))],
        [(reductions.reduce, "mean", (1,), False), (moves.unsqueeze, (1,))],
        [ReduceMap("mean", "channels")],
    ),
    "parts in another order of axes": (
        [
            *((moves.transpose, (0, 3, 1, 2)), (moves.pad, {1: (1, 0)}), (moves.split, 1, (1, -1)), (moves.concat, 1)),
            (reductions.reduce, "mean", (2, 3), False),
        ],
        [
            *((moves.transpose, (0, 2, 3, 1)), (moves.pad, {3: (1, 0)}), (moves.split, 3, (1, -1)), (moves.concat, 3)),
            (reductions.reduce, "mean", (1, 2), False),
        ],
        [PadChannels(1, 0), SliceChannels(0, 1), SliceChannels(1, 5), ConcatChannels(), GlobalAvgPool()],
    ),
    "an index": (
        [(moves.take, (slice(None), slice(1, None, 2), None, slice(None), 2)), (moves.squeeze, (2,)), (moves.unsqueeze, (-1,))],
        [(moves.take, (slice(None), 2, None, slice(1, None, 2))), (moves.squeeze, (1,)), (moves.unsqueeze, (1,))],
        [SliceChannels(2, 3), CropMap((1, 0, 0, 0)), HALF],
    ),
    "a sum of parts of the channels": (
        [(moves.reshape, (-1, 8, 6, 2, 2)), (reductions.total, (3,), True), (moves.squeeze, (3,))],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (reductions.total, (1,), True), (moves.squeeze, (1,))],
        [SliceChannels(0, 2), SliceChannels(2, 4), Add()],
    ),
    "a part of the batch": ([(moves.cut, {0: 1})], [(moves.cut, {0: slice(1, None)})], [Foreign("cut of the batch")]),
    "pads of maps and channels": (
        [(moves.pad, {1: (1, 2), 3: (0, 3)})],
        [(moves.pad, {2: (1, 2), 1: (0, 3)})],
        [PadMap((1, 2, 0, 0)), PadChannels(0, 3)],
    ),
    "pads of a turned map": (
        [(moves.transpose, (0, 2, 1, 3)), (moves.pad, {1: (1, 2)}, 0.5), (moves.transpose, (0, 2, 1, 3))],
        [(moves.transpose, (0, 1, 3, 2)), (moves.pad, {2: (1, 2)}, 0.5), (moves.transpose, (0, 1, 3, 2))],
        [PadMap((0, 0, 1, 2), 0.5)],
    ),
    "cells repeated": (
        [(resampling.resize, NEAREST, {1: 2, 2: 3}, {}), (apply, Relu())],
        [(moves.reshape, (-1, 4, 8, 1, 6, 1)), (moves.expand, (2, -1, 3)), (moves.reshape, (-1, 4, 16, 18)), (apply, Relu())],
        [Upsample(2, 3), Relu()],
    ),
    "to twice the cells": (
        [(resampling.resize, NEAREST, {}, {1: 16, 2: 12, 3: 4}), (resampling.resize, LINEAR, {}, {1: 32, 2: 12})],
        [(resampling.resize, NEAREST, {}, {2: 16, 3: 12}), (resampling.resize, LINEAR, {}, {2: 32, 3: 12})],
        [Upsample(2, 2), Resize("linear", (2.0, 1.0))],
    ),
    "to other cells": (
        [(resampling.resize, LINEAR, {}, {1: 11, 2: 3}), (resampling.resize, LINEAR, {1: 0.3, 2: 1.0}, {}), (apply, Relu())],
        [(resampling.resize, LINEAR, {}, {2: 11, 3: 3}), (resampling.resize, LINEAR, {2: 0.3, 3: 1.0}, {}), (apply, Relu())],
        [Resize("linear", size=(11, 3)), Resize("linear", (0.3, 1.0)), Relu()],
    ),
    "channels resized": (
        [(resampling.resize, NEAREST, {3: 2}, {})], [(resampling.resize, NEAREST, {1: 2}, {})], [Foreign("resize of channels")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_moves_become_in_both_layouts(name: str) -> None:
    last, first, ops = CASES[name]
    assert [node.op for node in moved(last, "HWC").nodes] == ops
    wanted = [Foreign(op.kind.replace("8x6x4", "4x8x6")) if isinstance(op, Foreign) else op for op in ops]
    assert [node.op for node in moved(first, "CHW").nodes] == [
        Flatten(8, 6, "CHW") if op == Flatten(8, 6, "HWC") else op for op in wanted
    ]


def test_a_squeeze_of_rows_and_columns_states_that_an_open_map_has_one_cell() -> None:
    (node,) = moved([(moves.squeeze, (1, 2))], "HWC", (None, None)).nodes
    assert node.op == Flatten()


def test_slices_of_open_maps_count_from_their_ends() -> None:
    (node,) = moved([(moves.cut, {1: slice(1, -2)})], "HWC", (None, None)).nodes
    assert node.op == CropMap((1, 2, 0, 0))
    (node,) = moved([(moves.cut, {1: slice(0, 3)})], "HWC", (None, None)).nodes
    assert isinstance(node.op, Foreign)

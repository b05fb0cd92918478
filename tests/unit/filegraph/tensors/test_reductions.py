"""What an op graph computes along axes, in files of both layouts: which ops it becomes."""

from __future__ import annotations

import pytest

from porter.filegraph.file_graph import Foreign
from porter.filegraph.tensors import moves, reductions
from porter.graph import (
    Add,
    Affine,
    AsMap,
    Flatten,
    GlobalAvgPool,
    GlobalMaxPool,
    Rearrange,
    ReduceAxis,
    ReduceMap,
    SliceChannels,
    Softmax,
)
from tests.support.filegraph.steps import Cases, expect_in_both_layouts

CASES: Cases = {
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
    "a list of cells, each with its own softmax": (
        [(moves.reshape, (-1, 48, 4)), (reductions.softmax, 2), (moves.reshape, (-1, 8, 6, 4))],
        [(moves.flatten, 2), (reductions.softmax, 1), (moves.reshape, (-1, 4, 8, 6))],
        [Softmax()],
    ),
    "mean over channels, which come back": (
        [(reductions.reduce, "mean", (-1,), False), (moves.unsqueeze, (3,))],
        [(reductions.reduce, "mean", (1,), False), (moves.unsqueeze, (1,))],
        [ReduceMap("mean", "channels")],
    ),
    "a sum of parts of the channels": (
        [(moves.reshape, (-1, 8, 6, 2, 2)), (reductions.reduce, "sum", (3,), True), (moves.squeeze, (3,))],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (reductions.reduce, "sum", (1,), True), (moves.squeeze, (1,))],
        [SliceChannels(0, 2), SliceChannels(2, 4), Add()],
    ),
    "a list of cells, its sum and its least": (
        [
            (moves.reshape, (-1, 48, 4)), (reductions.reduce, "sum", (1,), True),
                (reductions.reduce, "min", (2,), False),
        ],
        [
            (moves.flatten, 2), (moves.transpose, (2, 0, 1)), (reductions.reduce, "sum", (0,), False),
            (moves.unsqueeze, (1,)), (reductions.reduce, "min", (-1,), False),
        ],
        [
            Rearrange("c h w -> (h w) c"), ReduceAxis("mean", 0), Affine((48.0,), (0.0,)),
                Affine((-1.0,), (0.0,)),
            Rearrange("c -> () c"), ReduceAxis("max", 1), Affine((-1.0,), (0.0,)),
        ],
    ),
    "a softmax along several axes": (
        [(reductions.softmax, 1, 2)],
        [(reductions.softmax, 2, 3)],
        [Rearrange("c (h=8) (w=6) -> c (h w)"), Softmax(), Rearrange("(a=4) (b0 b1=6) -> a b0 b1", True)],
    ),
    "a softmax along no axis": ([(reductions.softmax,)], [(reductions.softmax,)],
        [Foreign("softmax over no axes")]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_reductions_become_in_both_layouts(name: str) -> None:
    expect_in_both_layouts(*CASES[name])

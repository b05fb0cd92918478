"""What an op graph does with the axes of its tensors, in files of both layouts: which ops it becomes, and
what porter lacks.
"""

from __future__ import annotations

from typing import Any

import pytest

from porter.filegraph.file_graph import Foreign
from porter.filegraph.tensors import joins, moves, parts, reductions
from porter.graph import (
    ChannelShuffle,
    ConcatChannels,
    CropAxis,
    CropMap,
    DepthToSpace,
    Flatten,
    GlobalAvgPool,
    Identity,
    Join,
    MaxPool,
    PadAxis,
    PadChannels,
    PadMap,
    Rearrange,
    SliceChannels,
)
from porter.padding import LOWEST, Convention, Window
from tests.support.filegraph.steps import Cases, expect_in_both_layouts, moved, split

HALF = MaxPool(Window((1, 1), (2, 1)), Convention(fill=LOWEST))

CASES: Cases = {
    "flatten": ([(moves.flatten, 1)], [(moves.flatten, 1)], [Flatten(8, 6, "HWC")]),
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
    "a reshape that does not fit": (
        [(moves.reshape, (-1, 7, 5))],
        [(moves.reshape, (-1, 7, 5))],
        [Foreign("reshape from 8x6x4 to 7x5")],
    ),
    "channels shuffled": (
        [(moves.reshape, (-1, 8, 6, 2, 2)), (moves.transpose, (0, 1, 2, 4, 3)), (moves.flatten, 3)],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (moves.transpose, (0, 2, 1, 3, 4)), (moves.flatten, 1, 2)],
        [ChannelShuffle(2)],
    ),
    "cells from channels": (
        [(moves.reshape, (-1, 8, 6, 2, 2, 1)), (moves.transpose, (0, 1, 3, 2, 4, 5)),
            (moves.reshape, (-1, 16, 12, 1))],
        [(moves.reshape, (-1, 2, 2, 8, 6)), (moves.transpose, (0, 3, 1, 4, 2)),
            (moves.reshape, (-1, 1, 16, 12))],
        [DepthToSpace(2)],
    ),
    "parts in another order of axes": (
        [
            (moves.transpose, (0, 3, 1, 2)), (parts.pad, {1: (1, 0)}), (split, 1, (1, -1)),
                (joins.concat, 1),
            (reductions.reduce, "mean", (2, 3), False),
        ],
        [
            (moves.transpose, (0, 2, 3, 1)), (parts.pad, {3: (1, 0)}), (split, 3, (1, -1)),
                (joins.concat, 3),
            (reductions.reduce, "mean", (1, 2), False),
        ],
        [PadChannels(1, 0), SliceChannels(0, 1), SliceChannels(1, 5), ConcatChannels(), GlobalAvgPool()],
    ),
    "an index": (
        [(parts.take, (slice(None), slice(1, None, 2), None, slice(None), 2)), (moves.squeeze, (2,)),
            (moves.unsqueeze, (-1,))],
        [(parts.take, (slice(None), 2, None, slice(1, None, 2))), (moves.squeeze, (1,)),
            (moves.unsqueeze, (1,))],
        [SliceChannels(2, 3), CropMap((1, 0, 0, 0)), HALF],
    ),
    "a part of the batch": ([(parts.cut, {0: 1})], [(parts.cut, {0: slice(1, None)})],
        [Foreign("cut of the batch")]),
    "pads of maps and channels": (
        [(parts.pad, {1: (1, 2), 3: (0, 3)})],
        [(parts.pad, {2: (1, 2), 1: (0, 3)})],
        [PadMap((1, 2, 0, 0)), PadChannels(0, 3)],
    ),
    "parts and pads of a list of cells, whose batch may be another axis": (
        [
            (moves.reshape, (-1, 48, 4)), (parts.cut, {1: slice(1, None, 2), 2: 3}),
                (moves.unsqueeze, (2,)),
            (moves.transpose, (1, 0, 2)), (parts.pad, {0: (2, -1)}), (moves.transpose, (1, 0, 2)),
        ],
        [
            (moves.flatten, 2), (moves.transpose, (0, 2, 1)),
                (parts.cut, {-2: slice(1, None, 2), -1: slice(3, 4)}),
            (moves.transpose, (1, 0, 2)), (parts.pad, {-3: (2, -1)}), (moves.transpose, (1, 0, 2)),
        ],
        [Rearrange("c h w -> (h w) c"), CropAxis(0, 1, 0, 2), CropAxis(1, 3, 0), CropAxis(0, 0, 1),
            PadAxis(0, 2, 0)],
    ),
    "parts of an array, one after the other": (
        [(moves.reshape, (-1, 48, 4)), (split, 1, (40, -1)), (joins.concat, 1),
            (joins.gather, 1, (1, 0))],
        [
            (moves.flatten, 2), (moves.transpose, (0, 2, 1)), (split, 1, (40, 8)),
                (joins.concat, -2),
            (joins.gather, -2, (1, 0)),
        ],
        [
            Rearrange("c h w -> (h w) c"), CropAxis(0, 0, 8), CropAxis(0, 40, 0), Join(0),
            CropAxis(0, 1, 46), CropAxis(0, 0, 47), Join(0),
        ],
    ),
    "all numbers of all images, turned round": (
        [(moves.flatten, 0), (parts.flip, (0,))],
        [(moves.flatten, 0), (parts.flip, (-1,))],
        [Foreign("flip of the batch")],
    ),
    "rows turned round": (
        [(moves.transpose, (0, 2, 1, 3)), (parts.flip, (2,)), (moves.reshape, (-1, 192))],
        [(moves.transpose, (0, 3, 2, 1)), (parts.flip, (2,)), (moves.reshape, (-1, 192))],
        [
            Rearrange("c (h=8) w -> w c h"),
            Rearrange("a b c -> c (a b) ()", True),
            SliceChannels(7, -1, -1),
            Rearrange("c (h0=6 h1=4) () -> (h0 c h1)"),
        ],
    ),
    "pads of a turned map": (
        [(moves.transpose, (0, 2, 1, 3)), (parts.pad, {1: (1, 2)}, 0.5), (moves.transpose, (0, 2, 1, 3))],
        [(moves.transpose, (0, 1, 3, 2)), (parts.pad, {2: (1, 2)}, 0.5), (moves.transpose, (0, 1, 3, 2))],
        [PadMap((0, 0, 1, 2), 0.5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_moves_become_in_both_layouts(name: str) -> None:
    expect_in_both_layouts(*CASES[name])


def test_a_squeeze_of_rows_and_columns_states_that_an_open_map_has_one_cell() -> None:
    (node,) = moved([(moves.squeeze, (1, 2))], "HWC", (None, None)).nodes
    assert node.op == Flatten()


def test_slices_of_open_maps_count_from_their_ends() -> None:
    (node,) = moved([(parts.cut, {1: slice(1, -2)})], "HWC", (None, None)).nodes
    assert node.op == CropMap((1, 2, 0, 0))
    (node,) = moved([(parts.cut, {1: slice(0, 3)})], "HWC", (None, None)).nodes
    assert isinstance(node.op, Foreign)


@pytest.mark.parametrize(
    ("move", "stated"), [(parts.cut, slice(1, None)), (parts.pad, (1, 0))], ids=["cut", "pad"]
)
def test_an_axis_that_is_stated_twice_is_refused(move: Any, stated: Any) -> None:
    with pytest.raises(ValueError, match="stated twice"):
        moved([(move, {1: stated, -3: stated})], "HWC")

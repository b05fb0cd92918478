"""Maps with other cells, in files of both layouts: which ops they become."""

from __future__ import annotations

import pytest

from porter.filegraph.file_graph import Foreign
from porter.filegraph.tensors import moves, resampling
from porter.filegraph.walk import apply_elementwise
from porter.graph import (
    Relu,
    Resize,
    Upsample,
)
from tests.support.filegraph.steps import Cases, expect_in_both_layouts

NEAREST, LINEAR = Resize("nearest", rounding="round_prefer_ceil"), Resize("linear")

CASES: Cases = {
    "cells repeated": (
        [(resampling.resize, NEAREST, {1: 2, 2: 3}, {}), (apply_elementwise, Relu())],
        [(moves.reshape, (-1, 4, 8, 1, 6, 1)), (moves.expand, (2, -1, 3)), (moves.reshape, (-1, 4, 16, 18)),
            (apply_elementwise, Relu())],
        [Upsample(2, 3), Relu()],
    ),
    "to twice the cells": (
        [(resampling.resize, NEAREST, {}, {1: 16, 2: 12, 3: 4}),
            (resampling.resize, LINEAR, {}, {1: 32, 2: 12})],
        [(resampling.resize, NEAREST, {}, {2: 16, 3: 12}), (resampling.resize, LINEAR, {}, {2: 32, 3: 12})],
        [Upsample(2, 2), Resize("linear", (2.0, 1.0))],
    ),
    "to other cells": (
        [(resampling.resize, LINEAR, {}, {1: 11, 2: 3}), (resampling.resize, LINEAR, {1: 0.3, 2: 1.0}, {}),
            (apply_elementwise, Relu())],
        [(resampling.resize, LINEAR, {}, {2: 11, 3: 3}), (resampling.resize, LINEAR, {2: 0.3, 3: 1.0}, {}),
            (apply_elementwise, Relu())],
        [Resize("linear", size=(11, 3)), Resize("linear", (0.3, 1.0)), Relu()],
    ),
    "channels resized": (
        [(resampling.resize, NEAREST, {3: 2}, {})], [(resampling.resize, NEAREST, {1: 2}, {})],
            [Foreign("resize of channels")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_resizes_become_in_both_layouts(name: str) -> None:
    expect_in_both_layouts(*CASES[name])

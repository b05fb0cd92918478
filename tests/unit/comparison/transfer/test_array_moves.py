"""Steps of numpy that make one array of another, found from the places of the cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from porter.comparison.transfer.array_moves import counted, move_of, move_text, moved

MOVES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], str]] = {
    "the same": ((4, 3, 3, 3), lambda x: x, "x"),
    "a kernel": ((4, 3, 3, 3), lambda x: x.transpose(2, 3, 1, 0), "x.transpose(2, 3, 1, 0)"),
    "a wide depthwise kernel": ((480, 1, 5, 5), lambda x: x.transpose(2, 3, 0, 1), "x.transpose(2, 3, 0, 1)"),
    "a kernel of one cell": ((4, 3, 1, 1), lambda x: x.transpose(2, 3, 1, 0), "x.transpose(2, 3, 1, 0)"),
    "a dense kernel": ((4, 3), lambda x: x.T, "x.T"),
    "a dense kernel of a convolution": ((4, 3, 1, 1), lambda x: x[:, :, 0, 0].T, "x[:, :, 0, 0].T"),
    "a convolution of a dense kernel": ((4, 3), lambda x: x[:, :, None, None], "x[:, :, None, None]"),
    "a flattened map in another order": (
        (5, 24),
        lambda x: x.reshape(5, 2, 12).transpose(2, 1, 0).reshape(24, 5),
        "x.reshape(5, 2, 12).transpose(2, 1, 0).reshape(24, 5)",
    ),
    "a third": ((12, 4), lambda x: x[4:8].T, "np.split(x, 3)[1].T"),
    "a third of the columns": ((4, 12), lambda x: x[:, 8:], "np.split(x, 3, 1)[2]"),
    "all but the first": ((5, 4), lambda x: x[1:], "x[1:5]"),
    "heads": (
        (6, 8),
        lambda x: x.T.reshape(8, 3, 2),
        "x.reshape(3, 2, 8).transpose(2, 0, 1).reshape(8, 3, 2)",
    ),
    "without its ones": ((1, 1, 7), lambda x: x[0, 0], "x[0, 0]"),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_steps_are_found_that_people_write(name: str) -> None:
    shape, make, text = MOVES[name]
    move = move_of(make(counted(shape)), shape)
    assert move is not None and move_text(move, "x") == text
    array = np.random.default_rng(0).normal(size=shape)
    assert np.array_equal(moved(move, array), make(array))
    assert np.array_equal(eval(text, {"np": np, "x": array}), make(array))


def test_an_order_without_steps_is_none() -> None:
    assert move_of(np.array([3, 0, 1, 2]), (4,)) is None
    assert move_of(np.array([0, 0, 1]), (2,)) is None, "a cell twice"

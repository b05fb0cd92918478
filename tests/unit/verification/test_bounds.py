from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from porter.graph import INPUT, Graph, Node, Relu, Relu6
from porter.graph.ops import Affine
from porter.verification.bounds import farthest_images
from tests.support.arrays import Array

GRAPH = Graph(
    (
        Node("scaled", Affine((1.0,), (0.0,)), (INPUT,)),
        Node("relu", Relu(), ("scaled",)),
        Node("doubled", Affine((2.0,), (0.0,)), ("relu",)),
        Node("capped", Relu6(), ("doubled",)),
    ),
    1,
    "capped",
)


def images(*values: float) -> Array:
    return np.array(values).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize(
    ("known", "pool", "chosen"),
    [
        ((-1, 4), (-9, 9), ()),  # all bounds are reached
        # Only Relu6's upper bound is not, so the image that goes furthest down is not wanted.
        ((-1, 2), (1, 2.5, 7, -3), (7,)),
        ((-1, 2), (1, 1.5), ()),  # none of the pool goes further
        ((1, 4), (2, -3), (-3,)),
    ],
)
def test_images_are_sought_that_reach_bounds_which_the_known_ones_do_not(
    known: tuple[float, ...], pool: tuple[float, ...], chosen: tuple[float, ...]
) -> None:
    ran: list[int] = []

    def run(batch: Array, paths: Collection[str]) -> Mapping[str, Array]:
        ran.append(len(batch))
        relu = np.maximum(batch, 0)
        values = {"scaled": batch, "relu": relu, "doubled": 2 * relu, "capped": np.minimum(2 * relu, 6)}
        return {path: values[path] for path in paths}

    found = farthest_images(GRAPH, [images(value) for value in known], images(*pool), run, at_once=1)
    assert tuple(found.ravel()) == chosen
    assert ran == [1] * (len(known) + (len(pool) if max(known) < 4 or min(known) > 0 else 0))

"""What porter's ops say in parts, where a part's rounding would show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from porter.filegraph.tensors.functions import remainder, whole_quotient
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.to_graph import to_graph
from tests.support.arrays import Array
from tests.support.filegraph.steps import of_image
from tests.support.oracle import evaluate

WHOLE = np.arange(-600.0, 600.0).reshape(1, 1, 30, 40)


@pytest.mark.parametrize("divisor", [49.0, 10.0, 8.0, -3.0])
@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (partial(whole_quotient, mode="floor"), np.floor_divide),
        (partial(whole_quotient, mode="trunc"), lambda x, by: np.trunc(x / by)),
        (partial(remainder, mode="floor"), np.mod),
        (partial(remainder, mode="trunc"), np.fmod),
    ],
)
def test_whole_multiples(
    divisor: float, function: Callable[[Tensor, Tensor], Tensor], wanted: Callable[[Array, float], Array]
) -> None:
    graph = to_graph(of_image(lambda x: function(x, x.scope.constant(divisor)), 1, (30, 40))).graph
    assert np.array_equal(evaluate(graph, {}, WHOLE)[graph.output], wanted(WHOLE, divisor))

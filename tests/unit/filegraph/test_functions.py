"""What porter's ops say in parts, where a part's rounding would show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from porter.filegraph.builder import Builder
from porter.filegraph.functions import Maker, remainder, rounded_quotient
from porter.filegraph.to_graph import to_graph
from tests.support.arrays import Array
from tests.support.oracle import evaluate

WHOLE = np.arange(-600.0, 600.0).reshape(1, 1, 30, 40)


@pytest.mark.parametrize("divisor", [49.0, 10.0, 8.0, -3.0])
@pytest.mark.parametrize(
    ("maker", "wanted"),
    [
        (lambda divisor: rounded_quotient(divisor, "floor"), np.floor_divide),
        (lambda divisor: rounded_quotient(divisor, "trunc"), lambda x, by: np.trunc(x / by)),
        (lambda divisor: remainder(divisor, "floor"), np.mod),
        (lambda divisor: remainder(divisor, "trunc"), np.fmod),
    ],
)
def test_whole_multiples(
    divisor: float, maker: Callable[[float], Maker], wanted: Callable[[Array, float], Array]
) -> None:
    builder = Builder(1, (30, 40))
    graph = to_graph(builder.finish([maker(divisor)(builder, "end", builder.input)])).graph
    assert np.array_equal(evaluate(graph, {}, WHOLE)[graph.output], wanted(WHOLE, divisor))

"""How much memory the values of a graph may take: a few bytes of a stranger's can ask for any."""

from __future__ import annotations

import math

from porter.base.errors import GraphError
from porter.base.options import INPUT_SIZE
from porter.graph.graph import Graph, shapes
from porter.graph.ops import Shape, shape_text
from porter.padding import Size

MOST_NUMBERS = 1 << 28
"""The most numbers in one value for one image: 1 GiB in float32, as 64 channels of 2048x2048 cells."""
MOST_IN_ALL = 1 << 32
"""The most numbers in all values together: 16 GiB in float32. EfficientNet-B7 has some 10**9 for an image of
600x600.
"""


def count_numbers(shape: Shape) -> int:
    """Return how many numbers a value of that shape has; sizes that are free count as 1."""
    return math.prod(size or 1 for size in shape)


def count_values(graph: Graph, size: Size) -> int:
    """Return how many numbers all values of one image have."""
    return sum(map(count_numbers, shapes(graph, size).values()))


def expect_bounded(graph: Graph, size: Size) -> None:
    """Refuse a graph whose values take more memory for one image of `size` (rows, columns) than any
    network's.

    Raises:
        GraphError: a value has too many numbers, or all of them have; `where` is the path of the first value
            that is too much. Or as `shapes`.
    """
    total = 0
    for path, shape in shapes(graph, size).items():
        count = count_numbers(shape)
        total += count
        if count > MOST_NUMBERS:
            raise GraphError(
                f"this value has the shape {shape_text(shape)}, more than {MOST_NUMBERS} numbers",
                where=path,
                next=f"give a smaller {INPUT_SIZE}",
            )
        if total > MOST_IN_ALL:
            message = f"the values up to this one have more than {MOST_IN_ALL} numbers together"
            raise GraphError(message, where=path, next=f"give a smaller {INPUT_SIZE}")

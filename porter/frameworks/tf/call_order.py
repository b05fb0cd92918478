"""The order in which Keras has the layers of a functional model: in `model.layers`, in its config, and in the
counts of its files.

It is by falling depth, which is the longest way to an output in layers, and within a depth by the first visit
of a search from the outputs, inputs from first to last (keras/src/ops/function.py, `map_graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from porter.graph.walks import in_order

_Call = TypeVar("_Call", str, int)


def layers_in_order(
    outputs: Sequence[_Call],
    inputs_of: Callable[[_Call], Sequence[_Call]],
    layer_of: Callable[[_Call], str],
    layers_in: Callable[[_Call], int] = lambda call: 1,
) -> list[str]:
    """Return the layers whose calls lead to an output, in Keras's order. A call is as deep as the deepest
    call of its layer that the search left after it.

    Args:
        outputs: the calls whose values are the model's outputs.
        inputs_of: the calls whose values a call reads, in its order.
        layer_of: the layer that a call is of.
        layers_in: of how many layers, one after the other, Keras makes a call.
    """
    depths = dict.fromkeys(search_depths(outputs, inputs_of), 0)
    layers = list(dict.fromkeys(map(layer_of, depths)))
    deepest = dict.fromkeys(layers, 0)
    # Each call behind those that it reads, so that the loop begins at the outputs.
    for call in reversed(in_order(outputs, inputs_of)):
        # A call is at least as deep as the other calls of its layer so far.
        depths[call] = deepest[layer_of(call)] = max(depths[call], deepest[layer_of(call)])
        for source in inputs_of(call):
            depths[source] = max(depths[source], depths[call] + layers_in(call))
    # A stable sort: within a depth, layers stay in the order of visits.
    return sorted(layers, key=lambda layer: -deepest[layer])


def search_depths(
    outputs: Sequence[_Call], inputs_of: Callable[[_Call], Sequence[_Call]]
) -> dict[_Call, int]:
    """Return the calls that lead to an output in the order of their first visit, each with how many calls of
    itself Keras's search is in then (its `_build_map_helper`).
    """
    visited: dict[_Call, int] = {}
    # A stack of calls to visit, each with its depth; the last one is visited next.
    waiting = [(call, 1) for call in reversed(outputs)]
    while waiting:
        call, depth = waiting.pop()
        if call not in visited:
            visited[call] = depth
            # The first input is taken next.
            waiting += [(source, depth + 1) for source in reversed(inputs_of(call))]
    return visited

"""Every kind of realisation against a plain loop over windows, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from porter.base.errors import PaddingError
from porter.frameworks.tf import destination as tf
from porter.graph import INPUT, AvgPool, ConcatChannels, Conv, GlobalAvgPool, Graph, MaxPool, Node
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, LOWEST, Capabilities, Convention, Window
from tests.support.frameworks.tf.models import SAME, explicit, random_tensors, window_loop

TWO = Window((3, 3), (2, 2))
CHANNELS = 4

# Exact at every input size; each stands beside the others in one model.
EVERYWHERE: dict[str, Conv | MaxPool | AvgPool] = {
    "conv_same": Conv(5, TWO, SAME, bias=True),
    "conv_valid": Conv(5, Window((1, 3), (2, 1)), Convention()),
    "conv_symmetric": Conv(5, TWO, explicit(1, 1, 1, 1)),
    "conv_uneven": Conv(5, Window((3, 5), (2, 1)), explicit(0, 1, 3, 1)),
    "conv_cntk": Conv(5, Window((4, 4), (2, 2)), Convention("cntk")),
    "conv_same_lower": Conv(5, Window((4, 4)), Convention("same_lower")),
    "conv_dilated_same": Conv(5, Window((3, 3), dilation=(2, 1)), SAME),
    "conv_dilated_strided": Conv(5, Window((3, 3), (2, 2), (2, 2)), explicit(2, 2, 1, 2)),
    "grouped_same": Conv(6, TWO, SAME, groups=2),
    "grouped_dilated": Conv(6, Window((3, 3), dilation=(2, 2)), explicit(2, 2, 2, 2), groups=2),
    "depthwise_same": Conv(4, TWO, SAME, groups=4),
    "depthwise_symmetric": Conv(4, TWO, explicit(1, 1, 1, 1), groups=4, bias=True),
    "depthwise_doubled": Conv(8, Window((3, 3)), SAME, groups=4),
    "depthwise_unequal_strides": Conv(4, Window((3, 3), (2, 1)), SAME, groups=4),
    "depthwise_dilated": Conv(4, Window((3, 3), dilation=(2, 1)), SAME, groups=4),
    "depthwise_dilated_strided": Conv(4, Window((3, 3), (2, 2), (2, 2)), explicit(2, 2, 2, 2), groups=4),
    "max_same": MaxPool(TWO, Convention("same", fill=LOWEST)),
    "max_symmetric": MaxPool(TWO, explicit(1, 1, 1, 1, fill=LOWEST)),
    "max_zero": MaxPool(TWO, explicit(1, 1, 1, 1)),
    "max_uneven": MaxPool(Window((3, 2), (2, 1)), explicit(0, 1, 1, 0, fill=LOWEST)),
    "average_same": AvgPool(TWO, SAME),
    "average_unequal": AvgPool(Window((2, 3), (1, 2)), SAME),
    "average_full_window": AvgPool(TWO, explicit(1, 1, 1, 1, average="full_window")),
    "average_real_cells": AvgPool(TWO, explicit(1, 1, 1, 1)),
    "average_uneven": AvgPool(Window((3, 3)), explicit(2, 0, 1, 1)),
}
# Exact at only one size, or so small only there.
FIXED: dict[str, Conv | MaxPool | AvgPool] = {
    "conv_same_lower_strided": Conv(5, TWO, Convention("same_lower")),
    "depthwise_same_dilated_strided": Conv(4, Window((3, 3), (2, 2), (2, 2)), SAME, groups=4),
    "max_ceil": MaxPool(TWO, Convention("valid", fill=LOWEST, rounding="ceil")),
    "max_ceil_padded": MaxPool(TWO, explicit(1, 1, 1, 1, fill=LOWEST, rounding="ceil")),
    "average_ceil_clipped": AvgPool(TWO, explicit(1, 1, 1, 1, average="clipped_window", rounding="ceil")),
    "average_ceil_real": AvgPool(Window((3, 3), (3, 3)), explicit(1, 1, 1, 1, rounding="ceil")),
    "average_full_rounding": AvgPool(
        Window((2, 2), (3, 3)), explicit(1, 1, 1, 1, average="clipped_window", rounding="full")
    ),
}


def _beside(sites: dict[str, Conv | MaxPool | AvgPool]) -> Graph:
    nodes = [Node(name, op, (INPUT,)) for name, op in sites.items()]
    pools = [Node(f"{name}_mean", GlobalAvgPool(), (name,)) for name in sites]
    join = Node("join", ConcatChannels(), tuple(node.path for node in pools))
    return Graph((*nodes, *pools, join), CHANNELS, "join")


def _differences(plan: Plan, size: tuple[int, int]) -> dict[str, float]:
    graph = plan.graph
    tensors = random_tensors(graph)
    model = tf.ENGINE.build(plan, tensors, {}, "float64", "cpu")
    # Mostly negative, so that a zero where -inf belongs is seen.
    batch = np.random.default_rng(1).normal(-1.0, 1.0, (2, CHANNELS, *size))
    paths = [node.path for node in graph.nodes if node.path in plan.realisations]
    found = tf.ENGINE.run(model, batch, paths)
    differences = {}
    for path in paths:
        op = graph.by_path[path].op
        assert isinstance(op, Conv | MaxPool | AvgPool)
        wanted = np.stack([window_loop(op, maps, tensors.get(path, {})) for maps in batch])
        assert found[path].shape == wanted.shape, path
        differences[path] = float(np.abs(found[path] - wanted).max())
    return differences


@pytest.mark.parametrize("size", [(9, 12), (12, 7)])
def test_sites_that_are_right_at_every_size(size: tuple[int, int]) -> None:
    plan = make_plan(_beside(EVERYWHERE), ANY, tf.CAPABILITIES)
    assert plan.only_size is None
    wrong = {path: difference for path, difference in _differences(plan, size).items() if difference > 1e-13}
    assert not wrong


@pytest.mark.parametrize("size", [(9, 12), (12, 8)])
def test_sites_that_are_right_at_one_size(size: tuple[int, int]) -> None:
    plan = make_plan(_beside({**EVERYWHERE, **FIXED}), size, tf.CAPABILITIES)
    wrong = {path: difference for path, difference in _differences(plan, size).items() if difference > 1e-13}
    assert not wrong


def test_the_sites_above_meet_every_kind_of_realisation() -> None:
    plan = make_plan(_beside({**EVERYWHERE, **FIXED}), (9, 12), tf.CAPABILITIES)
    realisations = plan.realisations.values()
    assert {realisation.kind for realisation in realisations} == {"native", "pad layer", "composition"}
    assert any(realisation.subsample for realisation in realisations)
    assert any(realisation.counted is not None for realisation in realisations)
    assert {realisation.front.fill for realisation in realisations if realisation.front} == {0.0, LOWEST}


def test_refuses_a_realisation_of_another_framework() -> None:
    graph = _beside({name: EVERYWHERE[name] for name in ("conv_symmetric", "conv_valid")})
    torch_like = Capabilities(
        True,
        False,
        (),
        True,
        "half",
        ("floor", "ceil"),
        ("real_cells", "clipped_window"),
        (),
        ("max_pool",),
        True,
    )
    plan = make_plan(graph, ANY, torch_like)
    with pytest.raises(PaddingError, match="Keras has no layers for"):
        tf.ENGINE.build(plan, random_tensors(graph), {}, "float32", "cpu")

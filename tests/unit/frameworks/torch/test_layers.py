"""The layers that porter has for torch: pads of SAME and constants; and what a plan may ask for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch.jit._trace import TracerWarning

from porter.base.errors import PaddingError
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.frameworks.torch.layers import Affine, SamePad2d
from porter.graph import INPUT, Conv, Graph, MaxPool, Node, Relu
from porter.graph.plan import Plan, make_plan
from porter.padding import LOWEST, Convention, Front, Realisation, Window, pad_amounts
from tests.support.oracle import apply


def test_a_zero_stands_for_minus_infinity_after_a_relu():
    pool = MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (0, 2, 2, 0), LOWEST))
    signed = Graph((Node("pool", pool, (INPUT,)),), 2, "pool")
    after = Graph((Node("relu", Relu(), (INPUT,)), Node("pool", pool, ("relu",))), 2, "pool")
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8)) - 3
    for graph, fill in ((signed, LOWEST), (after, 0.0)):
        plan = make_plan(graph, (8, 8), framework.CAPABILITIES)
        assert plan.realisations["pool"].front == Front("explicit", (0, 2, 2, 0), fill)
        wanted = apply(pool, {}, np.maximum(x, 0) if graph is after else x)
        np.testing.assert_array_equal(
            framework.ENGINE.run(framework.ENGINE.build(plan, {}, {}, "float64"), x, ["pool"])["pool"], wanted
        )


@pytest.mark.parametrize("lower", [False, True])
def test_same_pad_is_tensorflow_arithmetic_at_every_size(lower):
    for kernel, stride, dilation in product(range(1, 8), range(1, 6), (1, 2)):
        pad = SamePad2d(kernel, stride, dilation, lower=lower)
        window = Window((kernel, kernel), (stride, stride), (dilation, dilation))
        for size in range(1, 40):
            wanted = pad_amounts(Convention("same_lower" if lower else "same"), window, 0, size)
            assert pad.amounts(size, 0) == wanted, (kernel, stride, dilation, size)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 2, 1), (2, 3, 1), (2, 5, 1), (3, 5, 1), (3, 2, 2), (7, 4, 1)]
)
def test_same_pad_traced_and_exported(kernel, stride, dilation):
    pad = SamePad2d(kernel, stride, dilation)
    x = torch.ones(1, 1, 12, 13)
    with pytest.warns(DeprecationWarning, match=r"torch\.jit") as caught:
        traced = torch.jit.trace(pad, x, check_trace=False)
    assert not [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    exported = torch.export.export(
        pad, (x,), dynamic_shapes=({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    ).module()
    for size in range(5, 20):
        x = torch.ones(1, 1, size, 29 - size)
        assert traced(x).shape == exported(x).shape == pad(x).shape


def test_plans_of_other_frameworks_are_refused():
    conv = Conv(2, Window((3, 3), (2, 2), (2, 2)), Convention("same"))
    graph = Graph((Node("conv", conv, (INPUT,)),), 2, "conv")
    subsampled = Realisation(Convention(), Front("explicit", (2, 2, 2, 2), 0.0), subsample=True)
    for realisation in (
        Realisation(Convention("same")),
        Realisation(Convention("explicit", (0, 1, 0, 1))),
        subsampled,
    ):
        with pytest.raises(PaddingError, match="conv: torch"):
            framework.ENGINE.build(
                Plan(graph, {"conv": realisation}, None),
                {"conv": {"kernel": np.ones((2, 2, 3, 3))}},
                {},
                "float32",
            )


SCALE, OFFSET = [1 / 0.229, -1 / 3, 1e-30], [-0.485 / 0.229, 0.1, 1 / 7]


@pytest.mark.parametrize("made_on", ["cpu", "meta"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3)], ids=["maps", "features"])
def test_constants_stay_exact_through_every_move_of_the_layer(made_on, shape):
    with torch.device(made_on):
        affine = Affine(SCALE, OFFSET)
    x = torch.linspace(-2, 2, 6, dtype=torch.float64).reshape(2, 3, *[1] * (len(shape) - 2)).expand(shape)
    wanted = torch.stack([x[:, c] * SCALE[c] + OFFSET[c] for c in range(3)], 1)
    moves = [
        lambda layer: layer,
        lambda layer: layer.half().float(),
        lambda layer: layer.to("cpu", torch.bfloat16),
        lambda layer: layer.to("meta"),
        lambda layer: layer.to_empty(device="cpu"),
        lambda layer: layer.double(),
    ]
    for move in moves:
        affine = move(affine)
        assert affine.state_dict() == {}
        assert torch.equal(affine(x), wanted)
        assert affine(x.float()).dtype == torch.float32


def test_one_constant_is_for_all_channels_and_an_absent_one_changes_nothing():
    x = torch.linspace(-2, 2, 24, dtype=torch.float64).reshape(1, 2, 3, 4)
    assert torch.equal(Affine(1 / 3)(x), x * (1 / 3))
    assert torch.equal(Affine(offset=-1 / 7)(x), x + -1 / 7)

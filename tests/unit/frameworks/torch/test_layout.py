from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from porter.base.errors import MappingError
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph import INPUT, BatchNorm, Conv, Dense, Graph, Node, Rearrange, Relu, Tokens
from porter.padding import Convention, Window, count_windows
from porter.padding.windows import Average
from tests.support.padding.windows import divisors

GRAPH = Graph((), 3, INPUT)
CONV = Node("a/conv", Conv(4, Window((1, 1)), Convention(), bias=True), (INPUT,))
DENSE = Node("a/dense", Dense(4), (INPUT,))
NORM = Node("a/norm", BatchNorm(1e-3, 0.1), (INPUT,))


def test_the_facade_is_a_framework_that_imports_no_torch():
    assert get_destination("torch") is framework
    assert framework.NAMES_LAYERS is False
    assert (
        get_dialect("torch").counted_layers(GRAPH, (), {})
        == {}
        == get_dialect("torch").numbered_layers(["conv2d"], ["conv2d_7.weight"])
    )
    code = (
        "import sys, porter.frameworks.torch.dialect; sys.exit('torch' in sys.modules or 'tensorflow' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_those_of_torch_modules():
    assert get_dialect("torch").tensor_names(GRAPH, CONV, "features.0") == {
        "kernel": ("features.0.weight",),
        "bias": ("features.0.bias",),
    }
    for node, module in ((CONV, nn.Conv2d(3, 4, 1)), (DENSE, nn.Linear(3, 4)), (NORM, nn.BatchNorm2d(3))):
        names = {
            name for names in get_dialect("torch").tensor_names(GRAPH, node, "m").values() for name in names
        }
        assert names == {f"m.{key}" for key in module.state_dict()}
    joined = get_dialect("torch").tensor_names(GRAPH, DENSE, "m.in_proj")
    attention = nn.ModuleDict({"m": nn.MultiheadAttention(8, 2)})  # its input projection is no module
    assert {name for names in joined.values() for name in names} == {
        key for key in attention.state_dict() if "in_proj" in key
    }
    assert get_dialect("torch").tensor_names(GRAPH, Node("r", Relu(), (INPUT,)), "m") == {}
    bare = Node("n", BatchNorm(1e-3, 0.1, scale=False, center=False), (INPUT,))
    assert set(get_dialect("torch").tensor_names(GRAPH, bare, "m")) == {"mean", "variance", "batches"}
    assert set(get_dialect("torch").tensor_names(GRAPH, Node("d", Dense(4, bias=False), (INPUT,)), "m")) == {
        "kernel"
    }


def test_axes_stay_and_a_dense_layer_may_be_a_1x1_convolution():
    kernel = np.arange(12.0).reshape(4, 3, 1, 1)
    assert get_dialect("torch").to_canonical(GRAPH, CONV, "kernel", kernel) is kernel
    assert get_dialect("torch").from_canonical(GRAPH, CONV, "kernel", kernel) is kernel
    assert np.array_equal(
        get_dialect("torch").to_canonical(GRAPH, DENSE, "kernel", kernel), kernel[:, :, 0, 0]
    )
    assert np.array_equal(
        get_dialect("torch").to_canonical(GRAPH, CONV, "kernel", kernel[:, :, 0, 0]), kernel
    )


def test_a_parameter_may_have_an_axis_for_the_images_of_a_batch():
    cells = Node("cells", Rearrange("c h w -> (h w) c"), (INPUT,))
    token = Node("token", Tokens(1), ("cells",))
    graph, stored = Graph((cells, token), 3, "token"), np.arange(3.0)
    for shape in ((1, 1, 3), (1, 3)):
        assert get_dialect("torch").to_canonical(graph, token, "value", stored.reshape(shape)).shape == (1, 3)


@pytest.mark.parametrize(
    ("node", "role", "shape"),
    [
        (DENSE, "kernel", (4, 3, 2, 1)),
        (CONV, "kernel", (4, 3, 1)),
        (NORM, "gamma", (3, 1)),
        (NORM, "batches", (1,)),
    ],
)
def test_another_rank_is_refused(node, role, shape):
    with pytest.raises(MappingError, match=rf"a/\w+: expected a {role} of rank \d, got shape"):
        get_dialect("torch").to_canonical(GRAPH, node, role, np.zeros(shape))


def test_capabilities_are_what_torch_does():
    """Pools of torch's own over a row: how many windows, what an average divides by, and which pads it
    takes.
    """
    able = framework.CAPABILITIES
    for kernel, stride, pad, dilation, ceil in product(
        (1, 2, 3, 5), (1, 2, 3), (0, 1, 2, 3), (1, 2), (False, True)
    ):
        window = Window((kernel, 1), (stride, 1), (dilation, 1))
        convention = Convention(
            "explicit", (pad, pad, 0, 0), float("-inf"), rounding="ceil" if ceil else "floor"
        )
        pool = nn.MaxPool2d((kernel, 1), (stride, 1), (pad, 0), (dilation, 1), ceil_mode=ceil)
        for size in (5, 6, 11):
            x = torch.arange(1.0, size + 1).reshape(1, 1, size, 1)
            wanted = count_windows(convention, window, 0, size)
            allowed = pad <= kernel // 2 if able.pool_pads == "half" else True
            if not allowed:
                with pytest.raises(RuntimeError, match="pad should be"):
                    pool(x)
            elif wanted > 0:
                assert pool(x).shape[2] == wanted
                if dilation == 1:
                    averages: dict[Average, bool] = {"real_cells": False, "clipped_window": True}
                    for average, counted in averages.items():
                        mean = nn.AvgPool2d(
                            (kernel, 1), (stride, 1), (pad, 0), ceil_mode=ceil, count_include_pad=counted
                        )
                        counts = divisors(
                            Convention("explicit", (pad, pad, 0, 0), 0.0, average, convention.rounding),
                            window,
                            0,
                            size,
                        )
                        sums = nn.AvgPool2d(
                            (kernel, 1), (stride, 1), (pad, 0), ceil_mode=ceil, divisor_override=1
                        )(x)
                        assert torch.allclose(mean(x).flatten(), sums.flatten() / torch.tensor(counts))


def test_torch_has_dilated_strides_and_no_dilated_average():
    assert nn.Conv2d(1, 1, 3, stride=2, dilation=2)(torch.ones(1, 1, 9, 9)).shape == (1, 1, 3, 3)
    with pytest.raises(TypeError, match="dilation"):
        nn.AvgPool2d(3, dilation=2)  # type: ignore[call-arg]  # what the test is about

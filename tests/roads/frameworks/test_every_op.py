"""Every op of porter.graph in the destinations that have them all: the engine computes what the oracle does,
and model.py computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from porter.base.dtypes import Dtype
from porter.frameworks import get_destination
from porter.frameworks.flax.spellings import SPELLINGS as FLAX
from porter.frameworks.mlx.spellings import SPELLINGS as MLX
from porter.frameworks.onnx import sites, spellings as onnx
from porter.frameworks.tf.ports.arrays import ARRAYS
from porter.frameworks.tf.ports.layers import LAYERS
from porter.frameworks.tf.ports.model import POOLS
from porter.frameworks.torch import spellings as torch
from porter.graph import OPS, Conv, Graph, Op
from porter.graph.lowering import LOWERINGS
from porter.graph.ops import row_of
from porter.graph.plan import make_plan
from porter.padding import ANY, Size
from tests.support.frameworks.every_op import (
    FLATTENED,
    OF_MAPS,
    SIZE,
    every_op,
    images,
    tensors_of,
)
from tests.support.frameworks.flax import generated as flax_code
from tests.support.frameworks.mlx import generated as mlx_code
from tests.support.frameworks.sayable import expect_near, sizes_of
from tests.support.frameworks.torch import generated as torch_code
from tests.support.oracle import evaluate


@cache
def whole(size: Size) -> Graph:
    return every_op(OF_MAPS if size == ANY else (*OF_MAPS, *FLATTENED))


@pytest.mark.parametrize(
    "rows",
    [
        (*torch.PLAIN, *torch.WINDOWED),
        (*LAYERS, *ARRAYS, *POOLS, Conv, *LOWERINGS),
        (*onnx.PLAIN, *sites.WINDOWED, *LOWERINGS),
        (*FLAX.plain, *FLAX.windowed, *LOWERINGS),
        (*MLX.plain, *MLX.windowed, *LOWERINGS),
    ],
    ids=["torch", "tf", "onnx", "flax", "mlx"],
)
def test_every_op_has_a_row(rows: Iterable[type[Op]]) -> None:
    assert all(row_of(dict.fromkeys(rows, True), op) for op in OPS.values())


def test_the_graph_has_every_op() -> None:
    assert {*OPS.values()} == {type(node.op) for node in whole(SIZE).nodes}
    assert torch.PLAIN.keys().isdisjoint(torch.WINDOWED) and onnx.PLAIN.keys().isdisjoint(sites.WINDOWED)


@pytest.mark.parametrize(
    ("name", "size", "dtype", "limit"),
    [
        ("torch", SIZE, "float64", 1e-14),
        ("onnx", ANY, "float64", 1e-12),
        ("onnx", SIZE, "float64", 1e-12),
        ("flax", SIZE, "float64", 1e-13),
        ("mlx", SIZE, "float64", 1e-13),
        ("mlx", SIZE, "float32", 2e-6),
        pytest.param("tf", SIZE, "float64", 1e-13, marks=pytest.mark.full),
    ],
)
def test_the_value_of_every_op(name: str, size: Size, dtype: Dtype, limit: float) -> None:
    """Keras has one of each in tests/roads/frameworks/tf."""
    framework, graph = get_destination(name), whole(size)
    plan, tensors = make_plan(graph, size, framework.CAPABILITIES), tensors_of(graph)
    assert plan.only_size == (None if size == ANY else SIZE)
    model = framework.ENGINE.build(plan, tensors, {}, dtype)
    for at in sizes_of(plan):
        wanted = evaluate(graph, tensors, images(at))
        found = (
            flax_code.outputs_of(model, plan, images(at), graph.outputs)  # takes half the time
            if name == "flax"
            else framework.ENGINE.run(model, images(at), graph.outputs)
        )
        assert found.keys() == {*graph.outputs}
        expect_near(found, wanted, limit)


@pytest.mark.parametrize(
    ("name", "expect_the_same"),
    [
        ("torch", lambda *given: torch_code.expect_the_same_as_built(*given[:3])),
        ("flax", flax_code.expect_the_same_as_built),
        ("mlx", mlx_code.expect_the_same_as_built),
    ],
)
def test_model_py_says_every_op(name: str, expect_the_same: Callable[..., Any], tmp_path: Path) -> None:
    framework, graph = get_destination(name), whole(SIZE)
    plan, tensors = make_plan(graph, SIZE, framework.CAPABILITIES), tensors_of(graph)
    expect_the_same(plan, tensors, images(), tmp_path)
    framework.write(tmp_path, plan, tensors, {}, "float32", {})
    torch_code.expect_formatted(tmp_path / "model.py")

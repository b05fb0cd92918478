"""Every op of porter.graph in MLX: what it computes, and that model.py computes the same."""

from __future__ import annotations

from pathlib import Path

import mlx.nn as nn
import pytest

from porter.base.dtypes import Dtype
from porter.frameworks.mlx import destination as framework
from porter.frameworks.mlx.code import LANGUAGE
from porter.frameworks.mlx.spellings import MODULES, SPELLINGS
from porter.graph import OPS
from porter.graph.lowering import LOWERINGS
from porter.graph.ops import row_of
from porter.graph.plan import make_plan
from tests.support.frameworks.every_op import FLATTENED, OF_MAPS, SIZE, every_op, images, tensors_of
from tests.support.frameworks.mlx.generated import expect_the_same_as_built
from tests.support.frameworks.torch.generated import expect_formatted
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

GRAPH = every_op((*OF_MAPS, *FLATTENED))
PLAN = make_plan(GRAPH, SIZE, framework.CAPABILITIES)
TENSORS = tensors_of(GRAPH)
WANTED = evaluate(GRAPH, TENSORS, images())


def test_mlx_says_every_op() -> None:
    rows = dict.fromkeys([*SPELLINGS.plain, *SPELLINGS.windowed, *LOWERINGS], True)
    assert all(row_of(rows, op) for op in OPS.values())
    assert {name for name in dir(nn.Module()) if name[0] != "_"} | {"program"} == LANGUAGE.of_modules
    assert {step.layer.kind for step in SPELLINGS.steps(PLAN)} >= MODULES


@pytest.mark.parametrize(("dtype", "limit"), [("float64", 1e-13), ("float32", 2e-6)])
def test_the_value_of_every_op(dtype: Dtype, limit: float) -> None:
    model = framework.ENGINE.build(PLAN, TENSORS, {}, dtype)
    found = framework.ENGINE.run(model, images(), GRAPH.outputs)
    assert {path: value.shape for path, value in found.items()} == {
        path: WANTED[path].shape for path in GRAPH.outputs
    }
    assert not {path for path, value in found.items() if difference(value, WANTED[path]) > limit}


def test_model_py_says_every_op(tmp_path: Path) -> None:
    expect_the_same_as_built(PLAN, TENSORS, images(), tmp_path)
    expect_formatted(tmp_path / "model.py")

"""Every op of porter.graph in Flax: what it computes, and that model.py computes the same."""

from __future__ import annotations

from pathlib import Path

import jax
from flax import nnx

from porter.frameworks.flax import destination as framework
from porter.frameworks.flax.code import LANGUAGE
from porter.frameworks.flax.spellings import SPELLINGS, WITH_TENSORS
from porter.graph import OPS
from porter.graph.lowering import LOWERINGS
from porter.graph.ops import row_of
from porter.graph.plan import make_plan
from tests.support.frameworks.every_op import FLATTENED, OF_MAPS, SIZE, every_op, images, tensors_of
from tests.support.frameworks.flax.generated import expect_the_same_as_built, outputs_of
from tests.support.frameworks.torch.generated import expect_formatted
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

GRAPH = every_op((*OF_MAPS, *FLATTENED))
PLAN = make_plan(GRAPH, SIZE, framework.CAPABILITIES)
TENSORS = tensors_of(GRAPH)
WANTED = evaluate(GRAPH, TENSORS, images())
LIMIT = 1e-13


def test_flax_says_every_op() -> None:
    rows = dict.fromkeys([*SPELLINGS.plain, *SPELLINGS.windowed, *LOWERINGS], True)
    assert all(row_of(rows, op) for op in OPS.values())
    assert {name for name in dir(nnx.Module) if name[0] != "_"} | {"program"} == LANGUAGE.of_modules
    assert {step.layer.kind for step in SPELLINGS.steps(PLAN)} >= WITH_TENSORS


def test_the_value_of_every_op() -> None:
    with jax.enable_x64(True):
        found = outputs_of(framework.ENGINE.build(PLAN, TENSORS, {}, "float64"), PLAN, images())
    assert {path: value.shape for path, value in found.items()} == {
        path: WANTED[path].shape for path in GRAPH.outputs
    }
    assert not {path for path, value in found.items() if difference(value, WANTED[path]) > LIMIT}


def test_model_py_says_every_op(tmp_path: Path) -> None:
    expect_the_same_as_built(PLAN, TENSORS, images(), tmp_path, WANTED)
    expect_formatted(tmp_path / "model.py")

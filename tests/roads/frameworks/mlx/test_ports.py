"""Ports for MLX as people use them: model.py beside the built module, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from porter.base import package
from porter.base.dtypes import Dtype
from porter.base.errors import GraphError, NotInstalled, UsageError
from porter.frameworks.code.public_names import with_names
from porter.frameworks.mlx import destination as framework
from porter.frameworks.mlx.code import model_source
from porter.graph import BatchNorm, Graph
from porter.graph.plan import make_plan
from porter.padding import ANY
from porter.recipe import expand
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.frameworks.mlx.generated import expect_the_same_as_built, loaded
from tests.support.frameworks.small_variants import small
from tests.support.frameworks.torch.classic_graphs import convnext, mobilenet_v3
from tests.support.frameworks.torch.generated import expect_formatted
from tests.support.frameworks.torch.graphs import inception, resnet_v2, small_mobilenet
from tests.support.recipe.recipes import all_recipes
from tests.unit.frameworks.torch.test_code_random import random_graph, random_rows

GRAPH = resnet_v2((1, 1))
PLAN, TENSORS = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
IMAGES = images((33, 32)).transpose(0, 2, 3, 1).astype("float32")


@pytest.mark.parametrize(
    "make",
    [resnet_v2, mobilenet_v3, *(partial(random_graph, seed) for seed in range(6)), partial(random_rows, 3)],
)
def test_model_py_and_the_built_module_agree(make: Callable[[], Graph], tmp_path: Path) -> None:
    graph = make()
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    expect_the_same_as_built(plan, tensors_of(graph), images((33, 32)), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("architecture", [recipe.architecture for recipe in all_recipes()])
def test_model_py_of_recipes_and_the_built_module_agree(architecture: str, tmp_path: Path) -> None:
    for member in small(next(recipe for recipe in all_recipes() if recipe.architecture == architecture)):
        graph, size = expand(member), member.native_size()
        plan = make_plan(graph, size, framework.CAPABILITIES)
        expect_the_same_as_built(plan, tensors_of(graph), images(size)[:1], tmp_path)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (resnet_v2, ["self.stage2 = stage(16, 8, units=3, stride=1)", "row.layers.append("]),
        (
            small_mobilenet,
            ["for filters, stride, expansion, repeats in settings:", "self.blocks.layers.append("],
        ),
        (mobilenet_v3, ["for hidden, filters, kernel, stride, squeeze, activation in settings:"]),
        (convnext, ["blocks=nn.Sequential(*(Block(64) for _ in range(5)))"]),
        (inception, ["mx.concatenate([", "counted_avg_pool("]),
    ],
)
def test_model_py_is_written_as_a_person_would(
    make: Callable[[], Graph], lines: list[str], tmp_path: Path
) -> None:
    """Units are classes, repeats are lists; and ruff would lay it out so."""
    text = model_source(make_plan(make(), ANY, framework.CAPABILITIES))
    (tmp_path / "model.py").write_text(text)
    assert [line for line in lines if line not in text] == []
    expect_formatted(tmp_path / "model.py")


def test_a_port_is_called_with_arrays_and_has_gradients(tmp_path: Path) -> None:
    framework.write(tmp_path, PLAN, TENSORS, {}, "float32", {})
    model, built = loaded(tmp_path), framework.ENGINE.build(PLAN, TENSORS, {}, "float32")
    with mx.stream(mx.cpu):
        found = model(mx.array(IMAGES))
        _, gradients = nn.value_and_grad(built, lambda x: (built(x) ** 2).sum())(mx.array(IMAGES))
        assert np.allclose(found, built(IMAGES), rtol=1e-4)
        assert mx.any(gradients["stem"]["conv"]["weight"] != 0).item()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_port_in_half_precision(dtype: Dtype, tmp_path: Path) -> None:
    graph = small_mobilenet()
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    framework.write(tmp_path, plan, tensors_of(graph), {}, dtype, {})
    with mx.stream(mx.cpu):
        found = loaded(tmp_path)(mx.array(IMAGES).astype(getattr(mx, dtype)))
    built = framework.ENGINE.build(plan, framework.read_port(tmp_path, plan, {}), {}, dtype)
    own = framework.ENGINE.run(built, IMAGES.transpose(0, 3, 1, 2), [graph.output])[graph.output]
    assert found.dtype == getattr(mx, dtype)
    assert np.allclose(found.astype(mx.float32), own.astype("float32"), rtol=1e-2, atol=1e-2)


def test_what_is_refused(tmp_path: Path) -> None:
    fixed = framework.ENGINE.build(make_plan(GRAPH, (33, 32), framework.CAPABILITIES), TENSORS, {}, "float32")
    with pytest.raises(UsageError, match="N x H x W x 3, got 2 x 32 x 33 x 1"):
        fixed(np.zeros((2, 32, 33, 1), np.float32))
    with pytest.raises(UsageError, match="MLX computes"):
        framework.write(tmp_path, PLAN, TENSORS, {}, "float64", {})
    zero = (
        replace(node, op=replace(node.op, epsilon=0.0)) if isinstance(node.op, BatchNorm) else node
        for node in GRAPH.nodes
    )
    plan = make_plan(replace(GRAPH, nodes=tuple(zero)), ANY, framework.CAPABILITIES)
    refused = framework.refusals(plan)
    assert isinstance(refused[0], GraphError) and "epsilon of 0" in str(refused[0])


def test_without_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="mlx is not installed"):
        framework.ENGINE.build(PLAN, TENSORS, {}, "float32")


def test_names_that_mlx_holds_to_be_private(tmp_path: Path) -> None:
    """It would neither save nor load what has one."""
    names = {
        node.path: re.sub("(^|/)(conv|shortcut|norm1|stage2)", r"\1_\2", node.path) for node in GRAPH.nodes
    }
    names["stage1/unit1/norm2"] = "stage1/unit1/__norm1"
    private = with_names(PLAN, names)
    tensors = {names.get(path, path): roles for path, roles in TENSORS.items()}
    expect_the_same_as_built(private, tensors, images((33, 32)), tmp_path)
    text = (tmp_path / "model.py").read_text()
    assert "self.stage2" in text and "self.norm1_2" in text and not re.search(r"self\._(?!names)", text)

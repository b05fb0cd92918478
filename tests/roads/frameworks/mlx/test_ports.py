"""Ports for MLX as people use them: gradients, halves, names, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import GraphError, UsageError
from porter.frameworks.code.public_names import with_names
from porter.frameworks.mlx.destination import DESTINATION as framework
from porter.graph import BatchNorm
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.every_op import images, tensors_of
from tests.support.frameworks.mlx.generated import expect_the_same_as_built, loaded
from tests.support.frameworks.torch.graphs import resnet_v2, small_mobilenet

GRAPH = resnet_v2((1, 1))
PLAN, TENSORS = make_plan(GRAPH, ANY, framework.CAPABILITIES), tensors_of(GRAPH)
IMAGES = images((33, 32)).transpose(0, 2, 3, 1).astype("float32")


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
    with pytest.raises(UsageError, match="MLX computes"):
        framework.write(tmp_path, PLAN, TENSORS, {}, "float64", {})
    zero = (
        replace(node, op=replace(node.op, epsilon=0.0)) if isinstance(node.op, BatchNorm) else node
        for node in GRAPH.nodes
    )
    plan = make_plan(replace(GRAPH, nodes=tuple(zero)), ANY, framework.CAPABILITIES)
    refused = framework.refusals(plan)
    assert isinstance(refused[0], GraphError) and "epsilon of 0" in str(refused[0])


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

"""Every op of porter.graph in MXNet: what porter's own engine computes of the symbol, and under `full` MXNet
of the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.frameworks.mxnet.destination import DESTINATION as framework
from porter.frameworks.mxnet.spellings import PLAIN
from porter.graph import LayerNorm, Op, Rearrange
from porter.padding import ANY, Size
from tests.support.frameworks.every_op import SIZE, images, tensors_of
from tests.support.frameworks.sayable import (
    AT_SIZES,
    expect_every_op,
    expect_read_back,
    expect_refused,
    ops_of,
    sayable_plan,
)
from tests.support.mxnet_runs import needs_mxnet, run_symbol
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

ROUNDED, KNOWN = 1e-5, ops_of(PLAIN)
SAID = {
    "MXNet's softrelu is x above 20, not log(1 + exp(x))",
    "MXNet's Pad knows no mode symmetric",
    "MXNet's Pad knows no mode wrap",
    "porter writes MXNet's InstanceNorm, not norms of several channels",
    "porter writes no norm along an axis for MXNet",
    "porter writes maps and features for MXNet, not arrays of other axes",
}


@AT_SIZES
def test_every_op(size: Size, of_maps: Any) -> None:
    graph, plan, said = sayable_plan(framework, KNOWN, size, of_maps)
    assert said == SAID | (set() if size == ANY else {"porter writes no layer of MXNet for a rearrange"})
    assert plan.only_size == (None if size == ANY else SIZE)
    assert len(list(expect_every_op(framework, KNOWN, graph, plan))) == (2 if size == ANY else 1)


@needs_mxnet
@AT_SIZES
def test_mxnet_computes_the_same_of_the_files(size: Size, of_maps: Any, tmp_path: Path) -> None:
    graph, plan, _ = sayable_plan(framework, KNOWN, size, of_maps)
    tensors = tensors_of(graph)
    framework.write(tmp_path, plan, tensors, {}, "float32", {"porter.zoo": "gluon"})
    for at in [SIZE] if plan.only_size else [SIZE, (10, 9)]:
        batch = images(at).astype(np.float32)
        wanted = evaluate(graph, tensors, batch.astype(np.float64))
        found = dict(zip(plan.graph.outputs, run_symbol(tmp_path, batch), strict=True))
        assert not {
            path: value.shape for path, value in found.items() if difference(value, wanted[path]) > ROUNDED
        }


def test_the_files_are_read_back(tmp_path: Path) -> None:
    expect_read_back(framework, KNOWN, tmp_path)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (LayerNorm(1e-6), "porter writes no layer of MXNet for a layer norm"),
        (
            Rearrange("c h w -> (h w) c"),
            "porter writes maps and features for MXNet, not arrays of other axes",
        ),
    ],
)
def test_what_mxnet_lacks_is_refused_with_its_node(op: Op, said: str) -> None:
    expect_refused(framework, op, said)

"""A small variant of every recipe to MXNet: its symbol, and under `full`, in each zoo, what MXNet
computes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.frameworks.mxnet.destination import DESTINATION as mxnet
from porter.recipe import find_recipe
from tests.support.frameworks.small_variants import (
    WITHOUT_LAYER_NORMS,
    by_torch,
    expect_spelled,
    plans,
    small,
)
from tests.support.mxnet_runs import needs_mxnet, run_symbol
from tests.support.random_graphs import difference
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors


def test_every_recipe_has_a_symbol_but_those_with_layer_norms() -> None:
    expect_spelled(lambda plan: mxnet.net(plan).nodes, mxnet)


@needs_mxnet
@pytest.mark.parametrize("architecture", WITHOUT_LAYER_NORMS)
def test_mxnet_computes_a_ports_function(architecture: str, tmp_path: Path) -> None:
    for member in small(find_recipe(architecture)):
        name, zoo = member.variant, member.zoo.name
        graph, tensors = standin_graph(name, zoo), standin_tensors(name, zoo)
        for plan, sizes in plans(graph, member.native_size(), mxnet):
            for size in sizes:
                images = smooth_images(graph.channels, size, 5, 2)
                wanted, rounded = (
                    by_torch(graph, tensors, images, dtype) for dtype in ("float64", "float32")
                )
                assert wanted.std(0).mean() > 0.01 * np.abs(wanted).mean()
                limits: dict[Dtype, float] = {
                    "float64": 1e-10,
                    "float32": max(1e-5, 4 * difference(rounded, wanted)),
                }
                for dtype, limit in limits.items():
                    mxnet.write(tmp_path, plan, tensors, {}, dtype, {})
                    (found,) = run_symbol(tmp_path, images, dtype)
                    assert difference(found, wanted) <= limit, (name, zoo, size, dtype)

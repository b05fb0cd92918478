"""A small variant of every recipe to MXNet: its symbol, and under `full`, in each zoo, what MXNet
computes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.frameworks.mxnet.destination import DESTINATION as mxnet
from tests.support.frameworks.small_variants import WITHOUT_LAYER_NORMS, cases, expect_spelled
from tests.support.mxnet_runs import needs_mxnet, run_symbol
from tests.support.random_graphs import difference


def test_every_recipe_has_a_symbol_but_those_with_layer_norms() -> None:
    expect_spelled(lambda plan: mxnet.make_net(plan).nodes, mxnet)


@needs_mxnet
@pytest.mark.parametrize("architecture", WITHOUT_LAYER_NORMS)
def test_mxnet_computes_a_ports_function(architecture: str, tmp_path: Path) -> None:
    for case in cases(architecture, mxnet):
        for dtype, limit in case.limits.items():
            mxnet.write(tmp_path, case.plan, case.tensors, {}, dtype, {})
            (found,) = run_symbol(tmp_path, case.images, dtype)
            assert difference(found, case.wanted) <= limit, (case.name, dtype)

"""Modules of MLX as evaluations run them."""

from __future__ import annotations

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.base.ways_to_run import FP32, Run
from porter.data.preparing import normalise
from porter.frameworks.mlx.destination import DESTINATION as framework
from porter.graph import INPUT, Graph, Identity, Node
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of

PLAN = make_plan(Graph((Node("shown", Identity(), (INPUT,)),), 3, "shown"), ANY, framework.CAPABILITIES)


@pytest.mark.parametrize("crops", [1, 10])
def test_pixels_are_scaled_as_porter_data_does(crops: int) -> None:
    model = framework.ENGINE.build(PLAN, {}, {}, "float32")
    for protocol in PROTOCOLS:
        pixels = pixels_of(protocol, photos=3, crops=crops)
        got = framework.ENGINE.classifier(model, protocol, "cpu", FP32)(pixels)()
        wanted = normalise(pixels, protocol).reshape(3 * crops, -1)
        assert got.dtype == np.float32 and np.array_equal(got, wanted)


def test_what_mlx_does_not_run_in_is_refused() -> None:
    model = framework.ENGINE.build(PLAN, {}, {}, "float32")
    with pytest.raises(UsageError, match="in fp32"):
        framework.ENGINE.classifier(model, PROTOCOLS[0], "cpu", Run("bf16"))

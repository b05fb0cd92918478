"""A small variant of every recipe to Caffe: its net, and under `full`, in each zoo, what OpenCV computes of
the files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from porter.frameworks.caffe.destination import DESTINATION as caffe
from tests.roads.frameworks.caffe.test_every_op import opencv
from tests.support.frameworks.small_variants import WITHOUT_LAYER_NORMS, cases, expect_spelled
from tests.support.random_graphs import difference


def test_every_recipe_has_a_net_but_those_with_layer_norms() -> None:
    expect_spelled(lambda plan: caffe.make_net(plan).layers, caffe)


@pytest.mark.full
@pytest.mark.parametrize("architecture", WITHOUT_LAYER_NORMS)
def test_opencv_computes_a_ports_function(architecture: str, tmp_path: Path) -> None:
    for case in cases(architecture, caffe):
        head = caffe.make_net(case.plan).values[case.plan.graph.output]
        facts = {"porter.native_size": json.dumps(case.images.shape[2:])}
        caffe.write(tmp_path, case.plan, case.tensors, {}, "float32", facts)
        found = opencv(tmp_path, case.images, [head])[head]
        assert difference(found.reshape(case.wanted.shape), case.wanted) <= case.limits["float32"], case.name

"""A small variant of every recipe to Caffe: its net, and under `full`, in each zoo, what OpenCV computes of
the files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from porter.frameworks.caffe.destination import DESTINATION as caffe
from porter.recipe import find_recipe
from tests.roads.frameworks.caffe.test_every_op import opencv
from tests.support.frameworks.small_variants import (
    WITHOUT_LAYER_NORMS,
    by_torch,
    expect_spelled,
    plans,
    small,
)
from tests.support.random_graphs import difference
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors


def test_every_recipe_has_a_net_but_those_with_layer_norms() -> None:
    expect_spelled(lambda plan: caffe.net(plan).layers, caffe)


@pytest.mark.full
@pytest.mark.parametrize("architecture", WITHOUT_LAYER_NORMS)
def test_opencv_computes_a_ports_function(architecture: str, tmp_path: Path) -> None:
    for member in small(find_recipe(architecture)):
        name, zoo = member.variant, member.zoo.name
        graph, tensors = standin_graph(name, zoo), standin_tensors(name, zoo)
        for plan, sizes in plans(graph, member.native_size(), caffe):
            head = caffe.net(plan).values[graph.output]
            for size in sizes:
                caffe.write(tmp_path, plan, tensors, {}, "float32", {"porter.native_size": json.dumps(size)})
                images = smooth_images(graph.channels, size, 5, 2)
                wanted, rounded = (
                    by_torch(graph, tensors, images, dtype) for dtype in ("float64", "float32")
                )
                assert wanted.std(0).mean() > 0.01 * np.abs(wanted).mean()
                found = opencv(tmp_path, images, [head])[head]
                limit = max(1e-5, 4 * difference(rounded, wanted))
                assert difference(found.reshape(wanted.shape), wanted) <= limit, (name, zoo, size)

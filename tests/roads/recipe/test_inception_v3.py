"""The recipe of Inception v3: what torchvision does to its input, and what averages divide by."""

import numpy as np
import pytest
import torch

from porter.frameworks import get_destination
from porter.graph import Affine, AvgPool, Graph
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention
from porter.recipe import Member, expand, find_recipe
from porter.zoos.torchvision import import_models
from tests.support.recipe.stock import read

RECIPE = find_recipe("inception_v3")
ZOOS = tuple(RECIPE.zoos)


def test_what_torchvision_does_to_its_input_is_a_node() -> None:
    node = read("inception_v3", "torchvision")[1].nodes[0]
    assert isinstance(node.op, Affine)
    assert not any(
        "transform_input" in read("inception_v3", zoo)[1].by_path for zoo in ZOOS if zoo != "torchvision"
    )
    batch = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    with torch.device("meta"):
        stock = import_models().inception_v3(weights=None, init_weights=False, transform_input=True)
    wanted = stock._transform_input(torch.from_numpy(batch)).numpy()
    framework, graph = get_destination("torch"), Graph((node,), 3, node.path)
    model = framework.ENGINE.build(make_plan(graph, ANY, framework.CAPABILITIES), {}, {}, "float64", "cpu")
    assert np.array_equal(framework.ENGINE.run(model, batch, [node.path])[node.path], wanted)


@pytest.mark.parametrize("zoo", ZOOS)
def test_averages_divide_by_real_cells_only_in_tensorflow(zoo: str) -> None:
    found = RECIPE.zoo(zoo, "inception_v3")
    conventions = []
    for as_trained in (False, True):
        graph = expand(Member(RECIPE, "inception_v3", found), as_trained=as_trained)
        pools = [node.op.convention for node in graph.nodes if isinstance(node.op, AvgPool)]
        assert len(pools) == 9 and len(set(pools)) == 1
        conventions.append(pools[0])
    real, full = (Convention("same", average=average) for average in ("real_cells", "full_window"))
    assert conventions == ([real, real] if found.framework == "tf" else [full, real])

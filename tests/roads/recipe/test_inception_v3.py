"""The recipe of Inception v3 against keras.applications, slim, torchvision and timm."""

from typing import Any

import numpy as np
import pytest
import torch

from porter.frameworks import get_destination
from porter.frameworks.tf.runtime import import_keras
from porter.graph import Affine, AvgPool, BatchNorm, Graph, tensor_shapes
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention
from porter.recipe import Member, expand, find_recipe, tap_names
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from tests.support.recipe.stock import assert_kerass, assert_slims, assert_torchs, read

RECIPE = find_recipe("inception_v3")
ZOOS = tuple(RECIPE.zoos)


def test_every_layer_is_kerass_whatever_its_number() -> None:
    keras = import_keras()
    for layer in (keras.layers.Conv2D(1, 1), keras.layers.BatchNormalization()):
        assert layer.name  # has been given a number, from which the model counts on
    assert_kerass("inception_v3", keras.applications.InceptionV3(weights=None))


def test_every_variable_is_slims() -> None:
    assert_slims("inception_v3")


@pytest.mark.parametrize(
    ("zoo", "model"),
    [
        ("torchvision", lambda: import_models().inception_v3(weights=None, init_weights=False)),
        ("timm", lambda: import_timm().inception_v3(aux_logits=True)),
    ],
)
def test_every_tensor_is_torchs(zoo: str, model: Any) -> None:
    with torch.device("meta"):
        stock = model()
    recipe, graph, _ = read("inception_v3", zoo)
    taps = tap_names(recipe.member("inception_v3", zoo), graph)
    assert_torchs("inception_v3", zoo, stock, dict(taps), "AuxLogits.")


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


@pytest.mark.parametrize("zoo", ZOOS)
def test_torchs_norms_have_gammas_and_tensorflows_have_none(zoo: str) -> None:
    _, graph, _ = read("inception_v3", zoo)
    norms = [
        roles for path, roles in tensor_shapes(graph).items() if isinstance(graph.by_path[path].op, BatchNorm)
    ]
    assert len(norms) == 94 and all(
        ("gamma" in roles) == (RECIPE.zoos[zoo].framework != "tf") for roles in norms
    )


def test_parameters_are_as_many_as_keras_counts() -> None:
    _, graph, _ = read("inception_v3", "keras")  # of keras.io's table
    assert (
        sum(int(np.prod(shape)) for roles in tensor_shapes(graph).values() for shape in roles.values())
        == 23_851_784
    )

"""The recipe of the pre-activation ResNets against keras.applications and slim."""

from math import prod
from typing import Any

import pytest

from porter.base.errors import UsageError
from porter.frameworks.tf.runtime import import_keras
from porter.graph import Conv, Graph, MaxPool, tensor_shapes
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe
from tests.support.ops import op_at
from tests.support.recipe.stock import assert_kerass, assert_slims, read

RECIPE = find_recipe("resnet_v2")
DEEPER = ("resnet101v2", "resnet152v2")


def keras_model(variant: str) -> Any:
    name = variant.replace("resnet", "ResNet").replace("v2", "V2")
    return getattr(import_keras().applications, name)(weights=None)


def strided(graph: Graph) -> list[str]:
    return [
        node.path
        for node in graph.nodes
        if isinstance(node.op, Conv | MaxPool) and max(node.op.window.stride) > 1 and "/" in node.path
    ]


def test_every_layer_is_kerass() -> None:
    assert_kerass("resnet50v2", keras_model("resnet50v2"))


@pytest.mark.full
@pytest.mark.parametrize("variant", DEEPER)
def test_every_layer_of_the_deeper_ones_is_kerass(variant: str) -> None:
    assert_kerass(variant, keras_model(variant))


def test_every_variable_is_slims() -> None:
    assert_slims("resnet50v2")


@pytest.mark.full
@pytest.mark.parametrize("variant", [*DEEPER, "resnet200v2"])
def test_every_variable_of_the_deeper_ones_is_slims(variant: str) -> None:
    assert_slims(variant)


@pytest.mark.parametrize(
    ("variant", "parameters"),
    [("resnet50v2", 25_613_800), ("resnet101v2", 44_675_560), ("resnet152v2", 60_380_648)],
)
def test_parameters_are_as_many_as_keras_counts(variant: str, parameters: int) -> None:
    _, graph, _ = read(variant, "keras")  # of keras.io's table
    sizes = [shape for roles in tensor_shapes(graph).values() for shape in roles.values()]
    assert sum(map(prod, sizes)) == parameters


def test_the_stride_is_in_the_last_unit_of_a_stage_but_the_last() -> None:
    _, graph, _ = read("resnet50v2", "keras")
    units = ("stage1/unit3", "stage2/unit4", "stage3/unit6")
    assert strided(graph) == [
        "stem/conv",
        "stem/pool",
        *(f"{unit}/{node}" for unit in units for node in ("shortcut", "conv2")),
    ]


def test_keras_pads_its_pool_with_zeros_and_was_trained_without() -> None:
    member = RECIPE.member("resnet50v2", "keras")
    shipped, trained = (expand(member, as_trained=known) for known in (False, True))
    slims = read("resnet50v2", "slim")[1]
    assert [op_at(graph, "stem/pool").convention for graph in (shipped, trained, slims)] == [
        Convention("explicit", (1, 1, 1, 1), 0.0),
        Convention("same", fill=LOWEST),
        Convention("same", fill=LOWEST),
    ]
    different = [a.path for a, b in zip(shipped.nodes, trained.nodes, strict=True) if a != b]
    assert different == ["stem/pool"]


def test_without_biases() -> None:
    graph = expand(RECIPE.member("resnet50v2", "slim"), {"biases": False})
    assert not any(node.op.bias for node in graph.nodes if isinstance(node.op, Conv))


def test_keras_has_no_200v2_and_slim_publishes_none() -> None:
    deep = find_recipe("resnet200v2")
    assert deep.architecture == "resnet200v2" and list(deep.zoos_of("resnet200v2")) == ["slim", "tensornets"]
    with pytest.raises(UsageError, match="zoo 'keras', the default of 'tf', has no 'resnet200v2'"):
        deep.zoo("tf", "resnet200v2")
    assert not deep.zoo("slim", "resnet200v2").files

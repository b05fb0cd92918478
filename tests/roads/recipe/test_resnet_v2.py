"""The recipe of the pre-activation ResNets: its pads as shipped and as trained, and its facts."""

import pytest

from porter.base.errors import UsageError
from porter.graph import Conv
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe
from tests.support.ops import op_at
from tests.support.recipe.stock import read

RECIPE = find_recipe("resnet_v2")


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

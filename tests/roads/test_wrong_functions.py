"""What is known to go wrong in ports of ResNet v2 and Inception v3, put in on purpose, must show and be
named.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from porter.frameworks import get_destination
from porter.graph import BatchNorm, Graph
from porter.graph.plan import make_plan
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe
from porter.verification.parity import compare
from porter.verification.references.own_build import OwnBuild
from porter.verification.results import Parity
from tests.support.parity import Remembered
from tests.support.standin_files import make_batch, standin_graph, standin_tensors, with_convention

pytestmark = pytest.mark.usefixtures("in_double")

RESNET, INCEPTION = ("resnet50v2", "keras"), ("inception_v3", "torchvision")
AVERAGES = [f"mixed{block}/pool" for block in ("5b", "5c", "5d", "6b", "6c", "6d", "6e", "7b", "7c")]
IN_CI = ("mixed5b/pool", "mixed6b/pool", "mixed7b/pool", "mixed7c/pool")
"""The first at each size of map, and the last."""


@lru_cache(maxsize=1)  # all its values are large
def right_function(variant: str, zoo: str) -> Remembered:
    return Remembered(
        OwnBuild(get_destination("torch"), standin_graph(variant, zoo), standin_tensors(variant, zoo))
    )


def put_in(variant: str, zoo: str, change: Callable[[Graph], Graph], size: tuple[int, int]) -> Parity:
    torch = get_destination("torch")
    right, tensors = standin_graph(variant, zoo), standin_tensors(variant, zoo)
    plan = make_plan(change(right), size, torch.CAPABILITIES)
    model = torch.ENGINE.build(plan, tensors, {}, "float64", "cpu")
    batch = make_batch(size, 2, 3, find_recipe(variant).zoo(zoo, variant).preprocess)
    return compare(
        plan,
        right_function(variant, zoo),
        lambda batch, dtype, paths: torch.ENGINE.run(model, batch, [*paths]),
        {"float64": [batch]},
    )[0]


# On an even map 'same' shifts every window; on an odd one it is only the fill that differs.
@pytest.mark.parametrize("size", [(96, 96), (97, 129)], ids=["even", "odd"])
@pytest.mark.parametrize(
    "convention",
    [Convention("explicit", (1, 1, 1, 1), LOWEST), Convention("same", fill=LOWEST)],
    ids=["lowest", "same"],
)
def test_what_fills_the_pad_of_resnets_pool(convention: Convention, size: tuple[int, int]) -> None:
    found = put_in(*RESNET, lambda graph: with_convention(graph, "stem/pool", convention), size)
    assert found.logits.rel_l2 >= 1e-3 and not found.ok
    assert found.first_bad is not None and found.first_bad.path == found.first_bad.site == "stem/pool"
    assert found.first_bad.source == str(convention)


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=() if path in IN_CI else pytest.mark.full) for path in AVERAGES]
)
def test_what_inceptions_averages_divide_by(path: str) -> None:
    convention = Convention("same", average="real_cells")
    found = put_in(*INCEPTION, lambda graph: with_convention(graph, path, convention), (107, 96))
    assert found.logits.rel_l2 >= 1e-3 and not found.ok
    assert found.first_bad is not None and found.first_bad.path == found.first_bad.site == path


def with_epsilon(graph: Graph, epsilon: float) -> Graph:
    return replace(
        graph,
        nodes=tuple(
            replace(node, op=replace(node.op, epsilon=epsilon)) if isinstance(node.op, BatchNorm) else node
            for node in graph.nodes
        ),
    )


@pytest.mark.parametrize(
    ("case", "epsilon", "first"),
    [
        (INCEPTION, 1e-5, "conv1a_3x3/bn"),
        (RESNET, 1e-3, "stage1/unit1/preact/norm"),
        (RESNET, 1e-5, "stage1/unit1/preact/norm"),
    ],
    ids=["inception", "resnet", "resnet, slim's"],
)
def test_epsilons(case: tuple[str, str], epsilon: float, first: str) -> None:
    found = put_in(*case, lambda graph: with_epsilon(graph, epsilon), (107, 96))
    assert not found.ok and found.first_bad is not None and found.first_bad.path == first


def strided_on_the_3x3(_: Graph) -> Graph:
    """As torchvision's ResNet strides: every tensor of Keras's fits."""
    recipe = find_recipe("resnet50")
    return expand(recipe.member("resnet50", "keras"), {"stride_on": "first_3x3"})


def test_where_a_bottleneck_strides() -> None:
    found = put_in("resnet50", "keras", strided_on_the_3x3, (97, 65))
    assert found.logits.rel_l2 >= 1e-3 and not found.ok
    assert found.first_bad is not None and found.first_bad.path == "stage2/unit1/conv1"


def test_the_right_functions_pass() -> None:
    for case in (RESNET, INCEPTION):
        found = put_in(*case, lambda graph: graph, (107, 96))
        assert found.ok and found.logits.rel_l2 == 0

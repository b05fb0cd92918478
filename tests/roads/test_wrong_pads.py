"""Every known wrong pad, put in on purpose, must show: it moves the logits and is named."""

from functools import cache, lru_cache

import pytest

from porter.data.preprocess import Preprocess
from porter.frameworks import get_destination
from porter.graph import site_of
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention
from porter.recipe import find_recipe
from porter.verification.parity import compare
from porter.verification.references.own_build import OwnBuild
from porter.verification.results import Parity
from porter.verification.sizes import small_sizes
from tests.support.parity import Remembered
from tests.support.standin_files import (
    make_batch,
    standin_graph,
    standin_tensors,
    strided_sites,
    with_convention,
)

SAME, SYMMETRIC = Convention("same"), Convention("explicit", (1, 1, 1, 1))
WRONG = [
    ("mobilenet_v1_0.25", "keras", SYMMETRIC),
    ("mobilenet_v1_0.25", "keras", SAME),  # only an odd map tells it from Keras's (0,1)
    ("mobilenet_v2_0.35", "keras", SYMMETRIC),
    ("mobilenet_v2_0.35", "torchvision", SAME),
    ("resnet18", "torchvision", SAME),
]

Case = tuple[str, str, str, Convention]


def cases() -> list[Case]:
    every = [(*case[:2], path, case[2]) for case in WRONG for path in strided_sites(standin_graph(*case[:2]))]
    return [case for case in every if site_convention(*case[:3]) != case[3]]


def test_every_strided_site_of_every_zoo_has_its_wrong_pad() -> None:
    assert {case[:3] for case in cases()} == {
        (variant, zoo, path)
        for variant, zoo, _ in WRONG
        for path in strided_sites(standin_graph(variant, zoo))
    }
    assert {case[2] for case in cases() if case[3] == SAME and case[0] == "mobilenet_v1_0.25"} == {
        f"block{i}/depthwise/conv" for i in (1, 3, 5, 11)
    }


def site_convention(variant: str, zoo: str, path: str) -> Convention:
    site = site_of(standin_graph(variant, zoo).by_path[path].op)
    assert site is not None
    return site.convention


@cache
def protocol(variant: str, zoo: str) -> Preprocess | None:
    return find_recipe(variant).zoo(zoo, variant).preprocess


@lru_cache(maxsize=1)
def right_pads(variant: str, zoo: str) -> Remembered:
    return Remembered(
        OwnBuild(get_destination("torch"), standin_graph(variant, zoo), standin_tensors(variant, zoo))
    )


def put_in(variant: str, zoo: str, path: str, convention: Convention) -> Parity:
    """The comparison at the sizes that a check takes."""
    torch = get_destination("torch")
    right, tensors = standin_graph(variant, zoo), standin_tensors(variant, zoo)
    plan = make_plan(with_convention(right, path, convention), ANY, torch.CAPABILITIES)
    model = torch.ENGINE.build(plan, tensors, {}, "float64", "cpu")
    batches = [
        make_batch(size, 2, 3, protocol(variant, zoo))
        for size in small_sizes(right, find_recipe(variant).native_size())
    ]
    paths = [node.path for node in right.nodes]
    return compare(
        plan,
        right_pads(variant, zoo),
        lambda b, d, p: torch.ENGINE.run(model, b, paths),
        {"float64": batches},
    )[0]


def at_an_end() -> set[Case]:
    """The first and the last case of each variant, zoo and wrong pad; `full` has those between them too."""
    last = {(variant, zoo, wrong): path for variant, zoo, path, wrong in cases()}
    first = {(variant, zoo, wrong): path for variant, zoo, path, wrong in reversed(cases())}
    return {(*key[:2], path, key[2]) for ends in (first, last) for key, path in ends.items()}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in at_an_end() else pytest.mark.full) for case in cases()],
    ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}-{case[3]}".replace("/", "."),
)
def test_a_wrong_pad_moves_the_logits_and_is_named(case: Case) -> None:
    found = put_in(*case)
    assert found.logits.rel_l2 >= 1e-3
    assert not found.ok and found.first_bad is not None
    assert found.first_bad.path == found.first_bad.site == case[2]
    assert found.first_bad.source == str(case[3])

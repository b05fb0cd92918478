"""Which cases a study has, over the graphs of the recipes themselves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from porter.base.errors import GraphError
from porter.evaluation.padding_study.cases import (
    Change,
    Setting,
    Trial,
    asymmetric,
    first_round,
    same_windows,
    select_trials,
    single_changes,
    site_at,
    strided_sites,
    symmetric,
    with_changes,
)
from porter.frameworks import get_destination
from porter.graph.pads import with_conventions
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe, trained_conventions

SAME, ONE = Convention("same"), Convention("explicit", (1, 1, 1, 1))


def setting(variant: str, zoo: str, size: int = 224) -> Setting:
    recipe = find_recipe(variant)
    return Setting(expand(recipe.member(variant, zoo)), (size, size), get_destination("torch").CAPABILITIES)


def of_training(variant: str, zoo: str) -> Mapping[str, Convention]:
    recipe = find_recipe(variant)
    return trained_conventions(recipe.member(variant, zoo))


def names(where: Setting, trained: Mapping[str, Convention] | None = None) -> list[str]:
    return [
        trial.name
        for trial in select_trials(where, (), first_round(where.graph, trained or {}), "name").trials
    ]


def test_strided_sites_are_windows_that_overlap_or_leap() -> None:
    sites = strided_sites(setting("resnet50v2", "keras").graph)
    # The 1x1 shortcuts are strided too, but a window of one cell is never padded.
    assert sites == (
        "stem/conv",
        "stem/pool",
        "stage1/unit3/conv2",
        "stage2/unit4/conv2",
        "stage3/unit6/conv2",
    )


def test_conventions_of_a_site() -> None:
    graph = setting("resnet50v2", "keras").graph
    pool, conv = site_at(graph, "stem/pool"), site_at(graph, "stem/conv")
    assert pool.convention.fill == 0
    assert asymmetric(pool) == Convention("same", fill=LOWEST) and asymmetric(conv) == SAME
    assert symmetric(pool) == Convention("explicit", (1, 1, 1, 1), fill=LOWEST)
    assert symmetric(conv) == Convention("explicit", (3, 3, 3, 3))
    with pytest.raises(GraphError, match="not a padding site"):
        site_at(graph, "head/norm")


@pytest.mark.parametrize(
    ("variant", "zoo", "size", "expected"),
    [
        ("mobilenet_v2", "torchvision", 224, ["as shipped = symmetric", "asymmetric"]),
        ("mobilenet_v2", "keras", 224, ["as shipped = asymmetric", "symmetric"]),
        ("mobilenet_v1", "slim", 224, ["as shipped = asymmetric", "symmetric"]),
        # Every map is odd: SAME pads both sides alike.
        ("mobilenet_v2", "torchvision", 225, ["as shipped = asymmetric = symmetric"]),
        # Zeros or -inf around the pool behind a ReLU are one; slim pads its convolutions alike and pools by
        # SAME.
        ("resnet50", "keras", 224, ["as shipped = symmetric", "asymmetric"]),
        ("resnet50", "slim", 224, ["as shipped", "asymmetric", "symmetric"]),
    ],
)
def test_shipped_pads_that_are_a_convention_at_this_size_go_by_both_names(
    variant: str, zoo: str, size: int, expected: list[str]
) -> None:
    assert names(setting(variant, zoo, size)) == expected


def test_pads_of_training_are_a_case() -> None:
    where, trained = setting("resnet50v2", "keras"), of_training("resnet50v2", "keras")
    assert names(where, trained) == ["as shipped", "asymmetric", "symmetric", "as trained"]
    assert where.differences(first_round(where.graph, trained)[3]) == {"stem/pool": "same, -inf"}


def test_each_site_has_what_it_is_not_and_no_case_comes_twice() -> None:
    where = setting("resnet50v2", "keras")
    first = select_trials(where, (), first_round(where.graph, {}), "name").trials
    changes = list(single_changes(where.graph, first[0]))
    found = select_trials(
        where, first, [with_changes(first[0], [change]) for change in changes], "drop"
    ).trials[len(first) :]
    assert [trial.name.removeprefix("as shipped, but ") for trial in found] == [
        "stem/conv same",
        "stem/pool same, -inf",
        "stem/pool same",
        "stage1/unit3/conv2 same",
        "stage2/unit4/conv2 same",
        "stage3/unit6/conv2 same",
    ]
    # -inf only at the pool is `symmetric` itself, which has been run.
    assert "stem/pool 1, -inf" in map(str, changes)


def test_pool_behind_a_relu_is_not_tried_with_both_fills() -> None:
    where = setting("resnet50", "keras")
    shipped = Trial(("as shipped",), {})
    pool = [
        with_changes(shipped, [change])
        for change in single_changes(where.graph, shipped)
        if change.path == "stem/pool"
    ]
    assert len(pool) == 6 and len(select_trials(where, [shipped], pool, "drop").trials) == 2


def test_maps_that_no_longer_fit_are_told() -> None:
    where = setting("resnet18", "torchvision")
    shipped = Trial(("as shipped",), {})
    narrow = with_changes(shipped, [Change("stage2/unit1/conv1", Convention())])
    found = select_trials(where, [shipped], [narrow], "tell")
    assert found.trials == (shipped,)
    assert found.skipped == {narrow.name: "stage2/unit1/add: cannot add shapes 128x28x28, 128x27x27"}


def test_twins_lend_their_names_are_told_or_dropped() -> None:
    where = setting("mobilenet_v2", "torchvision")
    shipped = Trial(("as shipped",), {})
    twin = with_changes(shipped, [Change("stem/conv", ONE)])
    assert select_trials(where, [shipped], [twin], "name").trials == (Trial(("as shipped", twin.name), {}),)
    assert select_trials(where, [shipped], [twin], "tell").skipped == {
        twin.name: "at this size it has the windows of 'as shipped'"
    }
    dropped = select_trials(where, [shipped], [twin], "drop")
    assert dropped.trials == (shipped,) and not dropped.skipped


def test_windows_are_compared_where_they_are() -> None:
    where = setting("mobilenet_v2", "torchvision")
    same = with_conventions(where.graph, {"stem/conv": SAME})
    assert not same_windows(where.graph, same, (224, 224)) and same_windows(where.graph, same, (225, 225))
    # One row of the two is not enough, and maps of another size do not fit.
    assert not same_windows(where.graph, same, (225, 224))
    assert not same_windows(
        where.graph, with_conventions(where.graph, {"stem/conv": Convention()}), (224, 224)
    )

"""Recipes that add variants, options and zoos to another one."""

from pathlib import Path

import pytest

from porter.authoring.check.recipe_check import check_recipe
from porter.base.errors import RecipeError, UsageError
from porter.recipe import Member, declared_recipes, expand, find_recipe, layer_names
from tests.support.checkout import ROOT
from tests.support.recipe.recipes import VALID, line_of, use, write

PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
MORE = PAGE[PAGE.index("extends: resnet_v1\n") :].partition("```")[0]


def test_a_zoo_and_a_variant_are_added_to_one_of_porters_recipes(tmp_path: Path) -> None:
    path, shipped = write(tmp_path, MORE, "more.yaml"), find_recipe("resnet_v1")
    recipe = find_recipe("resnet26", tmp_path)
    assert recipe.path == path and recipe.architecture == "resnet_v1"
    mine = recipe.zoo("mine", "resnet26")
    graph = expand(Member(recipe, "resnet26", mine))
    names = layer_names(Member(recipe, "resnet26", mine), graph)
    assert (names["head/logits"].name, names["stage4/unit2/conv3"].name) == ("top", "layer4.1.conv3")
    assert (
        mine.preprocess is not None
        and mine.preprocess.size == 232
        and mine.files["resnet26"].name == "26.pth"
    )
    again = find_recipe("resnet50", tmp_path)
    assert list(again.zoos_of("resnet50")) == [*shipped.zoos, "mine"] and list(
        recipe.zoos_of("resnet26")
    ) == ["mine"]
    for zoo in ("torchvision", "keras"):
        theirs = expand(shipped.member("resnet50", zoo))
        assert expand(again.member("resnet50", zoo)) == theirs
    with pytest.raises(UsageError, match="zoo 'torchvision' has no 'resnet26'"):
        again.zoo("torchvision", "resnet26")
    assert not check_recipe(path).errors
    assert find_recipe("resnet_v1").path == shipped.path


def test_it_stands_for_the_recipe_that_it_extends(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    write(
        tmp_path,
        "extends: tiny\nvariants: {tinier: {width: 4, depths: [1, 1]}}\nzoos: {away: {extends: home, "
        "only: [tinier]}}\n",
        "also.yaml",
    )
    write(tmp_path, "extends: tiny\nzoos: {far: {extends: away}}\n", "a.yaml")
    found = [
        recipe
        for recipe in declared_recipes(tmp_path, with_zoos=True)
        if recipe.path.parent == tmp_path and recipe.names
    ]
    assert [(recipe.path.name, recipe.variants, recipe.zoos) for recipe in found] == [
        ("a.yaml", ("tiny", "tiny_wide", "tinier"), ("home", "away", "far"))
    ]
    assert use(find_recipe("tinier", tmp_path), "tinier", "far") and use(
        find_recipe("tiny", tmp_path), "tiny", "home"
    )


def test_recipes_that_extend_each_other_have_no_graph(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: b\n", "a.yaml")
    other = write(tmp_path, "extends: a\n", "b.yaml")
    (error,) = check_recipe(path).errors
    assert (
        str(error)
        == f"{path}:1:10: a extends b extends a: none of them has a graph (write architecture, input and "
        "graph in one of them)"
    )
    write(tmp_path, "extends: resnet_v1\n", "b.yaml")
    (error,) = check_recipe(path).errors
    assert (
        error.message == "there is no architecture 'b' to extend: b.yaml extends 'resnet_v1'"
        and error.next == "write extends: resnet_v1"
    )
    assert not check_recipe(other).errors


@pytest.mark.parametrize(
    ("base", "place"),
    [
        ("zoos: [", "tiny.yaml:2:1"),
        ("architecture: tiny\nzoos: [", "more.yaml:1:10"),
        (VALID.replace("graph:", "graf:"), "tiny.yaml:7:1"),
    ],
)
def test_an_error_of_the_other_recipe_does_not_hide_ones_own(base: str, place: str, tmp_path: Path) -> None:
    write(tmp_path, base)
    path = write(tmp_path, "extends: tiny\nzoos: {mine: {extends: home, naems: {}}}\n", "more.yaml")
    own, *others = check_recipe(path).errors
    assert own.where == f"{path}:2:30" and "'naems'" in own.message
    if not base.startswith("zoos"):
        assert [other.where for other in others] == [str(tmp_path / place)] and "tiny.yaml" in str(others[0])


@pytest.mark.parametrize(
    ("text", "line", "message", "advice"),
    [
        (
            "extends: resnet_v9\nvariants: {a: {}}\n",
            1,
            "no architecture 'resnet_v9' to extend",
            "did you mean 'resnet_v",
        ),
        (
            "extends: resnet_v1\nzoos: {slim: {framework: tf}}\n",
            2,
            "'slim' is in resnet_v1.yaml too",
            "another name",
        ),
        ("extends: resnet_v1\nvariants:\n  resnet50: {}\n", 3, "'resnet50' is in", "another name"),
        ("extends: resnet_v1\ngraph: [{relu: a}]\n", 2, "no key 'graph' here", ""),
        ("extends: resnet_v1\nvariants: {resnet26: {layers: 26}}\n", 2, "no zoo has 'resnet26'", "'only'"),
        (
            "extends: resnet_v1\nzoos: {mine: {extends: slim, names: {stem/cnv: a}}}\n",
            2,
            "matches no node",
            "stem/conv",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, line: int, message: str, advice: str) -> None:
    path = write(tmp_path, text, "more.yaml")
    error = check_recipe(path).errors[0]
    assert isinstance(error, RecipeError) and message in error.message and advice in (error.next or "")
    assert line_of(error) == f"{path}:{line}"

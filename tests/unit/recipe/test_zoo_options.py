"""`--option`: what may be set, how it is written, and what a zoo is then."""

from pathlib import Path

import pytest

from porter.base.errors import UsageError
from porter.cli.arguments import split_settings
from porter.graph import BatchNorm
from porter.recipe import Recipe, choose_options, expand, find_member, load_recipe, with_options
from porter.recipe.expressions import Value
from tests.support.recipe.recipes import VALID, write


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    text = VALID.replace("stem_pool: true}", "stem_pool: true, depth: 2, style: plain, row: [1, 2]}")
    old = (
        "    generations: {old: {names: {head/logits: last}, options: {bn_epsilon: 2.0e-3, style: olden}}}\n"
    )
    return load_recipe(write(tmp_path, text.replace("    weights:", f"{old}    weights:")))


CHOSEN: list[tuple[str, Value, Value]] = [
    ("stem_pool", "false", False),
    ("stem_pool", False, False),
    ("depth", "3", 3),
    ("bn_epsilon", "1e-5", 1e-5),
    ("bn_epsilon", 1, 1.0),
    ("style", "olden", "olden"),
]
REFUSED: list[tuple[str, Value, str]] = [
    ("stem_pol", "false", "did you mean 'stem_pool'?"),
    ("stem_pool", "no", "'stem_pool' must be true or false, got 'no'"),
    ("stem_pool", 1, "'stem_pool' must be true or false, got '1'"),
    ("depth", True, "'depth' must be a whole number, got 'True'"),
    ("depth", "2.5", "'depth' must be a whole number, got '2.5'"),
    ("bn_epsilon", "nan", "'bn_epsilon' must be a number, got 'nan'"),
    ("style", "olde", "did you mean 'olden'?"),
    ("row", "1", "'row' cannot be set"),
    ("classes", "7", "the file's head says it"),
]


@pytest.mark.parametrize(("name", "given", "value"), CHOSEN)
def test_a_value_has_the_type_of_the_recipes(recipe: Recipe, name: str, given: Value, value: Value) -> None:
    (chosen,) = choose_options(recipe, {name: given}).values()
    assert (chosen, type(chosen)) == (value, type(value))


@pytest.mark.parametrize(("name", "given", "words"), REFUSED)
def test_what_is_no_value_of_an_option_is_refused(
    recipe: Recipe, name: str, given: Value, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        choose_options(recipe, {name: given})
    assert words in str(caught.value) and caught.value.where == "--option"


def test_settings_are_typed_as_name_and_value() -> None:
    assert split_settings(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    for wrong in (["a"], ["a=1", "a=2"]):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            split_settings(wrong)


def test_a_zoo_has_what_was_chosen_in_every_generation(recipe: Recipe) -> None:
    chosen = with_options(
        recipe.member("tiny", "home"), {"bn_epsilon": 0.5, "stem_pool": True, "bn_momentum": 0.2}
    )
    for member in (chosen, chosen.at("old")):
        norm = expand(member).by_path["stem/norm"].op
        assert isinstance(norm, BatchNorm) and norm.epsilon == 0.5
    assert chosen.at("old").zoo.options["style"] == "olden"
    # The others are the recipe's own, or of training only.
    assert dict(chosen.zoo.chosen) == {"bn_epsilon": 0.5}


def test_a_recipe_of_porters_is_told_apart_by_an_option() -> None:
    member = find_member("inception_v3", "torchvision")
    without = expand(with_options(member, {"transform_input": False}))
    assert {node.path for node in expand(member).nodes} - set(without.by_path) == {"transform_input"}

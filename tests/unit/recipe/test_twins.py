"""The twins of porter's own recipes are those of their graphs: all pairs of variants and zoos are
compared.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from porter.recipe import find_member, recipes_folder, twins, with_options
from porter.recipe.twins import FILE, compute_twins, shipped_twins, twins_of
from tests.support.recipe.recipes import all_recipes
from tests.support.twins import PAGE, computed, page, text


def test_the_file_is_beside_these_recipes() -> None:
    member = find_member("mobilenet_v3_small", "timm")
    assert shipped_twins(member), "run python -m tests.support.twins"


@pytest.mark.full
def test_the_file_and_the_page_have_every_pair() -> None:
    found = computed()
    assert {"timm", "timm_tf"} == found["mobilenet_v3.yaml"]["mobilenet_v3_small"].keys()
    assert (recipes_folder() / FILE).read_text(encoding="utf-8") == text(found), (
        "run python -m tests.support.twins"
    )
    assert PAGE.read_text(encoding="utf-8") == page(found), "run python -m tests.support.twins"


def test_an_option_can_make_twins_the_same_function() -> None:
    member = find_member("inception_v3", "torchvision")
    assert {twin.zoo for twin in twins_of(member)} == {"timm", "timm_tf"}
    plain = with_options(member, {"transform_input": False})
    assert shipped_twins(plain) is None and twins_of(plain) == ()


@pytest.mark.parametrize("changed", [True, False])
def test_after_a_change_the_recipes_decide(
    changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(recipes_folder(), tmp_path / "recipes"))
    if changed:
        path = folder / "mobilenet_v1.yaml"
        path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    monkeypatch.setattr(twins, "recipes_folder", lambda: folder)
    member = find_member("mobilenet_v1", "timm")
    member = member._replace(
        recipe=next(recipe for recipe in all_recipes(folder) if recipe.architecture == "mobilenet_v1")
    )
    assert shipped_twins(member) == (None if changed else compute_twins(member))
    assert twins_of(member) == compute_twins(member) != ()

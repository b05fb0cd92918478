from pathlib import Path

import pytest

from porter.errors import RecipeError, UsageError
from porter.frameworks import get_framework
from porter.recipe import all_recipes, find_recipe, recipes_folder
from tests.recipe.recipes import VALID, line_of, write


def test_porters_own_recipes_are_found_and_whole() -> None:
    assert recipes_folder().name == "recipes"
    assert {"mobilenet_v1", "mobilenet_v2"} <= {recipe.architecture for recipe in all_recipes()}
    assert find_recipe("mobilenet_v2_0.35").architecture == "mobilenet_v2"
    assert find_recipe("mobilenet_v1").path == recipes_folder() / "mobilenet_v1.yaml"


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    assert [recipe.architecture for recipe in all_recipes(tmp_path)] == ["tiny"]
    assert find_recipe("tiny_wide", tmp_path).architecture == "tiny"
    write(tmp_path, VALID.replace("architecture: tiny", "architecture: small").replace(" tiny", " small"), "small.yaml")
    assert find_recipe("small", tmp_path).architecture == "small"
    with pytest.raises(UsageError, match="no variant 'tiny_wid'") as caught:
        find_recipe("tiny_wid", tmp_path)
    assert caught.value.next == "did you mean 'tiny_wide'?"


def test_an_edited_recipe_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    assert find_recipe("tiny", tmp_path).native_size() == (32, 32)
    write(tmp_path, VALID.replace("size: 32, ch", "size: [64, 48], ch"))
    assert find_recipe("tiny", tmp_path).native_size() == (64, 48)


def test_folders_without_recipes_and_variants_claimed_twice(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="no recipes"):
            all_recipes(folder)
    write(tmp_path, VALID, "one.yaml")
    write(tmp_path, VALID, "two.yaml")
    with pytest.raises(RecipeError, match=r"a variant of one\.yaml too") as caught:
        find_recipe("tiny", tmp_path)
    assert line_of(caught.value) == f"{tmp_path / 'two.yaml'}:3"


def test_a_framework_is_offered_only_where_its_default_zoo_is() -> None:
    with pytest.raises(UsageError) as caught:
        find_recipe("resnet50v2").zoo("torchvision", "resnet50v2")
    assert caught.value.next == "known are keras, slim, tensornets, tf"


def test_an_architecture_where_a_variant_goes_lists_its_variants() -> None:
    """`porter convert resnet_v1 ...`"""
    with pytest.raises(UsageError, match="'wide_resnet' is an architecture, not a variant") as caught:
        find_recipe("wide_resnet").zoo("torchvision", "wide_resnet")
    assert caught.value.next == "its variants are wide_resnet50_2, wide_resnet101_2"


def test_published_files_have_names_of_their_own_in_the_cache() -> None:
    """Hugging Face's are all called model.safetensors."""
    files = [file for recipe in all_recipes() for zoo in recipe.zoos.values() for file in zoo.files.values()]
    origins = {(file.name, file.url or file.pypi) for file in files}
    assert len({name for name, _ in origins}) == len(origins) and "model.safetensors" not in {name for name, _ in origins}


def test_a_recipe_is_found_without_loading_the_others(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    write(tmp_path, "architecture: other\nvariants:\n  other: {}\nzoos: [", "other.yaml")
    assert find_recipe("tiny_wide", tmp_path).architecture == find_recipe("tiny", tmp_path).architecture == "tiny"
    with pytest.raises(RecipeError, match="no valid YAML") as caught:
        find_recipe("other", tmp_path)
    assert str(caught.value.where).startswith(str(tmp_path / "other.yaml"))


@pytest.mark.parametrize(
    ("name", "zoo", "framework"),
    [
        ("tf", "keras", "tf"),
        ("tensorflow", "keras", "tf"),
        ("keras", "keras", "tf"),
        ("torch", "torchvision", "torch"),
        ("pytorch", "torchvision", "torch"),
    ],
)
def test_frameworks_have_other_names(name: str, zoo: str, framework: str) -> None:
    assert find_recipe("mobilenet_v2").zoo(name, "mobilenet_v2").name == zoo
    assert framework == get_framework(name).NAME

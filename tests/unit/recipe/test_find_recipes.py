import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from porter.base.errors import RecipeError, UsageError
from porter.frameworks import get_destination
from porter.recipe import declared_recipes, find_recipe, known_variants, recipes_folder
from porter.recipe.find_recipes import recipe_folders
from tests.support.recipe.recipes import VALID, all_recipes, line_of, write


def test_porters_own_recipes_are_found_and_whole() -> None:
    assert recipes_folder().name == "recipes"
    assert {"mobilenet_v1", "mobilenet_v2"} <= {recipe.architecture for recipe in all_recipes()}
    assert find_recipe("mobilenet_v2_0.35").architecture == "mobilenet_v2"
    assert find_recipe("mobilenet_v1").path == recipes_folder() / "mobilenet_v1.yaml"


def test_a_folder_of_ones_own_stands_beside_porters(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    assert [recipe.architecture for recipe in all_recipes(tmp_path)] == ["tiny"]
    assert find_recipe("tiny_wide", tmp_path).architecture == "tiny"
    assert find_recipe("resnet50", tmp_path) is find_recipe("resnet50")
    write(tmp_path, named("small"), "small.yaml")
    assert find_recipe("small", tmp_path).architecture == "small"
    with pytest.raises(UsageError, match="no variant 'tiny_wid'") as caught:
        find_recipe("tiny_wid", tmp_path)
    assert caught.value.next == "did you mean 'tiny_wide'?"


def named(name: str) -> str:
    """The valid recipe under another name."""
    return VALID.replace("architecture: tiny", f"architecture: {name}").replace(" tiny", f" {name}")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders of the user's, in the order in which they are looked at; none is there."""
    found = {name: tmp_path / name for name in ("given", "variable", "config/porter/recipes", "work/recipes")}
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PORTER_RECIPES", raising=False)
    return found


def test_the_first_folder_that_has_a_name_gives_it(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recipe_folders() == (recipes_folder(),)
    *_, here = places.values()
    for place, folder in reversed(places.items()):
        folder.mkdir(parents=True)
        write(folder, VALID)
        if place == "variable":
            monkeypatch.setenv("PORTER_RECIPES", str(folder))
        given = folder if place == "given" else None
        assert find_recipe("tiny", given).path == (
            Path("recipes/tiny.yaml") if folder == here else folder / "tiny.yaml"
        )
    assert recipe_folders(places["given"]) == (*list(places.values())[:3], Path("recipes"), recipes_folder())


def test_a_folder_counts_once(monkeypatch: pytest.MonkeyPatch, places: dict[str, Path]) -> None:
    """In a checkout, ./recipes is porter's own."""
    monkeypatch.chdir(recipes_folder().parent)
    assert recipe_folders() == (Path("recipes"),)
    assert [recipe.fault for recipe in declared_recipes() if recipe.fault] == []
    assert len(declared_recipes()) == len(all_recipes())


def test_a_copy_of_one_of_porters_own_is_that_one(places: dict[str, Path]) -> None:
    """Where porter is installed from a checkout, the checkout's ./recipes is another folder with the same
    recipes.
    """
    folder = places["work/recipes"]
    folder.mkdir()
    shutil.copy(recipes_folder() / "resnet_v2.yaml", folder)
    assert find_recipe("resnet50v2").path.parent == recipes_folder() and known_variants()[1] == ()
    (folder / "resnet_v2.yaml").write_bytes((folder / "resnet_v2.yaml").read_bytes() + b"# changed\n")
    assert find_recipe("resnet50v2").path == Path("recipes/resnet_v2.yaml")


@pytest.mark.parametrize("place", ["config/porter/recipes", "work/recipes"])
def test_a_variant_of_porters_own_is_the_users_where_they_have_one(
    place: str, places: dict[str, Path]
) -> None:
    """An upgrade of porter may bring a name that their recipe has."""
    places[place].mkdir(parents=True)
    write(places[place], named("resnet50"), "mine.yaml")
    assert find_recipe("resnet50").path.name == "mine.yaml"
    assert find_recipe("resnet18").path.parent == recipes_folder()
    variants, faults = known_variants()
    assert faults == () and len(variants) == len({(known.variant, known.zoo) for known in variants})


def test_a_recipe_that_is_no_yaml_spoils_itself_only(places: dict[str, Path]) -> None:
    folder = places["work/recipes"]
    folder.mkdir()
    write(folder, "zoos: [", "wrong.yaml")
    write(folder, f"{VALID}    home: [", "late.yaml")
    assert find_recipe("resnet18").path.parent == recipes_folder()
    with pytest.raises(RecipeError, match="not valid YAML"):
        find_recipe("tiny")
    with pytest.raises(UsageError, match="no variant 'absent'") as caught:
        find_recipe("absent")
    assert "recipes/" not in str(caught.value.next)
    with pytest.raises(UsageError, match="no variant 'wrong'") as caught:
        find_recipe("wrong")
    assert "; recipes/wrong.yaml:2:1: not valid YAML" in str(caught.value.next)
    assert [str(fault.where).partition(":")[0] for fault in known_variants()[1]] == ["recipes/late.yaml"]
    assert "recipes/wrong.yaml:2:1" in [fault.where for fault in known_variants(Path("recipes"))[1]]


def test_a_folder_of_other_recipes_is_nobodys_business(places: dict[str, Path]) -> None:
    """Any project may have a folder of that name."""
    folder = places["work/recipes"]
    folder.mkdir()
    write(folder, "name: pancakes\nsteps: [stir, fry]\n", "pancakes.yaml")
    with pytest.raises(UsageError, match="no variant 'absent'") as caught:
        find_recipe("absent")
    assert "pancakes" not in str(caught.value.next) and known_variants()[1] == ()


def test_an_edited_recipe_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    assert find_recipe("tiny", tmp_path).native_size() == (32, 32)
    write(tmp_path, VALID.replace("size: 32, ch", "size: [64, 48], ch"))
    assert find_recipe("tiny", tmp_path).native_size() == (64, 48)


def test_folders_without_recipes_and_variants_claimed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="no recipes"):
            find_recipe("resnet50", folder)
        monkeypatch.setenv("PORTER_RECIPES", str(folder))
        with pytest.raises(UsageError, match="give PORTER_RECIPES a folder"):
            find_recipe("resnet50")
        monkeypatch.delenv("PORTER_RECIPES")
    write(tmp_path, VALID, "one.yaml")
    write(tmp_path, VALID, "two.yaml")
    with pytest.raises(RecipeError, match=r"'tiny' is in one\.yaml too") as caught:
        find_recipe("tiny", tmp_path)
    assert line_of(caught.value) == f"{tmp_path / 'two.yaml'}:3"


def test_a_framework_is_offered_only_where_its_default_zoo_is() -> None:
    with pytest.raises(UsageError) as caught:
        find_recipe("resnet50v2").zoo("torchvision", "resnet50v2")
    assert (
        caught.value.next
        == "the choices are gluon, keras, mxnet, slim, tensornets, and 1 more: porter recipe show resnet_v2"
    )


def test_an_architecture_where_a_variant_goes_lists_its_variants() -> None:
    """Such as `porter convert resnet_v1 ...`."""
    with pytest.raises(UsageError, match="'wide_resnet' is an architecture, not a variant") as caught:
        find_recipe("wide_resnet").zoo("torchvision", "wide_resnet")
    assert caught.value.next == "its variants are wide_resnet50_2, wide_resnet101_2"


def test_published_files_have_names_of_their_own_in_the_cache() -> None:
    """Hugging Face's are all called model.safetensors."""
    files = [file for recipe in all_recipes() for zoo in recipe.zoos.values() for file in zoo.files.values()]
    origins = {(file.name, file.url or file.pypi) for file in files}
    assert len({name for name, _ in origins}) == len(origins) and "model.safetensors" not in {
        name for name, _ in origins
    }


def test_a_recipe_is_found_without_loading_the_others(tmp_path: Path) -> None:
    write(tmp_path, VALID)
    write(tmp_path, "architecture: other\nvariants:\n  other: {}\nzoos: [", "other.yaml")
    assert (
        find_recipe("tiny_wide", tmp_path).architecture
        == find_recipe("tiny", tmp_path).architecture
        == "tiny"
    )
    with pytest.raises(RecipeError, match="not valid YAML") as caught:
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
    assert framework == get_destination(name).NAME


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [os.mkfifo, broken_link, endless, sparse, Path.mkdir])
def test_what_is_no_file_of_a_recipe_is_not_read(
    make: Callable[[Path], None], places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that somebody downloads may hold anything under the name of one of porter's recipes."""
    for place in ("work/recipes", "variable"):
        places[place].mkdir()
        make(places[place] / "vgg.yaml")
    monkeypatch.setenv("PORTER_RECIPES", str(places["variable"]))
    variants, faults = known_variants()
    assert [str(fault.where) for fault in faults] == [str(places["variable"] / "vgg.yaml")] and "vgg16" in {
        known.variant for known in variants
    }


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("resnext101", "did you mean 'resnext101_32x4d'?"),
        ("resnet", "did you mean 'resnet18'?"),
        ("mobilenetv2", "did you mean 'mobilenet_v2'?"),
        ("squezenet", "did you mean a variant of 'squeezenet': squeezenet1_0, squeezenet1_1?"),
    ],
)
def test_a_variant_is_what_is_meant(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_recipe(word)
    assert caught.value.next == meant


def test_a_name_that_is_longer_than_a_files_is_no_variant() -> None:
    with pytest.raises(UsageError, match="there is no variant"):
        find_recipe("a" * 300)

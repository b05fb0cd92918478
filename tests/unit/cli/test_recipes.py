"""Recipes of one's own on the command line: where they are found, and which lines say so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from porter.recipe import recipes_folder
from tests.support.fixtures import Cli
from tests.support.recipe.recipes import VALID, write
from tests.support.refusals import refused
from tests.support.standin_files import source_checkpoint

pytestmark = pytest.mark.usefixtures("in_double")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a recipe, and weights of its variant."""
    folder = tmp_path / "own"
    folder.mkdir()
    write(folder, VALID.replace("{name: fc, transforms: [conv1x1_to_dense]}", "fc"))
    save_file(dict(source_checkpoint("tiny", "home", 10, folder).tensors), tmp_path / "tiny.safetensors")
    return folder


def test_lines_name_the_folder_that_only_the_option_knows(
    cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One recipe is ranked faster than all.
    monkeypatch.setattr("porter.recipe.find_recipes.recipes_folder", lambda: own.parent)
    made = "convert tiny --from home --to torch --weights tiny.safetensors --no-check"
    recipes = ("--recipes", "own")
    refused(cli(made), "no variant 'tiny'")
    refused(cli("convert tiny --to torch", *recipes), "'tiny' is a variant without its zoo", "add --from ZOO")
    refused(cli("convert tiny.safetensors --to torch", *recipes), "--weights tiny.safetensors --recipes own")
    assert cli(made, "--out", "port", *recipes).status == 0
    for file in ("tiny.safetensors", "port"):
        assert cli("inspect", file, *recipes).out.splitlines()[-1].endswith(" --recipes own")
    refused(cli("verify port --weights tiny.safetensors"), "was found in own", "add --recipes own")
    refused(cli("verify port --weights tiny.safetensors", *recipes), "porter's own build")
    page = re.sub("<[^>]*>", "", Path(cli("report port").out.splitlines()[0]).read_text(encoding="utf-8"))
    assert "--layers --recipes own" in page and page.count("--recipes own") == 3
    write(own, "zoos: [", "wrong.yaml")
    assert "  left out   own/wrong.yaml:2:1: not valid YAML" in cli("inspect tiny.safetensors", *recipes).out
    monkeypatch.setenv("PORTER_RECIPES", "own")
    assert cli(made, "--out", "other").status == 0
    refused(cli("verify other --weights tiny.safetensors"), "porter's own build")
    for arguments in (
        ("inspect", "tiny.safetensors"),
        ("inspect", "tiny.safetensors", *recipes),
        ("report", "other"),
    ):
        assert "--recipes" not in cli(*arguments).out
    assert json.loads(Path("other/port.json").read_text(encoding="utf-8"))["recipes"] is None


def test_a_recipe_is_tried_on_a_file_and_what_differs_is_named_where_it_is_written(
    cli: Cli, own: Path
) -> None:
    tensors, recipe = dict(source_checkpoint("tiny", "home", 10, own).tensors), own / "tiny.yaml"
    ran = cli("recipe check", recipe, "--weights", "tiny.safetensors")
    assert ran.status == 0 and ran.out.splitlines()[1] == "weights: tiny from home; 9 used"
    assert "numbers: skipped: only porter's own build" in ran.out
    save_file({**tensors, "conv1.weight": np.zeros((8, 3, 5, 5), np.float32)}, "misshaped.safetensors")
    save_file({name: array for name, array in tensors.items() if name != "fc.bias"}, "missing.safetensors")
    save_file({"a.weight": np.zeros(3, np.float32)}, "other.safetensors")
    for name, words in {
        "misshaped": f"conv1.weight is 8x3x5x5 where stem/conv needs 8x3x3x3 ({recipe}:26:18)",
        "missing": f"1 tensors missing: fc.bias 10 ({recipe}:29:20)",
        "other": (
            f"of this recipe, whose first name is conv1.weight ({recipe}:26:18) (the file has a.weight)"
        ),
    }.items():
        ran = cli("recipe check", recipe, "--weights", f"{name}.safetensors")
        assert ran.status == 2 and words in ran.out.splitlines()[-1], ran.out
        said = json.loads(cli("recipe check", recipe, "--weights", f"{name}.safetensors", "--json").out)
        assert not said["ok"] and not said["errors"] and said["weights"]["error"]["code"] == "mapping"


@pytest.mark.parametrize(("pad", "status"), [pytest.param(3, 0, marks=pytest.mark.full), (2, 1)])
def test_the_numbers_of_a_recipe_are_compared_with_its_reference(
    cli: Cli, tmp_path: Path, pad: int, status: int
) -> None:
    text, step = (
        (recipes_folder() / "resnet_v1.yaml").read_text(encoding="utf-8"),
        "kernel: 7, stride: 2, pad: 3",
    )
    assert text.count(step) == 1
    path = write(
        tmp_path, text.replace("input: {size: 224", "input: {size: 48").replace(step, f"{step[:-1]}{pad}")
    )
    save_file(dict(source_checkpoint("resnet18", "torchvision").tensors), "w.safetensors")
    ran = cli("recipe check", path, "--weights", "w.safetensors")
    line = text[: text.index(step)].count("\n") + 1
    expected = [
        "numbers: float64: same function as torchvision",
        f"error: {path}:{line}:5: the port is not the source's function: stem/",
    ]
    assert (ran.status, expected[status] in ran.out) == (status, True), ran.out


def test_the_list_says_where_a_recipe_comes_from_and_what_it_leaves_out(cli: Cli, own: Path) -> None:
    assert "own" not in (shipped := cli("recipe list")).out
    write(own, "architecture: [", "wrong.yaml")
    ran = cli("recipe list --recipes own")
    head, variants, zoos, *others = ran.out.splitlines()
    assert ran.status == 0 and head.split() == ["tiny", "own/tiny.yaml"]
    assert (variants, zoos) == ("  variants  tiny, tiny_wide", "  zoos      home")
    assert others == shipped.out.splitlines() and max(map(len, others)) <= 100
    assert ran.err.startswith("left out: own/wrong.yaml:2:1: not valid YAML")
    found = json.loads(cli("recipe list --recipes own --json").out)
    assert found["recipes"][0] == {
        "architecture": "tiny",
        "variants": ["tiny", "tiny_wide"],
        "zoos": ["home"],
        "file": "own/tiny.yaml",
    }
    assert [fault.partition(":")[0] for fault in found["left_out"]] == ["own/wrong.yaml"]


def test_a_name_of_porters_own_is_the_recipes_that_is_found_first(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "recipes", VALID.replace("tiny", "resnet50"))
    assert cli("pads resnet50 --from home --to tf").status == 0
    assert cli("pads resnet50 --from home --to tf --recipes recipes").status == 0
    assert cli("pads resnet18 --from torch --to tf").status == 0

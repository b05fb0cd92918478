"""Recipes of one's own on the command line: where they are found, and which lines say so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from tests.conftest import Cli, refused
from tests.recipe.recipes import VALID, write
from tests.support import source_checkpoint


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a recipe, and weights of its variant."""
    folder = tmp_path / "own"
    folder.mkdir()
    write(folder, VALID.replace("{name: fc, transforms: [conv1x1_to_dense]}", "fc"))
    save_file(dict(source_checkpoint("tiny", "home", 10, folder).tensors), tmp_path / "tiny.safetensors")
    return folder


def test_lines_name_the_folder_that_only_the_option_knows(cli: Cli, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ("convert", "tiny", "--from", "home", "--to", "torch", "--weights", "tiny.safetensors", "--no-check")
    recipes = ("--recipes", "own")
    refused(cli(*made), "no variant 'tiny'")
    refused(cli("convert", "tiny", "--to", "torch", *recipes), "'tiny' is a variant without its zoo", "add --from ZOO")
    refused(cli("convert", "tiny.safetensors", "--to", "torch", *recipes), "--weights tiny.safetensors --recipes own")
    assert cli(*made, "--out", "port", *recipes).status == 0
    for file in ("tiny.safetensors", "port"):
        assert cli("inspect", file, *recipes).out.splitlines()[-1].endswith(" --recipes own")
    refused(cli("verify", "port", "--weights", "tiny.safetensors"), "was found in own", "add --recipes own")
    refused(cli("verify", "port", "--weights", "tiny.safetensors", *recipes), "porter's own build")
    page = re.sub("<[^>]*>", "", Path(cli("report", "port").out.splitlines()[0]).read_text(encoding="utf-8"))
    assert "--float64 --layers --recipes own" in page and page.count("--recipes own") == 3
    monkeypatch.setenv("PORTER_RECIPES", "own")
    assert cli(*made, "--out", "other").status == 0
    refused(cli("verify", "other", "--weights", "tiny.safetensors"), "porter's own build")
    for arguments in (("inspect", "tiny.safetensors"), ("inspect", "tiny.safetensors", *recipes), ("report", "other")):
        assert "--recipes" not in cli(*arguments).out
    assert json.loads(Path("other/port.json").read_text(encoding="utf-8"))["recipes"] is None


def test_the_list_says_where_a_recipe_comes_from_and_what_it_leaves_out(cli: Cli, own: Path) -> None:
    assert "own" not in (shipped := cli("recipe", "list")).out
    write(own, "architecture: [", "wrong.yaml")
    ran = cli("recipe", "list", "--recipes", "own")
    first, *others = ran.out.splitlines()
    assert (
        ran.status == 0
        and first.endswith("  file")
        and others[0].split() == ["tiny", "tiny,", "tiny_wide", "home", "own/tiny.yaml"]
    )
    assert [line.rstrip() for line in others[1:]] == shipped.out.splitlines()[1:]
    assert ran.err.startswith("left out: own/wrong.yaml:2:1: no valid YAML")
    found = json.loads(cli("recipe", "list", "--recipes", "own", "--json").out)
    assert found["recipes"][0] == {
        "architecture": "tiny",
        "variants": ["tiny", "tiny_wide"],
        "zoos": ["home"],
        "file": "own/tiny.yaml",
    }
    assert [fault.partition(":")[0] for fault in found["left_out"]] == ["own/wrong.yaml"]


def test_a_name_of_porters_own_is_refused_where_it_is_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "recipes", VALID.replace("tiny", "resnet50"))
    refused(cli("pads", "resnet50", "--from", "home", "--to", "tf"), "recipes/tiny.yaml:3:3", "--recipes recipes")
    assert cli("pads", "resnet50", "--from", "home", "--to", "tf", "--recipes", "recipes").status == 0
    assert cli("pads", "resnet18", "--from", "torch", "--to", "tf").status == 0

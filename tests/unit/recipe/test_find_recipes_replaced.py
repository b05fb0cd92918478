"""A recipe of the user's that has the architecture of one of porter's own stands in its place: an upgrade of
porter may bring a recipe of the same name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import porter
from porter.base.errors import UsageError
from porter.recipe import declared_recipes, find_recipe, known_variants, load_recipe, recipes_folder

SHIPPED = {recipe.architecture: recipe for recipe in declared_recipes(recipes_folder(), with_zoos=True)}
OWN = """\
architecture: ARCHITECTURE
variants: {own: {}}
options: {classes: 1000}
input: {size: 16, channels: 3}
graph:
  - {conv: stem/conv, filters: 4, kernel: 3, stride: 2, pad: 1, bias: true}
  - {relu: stem/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  ZOO:
    names: {"{part}/{layer}": "{part}.{layer}"}
"""
TENSORS = {
    "stem.conv.weight": (4, 3, 3, 3),
    "stem.conv.bias": (4,),
    "head.logits.weight": (1000, 4),
    "head.logits.bias": (1000,),
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, numbers = tmp_path_factory.mktemp("weights") / "own.safetensors", np.random.default_rng(0)
    save_file({name: numbers.normal(size=shape).astype(np.float32) for name, shape in TENSORS.items()}, path)
    return path


def write(folder: Path, architecture: str, zoo: str, text: str = OWN) -> Path:
    folder.mkdir(parents=True)
    path = folder / "mine.yaml"
    path.write_text(text.replace("ARCHITECTURE", architecture).replace("ZOO", zoo))
    return path


@pytest.mark.parametrize("architecture", SHIPPED)
def test_a_recipe_under_each_name_of_porters_own(architecture: str, weights: Path, tmp_path: Path) -> None:
    """In a zoo of which porter's own file publishes weights of that architecture, if it has one in torch."""
    own = load_recipe(SHIPPED[architecture].path)
    of_torch = [name for name, zoo in own.zoos.items() if zoo.framework == "torch"]
    roots = [own.roots[name] for name in of_torch]
    zoo = next(iter([*roots, "torchvision"]))
    folder = write(tmp_path / "recipes", architecture, zoo).parent
    assert find_recipe(architecture, folder).path.parent == folder
    named = [(variant, each) for variant, each in porter.list_models(recipes=folder) if variant == "own"]
    assert named == [("own", zoo)] and known_variants(folder)[1] == ()
    listed = {each.variant for each in known_variants(folder)[0]}
    assert listed.isdisjoint(own.variants) and len(listed) > 50  # those of other recipes
    member = find_recipe("own", folder).member("own", zoo)
    assert member.zoo.weights == {} and member.zoo.framework == "torch"
    port = porter.convert("own", zoo, weights=weights, recipes=folder, out=tmp_path / "port", check=False)
    assert (port.port.record.architecture, port.port.record.variant) == (architecture, "own")


def test_it_is_found_in_the_users_folder_too(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = write(tmp_path / "porter/recipes", "efficientnet", "torchvision")
    port = porter.convert("own", "torchvision", "onnx", weights=weights, out=tmp_path / "port")
    assert f"{path} stands in place of porter's own recipe efficientnet.yaml" in port.warnings
    assert port.port.record.recipes is None and porter.open(tmp_path / "port").verify(weights=weights).ok
    assert porter.inspect(weights).matches[0].member.variant == "own"
    with pytest.raises(UsageError, match="there is no variant 'efficientnet_b1'") as caught:
        find_recipe("efficientnet_b1")
    assert "mine.yaml stands in place of porter's own efficientnet.yaml, which has it" in str(caught.value)
    assert find_recipe("efficientnet_lite0").path.parent == recipes_folder()


def test_one_that_extends_porters_own_has_its_published_weights(tmp_path: Path) -> None:
    text = "extends: ARCHITECTURE\nzoos: {home: {extends: torchvision}}\n"
    folder = write(tmp_path / "recipes", "efficientnet", "", text).parent
    zoo = find_recipe("efficientnet_b1", folder).member("efficientnet_b1", "torchvision").zoo
    assert zoo.weights["efficientnet_b1"].file is not None
    assert {("efficientnet_b1", name) for name in ("home", "torchvision")} <= set(
        porter.list_models(recipes=folder)
    )


def test_a_file_of_its_zoo_beside_it_is_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path / "recipes", "efficientnet", "torchvision").parent
    (folder / "zoos").mkdir()
    rows: dict[str, Any] = {"own": {"file": "https://example.org/own.pth"}}
    (folder / "zoos/torchvision.yaml").write_text(
        f"zoo: torchvision\nframework: torch\narchitectures: {{efficientnet: {{weights: {rows}}}}}\n"
    )
    zoo = find_recipe("own", folder).member("own", "torchvision").zoo
    assert zoo.weights["own"].file is not None and zoo.labels is None

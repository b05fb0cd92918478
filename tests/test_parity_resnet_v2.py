"""The pre-activation ResNets against keras.applications and slim, on calibrated random weights."""

from pathlib import Path

import pytest

from porter.recipe import find_recipe
from tests.conftest import SlimMaker, WeightsMaker
from tests.parity import check_parity, check_small
from tests.slim_files import SlimFile

RECIPE = find_recipe("resnet_v2")
KERAS = list(RECIPE.zoos["keras"].only)
CASES = [(variant, framework, size) for variant in KERAS for framework in ("torch", "tf") for size in ("224", "299", "any")]
SMALL = (97, 128)
QUICK = [("resnet50v2", "torch", "224")]


@pytest.mark.parametrize(("variant", "framework", "size"), QUICK)
def test_keras(variant: str, framework: str, size: str, weights_file: WeightsMaker, tmp_path: Path) -> None:
    found = check_parity(variant, "keras", framework, weights_file(variant, "keras", ".h5"), tmp_path, size)
    assert not found.uncompared


@pytest.mark.full
@pytest.mark.parametrize(("variant", "framework", "size"), [case for case in CASES if case not in QUICK])
def test_keras_everywhere(variant: str, framework: str, size: str, weights_file: WeightsMaker, tmp_path: Path) -> None:
    check_parity(variant, "keras", framework, weights_file(variant, "keras", ".h5"), tmp_path, size)


def test_keras_in_keras(weights_file: WeightsMaker, tmp_path: Path) -> None:
    check_small("resnet50v2", "keras", "tf", weights_file("resnet50v2", "keras", ".h5"), tmp_path, SMALL)


def test_slim(slim_file: SlimMaker, tmp_path: Path) -> None:
    found = check_small("resnet50v2", "slim", "torch", slim_file(SlimFile("resnet50v2")), tmp_path, SMALL)
    assert not found.uncompared


@pytest.mark.full
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("variant", list(RECIPE.variants))
@pytest.mark.parametrize("size", ["224", "299", "191x160"])
def test_slim_everywhere(variant: str, framework: str, size: str, slim_file: SlimMaker, tmp_path: Path) -> None:
    check_parity(variant, "slim", framework, slim_file(SlimFile(variant, format="v1")), tmp_path, size)

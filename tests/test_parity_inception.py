"""Inception v3 against keras.applications, slim, torchvision and timm, on calibrated random weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from porter.errors import MappingError
from porter.fitting.by_names import fit_by_names
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.torch.reference import import_models
from porter.recipe import find_recipe
from tests.conftest import SlimMaker, WeightsMaker
from tests.parity import check_parity, check_small
from tests.slim_files import SlimFile, slim_checkpoint
from tests.support import source_checkpoint

RECIPE = find_recipe("inception_v3")
SMALL = (139, 128)
FUNCTIONAL = ("pool", "branch3x3_2", "branch3x3dbl_3", "transform_input")
"""Ends of the paths of what torchvision and timm compute in no module of its own."""
SIZES = ("299", "any")


def file_of(zoo: str, weights_file: WeightsMaker, slim_file: SlimMaker) -> Path:
    if zoo == "slim":
        return slim_file(SlimFile("inception_v3", format="v1"))
    return weights_file("inception_v3", zoo, ".h5" if zoo == "keras" else ".pth")


QUICK = [("keras", "torch"), ("slim", "torch"), ("torchvision", "tf"), ("timm", "torch")]


@pytest.mark.parametrize(("zoo", "framework"), QUICK)
def test_port_computes_the_references_function(
    zoo: str, framework: str, weights_file: WeightsMaker, slim_file: SlimMaker, tmp_path: Path
) -> None:
    found = check_small("inception_v3", zoo, framework, file_of(zoo, weights_file, slim_file), tmp_path, SMALL)
    if zoo == "keras":
        assert not found.uncompared
    elif zoo == "slim":
        assert all(path.endswith("/relu") for path in found.uncompared)
    else:
        assert all(path.endswith(FUNCTIONAL) for path in found.uncompared)


def test_torchvisions_at_its_native_size(weights_file: WeightsMaker, tmp_path: Path) -> None:
    found = check_parity("inception_v3", "torchvision", "torch", weights_file("inception_v3", "torchvision", ".pth"), tmp_path)
    assert (299, 299) in found.sizes


@pytest.mark.full
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("zoo", list(RECIPE.zoos))
def test_port_computes_the_references_function_everywhere(
    zoo: str, framework: str, size: str, weights_file: WeightsMaker, slim_file: SlimMaker, tmp_path: Path
) -> None:
    check_parity("inception_v3", zoo, framework, file_of(zoo, weights_file, slim_file), tmp_path, size)


@cache
def auxiliary(zoo: str) -> dict[str, np.ndarray]:
    """Tensors of the auxiliary classifier, of no use in inference."""
    if zoo == "slim":
        scope = "InceptionV3/AuxLogits"
        norm = [f"BatchNorm/{name}" for name in ("beta", "moving_mean", "moving_variance")]
        layers = {"Conv2d_1b_1x1": ["weights", *norm], "Conv2d_2a_5x5": ["weights", *norm], "Conv2d_2b_1x1": ["weights", "biases"]}
        return {f"{scope}/{layer}/{name}": np.ones(4, np.float32) for layer, names in layers.items() for name in names}
    with torch.device("meta"):
        state = import_models().inception_v3(weights=None, init_weights=False).state_dict()
    return {name: np.ones(value.shape, np.float32) for name, value in state.items() if name.startswith("AuxLogits")}


def with_auxiliary(zoo: str) -> Checkpoint:
    checkpoint = slim_checkpoint("inception_v3") if zoo == "slim" else source_checkpoint("inception_v3", zoo)
    return replace(checkpoint, tensors={**checkpoint.tensors, **auxiliary(zoo)})


@pytest.mark.parametrize(("zoo", "count"), [("slim", 10), ("torchvision", 14), ("timm", 14)])
def test_the_auxiliary_head_is_left_out_by_a_stated_rule(zoo: str, count: int) -> None:
    fit = fit_by_names(RECIPE, "inception_v3", RECIPE.zoo(zoo, "inception_v3"), with_auxiliary(zoo))
    assert fit.ignored == dict.fromkeys(auxiliary(zoo), "auxiliary classifier, used in training only")
    assert len(fit.ignored) == count and not fit.warnings


def test_another_tensor_beside_is_refused() -> None:
    checkpoint = with_auxiliary("torchvision")
    checkpoint = replace(checkpoint, tensors={**checkpoint.tensors, "Mixed_8a.conv.weight": np.ones((4, 4, 3, 3), np.float32)})
    with pytest.raises(MappingError, match=r"unexpected.*Mixed_8a"):
        fit_by_names(RECIPE, "inception_v3", RECIPE.zoo("torchvision", "inception_v3"), checkpoint)


def test_inspect_tells_the_zoos_apart(weights_file: WeightsMaker) -> None:
    matches = porter.inspect(weights_file("inception_v3", "keras", ".h5")).matches
    assert (matches[0].zoo, matches[0].score) == ("keras", 1.0)
    matches = porter.inspect(weights_file("inception_v3", "torchvision", ".pth")).matches
    assert (matches[0].zoo, matches[0].score) == ("torchvision", 1.0)

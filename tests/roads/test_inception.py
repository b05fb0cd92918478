"""Inception v3: its auxiliary head, and its files told apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import porter
from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.recipe import find_recipe
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.zoos.torchvision import import_models
from tests.support.arrays import Array
from tests.support.fixtures import WeightsMaker
from tests.support.slim_files import slim_checkpoint
from tests.support.standin_files import source_checkpoint

RECIPE = find_recipe("inception_v3")


@cache
def auxiliary(zoo: str) -> dict[str, Array]:
    """Tensors of the auxiliary classifier, of no use in inference."""
    if zoo == "slim":
        scope = "InceptionV3/AuxLogits"
        norm = [f"BatchNorm/{name}" for name in ("beta", "moving_mean", "moving_variance")]
        layers = {
            "Conv2d_1b_1x1": ["weights", *norm],
            "Conv2d_2a_5x5": ["weights", *norm],
            "Conv2d_2b_1x1": ["weights", "biases"],
        }
        return {
            f"{scope}/{layer}/{name}": np.ones(4, np.float32)
            for layer, names in layers.items()
            for name in names
        }
    with torch.device("meta"):
        state = import_models().inception_v3(weights=None, init_weights=False).state_dict()
    return {
        name: np.ones(value.shape, np.float32)
        for name, value in state.items()
        if name.startswith("AuxLogits")
    }


def with_auxiliary(zoo: str) -> Checkpoint:
    checkpoint = slim_checkpoint("inception_v3") if zoo == "slim" else source_checkpoint("inception_v3", zoo)
    return replace(checkpoint, tensors={**checkpoint.tensors, **auxiliary(zoo)})


@pytest.mark.parametrize(
    ("zoo", "count"), [("slim", 10), ("torchvision", 14), pytest.param("timm", 14, marks=pytest.mark.full)]
)
def test_the_auxiliary_head_is_left_out_by_a_stated_rule(zoo: str, count: int) -> None:
    fit = fit_by_names(Candidate.of(RECIPE.member("inception_v3", zoo), with_auxiliary(zoo)))
    assert fit.ignored == dict.fromkeys(auxiliary(zoo), "auxiliary classifier, used in training only")
    assert len(fit.ignored) == count and not fit.warnings


def test_another_tensor_beside_is_refused() -> None:
    checkpoint = with_auxiliary("torchvision")
    checkpoint = replace(
        checkpoint, tensors={**checkpoint.tensors, "Mixed_8a.conv.weight": np.ones((4, 4, 3, 3), np.float32)}
    )
    with pytest.raises(MappingError, match=r"unexpected.*Mixed_8a"):
        fit_by_names(Candidate.of(RECIPE.member("inception_v3", "torchvision"), checkpoint))


@pytest.mark.full  # of tensors without values, tests/unit/source/test_inspection.py tells all zoos apart
def test_inspect_tells_the_zoos_apart(weights_file: WeightsMaker) -> None:
    matches = porter.inspect(weights_file("inception_v3", "keras", ".h5")).matches
    assert (matches[0].member.zoo.name, matches[0].score) == ("keras", 1.0)
    matches = porter.inspect(weights_file("inception_v3", "torchvision", ".pth")).matches
    assert (matches[0].member.zoo.name, matches[0].score) == ("torchvision", 1.0)

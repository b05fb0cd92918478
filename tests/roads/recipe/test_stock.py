"""Recipes against the models of the zoos' own code, at full depth and width: names, shapes, strides, pads and
epsilons.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch

from porter.frameworks.tf.runtime import import_keras
from porter.graph import tensor_shapes
from porter.recipe import find_recipe
from porter.zoos.tables import TIMM, TRANSFORMERS
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from porter.zoos.transformers import import_transformers
from tests.support.recipe.stock import assert_kerass, assert_slims, assert_torchs, read

QUICK = (
    "resnet50",
    "resnet50v2",
    "inception_v3",
    "mobilenet_v1_0.25",
    "mobilenet_v2_1.4",
)
"""In CI the shallow ones, a narrow MobileNet, and one that is wider than the head's own width."""
APPLICATIONS = {
    "resnet50": "ResNet50",
    "resnet_v2": "ResNet{}V2",
    "inception_v3": "InceptionV3",
    "mobilenet_v1": "MobileNet",
    "mobilenet_v2": "MobileNetV2",
}
IN_TORCH = [
    (variant, zoo.name)
    for name in ("resnet18", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2", "inception_v3")
    for variant in find_recipe(name).variants
    for zoo in find_recipe(name).zoos_of(variant).values()
    if zoo.name in ("torchvision", "torchvision_v2", "timm", *["transformers"] * (name == "resnet18"))
]


def of(*names: str, zoo: str) -> list[Any]:
    """The variants of these recipes that a zoo has, of which CI takes the quick ones."""
    return [
        pytest.param(variant, marks=() if variant in QUICK else pytest.mark.full)
        for name in names
        for variant in find_recipe(name).variants
        if zoo in find_recipe(name).zoos_of(variant)
    ]


def keras_model(variant: str) -> Any:
    recipe, keras = find_recipe(variant), import_keras()
    for layer in (keras.layers.Conv2D(1, 1), keras.layers.BatchNormalization()):
        assert layer.name  # has been given a number, from which the model counts on
    name = APPLICATIONS.get(recipe.architecture, "ResNet{}").format(variant[6:].removesuffix("v2"))
    width = {"alpha": recipe.variants[variant]["alpha"]} if "mobilenet" in variant else {}
    return getattr(keras.applications, name)(weights=None, **width)


@pytest.mark.parametrize(
    "variant", of("resnet50", "resnet50v2", "inception_v3", "mobilenet_v1", "mobilenet_v2", zoo="keras")
)
def test_every_layer_is_kerass_whatever_its_number(variant: str) -> None:
    assert_kerass(variant, keras_model(variant))


@pytest.mark.parametrize(
    "variant",
    of("resnet50", "resnet50v2", "resnet200v2", "inception_v3", "mobilenet_v1", "mobilenet_v2", zoo="slim"),
)
def test_every_variable_is_slims(variant: str) -> None:
    assert_slims(variant)


def torch_model(variant: str, zoo: str) -> Any:
    if zoo == "timm":
        name, arguments = TIMM[variant]
        return getattr(import_timm(), name)(**arguments, **({"aux_logits": True} if "incep" in name else {}))
    if zoo == "transformers":
        library, (kind, settings) = import_transformers(), TRANSFORMERS[variant]
        config = library.AutoConfig.for_model(kind, num_labels=1000, **settings)
        return library.AutoModelForImageClassification.from_config(config)
    if "mobilenet" in variant:
        return import_models().mobilenet_v2(width_mult=find_recipe(variant).variants[variant]["alpha"])
    return getattr(import_models(), variant)(**({"init_weights": False} if "incep" in variant else {}))


@pytest.mark.parametrize(("variant", "zoo"), IN_TORCH)
def test_every_tensor_and_layer_is_torchs(variant: str, zoo: str) -> None:
    with torch.device("meta"):
        model = torch_model(variant, zoo)
    assert_torchs(variant, zoo, model, "AuxLogits.")


@pytest.mark.parametrize(
    ("variant", "parameters"),  # of keras-applications' README and keras.io's table
    [
        ("resnet50", 25_636_712),
        ("resnet101", 44_707_176),
        ("resnet152", 60_419_944),
        ("resnet50v2", 25_613_800),
        ("resnet101v2", 44_675_560),
        ("resnet152v2", 60_380_648),
        ("inception_v3", 23_851_784),
    ],
)
def test_as_many_parameters_as_published(variant: str, parameters: int) -> None:
    roles_of = tensor_shapes(read(variant, "keras")[1]).values()
    assert sum(prod(shape) for roles in roles_of for shape in roles.values()) == parameters

"""Every zoo's blocks, pads, names and options against its own implementation, on calibrated random weights.

The ResNets and transformers are shallow and the MobileNets narrow; `scripts/parity` measures every depth and
width.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import porter
from porter.base.errors import GraphError
from porter.recipe import Member, Recipe, expand, find_recipe, layer_names, tap_names
from tests.support.checkout import ROOT
from tests.support.frameworks.small_variants import REFUSED
from tests.support.parity import expect_proof, zoos_source
from tests.support.recipe.recipes import all_recipes
from tests.support.shallow import shallow_recipes, shallow_zoos
from tests.support.tensornets_files import needs_tensornets
from tests.support.weights_files import published_like

SMALL = (65, 64)
"""Rows are odd and columns even at every stride: 65, 33, 17, 9, 5, 3 and 64, 32, 16, 8, 4, 2."""
OTHER_SIZES = {
    ("mobilenet_v1_0.25", "keras"): (61, 64),  # its pads of (0, 1) round odd rows down: 61, 31, 15, 7, 3
    **dict.fromkeys((("vgg16", "keras"), ("vgg11_bn", "torchvision")), (225, 231)),
    ("vgg11_bn", "timm"): (225, 263),
    **{("vit_b_32", zoo): (224, 224) for zoo in ("torchvision", "timm", "transformers", "vit_jax")},
    **{("vit_b_32", zoo): (224, 224) for zoo in ("big_vision", "big_vision_plain", "big_vision_map")},
    **{("vit_b_32", zoo): (384, 384) for zoo in ("timm_384", "vit_jax_384")},
    ("vit_b_16", "big_vision_deit3"): (224, 224),
    **{("mixer_s_16", zoo): (224, 224) for zoo in ("timm", "vit_jax")},
    ("vit_b_16", "big_vision_deit3_384"): (384, 384),
    ("vit_b_16", "torchvision_swag"): (384, 384),
    **{("xception", zoo): (107, 96) for zoo in ("keras", "timm")},
    **{("inception_v3", zoo): (107, 96) for zoo in ("keras", "slim", "tensornets", "torchvision", "timm")},
}

NONE, BOTH, TORCH, TF = (), ("torch", "tf"), ("torch",), ("tf",)
CASES = {
    ("bit_r50x1", "big_transfer"): (TORCH, TF),
    ("bit_r50x1", "timm"): (NONE, TORCH),
    ("bit_r50x1", "transformers"): (NONE, TORCH),
    ("cifar_resnet20", "akamaster"): (NONE, TF),
    ("convnext_tiny", "torchvision"): (TORCH, TF),
    ("convnext_tiny", "keras"): (NONE, TORCH),
    ("convnext_tiny", "timm"): (NONE, TORCH),
    ("convnext_tiny", "transformers"): (NONE, TORCH),
    ("densenet121", "keras"): (TORCH, NONE),
    ("densenet121", "torchvision"): (NONE, TF),
    ("densenet121", "timm"): (NONE, TORCH),
    ("efficientnet_b0", "keras"): (TORCH, TF),
    ("efficientnet_b0", "torchvision"): (NONE, BOTH),
    ("efficientnet_b0", "timm"): (NONE, TORCH),
    ("efficientnet_b0", "timm_tf"): (NONE, TORCH),
    ("efficientnet_b0", "transformers"): (NONE, TF),
    ("efficientnet_b2", "transformers"): (NONE, TORCH),
    ("efficientnet_lite0", "timm"): (NONE, BOTH),
    ("efficientnet_lite0", "timm_tf"): (NONE, TORCH),
    ("googlenet", "torchvision"): (TF, NONE),
    ("inception_v3", "keras"): (NONE, BOTH),
    ("inception_v3", "slim"): (NONE, TORCH),
    ("inception_v3", "tensornets"): (NONE, TORCH),
    ("inception_v3", "torchvision"): (TORCH, TF),
    ("inception_v3", "timm"): (NONE, TORCH),
    ("mixer_s_16", "timm"): (TORCH, TF),
    ("mixer_s_16", "vit_jax"): (NONE, BOTH),
    ("mnasnet_0.5", "torchvision"): (TORCH, TF),
    ("mnasnet_0.5", "timm"): (NONE, TORCH),
    ("mobilenet_v1", "caffe"): (NONE, BOTH),
    ("mobilenet_v1_0.25", "keras"): (TORCH, TF),
    ("mobilenet_v1_0.25", "slim"): (TORCH, TF),
    ("mobilenet_v1_0.25", "tensornets"): (NONE, TORCH),
    ("mobilenet_v1", "timm"): (NONE, TORCH),
    ("mobilenet_v1", "timm_tf"): (NONE, TORCH),
    ("mobilenet_v1_0.25", "transformers"): (TF, NONE),
    ("mobilenet_v1_0.25", "transformers_torch"): (NONE, TORCH),
    ("mobilenet_v2", "caffe"): (NONE, BOTH),
    ("mobilenet_v2_0.35", "keras"): (TORCH, TF),
    ("mobilenet_v2_0.35", "slim"): (NONE, TORCH),
    ("mobilenet_v2_0.35", "tensornets"): (NONE, TORCH),
    ("mobilenet_v2_0.35", "torchvision"): (TORCH, TF),
    ("mobilenet_v2_0.35", "timm"): (NONE, TORCH),
    ("mobilenet_v2_0.35", "timm_tf"): (TORCH, NONE),
    ("mobilenet_v2_0.35", "transformers"): (NONE, TORCH),
    ("mobilenet_v2_0.35", "transformers_torch"): (NONE, TORCH),
    ("mobilenet_v3_small_0.5", "keras"): (TORCH, TF),
    ("mobilenet_v3_small", "torchvision"): (NONE, BOTH),
    ("mobilenet_v3_small_0.5", "timm"): (NONE, TORCH),
    ("mobilenet_v3_small_0.75", "timm_tf"): (NONE, TORCH),
    ("regnet_y_400mf", "torchvision"): (TORCH, TF),
    ("regnet_y_16gf", "torchvision_swag"): (NONE, TORCH),
    ("regnet_y_400mf", "timm"): (NONE, TORCH),
    ("regnet_y_200mf", "transformers"): (NONE, TORCH),
    ("regnet_x_800mf", "torchvision"): (NONE, BOTH),
    ("regnet_x_200mf", "transformers"): (NONE, TORCH),
    ("resnet18", "torchvision"): (TF, TORCH),
    ("resnet18", "timm"): (NONE, TORCH),
    ("resnet18", "transformers"): (NONE, TORCH),
    ("resnet18", "flax_examples"): (NONE, TORCH),
    ("resnet50", "flax_examples"): (NONE, TORCH),
    ("resnet50", "transformers"): (NONE, TORCH),
    ("resnet50", "caffe"): (NONE, BOTH),
    ("resnet50", "keras"): (TORCH, TF),
    ("resnet50", "slim"): (NONE, BOTH),
    ("resnet50", "tensornets"): (NONE, TORCH),
    ("resnet50", "torchvision"): (TORCH, TF),
    ("resnet50", "timm"): (NONE, TORCH),
    ("resnet50v2", "keras"): (TORCH, TF),
    ("resnet50v2", "slim"): (TORCH, TF),
    ("resnet50v2", "tensornets"): (NONE, BOTH),
    ("resnet200v2", "slim"): (NONE, TORCH),
    ("resnet200v2", "tensornets"): (NONE, BOTH),
    ("resnext50_32x4d", "keras"): (NONE, BOTH),
    ("resnext50_32x4d", "tensornets"): (NONE, TORCH),
    ("resnext50_32x4d", "torchvision"): (NONE, BOTH),
    ("shufflenet_v2_x0_5", "torchvision"): (TORCH, TF),
    ("squeezenet1_1", "torchvision"): (TF, NONE),
    ("vgg16", "keras"): (NONE, TORCH),
    ("vgg11_bn", "torchvision"): (TF, NONE),
    ("vgg11_bn", "timm"): (NONE, TORCH),
    ("vit_b_32", "torchvision"): (NONE, BOTH),
    ("vit_b_32", "timm"): (NONE, TORCH),
    ("vit_b_32", "vit_jax"): (TF, TORCH),
    ("vit_b_16", "torchvision_swag"): (NONE, TORCH),
    ("vit_b_32", "timm_384"): (NONE, TORCH),
    ("vit_b_32", "transformers"): (NONE, TORCH),
    ("vit_b_32", "vit_jax_384"): (NONE, TORCH),
    ("vit_b_32", "big_vision"): (NONE, BOTH),
    ("vit_b_32", "big_vision_plain"): (NONE, BOTH),
    ("vit_b_32", "big_vision_map"): (TORCH, TF),
    ("vit_b_16", "big_vision_deit3"): (TORCH, TF),
    ("vit_b_16", "big_vision_deit3_384"): (NONE, TORCH),
    ("wide_resnet50_2", "tensornets"): (NONE, TORCH),
    ("wide_resnet50_2", "torchvision"): (NONE, TORCH),
    ("xception", "keras"): (NONE, BOTH),
    ("xception", "timm"): (NONE, BOTH),
}
"""The destinations that every run of the tests proves, and those that only `full` proves.

Only torch, where another case has the same pads and options and gives tf the same graph, or where the zoo is
in tf. Only tf, where the zoo's own framework needs no other pads. What only `full` proves has the same blocks
as another zoo's case, or a new part is a test of its own. In tf, GoogLeNet has as many kinds of branches as
an Inception, ResNet-18 the pads of a basic unit, and convolutions in groups are held to layer by layer
(tests/unit/frameworks/tf).
"""
IN_FUNCTIONS = ("/pool", "/branch3x3_2", "/branch3x3dbl_3")
SILENT = {
    ("resnet_cifar", "akamaster"): ("/relu1", "/relu", "/cells", "/add", "head/pool"),
    ("bit", "transformers"): ("/norm1", "/norm2", "/norm3", "head/norm"),
    ("convnext", "keras"): ("/add",),
    ("convnext", "torchvision"): ("/norm", "/mlp1", "/gelu"),
    ("convnext", "timm"): ("/norm", "/mlp1", "/gelu", "/mlp2"),
    ("convnext", "transformers"): ("/norm", "/mlp1", "/gelu", "/mlp2", "head/pool"),
    ("densenet", "torchvision"): ("/concat", "head/relu", "head/pool"),
    ("densenet", "timm"): ("/concat",),
    ("efficientnet", "keras"): ("/reduce", "squeeze/expand"),
    **{("efficientnet", zoo): ("squeeze/pool",) for zoo in ("timm", "timm_tf")},
    ("googlenet", "torchvision"): ("transform_input",),
    ("inception_v3", "slim"): ("/relu",),
    ("inception_v3", "torchvision"): (*IN_FUNCTIONS, "transform_input"),
    ("inception_v3", "timm"): IN_FUNCTIONS,
    ("mlp_mixer", "timm"): ("/turned", "/back", "/add1"),
    ("mlp_mixer", "vit_jax"): (
        "/cells",
        "/turned",
        "/back",
        "/gelu1",
        "/gelu2",
        "/add1",
        "/add2",
        "head/mean",
    ),
    ("mnasnet", "torchvision"): ("head/pool",),
    ("mobilenet_v2", "torchvision"): ("head/pool",),
    ("mobilenet_v3", "keras"): ("/act", "/gate"),
    ("mobilenet_v3", "timm"): ("/pool",),
    ("mobilenet_v3", "timm_tf"): ("/pool",),
    ("shufflenet_v2", "torchvision"): ("/kept", "/split", "/join", "head/pool"),
    **{
        (resnet, "torchvision"): ("/add", "/relu1", "/relu2")
        for resnet in ("resnet_v1", "resnext", "wide_resnet")
    },
    **{("regnet", zoo): ("/add",) for zoo in ("torchvision", "torchvision_swag")},
    ("regnet", "timm"): ("/add", "squeeze/pool"),
    ("regnet", "transformers"): ("/add",),
    ("resnet_v1", "timm"): ("/add",),
    ("resnet_v1", "transformers"): ("/add",),
    ("resnet_v1", "flax_examples"): ("/relu", "/relu1", "/relu2", "/add", "/pool"),
    ("vgg", "keras"): ("/conv", "/fc1", "/fc2"),
    ("vgg", "torchvision"): ("/flatten",),
    **{
        ("vit", zoo): ("/cells", "/token", "/first", "/qkv", "/attention", "/add1")
        for zoo in ("torchvision", "torchvision_swag")
    },
    **{("vit", zoo): ("/token", "/first", "/add1") for zoo in ("timm", "timm_384")},
    ("vit", "transformers"): ("/token", "/attention", "/first", "head/token", "/add1"),
    **{
        ("vit", zoo): ("/token", "/first", "/query", "/key", "/value", "/add1")
        for zoo in ("vit_jax", "vit_jax_384")
    },
    **{
        ("vit", zoo): ("/first", "/query", "/key", "/value", "/add1", "stem/positions")
        for zoo in ("big_vision_deit3", "big_vision_deit3_384")
    },
    **{
        ("vit", zoo): (
            "/cells",
            "/positions",
            "/attention",
            "/gelu",
            "/add1",
            "/add2",
            "head/mean",
            "head/tanh",
        )
        for zoo in ("big_vision", "big_vision_plain")
    },
    ("vit", "big_vision_map"): (
        "/cells",
        "/positions",
        "/attention",
        "/gelu",
        "/add1",
        "/add2",
        "/add",
        "/probe",
        "/first",
        "pool/token",
    ),
    ("xception", "keras"): ("/depthwise",),
}
"""Ends of the paths that a zoo's code computes in no layer or operation of their own, so that they cannot be
compared.
"""
AS_ANOTHER = {
    **dict.fromkeys(("torchvision_v2", "torchvision_swag_linear"), "torchvision"),
    **dict.fromkeys(("timm_tf", "deit"), "timm"),
}
"""Zoos that differ from another one by their files and protocols only, if their reference is the other's."""


def as_another(recipe: Recipe, zoo: str) -> str:
    other = AS_ANOTHER.get(zoo, zoo)
    return other if recipe.zoos[zoo].reference == recipe.zoos[other].reference else zoo


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with shallow_zoos():
        yield shallow_recipes(tmp_path_factory.mktemp("shallow") / "recipes")


def params() -> Iterator[Any]:
    for case, (always, later) in CASES.items():
        marks, name = [needs_tensornets] if "tensornets" in case else [], "-".join(case)
        full = [*marks, pytest.mark.full]
        yield pytest.param(*case, always or later, marks=marks if always else full, id=name)
        if always and later:
            yield pytest.param(*case, later, marks=full, id=f"{name}-{later[0]}")
        yield pytest.param(*case, ("onnx",), marks=full, id=f"{name}-onnx")


@pytest.mark.parametrize(("variant", "zoo", "frameworks"), list(params()))
def test_port_computes_the_references_function(
    variant: str, zoo: str, frameworks: tuple[str, ...], recipes: Path, tmp_path: Path
) -> None:
    size = OTHER_SIZES.get((variant, zoo), SMALL)
    weights = published_like(tmp_path, variant, zoo, recipes, size)
    source = zoos_source(variant, zoo, weights, recipes)
    silent = SILENT.get((find_recipe(variant).architecture, zoo), ())
    for framework in frameworks:
        for input_size in (f"{size[0]}x{size[1]}", "any"):
            settings: dict[str, Any] = {
                "weights": weights,
                "recipes": recipes,
                "check": False,
                "input_size": input_size,
            }
            port = porter.convert(
                variant, zoo, framework, out=tmp_path / framework / input_size, **settings
            ).port
            expect_proof(port, source, size, silent)
            if not port.plan.fixed_by_pads:  # otherwise every size, or the only one that its layers take
                break


@pytest.mark.full
@pytest.mark.parametrize(("variant", "zoo"), [pytest.param(*case, id="-".join(case)) for case in CASES])
def test_port_to_caffe_computes_the_references_function(
    variant: str, zoo: str, recipes: Path, tmp_path: Path
) -> None:
    architecture, size = find_recipe(variant).architecture, OTHER_SIZES.get((variant, zoo), SMALL)
    weights = published_like(tmp_path, variant, zoo, recipes, size)
    settings: dict[str, Any] = {
        "weights": weights,
        "recipes": recipes,
        "check": False,
        "input_size": f"{size[0]}x{size[1]}",
    }
    if architecture in REFUSED["caffe"]:
        with pytest.raises(GraphError, match=REFUSED["caffe"][architecture]):
            porter.convert(variant, zoo, "caffe", out=tmp_path / "port", **settings)
        return
    port = porter.convert(variant, zoo, "caffe", out=tmp_path / "port", **settings).port
    expect_proof(port, zoos_source(variant, zoo, weights, recipes), size, SILENT.get((architecture, zoo), ()))


def test_every_zoo_of_every_recipe_has_a_case() -> None:
    """But MXNet's, whose files only MXNet writes (tests/roads/recipe/test_gluon.py)."""
    proved = {(find_recipe(variant).architecture, zoo) for variant, zoo in CASES}
    assert {
        (recipe.architecture, as_another(recipe, zoo))
        for recipe in all_recipes()
        for zoo in recipe.zoos
        if zoo != "gluon"
    } == proved


@pytest.mark.parametrize("zoo", AS_ANOTHER)
def test_a_zoo_as_another_is_that(zoo: str) -> None:
    for recipe in all_recipes():
        for variant in recipe.variants:
            if zoo in recipe.zoos_of(variant) and as_another(recipe, zoo) != zoo:
                own, other = (recipe.zoo(name, variant) for name in (zoo, AS_ANOTHER[zoo]))
                graph = expand(Member(recipe, variant, own))
                assert graph == expand(Member(recipe, variant, other))
                assert layer_names(Member(recipe, variant, own), graph) == layer_names(
                    Member(recipe, variant, other), graph
                )
                assert tap_names(Member(recipe, variant, own), graph) == tap_names(
                    Member(recipe, variant, other), graph
                )


def test_the_page_of_what_is_proved_is_written_from_the_records() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "parity"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](script["records"]())

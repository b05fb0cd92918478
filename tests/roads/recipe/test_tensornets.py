"""The zoo `tensornets` of the recipes against the graphs that TensorNets makes, and by hand where it is not
installed.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.dialects import get_dialect
from porter.graph import BatchNorm, Conv, Graph, MaxPool, shapes, tensor_shapes
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe, layer_names, tap_names
from porter.recipe.transforms import undo_transforms
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.zoos.slim.tensornets import construct
from tests.support.arrays import Array
from tests.support.recipe.recipes import all_recipes
from tests.support.recipe.stock import canonical, read, tensor_names
from tests.support.tensornets_files import needs_tensornets

FUNCTIONS = {  # of TensorNets, with the number of variables and of parameters that its print_summary() shows
    "resnet50": ("resnet50", 320, 25_636_712),
    "resnet101": ("resnet101", 626, 44_707_176),
    "resnet152": ("resnet152", 932, 60_419_944),
    "resnet50v2": ("resnet50v2", 272, 25_613_800),
    "resnet101v2": ("resnet101v2", 544, 44_675_560),
    "resnet152v2": ("resnet152v2", 816, 60_380_648),
    "resnet200v2": ("resnet200v2", 1224, 64_938_088),
    "resnext50_32x4d": ("resnext50c32", 267, 25_097_128),
    "resnext101_32x4d": ("resnext101c32", 522, 44_315_560),
    "resnext101_64x4d": ("resnext101c64", 522, 83_658_152),
    "wide_resnet50_2": ("wideresnet50", 267, 68_951_464),
    "inception_v3": ("inception3", 378, 23_851_784),
    "mobilenet_v1": ("mobilenet100", 137, 4_253_864),
    "mobilenet_v1_0.75": ("mobilenet75", 137, 2_601_976),
    "mobilenet_v1_0.5": ("mobilenet50", 137, 1_342_536),
    "mobilenet_v1_0.25": ("mobilenet25", 137, 475_544),
    "mobilenet_v2": ("mobilenet100v2", 262, 3_538_984),
    "mobilenet_v2_1.4": ("mobilenet140v2", 262, 6_156_712),
    "mobilenet_v2_1.3": ("mobilenet130v2", 262, 5_431_048),
    "mobilenet_v2_0.75": ("mobilenet75v2", 262, 2_663_064),
    "mobilenet_v2_0.5": ("mobilenet50v2", 262, 1_987_224),
    "mobilenet_v2_0.35": ("mobilenet35v2", 262, 1_691_208),
}
# Of the others tests/roads/test_parity.py runs every kind.
QUICK = ("resnet50v2", "mobilenet_v1_0.25")
CASES = [pytest.param(variant, marks=() if variant in QUICK else pytest.mark.full) for variant in FUNCTIONS]


@needs_tensornets
@pytest.mark.parametrize("variant", CASES)
def test_every_variable_and_operation_is_tensornets(variant: str) -> None:
    recipe, graph, layers = read(variant, "tensornets")
    roles_of, tensorflow = tensor_shapes(graph), import_tensorflow()
    size = recipe.native_size()[0] + 1
    with tensorflow.Graph().as_default() as theirs:
        network = construct(
            variant, tensorflow.compat.v1.placeholder(tensorflow.float32, [None, size, size, 3]), 1000
        )
    variables = dict(network.variables)
    for path, role, spellings in tensor_names("tf", graph, layers):
        shape = variables.pop(next(name for name in spellings if name in variables))
        assert canonical(graph, path, layers[path], role, shape) == roles_of[path][role], (path, role)
    for path in roles_of:
        node = graph.by_path[path]
        if isinstance(node.op, BatchNorm):
            norm = theirs.get_operation_by_name(f"{layers[path].name}/FusedBatchNormV3")
            assert node.op.epsilon == pytest.approx(norm.get_attr("epsilon")), path
    assert not variables
    taps = tap_names(recipe.member(variant, "tensornets"), graph)
    for path, (channels, *sides) in shapes(graph, (size, size)).items():
        if path in taps and path not in roles_of:
            (output,) = theirs.get_operation_by_name(taps[path]).outputs
            assert output.shape.as_list() == [None, *sides, channels], path


@pytest.mark.parametrize("variant", FUNCTIONS)
def test_as_many_variables_as_tensornets_counts(variant: str) -> None:
    function, variables, parameters = FUNCTIONS[variant]
    _, graph, layers = read(variant, "tensornets")
    sizes = [prod(shape) for roles in tensor_shapes(graph).values() for shape in roles.values()]
    assert (len(sizes), sum(sizes)) == (variables, parameters)
    assert all(layer.name.startswith(f"{function}/") for layer in layers.values())


def test_every_variant_of_tensornets_is_here() -> None:
    having = {
        variant
        for recipe in all_recipes()
        for variant in recipe.variants
        if "tensornets" in recipe.zoos_of(variant)
    }
    assert having == FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("variant", "path", "role", "name", "shape"),
    [
        ("resnet50", "stem/conv", "bias", "resnet50/conv1/conv/biases", (64,)),
        ("resnet101", "stage3/unit23/norm2", "gamma", "resnet101/conv4/block23/2/bn/gamma", (256,)),
        (
            "resnet152",
            "stage2/unit1/shortcut/conv",
            "kernel",
            "resnet152/conv3/block1/0/conv/weights",
            (512, 256, 1, 1),
        ),
        ("resnet50v2", "stem/conv", "kernel", "resnet50v2/conv1/weights", (64, 3, 7, 7)),
        ("resnet50v2", "stage1/unit1/preact/norm", "beta", "resnet50v2/conv2/block1/preact/beta", (64,)),
        ("resnet50v2", "stage4/unit1/shortcut/conv", "bias", "resnet50v2/conv5/block1/0/biases", (2048,)),
        ("resnet50v2", "head/norm", "mean", "resnet50v2/postnorm/moving_mean", (2048,)),
        ("resnet200v2", "stem/norm", "gamma", "resnet200v2/conv1/bn/gamma", (64,)),
        ("resnet200v2", "stage2/unit24/preact/norm", "gamma", "resnet200v2/conv3/block24/bn/gamma", (512,)),
        ("resnet200v2", "stage2/unit1/shortcut/norm", "beta", "resnet200v2/conv3/block1/0/bn/beta", (512,)),
        ("resnet200v2", "head/norm", "variance", "resnet200v2/bn/moving_variance", (2048,)),
        (
            "resnext101_64x4d",
            "stage1/unit1/conv2",
            "kernel",
            "resnext101c64/conv2/block1/2/sconv/depthwise_weights",
            (256, 4, 3, 3),
        ),
        (
            "wide_resnet50_2",
            "stage4/unit3/conv2",
            "kernel",
            "wideresnet50/conv5/block3/2/conv/weights",
            (1024, 1024, 3, 3),
        ),
        ("wide_resnet50_2", "head/logits", "kernel", "wideresnet50/logits/weights", (1000, 2048)),
        ("inception_v3", "conv4a_3x3/bn", "beta", "inception3/block4a/bn/beta", (192,)),
        (
            "inception_v3",
            "mixed5b/branch5x5_2/conv",
            "kernel",
            "inception3/block5b/3x3/1/conv/weights",
            (64, 48, 5, 5),
        ),
        (
            "inception_v3",
            "mixed6b/branch7x7dbl_2/conv",
            "kernel",
            "inception3/block6b/d7x7/1/conv/weights",
            (128, 128, 7, 1),
        ),
        (
            "inception_v3",
            "mixed7c/branch3x3dbl_3b/conv",
            "kernel",
            "inception3/block7c/d3x3/22/conv/weights",
            (384, 384, 3, 1),
        ),
        (
            "mobilenet_v1_0.75",
            "block12/depthwise/conv",
            "kernel",
            "mobilenet75/conv14/sconv/sconv/depthwise_weights",
            (768, 1, 3, 3),
        ),
        (
            "mobilenet_v2_1.4",
            "block0/project/conv",
            "kernel",
            "mobilenet140v2/pconv1/conv/weights",
            (24, 48, 1, 1),
        ),
        (
            "mobilenet_v2_0.35",
            "block16/expand/norm",
            "mean",
            "mobilenet35v2/conv17/conv/bn/moving_mean",
            (336,),
        ),
    ],
)
def test_tensornets_names(variant: str, path: str, role: str, name: str, shape: tuple[int, ...]) -> None:
    _, graph, layers = read(variant, "tensornets")
    assert name in get_dialect("tf").tensor_names(graph, graph.by_path[path], layers[path].name)[role]
    assert tensor_shapes(graph)[path][role] == shape


def stem_pools(variant: str) -> list[Convention]:
    """How the stem's pool is padded, as it is and as in training."""
    recipe = find_recipe(variant)
    graphs = [expand(recipe.member(variant, "tensornets"), as_trained=trained) for trained in (False, True)]
    return [
        node.op.convention
        for graph in graphs
        for node in graph.nodes
        if node.path == "stem/pool" and isinstance(node.op, MaxPool)
    ]


def test_the_stems_pools() -> None:
    """TensorNets mirrors the border (tensornets/resnets.py, `pad_info` and 'SYMMETRIC'), of which a maximum
    takes no notice.
    """
    around = Convention("explicit", (1, 1, 1, 1), LOWEST)
    assert stem_pools("resnet50") == [around, Convention(fill=LOWEST, rounding="ceil")]
    assert stem_pools("resnet50v2") == [
        Convention("explicit", (0, 1, 0, 1), LOWEST),
        Convention("same", fill=LOWEST),
    ]
    assert (
        stem_pools("resnet200v2")
        == stem_pools("resnext50_32x4d")
        == stem_pools("wide_resnet50_2")
        == [around, around]
    )


def test_tensornets_pool_is_slims_only_on_even_maps() -> None:
    graphs = [read("resnet50v2", zoo)[1] for zoo in ("tensornets", "slim")]
    assert [[shapes(graph, (size, size))["stem/pool"][1] for graph in graphs] for size in (224, 225)] == [
        [56, 56],
        [56, 57],
    ]


def test_resnet200v2_is_another_graph() -> None:
    """resnet200v2: convolution, norm and ReLU in the stem; `_block2` projects what it is given, with a norm
    behind, and has the stride in a stage's first unit; every convolution has a bias.
    """
    graph = read("resnet200v2", "tensornets")[1]
    assert graph.by_path["stem/pool"].inputs == ("stem/relu",) and graph.by_path["stem/norm"].inputs == (
        "stem/conv",
    )
    projections = [node for node in graph.nodes if node.path.endswith("shortcut/conv")]
    assert [node.inputs for node in projections] == [
        ("stem/pool",),
        *((f"stage{s}/unit{n}/out",) for s, n in ((1, 3), (2, 24), (3, 36))),
    ]
    assert all(
        graph.by_path[node.path.replace("/conv", "/norm")].inputs == (node.path,) for node in projections
    )
    assert strided_units(graph) == [
        f"stage{s}/unit1/{node}" for s in (2, 3, 4) for node in ("shortcut/conv", "conv2")
    ]
    assert all(node.op.bias for node in graph.nodes if isinstance(node.op, Conv))


def strided_units(graph: Graph) -> list[str]:
    """Convolutions and pools of the units that stride."""
    return [
        node.path
        for node in graph.nodes
        if "unit" in node.path and isinstance(node.op, Conv | MaxPool) and node.op.window.stride == (2, 2)
    ]


def test_where_the_others_stride() -> None:
    first = [(f"stage{s}/unit1/conv1", f"stage{s}/unit1/shortcut/conv") for s in (2, 3, 4)]
    assert strided_units(read("resnet50", "tensornets")[1]) == [path for pair in first for path in pair]
    for variant, zoo in (
        ("resnet50v2", "slim"),
        ("resnext50_32x4d", "torchvision"),
        ("wide_resnet50_2", "torchvision"),
    ):
        assert strided_units(read(variant, "tensornets")[1]) == strided_units(read(variant, zoo)[1])


def test_norms_of_resnets_have_tensorflow_ones_least_epsilon() -> None:
    for variant in FUNCTIONS:
        epsilons = {
            node.op.epsilon for node in read(variant, "tensornets")[1].nodes if isinstance(node.op, BatchNorm)
        }
        assert epsilons == {1.001e-5 if "resne" in variant else 1e-3}, variant


def test_protocols() -> None:
    def protocol(variant: str) -> tuple[Any, ...]:
        found: Any = find_recipe(variant).zoo("tensornets", variant).preprocess
        return found.size, found.crop, found.channels, found.mean

    half, imagenet = (0.5, 0.5, 0.5), (0.485, 0.456, 0.406)
    assert protocol("resnet50") == (256, 224, "bgr", (103.939, 116.779, 123.68))
    assert protocol("resnet152v2") == protocol("inception_v3") == (341, 299, "rgb", half)
    assert protocol("resnet200v2") == protocol("resnext101_64x4d") == (256, 224, "rgb", imagenet)
    assert protocol("wide_resnet50_2") == (256, 224, "rgb", (0.491, 0.482, 0.447))
    assert protocol("mobilenet_v1_0.5") == protocol("mobilenet_v2_1.3") == (256, 224, "rgb", half)


def test_licences() -> None:
    files = {variant: find_recipe(variant).zoos["tensornets"].files[variant] for variant in FUNCTIONS}
    assert {variant for variant, file in files.items() if file.licence == "CC BY-NC 4.0"} == {
        variant for variant in FUNCTIONS if variant.startswith("resnext")
    }
    assert (files["resnet200v2"].licence, files["resnet50v2"].licence) == ("BSD-3-Clause", "Apache-2.0")
    assert all(file.md5 for file in files.values())


def checkpoint(variant: str, before: str = "", classes: int = 1000) -> Checkpoint:
    """Zeros under TensorNets' names."""
    recipe = find_recipe(variant)
    member = recipe.member(variant, "tensornets")
    graph = expand(member, {"classes": classes})
    layers, roles_of, tensors = layer_names(member, graph), tensor_shapes(graph), {}
    for path, role, names in tensor_names("tf", graph, layers):
        zeros: Array = np.zeros(roles_of[path][role], np.float32)
        zeros = undo_transforms(layers[path].transforms, role, zeros)
        tensors[before + names[-1]] = get_dialect("tf").from_canonical(
            graph, graph.by_path[path], role, zeros
        )
    return Checkpoint(Path("weights.npz"), "npz", "tf", tensors)


@pytest.mark.parametrize("variant", ["resnext50_32x4d", "mobilenet_v1_0.25", "resnet50v2"])
@pytest.mark.parametrize("before", ["", "tower_0/"])
def test_files_with_names_fit_in_a_scope_or_without(variant: str, before: str) -> None:
    recipe = find_recipe(variant)
    fit = fit_by_names(Candidate.of(recipe.member(variant, "tensornets"), checkpoint(variant, before)))
    assert len(fit.tensors) == FUNCTIONS[variant][1] and (fit.classes, fit.own_head, fit.background) == (
        1000,
        True,
        False,
    )
    assert fit.activation == "softmax" and not fit.warnings


def test_a_head_of_ones_own() -> None:
    recipe = find_recipe("mobilenet_v1_0.25")
    member = recipe.member("mobilenet_v1_0.25", "tensornets")
    fit = fit_by_names(Candidate.of(member, checkpoint("mobilenet_v1_0.25", classes=50)))
    assert fit.source_classes == 50 and not fit.background


def test_other_widths_and_depths_do_not_fit() -> None:
    recipe = find_recipe("mobilenet_v1_0.5")
    with pytest.raises(MappingError):
        fit_by_names(
            Candidate.of(recipe.member("mobilenet_v1_0.5", "tensornets"), checkpoint("mobilenet_v1_0.25"))
        )
    with pytest.raises(UsageError, match="zoo 'tensornets' has no 'resnet34'"):
        find_recipe("resnet34").zoo("tensornets", "resnet34")

"""The recipes of ResNet v1, ResNeXt and wide ResNets: strides, pads of training, older names and facts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import BatchNorm, Conv, Graph, MaxPool, shapes, tensor_shapes
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from tests.support.recipe.stock import read, tensor_names


def strided(graph: Graph) -> list[str]:
    """Convolutions of the units that stride."""
    return [
        node.path
        for node in graph.nodes
        if "unit" in node.path and isinstance(node.op, Conv) and node.op.window.stride == (2, 2)
    ]


def test_where_bottlenecks_stride() -> None:
    """Of variants that no other test compares with their zoo's own code."""
    assert strided(read("resnext50_32x4d", "keras")[1]) == strided(read("resnext50_32x4d", "torchvision")[1])
    _, slim, _ = read("resnet50", "slim")
    last = ["stage1/unit3", "stage2/unit4", "stage3/unit6"]
    assert strided(slim) == [f"{unit}/conv2" for unit in last]
    pools = [node.path for node in slim.nodes if node.path.endswith("shortcut/pool")]
    assert pools == [f"{unit}/shortcut/pool" for unit in last]


def test_the_pads_that_caffes_weights_were_trained_with() -> None:
    recipe = find_recipe("resnet50")
    member = recipe.member("resnet50", "keras")
    shipped, trained = (expand(member, as_trained=choice) for choice in (False, True))
    changed = [
        node.path for node, other in zip(shipped.nodes, trained.nodes, strict=True) if node.op != other.op
    ]
    assert changed == ["stem/pool"]
    pool = trained.by_path["stem/pool"].op
    assert isinstance(pool, MaxPool) and pool.convention == Convention(fill=LOWEST, rounding="ceil")
    assert (
        shapes(trained, (224, 224))["stem/pool"] == shapes(shipped, (224, 224))["stem/pool"] == (64, 56, 56)
    )
    assert shapes(trained, (297, 297))["stem/pool"] == (64, 74, 74), "Caffe's windows on an odd map"


def older_checkpoint(generation: str, variant: str = "resnet50") -> Checkpoint:
    _, graph, layers = read(variant, "keras", generation)
    roles_of, tensors = tensor_shapes(graph), {}
    for path, role, names in tensor_names("tf", graph, layers):
        zeros = np.zeros(roles_of[path][role], np.float32)
        tensors[names[0]] = get_dialect("tf").from_canonical(graph, graph.by_path[path], role, zeros)
    return Checkpoint(Path("weights.h5"), "keras-h5", "tf", tensors)


@pytest.mark.parametrize(
    ("generation", "names", "epsilon"),
    [
        (
            "keras-applications-1.0.8",
            ("conv1_conv", "conv4_block6_2_bn", "conv5_block1_0_conv", "probs"),
            1.001e-5,
        ),
        ("keras-2.2", ("conv1", "bn4f_branch2b", "res5a_branch1", "fc1000"), 1e-3),
    ],
)
def test_older_keras_names(generation: str, names: tuple[str, ...], epsilon: float) -> None:
    recipe = find_recipe("resnet50")
    fit = fit_by_names(Candidate.of(recipe.member("resnet50", "keras"), older_checkpoint(generation)))
    paths = ("stem/conv", "stage3/unit6/norm2", "stage4/unit1/shortcut/conv", "head/logits")
    roles = ("kernel", "gamma", "kernel", "kernel")
    assert [fit.tensors[node].rpartition("/")[0] for node in zip(paths, roles, strict=True)] == list(names)
    assert fit.own_head and any(generation in note for note in fit.notes)
    assert {node.op.epsilon for node in fit.graph.nodes if isinstance(node.op, BatchNorm)} == {epsilon}
    same = epsilon == 1.001e-5
    # Today's Keras is no reference for what older code computed otherwise.
    assert (
        bool(fit.in_zoo.names) == same
        and any("bn_epsilon 0.001" in warning for warning in fit.warnings) != same
    )
    assert not same or fit.in_zoo.names["probs/kernel"] == "predictions/kernel"


@pytest.mark.parametrize("variant", ["resnet101", "resnet152"])
def test_older_names_are_no_trouble_to_other_depths(variant: str) -> None:
    recipe = find_recipe(variant)
    fit = fit_by_names(
        Candidate.of(recipe.member(variant, "keras"), older_checkpoint("keras-applications-1.0.8", variant))
    )
    assert fit.own_head and fit.in_zoo.names


def test_zoos_have_only_their_variants() -> None:
    with pytest.raises(UsageError, match="zoo 'keras' has no 'resnet18'"):
        find_recipe("resnet18").zoo("keras", "resnet18")
    with pytest.raises(UsageError, match="zoo 'torchvision_v2' has no 'resnext101_64x4d'"):
        find_recipe("resnext101_64x4d").zoo("torchvision_v2", "resnext101_64x4d")


def test_licences_and_protocols() -> None:
    resnext = find_recipe("resnext50_32x4d")
    assert {file.licence for file in resnext.zoos["keras"].files.values()} == {"CC BY-NC 4.0"}
    wide: Any = resnext.zoo("torchvision", "resnext101_64x4d").preprocess
    plain: Any = resnext.zoo("torchvision", "resnext50_32x4d").preprocess
    assert (wide.size, plain.size) == (232, 256)
    caffe: Any = find_recipe("resnet50").zoo("keras", "resnet50").preprocess
    assert (caffe.channels, caffe.mean, caffe.std) == ("bgr", (103.939, 116.779, 123.68), (1, 1, 1))

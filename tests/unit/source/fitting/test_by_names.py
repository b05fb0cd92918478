"""Fitting a recipe to a file of weights by name: prefixes, heads of one's own, `--map`, and what is
refused.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.graph import Dense, Relu, tensor_shapes
from porter.recipe import Member, expand, find_recipe, layer_names
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit
from porter.source.fitting.grafting import POOL_THE_MAP
from porter.source.opened import read_tensors
from tests.support.arrays import Array

RECIPE = find_recipe("mobilenet_v2")
Tensors = Mapping[str, Array]


@cache
def file(zoo_name: str, classes: int = 1000) -> dict[str, Array]:
    """All tensors of MobileNet v2 as a zoo names and lays them out, without values."""
    member = RECIPE.member("mobilenet_v2", zoo_name)
    framework, graph = get_destination(member.zoo.framework), expand(member, {"classes": classes})
    layers = layer_names(member, graph)
    tensors = {}
    for path, roles in tensor_shapes(graph).items():
        names = get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, shape in roles.items():
            array = np.broadcast_to(np.float32(0), shape)
            tensors[names[role][-1 if zoo_name == "slim" else 0]] = get_dialect(
                framework.NAME
            ).from_canonical(graph, graph.by_path[path], role, array)
    return tensors


def fit(zoo: str, tensors: Tensors, *settings: str, keep_background: bool = False) -> Fit:
    found = RECIPE.zoo(zoo, "mobilenet_v2")
    checkpoint = Checkpoint(Path("a file"), "memory", found.framework, tensors)
    candidate = Candidate.of(Member(RECIPE, "mobilenet_v2", found), checkpoint)
    return fit_by_names(candidate.with_map(settings), keep_background)


def prefixed(tensors: Tensors, prefix: str) -> dict[str, Array]:
    return {prefix + name: array for name, array in tensors.items()}


def without(tensors: Tensors, holds: Callable[[str], bool]) -> dict[str, Array]:
    return {name: array for name, array in tensors.items() if not holds(name)}


def linear(units: int, features: int) -> Array:
    return np.zeros((units, features), np.float32)


def place(path: str) -> str:
    """Where the recipe says torchvision's name of a node."""
    member = RECIPE.member("mobilenet_v2", "torchvision")
    layers = layer_names(member, expand(member))
    return RECIPE.source.where(layers[path].location)


TRUNK = without(file("torchvision"), lambda name: name.startswith("classifier"))


@pytest.mark.parametrize(("classes", "activation"), [(1, "sigmoid"), (5, "softmax")])
def test_one_class_has_no_softmax(classes: int, activation: str) -> None:
    found = fit("keras", file("keras", classes))
    assert (found.source_classes, found.own_head, found.activation) == (classes, False, activation)


@pytest.mark.parametrize("prefix", ["module.", "model.", "net.backbone.", "0."])
def test_a_wrappers_prefix_is_found_and_named(prefix: str) -> None:
    found = fit("torchvision", prefixed(file("torchvision"), prefix))
    assert found.own_head and not found.ignored and found.notes == (f"names begin with '{prefix}'",)
    assert found.in_zoo.names[f"{prefix}classifier.1.weight"] == "classifier.1.weight"


def test_a_variable_scope_is_found_and_averages_within_it() -> None:
    tensors = prefixed(file("slim", 1001), "tower_0/")
    shadows = {f"{name}/ExponentialMovingAverage": array for name, array in tensors.items()}
    found = fit("slim", {**tensors, **shadows, "global_step": np.zeros((), np.int64)})
    assert found.tensors["stem/conv", "kernel"] == "tower_0/MobilenetV2/Conv/weights/ExponentialMovingAverage"
    assert found.in_zoo.names[found.tensors["stem/conv", "kernel"]] == "MobilenetV2/Conv/weights"
    assert any("moving averages" in note for note in found.notes)
    assert found.ignored["tower_0/MobilenetV2/Conv/weights"] == "its moving average is used"


def test_the_background_row_goes_only_from_the_zoos_own_head() -> None:
    assert fit("slim", file("slim", 1001)).classes == 1000
    kept = fit("slim", file("slim", 1001), keep_background=True)
    assert kept.classes == 1001 and kept.background
    tuned = fit("slim", file("slim", 6))
    assert (tuned.classes, tuned.source_classes, tuned.background, tuned.own_head) == (6, 6, False, False)


def test_what_stands_beside_a_prefixed_network_is_listed() -> None:
    found = fit(
        "torchvision", {**prefixed(file("torchvision"), "model."), "criterion.weight": np.zeros(1000)}
    )
    assert found.ignored == {"criterion.weight": "beside the network, outside 'model.'"}
    assert "criterion.weight" in found.warnings[0]


def test_a_second_copy_of_the_network_asks_for_a_choice() -> None:
    both = prefixed(file("torchvision"), "student.") | prefixed(file("torchvision"), "teacher.")
    with pytest.raises(MappingError) as caught:
        fit("torchvision", both)
    assert (
        "--map student.features.0.0=stem/conv" in str(caught.value.next)
        and "'teacher.'" in caught.value.message
    )
    found = fit("torchvision", both, "teacher.features.0.0=stem/conv")
    assert all(name.startswith("teacher.") for name in found.tensors.values())
    assert all(name.startswith("student.") for name in found.ignored)


def test_scopes_that_share_a_name_with_the_network_are_no_copies_of_it() -> None:
    stems = {f"block{number}/Conv1/kernel": np.zeros((3, 3, 3, 32), np.float32) for number in (1, 2, 3)}
    with pytest.raises(MappingError, match="tensors missing"):
        fit("keras", stems)


def test_a_replaced_head_is_told_by_its_shape() -> None:
    found = fit("torchvision", {**TRUNK, "fc.weight": linear(5, 1280), "fc.bias": np.zeros(5)})
    assert found.source_classes == found.classes == 5 and not found.own_head
    assert "'fc', 5 classes" in found.warnings[0]
    assert found.in_zoo.names["fc.weight"] == "classifier.1.weight"


def test_a_head_outside_the_prefix_is_found() -> None:
    found = fit("torchvision", {**prefixed(TRUNK, "0."), "1.weight": linear(4, 1280), "1.bias": np.zeros(4)})
    assert found.classes == 4 and found.tensors["head/logits", "bias"] == "1.bias"


def test_no_head_gives_features_and_a_reference_that_hands_them_on() -> None:
    found = fit("torchvision", TRUNK)
    assert (found.output, found.classes, found.graph.output) == ("features", 0, "head/pool")
    assert found.in_zoo.stand_in is not None
    tensors, tap = found.in_zoo.stand_in.tensors, found.in_zoo.stand_in.tap
    assert tap == "classifier.1" and np.array_equal(tensors["classifier.1.weight"], np.eye(1280))
    keras = fit("keras", without(file("keras"), lambda name: name.startswith("predictions")))
    assert keras.in_zoo.stand_in is not None and keras.in_zoo.stand_in.tensors[
        "predictions/kernel"
    ].shape == (1280, 1280)


def test_two_heads_ask_for_a_choice() -> None:
    heads = {
        "age.weight": linear(3, 1280),
        "age.bias": np.zeros(3),
        "breed.weight": linear(5, 1280),
        "breed.bias": np.zeros(5),
    }
    with pytest.raises(MappingError) as caught:
        fit("torchvision", {**TRUNK, **heads})
    assert str(caught.value.next).splitlines()[1:] == ["--map age=head/logits", "--map breed=head/logits"]
    found = fit("torchvision", {**TRUNK, **heads}, "breed=head/logits")
    assert found.classes == 5 and set(found.ignored) == {"age.weight", "age.bias"}


@pytest.mark.parametrize("first", ["classifier.1", "fc1"])
def test_dense_layers_in_a_row_are_refused_because_the_file_does_not_say_what_is_between(first: str) -> None:
    layers = {
        f"{first}.weight": linear(128, 1280),
        f"{first}.bias": np.zeros(128),
        "last.weight": linear(5, 128),
        "last.bias": np.zeros(5),
    }
    with pytest.raises(MappingError, match="follow each other") as caught:
        fit("torchvision", {**TRUNK, **layers})
    assert caught.value.maps == tuple(
        f"{first},{word},last=head/logits" for word in ("relu", "relu6", "none")
    )
    found = fit("torchvision", {**TRUNK, **layers}, caught.value.maps[0])
    assert [node.op for node in found.graph.nodes[-3:]] == [
        Dense(128),
        Relu(),
        Dense(5),
    ] and found.classes == 5
    assert not found.ignored and found.tensors["head/logits", "kernel"] == "last.weight"
    assert fit("torchvision", {**TRUNK, **layers}, caught.value.maps[2]).graph.nodes[-2].op == Dense(128)


def test_a_hidden_layer_as_wide_as_the_features_may_stand_before_the_head() -> None:
    layers = {
        "wide.weight": linear(1280, 1280),
        "wide.bias": np.zeros(1280),
        "last.weight": linear(5, 1280),
        "last.bias": np.zeros(5),
    }
    with pytest.raises(MappingError, match="several layers could be the head") as caught:
        fit("torchvision", {**TRUNK, **layers})
    assert caught.value.maps[0] == "wide,relu,last=head/logits" and "last=head/logits" in caught.value.maps


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (
            ("a.b", "a_b", "last"),
            ["head/a_b", "head/a_b_relu", "head/a_b_2", "head/a_b_2_relu", "head/logits"],
        ),
        (
            ("a", "a_relu", "last"),
            ["head/a", "head/a_relu", "head/a_relu_2", "head/a_relu_2_relu", "head/logits"],
        ),
        (
            ("logits", "pool", "last"),
            ["head/logits_2", "head/logits_2_relu", "head/pool_2", "head/pool_2_relu", "head/logits"],
        ),
    ],
)
def test_hidden_layers_of_like_names_are_numbered(names: tuple[str, ...], paths: list[str]) -> None:
    widths = (1280, 6, 7, 5)
    layers: dict[str, Any] = {}
    for name, inputs, outputs in zip(names, widths, widths[1:], strict=False):
        layers |= {f"{name}.weight": linear(outputs, inputs), f"{name}.bias": np.zeros(outputs)}
    found = fit("torchvision", {**TRUNK, **layers}, f"{',relu,'.join(names)}=head/logits")
    assert [node.path for node in found.graph.nodes[-5:]] == paths
    assert [found.tensors[path, "kernel"] for path in paths[::2]] == [f"{name}.weight" for name in names]


def test_a_layer_that_stands_twice_in_a_head_is_refused() -> None:
    with pytest.raises(UsageError, match="'fc,relu,fc' has the layer 'fc' twice"):
        fit("torchvision", file("torchvision"), "fc,relu,fc=head/logits")


@pytest.mark.parametrize("setting", ["fc1,tanh,last", "fc1,relu", "fc1,relu,", ",relu,last"])
def test_a_row_of_layers_that_says_nothing_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="relu, relu6, none"):
        fit("torchvision", file("torchvision"), f"{setting}=head/logits")


def test_layers_behind_the_zoos_own_head_are_left_out_with_a_warning() -> None:
    found = fit(
        "torchvision", {**file("torchvision"), "extra.weight": linear(2, 1000), "extra.bias": np.zeros(2)}
    )
    assert found.own_head and set(found.ignored) == {"extra.weight", "extra.bias"}
    assert "extra.weight" in found.warnings[0]


def test_anything_else_is_listed_on_both_sides() -> None:
    tensors = {
        **without(file("torchvision"), lambda name: name == "features.0.0.weight"),
        "surprise.weight": np.zeros((3, 3)),
    }
    with pytest.raises(MappingError) as caught:
        fit("torchvision", tensors)
    assert f"1 tensors missing: features.0.0.weight 32x3x3x3 ({place('stem/conv')})" in caught.value.message
    assert "1 tensors unexpected: surprise.weight" in caught.value.message


def test_tensors_of_another_shape_name_the_line_of_the_recipe_that_names_them() -> None:
    shapes = {
        "features.0.0.weight": (32, 3, 5, 5),
        "features.2.conv.2.weight": (2, 2, 2),
        "features.3.conv.2.weight": (24, 7, 1, 1),
    }
    tensors = {**file("torchvision"), **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()}}
    with pytest.raises(MappingError) as caught:
        read_tensors(
            fit("torchvision", tensors),
            Checkpoint(Path("a file"), "memory", "torch", tensors),
            get_dialect("torch"),
        )
    assert caught.value.message == (
        "tensors of another shape: features.0.0.weight is 32x3x5x5 where stem/conv needs 32x3x3x3 "
        f"({place('stem/conv')}), "
        "features.2.conv.2.weight at block1/project/conv: expected a kernel of rank 4, got shape (2, 2, 2) "
        f"({place('block1/project/conv')}), features.3.conv.2.weight is 24x7x1x1 where "
        "block2/project/conv needs 24x144x1x1"
    )


def test_a_head_that_reads_a_flattened_map_is_told_with_the_next_step() -> None:
    with pytest.raises(MappingError, match="'fc' reads a map, flattened") as caught:
        fit("torchvision", {**TRUNK, "fc.weight": linear(5, 49 * 1280)})
    assert caught.value.next == POOL_THE_MAP


@pytest.mark.parametrize("setting", ["fc", "=head/logits", "fc=", "fc=head/logit", "fc=head/pool"])
def test_a_map_that_says_nothing_is_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        fit("torchvision", file("torchvision"), setting)


def test_a_map_to_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(MappingError, match="no layer 'nowhere'"):
        fit("torchvision", file("torchvision"), "nowhere=head/logits")


def test_moving_averages_of_a_part_are_refused() -> None:
    tensors = file("slim", 1001)
    shadow = "MobilenetV2/Conv/weights/ExponentialMovingAverage"
    with pytest.raises(MappingError, match="have none"):
        fit("slim", {**tensors, shadow: tensors["MobilenetV2/Conv/weights"]})

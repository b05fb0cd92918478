from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import get_engine
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.numbering import first_names
from porter.frameworks.tf.runtime import import_keras, restore_initializers, zero_initializers
from porter.graph import Conv
from porter.graph.plan import make_plan
from porter.verification.references.zoo_reference import ZooReference
from porter.zoos import keras_applications
from porter.zoos.implementation import BuildRequest, get_implementation
from porter.zoos.keras import _construct_model
from porter.zoos.tables import KERAS
from tests.support.arrays import Array
from tests.support.frameworks.tf.models import explicit, mobilenet_v2, random_tensors
from tests.support.shallow import shallow_zoos

SIZE = (33, 47)


def _checkpoint(tensors: dict[str, Array], counted: bool = False) -> Checkpoint:
    return Checkpoint(Path("weights.h5"), "keras-h5", "tf", tensors, counted=counted)


def _file_of_mobilenet_v2(counted: bool = False, old: bool = False) -> dict[str, Array]:
    """The tensors as a Keras file has them."""
    graph = mobilenet_v2()
    counters = get_dialect("tf").counted_layers(graph, (), {})
    found = {}
    for path, roles in random_tensors(graph).items():
        node = graph.by_path[path]
        for role, names in (
            get_dialect("tf").tensor_names(graph, node, counters[path] if counted else path).items()
        ):
            name = names[0] if old or "depthwise_kernel" not in names[0] else names[1]
            found[name] = get_dialect("tf").from_canonical(graph, node, role, roles[role])
    return found


def _random_file(model: Any) -> dict[str, Array]:
    """In the types of the weights: what a Normalization has counted is a whole number."""
    rng = np.random.default_rng(5)
    return {
        name: rng.uniform(0.1, 1, weight.shape).astype(weight.dtype)
        for name, weight in _weights(model).items()
    }


def _weights(model: Any) -> dict[str, Any]:
    """By the names that files give them; a LayerScale's gamma has no name of its own."""
    return {
        f"{name}/{'gamma' if weight.name.startswith('variable') else weight.name}": weight
        for name, layer in first_names(model).items()
        for weight in layer.weights
    }


@pytest.mark.parametrize(("counted", "old"), [(False, False), (False, True), (True, False)])
def test_reference_and_build_agree_in_float64_at_every_node(counted: bool, old: bool) -> None:
    graph = mobilenet_v2()
    reference = get_implementation("keras").build(
        BuildRequest(
            "mobilenet_v2_0.35", 7, SIZE, _checkpoint(_file_of_mobilenet_v2(counted, old), counted), "float64"
        )
    )
    model = tf.ENGINE.build(
        make_plan(graph, SIZE, tf.CAPABILITIES), random_tensors(graph), {}, "float64", "cpu"
    )
    batch = np.random.default_rng(4).normal(size=(2, 3, *SIZE))
    paths = [node.path for node in graph.nodes]
    wanted: Mapping[str, Array] = tf.ENGINE.run_reference(reference, batch, {path: path for path in paths})
    found: Mapping[str, Array] = tf.ENGINE.run(model, batch, paths)
    assert list(wanted) == paths
    for path in paths:
        assert found[path].shape == wanted[path].shape
        assert np.linalg.norm(found[path] - wanted[path]) <= 1e-12 * np.linalg.norm(wanted[path]), path
    logits = wanted["predictions"]
    assert logits.std(axis=0).max() > 0.01 * np.abs(logits).max()  # otherwise every pad would pass


def test_a_wrong_pad_is_seen() -> None:
    graph = mobilenet_v2()
    wrong = tuple(
        replace(node, op=replace(node.op, convention=explicit(1, 1, 1, 1)))
        if isinstance(node.op, Conv) and node.op.window.stride == (2, 2)
        else node
        for node in graph.nodes
    )
    reference = get_implementation("keras").build(
        BuildRequest("mobilenet_v2_0.35", 7, SIZE, _checkpoint(_file_of_mobilenet_v2()), "float64")
    )
    model = tf.ENGINE.build(
        make_plan(replace(graph, nodes=wrong), SIZE, tf.CAPABILITIES),
        random_tensors(graph),
        {},
        "float64",
        "cpu",
    )
    batch = np.random.default_rng(4).normal(size=(2, 3, *SIZE))
    wanted: Array = tf.ENGINE.run_reference(reference, batch, {"predictions": "predictions"})["predictions"]
    found: Array = tf.ENGINE.run(model, batch, ["predictions"])["predictions"]
    assert np.linalg.norm(found - wanted) > 1e-3 * np.linalg.norm(wanted)


# Inception v3, whose layers Keras numbers, is in tests/roads/test_keras_numbers.py.
QUICK = ("mobilenet_v1_0.25",)
"""In CI the smallest variant; tests/roads/test_parity.py builds one of each architecture at an odd size."""
RESIZABLE = [
    variant for variant in KERAS if variant not in ("inception_v3", "vgg16", "vgg19", "convnext_xlarge")
]
"""VGG has dense layers on a map. convnext_xlarge has convnext_large's layers, and takes 16 GB in float64."""


def test_layers_that_keras_numbers_have_the_names_of_a_first_model() -> None:
    for _ in range(2):
        reference = get_implementation("keras").build(
            BuildRequest("mobilenet_v2_0.35", 7, SIZE, _checkpoint(_file_of_mobilenet_v2()), "float32")
        )
        found = tf.ENGINE.run_reference(
            reference,
            np.zeros((1, 3, *SIZE)),
            {"pool": "global_average_pooling2d", "nothing": "no_such_layer"},
        )
        assert {path: value.shape for path, value in found.items()} == {"pool": (1, 1280)}


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in RESIZABLE]
)
def test_every_variant_builds_at_odd_and_small_sizes(variant: str) -> None:
    keras = import_keras()
    before = (keras.config.dtype_policy(), keras.config.floatx(), keras.config.image_data_format())
    file = _random_file(_construct_model(variant, 3, (75, 75)))
    for size in ((225, 201), (160, 160)):
        reference = get_implementation("keras").build(
            BuildRequest(variant, 3, size, _checkpoint(file), "float64")
        )
        assert reference.input_shape == (None, *size, 3)
        assert {layer.compute_dtype for layer in reference.layers} == {"float64"}
        assert (
            keras.config.dtype_policy(),
            keras.config.floatx(),
            keras.config.image_data_format(),
        ) == before
        found = _weights(reference)
        assert found.keys() == file.keys()
        assert all(np.array_equal(weight.numpy(), file[name]) for name, weight in found.items())


@pytest.mark.parametrize(
    ("reference", "variant"),
    [
        ("keras", "mobilenet_v1_0.25"),
        *(
            pytest.param("keras", variant, marks=pytest.mark.full)
            for variant in ("mobilenet_v2_0.35", "resnet50", "resnet50v2")
        ),
        pytest.param("keras", "inception_v3", marks=pytest.mark.full),
        pytest.param("keras_applications", "resnext50_32x4d", marks=pytest.mark.full),
    ],
)
def test_a_reference_gives_at_another_size_what_one_built_for_it_gives(reference: str, variant: str) -> None:
    construct = keras_applications.construct if reference == "keras_applications" else _construct_model
    with shallow_zoos():
        stock = construct(variant, 3, (96, 76))
        names = first_names(stock)
        rng = np.random.default_rng(5)
        file = {
            f"{name}/{w.name}": rng.normal(size=w.shape) ** 2
            for name, layer in names.items()
            for w in layer.weights
        }
        used, new = (
            ZooReference(
                get_engine("tf"),
                get_implementation(reference),
                reference,
                variant,
                3,
                _checkpoint(file),
                {name: name for name in names},
                None,
            )
            for _ in range(2)
        )
        used.run(np.zeros((1, 3, 96, 76)), "float32")
        batch = rng.normal(size=(1, 3, 77, 97))
        found, wanted = used.run(batch, "float32"), new.run(batch, "float32")
    assert found.keys() == wanted.keys() and all(
        np.array_equal(found[name], wanted[name], equal_nan=True) for name in wanted
    )


@pytest.mark.parametrize(
    "variant", [pytest.param("mobilenet_v2_0.35", marks=pytest.mark.full), "mobilenet_v3_small_0.5"]
)
def test_variables_begin_as_zeros_and_configs_have_kerass_initializers(variant: str) -> None:
    configs = []
    for context in (nullcontext(), zero_initializers()):
        import_keras().utils.clear_session()  # layers are counted anew
        with context:
            model = _construct_model(variant, 3, (64, 64))
        drawn = [
            layer.name
            for layer in model.layers
            for held in layer.weights
            if held.name == "kernel" and np.any(held)
        ]
        assert bool(drawn) == isinstance(context, nullcontext)
        restore_initializers(model)
        configs.append(model.get_config())
    assert configs[0] == configs[1]


def test_logits_are_given_without_their_softmax() -> None:
    stock = import_keras().applications.MobileNet(
        alpha=0.25, weights=None, classes=3, input_shape=(32, 32, 3)
    )
    reference = get_implementation("keras").build(
        BuildRequest("mobilenet_v1_0.25", 3, (32, 32), _checkpoint(_random_file(stock)), "float64")
    )
    batch = np.random.default_rng(4).normal(size=(1, 3, 32, 32))
    found = tf.ENGINE.run_reference(
        reference, batch, {"head": "conv_preds", "output": "predictions", "pad": "conv_pad_2"}
    )
    assert np.array_equal(found["head"][:, :, 0, 0], found["output"])
    assert abs(found["output"].sum() - 1) > 1e-3
    assert found["pad"].shape == (1, 16, 17, 17)


def test_file_and_reference_must_cover_each_other() -> None:
    file = _file_of_mobilenet_v2()
    file["Conv2/kernel"] = file.pop("Conv1/kernel")
    with pytest.raises(MappingError, match="missing Conv1/kernel; unexpected Conv2/kernel"):
        get_implementation("keras").build(
            BuildRequest("mobilenet_v2_0.35", 7, SIZE, _checkpoint(file), "float32")
        )
    with pytest.raises(
        MappingError, match=r"predictions/kernel: expected shape \(1280, 8\), got \(1280, 7\)"
    ):
        get_implementation("keras").build(
            BuildRequest("mobilenet_v2_0.35", 8, SIZE, _checkpoint(_file_of_mobilenet_v2()), "float32")
        )


@pytest.mark.parametrize(
    ("reference", "variant", "size", "message"),
    [
        ("slim", "mobilenet_v2", SIZE, "there is no reference 'slim'"),
        ("keras", "mobilenet_v9", SIZE, "has no variant 'mobilenet_v9'"),
        ("keras", "mobilenet_v2", (16, 16), "cannot be built at 16x16: Input size must be at least 32x32"),
    ],
)
def test_what_keras_applications_does_not_have_is_refused(
    reference: str, variant: str, size: tuple[int, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        get_implementation(reference).build(BuildRequest(variant, 7, size, _checkpoint({}), "float32"))

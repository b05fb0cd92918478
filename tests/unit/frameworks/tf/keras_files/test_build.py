"""A file's own Keras model: against the model that was saved, and in float64 against the graph that was read,
run by torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CannotRun, MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.formats.keras import read_keras
from porter.formats.reading import read_checkpoint
from porter.frameworks.tf.keras_files.build import build_keras_file
from porter.frameworks.tf.run import run_reference
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch.graph_module import build_model
from porter.frameworks.torch.layout import CAPABILITIES, module_name
from porter.graph import INPUT, Conv
from porter.graph.plan import make_plan
from porter.padding import Convention, Window
from tests.support.arrays import Array
from tests.support.filegraph.values import translated
from tests.support.finetuned_keras import SIZE, WHOLE
from tests.support.fixtures import FineTunedMaker


def graph_of(checkpoint: Checkpoint) -> FileGraph:
    assert checkpoint.graph is not None
    return checkpoint.graph


def distance(found: Array, wanted: Array) -> float:
    return float(
        np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted.astype(np.float64))
    )


IN_CI = ("tutorial-old-h5", "adapted-keras", "normalised-h5", "several-dense-old-h5", "own-classes-v1-h5")
"""One for each kind of layer and of file, whose nodes CI compares; tests/roads/test_finetuned.py holds the
port of each kind to the answers of the saved model.
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == IN_CI[1] else pytest.mark.full) for name in WHOLE]
)
def test_answers_are_those_of_the_model_that_was_saved(finetuned: FineTunedMaker, name: str) -> None:
    made = finetuned(name)
    checkpoint = read_checkpoint(made.path)
    output = graph_of(checkpoint).outputs[0]
    batch = made.images()
    wanted = made.answers(batch)
    assert wanted.std(axis=0).mean() > 0.01 * np.abs(wanted).mean()  # otherwise every backbone would pass
    model = build_keras_file(checkpoint, "float64", SIZE)
    taps = {"answer": graph_of(checkpoint).by_name[output].tap or ""}
    found = run_reference(model, batch.astype(np.float64), taps)["answer"]
    assert found.dtype == np.float64 and found.shape == wanted.shape
    assert distance(found, wanted) < 1e-6


def run_by_torch(graph: FileGraph, tensors: Mapping[str, Array], batch: Array) -> dict[str, Array]:
    """Every node's value in float64 by its name, from the ops and tensors that the file's graph names."""
    import torch

    own, canonical = translated(graph, tensors)
    model = build_model(make_plan(own.graph, batch.shape[2:], CAPABILITIES), canonical, "float64", "cpu")
    found: dict[str, Array] = {}
    for path, name in own.names.items():

        def keep(module: object, inputs: object, value: Any, name: str = name) -> None:
            found[name] = value.detach().clone().numpy()

        model.get_submodule(module_name(path)).register_forward_hook(keep)
    with torch.no_grad():
        model(torch.from_numpy(batch))
    return found


@pytest.mark.parametrize("name", IN_CI)
def test_every_node_in_float64_is_what_the_graph_says(finetuned: FineTunedMaker, name: str) -> None:
    made = finetuned(name)
    checkpoint = read_checkpoint(made.path)
    graph, batch = graph_of(checkpoint), made.images().astype(np.float64)
    wanted = run_by_torch(graph, checkpoint.tensors, batch)
    model = build_keras_file(checkpoint, "float64", SIZE)
    taps = {node.name: node.tap for node in graph.nodes if node.tap}
    found = run_reference(model, batch, taps)
    compared = taps.keys() & wanted.keys()
    assert len(compared) > 0.9 * len(taps)
    for name in compared:
        assert found[name].dtype == np.float64
        assert distance(found[name].reshape(wanted[name].shape), wanted[name]) <= 1e-12, name


def test_a_size_of_another_kind(finetuned: FineTunedMaker) -> None:
    """The layers of a file stand at every size, with the pads that the file states."""
    checkpoint = read_checkpoint(finetuned("rescaled-keras").path)
    graph, size = graph_of(checkpoint), (97, 131)
    assert graph.resizable
    batch = np.random.default_rng(2).uniform(0, 255, (2, 3, *size))
    found = run_reference(build_keras_file(checkpoint, "float64", size), batch, {"logits": "logits"})[
        "logits"
    ]
    assert distance(found, run_by_torch(graph, checkpoint.tensors, batch)["logits"]) <= 1e-12


def small(*layers: Mapping[str, Any], tensors: Mapping[str, Array] | None = None) -> Checkpoint:
    """A checkpoint whose graph is a Sequential of `layers` over 8x8 maps of 3 channels."""
    from porter.formats.keras.graph import read_graph

    config = {
        "name": "stack",
        "layers": [
            {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [None, 8, 8, 3]}},
            *layers,
        ],
    }
    held = {"conv/kernel": np.ones((3, 3, 3, 2), np.float32), **(tensors or {})}
    text = json.dumps({"class_name": "Sequential", "config": config})
    graph: Any = read_graph(text, held, "small.h5")
    return Checkpoint(Path("small.h5"), "keras-h5", "tf", held, graph=graph)


def layer(kind: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **arguments}}


CONV = layer("Conv2D", "conv", filters=2, kernel_size=[3, 3], padding="same", use_bias=False)


@pytest.mark.parametrize(
    "unknown",
    [
        layer("Lambda", "unknown", function=["4wEAAAA=", None, None], module="os"),
        layer("MyLayer", "unknown"),
        layer("TFOpLambda", "unknown", function="io.read_file"),
        {"module": "os", "registered_name": "x", **layer("system", "unknown", command="false")},
        layer(
            "Activation", "unknown", activation={"module": "os", "class_name": "function", "config": "system"}
        ),
        layer("Conv2D", "unknown", filters=2, kernel_size=1, activation="my_own"),
    ],
)
def test_what_is_on_no_list_is_neither_run_nor_looked_up(unknown: Mapping[str, Any]) -> None:
    behind = layer("ReLU", "behind")
    model = build_keras_file(small(CONV, unknown, behind), "float64", (8, 8))
    found = run_reference(
        model, np.ones((1, 3, 8, 8)), {"conv": "conv", "unknown": "unknown", "behind": "behind"}
    )
    assert list(found) == ["conv"]
    with pytest.raises(CannotRun, match="layer 'unknown'"):
        build_keras_file(small(unknown, behind), "float64", (8, 8))


@pytest.mark.parametrize("padding", [[1, 2, 0, 3], {"top_pad": 1, "bottom_pad": 2, "right_pad": 3}])
def test_pads_of_keras_1_go_past_a_dropout_into_the_convolution(padding: Any) -> None:
    pad, drop = (
        layer("ZeroPadding2D", "pad", padding=padding, dim_ordering="tf"),
        layer("Dropout", "drop", p=0.5),
    )
    checkpoint = small(pad, drop, {**CONV, "config": {**CONV["config"], "padding": "valid"}})
    graph = graph_of(checkpoint)
    assert [node.op for node in graph.nodes] == [
        Conv(2, Window((3, 3)), Convention("explicit", (1, 2, 0, 3)))
    ]
    batch = np.random.default_rng(0).normal(size=(2, 3, 8, 8))
    found = run_reference(build_keras_file(checkpoint, "float64", (8, 8)), batch, {"conv": "conv"})["conv"]
    assert distance(run_by_torch(graph, checkpoint.tensors, batch)["conv"], found) <= 1e-14


def test_dropout_that_stays_on_is_not_run() -> None:
    inputs = {
        "args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["in", 0, 0]}}],
        "kwargs": {"training": True},
    }
    config = {
        "name": "m",
        "layers": [
            {"name": "in", "inbound_nodes": [], **layer("InputLayer", "in", batch_shape=[None, 8, 8, 3])},
            {"name": "drop", "inbound_nodes": [inputs], **layer("Dropout", "drop", rate=0.5)},
        ],
        "input_layers": ["in", 0, 0],
        "output_layers": ["drop", 0, 0],
    }
    checkpoint = small(CONV)
    definition = json.dumps({"class_name": "Functional", "config": config}).encode()
    checkpoint = replace(checkpoint, graph=replace(graph_of(checkpoint), definition=definition))
    with pytest.raises(CannotRun, match=r"'drop' \(Dropout\) is called with training=True"):
        build_keras_file(checkpoint, "float32", (8, 8))


def test_tensors_of_other_shapes_are_refused_before_anything_is_made() -> None:
    huge = layer("Conv2D", "conv", filters=1 << 24, kernel_size=[3, 3], use_bias=False)
    with pytest.raises(
        MappingError, match=rf"conv/kernel: expected shape \(3, 3, 3, {1 << 24}\), got \(3, 3, 3, 2\)"
    ):
        build_keras_file(small(huge), "float32", (8, 8))
    dense = layer("Dense", "conv", units=2, use_bias=False)
    with pytest.raises(MappingError, match=r"expected shape \(3, 2\), got \(3, 3, 3, 2\)"):
        build_keras_file(small(layer("GlobalAveragePooling2D", "pool"), dense), "float32", (8, 8))


def test_weights_may_be_rounded_first() -> None:
    checkpoint = small(CONV)
    doubled = replace(checkpoint, tensors={name: 2 * array for name, array in checkpoint.tensors.items()})
    batch = np.ones((1, 3, 8, 8))
    once, twice = (
        run_reference(build_keras_file(one, "float64", (8, 8)), batch, {"conv": "conv"})["conv"]
        for one in (checkpoint, doubled)
    )
    assert np.array_equal(2 * once, twice) and once.max() == 27


def test_a_layer_without_its_tensors_is_named() -> None:
    with pytest.raises(CannotRun, match="layer 'other' is Conv2D without its weights in the file"):
        build_keras_file(small(layer("Conv2D", "other", filters=2, kernel_size=3)), "float32", (8, 8))


def test_scalings_keep_their_decimals() -> None:
    """Keras rounds a plain number to float32 even where it computes in float64."""
    checkpoint = small(
        layer("Rescaling", "scaled", scale=1 / 127.5, offset=-0.1),
        layer("Normalization", "normal", mean=[0.1, 0.2, 0.3], variance=[0.3, 0.7, 1e-20]),
    )
    batch = np.random.default_rng(0).uniform(0, 255, (2, 3, 8, 8))
    found = run_reference(
        build_keras_file(checkpoint, "float64", (8, 8)), batch, {"scaled": "scaled", "normal": "normal"}
    )
    assert np.array_equal(found["scaled"], batch * (1 / 127.5) - 0.1)
    mean, deviation = (
        np.reshape(values, (3, 1, 1)) for values in ([0.1, 0.2, 0.3], [0.3**0.5, 0.7**0.5, 1e-7])
    )
    assert distance(found["normal"], (found["scaled"] - mean) / deviation) < 1e-15


def test_keras_is_left_as_it_was() -> None:
    import keras

    before = keras.config.floatx()
    build_keras_file(small(CONV), "float64", (8, 8))
    assert keras.config.floatx() == before


def test_no_graph(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="no Keras model's config"):
        build_keras_file(replace(small(CONV), graph=None), "float32", (8, 8))
    assert INPUT not in (node.name for node in graph_of(small(layer("ReLU", INPUT))).nodes)


def test_a_wrong_name_of_a_variable_is_not_the_references_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras, right = import_keras(), read_keras._trained_variables
    image = keras.Input((9, 8, 3))
    normed = keras.layers.BatchNormalization(name="norm")(keras.layers.Conv2D(4, 3)(image))
    model = keras.Model(image, keras.layers.ReLU()(normed))
    random = np.random.default_rng(0)
    model.set_weights([random.uniform(0.2, 1, each.shape) for each in model.get_weights()])
    model.save(tmp_path / "model.keras")
    monkeypatch.setattr(read_keras, "_trained_variables", lambda norm: right(norm)[::-1])
    with pytest.raises(porter.CheckFailed, match="norm is the first node that differs"):
        porter.convert(tmp_path / "model.keras", to="torch", out=tmp_path / "port")

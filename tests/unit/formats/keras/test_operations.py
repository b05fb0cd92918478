"""Functions of TensorFlow in models of Keras 2, as their configs state them: the oracle's values of porter's
graph are numpy's.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras.graph import read_graph
from porter.formats.reading import read_checkpoint
from tests.support.arrays import Array
from tests.support.filegraph.keras_cases import CHANNELS, COLUMNS, ROWS, images
from tests.support.filegraph.values import channels_first, distance, values_as_run


def functions(
    *calls: tuple[str, dict[str, Any]], sequence: bool = False, version: str = "2.9.0"
) -> Checkpoint:
    """A model of Keras 2 that calls functions of TensorFlow (or layers) one after the other."""
    layers: list[dict[str, Any]] = [
        {
            "class_name": "InputLayer",
            "name": "in",
            "config": {"name": "in", "batch_input_shape": [None, ROWS, COLUMNS, CHANNELS]},
        }
    ]
    for place, (function, given) in enumerate(calls):
        kind = "SlicingOpLambda" if function == "__operators__.getitem" else "TFOpLambda"
        before, name = layers[-1]["name"], f"call{place}"
        entry: Any = [before, 0, 0, given]
        config: dict[str, Any] = {"name": name, "function": function}
        if function[0].isupper():
            kind, config, entry = function, {"name": name, **given}, [[before, 0, 0, {}]]
        if function == "concat":
            entry = [[before, 0, 0, given], ["in", 0, 0, given]]
        layers.append({"class_name": kind, "name": name, "config": config, "inbound_nodes": [entry]})
    config = {
        "name": "m",
        "layers": layers,
        "input_layers": [["in", 0, 0]],
        "output_layers": [[layers[-1]["name"], 0, 0]],
    }
    text = json.dumps({"class_name": "Functional", "config": config})
    graph: Any = read_graph(text, {}, "model.h5", {"keras_version": version})
    return Checkpoint(Path("model.h5"), "keras-h5", "tf", {}, graph=graph)


def among_neighbours(x: Any) -> Array:
    squares = np.pad(x * x, [(0, 0)] * 3 + [(1, 1)])
    around: Any = sum(squares[..., at : at + CHANNELS] for at in range(3))
    normalised: Array = x / (2 + 0.3 * around) ** 0.75
    return normalised


WHOLE = {"start": None, "stop": None, "step": None}
OLD: dict[str, tuple[Checkpoint, Callable[[Array], Array]]] = {
    "lrn": (
        functions(
            ("nn.local_response_normalization", {"depth_radius": 1, "bias": 2.0, "alpha": 0.3, "beta": 0.75})
        ),
        among_neighbours,
    ),
    "hard sigmoid": (
        functions(("Activation", {"activation": "hard_sigmoid"})),
        lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    ),
    "hard sigmoid of Keras 3": (
        functions(("Activation", {"activation": "hard_sigmoid"}), version="3.1.0"),
        lambda x: np.clip(x / 6 + 0.5, 0, 1),
    ),
    "leaky relu": (functions(("LeakyReLU", {"alpha": 0.4})), lambda x: np.where(x < 0, 0.4 * x, x)),
    "channels turned around": (
        functions(
            ("__operators__.getitem", {"slice_spec": [{"class_name": "__ellipsis__"}, {**WHOLE, "step": -1}]})
        ),
        lambda x: x[..., ::-1],
    ),
    "a shortcut": (
        functions(
            (
                "__operators__.getitem",
                {"slice_spec": [WHOLE, {**WHOLE, "step": 2}, {**WHOLE, "start": 1, "step": 2}]},
            ),
            (
                "compat.v1.pad",
                {"paddings": [[0, 0], [0, 1], [0, 0], [1, 2]], "mode": "CONSTANT", "constant_values": 0},
            ),
        ),
        lambda x: np.pad(x[:, ::2, 1::2], [(0, 0), (0, 1), (0, 0), (1, 2)]),
    ),
    "a concatenation": (
        functions(("math.tanh", {}), ("concat", {"axis": -1})),
        lambda x: np.concatenate([np.tanh(x), x], -1),
    ),
    "a mean of channels": (
        functions(("math.reduce_mean", {"axis": 3}), ("expand_dims", {"axis": -1})),
        lambda x: x.mean(3, keepdims=True),
    ),
    "clips": (
        functions(
            ("clip_by_value", {"clip_value_min": -1.0, "clip_value_max": 2.0}), ("math.maximum", {"y": 0.5})
        ),
        lambda x: np.clip(x, 0.5, 2),
    ),
    "reshapes": (
        functions(("math.reduce_max", {"axis": [1, 2]}), ("reshape", {"shape": [-1, 1, 1, CHANNELS]})),
        lambda x: x.max((1, 2), keepdims=True),
    ),
    "depth to space": (
        functions(("nn.depth_to_space", {"block_size": 2})),
        lambda x: (
            x.reshape(2, ROWS, COLUMNS, 2, 2, 1)
            .transpose(0, 1, 3, 2, 4, 5)
            .reshape(2, 2 * ROWS, 2 * COLUMNS, 1)
        ),
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_functions_of_keras_2(name: str) -> None:
    checkpoint, expected = OLD[name]
    assert checkpoint.graph is not None
    values = values_as_run(checkpoint, images())
    assert distance(values[checkpoint.graph.outputs[0]], channels_first(expected(images()))) <= 1e-12


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(("library", "suffix"), [("keras", "keras"), ("keras", "h5"), ("tf_keras", "h5")])
def test_dicts_are_in_the_order_of_their_keys(tmp_path: Path, library: str, suffix: str) -> None:
    """The outputs and the inputs of nested models, against what Keras loads from the file."""
    keras = importlib.import_module(library)
    layers = keras.layers
    shape, x = (ROWS, COLUMNS, CHANNELS), keras.Input((ROWS, COLUMNS, CHANNELS))
    p, q = keras.Input(shape, name="p"), keras.Input(shape, name="q")
    parts = {"z": layers.Subtract()([p, layers.ReLU()(q)]), "b": layers.Multiply()([p, q])}
    by_keys, by_names = keras.Model({"q": q, "p": p}, parts), keras.Model([q, p], parts)
    found = by_keys({"q": x, "p": layers.Conv2D(CHANNELS, 1)(x)})
    found = by_names({"p": found["z"], "q": found["b"]})
    keras.Model(x, layers.Subtract()([found["b"], layers.Add()([found["z"], found["z"]])])).save(
        tmp_path / f"model.{suffix}"
    )
    checkpoint = read_checkpoint(tmp_path / f"model.{suffix}")
    assert checkpoint.graph is not None
    expected = channels_first(
        keras.models.load_model(tmp_path / f"model.{suffix}", compile=False)(images().astype("float32"))
    )
    values = values_as_run(checkpoint, images())
    assert distance(values[checkpoint.graph.outputs[0]], expected) <= 1e-5


def test_a_dict_of_other_names_than_the_models_inputs() -> None:
    def tensor(name: str) -> dict[str, Any]:
        return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}

    start = {
        "class_name": "InputLayer",
        "name": "in",
        "config": {"name": "in", "batch_shape": [None, 8, 8, 3]},
    }
    config = {
        "name": "base",
        "layers": [start],
        "input_layers": {"q": ["in", 0, 0]},
        "output_layers": [["in", 0, 0]],
    }
    base: dict[str, Any] = {"class_name": "Functional", "name": "base", "config": config}
    base["inbound_nodes"] = [{"args": [{"a": tensor("in"), "q": tensor("in")}], "kwargs": {}}]
    model = {
        **config,
        "layers": [start, base],
        "input_layers": [["in", 0, 0]],
        "output_layers": [["base", 1, 0]],
    }
    with pytest.raises(
        FileError, match=r"model 'base' has the inputs \['q'\], and is called with \['a', 'q'\]"
    ):
        read_graph(json.dumps({"class_name": "Functional", "config": model}), {}, "model.h5")


def test_an_operation_of_nothing_is_one_error() -> None:
    start = {
        "class_name": "InputLayer",
        "name": "in",
        "config": {"name": "in", "batch_shape": [None, 8, 8, 3]},
    }
    negative = {
        "class_name": "Negative",
        "name": "n",
        "config": {"name": "n"},
        "inbound_nodes": [{"args": [{}], "kwargs": {}}],
    }
    config = {
        "name": "m",
        "layers": [start, negative],
        "input_layers": [["in", 0, 0]],
        "output_layers": [["n", 0, 0]],
    }
    with pytest.raises(FileError, match="description of layer 'n' cannot be read: ValueError place 0 of 0"):
        read_graph(
            json.dumps({"class_name": "Functional", "config": config}),
            {},
            "model.h5",
            {"keras_version": "3.1.0"},
        )

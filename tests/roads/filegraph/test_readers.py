"""What a reader makes of a file is what its framework computes: every case in every form, by the oracle in
float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from tests.support.filegraph.keras_cases import (
    BETWEEN_CELLS,
    CHANNELS,
    COLUMNS,
    KERAS_3_CASES,
    KERAS_CASES,
    RESIZING,
    ROWS,
    images,
    keras_model,
)
from tests.support.filegraph.values import channels_first, distance, values_as_run
from tests.support.oracle import OfAxes

pytest.importorskip("tensorflow")


def _keras_file(model: Any, folder: Path) -> Path:
    model.save(folder / "model.keras")
    return folder / "model.keras"


def _h5(model: Any, folder: Path) -> Path:
    model.save(folder / "model.h5")
    return folder / "model.h5"


def _saved_model(model: Any, folder: Path) -> Path:
    if "tf_keras" in type(model).__module__:
        model.save(folder / "saved", save_format="tf")
    else:
        model.export(folder / "saved", verbose=False)
    return folder / "saved"


def _frozen(model: Any, folder: Path) -> Path:
    """A graph of any batch, its variables constants."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    function = tf.function(lambda x: model(x, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec(model.input.shape, tf.float64, name="image"))
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
    (folder / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    return folder / "frozen.pb"


FORMS = {"keras": _keras_file, "h5": _h5, "saved-model": _saved_model, "frozen": _frozen}


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def keras(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Keras 3 and Keras 2, whose layers are in float64."""
    module = pytest.importorskip(request.param)
    old = request.param == "tf_keras"
    config, policies = (module.backend if old else module.config), module.mixed_precision
    kept = policies.global_policy() if old else policies.dtype_policy()
    choose = policies.set_global_policy if old else policies.set_dtype_policy
    config.set_floatx("float64")
    choose("float64")
    try:
        yield module
    finally:
        config.set_floatx("float32")
        choose(kept)


@pytest.fixture
def model(keras: Any) -> tuple[Any, list[str]]:
    return _every_case(keras)


@cache  # pytest sets a parametrized fixture up anew where another argument is listed beside its own
def _every_case(keras: Any) -> tuple[Any, list[str]]:
    return keras_model(
        keras, KERAS_CASES if keras.__name__ == "tf_keras" else {**KERAS_CASES, **KERAS_3_CASES}
    )


@pytest.mark.parametrize(
    ("keras", "form", "every"),
    [
        *(("keras", form, form == "keras") for form in FORMS if form != "h5"),
        # What Keras 2 writes is read by the same code as Keras 3's, and a .h5 has the config of a .keras.
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                *(("keras", form, True) for form in ("h5", "frozen")),
                *(("tf_keras", form, True) for form in FORMS),
            )
        ),
    ],
    indirect=["keras"],
)
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_what_is_read_computes_what_keras_computes(
    form: str, every: bool, keras: Any, model: tuple[Any, list[str]], tmp_path: Path
) -> None:
    """The oracle's values of porter's graph are Keras's own, and at every tap those of the file's own graph
    as porter runs it.
    """
    whole, cases = model
    said = [*range(len(cases))]
    # Keras takes a second for each few layers, and both graphs are read alike.
    if form == "frozen" and not every:
        said = said[::3]
    if form == "saved-model":
        said = [place for place in said[1::5] if cases[place] not in RESIZING]
    for few in (said[::2], said[1::2]) if form == "h5" else (said,):  # a small .h5 holds few names
        part = keras.Model(whole.input, [whole.outputs[place] for place in few])
        expect_read(part, FORMS[form](part, tmp_path), [cases[place] for place in few])


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_models_that_are_called_twice(form: str, keras: Any, tmp_path: Path) -> None:
    layers, image = keras.layers, keras.Input((ROWS, COLUMNS, CHANNELS))
    conv = layers.Conv2D(CHANNELS, 3, padding="same", activation="relu")
    block = keras.Sequential([conv, layers.BatchNormalization()], name="block")
    inner = keras.Input((ROWS, COLUMNS, CHANNELS))
    tower = keras.Model(inner, layers.GlobalMaxPooling2D()(block(block(inner))), name="tower")
    pair = layers.Subtract()([tower(image), tower(layers.Conv2D(CHANNELS, 1)(image))])
    model = keras.Model(image, [pair, layers.Flatten()(image)])
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(random.uniform(0.1, 1.0, weight.shape))
    expect_read(model, FORMS[form](model, tmp_path), ["pair", "image"])


def expect_read(model: Any, path: Path, cases: list[str]) -> None:
    """`cases` are the names of the model's outputs."""
    checkpoint = read_checkpoint(path)
    assert checkpoint.graph is not None
    assert not [node for node in checkpoint.graph.nodes if isinstance(node.op, Foreign)]
    values = values_as_run(checkpoint, images())
    # Of one more image, because Keras's addition takes N×1×1×1 for a bias where the other value has N
    # channels.
    wanted = [
        np.asarray(value)[:2] for value in model(np.concatenate([images(), images()[:1]]), training=False)
    ]
    for name, case, whole in zip(checkpoint.graph.outputs, cases, wanted, strict=True):
        theirs = whole if isinstance(values[name], OfAxes) else channels_first(whole)
        # TensorFlow rounds a GELU's constants and a leaky ReLU's slope to float32, also in float64, and
        # resizes in float32.
        limit = 1e-6 if case in BETWEEN_CELLS else 1e-8 if "gelu" in case or "leaky" in case else 1e-12
        assert values[name].shape == theirs.shape and distance(values[name], theirs) <= limit, case

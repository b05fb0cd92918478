from __future__ import annotations

import dataclasses
import inspect
import itertools
import sys
from functools import cache
from importlib import import_module

import ml_dtypes
import numpy as np
import pytest

from porter.base.errors import GraphError, MappingError, PaddingError, UsageError
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch.layout import CAPABILITIES as TORCH
from porter.graph import INPUT, Conv, DepthToSpace, Graph, Node, Relu, RmsNorm
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention, Window
from tests.support.arrays import Array
from tests.support.frameworks.every_op import tensors_of
from tests.support.frameworks.sayable import expect_near
from tests.support.frameworks.tf.models import SAME, few_ops, mobilenet_v2, network, random_tensors

BATCH = np.random.default_rng(2).normal(size=(2, 3, 13, 15))


def test_a_chain_too_deep_for_keras_is_refused() -> None:
    import_keras()
    names = [INPUT, *(f"relu{number}" for number in range(100))]
    graph = Graph(
        tuple(Node(name, Relu(), (before,)) for before, name in itertools.pairwise(names)), 3, names[-1]
    )
    plan, limit = make_plan(graph, (32, 32), tf.CAPABILITIES), sys.getrecursionlimit()
    tf.ENGINE.build(plan, {}, {}, "float32", "cpu")
    try:
        sys.setrecursionlimit(len(inspect.stack()) + 95)
        with pytest.raises(GraphError, match="a chain of 100 layers is too deep"):
            tf.ENGINE.build(plan, {}, {}, "float32", "cpu")
    finally:
        sys.setrecursionlimit(limit)


def test_mobilenet_v2_has_the_layers_and_weights_of_keras_applications() -> None:
    graph = mobilenet_v2()
    tensors = random_tensors(graph)
    model = tf.ENGINE.build(make_plan(graph, (32, 32), tf.CAPABILITIES), tensors, {}, "float64", "cpu")
    stock = import_keras().applications.MobileNetV2(
        alpha=0.35, weights=None, input_shape=(32, 32, 3), classes=7, classifier_activation=None
    )
    shapes = {f"{layer.name}/{w.name}": tuple(w.shape) for layer in stock.layers for w in layer.weights}
    assert {
        f"{layer.name}/{w.name}": tuple(w.shape) for layer in model.layers for w in layer.weights
    } == shapes
    for layer in stock.layers:
        if type(layer).__name__ == "BatchNormalization":
            ours = model.get_layer(layer.name)
            assert (ours.epsilon, ours.momentum, ours.axis) == (
                layer.epsilon,
                pytest.approx(layer.momentum),
                -1,
            )
        if layer.name.startswith("block") and "_pad" not in layer.name:
            assert type(model.get_layer(layer.name)) is type(layer)
    for path, roles in tensors.items():
        kernel = roles.get("kernel")
        if kernel is not None:
            layout = get_dialect("tf").from_canonical(graph, graph.by_path[path], "kernel", kernel)
            assert np.array_equal(model.get_layer(path).kernel.numpy(), layout)


@cache
def exact() -> dict[str, Array]:
    """One of each op in double precision."""
    plan = make_plan(few_ops(), ANY, tf.CAPABILITIES)
    wide = tf.ENGINE.build(plan, tensors_of(plan.graph), {}, "float64", "cpu")
    return tf.ENGINE.run(wide, BATCH, plan.graph.outputs)


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.full), "bfloat16", "float32"])
def test_every_dtype_runs_and_keeps_the_global_policy(dtype: str) -> None:
    keras = import_keras()
    before = (keras.config.dtype_policy(), keras.config.floatx(), keras.config.image_data_format())
    plan = make_plan(few_ops(), ANY, tf.CAPABILITIES)
    model = tf.ENGINE.build(plan, tensors_of(plan.graph), {}, dtype, "cpu")  # type: ignore[arg-type]
    assert (keras.config.dtype_policy(), keras.config.floatx(), keras.config.image_data_format()) == before
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert model.inputs[0].dtype == dtype
    for layer in model.layers[1:]:
        assert layer.dtype_policy.name == dtype, layer.name
        assert all(weight.dtype == dtype for weight in layer.weights)
    found = tf.ENGINE.run(model, BATCH, plan.graph.outputs)
    assert {value.dtype for value in found.values()} == {kind}
    values = {path: value.astype(np.float64) for path, value in found.items()}
    expect_near(values, exact(), 40 * float(ml_dtypes.finfo(kind).eps))


def test_the_axis_order_in_the_users_configuration_changes_nothing() -> None:
    keras, plan = import_keras(), make_plan(few_ops(), ANY, tf.CAPABILITIES)
    before, expected = keras.config.image_data_format(), exact()
    keras.config.set_image_data_format("channels_first")
    try:
        model = tf.ENGINE.build(plan, tensors_of(plan.graph), {}, "float64", "cpu")
        found = tf.ENGINE.run(model, BATCH, plan.graph.outputs)
    finally:
        keras.config.set_image_data_format(before)
    assert all(np.array_equal(value, expected[path]) for path, value in found.items())


def test_layers_are_named_by_the_mapping_then_by_path() -> None:
    graph = network()
    plan = make_plan(graph, ANY, tf.CAPABILITIES)
    model = tf.ENGINE.build(
        plan, random_tensors(graph), {"stem/conv": "conv1_conv", "stem/pool": "conv1_pool"}, "float32", "cpu"
    )
    names = {operation.name for operation in model.operations}
    assert {
        "input",
        "conv1_conv",
        "conv1_pad",
        "conv1_pad_2",
        "conv1_pool",
        "a_depthwise_conv",
        "dilated_stride",
        "logits",
    } <= names
    again = tf.ENGINE.build(
        plan, random_tensors(graph), {"stem/conv": "conv1_conv", "stem/pool": "conv1_pool"}, "float32", "cpu"
    )
    assert [operation.name for operation in again.operations] == [
        operation.name for operation in model.operations
    ]


def test_a_plan_for_one_size_refuses_others_and_a_plan_for_every_size_takes_them() -> None:
    graph = network()
    tensors, batch = random_tensors(graph), np.zeros((1, 3, 14, 15))
    plan = make_plan(graph, ANY, tf.CAPABILITIES)
    assert tf.ENGINE.build(plan, tensors, {}, "float32", "cpu").input_shape == (None, None, None, 3)
    fixed = tf.ENGINE.build(dataclasses.replace(plan, only_size=(13, 15)), tensors, {}, "float32", "cpu")
    assert fixed.input_shape == (None, 13, 15, 3)
    with pytest.raises(ValueError, match="incompatible"):
        fixed(batch.transpose(0, 2, 3, 1))
    with pytest.raises(UsageError, match=r"takes a batch of 3x13x15, got one of shape \(1, 3, 14, 15\)"):
        tf.ENGINE.run(fixed, batch, ["logits"])


def test_tensors_and_graph_must_cover_each_other() -> None:
    graph = network()
    plan, tensors = make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph)
    tensors["elsewhere"] = {"kernel": tensors["logits"].pop("kernel")}
    with pytest.raises(MappingError, match="missing logits:kernel; unexpected elsewhere:kernel"):
        tf.ENGINE.build(plan, tensors, {}, "float32", "cpu")
    tensors = random_tensors(graph)
    tensors["logits"]["bias"] = np.zeros(6)
    with pytest.raises(MappingError, match=r"logits:bias: expected shape \(5,\), got \(6,\)"):
        tf.ENGINE.build(plan, tensors, {}, "float32", "cpu")


def test_weights_that_lead_nowhere_are_refused() -> None:
    conv = Conv(3, Window((1, 1)), SAME)
    graph = Graph((Node("used", conv, (INPUT,)), Node("stray", conv, ("used",))), 3, "used")
    with pytest.raises(GraphError, match="stray: its weights do not lead to the output"):
        tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "cpu")


def test_a_layer_that_this_keras_lacks_is_named_with_the_version_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph(
        (Node("norm", RmsNorm(1e-3), (INPUT,)), Node("wide", DepthToSpace(2), ("norm",))), 4, "wide"
    )
    plan, keras = make_plan(graph, ANY, tf.CAPABILITIES), import_keras()
    tf.ENGINE.build(plan, random_tensors(graph), {}, "float32", "cpu")
    for module, kind, since in (
        ("keras.src.ops.nn", "DepthToSpace", "3.14"),
        ("keras.layers", "RMSNormalization", "3.9"),
    ):
        monkeypatch.delattr(import_module(module), kind)
        with pytest.raises(GraphError, match=f"this version of Keras has no {kind}") as caught:
            tf.ENGINE.build(plan, random_tensors(graph), {}, "float32", "cpu")
        assert caught.value.next == f"install Keras {since} or later", keras.__version__


def test_unknown_devices_are_refused() -> None:
    graph = network()
    with pytest.raises(UsageError, match="there is no device 'tpu'"):
        tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "tpu")


def test_a_realisation_of_another_framework_is_refused() -> None:
    window = Window((3, 3), (2, 2))
    graph = Graph((Node("conv", Conv(5, window, Convention("explicit", (1, 1, 1, 1))), (INPUT,)),), 4, "conv")
    plan = make_plan(graph, ANY, TORCH)
    with pytest.raises(PaddingError, match="Keras has no layers for"):
        tf.ENGINE.build(plan, random_tensors(graph), {}, "float32", "cpu")

"""Frozen graphs, made here by TensorFlow, against its own eager ops; and what is refused before TensorFlow
sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, FileError, GraphError, MappingError, PorterError, UsageError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.frozen.definition import PURE_OPS
from porter.frameworks.tf.frozen.run import GraphRunner
from porter.frameworks.tf.runtime import quiet_logger

tf = import_tensorflow()
v1 = tf.compat.v1
RANDOM = np.random.default_rng(5)
KERNEL = RANDOM.normal(size=(3, 3, 3, 4)).astype(np.float32)
GAMMA, BETA, MEAN = RANDOM.normal(size=(3, 4)).astype(np.float32)
VARIANCE = RANDOM.uniform(0.5, 2, 4).astype(np.float32)
BATCH = RANDOM.normal(size=(3, 3, 9, 7))


def definition(
    make: Callable[[], Any], shape: tuple[int | None, ...] = (None, None, None, 3), dtype: Any = None
) -> Any:
    """A GraphDef with the placeholder `x` and what `make` adds, such as the op `out`."""
    with tf.Graph().as_default() as graph, quiet_logger(tf):
        v1.placeholder(tf.float32 if dtype is None else dtype, shape, name="x")
        make()
        return graph.as_graph_def()


def x() -> Any:
    return v1.get_default_graph().get_tensor_by_name("x:0")


def relu() -> Any:
    return tf.nn.relu(x(), name="out")


def network(training: bool = False, epsilon: float = 0.3) -> None:
    found = tf.nn.conv2d(x(), tf.constant(KERNEL, name="kernel"), 2, "SAME", name="conv")
    found, _, _ = v1.nn.fused_batch_norm(
        found,
        GAMMA,
        BETA,
        *((None, None) if training else (MEAN, VARIANCE)),
        epsilon=epsilon,
        is_training=training,
        name="norm",
    )
    found = tf.nn.relu6(found, name="relu")
    tf.reduce_mean(found, [1, 2], name="out")


def eager(kernel: Any = KERNEL) -> dict[str, Any]:
    """The same in TensorFlow's eager double ops."""
    images = BATCH.transpose(0, 2, 3, 1)
    conv = tf.nn.conv2d(images, np.float64(kernel), 2, "SAME")
    norm = tf.nn.batch_normalization(
        conv, *map(np.float64, (MEAN, VARIANCE, BETA, GAMMA)), float(np.float32(0.3))
    )
    found = {"conv": conv, "norm": norm, "relu": tf.nn.relu6(norm)}
    values = {name: value.numpy().transpose(0, 3, 1, 2) for name, value in found.items()}
    return values | {"out": tf.reduce_mean(found["relu"], [1, 2]).numpy()}


def run(
    graph: Any,
    batch: Any = BATCH,
    dtype: Any = "float64",
    tensors: Any = None,
    names: tuple[str, ...] = ("out",),
) -> Any:
    return GraphRunner(graph.SerializeToString(), tensors or {}, ["out"], dtype)(batch, names)


def test_a_graph_in_double_precision() -> None:
    wanted = eager()
    double = run(definition(network), names=tuple(wanted))
    single = run(definition(network), dtype="float32", names=tuple(wanted))
    for name, value in wanted.items():
        assert double[name].dtype == np.float64 and double[name].shape == value.shape
        assert np.linalg.norm(double[name] - value) <= 1e-14 * np.linalg.norm(value), name
        assert single[name].dtype == np.float32
        assert 1e-9 < np.linalg.norm(single[name] - value) / np.linalg.norm(value) < 1e-6, name


def test_a_type_that_the_file_leaves_out_is_replaced_too() -> None:
    """A SavedModel has no attribute whose value is the default: a MaxPool in float has no T."""

    def pool() -> None:
        tf.nn.leaky_relu(v1.nn.max_pool(x(), 3, 2, "VALID"), 0.1, name="out")

    whole, graph = definition(pool), definition(pool)
    for node in graph.node:
        if node.op in ("MaxPool", "LeakyRelu"):
            del node.attr["T"]
    for dtype in ("float64", "float32"):
        found = run(graph, dtype=dtype)["out"]
        assert found.dtype == dtype and np.array_equal(found, run(whole, dtype=dtype)["out"])


def test_epsilons_of_a_file_are_its_float32_and_those_of_code_its_decimals() -> None:
    graph = definition(network)
    of_code = GraphRunner(graph.SerializeToString(), {}, ["out"], "float64", decimal_epsilons=True)(
        BATCH, ("norm",)
    )["norm"]
    scale = GAMMA.astype(np.float64) / np.sqrt(VARIANCE.astype(np.float64) + 0.3)
    wanted = (eager()["conv"] - MEAN[:, None, None]) * scale[:, None, None] + BETA[:, None, None]
    assert np.linalg.norm(of_code - wanted) <= 1e-14 * np.linalg.norm(wanted)
    assert np.linalg.norm(of_code - eager()["norm"]) > 1e-10 * np.linalg.norm(wanted)


def test_the_norm_of_2015() -> None:
    for scaled in (False, True):
        graph = definition(relu)
        node = next(node for node in graph.node if node.name == "out")
        node.op = "BatchNormWithGlobalNormalization"
        node.attr["variance_epsilon"].f, node.attr["scale_after_normalization"].b = 0.01, scaled
        for name, array in (("m", MEAN), ("v", VARIANCE), ("b", BETA), ("g", GAMMA)):
            node.input.append(name)
            constant = graph.node.add(name=name, op="Const")
            constant.attr["dtype"].type = tf.float32.as_datatype_enum
            constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array[:3]))
        scale = (GAMMA[:3] if scaled else 1) / np.sqrt(VARIANCE[:3].astype(np.float64) + np.float32(0.01))
        wanted = (BATCH - MEAN[:3, None, None]) * scale[:, None, None] + BETA[:3, None, None]
        for dtype, most in (("float64", 1e-14), ("float32", 1e-6)):
            assert np.linalg.norm(run(graph, dtype=dtype)["out"] - wanted) <= most * np.linalg.norm(wanted)


def test_tensors_take_the_place_of_constants_of_their_names() -> None:
    graph = definition(network)
    kernel = next(node for node in graph.node if node.name == "kernel")
    kernel.attr["value"].tensor.tensor_content = b""
    other = KERNEL[::-1].astype(np.float64)
    found = run(graph, tensors={"kernel": other, "of no op": other})["out"]
    assert np.allclose(found, eager(other)["out"], rtol=1e-14, atol=0)
    assert not np.allclose(found, eager()["out"], rtol=1e-3)
    with pytest.raises(MappingError, match=r"kernel: expected shape \(3, 3, 3, 4\), got \(3, 3, 4, 3\)"):
        run(graph, tensors={"kernel": KERNEL.transpose(0, 1, 3, 2)})


@pytest.mark.parametrize("images", [1, 2])
def test_a_fixed_number_of_images_is_fed_as_often_as_needed(images: int) -> None:
    assert np.array_equal(run(definition(network, (images, 9, 7, 3)))["out"], run(definition(network))["out"])


def test_a_placeholder_with_a_default_passes_on_what_it_is_given() -> None:
    def make() -> None:
        tf.nn.relu(v1.placeholder_with_default(x(), None, name="cut"), name="out")

    assert np.array_equal(run(definition(make))["out"], np.maximum(BATCH, 0))


def test_what_does_not_lead_to_the_outputs_is_not_looked_at(tmp_path: Path) -> None:
    def make() -> None:
        written = tf.io.write_file(str(tmp_path / "written"), "text")
        with tf.control_dependencies([written]):
            relu()

    graph = definition(make)
    graph.node.add(name="strange", op="NoSuchOp", input=["out"])
    for node in graph.node:
        node.device = "/device:GPU:7"
        node.attr["_class"].list.s.append(b"loc:@nowhere")
    assert np.array_equal(run(graph)["out"], np.maximum(BATCH, 0))
    assert not (tmp_path / "written").exists()


def _read_file() -> None:
    tf.reshape(tf.io.decode_raw(tf.io.read_file("/etc/hostname"), tf.float32), [-1], name="out")


def _call_python() -> None:
    v1.py_func(lambda value: value, [x()], tf.float32, name="out")


def _choose() -> None:
    images = x()
    tf.identity(v1.cond(tf.constant(True), lambda: images + 1, lambda: images - 1), name="out")


def _random() -> None:
    tf.add(x(), tf.random.uniform([3]), name="out")


def _variable() -> None:
    tf.add(x(), v1.get_variable("w", [3], use_resource=True), name="out")


def _call_a_function() -> None:
    tf.identity(tf.function(lambda value: value + 1)(x()), name="out")


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (_read_file, "DecodeRaw|ReadFile"),
        (_call_python, "PyFunc"),
        (_choose, "Merge|If"),
        (_random, "RandomUniform"),
        (_variable, "ReadVariableOp|VarHandleOp"),
        (_call_a_function, "PartitionedCall"),
    ],
    ids=lambda value: value.__name__ if callable(value) else value,
)
def test_ops_that_are_not_pure_maths_are_refused_by_name(make: Callable[[], Any], op: str) -> None:
    with pytest.raises(CannotRun, match=f"porter does not run the op '.*({op}).*'"):
        run(definition(make))


def test_every_op_that_may_run_has_a_kernel_in_double_precision() -> None:
    from tensorflow.python.framework import kernels

    parted = {
        "FusedBatchNorm",
        "FusedBatchNormV2",
        "FusedBatchNormV3",
        "BatchNormWithGlobalNormalization",
        "LRN",
    }
    for op in PURE_OPS - parted:
        found = [
            kernel
            for kernel in kernels.get_registered_kernels_for_op(op).kernel
            if kernel.device_type in ("CPU", "DEFAULT")
        ]
        floats = [
            [
                rule.allowed_values.list.type
                for rule in kernel.constraint
                if rule.name in ("T", "dtype", "SrcT", "Tparams")
            ]
            for kernel in found
        ]
        assert any(all(tf.float64.as_datatype_enum in types for types in rules) for rules in floats), op


def broken(
    change: Callable[[Any], Any], make: Callable[[], Any] = relu, **placeholder: Any
) -> Callable[[], Any]:
    def build() -> Any:
        graph = definition(make, **placeholder)
        change(graph)
        return graph

    return build


def _enlarge(graph: Any) -> None:
    node = graph.node.add(name="big", op="Const")
    node.attr["dtype"].type = node.attr["value"].tensor.dtype = tf.float32.as_datatype_enum
    node.attr["value"].tensor.float_val.append(1)
    node.attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)
    node = next(node for node in graph.node if node.name == "out")
    node.op = "Add"
    node.input.append("big")


def _text(graph: Any) -> None:
    next(node for node in graph.node if node.name == "out").attr["T"].type = tf.string.as_datatype_enum


def _twice(graph: Any) -> None:
    graph.node.add(name="out", op="Relu", input=["x"])


def _nowhere(graph: Any) -> None:
    next(node for node in graph.node if node.name == "out").input[0] = "gone"


def _channels_first(graph: Any) -> None:
    next(node for node in graph.node if node.name == "conv").attr["data_format"].s = b"NCHW"


def _default_training(graph: Any) -> None:
    del next(node for node in graph.node if node.name == "norm").attr["is_training"]


def _statistics(graph: Any) -> None:
    next(node for node in graph.node if node.name == "out").input[0] = "norm:1"


def _nothing(graph: Any) -> None:
    return


def _two_inputs() -> None:
    tf.add(x(), v1.placeholder(tf.float32, [3], name="keep_prob"), name="out")


def _no_input() -> None:
    tf.constant([1.0], name="out")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (broken(_enlarge), FileError, "big: the constants of this graph are larger"),
        (
            broken(_text),
            CannotRun,
            "out: porter does not run a 'Relu' whose T is not a type of numbers",
        ),
        (broken(_twice), GraphError, "out: two ops have this name"),
        (broken(_nowhere), GraphError, "out: reads 'gone'"),
        (
            broken(_channels_first, network),
            CannotRun,
            "conv: TensorFlow does not run 'Conv2D' with data_format NCHW on a CPU",
        ),
        (
            broken(_default_training, network),
            CannotRun,
            "norm: this FusedBatchNormV3 normalises by the batch",
        ),
        (
            broken(_nothing, lambda: network(training=True)),
            CannotRun,
            "norm: this FusedBatchNormV3 normalises by the batch",
        ),
        (broken(_statistics, network), CannotRun, "out: reads the batch statistics 'norm:1'"),
        (broken(_nothing, _two_inputs), CannotRun, "one placeholder; this one has x, keep_prob"),
        (broken(_nothing, _no_input), CannotRun, "one placeholder; this one has none"),
        (
            broken(_nothing, dtype=tf.int32),
            CannotRun,
            "x: porter runs graphs whose input is of a floating type",
        ),
        (
            broken(_nothing, shape=(None, 12)),
            CannotRun,
            "x: porter feeds images N×H×W×C; this input has 2 dimensions",
        ),
        (
            broken(_nothing, shape=(None, 8, 7, 3)),
            UsageError,
            r"takes a batch of 3x8x7, got one of shape \(3, 3, 9, 7\)",
        ),
        (broken(_nothing, shape=(None, None, None, 1)), UsageError, r"takes a batch of 1x\?x\?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_run_is_refused(
    make: Callable[[], Any], error: type[PorterError], message: str
) -> None:
    with pytest.raises(error) as caught:
        run(make())
    assert caught.match(message)


def test_graphs_that_tensorflow_refuses_are_reported() -> None:
    def make() -> None:
        tf.reshape(x(), [-1, 100], name="out")

    with pytest.raises(UsageError, match="the graph cannot be run on images of 9x7"):
        run(definition(make))
    graph = definition(relu)
    graph.versions.min_consumer = 1 << 30
    with pytest.raises(CannotRun, match=r"TensorFlow .* does not take this graph"):
        run(graph)


def test_arguments_that_do_not_fit() -> None:
    graph = definition(relu)
    with pytest.raises(FileError, match="not a GraphDef"):
        GraphRunner(b"\xff\xff\xff", {}, ["out"], "float64")
    with pytest.raises(GraphError, match="reads 'no such op'"):
        GraphRunner(graph.SerializeToString(), {}, ["no such op"], "float64")
    with pytest.raises(UsageError, match="not in float16"):
        run(graph, dtype="float16")
    with pytest.raises(UsageError, match="the graph has no op 'other'"):
        run(graph, names=("other",))
    assert run(graph, names=()) == {}

"""Graphs of functions, and outputs that are not an op's first: what porter reads gives what TensorFlow's own
loader gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.filegraph.kernels.layouts import with_channels_first
from porter.formats.reading import read_checkpoint
from porter.formats.tf_graph.function_calls import resolve_replacements
from tests.support.arrays import Array
from tests.support.filegraph.values import values_of
from tests.support.formats.tf_graph.file_graphs import images, run_definition, tensorflow

pytest.importorskip("tensorflow")

KERNEL = np.random.default_rng(1).normal(size=(3, 3, 3, 4))


def expect_answers(path: Path, answers: list[Array]) -> None:
    """porter's reading, and the definition that its reference runs, give TensorFlow's answers for `images()`,
    in this order.
    """
    checkpoint = read_checkpoint(path)
    graph = checkpoint.graph
    assert graph is not None and len(graph.outputs) == len(answers)
    read: Mapping[str, Array] = values_of(graph, checkpoint.tensors, with_channels_first(images()))
    shown = run_definition(graph, checkpoint.tensors, images())
    for output, answer in zip(graph.outputs, answers, strict=True):
        wanted: Array = with_channels_first(answer)
        np.testing.assert_allclose(read[output], wanted, rtol=0, atol=1e-9)
        np.testing.assert_allclose(shown[output], answer, rtol=0, atol=1e-9)


def expect_saved(folder: Path, function: Callable[[Any], Any]) -> None:
    """Saves the model that convolves and then calls `function`, and compares with what TensorFlow loads."""
    tf = tensorflow()

    class Model(tf.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            self.kernel = tf.Variable(KERNEL)

        @tf.function(input_signature=[tf.TensorSpec((None, 12, 11, 3), tf.float64)])
        def __call__(self, x: Any) -> Any:
            return function(tf.nn.conv2d(x, self.kernel, 1, "SAME"))

    tf.saved_model.save(model := Model(), str(folder), signatures=model.__call__)
    answers = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(images()))
    expect_answers(folder, [answers[name].numpy() for name in sorted(answers)])


def test_two_functions_that_call_others(tmp_path: Path) -> None:
    """Inside both the inner call has the same name."""
    tf = tensorflow()
    inner = [tf.function(lambda x: tf.nn.relu(x)), tf.function(lambda x: tf.nn.tanh(x))]
    first, second = tf.function(lambda x: inner[0](x) * 2.0), tf.function(lambda x: inner[1](x) * 3.0)
    expect_saved(tmp_path / "saved", lambda x: first(x) + tf.nn.sigmoid(second(x)))


class Written:
    """A frozen graph of float64 written node by node; `image` is convolved to `conv`."""

    def __init__(self) -> None:
        tf = tensorflow()
        self.definition = tf.compat.v1.GraphDef()
        self.definition.versions.producer = tf.version.GRAPH_DEF_VERSION
        image = self.definition.node.add(name="image", op="Placeholder")
        image.attr["dtype"].type = tf.float64.as_datatype_enum
        image.attr["shape"].shape.CopyFrom(tf.TensorShape([None, 12, 11, 3]).as_proto())
        self.constant("kernel", KERNEL)
        conv = self.op(self.definition.node, "conv", "Conv2D", "image", "kernel")
        conv.attr["strides"].list.i.extend([1, 1, 1, 1])
        conv.attr["padding"].s = b"SAME"

    def constant(self, name: str, array: Any) -> None:
        value = tensorflow().make_tensor_proto(array)
        node = self.definition.node.add(name=name, op="Const")
        node.attr["dtype"].type = value.dtype
        node.attr["value"].tensor.CopyFrom(value)

    def op(self, nodes: Any, name: str, op: str, *inputs: str) -> Any:
        node = nodes.add(name=name, op=op, input=inputs)
        node.attr["T"].type = tensorflow().float64.as_datatype_enum
        return node

    def call(self, nodes: Any, name: str, function: str, *inputs: str) -> None:
        nodes.add(name=name, op=function, input=inputs)

    def function(self, name: str, *outputs: str) -> Any:
        """The nodes of a new function of `x`; `outputs` are values in it, such as `relu:activations:0`."""
        made, kind = self.definition.library.function.add(), tensorflow().float64.as_datatype_enum
        made.signature.name = name
        made.signature.input_arg.add(name="x", type=kind)
        for place, output in enumerate(outputs):
            made.signature.output_arg.add(name=f"y{place}", type=kind)
            made.ret[f"y{place}"] = output
        return made.node_def

    def write(self, path: Path) -> Path:
        path.write_bytes(self.definition.SerializeToString())
        return path

    def expect(self, path: Path, *outputs: str) -> None:
        """Compares with what TensorFlow imports from the file."""
        tf = tensorflow()
        definition = tf.compat.v1.GraphDef.FromString(self.write(path).read_bytes())
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(definition, name="")
            with tf.compat.v1.Session(graph=graph) as session:
                answers = session.run(
                    [f"{output}:0" if ":" not in output else output for output in outputs],
                    {"image:0": images()},
                )
        expect_answers(path, answers)


def test_a_node_of_a_function_with_another_call_s_name(tmp_path: Path) -> None:
    graph = Written()
    graph.op(graph.function("f", "t:y:0"), "t", "Tanh", "x")
    nodes = graph.function("g", "s:y:0")
    graph.op(nodes, "act", "Relu", "x")
    graph.op(nodes, "s", "Sigmoid", "act:activations:0")
    graph.call(graph.definition.node, "act", "f", "conv")
    graph.call(graph.definition.node, "other", "g", "conv")
    graph.op(graph.definition.node, "out", "AddV2", "act", "other")
    graph.expect(tmp_path / "graph.pb", "out")


def test_the_second_output_of_a_function_called_by_its_own_name(tmp_path: Path) -> None:
    """TensorFlow's registry does not have its outputs; the graph's library does."""
    graph = Written()
    inner = graph.function("inner", "t:y:0", "r:activations:0")
    graph.op(inner, "t", "Tanh", "x")
    graph.op(inner, "r", "Relu", "x")
    outer = graph.function("outer", "s:y:0")
    graph.call(outer, "call", "inner", "x")
    graph.op(outer, "s", "Sigmoid", "call:y1:0")
    graph.call(graph.definition.node, "end", "outer", "conv")
    graph.op(graph.definition.node, "out", "Identity", "end")
    graph.expect(tmp_path / "graph.pb", "out")


@pytest.mark.parametrize(
    ("op", "source"), [("Relu", "r:y:0"), ("Relu", "r:activations:1"), ("Rectify", "r:activations:0")]
)
def test_an_output_that_an_op_lacks(tmp_path: Path, op: str, source: str) -> None:
    graph = Written()
    graph.op(graph.function("f", source), "r", op, "x")
    graph.call(graph.definition.node, "end", "f", "conv")
    with pytest.raises(FileError, match=f"function 'f' reads '{source}'"):
        read_checkpoint(graph.write(tmp_path / "graph.pb"))


def test_an_output_that_is_the_second_of_its_op(tmp_path: Path) -> None:
    tf = tensorflow()
    expect_saved(tmp_path / "one", lambda x: tf.split(x, 2, -1)[1])
    expect_saved(
        tmp_path / "both", lambda x: dict(zip("ba", tf.split(tf.nn.relu(x), [1, 3], -1), strict=True))
    )


@pytest.mark.parametrize("place", [0, 1])
def test_a_saved_model_of_tensorflow_1_that_ends_at_a_split(tmp_path: Path, place: int) -> None:
    """Its signature names `split:1` itself: no Identity stands behind it, as TensorFlow 2 has it."""
    tf = tensorflow()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float64, [None, 12, 11, 3], name="image")
        conv = tf.nn.conv2d(
            image, v1.get_variable("kernel", initializer=tf.constant(KERNEL), use_resource=True), 1, "SAME"
        )
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session, str(tmp_path / "saved"), {"x": image}, {"y": tf.split(conv, 2, -1)[place]}
        )
    answer = (
        tf.saved_model.load(str(tmp_path / "saved"))
        .signatures["serving_default"](tf.constant(images()))["y"]
        .numpy()
    )
    expect_answers(tmp_path / "saved", [answer])


def test_a_frozen_graph_that_ends_at_a_split(tmp_path: Path) -> None:
    graph = Written()
    graph.constant("axis", np.int32(3))
    graph.op(graph.definition.node, "parts", "Split", "axis", "conv").attr["num_split"].i = 2
    graph.expect(tmp_path / "graph.pb", "parts", "parts:1")
    assert "'parts', 'parts:1'" in read_checkpoint(tmp_path / "graph.pb").notes[-1]


class Counted(dict[tuple[str, int], tuple[str, int]]):
    asked = 0

    def __getitem__(self, key: tuple[str, int]) -> tuple[str, int]:
        self.asked += 1
        return super().__getitem__(key)


def test_calls_that_hand_on_each_other_s_values_are_followed_once() -> None:
    count = 2000
    moved = Counted({(f"call{place}", 0): (f"call{place - 1}", 0) for place in reversed(range(1, count))})
    assert set(resolve_replacements(moved).values()) == {("call0", 0)} and moved.asked < count
    assert resolve_replacements({("one", 0): ("other", 0), ("other", 0): ("one", 0)})[("one", 0)] in {
        ("one", 0),
        ("other", 0),
    }

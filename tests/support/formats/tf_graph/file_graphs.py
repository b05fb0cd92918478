"""TensorFlow's graphs for tests: written, and run by TensorFlow itself beside what porter reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.kernels.layouts import with_channels_first
from tests.support.arrays import Array
from tests.support.filegraph.values import values_of
from tests.support.oracle import OfAxes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def tensorflow() -> Any:
    from porter.formats.tensorflow import import_tensorflow

    return import_tensorflow()


def images(size: tuple[int, int] = (12, 11), channels: int = 3, count: int = 2) -> Array:
    return np.random.default_rng(5).normal(size=(count, *size, channels))


def frozen(path: Path, make: Callable[[Any], Any], size: tuple[int | None, int | None] = (12, 11)) -> Array:
    """Writes the float64 graph that `make` adds to an input, its variables frozen; gives its value for
    `images()`.
    """
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None, *size, 3], name="image")
        output = make(x)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            value = session.run(output, {x: images()})
            names = [node.name for node in graph.as_graph_def().node if node.op not in ("NoOp", "Assign")]
            kept = [name for name in names if "/Initializer/" not in name and not name.startswith("init")]
            definition = tf.compat.v1.graph_util.convert_variables_to_constants(
                session, graph.as_graph_def(), kept
            )
    path.write_bytes(definition.SerializeToString())
    return value


def variable(name: str, *shape: int, positive: bool = False) -> Any:
    tf = tensorflow()
    random = np.random.default_rng(len(name) + sum(shape))
    values = random.uniform(0.5, 2, shape) if positive else random.normal(size=shape)
    return tf.compat.v1.get_variable(name, initializer=tf.constant(values), use_resource=False)


def run_definition(graph: FileGraph, tensors: Mapping[str, Array], batch: Array) -> dict[str, Array]:
    """The values at all taps, from the definition with its tensors put back, by node name."""
    tf = tensorflow()
    definition = tf.compat.v1.GraphDef.FromString(graph.definition)
    for node in definition.node:
        if node.name in tensors and node.op == "Const":
            assert (
                not node.attr["value"].tensor.tensor_content and not node.attr["value"].tensor.ByteSize() > 64
            )
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tensors[node.name]))
    (image,) = [node.name for node in definition.node if node.op == "Placeholder"]
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(definition, name="")
        config = tf.compat.v1.ConfigProto()
        # It joins a grouped convolution and its bias to an operator that TensorFlow runs on some processors
        # only.
        config.graph_options.rewrite_options.remapping = config.graph_options.rewrite_options.OFF
        with tf.compat.v1.Session(config=config) as session:
            taps = {
                node.name: node.tap if ":" in node.tap else f"{node.tap}:0"
                for node in graph.nodes
                if node.tap is not None
            }
            return session.run(taps, {f"{image}:0": batch})


def expect_same(checkpoint: Checkpoint, batch: Array, output: Array, tolerance: float = 1e-10) -> None:
    """What the FileGraph says is what the file's graph computes: at every tap, and at the output of the
    original.
    """
    graph = checkpoint.graph
    assert graph is not None
    values = values_of(graph, checkpoint.tensors, with_channels_first(batch))
    expected = [*run_definition(graph, checkpoint.tensors, batch).items(), (graph.outputs[0], output)]
    for name, value in expected:
        theirs = value if isinstance(values[name], OfAxes) else with_channels_first(value)
        assert values[name].shape == theirs.shape
        assert np.abs(values[name] - theirs).max() <= tolerance * max(1, np.abs(theirs).max()), name

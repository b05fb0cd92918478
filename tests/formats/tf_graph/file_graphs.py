"""What a FileGraph says, computed in float64 by plain TensorFlow ops, and what its definition says, run by TensorFlow itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    Relu,
    Relu6,
    Sigmoid,
    Softmax,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def tensorflow() -> Any:
    from porter.formats.tensorflow import import_tensorflow

    return import_tensorflow()


def images(size: tuple[int, int] = (12, 11), channels: int = 3, count: int = 2) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, *size, channels))


def frozen(path: Path, make: Callable[[Any], Any], size: tuple[int | None, int | None] = (12, 11)) -> np.ndarray:
    """Writes the float64 graph that `make` adds to an input, its variables frozen; gives its value for `images()`."""
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None, *size, 3], name="image")
        output = make(x)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            value = session.run(output, {x: images()})
            names = [node.name for node in graph.as_graph_def().node if node.op not in ("NoOp", "Assign")]
            kept = [name for name in names if "/Initializer/" not in name and not name.startswith("init")]
            definition = tf.compat.v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), kept)
    path.write_bytes(definition.SerializeToString())
    return value


def variable(name: str, *shape: int, positive: bool = False) -> Any:
    tf = tensorflow()
    random = np.random.default_rng(len(name) + sum(shape))
    values = random.uniform(0.5, 2, shape) if positive else random.normal(size=shape)
    return tf.compat.v1.get_variable(name, initializer=tf.constant(values), use_resource=False)


def evaluate(checkpoint: Checkpoint, batch: np.ndarray) -> dict[str, np.ndarray]:
    """The value of every node of a checkpoint's graph for a batch N×H×W×C."""
    graph = checkpoint.graph
    assert graph is not None
    values = {INPUT: np.asarray(batch, np.float64)}
    for node in graph.nodes:
        tensors = {role: np.asarray(checkpoint.tensors[stored.name], np.float64) for role, stored in node.tensors.items()}
        values[node.name] = np.asarray(_step(node, [values[name] for name in node.inputs], tensors))
    return values


def _step(node: FileNode, inputs: list[np.ndarray], tensors: Mapping[str, np.ndarray]) -> Any:
    tf, op, x = tensorflow(), node.op, inputs[0]
    match op:
        case Conv():
            return _convolution(tf, op, x if x.ndim == 4 else x[:, None, None], tensors["kernel"]) + tensors.get("bias", 0.0)
        case BatchNorm():
            assert op.scale == ("gamma" in tensors) and op.center == ("beta" in tensors)
            scaled = (x - tensors["mean"]) / np.sqrt(tensors["variance"] + op.epsilon)
            return scaled * tensors.get("gamma", 1.0) + tensors.get("beta", 0.0)
        case Relu():
            return np.maximum(x, 0)
        case Relu6():
            return np.clip(x, 0, 6)
        case MaxPool() | AvgPool():
            return _pool(tf, op, x)
        case GlobalAvgPool():
            return x.mean((1, 2))
        case GlobalMaxPool():
            return x.max((1, 2))
        case Affine():
            return x * np.array(op.scale) + np.array(op.offset)
        case Dense():
            return x.reshape(len(x), -1) @ tensors["kernel"] + tensors.get("bias", 0.0)
        case Add():
            return sum(inputs)
        case Concat():
            return np.concatenate(inputs, -1)
        case Softmax():
            return tf.nn.softmax(x)
        case Sigmoid():
            return 1 / (1 + np.exp(-x))
    raise AssertionError(f"{node.name} is {op}")


def _padded(tf: Any, op: Any, x: np.ndarray, fill: float) -> tuple[Any, str]:
    if op.convention.rule != "explicit":
        return tf.constant(x, tf.float64), op.convention.rule.upper()
    top, bottom, left, right = op.convention.pads
    return tf.pad(x, [[0, 0], [top, bottom], [left, right], [0, 0]], constant_values=tf.constant(fill, tf.float64)), "VALID"


def _convolution(tf: Any, op: Conv, x: np.ndarray, kernel: np.ndarray) -> Any:
    x, padding = _padded(tf, op, x, 0.0)
    depthwise = kernel.shape[2] == op.groups > 1
    if depthwise:
        kernel = kernel.reshape(*kernel.shape[:2], 1, -1)
    parts = [
        tf.nn.conv2d(group, weights, op.window.stride, padding, dilations=op.window.dilation)
        for group, weights in zip(np.split(np.asarray(x), op.groups, -1), np.split(kernel, op.groups, -1), strict=True)
    ]
    return np.concatenate(parts, -1)


def _pool(tf: Any, op: MaxPool | AvgPool, x: np.ndarray) -> Any:
    if isinstance(op, MaxPool):
        x, padding = _padded(tf, op, x, op.convention.fill)
        return tf.nn.max_pool2d(x, op.window.kernel, op.window.stride, padding)
    explicit = op.convention.rule == "explicit"
    assert op.convention.average == ("full_window" if explicit else "real_cells")
    x, padding = _padded(tf, op, x, 0.0)
    return tf.nn.avg_pool2d(x, op.window.kernel, op.window.stride, padding)


def run_definition(graph: FileGraph, tensors: Mapping[str, np.ndarray], batch: np.ndarray) -> dict[str, np.ndarray]:
    """The values at all taps, from the definition with its tensors put back, by node name."""
    tf = tensorflow()
    definition = tf.compat.v1.GraphDef.FromString(graph.definition)
    for node in definition.node:
        if node.name in tensors:
            assert not node.attr["value"].tensor.tensor_content and not node.attr["value"].tensor.ByteSize() > 64
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(tensors[node.name]))
    (image,) = [node.name for node in definition.node if node.op == "Placeholder"]
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(definition, name="")
        with tf.compat.v1.Session() as session:
            taps = {node.name: f"{node.tap}:0" for node in graph.nodes if node.tap is not None}
            return session.run(taps, {f"{image}:0": batch})


def expect_same(checkpoint: Checkpoint, batch: np.ndarray, output: np.ndarray, tolerance: float = 1e-10) -> dict[str, np.ndarray]:
    """What the FileGraph says is what the file's graph computes: at every tap, and at the output of the original."""
    graph = checkpoint.graph
    assert graph is not None
    values = evaluate(checkpoint, batch)
    for name, value in run_definition(graph, checkpoint.tensors, batch).items():
        ours = values[name].reshape(value.shape)
        assert np.abs(ours - value).max() <= tolerance * max(1, np.abs(value).max()), name
    ours = values[graph.outputs[0]].reshape(output.shape)
    assert np.abs(ours - output).max() <= tolerance * max(1, np.abs(output).max())
    return values

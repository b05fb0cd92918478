"""TensorFlow's definitions of operators as a witness of where a graph ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CannotRun, Contradiction
from porter.formats.reading import read_checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph import ends
from porter.formats.tf_graph.ends import find_loose_ends
from porter.frameworks.tf.frozen.witness import disagreement

tf = import_tensorflow()
v1 = tf.compat.v1
Build = Callable[[Any], object]
KERNEL = np.random.default_rng(0).normal(0, 0.4, (3, 3, 3, 4)).astype(np.float32)


def written(path: Path, build: Build) -> Path:
    with tf.Graph().as_default() as graph:
        build(v1.placeholder(tf.float32, (None, 9, 8, 3), "image"))
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def logits(image: Any) -> Any:
    x = tf.nn.relu(tf.nn.conv2d(image, KERNEL, 1, "SAME"))
    return tf.nn.bias_add(tf.reduce_mean(x, [1, 2]), np.arange(4, dtype=np.float32), name="logits")


def classified(image: Any) -> None:
    """A network beside what observes it, in its ways: a ranking, a loss by labels, sizes, a summary."""
    found = logits(image)
    prob, labels = tf.nn.softmax(found, name="prob"), v1.placeholder(tf.float32, (None, 4), "labels")
    ranked = tf.equal(tf.argmax(prob, 1), tf.argmax(labels, 1))
    tf.reduce_mean(tf.cast(ranked, tf.float32), name="accuracy")
    tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, found), name="loss")
    tf.cast(tf.argmax(prob, 1), tf.float32, name="class")
    tf.nn.top_k(prob, 2)
    tf.shape(found)
    v1.summary.scalar("mean", tf.reduce_mean(KERNEL))
    v1.summary.histogram("prob", prob)


def two_heads(image: Any) -> None:
    found = logits(image)
    tf.nn.softmax(found, name="prob")
    tf.identity(tf.sigmoid(image), "second")


def chosen(image: Any) -> None:
    """As TensorFlow 1 says a condition, of an input that Keras has beside the image."""
    x, truth = tf.nn.relu(image), v1.placeholder_with_default(False, (), "keras_learning_phase")
    tf.cast(truth, tf.float32, "trained")
    off, on = tf.raw_ops.Switch(data=x, pred=truth)
    merged = tf.raw_ops.Merge(inputs=[tf.negative(off), tf.nn.elu(on)])
    tf.identity(merged.output, "end")


RIGHT: dict[str, Build] = {"observers": classified, "two heads": two_heads, "a condition": chosen}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_end(name: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(written(tmp_path / "model.pb", RIGHT[name]))
    assert checkpoint.graph is not None and disagreement(checkpoint, (9, 8), True) is None


WRONG: dict[str, tuple[Build, str, str]] = {
    "too early": (classified, "logits", "porter ends the graph at 'logits', which 'softmax_cross_entropy"),
    "no number": (
        classified,
        "ArgMax",
        "porter ends the graph at 'ArgMax', which does not give real numbers",
    ),
    "one of two": (two_heads, "prob", "the graph ends at 'second' too, which porter leaves out"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_end(name: str, tmp_path: Path) -> None:
    build, end, words = WRONG[name]
    checkpoint = read_checkpoint(written(tmp_path / "model.pb", build))
    graph = checkpoint.carried
    wrong = replace(checkpoint, graph=replace(graph, given={end: graph.outputs[0]}))
    assert str(disagreement(wrong, (9, 8), True)).startswith(words)


def test_the_proof_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "model.pb", two_heads)
    made = porter.convert(file, to="torch", out=tmp_path / "right")
    assert made.verdict is not None
    assert made.verdict.held == (
        "where the file's graph ends: held to TensorFlow's definitions of operators",
    )
    named = porter.convert(file, to="torch", outputs="prob", out=tmp_path / "named")
    assert named.verdict is not None and named.verdict.ok and not named.verdict.held
    monkeypatch.setattr(ends, "find_loose_ends", lambda nodes, image: find_loose_ends(nodes, image)[:1])
    with pytest.raises(Contradiction, match="the graph ends at 'second' too, which porter leaves"):
        porter.convert(file, to="torch", out=tmp_path / "wrong")


def test_a_graph_that_calls_functions(tmp_path: Path) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.nn.relu(x)

    file = written(tmp_path / "model.pb", lambda image: tf.nn.softmax(tf.reduce_mean(inner(image), [1, 2])))
    with pytest.raises(CannotRun, match="the graph calls functions"):
        disagreement(read_checkpoint(file), (9, 8), True)

"""A StatelessIf of a TensorFlow graph: the branch that the image's size decides, at that size only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from porter.filegraph.file_graph import Foreign
from porter.formats.tf_graph.read import read_frozen_graph
from porter.graph import Affine, Relu
from tests.support.formats.tf_graph.file_graphs import tensorflow

pytest.importorskip("tensorflow")


def graph(path: Path, size: tuple[int | None, int | None]) -> Path:
    """One way for wide images, another one for others, and in it a way that is stored."""
    tf = tensorflow()

    def compute(x: Any) -> object:
        always = tf.constant(True)
        return tf.cond(
            tf.shape(x)[2] > 10, lambda: tf.cond(always, lambda: tf.nn.relu(x), lambda: x), lambda: x * 2.0
        )

    spec = tf.TensorSpec((None, *size, 3), tf.float32, name="image")
    definition = tf.function(compute).get_concrete_function(spec).graph.as_graph_def()
    assert any(node.op == "StatelessIf" for node in definition.node)
    path.write_bytes(definition.SerializeToString())
    return path


def test_the_branch_of_a_stated_size(tmp_path: Path) -> None:
    for size, op in (((12, 11), Relu()), ((12, 9), Affine((2.0,), (0.0,)))):
        file = graph(tmp_path / "graph.pb", size)
        found = read_frozen_graph(file).carried
        assert [node.op for node in found.nodes] == [op] and not found.resizable


def test_an_open_size_decides_no_branch(tmp_path: Path) -> None:
    file = graph(tmp_path / "graph.pb", (None, None))
    last = read_frozen_graph(file).carried.nodes[-1].op
    assert isinstance(last, Foreign) and last.kind == "StatelessIf"
    assert [node.op for node in read_frozen_graph(file, size=(8, 12)).carried.nodes] == [Relu()]

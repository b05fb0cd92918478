"""Frozen graphs and SavedModels of TF-slim's networks: read, and run as the file's own graph, against
porter's build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileNode, Foreign
from porter.formats.reading import read_checkpoint
from porter.frameworks import ENGINE_NAMES, get_destination, get_engine
from porter.graph import BatchNorm, Graph
from porter.graph.plan import make_plan
from tests.support.arrays import Array
from tests.support.fixtures import SlimMaker
from tests.support.slim_files import SMALL, SlimFile
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors

SIZE = (224, 224)
FROZEN = SlimFile(SMALL[0], "frozen", batch=1)
tf = get_destination("tf")


def with_epsilons_of_a_file(graph: Graph) -> Graph:
    """A GraphDef holds them as float32."""
    nodes = (
        replace(node, op=replace(node.op, epsilon=float(np.float32(node.op.epsilon))))
        if isinstance(node.op, BatchNorm)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


@pytest.mark.parametrize("file", [FROZEN, SlimFile(SMALL[1], "saved_model")], ids=lambda file: file.format)
def test_a_files_own_graph_is_run_with_the_tensors_that_were_read(
    file: SlimFile, slim_file: SlimMaker
) -> None:
    checkpoint = read_checkpoint(slim_file(file))
    assert checkpoint.graph is not None
    batch = smooth_images(3, SIZE, seed=1, count=2).astype(np.float64)
    model = tf.ENGINE.build_file(checkpoint, "float64", SIZE)
    found: Mapping[str, Array] = tf.ENGINE.run_reference(
        model, batch, {node.name: node.tap for node in checkpoint.graph.nodes if node.tap}
    )
    graph = with_epsilons_of_a_file(standin_graph(file.variant, "slim", file.classes))
    tensors = standin_tensors(file.variant, "slim", file.classes)
    own = tf.ENGINE.build(make_plan(graph, SIZE, tf.CAPABILITIES), tensors, {}, "float64", "cpu")
    wanted: Mapping[str, Array] = tf.ENGINE.run(own, batch, [node.path for node in graph.nodes])
    for ours, theirs in zip(graph.nodes, checkpoint.graph.nodes, strict=False):  # the file's softmax follows
        distance = np.linalg.norm(wanted[ours.path].ravel() - found[theirs.name].ravel())
        assert distance <= 1e-10 * np.linalg.norm(wanted[ours.path]), theirs.name


@pytest.fixture(scope="module")
def frozen(slim_file: SlimMaker) -> Checkpoint:
    return read_checkpoint(slim_file(FROZEN))


def logits(checkpoint: Checkpoint) -> Any:
    model = tf.ENGINE.build_file(checkpoint, "float32", SIZE)
    name = "MobilenetV1/Logits/SpatialSqueeze"
    return tf.ENGINE.run_reference(
        model, smooth_images(3, SIZE, seed=1, count=1), {"logits": name, "none": "no/such/op"}
    )


def test_other_tensors_give_other_answers(frozen: Checkpoint) -> None:
    name = "MobilenetV1/Logits/Conv2d_1c_1x1/biases"
    moved = replace(frozen, tensors={**frozen.tensors, name: frozen.tensors[name] + 1})
    before, after = logits(frozen), logits(moved)
    assert before.keys() == after.keys() == {"logits"}
    assert np.allclose(after["logits"], before["logits"] + 1, atol=1e-5)


def test_a_tensor_that_is_not_there_is_missing(frozen: Checkpoint) -> None:
    name = "MobilenetV1/Conv2d_0/weights"
    less = {key: array for key, array in frozen.tensors.items() if key != name}
    with pytest.raises(MappingError, match=f"missing {name}"):
        tf.ENGINE.build_file(replace(frozen, tensors=less), "float64", SIZE)


def test_what_follows_a_foreign_layer_is_not_run(frozen: Checkpoint) -> None:
    graph = frozen.graph
    assert graph is not None
    strange = FileNode("strange", Foreign("NoSuchOp"), (graph.nodes[-1].name,), tap="strange")
    after = FileNode("after", graph.nodes[2].op, ("strange",), tap="no/such/op")
    longer = replace(frozen, graph=replace(graph, nodes=(*graph.nodes, strange, after)))
    assert np.array_equal(logits(longer)["logits"], logits(frozen)["logits"])
    with pytest.raises(CannotRun, match="begins with layers that porter has no op for: strange"):
        tf.ENGINE.build_file(
            replace(frozen, graph=replace(graph, nodes=(replace(strange, inputs=("input",)),))),
            "float64",
            SIZE,
        )


def test_files_without_a_graph_are_refused(frozen: Checkpoint) -> None:
    for name in ENGINE_NAMES:
        with pytest.raises(CannotRun, match="this file carries no graph"):
            get_engine(name).build_file(replace(frozen, graph=None), "float64", SIZE)

"""Graphs of all ops, random ones among them: the Keras model, and the file of it, give what
tests.support.oracle gives.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings

from porter.base.dtypes import Dtype
from porter.base.errors import MappingError
from porter.frameworks.tf import dialect
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.runtime import import_keras
from porter.graph import (
    INPUT,
    Add,
    AddArray,
    ConvTranspose,
    Dense,
    Flatten,
    GlobalAvgPool,
    Graph,
    GroupNorm,
    MaxPool,
    Node,
    Op,
    Rearrange,
    ReduceMap,
    Resize,
    ResizeLike,
    Tokens,
)
from porter.graph.plan import make_plan
from porter.padding import ANY, Window
from tests.support.frameworks.every_op import NEAREST, RESIZES, RULES, SIZE, images, tensors_of
from tests.support.frameworks.sayable import expect_equal_tensors, expect_near
from tests.support.frameworks.tf.models import SAME, few_ops, random_tensors
from tests.support.frameworks.tf.saved import unlike_saved
from tests.support.oracle import OfAxes, evaluate
from tests.support.random_graphs import UNSHRUNK, Sample, difference, samples

LIMIT = 1e-12


def check(sample: Sample) -> None:
    graph = sample.graph
    plan = make_plan(graph, sample.size, tf.CAPABILITIES)
    model = tf.ENGINE.build(plan, sample.tensors, {}, "float64", "cpu")
    found = tf.ENGINE.run(model, sample.batch, [node.path for node in graph.nodes])
    expect_near(found, sample.values, LIMIT)
    with TemporaryDirectory() as name:
        folder = Path(name)
        tf.write(folder, plan, sample.tensors, {}, "float64", {})
        tensors = tf.read_port(folder, plan, {})
        loaded = import_keras().models.load_model(folder / "model.keras")
        assert unlike_saved(folder / "model.keras", loaded) == []
    expect_equal_tensors(tensors, sample.tensors)
    results = loaded(sample.batch.transpose(0, 2, 3, 1))
    for path, value in zip(graph.outputs, results if graph.further else [results], strict=True):
        of_axes = isinstance(sample.values[path], OfAxes)
        assert (
            difference(value.numpy() if of_axes else np.moveaxis(value.numpy(), -1, 1), sample.values[path])
            <= LIMIT
        ), path


def test_one_of_each_op_in_a_model_that_takes_any_size() -> None:
    graph = few_ops()
    tensors, batch = tensors_of(graph), images((10, 9))
    model = tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), tensors, {}, "float64", "cpu")
    found = tf.ENGINE.run(model, batch, [node.path for node in graph.nodes])
    expect_near(found, evaluate(graph, tensors, batch), LIMIT)


@pytest.mark.parametrize(("dtype", "limit"), [("float64", LIMIT), ("float32", 1e-5)])
def test_every_resize(dtype: Dtype, limit: float) -> None:
    """In float32 Keras's own layers stand where they compute the same."""
    small, like = (
        MaxPool(Window((2, 2), (2, 2)), SAME),
        [ResizeLike(mode, rule) for mode in ("linear", "cubic") for rule in RULES],
    )
    ops: list[Op] = [*RESIZES, Resize("linear", (2.0, 1.0)), Resize("cubic", (2.0, 2.0), a=-0.5, inside=True)]
    nodes = [
        *(Node(f"resize_{place}", op, (INPUT,)) for place, op in enumerate(ops)),
        Node("small", small, (INPUT,)),
    ]
    nodes += [Node(f"like_{place}", op, ("small", INPUT)) for place, op in enumerate(like)]
    fixed = [Node(f"nearest_{place}", op, (INPUT,)) for place, op in enumerate(NEAREST)]
    for size, extra in ((ANY, []), (SIZE, fixed)):
        graph = Graph((*nodes, *extra), 3, nodes[-1].path)
        batch = np.random.default_rng(5).normal(size=(2, 3, *SIZE))
        model = tf.ENGINE.build(make_plan(graph, size, tf.CAPABILITIES), {}, {}, dtype, "cpu")
        wanted = evaluate(graph, {}, batch)
        for path, value in tf.ENGINE.run(
            model, batch.astype(dtype), [node.path for node in graph.nodes]
        ).items():
            assert difference(value, wanted[path]) <= limit, path


def test_sums_of_stretched_values_that_keras_would_add_as_a_bias() -> None:
    """As many images as channels and rows, which each of these sums reads from another axis."""
    nodes = [
        Node("channels", ReduceMap("mean", "channels"), (INPUT,)),
        Node("flat", Flatten(2, 2), (INPUT,)),
        Node("image", GlobalAvgPool(keep=True), ("channels",)),
        Node("row", ReduceMap("max", "columns"), ("channels",)),
        Node("column", ReduceMap("max", "rows"), ("channels",)),
        Node("features", Dense(2), ("flat",)),
        Node("one", Dense(1), ("flat",)),
    ]
    sums = [
        (INPUT, "image"),
        (INPUT, "row"),
        (INPUT, INPUT, "column", "image"),
        ("row", "column"),
        ("features", "one"),
    ]
    nodes += [Node(f"sum_{place}", Add(), paths) for place, paths in enumerate(sums)]
    nodes.append(Node("placed", AddArray((1, 2, 2)), ("row",)))
    graph = Graph(
        tuple(nodes), 2, "sum_0", (), (*(f"sum_{place}" for place in range(1, len(sums))), "placed")
    )
    for count in (1, 2):
        batch = np.random.default_rng(count).normal(size=(count, 2, 2, 2))
        check(Sample(graph, random_tensors(graph), batch, evaluate(graph, random_tensors(graph), batch)))


def test_one_token_of_one_number() -> None:
    """An EinsumDense cannot have an array without axes."""
    cells = Node("cells", Rearrange("c h w -> (h w) c"), (INPUT,))
    graph = Graph((cells, Node("tokens", Tokens(1), ("cells",))), 1, "tokens")
    tensors, batch = random_tensors(graph), np.random.default_rng(0).normal(size=(2, 1, 3, 4))
    check(Sample(graph, tensors, batch, evaluate(graph, tensors, batch)))


def test_a_norm_of_equal_cells() -> None:
    """TensorFlow rounds the mean of these cells, so that it gives 4e-16 where the oracle gives zeros."""
    graph = Graph((Node("norm", GroupNorm(1, 0.235, False, False), (INPUT,)),), 1, "norm")
    batch = np.full((2, 1, 5, 3), -1.074)
    values = evaluate(graph, {}, batch)
    assert not values["norm"].any()
    check(Sample(graph, {}, batch, values))


def test_groups_of_a_transposed_convolution_that_read_each_other_are_refused() -> None:
    """Keras's layer has no groups, so its kernel has zeros between them; training the port could change
    these.
    """
    op = ConvTranspose(4, Window((2, 2), (2, 2), (1, 2)), groups=2)
    graph = Graph((Node("wide", op, (INPUT,)),), 6, "wide")
    kernel = np.random.default_rng(0).normal(size=(6, 2, 2, 2))
    stored = dialect.from_canonical(graph, graph.nodes[0], "kernel", kernel)
    assert stored.shape == (2, 3, 4, 6) and np.count_nonzero(stored) == kernel.size
    assert np.array_equal(dialect.to_canonical(graph, graph.nodes[0], "kernel", stored), kernel)
    stored[0, 0, 0, 5] = 1
    with pytest.raises(MappingError, match="wide: expected zeros between 2 groups"):
        dialect.to_canonical(graph, graph.nodes[0], "kernel", stored)


@settings(max_examples=2, derandomize=True, phases=UNSHRUNK)
@given(samples(tf.CAPABILITIES, least=60, most=60))
def test_long_graphs(sample: Sample) -> None:
    check(sample)


@pytest.mark.full
@settings(max_examples=400, phases=UNSHRUNK)
@given(samples(tf.CAPABILITIES))
def test_many_graphs(sample: Sample) -> None:
    check(sample)

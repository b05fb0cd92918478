"""Random graphs over all ops: the Keras model, and the file of it, give what tests.oracle gives."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings

from porter.frameworks import tf
from porter.frameworks.tf.layers import LAYERS
from porter.frameworks.tf.runtime import import_keras
from porter.graph import OPS
from porter.graph.plan import make_plan
from tests.random_graphs import UNSHRUNK, Sample, difference, samples

LIMIT = 1e-12


def check(sample: Sample) -> None:
    graph = sample.graph
    plan = make_plan(graph, sample.size, tf.CAPABILITIES)
    model = tf.build(plan, sample.tensors, {}, "float64", "cpu")
    found = tf.run(model, sample.batch, [node.path for node in graph.nodes])
    for path, value in found.items():
        assert difference(value, sample.values[path]) <= LIMIT, path
    with TemporaryDirectory() as name:
        folder = Path(name)
        tf.write(folder, plan, sample.tensors, {}, "float64")
        tensors = tf.read_port(folder, plan, {})
        loaded = import_keras().models.load_model(folder / "model.keras")
    assert {path: roles.keys() for path, roles in tensors.items()} == {path: roles.keys() for path, roles in sample.tensors.items()}
    for path, roles in sample.tensors.items():
        assert all(np.array_equal(tensors[path][role], array) for role, array in roles.items()), path
    results = loaded(sample.batch.transpose(0, 2, 3, 1))
    for path, value in zip(graph.outputs, results if graph.further else [results], strict=True):
        assert difference(np.moveaxis(value.numpy(), -1, 1), sample.values[path]) <= LIMIT, path


def test_the_tables_have_every_op() -> None:
    assert {kind for kind in OPS.values() if kind.site is OPS["relu"].site} == LAYERS.keys()


@settings(max_examples=3, derandomize=True, phases=UNSHRUNK)
@given(samples(tf.CAPABILITIES, least=60, most=60))
def test_long_graphs(sample: Sample) -> None:
    check(sample)


@pytest.mark.full
@settings(max_examples=400, phases=UNSHRUNK)
@given(samples(tf.CAPABILITIES))
def test_many_graphs(sample: Sample) -> None:
    check(sample)

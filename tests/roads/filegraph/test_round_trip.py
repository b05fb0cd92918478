"""A graph written as a Keras file, read again without a recipe: the same function, or refused by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from porter.base.errors import MappingError
from porter.formats.reading import read_checkpoint
from porter.frameworks import Tensors, get_destination
from porter.graph import INPUT, ChannelScale, Gelu, Graph, LocalResponseNorm, Node
from porter.graph.plan import make_plan
from porter.source.opened import Opened
from porter.source.own_graph import open_graph
from porter.source.wishes import Wishes
from tests.support.arrays import Array
from tests.support.oracle import OfAxes, evaluate
from tests.support.random_graphs import UNSHRUNK, Sample, difference, samples

KERAS = get_destination("tf")
IN_PARTS = {"gelu": Gelu(), "local_response_norm": LocalResponseNorm(3, 1e-2, 0.75, 1.0)}
"""Ops that Keras has no layer for, or none that is exact in float64, so porter writes them in parts."""
LIMIT = 1e-12


def with_a_tensor(sample: Sample) -> Sample:
    """The sample after a scale by 1, because a file without tensors is none of weights."""
    first = Node("first", ChannelScale(), (INPUT,))
    nodes = (
        replace(node, inputs=tuple("first" if path == INPUT else path for path in node.inputs))
        for node in sample.graph.nodes
    )
    graph = replace(sample.graph, nodes=(first, *nodes))
    return replace(
        sample, graph=graph, tensors={**sample.tensors, "first": {"gamma": np.ones(graph.channels)}}
    )


def read_back(graph: Graph, tensors: Tensors, size: tuple[int, int], folder: Path) -> Opened:
    KERAS.write(folder, make_plan(graph, size, KERAS.CAPABILITIES), tensors, {}, "float64", {})
    return open_graph(read_checkpoint(folder / KERAS.MODEL_FILE), Wishes(size=size, keep_activation=True))


def expect_same(sample: Sample, folder: Path) -> bool:
    """Whether porter reads what it wrote; it must then compute the same."""
    sample = with_a_tensor(sample)
    try:
        opened = read_back(sample.graph, sample.tensors, sample.size, folder)
    except MappingError as error:
        assert "porter has no op for" in error.message
        return False
    values = evaluate(opened.graph, opened.tensors, sample.batch)
    for found, wanted in zip(opened.graph.outputs, sample.graph.outputs, strict=True):
        assert difference(_in_keras(values[found]), _in_keras(sample.values[wanted])) <= LIMIT
    return True


def _in_keras(value: Array) -> Array:
    """A value as the file has it: four axes that were moved may come back as a map or as an array."""
    return value if isinstance(value, OfAxes) or value.ndim != 4 else value.transpose(0, 2, 3, 1)


def test_what_porter_writes_for_keras_it_reads(tmp_path: Path) -> None:
    """Most graphs are read: an average that leaves out some pads, and a Flatten channel by channel, are
    written in parts.
    """
    outcomes: Counter[bool] = Counter()

    @settings(max_examples=12, derandomize=True, phases=UNSHRUNK, suppress_health_check=list(HealthCheck))
    @given(samples(KERAS.CAPABILITIES, most=6))
    def check(sample: Sample) -> None:
        outcomes[expect_same(sample, tmp_path)] += 1

    check()
    assert outcomes[True] > outcomes[False], outcomes


@pytest.mark.parametrize("name", IN_PARTS)
def test_what_is_written_in_parts_is_read_in_parts(name: str, tmp_path: Path) -> None:
    graph = Graph(
        (Node("scale", ChannelScale(), (INPUT,)), Node("parts", IN_PARTS[name], ("scale",))), 4, "parts"
    )
    tensors, batch = (
        {"scale": {"gamma": np.linspace(0.5, 2, 4)}},
        np.random.default_rng(0).normal(size=(2, 4, 6, 6)),
    )
    opened = read_back(graph, tensors, (6, 6), tmp_path)
    found = evaluate(opened.graph, opened.tensors, batch)[opened.graph.output]
    assert difference(_in_keras(found), _in_keras(evaluate(graph, tensors, batch)["parts"])) <= LIMIT


@pytest.mark.full
@settings(max_examples=400, phases=UNSHRUNK, suppress_health_check=[*HealthCheck])
@given(samples(KERAS.CAPABILITIES, most=8))
def test_many_graphs(tmp_path_factory: pytest.TempPathFactory, sample: Sample) -> None:
    expect_same(sample, tmp_path_factory.mktemp("model"))

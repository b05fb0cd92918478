"""What porter.graph says of random graphs over all ops, held to the values of tests.support.oracle."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import find, given, settings

from porter.graph import OPS, nonnegative_paths, shapes
from porter.graph.record import from_record, to_record
from tests.support.random_graphs import OF_ARRAYS, UNSHRUNK, Sample, difference, samples

# Ops whose sign depends on their inputs or attributes, often enough that a wrong claim shows.
SIGNED = (
    "relu",
    "max_pool",
    "avg_pool",
    "pad_map",
    "clip",
    "affine",
    "elu",
    "leaky_relu",
    "thresholded_relu",
    "maximum",
    "minimum",
    "multiply",
)


def check(sample: Sample) -> None:
    known = shapes(sample.graph, sample.size)
    assert known == {path: value.shape[1:] for path, value in sample.values.items()}
    for path in nonnegative_paths(sample.graph):
        assert sample.values[path].min() >= 0, path
    assert from_record(json.loads(json.dumps(to_record(sample.graph)))) == sample.graph


@pytest.mark.parametrize("name", OPS)
def test_shapes_signs_and_records_of_every_op(name: str) -> None:
    """`find` draws until the op fits: how many graphs of chance that takes differs with what else a process
    has imported.
    """
    one = settings(max_examples=1000, derandomize=True, database=None, phases=UNSHRUNK)
    few = samples(ops=(name, "rearrange", "flatten"), least=8)
    check(find(few, lambda sample: any(node.op_name == name for node in sample.graph.nodes), settings=one))


@settings(max_examples=10, derandomize=True, phases=UNSHRUNK)
@given(samples(least=60, most=60), samples(ops=OF_ARRAYS, least=60, most=60))
def test_shapes_signs_and_records_of_long_graphs(any_ops: Sample, of_arrays: Sample) -> None:
    check(any_ops)
    check(of_arrays)


@settings(max_examples=100, derandomize=True)
@given(samples(ops=SIGNED))
def test_no_value_called_non_negative_is_less_than_zero(sample: Sample) -> None:
    check(sample)


def test_a_difference_from_zeros_and_a_number_that_is_none_are_seen() -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    assert difference(zeros, zeros) == 0.0 and difference(2 * ones, ones) == 1.0
    assert difference(ones, zeros) == math.sqrt(3) and difference(np.full(3, np.nan), ones) == math.inf


@pytest.mark.full
@settings(max_examples=5000)
@given(samples())
def test_shapes_signs_and_records_of_many(sample: Sample) -> None:
    check(sample)

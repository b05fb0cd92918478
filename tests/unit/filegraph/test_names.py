"""Names that nothing else has."""

from __future__ import annotations

import random
from pathlib import Path
from time import process_time

import pytest

from porter.filegraph.names import Names, unused_name
from porter.filegraph.to_graph import _paths
from porter.formats.onnx.proto import _expect_names


def test_a_name_is_the_first_that_is_free() -> None:
    chance, names = random.Random(0), Names({"a", "b_2"})
    taken = {"a", "b_2"}
    for _ in range(3000):
        wanted = expected = chance.choice(["a", "b", "b_2", "a_3", "c"])
        count = 1
        while expected in taken:
            count += 1
            expected = f"{wanted}_{count}"
        assert names.take(wanted) == expected
        taken.add(expected)
    assert names.taken == taken and unused_name("d", taken) == "d"


def test_many_names_take_linear_time() -> None:
    """50,000 layers whose names have no ASCII letter are all called `layer`: they took minutes."""
    names = [chr(0x4E00 + place % 20000) * (1 + place // 20000) for place in range(50_000)]
    begun = process_time()
    assert len(set(_paths(names).values())) == len(names)
    onnx = pytest.importorskip("onnx")
    values = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in names]
    stored = [onnx.TensorProto(name=f"{name}!") for name in names]
    _expect_names(onnx.helper.make_graph([], "g", values, [], stored), Path("model.onnx"))
    assert process_time() - begun < 10

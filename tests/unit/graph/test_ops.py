"""Crop, pad, concat and reduce: one rule each, in forms that port.json keeps by their old names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from porter.base.errors import GraphError
from porter.graph import INPUT, Graph, Node, Op, Rearrange, Shape
from porter.graph.ops import OPS, Concat, Crop, Pad, Reduce, row_of
from porter.graph.ops.op import Axes
from porter.graph.record import from_record, to_record
from tests.support.oracle import OfAxes, apply

MAP: Shape = (6, 5, 7)
ARRAY: Shape = Axes((6, 5, 7))
WRITTEN: dict[str, tuple[dict[str, Any], type[Op], Shape]] = {
    "crop": ({"pads": [1, 0, 2, 3]}, Crop, MAP),
    "slice_channels": ({"start": 4, "stop": -1, "step": -2}, Crop, MAP),
    "crop_axis": ({"axis": 1, "before": 1, "after": 2, "step": 2}, Crop, ARRAY),
    "pad_map": ({"pads": [1, 0, 2, 3], "fill": -1.5}, Pad, MAP),
    "pad_channels": ({"before": 1, "after": 2}, Pad, MAP),
    "pad_axis": ({"axis": 2, "before": 0, "after": 2, "fill": 1.5}, Pad, ARRAY),
    "concat": ({}, Concat, MAP),
    "join": ({"axis": 1}, Concat, ARRAY),
    "reduce": ({"function": "norm", "axis": "columns"}, Reduce, MAP),
    "reduce_axis": ({"function": "max", "axis": 1}, Reduce, ARRAY),
}
"""Each form as a port of before the forms had one op wrote it, the op, and a shape that it takes."""


def record(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"channels": 6, "output": nodes[-1]["path"], "nodes": list(nodes), "scopes": []}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_ports_op_is_read_and_written_as_it_was(name: str) -> None:
    attributes, kind, shape = WRITTEN[name]
    cells = {"path": "cells", "op": "rearrange", "inputs": [INPUT], "pattern": "c h w -> c h w", "map": False}
    source = "cells" if isinstance(shape, Axes) else INPUT
    inputs = [source] * (2 if kind is Concat else 1)
    old = record(
        [*([cells] if source == "cells" else []), {"path": "out", "op": name, "inputs": inputs, **attributes}]
    )
    graph = from_record(old)
    assert isinstance(graph.nodes[-1].op, kind) and to_record(graph) == old


@pytest.mark.parametrize("name", WRITTEN)
def test_a_forms_shape_is_that_of_its_values(name: str) -> None:
    attributes, kind, shape = WRITTEN[name]
    op = OPS[name](
        **{key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    )
    value = np.random.default_rng(3).standard_normal((2, *[size or 0 for size in shape]))
    inputs = [value.view(OfAxes) if isinstance(shape, Axes) else value] * (2 if kind is Concat else 1)
    assert op.shape(*[shape] * len(inputs)) == apply(op, {}, *inputs).shape[1:]
    assert isinstance(op.shape(*[shape] * len(inputs)), Axes) == isinstance(shape, Axes)


def test_a_table_has_one_row_for_all_forms_of_an_op_or_one_for_a_form() -> None:
    table: dict[type[Op], str] = {Crop: "all", OPS["crop"]: "of maps"}
    assert [row_of(table, OPS[name]) for name in ("crop", "crop_axis", "slice_channels")] == [
        "of maps",
        "all",
        "all",
    ]
    assert row_of(table, Rearrange) is None and row_of({Pad: 1}, OPS["extend_map"]) is None


@pytest.mark.parametrize("name", ["crop_axis", "pad_axis", "join", "reduce_axis"])
def test_an_axis_that_an_array_lacks(name: str) -> None:
    attributes, kind, _ = WRITTEN[name]
    with pytest.raises(GraphError, match="axis 3"):
        OPS[name](**{**attributes, "axis": 3}).shape(*[ARRAY] * (2 if kind is Concat else 1))


def test_nothing_left() -> None:
    graph = Graph((Node("crop", OPS["crop"](pads=(3, 2, 0, 0)), (INPUT,)),), 6, "crop")  # type: ignore[call-arg]
    with pytest.raises(GraphError, match="nothing is left of 6x5x7"):
        graph.nodes[0].op.shape(MAP)

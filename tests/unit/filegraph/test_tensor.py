"""Readers of operators as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Arrays, Dataflow, Reference
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensor import Tensor, concat, reads
from porter.filegraph.walk import NodeWalk
from porter.formats.mxnet.symbol import Node, Stated

IMAGE: Reference = ("image", 0)
READERS: dict[str, Callable[..., Tensor]] = {
    "one": lambda node, x: x,
    "one, and perhaps another": lambda node, x, other=None: x,
    "any": lambda node, *values: concat(values, 1),
}


@pytest.mark.parametrize(
    ("name", "taken"), [("one", {1}), ("one, and perhaps another", {1, 2}), ("any", {1, 2, 3})]
)
def test_an_operator_of_another_number_of_values_is_refused_by_that(name: str, taken: set[int]) -> None:
    for count in range(4):
        node = Node("it", "op", (IMAGE,) * count, Stated({}))
        nodes = {"image": Node("image", "null", (), Stated({})), "it": node}
        builder = Builder(3, (6, 5), "CHW")
        walk: NodeWalk[Any] = NodeWalk(builder, Dataflow(nodes, {*nodes}, Arrays({}), lambda node: node.op))
        walk.found[IMAGE] = walk.views.of(builder.input)
        if count in taken:
            assert reads(READERS[name])(walk, node) is not None
        else:
            with pytest.raises(Unsupported, match=rf"^of {count} value"):
                reads(READERS[name])(walk, node)

"""Readers of ATen's ops as functions of their arguments."""

from __future__ import annotations

import pytest

from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import NodeWalk
from porter.formats.torch_export.nodes import AtenNode
from porter.formats.torch_export.op_readers import reader_of
from porter.formats.torch_export.ops import FUNCTIONS, READERS

IMAGE = ("image", 0)


def walk_with(node: AtenNode) -> NodeWalk[AtenNode]:
    builder = Builder(3, (6, 5), "CHW")
    nodes = {"image": AtenNode("image", "input"), node.name: node}
    walk: NodeWalk[AtenNode] = NodeWalk(
        builder, Dataflow(nodes, {*nodes}, Arrays({}), Operators(lambda node: node.op))
    )
    walk.view_of[IMAGE] = walk.views.own_view(builder.input)
    return walk


@pytest.mark.parametrize("op", FUNCTIONS)
def test_an_argument_that_a_reader_does_not_take_is_refused_by_its_name(op: str) -> None:
    node = AtenNode("it", op, (IMAGE,), arguments={"self": IMAGE, "of_a_later_version": 0})
    with pytest.raises(Unsupported, match=r"^with (x and )?of_a_later_version$"):
        READERS[op](walk_with(node), node)


def test_an_argument_that_is_missing_is_damage() -> None:
    node = AtenNode("it", "clamp", (IMAGE,), arguments={"self": IMAGE})

    def read(x: Tensor, bound: float, other: float = 2.0) -> Tensor:
        return x.clip(bound, other)

    with pytest.raises(ValueError, match="it lacks the argument 'bound'"):
        reader_of(read)(walk_with(node), node)
    with pytest.raises(Unsupported, match=r"^of a value that it computes itself$"):
        reader_of(lambda x: x.clip((x + 1.0).number(), 2.0))(walk_with(node), node)

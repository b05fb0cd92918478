"""Readers of operators as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import Watched
from porter.filegraph.readers import call_with_inputs, node_reader
from porter.filegraph.tensors.several import concat
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Reader
from porter.formats.mxnet.symbol import OperatorAttributes, SymbolNode

IMAGE: NodeOutput = ("image", 0)
READERS: dict[str, Callable[..., Tensor]] = {
    "one": lambda node, x: x,
    "one, and perhaps another": lambda node, x, other=None: x,
    "any": lambda node, *values: concat(values, 1),
}


def with_others_that_may_lack(x: Tensor, *others: Tensor | None) -> Tensor:
    return x


@pytest.mark.parametrize(
    ("name", "taken"), [("one", {1}), ("one, and perhaps another", {1, 2}), ("any", {1, 2, 3})]
)
def test_an_operator_of_another_number_of_values_is_refused_by_that(name: str, taken: set[int]) -> None:
    reader: Reader[Any] = node_reader(READERS[name])
    for count in range(4):
        node = SymbolNode("it", "op", (IMAGE,) * count, OperatorAttributes(Watched()))
        nodes = {"image": SymbolNode("image", "null", (), OperatorAttributes(Watched())), "it": node}
        builder = Builder(3, (6, 5), "CHW")
        walk: NodeWalk[Any] = NodeWalk(
            builder, Dataflow(nodes, {*nodes}, Arrays({}), Operators(lambda node: node.op))
        )
        walk.view_of[IMAGE] = walk.views.own_view(builder.input)
        if count in taken:
            assert reader(walk, node) is not None
        else:
            with pytest.raises(Unsupported, match=rf"^of {count} value"):
                reader(walk, node)


@pytest.mark.parametrize(
    ("function", "is_taken"),
    [
        (lambda x, bound: x, False),
        (lambda x, bound=None: x, True),
        (lambda x, *others: x, False),
        (with_others_that_may_lack, True),
    ],
)
def test_a_value_that_lacks_is_refused_where_it_is_needed(
    function: Callable[..., Any], is_taken: bool
) -> None:
    walk: NodeWalk[Any] = NodeWalk(Builder(3, (6, 5), "CHW"), Dataflow({}, {"it"}, Arrays({}), Operators()))
    x = Scope(walk, SymbolNode("it", "op", (), OperatorAttributes(Watched()))).constant(1.0)
    if is_taken:
        assert call_with_inputs(function, x, None) is x
    else:
        with pytest.raises(Unsupported, match=r"^without a value that it needs$"):
            call_with_inputs(function, x, None)


def test_a_constant_is_not_split_along_an_axis_that_it_lacks() -> None:
    walk: NodeWalk[Any] = NodeWalk(Builder(3, (6, 5), "CHW"), Dataflow({}, {"it"}, Arrays({}), Operators()))
    number = Scope(walk, SymbolNode("it", "op", (), OperatorAttributes(Watched()))).constant(1.0)
    with pytest.raises(ValueError, match="place 1 of 0"):
        number.split_evenly(1, 1)

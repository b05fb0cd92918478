"""Steps of an op graph one after the other, in files of both layouts: which ops they become, and what porter
lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import FileGraph, Foreign, Unsupported
from porter.filegraph.places import Reading
from porter.filegraph.readers import as_outputs
from porter.filegraph.tensors import joins
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Outputs
from porter.graph import Flatten, Op
from porter.graph.ops import Order

Step = tuple[Callable[..., Any], *tuple[Any, ...]]
"""A function of a walk, a node and a value, and its other arguments."""
Cases = Mapping[str, tuple[list[Step], list[Step], list[Op | Foreign]]]
"""A case by its name: steps over maps that have their channels last, such steps over maps that have them
first, and what both become.
"""
IMAGE: NodeOutput = ("image", 0)


@dataclass(frozen=True)
class Node(Reading):
    name: str
    op: str
    inputs: tuple[NodeOutput, ...] = ()


def moved(steps: Sequence[Step], order: Order, size: tuple[int | None, int | None] = (8, 6)) -> FileGraph:
    """The graph of steps one after the other, over an image of four channels; after a split with all
    parts.
    """
    builder = Builder(4, size, order)
    names = [f"step{place}" for place in range(len(steps))]
    flow: Dataflow[Node] = Dataflow({}, {IMAGE[0], *names}, Arrays({}), Operators(lambda node: node.op))
    walk: NodeWalk[Node] = NodeWalk(builder, flow)
    walk.view_of[IMAGE] = walk.views.own_view(builder.input)
    sources = [IMAGE]
    for name, (function, *arguments) in zip(names, steps, strict=True):
        node = Node(name, function.__name__)
        try:
            found = function(walk, node, sources if function is joins.concat else sources[0], *arguments)
        except Unsupported as error:
            found = walk.foreign(node, str(error))
        given = found if isinstance(found, list) else [found]
        walk.record_outputs(node, given)
        sources = [(name, place) for place in range(len(given))]
    return builder.finish(map(walk.layouts.in_file_layout, sources))


def split(
    walk: NodeWalk[Node], node: Node, source: NodeOutput, axis: int, sizes: Sequence[int], keep: bool = True
) -> Outputs:
    """The parts of an axis."""
    return as_outputs(Scope(walk, node).tensor(source).split(axis, sizes, keep))


def of_image(
    function: Callable[[Tensor], Tensor], channels: int, size: tuple[int, int], order: Order = "HWC"
) -> FileGraph:
    """The graph of a function of an image."""
    builder, node = Builder(channels, size, order), Node("end", "function")
    flow: Dataflow[Node] = Dataflow({}, {IMAGE[0], node.name}, Arrays({}), Operators(lambda node: node.op))
    walk: NodeWalk[Node] = NodeWalk(builder, flow)
    walk.view_of[IMAGE] = walk.views.own_view(builder.input)
    walk.record_outputs(node, [function(Scope(walk, node).tensor(IMAGE)).outcome()])
    return builder.finish([walk.layouts.in_file_layout((node.name, 0))])


def expect_in_both_layouts(last: Sequence[Step], first: Sequence[Step], ops: Sequence[Op | Foreign]) -> None:
    assert [node.op for node in moved(last, "HWC").nodes] == [*ops]
    wanted = [Foreign(op.kind.replace("8x6x4", "4x8x6")) if isinstance(op, Foreign) else op for op in ops]
    assert [node.op for node in moved(first, "CHW").nodes] == [
        Flatten(8, 6, "CHW") if op == Flatten(8, 6, "HWC") else op for op in wanted
    ]

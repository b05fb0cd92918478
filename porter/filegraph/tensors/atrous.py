"""Atrous convolutions and pools as TensorFlow's graphs write them: a map, or a row of cells, is taken apart
into images of cells that are `block` apart (SpaceToBatchND), these are convolved or pooled, and the map is
put together again (BatchToSpaceND). The three are one convolution or pool that is dilated; ops of each cell
may stand behind it before the map is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from porter.filegraph.dataflow import N, OperatorNode
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layer_values import Apart
from porter.filegraph.layouts.axes import Source, View
from porter.filegraph.layouts.dims import Dim, Open, divides, fixed_sizes
from porter.filegraph.tensors.constants import ELEMENTWISE
from porter.filegraph.walk import NodeWalk, Read, Walk

_TOGETHER = ("BatchToSpaceND", "BatchToSpace")
_WINDOWS = ("Conv2D", "DepthwiseConv2dNative", "MaxPool", "AvgPool")
_OF_EACH_CELL = frozenset(
    {
        *ELEMENTWISE,
        "Clip",
        "Elu",
        "FusedBatchNorm",
        "FusedBatchNormV2",
        "FusedBatchNormV3",
        "Gelu",
        "GreaterEqual",
        "HardSwish",
        "LeakyRelu",
        "LessEqual",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "Neg",
        "PRelu",
        "Relu6",
        "Rsqrt",
        "Selu",
        "Softplus",
        "Softsign",
        "Square",
        "SquaredDifference",
        "Squeeze",
    }
)
"""Kinds of ops that give the same whatever stands beside a cell."""
_OF_OTHERS = "of other axes than rows and columns, or by numbers that the model computes as it runs"


def read_order(node: N, kind: Callable[[N], str]) -> list[str]:
    """Return the names of the nodes that a node reads, in the order in which a reader has to read them. For a
    BatchToSpaceND its crops come before its map, because the pads of an atrous convolution are what its crops
    leave of them.
    """
    sources = [source for source, _ in node.inputs]
    return sources[::-1] if kind(node) in _TOGETHER else sources


Stated = tuple[list[int] | None, list[Dim] | None]
"""The block of a node, and its pads or crops; None where the model computes them as it runs."""


def stated_by_inputs(walk: Walk, node: OperatorNode) -> Stated:
    """Return the block, and the pads or crops, of a SpaceToBatchND or a BatchToSpaceND, which are its
    inputs.
    """
    return walk.flow.integers(node.inputs[1]), walk.flow.dims(node.inputs[2])


def take_apart(
    walk: NodeWalk[N], node: N, stated_by: Callable[[NodeWalk[N], N], Stated] = stated_by_inputs
) -> Read:
    """Read a SpaceToBatchND of a map, a block and pads: return the map, marked for the window behind it as
    taken apart. Raises Unsupported if the nodes behind it are something else than an atrous convolution or
    pool.

    Args:
        stated_by: gives the block, and the pads or crops, of a node; those of this node and of the ones that
            put the map together again.
    """
    inside, ends, row_axis = _nodes_until_together(walk, node)
    end_op = ends[0].op
    source: Source = node.source
    stated = [stated_by(walk, apart_or_end) for apart_or_end in (node, *ends)]
    if row_axis is not None:  # a row of cells is a map of one row, or of one column
        source = walk.view(source).with_axes([row_axis])
        stated = [_row_as_map(block, pads_or_crops, row_axis) for block, pads_or_crops in stated]
    value = walk.layouts.in_file_layout(source)
    sizes = source.sizes if isinstance(source, View) else walk.sizes(source)
    if sizes is None or not value.is_map:
        raise Unsupported(_OF_OTHERS)
    block, pads, crops = _checked_numbers(stated, end_op)
    for size, step, axis_pads, axis_crops in zip(
        sizes[1:3], block, (pads[:2], pads[2:]), (crops[:2], crops[2:]), strict=True
    ):
        if not _has_open(axis_pads) and not divides(step, size + sum(axis_pads)):
            raise Unsupported(
                "by a block of which the padded map has no whole number, at some size of the image"
            )
        # numbers for the cells of an image would then fit those of the map
        if not _has_open(axis_crops) and sum(axis_crops) >= step:
            raise Unsupported(f"before a {end_op} that crops a whole block or more")
    # the whole map is convolved with the pads that the crops leave of these
    top, bottom, left, right = fixed_sizes(pad - crop for pad, crop in zip(pads, crops, strict=True))
    walk.apart.update({node.name, *inside})
    taken_apart = replace(value, apart=Apart((block[0], block[1]), (top, bottom, left, right)))
    return taken_apart if row_axis is None else walk.views.own_view(taken_apart).without_axes([row_axis])


def _checked_numbers(stated: Sequence[Stated], end_op: str) -> tuple[list[int], list[Dim], list[Dim]]:
    """Return the block and the pads of the node that takes a map apart, and the crops of those that put it
    together.

    Args:
        stated: what the first node states, and each of the nodes at the end.
        end_op: the op of the latter, for the message.

    Raises:
        Unsupported: they are unknown, of other axes than two, or differ among the nodes at the end.
    """
    block, pads = stated[0]
    _, crops = stated[1]
    if block is None or pads is None or len(block) != 2 or len(pads) != 4:
        raise Unsupported(_OF_OTHERS)
    if crops is None or any(end != (block, crops) for end in stated[1:]):
        raise Unsupported(
            f"whose {end_op} is by another block, or by numbers that the model computes as it runs"
        )
    return block, pads, crops


def _has_open(sizes: Iterable[Dim]) -> bool:
    """Return whether one of the sizes is open."""
    return any(isinstance(size, Open) for size in sizes)


def put_together(walk: Walk, node: OperatorNode) -> Read:
    """Read a BatchToSpaceND behind an atrous convolution: return the value that it reads. The nodes before it
    have computed with the whole map, which is put together already. Raises Unsupported if these nodes do not
    begin with a SpaceToBatchND.
    """
    if node.source[0] not in walk.apart:
        raise Unsupported("behind something else than a convolution")
    return walk.view(node.source)


def _row_as_map(block: list[int] | None, pads: list[Dim] | None, axis: int) -> Stated:
    """Return the block, and the pads or crops, of a row of cells as those of a map, which has another axis of
    one cell at `axis`; None for both if one is unknown.
    """
    if block is None or pads is None:
        return None, None
    return ([1, *block], [0, 0, *pads]) if axis == 1 else ([*block, 1], [*pads, 0, 0])


def _nodes_until_together(walk: NodeWalk[N], node: N) -> tuple[dict[str, N], list[N], int | None]:
    """Follow the readers of what a node takes apart, until it is put together again. Return the nodes that
    compute with it, by name, the nodes that put it together, and the axis that an ExpandDims adds to a row of
    cells; None for the axis if it is a map.

    Raises:
        Unsupported: they are something else than a window and ops of each cell behind it.
    """
    inside = dict[str, N]()
    ends = list[N]()
    waiting = [*walk.flow.readers.get(node.name, ())]
    before_window = {node.name}
    added_axes = set[float | None]()
    while waiting:
        reader = waiting.pop()
        kind = walk.flow.operators.kind(reader)
        # a node that reads the taken apart map itself is the window
        may_be_window = any(source in before_window for source, _ in reader.inputs)
        if kind in _TOGETHER and not may_be_window:
            ends.append(reader)
            continue
        if may_be_window and kind == "ExpandDims":
            before_window.add(reader.name)
            added_axes.add(walk.flow.number(reader.inputs[1]))
        elif kind not in (_WINDOWS if may_be_window else _OF_EACH_CELL):
            raise Unsupported(f"before {reader.op}")
        if reader.name not in inside:
            waiting += walk.flow.readers.get(reader.name, ())
        inside[reader.name] = reader
    _expect_one_value(walk, node, inside)
    if not ends:
        raise Unsupported(f"without a {_TOGETHER[0]}")
    return inside, ends, _added_axis(added_axes)


def _expect_one_value(walk: NodeWalk[N], node: N, inside: Mapping[str, N]) -> None:
    """Expect that the nodes `inside`, which compute with what `node` gives, read no other value of the
    network than that and each other's. Raises Unsupported if they do.
    """
    sources = {source for reader in inside.values() for source in reader.inputs} - {(node.name, 0)}
    outside_sources = [(name, output) for name, output in sources if name not in inside]
    if any(walk.is_live(source) for source in outside_sources):
        raise Unsupported("before an op of several values")


def _added_axis(added: Collection[float | None]) -> int | None:
    """Return the axis that ExpandDims add to a row of cells to make it a map: 1 for rows, 2 for columns; None
    if none is added. Raises Unsupported if it is another axis, or one of several.

    Args:
        added: the axes that the nodes state, from either end; None for one that the model computes.
    """
    if not added:
        return None
    axis, *others = added
    if others or axis not in (1, 2, -2, -3):
        raise Unsupported("of other axes than rows and columns")
    return int(axis) % 4

"""Atrous convolutions and pools as TensorFlow's graphs write them: a map, or a row of cells, is taken apart
into images of cells that are `block` apart (SpaceToBatchND), these are convolved or pooled, and the map is
put together again (BatchToSpaceND). The three are one convolution or pool that is dilated; ops of each cell
may stand behind it before the map is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from porter.filegraph.axes import View
from porter.filegraph.builder import Apart
from porter.filegraph.constants import ELEMENTWISE
from porter.filegraph.dataflow import N, OperatorNode
from porter.filegraph.dims import Dim, Open, divides, fixed_sizes
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.walk import NodeWalk, Read, Source, Walk

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
    """Return the names of the nodes that a node reads, in the order in which they are to be read: for a
    BatchToSpaceND its crops before its map, because the pads of an atrous convolution are what its crops
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
    inside, ends, axis = _nodes_until_together(walk, node)
    source: Source = node.source
    steps = [stated_by(walk, each) for each in (node, *ends)]
    if axis is not None:
        source = walk.view(source).with_axes([axis])
        steps = [_row_as_map(*each, axis) for each in steps]
    value = walk.value(source)
    sizes = source.sizes if isinstance(source, View) else walk.sizes(source)
    if sizes is None or not value.is_map:
        raise Unsupported(_OF_OTHERS)
    block, pads, crops = _checked_numbers(steps, ends[0].op)
    for index, (size, step) in enumerate(zip(sizes[1:3], block, strict=True)):
        around, cut = pads[2 * index : 2 * index + 2], crops[2 * index : 2 * index + 2]
        if not _has_open(around) and not divides(step, size + sum(around)):
            raise Unsupported(
                "by a block of which the padded map has no whole number, at some size of the image"
            )
        # Numbers for the cells of an image would then fit those of the map.
        if not _has_open(cut) and sum(cut) >= step:
            raise Unsupported(f"before a {ends[0].op} that crops a whole block or more")
    top, bottom, left, right = fixed_sizes(pad - crop for pad, crop in zip(pads, crops, strict=True))
    walk.apart.update({node.name, *inside})
    taken_apart = replace(value, apart=Apart((block[0], block[1]), (top, bottom, left, right)))
    return taken_apart if axis is None else walk.views.own_view(taken_apart).without_axes([axis])


def _checked_numbers(steps: Sequence[Stated], end: str) -> tuple[list[int], list[Dim], list[Dim]]:
    """Return the block and the pads of the first node, and the crops of the others, whose op is `end`.

    Raises:
        Unsupported: they are unknown, of other axes than two, or differ among the nodes at the end.
    """
    (block, pads), (_, crops) = steps[:2]
    if block is None or pads is None or len(block) != 2 or len(pads) != 4:
        raise Unsupported(_OF_OTHERS)
    if crops is None or any(each != (block, crops) for each in steps[1:]):
        raise Unsupported(
            f"whose {end} is by another block, or by numbers that the model computes as it runs"
        )
    return block, pads, crops


def _has_open(sizes: Iterable[Dim]) -> bool:
    """Return whether one of the sizes is open."""
    return any(isinstance(size, Open) for size in sizes)


def put_together(walk: Walk, node: OperatorNode) -> Read:
    """Read a BatchToSpaceND: return the value that the nodes before it have given of the whole map, since
    those have computed with it as it is. Raises Unsupported if these nodes do not begin with a
    SpaceToBatchND.
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
    """Return the nodes that compute with the map that a node takes apart, those that put it together, and the
    axis that an ExpandDims adds to a row of cells; None if none does.

    Raises:
        Unsupported: they are something else than a window and ops of each cell behind it.
    """
    inside = dict[str, N]()
    ends = list[N]()
    waiting = [*walk.flow.readers.get(node.name, ())]
    before_window = {node.name}
    added_axes = set[float | None]()
    while waiting:
        each = waiting.pop()
        kind = walk.flow.kind(each)
        # a node that reads the taken apart map itself is the window
        may_be_window = any(source in before_window for source, _ in each.inputs)
        if kind in _TOGETHER and not may_be_window:
            ends.append(each)
            continue
        if may_be_window and kind == "ExpandDims":
            before_window.add(each.name)
            added_axes.add(walk.flow.number(each.inputs[1]))
        elif kind not in (_WINDOWS if may_be_window else _OF_EACH_CELL):
            raise Unsupported(f"before {each.op}")
        if each.name not in inside:
            waiting += walk.flow.readers.get(each.name, ())
        inside[each.name] = each
    _expect_one_value(walk, node, inside)
    if not ends:
        raise Unsupported(f"without a {_TOGETHER[0]}")
    return inside, ends, _added_axis(added_axes)


def _expect_one_value(walk: NodeWalk[N], node: N, inside: Mapping[str, N]) -> None:
    """Expect that the nodes `inside`, which compute with what `node` gives, read no other value of the
    network than that and each other's. Raises Unsupported if they do.
    """
    sources = {source for each in inside.values() for source in each.inputs} - {(node.name, 0)}
    if any(walk.is_live(source) for source in sources if source[0] not in inside):
        raise Unsupported("before an op of several values")


def _added_axis(added: Collection[float | None]) -> int | None:
    """Return whether the added axis is the rows or the columns of a map, as 1 or 2; None if none is added.
    Raises Unsupported if it is another axis, or one of several.
    """
    if not added:
        return None
    axis = next(iter(added)) if len(added) == 1 else None
    if axis not in (1, 2, -2, -3):
        raise Unsupported("of other axes than rows and columns")
    return int(axis) % 4

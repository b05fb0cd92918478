"""What files of layers say in the same way, such as Caffe's, MXNet's and Torch7's: windows with pads on both
sides, slopes, and layers that make features of what they read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from porter.filegraph.builder import Value
from porter.filegraph.dataflow import Dataflow, N, Node, Reference
from porter.filegraph.file_graph import FileGraph, Stored, Unsupported
from porter.filegraph.views import View
from porter.filegraph.walk import (
    Image,
    NodeWalk,
    Reader,
    Source,
    Tap,
    Walk,
    apply,
    begin,
    own_name,
    read_nodes,
)
from porter.graph import ops
from porter.padding import LOWEST, Convention, Pads, Rounding, Window


def read_graph(
    flow: Dataflow[N],
    image: Image,
    trained: Collection[str],
    readers: Mapping[str, Reader[N]],
    ends: Iterable[Reference],
    tap: Tap = own_name,
    names: Mapping[str, Reference] | None = None,
) -> FileGraph:
    """The graph of a file's nodes from its image to its ends.

    Args:
        trained, tap: see porter.filegraph.walk.Walk.
        names: see porter.filegraph.walk.Walk.finish.
    """
    walk = begin(flow, image, trained, tap)
    read_nodes(walk, readers.get)
    found = walk.ends(ends)
    return walk.finish(found, found, names)


def both_sides(pads: tuple[int, int]) -> Pads:
    """As many cells before the rows, and the columns, as behind them."""
    rows, columns = pads
    return rows, rows, columns, columns


def pool(
    walk: Walk,
    node: Node,
    function: ops.Function,
    windows: tuple[Window, Pads],
    rounding: Rounding = "floor",
    counted: bool = True,
) -> Value:
    """A pool of a map. Pads take no part in a largest value; in a mean those in the padded map count if they
    are `counted`.
    """
    window, pads = windows
    if function == "max":
        convention = Convention.stated(pads, LOWEST, rounding=rounding)
    else:
        convention = Convention.stated(
            pads, 0.0, "clipped_window" if counted and any(pads) else "real_cells", rounding
        )
    return walk.builder.pool(node.name, walk.first(node), function, window, convention)


def slopes(walk: Walk, node: Node, alpha: str) -> View | Value:
    """A PReLU by a stored tensor, with one slope or one for each channel."""
    numbers = walk.flow.constants.array(alpha)
    if numbers.size == 1 and walk.kept(node.source).value.channels != 1:
        return apply(walk, node, node.source, ops.LeakyRelu(float(numbers.ravel()[0])))
    return walk.builder.add(node.name, ops.PRelu(), walk.first(node), tensors={"alpha": Stored(alpha)})


def part(walk: NodeWalk[N], node: N, name: str, read: Reader[N]) -> Reference:
    """What a part of a node gives, by the reader of a node that does only this.

    Raises:
        Unsupported: porter has no op for it.
    """
    inner: N = replace(cast(Any, node), name=f"{node.name}:{name}")
    found = read(walk, inner)
    walk.give(inner, found if isinstance(found, Sequence) else [found])
    return inner.name, 0


def row(walk: Walk, node: Node, source: Source) -> Value:
    """A tensor of one axis beside batch and channels as a map of one row, for windows over that axis.

    Raises:
        Unsupported: it has other axes.
    """
    view = walk.view(source)
    if len(view.known_axes) == 3:
        value = walk.views.settled(f"{node.name}:row", view.with_axes([_rows(walk)]))
        if value.is_map:
            return value
    raise Unsupported("of one axis of what is no row of cells")


def of_row(walk: Walk, value: Value) -> View:
    """The tensor that such a map is."""
    return walk.views.of(value).without([_rows(walk)])


def _rows(walk: Walk) -> int:
    return walk.views.layout().index("rows")

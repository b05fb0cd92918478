"""What files of layers say in the same way, such as Caffe's, MXNet's and Torch7's: windows with pads on both
sides, slopes, and layers that make features of what they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from porter.filegraph.dataflow import N
from porter.filegraph.file_graph import FileGraph, Stored
from porter.filegraph.finishing import finish
from porter.filegraph.reading import read_nodes
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Reader
from porter.graph import ops
from porter.padding import LOWEST, Average, Convention, Pads, Rounding, Window


def read_graph(
    walk: NodeWalk[N],
    readers: Mapping[str, Reader[N]],
    ends: Iterable[NodeOutput],
    names: Mapping[str, NodeOutput] | None = None,
) -> FileGraph:
    """Read the graph of a file's nodes, of which the values `ends` are the outputs. `names` are as in
    porter.filegraph.finishing.finish.
    """
    read_nodes(walk, readers.get)
    return finish(walk, ends, names)


def symmetric_pads(pads: tuple[int, int]) -> Pads:
    """Return the pads (top, bottom, left, right) of a layer that pads both sides of the rows, and of the
    columns, alike: (1, 2) becomes (1, 1, 2, 2).
    """
    rows, columns = pads
    return rows, rows, columns, columns


def pool(
    x: Tensor,
    function: ops.Function,
    windows: tuple[Window, Pads],
    rounding: Rounding = "floor",
    counted: bool = True,
) -> Tensor:
    """Add a pool of a map, and return its value. Pads take no part in a largest value.

    Args:
        windows: the window and its pads.
        counted: a mean divides by the pads under a window too, but not by what lies beyond the padded map.
    """
    window, pads = windows
    if function == "max":
        return x.pool(function, window, Convention.stated(pads, LOWEST, rounding=rounding))
    average: Average = "clipped_window" if counted and any(pads) else "real_cells"
    return x.pool(function, window, Convention.stated(pads, 0.0, average, rounding))


def prelu(x: Tensor, alpha: str) -> Tensor:
    """Add a PReLU by the stored tensor `alpha`, with one slope or one for each channel, and return its
    value. One slope for several channels is a LeakyRelu.
    """
    numbers = x.walk.flow.constants.array(alpha)
    if numbers.size == 1 and x.value.channels != 1:
        return x.apply_elementwise(ops.LeakyRelu(float(numbers.ravel()[0])))
    return x.apply_op(ops.PRelu(), alpha=Stored(alpha))

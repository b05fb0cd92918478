"""Reading an op graph: what it takes, and the loop that reads its nodes, each by the reader of its op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from porter.base.dtypes import Numbers
from porter.base.errors import GraphError, PaddingError, first_line
from porter.filegraph.builder import Builder
from porter.filegraph.dataflow import Dataflow, N, OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layouts.axes import View
from porter.filegraph.matching.match import Captures, match
from porter.filegraph.matching.patterns import ROLES, layers_by_kind
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import NodeWalk, Outputs, Reader, Tap, Walk, first_output_name, leave_out
from porter.graph import FurtherInput, GroupNorm, LayerNorm, Op, RmsNorm, axes_text
from porter.graph.ops import Order
from porter.padding import Size


class ReaderFault(RuntimeError):
    """A reader has a mistake: what a file may state wrongly is a ValueError or a GraphError
    (porter.filegraph.places).
    """


@dataclass(frozen=True)
class GraphInput:
    """The value that a graph takes.

    Attributes:
        source: its name in the graph.
        channels: of the image.
        size: rows and columns; None where they are open.
        batch: see porter.filegraph.layouts.views.Views.
        order: how the file lays out a map.
        fixed: see porter.filegraph.builder.Builder.
        axes: the image's, as places in a map of the file's; None if it is laid out as any map.
        shape: of a tensor that is no map, without its batch; see porter.graph.Graph.axes.
    """

    source: NodeOutput
    channels: int
    size: Size
    batch: int | None = None
    order: Order = "HWC"
    fixed: bool = False
    axes: tuple[int, ...] | None = None
    shape: tuple[int | None, ...] = ()


def begin(
    flow: Dataflow[N],
    image: GraphInput,
    trained: Collection[str] = (),
    tap: Tap = first_output_name,
    further: Mapping[str, GraphInput] = MappingProxyType({}),
) -> NodeWalk[N]:
    """Begin the reading of a graph, and return the walk: it has the values that the graph takes, and no node
    yet. `flow`, `trained` and `tap` are as in NodeWalk.

    Args:
        image: the first input.
        further: what it takes beside the image, by the file's names.
    """
    builder = Builder(image.channels, image.size, image.order, image.fixed, image.shape)
    graph_inputs = (image, *further.values())
    sources = tuple(graph_input.source for graph_input in graph_inputs)
    walk = NodeWalk(builder, flow, trained, image.batch, tap=tap, images=sources)
    further_values = [builder.add_input(_further_input(name, beside)) for name, beside in further.items()]
    for graph_input, value in zip(graph_inputs, [builder.input, *further_values], strict=True):
        view = walk.views.own_view(value)
        walk.view_of[graph_input.source] = (
            view if graph_input.axes is None else view.transposed(graph_input.axes)
        )
    return walk


def _further_input(name: str, image: GraphInput) -> FurtherInput:
    """Return an input beside the first one as porter's graph has it, under the file's name; a map may be of
    open size.

    Raises:
        GraphError: an array has an open size.
    """
    axes = tuple(axis for axis in image.shape if axis is not None)
    if len(axes) < len(image.shape):
        raise GraphError(f"an open size of {axes_text(image.shape)}", where=name)
    return FurtherInput(name, name, image.channels, image.size, axes)


def read_nodes(
    walk: NodeWalk[N], reader_of: Callable[[str], Reader[N] | None], moves_are_nodes: bool = False
) -> None:
    """Read all nodes of a graph into its `walk`, each by the reader of its op; a node that porter has no op
    for becomes foreign, and one that is computed from constants is none.

    Args:
        reader_of: gives the reader of an op; None if porter has none.
        moves_are_nodes: a reshape and the like becomes a node at once, not only where an op needs the moved
            value.
    """
    walk.flow.evaluate = partial(_evaluate_node, walk, reader_of)
    for node in walk.flow.nodes.values():
        is_read = (node.name, 0) in walk.view_of
        # a node that is not live depends on no pixels, and is none of porter's graph
        if is_read or walk.flow.compute(node) or node.name not in walk.flow.live:
            continue
        reader = reader_of(node.op)
        outputs = walk.foreign(node, "") if reader is None else _read_node(walk, node, reader)
        walk.record_outputs(node, outputs if isinstance(outputs, Sequence) else [outputs])
        if moves_are_nodes:
            walk.layouts.operand((node.name, 0))
    for layer, source in walk.flow.passed:
        if source in walk.view_of:
            leave_out(walk, layer, source)


def _evaluate_node(
    walk: NodeWalk[N], reader_of: Callable[[str], Reader[N] | None], node: N
) -> Sequence[Numbers | None] | None:
    """Compute a node from constants by its reader, and return the numbers of each output, None for those that
    are values; None if the reader cannot.

    Raises:
        ReaderFault: the reader has a mistake.
    """
    reader = reader_of(node.op)
    if reader is None:
        return None
    try:
        with np.errstate(all="ignore"):
            outputs = reader(walk, node)
    except (TypeError, LookupError) as error:
        raise _fault(node, error) from error
    except (Unsupported, PaddingError, GraphError, ValueError, ArithmeticError):
        return None
    values = outputs if isinstance(outputs, Sequence) else [outputs]
    return [value if isinstance(value, np.ndarray) else None for value in values]


def _fault(node: OperatorNode, error: Exception) -> ReaderFault:
    """Make the error for a mistake in the reader of a node's operator."""
    return ReaderFault(f"{node.op}: {type(error).__name__}: {first_line(error)}")


def _read_node(walk: NodeWalk[N], node: N, reader: Reader[N]) -> Outputs:
    """Read a node by a pattern that ends at it, otherwise by the reader of its op. What porter refuses
    becomes a foreign node with the reason in its name.
    """
    try:
        return read_pattern(walk, node) or reader(walk, node)
    except Unsupported as error:
        return walk.foreign(node, str(error))
    except (PaddingError, GraphError) as error:  # a window or a pad is too large
        return walk.foreign(node, f"with {error.message}")
    except (TypeError, LookupError) as error:
        raise _fault(node, error) from error
    except (ValueError, ArithmeticError) as error:  # inputs or numbers that the op does not take, or lacks
        return walk.foreign(
            node,
            f"that could not be read, though porter has the op: {type(error).__name__}: {first_line(error)}",
        )


def read_pattern(walk: Walk, node: OperatorNode) -> View | None:
    """Add the layer whose last op is this node, if this and the ops before it are one layer, and return its
    view; otherwise None.
    """
    for layer in layers_by_kind().get(walk.flow.operators.kind(node), ()):
        captures = match(walk.flow, node, layer.pattern)
        op = layer.op(captures) if captures else None
        if captures is None or op is None:
            continue
        view = _fuse(walk, node, op, captures)
        if view is not None:
            walk.exact.update(captures.get("exact", {}))
            return view
    return None


def _fuse(walk: Walk, node: OperatorNode, op: Op, captures: Captures) -> View | None:
    """Add the op of a layer that a pattern has matched, and return its view; None if its tensors are not one
    number per channel, or the axes that it reduces are neither the channels nor those of a group norm.

    Args:
        captures: what the pattern captured: `x`, the tensors by role, and `#axes`.
    """
    tensors: dict[str, StoredTensor] = {role: captures[role] for role in ROLES if role in captures}
    view = walk.layouts.operand(captures["x"])
    groups = None
    if isinstance(op, LayerNorm) and not view.value.is_array:
        groups = walk.views.normed_groups(view, captures["#axes"])
    if isinstance(op, LayerNorm) and groups:
        op = GroupNorm(groups, op.epsilon, op.scale, op.center)
    elif tensors or isinstance(op, LayerNorm | RmsNorm):  # an op that has channels
        axes = captures.get("#axes", (-1,))
        if len(axes) != 1:
            return None
        view = walk.layouts.with_channels_at(captures["x"], *axes)
        if not walk.views.has_channels(view, *axes):
            return None
    if not all(walk.views.along_channels(view, tensor.shape) for tensor in tensors.values()):
        return None
    stored = {role: Stored(tensor.name) for role, tensor in tensors.items()}
    return walk.views.with_axes_of(view, walk.builder.add(node.name, op, view.value, tensors=stored))

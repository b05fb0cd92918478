"""The framework-neutral form of a model: nodes with an op, inputs and a path, and the shapes that flow
between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from porter.base.errors import GraphError
from porter.graph.ops import (
    Conv,
    GlobalAvgPool,
    GlobalMaxPool,
    Op,
    Relu,
    Shape,
    TensorShapes,
    array_shape,
    channels_in,
    is_map,
)
from porter.padding import ANY, Site, Size

INPUT = "input"
_SIZES_KEPT = 8
"""So many sizes of an image the shapes in a graph are kept for."""
MOST_INPUTS = 16
"""More than any network takes; a file may state any number."""
Argument = int | float | bool | str | tuple["Argument", ...] | None


@dataclass(frozen=True)
class Node:
    """One step of a graph.

    Attributes:
        path: unique, such as `stage2/unit1/conv2`.
        inputs: paths, or `input`.
        shares: the path of the node whose tensors it takes, which has the same op: both are calls of one
            layer. None where it has its own.
    """

    path: str
    op: Op
    inputs: tuple[str, ...]
    shares: str | None = None

    @property
    def source(self) -> str:
        """The first of its inputs."""
        return self.inputs[0]

    @property
    def op_name(self) -> str:
        return self.op.name

    @property
    def holder(self) -> str:
        """The path of the node that has its tensors: its own, or that of the first call of its layer."""
        return self.shares or self.path


@dataclass(frozen=True)
class BlockScope:
    """Where a recipe's block was used: all nodes below `path` came from it, with these arguments."""

    path: str
    block: str
    arguments: Mapping[str, Argument]


@dataclass(frozen=True)
class FurtherInput:
    """What a graph takes beside its first input, for each image: another image, or numbers that belong to it.

    Attributes:
        path: unique among inputs and nodes.
        name: what the source calls it.
        channels: of a map.
        size: rows and columns of a map; None where they are the first input's.
        axes: of what is no map, without the batch: features, or an array.
    """

    path: str
    name: str
    channels: int = 1
    size: Size = ANY
    axes: tuple[int, ...] = ()

    def shape(self, size: Size) -> Shape:
        """Return the shape of this input beside a first input of `size` (rows, columns; None where
        unknown).
        """
        rows, columns = (own or first for own, first in zip(self.size, size, strict=True))
        return array_shape(self.axes) if self.axes else (self.channels, rows, columns)


class TakesInputs(Protocol):
    """A graph as far as its inputs go: porter's own, or a file's."""

    @property
    def channels(self) -> int: ...
    @property
    def axes(self) -> tuple[int | None, ...]: ...
    @property
    def further_inputs(self) -> tuple[FurtherInput, ...]: ...


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    Attributes:
        channels: of the input.
        axes: of an input that is no map, without the batch: features, or an array. One axis or two may be
            open. What feeds every graph with maps gives it those of one channel that have its numbers in
            their order.
        output: path of the node that gives the logits or features.
        further: paths of the nodes that give further outputs, in their order.
        scopes: the blocks that the nodes came from, outermost first; they shape generated code, not the
            function.
        further_inputs: the inputs after the first, in their order.
        shape_cache: what `shapes` computed for the last sizes: each is asked for again and again.
    """

    nodes: tuple[Node, ...]
    channels: int
    output: str
    scopes: tuple[BlockScope, ...] = ()
    further: tuple[str, ...] = ()
    axes: tuple[int | None, ...] = ()
    further_inputs: tuple[FurtherInput, ...] = ()
    shape_cache: dict[Size, Mapping[str, Shape]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths of all inputs."""
        return (INPUT, *(each.path for each in self.further_inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The paths of all nodes that give outputs."""
        return (self.output, *self.further)

    @cached_property
    def by_path(self) -> Mapping[str, Node]:
        return {node.path: node for node in self.nodes}

    @cached_property
    def calls(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that take the tensors of each holder, itself among them, by its path."""
        calls: dict[str, list[Node]] = {}
        for node in self.nodes:
            calls.setdefault(node.holder, []).append(node)
        return {path: tuple(nodes) for path, nodes in calls.items()}

    @cached_property
    def open_shapes(self) -> Mapping[str, Shape]:
        """The shape of every path, inputs included, for an input of open size. Raises GraphError as
        `shapes`.
        """
        return shapes(self, (None, None))

    @cached_property
    def channels_by_path(self) -> Mapping[str, int]:
        """Channels (or features) of every path, inputs included. Raises GraphError as `shapes`."""
        return {path: channels_in(shape) for path, shape in self.open_shapes.items()}


def input_shape(channels: int, axes: Sequence[int | None], size: Size) -> Shape:
    """Return the shape of a graph's input at a size (rows, columns). Without `axes` that is a map; with them
    it is features or an array of these axes, of which open ones (None) have the rows and columns.
    """
    rows, columns = size
    if not axes:
        return channels, rows, columns
    # one open axis has the columns, two have the rows and the columns
    sizes_if_open = [columns] if len(axes) == 1 else [rows, columns, *axes[2:]]
    return array_shape(
        open_size if axis is None else axis for axis, open_size in zip(axes, sizes_if_open, strict=True)
    )


def input_shapes(graph: TakesInputs, size: Size) -> dict[str, Shape]:
    """Return the shapes of a graph's inputs by path, beside a first one of `size` (rows, columns; None where
    unknown).
    """
    first = input_shape(graph.channels, graph.axes, size)
    return {INPUT: first, **{each.path: each.shape(size) for each in graph.further_inputs}}


def axes_text(axes: Sequence[int | None]) -> str:
    """Write the axes of an input that is no map, as people do: `N x 5`."""
    return " x ".join(["N", *("?" if axis is None else str(axis) for axis in axes)])


def batch_text(shape: Shape) -> str:
    """Write a batch of values of a shape, as people do: `N x 3 x H x W`, `N x 5`."""
    if not is_map(shape):
        return axes_text(shape)
    channels, rows, columns = shape
    return f"N x {channels} x {rows or 'H'} x {columns or 'W'}"


def further_text(graph: TakesInputs) -> str:
    """Write a graph's further inputs: `, right (N x 3 x H x W), meta (N x 5)`; nothing if it has none."""
    return "".join(f", {each.path} ({batch_text(each.shape(ANY))})" for each in graph.further_inputs)


def site_of(op: object) -> Site | None:
    """Return the padding site that an op is; None if it is none."""
    return op.site if isinstance(op, Op) else None


def window_words(op: object) -> str | None:
    """Write the window of a padding site, such as `3x3 /2` of stride 2; None for another op."""
    site = site_of(op)
    if site is None:
        return None
    (rows, columns), stride = site.window.kernel, site.window.stride[0]
    return f"{rows}x{columns}" + (f" /{stride}" if stride > 1 else "")


def shapes(graph: Graph, size: Size) -> Mapping[str, Shape]:
    """Return the shape of every path, inputs included, for a first input of `size` (rows, columns; None where
    unknown). Those of the last sizes are kept.

    Raises:
        GraphError: an input or an output does not exist, a node's inputs do not fit, or it cannot share what
            it is said to.
    """
    kept = graph.shape_cache
    if size not in kept:
        kept[size] = _compute_shapes(graph, size)
        if len(kept) > _SIZES_KEPT:
            oldest, *_ = kept
            del kept[oldest]
    return kept[size]


def _compute_shapes(graph: Graph, size: Size) -> Mapping[str, Shape]:
    """Compute the shape of each value, by path, and check each node as it is reached. Raises as `shapes`."""
    shape_of = input_shapes(graph, size)
    if len(shape_of) < len(graph.inputs):
        raise GraphError("two inputs have one path", where=graph.inputs[-1])
    for node in graph.nodes:
        missing = [path for path in node.inputs if path not in shape_of]
        if missing:
            raise GraphError(f"input '{missing[0]}' is not an earlier node", where=node.path)
        if node.path in shape_of:
            raise GraphError("two nodes have this path", where=node.path)
        try:
            expect_inputs(node.op, len(node.inputs))
            shape_of[node.path] = node.op.shape(*(shape_of[path] for path in node.inputs))
        except GraphError as error:
            raise error.at(node.path) from None
    for path in graph.outputs:
        if path not in graph.by_path:
            raise GraphError("the output is not a node", where=path)
    for node in graph.nodes:
        if node.shares is not None and not _is_shared(graph, node, shape_of):
            raise GraphError(f"'{node.shares}' is no layer that could be called here too", where=node.path)
    return shape_of


def expect_inputs(op: Op, count: int) -> None:
    """Refuse an op that is given so many inputs.

    Raises:
        GraphError: it takes more or fewer.
    """
    fits = count >= op.least if op.several else count == 1
    if not fits:
        raise GraphError(f"takes {'two inputs or more' if op.several else 'one input'}, got {count}")


def _is_shared(graph: Graph, node: Node, shape_of: Mapping[str, Shape]) -> bool:
    """Return whether a node that shares a layer's tensors can be another call of that layer."""
    holder = graph.by_path.get(node.shares or "")
    return holder is not None and holder.shares is None and is_call(node, holder, shape_of)


def is_call(node: Node, holder: Node, shape_of: Mapping[str, Shape]) -> bool:
    """Return whether a node can be another call of the layer that `holder` is: it has the same op, with
    tensors of the same shapes, of a value of the same kind. If one of these is a trained array, the values
    also have to be of the same shape, since it has a number for each cell.

    Args:
        shape_of: the shape of every path.
    """
    shape, holder_shape = shape_of[node.source], shape_of[holder.source]
    tensors = node.op.tensors(channels_in(shape))
    is_same_kind = type(shape) is type(holder_shape) and len(shape) == len(holder_shape)
    is_same_layer = node.op == holder.op and is_same_kind and channels_in(shape) == channels_in(holder_shape)
    array_fits = "value" not in tensors or shape == holder_shape
    return is_same_layer and bool(tensors) and array_fits


def with_own_tensors(graph: Graph, paths: Collection[str] = ()) -> Graph:
    """Return the graph in which the nodes of `paths` have tensors of their own. Of the other calls of each
    layer, the first one has the tensors, and the others share them (`Node.shares`).
    """
    first_calls: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        holder = node.path if node.path in paths else first_calls.setdefault(node.holder, node.path)
        nodes.append(replace(node, shares=None if holder == node.path else holder))
    return replace(graph, nodes=tuple(nodes))


def rename_paths(graph: Graph, paths: Mapping[str, str]) -> Graph:
    """Return the graph with its nodes and scopes under other paths. `paths` has new paths by the old ones; a
    path that it lacks stays.
    """

    def new(path: str) -> str:
        return paths.get(path, path)

    nodes = tuple(
        replace(
            node,
            path=new(node.path),
            inputs=tuple(map(new, node.inputs)),
            shares=node.shares and new(node.shares),
        )
        for node in graph.nodes
    )
    scopes = tuple(replace(scope, path=new(scope.path)) for scope in graph.scopes)
    further = tuple(map(new, graph.further))
    return replace(graph, nodes=nodes, scopes=scopes, output=new(graph.output), further=further)


def tensor_shapes(graph: Graph) -> dict[str, TensorShapes]:
    """Return the canonical tensors of every node that has any, also of those that share a layer's: path to
    role to shape.

    Roles are `kernel` and `bias`; `gamma`, `beta`, `mean` and `variance`; `alpha`; `value`, of a trained
    array.
    """
    channels = graph.channels_by_path
    by_path = {node.path: node.op.tensors(channels[node.source]) for node in graph.nodes}
    return {path: tensors for path, tensors in by_path.items() if tensors}


def head_of(graph: Graph) -> Node:
    """Return the node that gives a classifier's numbers: a 1x1 convolution that only activations and a global
    pool follow, as in SqueezeNet; otherwise the output.
    """
    node = graph.by_path[graph.output]
    while isinstance(node.op, Relu | GlobalAvgPool | GlobalMaxPool) and node.source in graph.by_path:
        node = graph.by_path[node.source]
    is_pointwise = isinstance(node.op, Conv) and node.op.window.kernel == (1, 1)
    return node if is_pointwise else graph.by_path[graph.output]


def with_classes(graph: Graph, classes: int) -> Graph:
    """Return a classifier with another number of classes."""
    head = head_of(graph)
    count = {"filters" if isinstance(head.op, Conv) else "units": classes}
    new_head = replace(head, op=replace(head.op, **count))
    return replace(graph, nodes=tuple(new_head if node is head else node for node in graph.nodes))


def nonnegative_paths(graph: Graph) -> frozenset[str]:
    """Return the paths whose values are provably >= 0: after a ReLU, and pools, sums and joins of these."""
    nonnegative: set[str] = set()
    for node in graph.nodes:
        if node.op.nonnegative([path in nonnegative for path in node.inputs]):
            nonnegative.add(node.path)
    return frozenset(nonnegative)


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Return whether a node is a depthwise convolution: one group for each of several input channels."""
    if not isinstance(node.op, Conv) or node.op.groups == 1:
        return False
    return node.op.groups == graph.channels_by_path[node.source]

"""The framework-neutral form of a model: nodes with an op, inputs and a path, and the shapes that flow between them.

Tensors are canonical here: convolution kernels are (filters, channels / groups, rows, columns), dense kernels (units, features),
everything else a vector of channels. A framework folder turns its own names and axis order into these and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from porter.errors import GraphError
from porter.padding import LOWEST, Convention, Site, SiteKind, Size, Window, output_size

INPUT = "input"
MOST_CONSTANTS = 4096
"""The most constants that an op may have: more than the channels of any model. A larger array is weights."""
Argument = int | float | bool | str | tuple["Argument", ...] | None


@dataclass(frozen=True)
class Conv:
    """A convolution; it is depthwise if `groups` equals its input's channels."""

    filters: int
    window: Window
    convention: Convention
    groups: int = 1
    bias: bool = False


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation; `momentum` is the weight of each new batch (as in torch: 1 - decay)."""

    epsilon: float
    momentum: float
    scale: bool = True
    center: bool = True


@dataclass(frozen=True)
class Relu:
    """max(x, 0)."""


@dataclass(frozen=True)
class Relu6:
    """min(max(x, 0), 6)."""


@dataclass(frozen=True)
class MaxPool:
    window: Window
    convention: Convention


@dataclass(frozen=True)
class AvgPool:
    window: Window
    convention: Convention


@dataclass(frozen=True)
class GlobalAvgPool:
    """The mean over rows and columns: C×H×W to C."""


@dataclass(frozen=True)
class GlobalMaxPool:
    """The largest value over rows and columns: C×H×W to C."""


@dataclass(frozen=True)
class Affine:
    """x * scale + offset with constants, one for all channels or one each: a model's scaling of pixels before its first layer."""

    scale: tuple[float, ...]
    offset: tuple[float, ...]


@dataclass(frozen=True)
class Dense:
    units: int
    bias: bool = True


@dataclass(frozen=True)
class Add:
    """The sum of two or more inputs of one shape."""


@dataclass(frozen=True)
class Concat:
    """Inputs joined along the channels."""


@dataclass(frozen=True)
class Identity:
    """Its input."""


Op = Conv | BatchNorm | Relu | Relu6 | MaxPool | AvgPool | GlobalAvgPool | GlobalMaxPool | Affine | Dense | Add | Concat | Identity
OPS: Mapping[str, type[Op]] = {
    "conv": Conv,
    "batch_norm": BatchNorm,
    "relu": Relu,
    "relu6": Relu6,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_avg_pool": GlobalAvgPool,
    "global_max_pool": GlobalMaxPool,
    "affine": Affine,
    "dense": Dense,
    "add": Add,
    "concat": Concat,
    "identity": Identity,
}
OP_NAMES: Mapping[type[Op], str] = {op: name for name, op in OPS.items()}

Shape = tuple[int | None, ...]
"""(channels, rows, columns), rows and columns None where unknown, or (features,)."""


@dataclass(frozen=True)
class Node:
    """One step of a graph. `path` is unique, such as `stage2/unit1/conv2`; `inputs` are paths, or `input`."""

    path: str
    op: Op
    inputs: tuple[str, ...]

    @property
    def op_name(self) -> str:
        return OP_NAMES[type(self.op)]


@dataclass(frozen=True)
class Scope:
    """Where a recipe's block was used: all nodes below `path` came from it, with these arguments."""

    path: str
    block: str
    arguments: Mapping[str, Argument]


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    Attributes:
        channels: of the input.
        output: path of the node that gives the logits or features.
        scopes: the blocks that the nodes came from, outermost first; they shape generated code, not the function.
    """

    nodes: tuple[Node, ...]
    channels: int
    output: str
    scopes: tuple[Scope, ...] = ()

    @cached_property
    def by_path(self) -> Mapping[str, Node]:
        return {node.path: node for node in self.nodes}

    @cached_property
    def channels_by_path(self) -> Mapping[str, int]:
        """Channels (or features) of every path, `input` included. Raises GraphError as `shapes`."""
        return {path: shape[0] or 0 for path, shape in shapes(self, (None, None)).items()}


def site_of(op: Op) -> Site | None:
    """The padding site that an op is, if it is one."""
    kinds: dict[type[Op], SiteKind] = {Conv: "conv", MaxPool: "max_pool", AvgPool: "avg_pool"}
    if isinstance(op, Conv | MaxPool | AvgPool):
        return Site(kinds[type(op)], op.window, op.convention)
    return None


def shapes(graph: Graph, size: Size) -> dict[str, Shape]:
    """The shape of every path, `input` included, for an input of `size` (rows, columns; None where unknown).

    Raises:
        GraphError: an input does not exist, or shapes do not fit at an add, a concat, a convolution, an affine node's constants or
            the head.
    """
    known: dict[str, Shape] = {INPUT: (graph.channels, *size)}
    for node in graph.nodes:
        missing = [path for path in node.inputs if path not in known]
        if missing:
            raise GraphError(f"input '{missing[0]}' is no earlier node", where=node.path)
        if node.path in known:
            raise GraphError("two nodes have this path", where=node.path)
        known[node.path] = _shape(node, [known[path] for path in node.inputs])
    if graph.output not in graph.by_path:
        raise GraphError("the output is no node", where=graph.output)
    return known


def _shape(node: Node, inputs: list[Shape]) -> Shape:
    op, several = node.op, isinstance(node.op, Add | Concat)
    if len(inputs) < 2 if several else len(inputs) != 1:
        raise GraphError(f"takes {'two inputs or more' if several else 'one input'}, got {len(inputs)}", where=node.path)
    first = inputs[0]
    if isinstance(op, Add):
        if any(shape != first for shape in inputs):
            raise GraphError(f"cannot add shapes {', '.join(map(_shape_text, inputs))}", where=node.path)
        return first
    if isinstance(op, Concat):
        if any(shape[1:] != first[1:] for shape in inputs):
            raise GraphError(f"cannot join shapes {', '.join(map(_shape_text, inputs))}", where=node.path)
        return (sum(shape[0] or 0 for shape in inputs), *first[1:])
    if isinstance(op, Dense):
        _expect_rank(node, first, 1)
        return (op.units,)
    if isinstance(op, GlobalAvgPool | GlobalMaxPool):
        _expect_rank(node, first, 3)
        return first[:1]
    if isinstance(op, Affine):
        _expect_constants(node, op, first)
    site = site_of(op)
    if site is None:
        return first
    _expect_rank(node, first, 3)
    rows, columns = output_size(site.convention, site.window, (first[1], first[2]))
    if rows == 0 or columns == 0:
        kernel = "{}x{}".format(*site.window.kernel)
        raise GraphError(f"no {kernel} window fits into {_shape_text(first)}", where=node.path, next="give a larger input size")
    channels = first[0] or 0
    if isinstance(op, Conv):
        if op.groups < 1 or channels % op.groups or op.filters % op.groups:
            raise GraphError(f"{op.groups} groups divide neither {channels} channels nor {op.filters} filters", where=node.path)
        channels = op.filters
    return (channels, rows, columns)


def _expect_rank(node: Node, shape: Shape, rank: int) -> None:
    if len(shape) != rank:
        raise GraphError(f"expected an input of rank {rank}, got {_shape_text(shape)}", where=node.path)


def _expect_constants(node: Node, op: Affine, shape: Shape) -> None:
    for name, values in (("scale", op.scale), ("offset", op.offset)):
        if len(values) not in (1, shape[0]) or len(values) > MOST_CONSTANTS:
            expected = f"one {name} or one for each of {shape[0]} channels (at most {MOST_CONSTANTS})"
            raise GraphError(f"expected {expected}, got {len(values)}", where=node.path)
        if not all(map(math.isfinite, values)):
            raise GraphError(
                f"expected finite numbers, got {next(v for v in values if not math.isfinite(v))} as {name}", where=node.path
            )


def _shape_text(shape: Shape) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)


def tensor_shapes(graph: Graph) -> dict[str, dict[str, tuple[int, ...]]]:
    """The canonical tensors of every node that has any: path to role to shape.

    Roles are `kernel` and `bias`; `gamma`, `beta`, `mean` and `variance`.
    """
    channels = channels_of(graph)
    found = {node.path: _tensor_shapes(node.op, channels[node.inputs[0]]) for node in graph.nodes}
    return {path: tensors for path, tensors in found.items() if tensors}


def _tensor_shapes(op: Op, channels: int) -> dict[str, tuple[int, ...]]:
    tensors: dict[str, tuple[int, ...]] = {}
    if isinstance(op, Conv):
        tensors["kernel"] = (op.filters, channels // op.groups, *op.window.kernel)
        if op.bias:
            tensors["bias"] = (op.filters,)
    elif isinstance(op, Dense):
        tensors["kernel"] = (op.units, channels)
        if op.bias:
            tensors["bias"] = (op.units,)
    elif isinstance(op, BatchNorm):
        if op.scale:
            tensors["gamma"] = (channels,)
        if op.center:
            tensors["beta"] = (channels,)
        tensors["mean"] = tensors["variance"] = (channels,)
    return tensors


def nonnegative_paths(graph: Graph) -> frozenset[str]:
    """Paths whose values are provably >= 0: after a ReLU, and pools, sums and joins of these."""
    found: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.op, Relu | Relu6) or (_keeps_sign(node.op) and found.issuperset(node.inputs)):
            found.add(node.path)
    return frozenset(found)


def _keeps_sign(op: Op) -> bool:
    """Whether an op of values >= 0 gives values >= 0. A window of a max pool may lie in the pads and give their fill."""
    if isinstance(op, MaxPool):
        return op.convention.fill >= 0 or op.convention.fill == LOWEST
    return isinstance(op, AvgPool | GlobalAvgPool | GlobalMaxPool | Add | Concat | Identity)


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a node is a depthwise convolution: one group for each of several input channels."""
    if not isinstance(node.op, Conv) or node.op.groups == 1:
        return False
    return node.op.groups == channels_of(graph)[node.inputs[0]]


def channels_of(graph: Graph) -> Mapping[str, int]:
    """Channels (or features) of every path, `input` included; computed once for each graph."""
    return graph.channels_by_path

"""A recipe's graph compared with a file's own: which layer is which node.

Nothing depends on names. A layer can be a node if it is of the node's kind and its inputs can be the node's
inputs. This is decided node by node from the input on; the pairs are then chosen from the output backwards. A
batch norm that the file has folded into the layer before it is that layer too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from porter.base.commands import FILE, INSPECT
from porter.base.errors import GraphError, MappingError
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign
from porter.filegraph.names import unused_name
from porter.graph import INPUT, Graph, Merge, Node, Op, Shape, head_of, ops, shapes
from porter.graph.folding import only_readers
from porter.graph.walks import reads_within, upstream
from porter.padding import KnownSize, Window
from porter.source.fitting.without_cells import without_cells

_POINT = Window((1, 1))
_MOST_ORDERS, _MOST_PARTS = 1024, 1024
"""The most ways in which layers of a file are tried as the inputs of a node, and the most values that concats
join in steps.
"""


@dataclass(frozen=True)
class Alignment:
    """Which layers can be which nodes.

    Attributes:
        candidates: by path (`input` included), names of layers that compute the node's value from the file's
            input, scaled or not.
        parts: of each concat of the file, what it joins, with the parts of a concat in its place.
    """

    graph: Graph
    file: FileGraph
    candidates: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, tuple[str, ...]]

    @cached_property
    def norms(self) -> Mapping[str, str]:
        """The batch norms that can be folded, by path, to the path of the layer before each."""
        return {norm: layer for layer, norm in only_readers(self.graph).items()}

    @property
    def share(self) -> float:
        """The fraction of the graph's nodes that the file has."""
        return sum(bool(self.candidates[node.path]) for node in self.graph.nodes) / len(self.graph.nodes)

    def pairs(self, path: str, name: str) -> dict[str, str]:
        """Walk back from `path`, whose layer is `name`, and return the file's layer of every node that leads
        to it, by path. The layer of INPUT is the one that the network's first layers read: the file's input,
        or its last layer that only prepares it.

        Raises:
            MappingError: a node would have two layers, or a layer two nodes: the graphs differ.
        """
        layers_of: dict[str, str] = {}
        # Each node once: the number of ways through a network is the product of its branches.
        done: set[str] = set()
        waiting = [(path, name)]
        while waiting:
            path, name = waiting.pop()
            if layers_of.setdefault(path, name) != name:
                raise MappingError(
                    f"two layers of the file, '{layers_of[path]}' and '{name}', would be this one node",
                    where=path,
                )
            if path in self.graph.inputs or path in done:
                continue
            done.add(path)
            node = self.graph.by_path[path]
            inputs = (
                (name,)
                # The file has no layer of this node's own: the layer of its input stands for it.
                if self._passes(node, name)
                else self._inputs(node, self.file.by_name[name], layers_of)
            )
            waiting += zip(node.inputs, inputs, strict=True)
        layers = [
            name
            for path, name in layers_of.items()
            if path not in self.graph.inputs and not self._passes(self.graph.by_path[path], name)
        ]
        layer_of_two = next((name for name in layers if layers.count(name) > 1), None)
        if layer_of_two is not None:
            raise MappingError(
                f"layer '{layer_of_two}' would be two nodes of the graph", where=self.graph.output
            )
        return layers_of

    def folded(self, pairs: Mapping[str, str]) -> dict[str, str]:
        """Return the batch norms that the file has folded into the layers before them, by path, to the path
        of that layer.
        """
        return {
            norm: path for norm, path in self.norms.items() if norm in pairs and pairs[norm] == pairs[path]
        }

    def _passes(self, node: Node, name: str) -> bool:
        """Return whether a node is paired with a layer only because the node before it is: the file has no
        layer of its own for an identity, a flattening, or a norm that was folded into the convolution before
        it.
        """
        path_before = node.inputs[0] if _keeps_values(node.op) else self.norms.get(node.path, "")
        return isinstance(node.op, ops.Identity) or name in self.candidates.get(path_before, ())

    def _inputs(self, node: Node, layer: FileNode, known_pairs: Mapping[str, str]) -> Sequence[str]:
        """Return the file's layers that stand for the node's inputs, in the order of these inputs: a choice
        that gives what `layer` reads. A choice that agrees with the known pairs is preferred.
        """
        read_values = _read_values(layer.op, layer.inputs, self.parts)
        choices = _input_choices(node, self.candidates)
        fitting = [names for names in choices if _read_values(node.op, names, self.parts) == read_values]
        agreeing = (
            names
            for names in fitting
            if all(known_pairs.get(path, name) == name for path, name in zip(node.inputs, names, strict=True))
        )
        return next(agreeing, fitting[0])

    def expect(self, path: str) -> None:
        """Refuse a file in which no layer can be the node `path`.

        Raises:
            MappingError: with the first node that has no layer, and the file's layers in its place.
        """
        if self.candidates[path]:
            return
        leading = _leading_to(self.graph, path)
        # The first node without a layer: all its inputs have some.
        node = next(
            node for node in self.graph.nodes if node.path in leading and not self.candidates[node.path]
        )
        possible_inputs = {name for source in node.inputs for name in self.candidates[source]}
        matched = {name for names in self.candidates.values() for name in names}
        readers = [
            layer
            for layer in self.file.nodes
            if not possible_inputs.isdisjoint(layer.inputs)
            and layer.op != node.op
            and layer.name not in matched
        ]
        foreign = [layer for layer in readers if isinstance(layer.op, Foreign)]
        # Layers that porter has no op for are the likeliest cause, so they are named alone.
        instead = (
            " or ".join(f"'{layer.name}' ({describe(layer.op)})" for layer in (foreign or readers)[:3])
            or "nothing"
        )
        raise MappingError(
            f"the file's graph has {instead} where the recipe has {describe(node.op)}",
            where=node.path,
            next="porter has no op for it"
            if foreign
            else f"{INSPECT.advise(file=FILE)} ranks what the file could be",
        )


def align(graph: Graph, file: FileGraph, native: KnownSize) -> Alignment:
    """Find which layers of a file's graph can be which nodes of a recipe's graph, by ops and by what these
    read, and return the candidates of each node.

    Args:
        native: rows and columns of the input, if the file does not state them.

    Raises:
        MappingError: they take other numbers of inputs, a window of the recipe does not fit into the file's
            input, or the file has too many equal layers.
    """
    if len(file.inputs) != len(graph.inputs):
        raise MappingError(
            f"expected {len(graph.inputs)} inputs, as the other graph has, got {len(file.inputs)} in "
            "the file's"
        )
    file = without_cells(file)
    readers, parts = _readers_and_parts(file)
    sizes = _shapes_at(graph, file.built_size or native)
    candidates: dict[str, tuple[str, ...]] = dict(zip(graph.inputs, inputs_of(file), strict=True))
    # Concats of the recipe that the file has as a part of a larger one.
    joins: list[FileNode] = []
    folded = set(only_readers(graph).values())
    head = head_of(graph)
    for node in graph.nodes:
        if isinstance(node.op, ops.Identity):
            candidates[node.path] = candidates[node.inputs[0]]
            continue
        # Each tuple of layers that the node may read is looked up among what the file's layers read.
        choices = sorted({_read_values(node.op, names, parts) for names in _input_choices(node, candidates)})
        layers = [layer for read_values in choices for layer in readers.get(read_values, ())]
        shape = sizes[node.inputs[0]]
        fitting = tuple(layer.name for layer in layers if is_kind(node.op, layer.op, shape, node == head))
        if isinstance(node.op, ops.ConcatChannels) and not fitting:
            inside = (names for names in choices if any(_is_part(names, whole) for whole in parts.values()))
            if (inner := next(inside, None)) is not None:
                join = FileNode(unused_name(node.path, file.by_name), node.op, inner)
                joins.append(join)
                parts[join.name] = inner
                fitting = (join.name,)
        # Such a node may have no layer of its own in the file; then that of its input stands for it.
        may_lack_layer = node.path in folded or _keeps_values(node.op)
        candidates[node.path] = (*candidates[node.inputs[0]], *fitting) if may_lack_layer else fitting
    return Alignment(graph, replace(file, nodes=(*file.nodes, *joins)), candidates, parts)


def _readers_and_parts(
    file: FileGraph,
) -> tuple[Mapping[tuple[str, ...], Sequence[FileNode]], dict[str, tuple[str, ...]]]:
    """Return the file's layers by the names of what they read, and what each of its concats joins."""
    readers: dict[tuple[str, ...], list[FileNode]] = defaultdict(list)
    parts: dict[str, tuple[str, ...]] = {}
    for layer in file.nodes:
        read_values = _read_values(layer.op, layer.inputs, parts)
        readers[read_values].append(layer)
        if isinstance(layer.op, ops.ConcatChannels) and len(read_values) <= _MOST_PARTS:
            parts[layer.name] = read_values
    return readers, parts


def _shapes_at(graph: Graph, size: KnownSize) -> Mapping[str, Shape]:
    """Return the shapes of the graph's values for an input of this size."""
    try:
        return shapes(graph, size)
    except GraphError as error:
        raise MappingError(
            f"an input of {size[0]}x{size[1]} is too small: {error.message}", where=error.where
        ) from None


def has_layer_of_input(node: Node, pairs: Mapping[str, str]) -> bool:
    """Return whether a node has the layer of its input, because the file has no layer for it."""
    return pairs[node.path] == pairs[node.inputs[0]]


def _keeps_values(op: Op) -> bool:
    """Return whether an op gives its input's values: a reshape of one is no layer in a file's graph without
    cells.
    """
    return isinstance(op, ops.Identity) or op == ops.Flatten()


def is_kind(node_op: Op, layer_op: Op | Foreign, shape: Shape, head: bool) -> bool:
    """Return whether a layer can be a node by its op. Pads, strides, epsilons and clipping may differ, and
    the classes of the `head`.

    A head may be a 1x1 convolution of pooled features, an average over a whole map (`shape`) is a global one,
    and a norm whose statistics became constants is a scale.

    Args:
        node_op: the node's op.
        layer_op: the layer's op.
        shape: of what the node reads.
        head: whether the node is the head.
    """
    match node_op, layer_op:
        case ops.Conv(), ops.Conv():
            same = (node_op.groups, node_op.window.kernel) == (layer_op.groups, layer_op.window.kernel)
            return same and (head or node_op.filters == layer_op.filters)
        case ops.Dense(), ops.Conv():
            return layer_op.window == _POINT and layer_op.groups == 1
        case ops.GlobalAvgPool(), ops.AvgPool():
            return layer_op.window.kernel == shape[1:] and layer_op.convention.rule == "valid"
        case ops.AvgPool(), ops.GlobalAvgPool():
            return node_op.window.kernel == shape[1:]
        case ops.BatchNorm(), ops.ChannelScale():
            return True
        case ((ops.Relu() | ops.Relu6()), (ops.Relu() | ops.Relu6())):
            return True
        case _:
            return type(node_op) is type(layer_op)


def describe(op: Op | Foreign) -> str:
    """Return a layer in a few words, for an error: `a 3x3 conv of 64 filters`."""
    match op:
        case Foreign(kind=kind):
            return kind
        case ops.Conv(filters=filters, window=window, groups=groups):
            rows, columns = window.kernel
            in_groups = f" in {groups} groups" if groups > 1 else ""
            return f"a {rows}x{columns} conv of {filters} filters{in_groups}"
        case ops.Dense(units=units):
            return f"a dense layer of {units} units"
        case _:
            return type(op).__name__


def inputs_of(file: FileGraph) -> tuple[tuple[str, ...], ...]:
    """Return, for each input of the file, the layers that can be the recipe's input: the input itself, and
    for the first one also layers that only prepare it: they scale it by constants, or porter has no op for
    them and they hold no tensors.
    """
    prepared = [INPUT]
    for layer in file.nodes:
        prepares = isinstance(layer.op, ops.Affine) or (isinstance(layer.op, Foreign) and not layer.tensors)
        if prepares and layer.inputs and set(layer.inputs) <= set(prepared):
            prepared.append(layer.name)
    return (tuple(prepared), *((name,) for name in file.inputs[1:]))


def _input_choices(node: Node, candidates: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, ...]]:
    """Return every choice of layers that could give what the node reads, one for each input."""
    choices = [candidates[path] for path in node.inputs]
    if math.prod(map(len, choices)) > _MOST_ORDERS:
        raise MappingError("too many layers of the file could be the inputs of this node", where=node.path)
    return product(*choices)


def _is_part(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Return whether the names of `part` stand in `whole` one after another: `('b', 'c')` in
    `('a', 'b', 'c')`, and not `('a', 'c')`.
    """
    return any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))


def _read_values(
    op: Op | Foreign, names: Iterable[str], parts: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the names of what an op reads in a form that can be compared: sorted where the order does not
    matter, and for a concat all that is joined, in one step or several.

    Args:
        names: what the op reads.
        parts: by the name of a concat, the values that it joins.
    """
    if isinstance(op, ops.ConcatChannels):
        return tuple(part for name in names for part in parts.get(name, (name,)))
    return tuple(sorted(names)) if isinstance(op, Merge) else tuple(names)


def _leading_to(graph: Graph, path: str) -> set[str]:
    """Return the paths of all nodes that lead to a node, and its own."""
    nodes = graph.by_path
    return upstream([path], reads_within(nodes))

"""The recipe's graph with the file's ops in its nodes; the file's layers before and after these become nodes
of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from porter.base.errors import GraphError, MappingError
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, with_momentum
from porter.filegraph.to_graph import path_word
from porter.graph import INPUT, Graph, Node, Op, ops, shapes
from porter.source.fitting.alignment import has_layer_of_input
from porter.source.fitting.heads import NO_HEAD

LAYERS_OUTSIDE = (
    "save the model without the layers before the network, and compute outside what they do to the photos"
)
POOL_THE_MAP = (
    "porter ports a head that reads a global pool, and not yet one that reads a map: pool the map, "
    "and train the head again"
)
SAVE_UP_TO = "save the model up to '{}', port that, and compute what follows outside"


@dataclass(frozen=True)
class End:
    """The layer that gives the logits, and the file's activation after it.

    Attributes:
        own: it is the zoo's own head, with its classes.
        leading: it, and the layers that lead to it.
    """

    layer: str
    own: bool
    activation: str | None
    leading: Collection[str]


@dataclass(frozen=True)
class Grafted:
    """A recipe's graph with the file's ops, and the layer of each of its nodes.

    Attributes:
        plain: the file adds no nodes to the recipe's.
        scaling: the ops on the input before the network's first layer.
    """

    graph: Graph
    layers: Mapping[str, str]
    plain: bool
    scaling: tuple[ops.Affine, ...]
    warnings: tuple[str, ...]


def graft(
    draft: Graph,
    file: FileGraph,
    pairs: Mapping[str, str],
    folded: Mapping[str, str],
    base: str,
    end: End,
) -> Grafted:
    """Return the graph that the port of a file with its own graph has: the recipe's nodes with the file's
    ops, and the file's layers before and after them as nodes of their own, with warnings of what it lacks.

    Args:
        pairs: path to layer, as porter.source.fitting.alignment.Alignment gives it.
        folded: the norms that the file has folded, by path, to the path of the layer that holds them.
        base: the last node of the recipe that the file has.
        end: its layer is that of `base`, or one after it.

    Raises:
        MappingError: porter has no op for a layer, or a layer does not fit the others.
    """
    entrance = _layers_from_input(file, pairs[INPUT])
    paths = {layer.name: f"input/{path_word(layer.name)}" for layer in entrance}
    nodes = [
        Node(
            paths[layer.name],
            _own_op(layer, LAYERS_OUTSIDE),
            tuple(paths.get(name, name) for name in layer.inputs),
        )
        for layer in entrance
    ]
    source = nodes[-1].path if nodes else INPUT
    # A norm that the file has folded is the layer before it.
    new_paths = {**folded, INPUT: source}
    base = folded.get(base, base)
    trunk = [node for node in draft.nodes if node.path in pairs and node.path not in folded]
    for node in trunk:
        op = node.op
        if not has_layer_of_input(node, pairs):
            op = _adopt_op(op, file.by_name[pairs[node.path]])
        nodes.append(Node(node.path, op, tuple(new_paths.get(path, path) for path in node.inputs)))
    paths |= {pairs[node.path]: node.path for node in trunk if not has_layer_of_input(node, pairs)}
    output = base
    # The recipe's pool, if its output is the head after the pool.
    map_end = draft.by_path[draft.by_path[draft.output].inputs[0]]
    # The file has layers of its own after the trunk.
    if end.layer != pairs[base]:
        head = [layer for layer in file.nodes if layer.name in end.leading and layer.name not in paths]
        output = _append_head(draft, head, end.layer, paths, nodes)
    # The file ends in the last map: the recipe's pool follows, so that the port gives features.
    elif base == folded.get(map_end.inputs[0], map_end.inputs[0]):
        nodes.append(replace(map_end, inputs=(base,)))
        output = map_end.path
    headless = end.layer == pairs[base] and base != draft.output
    warnings = (NO_HEAD,) if headless else ()
    scopes = tuple(
        scope for scope in draft.scopes if any(node.path.startswith(f"{scope.path}/") for node in trunk)
    )
    graph = Graph(tuple(nodes), draft.channels, output, scopes)
    try:
        shapes(graph, (None, None))
    except GraphError as error:
        raise MappingError(
            f"the file's graph does not fit together: {error.message}", where=error.where
        ) from None
    scaling = tuple(layer.op for layer in entrance if isinstance(layer.op, ops.Affine))
    # The graph is the recipe's alone, with no layers of the file's own.
    plain = not entrance and output in (draft.output, map_end.path) and len(nodes) <= len(draft.nodes)
    return Grafted(graph, {path: name for name, path in paths.items()}, plain, scaling, warnings)


def _append_head(
    draft: Graph, head: Sequence[FileNode], end: str, paths: dict[str, str], nodes: list[Node]
) -> str:
    """Add the layers of the file's own head as nodes after the trunk, and return the path of the last one,
    which gives the logits. It extends `paths`, which has the path of each layer of the file, and `nodes`.

    Args:
        end: the layer that gives the logits.

    Raises:
        MappingError: porter has no op for a layer, or a layer reads the file's input.
    """
    by_path = {node.path: node for node in nodes}
    features = {
        node.path for node in nodes if isinstance(node.op, ops.GlobalAvgPool | ops.GlobalMaxPool | ops.Dense)
    }
    for layer in head:
        reads_features = features.issuperset(map(paths.get, layer.inputs))
        op = _own_op(layer, SAVE_UP_TO.format(layer.inputs[0]) if reads_features else POOL_THE_MAP)
        if any(name not in paths for name in layer.inputs):
            raise MappingError(
                "this layer reads the file's input beside the network; porter cannot port it",
                where=layer.name,
            )
        inputs = tuple(paths[name] for name in layer.inputs)
        # A 1x1 convolution of features, a map of one cell in the file, is a dense layer.
        if isinstance(op, ops.Conv) and inputs[0] in features and op.window.kernel == (1, 1):
            op = ops.Dense(op.filters, op.bias)
        path = f"head/{path_word(layer.name)}"
        if layer.name == end and draft.output not in by_path:
            path = draft.output
        while path in by_path:
            # another layer of the file has the name already
            path += "_"
        if isinstance(op, ops.GlobalAvgPool | ops.GlobalMaxPool | ops.Dense) or features.issuperset(inputs):
            features.add(path)
        paths[layer.name] = path
        by_path[path] = Node(path, op, inputs)
        nodes.append(by_path[path])
    return paths[end]


def _layers_from_input(file: FileGraph, name: str) -> list[FileNode]:
    """Return the layers from the file's input to `name`, in their order; each has one input."""
    chain: list[FileNode] = []
    while name != INPUT:
        chain.insert(0, file.by_name[name])
        name = chain[0].inputs[0]
    return chain


def _own_op(layer: FileNode, next: str | None = None) -> Op:
    """Return the op of a layer, with a momentum for a norm that states none. Refuse a layer that porter has
    no op for.
    """
    if isinstance(layer.op, Foreign):
        raise MappingError(
            f"this layer is a {layer.op.kind}, which porter has no op for", where=layer.name, next=next
        )
    return with_momentum(layer.op)


def _adopt_op(op: Op, layer: FileNode) -> Op:
    """Return the op that a node of the recipe has in the port: the file's, but the recipe's form of it where
    the two compute the same (a dense layer for a 1x1 convolution, a global pool for an average over the
    whole map).
    """
    own_op = _own_op(layer)
    if isinstance(op, ops.Dense) and isinstance(own_op, ops.Conv):
        return ops.Dense(own_op.filters, own_op.bias)
    if isinstance(op, ops.BatchNorm) and isinstance(layer.op, ops.BatchNorm) and not layer.op.momentum:
        # A graph made for inference does not state its momentum.
        return replace(layer.op, momentum=op.momentum)
    if isinstance(op, ops.GlobalAvgPool):
        return op
    return own_op

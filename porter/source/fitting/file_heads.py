"""The layer of a file's graph that gives the logits, and the last node of the recipe that leads to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.base.errors import MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.graph import OF_LOGITS, Conv, Dense, Graph, Op, Rearrange, head_of, tensor_shapes
from porter.source.fitting.alignment import Alignment
from porter.source.fitting.fit import Given
from porter.source.fitting.naming import lists_tensors


@dataclass(frozen=True)
class End:
    """The layer that gives the logits, and the file's activation after it.

    Attributes:
        own: it is the zoo's own head, with its classes.
    """

    layer: str
    own: bool
    activation: str | None


def find_end(aligned: Alignment, checkpoint: Checkpoint, chosen: str | None, kernels: frozenset[str]) -> End:
    """The layer that `--map` chose, otherwise the file's output.

    A hidden layer may have as many units as the zoo has classes, so one that is not an output is the zoo's
    head only by its name.

    Args:
        kernels: the zoo's names of its head's kernel.

    Raises:
        MappingError: no such layer, or the file has several outputs.
    """
    graph, file = aligned.graph, aligned.file
    outputs = _outputs(file)
    if chosen is None and len(outputs) > 1:
        raise MappingError(
            f"expected one output of the file's graph, got {len(outputs)}: {some(outputs)}",
            where=str(checkpoint.path),
        )
    layer = outputs[0] if chosen is None else _layer_called(file, chosen, checkpoint)
    own = False
    if layer in aligned.candidates[graph.output] and (
        layer in outputs or _has_name(file.by_name[layer], kernels)
    ):
        head = head_of(graph).path
        found = file.by_name[aligned.pairs(graph.output, layer)[head]]
        own = _units(found.op) == tensor_shapes(graph)[head]["kernel"][0]
    after = (node.op.name for node in file.nodes if isinstance(node.op, OF_LOGITS) and layer in node.inputs)
    return End(layer, own, next(after, None))


def given_by(file: FileGraph, names: Mapping[str, str], shaped: bool = True) -> dict[str, Given]:
    """What the file gives that a graph has, or has all of but its activation: by the framework's name of it.

    Args:
        names: by path of the graph, the file's node.
        shaped: see Given.
    """
    paths, found = {name: path for path, name in names.items()}, dict[str, Given]()
    for tap, name in file.given.items():
        after: list[Op] = []
        while name not in paths and name in file.by_name:
            node = file.by_name[name]
            if not isinstance(node.op, (*OF_LOGITS, Rearrange)):
                break
            after.insert(0, node.op)
            name = node.inputs[0]
        if name in paths:
            moved = any(isinstance(op, Rearrange) for op in after)
            found[tap] = Given(paths[name], tuple(after), shaped and not moved)
    return found


def possible_heads(aligned: Alignment) -> list[str]:
    """The layers that could give the logits: the outputs of the file, then dense layers and other possible
    heads, the last one first; none if no layer can be the end of the recipe's trunk.
    """
    if not any(aligned.candidates[path] for path in _ends(aligned.graph)):
        return []
    heads = aligned.candidates[aligned.graph.output]
    inner = [
        node.name for node in reversed(aligned.file.nodes) if node.name in heads or isinstance(node.op, Dense)
    ]
    return list(dict.fromkeys([*_outputs(aligned.file), *inner]))


def left_out(file: FileGraph, layer: str) -> list[str]:
    """Layers that lead to the file's outputs and not to `layer`, without its activation, which is
    recorded.
    """
    shown = {node.name for node in file.nodes if isinstance(node.op, OF_LOGITS) and layer in node.inputs}
    return sorted(file.leading_to(file.outputs) - file.leading_to((layer,)) - shown)


def _outputs(file: FileGraph) -> list[str]:
    """The layers of the file's outputs; for an output of probabilities, the layer of their logits."""
    return list(dict.fromkeys(_logits_of(file, name) for name in file.outputs))


def _has_name(layer: FileNode, kernels: frozenset[str]) -> bool:
    """Whether a layer's kernel has one of these names, behind any models or scopes."""
    tensor = layer.tensors["kernel"].name if "kernel" in layer.tensors else ""
    return any(tensor == kernel or tensor.endswith(f"/{kernel}") for kernel in kernels)


def _logits_of(file: FileGraph, name: str) -> str:
    """The input of `name` if that is an activation, otherwise `name`; only one activation, because a port
    records one.
    """
    layer = file.by_name.get(name)
    return layer.inputs[0] if layer and isinstance(layer.op, OF_LOGITS) else name


def _layer_called(file: FileGraph, name: str, checkpoint: Checkpoint) -> str:
    known = {
        **{node.tap: node.name for node in file.nodes if node.tap},
        **{node.name: node.name for node in file.nodes},
    }
    if name not in known:
        raise MappingError(
            f"the file's graph has no layer '{name}'",
            where=str(checkpoint.path),
            next=lists_tensors(checkpoint.path),
        )
    return _logits_of(file, known[name])


def _units(op: object) -> int | None:
    return op.units if isinstance(op, Dense) else op.filters if isinstance(op, Conv) else None


def trunk_end(aligned: Alignment, end: str) -> tuple[str, str]:
    """The last node of the recipe that leads to the layer `end`, and its layer: the output, otherwise the
    head's input, otherwise the map before that.

    Raises:
        MappingError: the graphs differ, or the file has another head where the recipe has a pool behind its
            own.
    """
    graph, file = aligned.graph, aligned.file
    if end in aligned.candidates[graph.output]:
        return graph.output, end
    head, (_, *before) = head_of(graph), _ends(graph)
    if not before:
        message = "in this network the head comes before the pool, and the file ends in another layer"
        raise MappingError(message, where=head.path)
    leading = file.leading_to((end,))
    for path in before:
        layers = [name for name in aligned.candidates[path] if name in leading]
        if layers:
            return path, layers[-1]
    aligned.expect(before[-1])
    raise MappingError(f"the layer '{end}' does not come after the network", where=before[-1])


def _ends(graph: Graph) -> tuple[str, ...]:
    """The nodes at which a file may leave the recipe: the output; if the head is the output, the pool before
    it, and the map before that. A hidden dense layer is none: it could be any of a file's own, with other
    units.
    """
    head = head_of(graph)
    if head.path != graph.output:
        return (graph.output,)
    pool = graph.by_path[head.inputs[0]]
    path = pool.inputs[0]
    while path in graph.by_path and isinstance(graph.by_path[path].op, Dense):
        path = graph.by_path[path].inputs[0]
    return (graph.output, pool.path, path)

"""Which layers of a reference file give the values of which nodes of a source: by what they compute,
otherwise by their names.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from porter.base.dtypes import NamedArrays
from porter.base.errors import MappingError
from porter.filegraph.file_graph import FileGraph, Foreign, to_canonical
from porter.filegraph.to_graph import Translated, to_graph
from porter.frameworks import LayerNames
from porter.graph import OF_LOGITS, BatchNorm, Graph, Op
from porter.padding import KnownSize
from porter.source.fitting.alignment import align
from porter.source.fitting.without_cells import without_cells
from porter.source.opened import Opened
from porter.verification.numbers import norms
from porter.verification.results import severity


@dataclass(frozen=True)
class Pairs:
    """The layers of a reference file that give values of a source.

    Attributes:
        layers: by path of the source's node.
        rounded: one of both has numbers of the other rounded to float32: batch norms that are folded into the
            layers before them or are scales, or an epsilon.
        named: they are pairs by their names only.
    """

    layers: LayerNames
    rounded: bool = False
    named: bool = False


def pair(opened: Opened, translated: Translated, file: FileGraph) -> Pairs:
    """Pair a source's nodes with the layers of a reference file that compute the same, and return by path the
    layer of each node that has one.

    The graphs are aligned; where that fails, the source's own file and the reference file are, either of
    which may have folded the other's norms; last, names decide.

    Args:
        translated: the reference file's graph in porter's form.
        file: the same graph as its layers.
    """
    size, end = opened.sizes.built, translated.names[translated.graph.output]
    with suppress(MappingError):
        return _pair_by_graph(opened.graph, file, end, size)
    if opened.fitted is not None and opened.fitted.checkpoint.graph is not None:
        source_file, fit = opened.fitted.checkpoint.graph, opened.fitted.fit
        paths_by_tap = {tap: path for path, tap in fit.in_file.taps.items()}
        # from the layers of the source's own file to the paths of its graph
        paths = {node.name: paths_by_tap[node.tap] for node in source_file.nodes if node.tap in paths_by_tap}
        keep_activation = isinstance(opened.graph.by_path[opened.graph.output].op, OF_LOGITS)
        # The source's own file, read as a graph, is aligned with the reference file.
        with suppress(MappingError):
            source_read = to_graph(without_cells(source_file), keep_activation)
            pairs = _pair_by_graph(source_read.graph, file, end, size)
            layers = {paths.get(source_read.names[path]): layer for path, layer in pairs.layers.items()}
            return Pairs({path: layer for path, layer in layers.items() if path is not None}, pairs.rounded)
        # The other way round, where the reference file has norms that the source's file has folded.
        with suppress(MappingError):
            file_read = to_graph(without_cells(file), keep_activation)
            pairs = _pair_by_graph(file_read.graph, source_file, str(fit.head), size)
            layers = {layer: file_read.names[path] for path, layer in pairs.layers.items()}
            return Pairs(
                {paths[name]: layer for name, layer in layers.items() if name in paths}, pairs.rounded
            )
    return _pair_by_names(opened, translated)


def _pair_by_graph(graph: Graph, file: FileGraph, end: str, size: KnownSize) -> Pairs:
    """Return the pairs that the alignment of a graph with the file's gives: the file's layers of its nodes.
    Where a layer has taken in a norm, the norm is the pair, not the layer.

    Args:
        end: the layer of the graph's output.

    Raises:
        MappingError: the graphs differ.
    """
    alignment = align(graph, file, size)
    # The alignment leaves out reshapes of one cell, so the layer before stands for it.
    while end not in alignment.file.by_name:
        (end,) = file.by_name[end].inputs
    if end not in alignment.candidates[graph.output]:
        raise MappingError("the graphs differ", where=end)
    pairs = alignment.pairs(graph.output, end)
    folded = alignment.folded(pairs)
    known = {
        path: file.by_name[layer]
        for path, layer in pairs.items()
        if path not in folded.values() and layer in file.by_name
    }
    rounded = any(
        _differ_by_rounding(graph.by_path[path].op, layer.op)
        for path, layer in known.items()
        if path in graph.by_path
    )
    return Pairs({path: layer.name for path, layer in known.items()}, rounded)


def _differ_by_rounding(op: Op, layer_op: Op | Foreign) -> bool:
    """Return whether two paired ops are one function but for numbers that one of them has rounded to float32:
    a batch norm and a scale that was computed from it, or two batch norms whose epsilons are equal in float32
    only.
    """
    if not isinstance(op, BatchNorm):
        return False
    if not isinstance(layer_op, BatchNorm):  # a scale that was computed from the norm
        return True
    are_equal_in_float32 = bool(np.float32(op.epsilon) == np.float32(layer_op.epsilon))
    return op.epsilon != layer_op.epsilon and are_equal_in_float32


def weight_distances(
    opened: Opened, file: FileGraph, tensors: NamedArrays, layers: LayerNames
) -> dict[str, float]:
    """Return how far a reference file's weights are from the source's: by path, the largest relative L2
    distance of a layer's tensors, without those that are equal.

    Args:
        tensors: of the file, by name.
        layers: by path, the file's layer.
    """
    distances: dict[str, float] = {}
    for path, layer in layers.items():
        for role, stored in file.by_name[layer].tensors.items():
            of_source = opened.tensors.get(path, {}).get(role)
            of_file = (
                None if of_source is None else to_canonical(tensors[stored.name], stored, of_source.shape)
            )
            if of_source is None or of_file is None or of_source.shape != of_file.shape:
                continue
            if apart := severity(norms(of_source.ravel(), of_file.ravel()).rel_l2):
                distances[path] = max(distances.get(path, 0.0), apart)
    return distances


def _pair_by_names(opened: Opened, translated: Translated) -> Pairs:
    """Return the pairs of the source's nodes and the layers of another graph that have their names and ops of
    their kinds.

    Where a norm reads a layer in one graph and none reads it in the other, the other's layer has the norm
    folded in: such a layer is left out, and the pairs are marked as rounded.
    """
    others = translated.graph.by_path
    op_types = {path: type(node.op) for path, node in opened.graph.by_path.items()}
    namesakes = {
        path: name
        for path, name in opened.names.items()
        if name in others and type(others[name].op) is op_types[path]
    }
    normed, others_normed = _read_by_norms(opened.graph), _read_by_norms(translated.graph)
    folded = {path for path, name in namesakes.items() if (path in normed) != (name in others_normed)}
    layers = {path: translated.names[name] for path, name in namesakes.items() if path not in folded}
    return Pairs(layers, rounded=bool(folded), named=True)


def _read_by_norms(graph: Graph) -> set[str]:
    """Return the paths of the values that a norm reads."""
    return {node.source for node in graph.nodes if isinstance(node.op, BatchNorm)}

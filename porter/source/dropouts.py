"""Dropouts that a source has in training, put back into its graph for who trains on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from porter.base.left_out import LeftOut
from porter.base.options import KEEP_DROPOUT
from porter.graph import INPUT, Dropout, Graph, Node
from porter.graph.ops import is_map
from porter.source.opened import Opened

_DROPS_MAPS: Mapping[str, bool] = {
    "Dropout": False,
    "Dropout2d": True,
    "SpatialDropout2D": True,
    "SpatialDropout": True,
}
"""Whether a class of dropout drops whole maps, by the class's name in its framework."""


def with_dropouts(opened: Opened) -> Opened:
    """Return the source with its dropouts in the graph, for `--keep-dropout`; they compute nothing outside
    of training. Dropouts that cannot be placed stay in `left_out`, and a warning names each of them; one
    warning says that the file has no dropout at all.
    """
    graph = opened.graph
    names = dict(opened.facts.names)
    still_left_out = list[LeftOut]()
    warnings: list[str] = []
    for layer in opened.facts.left_out:
        problem = _problem(graph, layer)
        if problem is not None or layer.kind not in _DROPS_MAPS or layer.rate is None or layer.after is None:
            still_left_out.append(layer)
            if problem:
                warning = f"{layer.words} '{layer.name}' is left out all the same: {problem}"
                warnings.append(f"{KEEP_DROPOUT}: {warning}")
            continue
        path = _unused_path(graph, layer.after)
        dropout = Dropout(layer.rate, _DROPS_MAPS[layer.kind])
        graph = _insert_after(graph, layer.after, Node(path, dropout, (layer.after,)))
        if names and layer.name not in names.values():
            names[path] = layer.name
    if not opened.facts.left_out:
        warnings.append(f"{KEEP_DROPOUT}: {opened.file.file} shows no dropout")
    facts = opened.stating(left_out=tuple(still_left_out), names=names)
    return replace(opened, graph=graph, facts=facts, warnings=(*opened.warnings, *warnings))


def has_dropouts(graph: Graph) -> bool:
    return any(isinstance(node.op, Dropout) for node in graph.nodes)


def _problem(graph: Graph, layer: LeftOut) -> str | None:
    """Return why a layer that acts in training only cannot be put into the graph, in words for a warning.
    Return None if it can be, and also if porter never places its kind, such as noise: then nothing is warned
    of.
    """
    if layer.kind not in _DROPS_MAPS or layer.rate is None:
        # StochasticDepth is a dropout too; what else acts in training only has no place in a port.
        is_dropout = layer.kind.endswith(("Dropout", "Depth"))
        return "a port keeps Dropout and SpatialDropout only" if is_dropout else None
    if not 0 <= layer.rate <= 1:
        return f"its rate is {layer.rate:g}, expected one from 0 to 1"
    if layer.after is None or layer.after not in {INPUT, *graph.by_path}:
        return "its input is a value inside another layer of the port"
    reads = Counter(source for node in graph.nodes for source in node.inputs) + Counter(graph.outputs)
    if reads[layer.after] != 1 or layer.after in graph.outputs:
        return f"{layer.after} is read by other layers too, or is an output"
    if _DROPS_MAPS[layer.kind] and not is_map(graph.open_shapes[layer.after]):
        return f"{layer.after} gives no maps"
    return None


def _unused_path(graph: Graph, after: str) -> str:
    """Return a path for the dropout after a node that no node of the graph has."""
    path = f"{after}_dropout"
    while path in graph.by_path:
        path += "_"
    return path


def _insert_after(graph: Graph, after: str, added: Node) -> Graph:
    """Return the graph with the node `added` after the node (or input) `after`: all that read `after` read
    the new node instead. The outputs of the graph stay.
    """
    nodes = [
        replace(node, inputs=tuple(added.path if path == after else path for path in node.inputs))
        for node in graph.nodes
    ]
    # The place in the order of nodes: behind `after`, or 0 if that is the input.
    position = next((position for position, node in enumerate(nodes, 1) if node.path == after), 0)
    return replace(graph, nodes=(*nodes[:position], added, *nodes[position:]))

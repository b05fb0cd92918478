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

_KINDS: Mapping[str, bool] = {
    "Dropout": False,
    "Dropout2d": True,
    "SpatialDropout2D": True,
    "SpatialDropout": True,
}
"""Classes that a Dropout says, and whether they drop whole maps."""


def with_dropouts(opened: Opened) -> Opened:
    """The source with its dropouts, which compute nothing outside of training. Those that cannot be placed
    are warned of.
    """
    graph = opened.graph
    names = dict(opened.facts.names)
    left = list[LeftOut]()
    warnings: list[str] = []
    for layer in opened.facts.left_out:
        problem = _problem(graph, layer)
        if problem is not None or layer.kind not in _KINDS or layer.rate is None or layer.after is None:
            left.append(layer)
            warnings += (
                [f"{KEEP_DROPOUT}: {layer.words} '{layer.name}' is left out all the same: {problem}"]
                if problem
                else []
            )
            continue
        path = _free(graph, layer.after)
        graph = _behind(
            graph, layer.after, Node(path, Dropout(layer.rate, _KINDS[layer.kind]), (layer.after,))
        )
        names |= {path: layer.name} if names and layer.name not in names.values() else {}
    if not opened.facts.left_out:
        warnings.append(f"{KEEP_DROPOUT}: {opened.file.file} shows no dropout")
    facts = opened.stating(left_out=tuple(left), names=names)
    return replace(opened, graph=graph, facts=facts, warnings=(*opened.warnings, *warnings))


def has_dropouts(graph: Graph) -> bool:
    return any(isinstance(node.op, Dropout) for node in graph.nodes)


def _problem(graph: Graph, layer: LeftOut) -> str | None:
    """Why a layer cannot be placed, in words; None of one that can, and of one that porter never places."""
    if layer.kind not in _KINDS or layer.rate is None:
        return (
            "a port keeps Dropout and SpatialDropout only"
            if layer.kind.endswith(("Dropout", "Depth"))
            else None
        )
    if not 0 <= layer.rate <= 1:
        return f"its rate is {layer.rate:g}, expected one from 0 to 1"
    if layer.after is None or layer.after not in {INPUT, *graph.by_path}:
        return "its input is a value inside another layer of the port"
    reads = Counter(source for node in graph.nodes for source in node.inputs) + Counter(graph.outputs)
    if reads[layer.after] != 1 or layer.after in graph.outputs:
        return f"{layer.after} is read by other layers too, or is an output"
    if _KINDS[layer.kind] and not is_map(graph.open_shapes[layer.after]):
        return f"{layer.after} gives no maps"
    return None


def _free(graph: Graph, after: str) -> str:
    path = f"{after}_dropout"
    while path in graph.by_path:
        path += "_"
    return path


def _behind(graph: Graph, after: str, added: Node) -> Graph:
    """The graph with a node behind another, or behind the input, whose reader reads it instead."""
    nodes = [
        replace(node, inputs=tuple(added.path if path == after else path for path in node.inputs))
        for node in graph.nodes
    ]
    place = next((place for place, node in enumerate(nodes, 1) if node.path == after), 0)
    return replace(graph, nodes=(*nodes[:place], added, *nodes[place:]))

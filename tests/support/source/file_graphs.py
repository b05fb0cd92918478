"""File graphs made from a recipe's own graph, for tests: the same layers under other names, and with
something changed in them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from porter.filegraph.file_graph import FileGraph, FileNode, Stored
from porter.graph import INPUT, Graph, tensor_shapes


def as_file(graph: Graph, size: tuple[int | None, int | None] = (224, 224)) -> FileGraph:
    """The graph as a file would carry it, its layers called `layer_0`, `layer_1` and so on."""
    names = {INPUT: INPUT} | {node.path: f"layer_{number}" for number, node in enumerate(graph.nodes)}
    shapes = tensor_shapes(graph)
    nodes = tuple(
        FileNode(
            names[node.path],
            node.op,
            tuple(names[path] for path in node.inputs),
            {role: Stored(f"{names[node.path]}/{role}") for role in shapes.get(node.path, {})},
            names[node.path],
        )
        for node in graph.nodes
    )
    return FileGraph(nodes, (names[graph.output],), graph.channels, size)


def layer_of(graph: Graph, path: str) -> str:
    """The name that `as_file` gives a node."""
    return f"layer_{[node.path for node in graph.nodes].index(path)}"


def changed(file: FileGraph, name: str, **changes: Any) -> FileGraph:
    """The file's graph with some fields of one layer set otherwise."""
    return replace(
        file, nodes=tuple(replace(node, **changes) if node.name == name else node for node in file.nodes)
    )


def inserted(file: FileGraph, before: str, node: FileNode) -> FileGraph:
    """The file's graph with a layer put in front of another one, which then reads it."""
    nodes: list[FileNode] = []
    for layer in file.nodes:
        if layer.name == before:
            nodes += [replace(node, inputs=layer.inputs), replace(layer, inputs=(node.name,))]
        else:
            nodes.append(layer)
    return replace(file, nodes=tuple(nodes))


def appended(file: FileGraph, *nodes: FileNode) -> FileGraph:
    """The file's graph with layers behind its output, each reading the one before."""
    last, added = file.outputs[0], []
    for node in nodes:
        added.append(replace(node, inputs=(last,)))
        last = node.name
    return replace(file, nodes=(*file.nodes, *added), outputs=(last,))

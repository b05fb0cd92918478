"""A file's graph under paths that show its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.filegraph.to_graph import Translated
from porter.graph import Graph
from porter.graph.blocks.find import find_blocks, renamed
from porter.recipe.writing.steps import with_arguments

_LONGEST_NAME = 100


def with_blocks(file: Translated) -> tuple[Translated, Mapping[str, str]]:
    """The same graph under paths that show its blocks, whose uses say what differs between them; and each
    path's own in `file`.
    """
    # A name of several layers, as converters join them to one that they fused, would make paths that
    # port.json does not hold.
    names = {path: name[-_LONGEST_NAME:].lstrip("/._") or name for path, name in file.names.items()}
    blocks = find_blocks(file.graph, names)
    return _named(file, with_arguments(blocks.graph), blocks.paths), blocks.paths


def under_paths(file: Translated, paths: Mapping[str, str]) -> Translated:
    """The same graph under `paths`, each with its own in `file`; a node that they lack keeps its own."""
    own = {path: before for path, before in paths.items() if before in file.graph.by_path}
    return _named(file, renamed(file.graph, {before: path for path, before in own.items()}), own)


def _named(file: Translated, graph: Graph, paths: Mapping[str, str]) -> Translated:
    own = {**{path: path for path in file.names}, **paths}
    return replace(file, graph=graph, names={path: file.names[own[path]] for path in graph.by_path})

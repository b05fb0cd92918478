"""A file opened with its own graph, which no recipe has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from porter.base.errors import MappingError, UsageError
from porter.base.options import INPUT_SIZE
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import fill_free_size
from porter.filegraph.to_graph import Translated, expect_ops, to_graph
from porter.frameworks import engine_name
from porter.graph import Conv, Dense, Graph, Node, shapes, with_own_tensors
from porter.graph.ops import Shape, channels_in
from porter.padding import ANY, KnownSize, Size
from porter.source.fitting.fit import OWN_GRAPH, Fit, given_by, stored_tensors
from porter.source.opened import Opened, of_fit
from porter.source.wishes import NONE, Wishes

_NAMED = ("keras", "torch-export")
"""Languages in which layers have tensors by name, whatever their numbers are."""
PROBE = (224, 224)
"""Rows and columns at which a graph of any size is looked at."""
_LONGEST_NAME = 100


def open_graph(
    checkpoint: Checkpoint, wishes: Wishes = NONE, names: Mapping[str, str] | None = None
) -> Opened:
    """A file opened with its own graph.

    Args:
        names: by path, the file's own names, for the paths of a port; None for paths that show the graph's
            blocks.

    Raises:
        UsageError, MappingError: as `translation`.
    """
    translated, built = translation(checkpoint, wishes)
    translated, names = with_blocks(translated) if names is None else (_under_paths(translated, names), names)
    assert checkpoint.graph is not None
    opened = of_fit(_fit(checkpoint, translated, built), checkpoint, engine_name(checkpoint), built)
    facts = opened.stating(names=dict(names), output_names=checkpoint.graph.output_names)
    return replace(opened, facts=facts, sizes=checkpoint.graph.own_sizes(built))


def translation(checkpoint: Checkpoint, wishes: Wishes) -> tuple[Translated, KnownSize]:
    """A file's graph as porter's own, and the rows and columns that it was built for, otherwise those that
    are wished.

    Raises:
        UsageError: neither the file nor `wishes` state an input size.
        MappingError: porter has no op for a part of the graph.
    """
    file, where = checkpoint.graph, str(checkpoint.path)
    assert file is not None
    asked = PROBE if wishes.size == ANY else wishes.size or ANY
    rows, columns = fill_free_size(file.size, asked)
    try:
        expect_ops(file)
        if rows is None or columns is None:
            raise _unstated(file.size, where)
        translated = to_graph(replace(file, size=(rows, columns)), wishes.keep_activation)
    except MappingError as error:
        raise error.at(f"{where}: {error.where}" if error.where else where) from None
    return replace(
        translated, graph=with_own_tensors(translated.graph, _alike_by_chance(checkpoint, translated))
    ), (rows, columns)


def with_blocks(file: Translated) -> tuple[Translated, Mapping[str, str]]:
    """The same graph under paths that show its blocks, whose uses say what differs between them; and each
    path's own in `file`.
    """
    # A file that a recipe fits needs no search for blocks.
    from porter.graph.blocks.find_blocks import find_blocks
    from porter.recipe.writing.steps import with_arguments

    # A name of several layers, as converters join them to one that they fused, would make paths that
    # port.json does not hold.
    names = {path: name[-_LONGEST_NAME:].lstrip("/._") or name for path, name in file.names.items()}
    blocks = find_blocks(file.graph, names)
    return _named(file, with_arguments(blocks.graph), blocks.paths), blocks.paths


def _under_paths(file: Translated, paths: Mapping[str, str]) -> Translated:
    """The same graph under `paths`, each with its own in `file`; a node that they lack keeps its own."""
    from porter.graph.blocks.find_blocks import rename_paths

    own = {path: before for path, before in paths.items() if before in file.graph.by_path}
    return _named(file, rename_paths(file.graph, {before: path for path, before in own.items()}), own)


def _named(file: Translated, graph: Graph, paths: Mapping[str, str]) -> Translated:
    own = {**{path: path for path in file.names}, **paths}
    return replace(file, graph=graph, names={path: file.names[own[path]] for path in graph.by_path})


def _alike_by_chance(checkpoint: Checkpoint, translated: Translated) -> set[str]:
    """Paths of layers that are no other call of the layer whose tensors they take: exporters join constants
    of the same numbers, as norms that were never trained have them. Behind other calls of one layer they are
    calls.
    """
    file, graph, alike = checkpoint.graph, translated.graph, set[str]()
    assert file is not None
    for node in graph.nodes if file.language not in _NAMED else ():
        if node.shares is None:
            continue
        before = [_layer_before(graph, each) for each in (node, graph.by_path[node.shares])]
        called = (
            None not in before
            and len({each.path if each.path in alike else each.holder for each in before if each}) == 1
        )
        arrays = [
            checkpoint.tensors[stored.name]
            for stored in file.by_name[translated.names[node.path]].tensors.values()
        ]
        if not called and all(np.all(array == array.flat[0]) for array in arrays):
            alike.add(node.path)
    return alike


def _layer_before(graph: Graph, node: Node) -> Node | None:
    """The layer with tensors that a node's first value comes from."""
    before = graph.by_path.get(node.inputs[0])
    while before is not None and not before.op.tensors(1):
        before = graph.by_path.get(before.inputs[0])
    return before


def _unstated(size: Size, where: str) -> UsageError:
    """The error for a file that leaves rows, columns or both open."""
    if size == ANY:
        next = f"add {INPUT_SIZE.placeholder}, or any for pads that are computed from the size"
        return UsageError("the file states no input size", where=where, next=next)
    rows, columns = size
    asked = f"{rows or 'ROWS'}x{columns or 'COLUMNS'}"
    return UsageError(
        f"the file states an input of {rows or '?'}x{columns or '?'}",
        where=where,
        next=f"add {INPUT_SIZE(asked)}",
    )


def _fit(checkpoint: Checkpoint, translated: Translated, size: KnownSize) -> Fit:
    """The tensor of each node of a graph that was made from the file itself."""
    file, graph = checkpoint.graph, translated.graph
    assert file is not None
    stored = stored_tensors(graph, file, translated.names, checkpoint)
    unused = "the file's outputs do not need it, or its numbers are constants of the graph"
    return Fit(
        graph=graph,
        tensors={place: tensor.name for place, tensor in stored.items()},
        stored=stored,
        ignored=dict.fromkeys(
            sorted(checkpoint.tensors.keys() - {tensor.name for tensor in stored.values()}), unused
        ),
        source_classes=classes_of(graph, size, translated.activation),
        head=translated.names[graph.output],
        activation=translated.activation,
        taps={path: tap for path, name in translated.names.items() if (tap := file.by_name[name].tap)},
        given=given_by(file, translated.names),
        notes=(OWN_GRAPH,),
    )


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def classes_of(graph: Graph, size: KnownSize, activation: str | None) -> int:
    """The number of classes if the only output has one value for each, or is a number of each image; 0 for
    maps, features and several outputs.

    What gives them is a dense layer, which may stand as a convolution of one cell, or anything before a
    softmax or a sigmoid.
    """
    known = shapes(graph, size)
    if graph.further or len(known[graph.output]) > 1:
        return 0
    node = graph.by_path[graph.output]
    while not isinstance(node.op, Conv | Dense) and len(node.inputs) == 1 and node.inputs[0] in graph.by_path:
        if _without_ones(known[node.inputs[0]])[:1] != _without_ones(known[node.path])[:1]:
            break
        node = graph.by_path[node.inputs[0]]
    dense = isinstance(node.op, Dense) or (isinstance(node.op, Conv) and known[node.path][1:] == (1, 1))
    return channels_in(known[graph.output]) if activation or dense else 0

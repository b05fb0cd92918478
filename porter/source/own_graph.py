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
from porter.graph import Conv, Dense, Graph, Node, rename_paths, shapes, with_own_tensors
from porter.graph.ops import Shape, channels_in
from porter.padding import ANY, KnownSize, Size
from porter.source.fitting.fit import OWN_GRAPH, Fit, InFile, given_by, stored_tensors
from porter.source.opened import Opened, open_fit
from porter.source.wishes import NONE, Wishes

_WITH_NAMED_TENSORS = ("keras", "torch-export")
"""Languages in which layers have tensors by name, whatever their numbers are."""
PROBE = (224, 224)
"""Rows and columns at which a graph of any size is looked at."""
_LONGEST_NAME = 100


def open_graph(
    checkpoint: Checkpoint, wishes: Wishes = NONE, names: Mapping[str, str] | None = None
) -> Opened:
    """Open a file with its own graph, and return it. The paths of the port show the graph's blocks, or are
    those of `names`.

    Args:
        names: by path, the file's own names, for the paths of a port that exists; None for a new port.

    Raises:
        UsageError, MappingError: as `translate`.
    """
    translated, built = translate(checkpoint, wishes)
    if names is None:
        translated, names = with_blocks(translated)
    else:
        translated = _under_paths(translated, names)
    assert checkpoint.graph is not None
    opened = open_fit(_fit(checkpoint, translated, built), checkpoint, engine_name(checkpoint), built)
    facts = opened.stating(names=dict(names), output_names=checkpoint.graph.output_names)
    return replace(opened, facts=facts, sizes=checkpoint.graph.own_sizes(built))


def translate(checkpoint: Checkpoint, wishes: Wishes) -> tuple[Translated, KnownSize]:
    """Return a file's graph as porter's own, with the rows and columns that it was built for; where the file
    leaves them open, with those that are wished.

    Raises:
        UsageError: neither the file nor `wishes` state an input size.
        MappingError: porter has no op for a part of the graph.
    """
    file, where = checkpoint.graph, str(checkpoint.path)
    assert file is not None
    # A graph for any size is read at one.
    asked = PROBE if wishes.size == ANY else wishes.size or ANY
    rows, columns = fill_free_size(file.size, asked)
    try:
        expect_ops(file)
        if rows is None or columns is None:
            raise _size_error(file.size, where)
        translated = to_graph(replace(file, size=(rows, columns)), wishes.keep_activation)
    except MappingError as error:
        raise error.at(f"{where}: {error.where}" if error.where else where) from None
    graph = with_own_tensors(translated.graph, _equal_by_chance(checkpoint, translated))
    return replace(translated, graph=graph), (rows, columns)


def with_blocks(file: Translated) -> tuple[Translated, Mapping[str, str]]:
    """Return the same graph under paths that show its blocks, such as `layer1/layer_0/conv1`, with the
    arguments in which the uses of a block differ; and the path in `file` of each new path.
    """
    # A file that a recipe fits needs no search for blocks.
    from porter.graph.blocks.find_blocks import find_blocks
    from porter.recipe.writing.steps import with_arguments

    # A name of several layers, as converters join them to one that they fused, would make paths that
    # port.json does not hold.
    names = {path: name[-_LONGEST_NAME:].lstrip("/._") or name for path, name in file.names.items()}
    blocks = find_blocks(file.graph, names)
    return _with_paths(file, with_arguments(blocks.graph), blocks.paths), blocks.paths


def _under_paths(file: Translated, paths: Mapping[str, str]) -> Translated:
    """Return the same graph under `paths`, by which a port that exists calls its nodes. A node that `paths`
    lacks keeps its path.

    Args:
        paths: by the new path, the path in `file`.
    """
    paths_in_file = {
        path: path_in_file for path, path_in_file in paths.items() if path_in_file in file.graph.by_path
    }
    return _with_paths(
        file,
        rename_paths(file.graph, {path_in_file: path for path, path_in_file in paths_in_file.items()}),
        paths_in_file,
    )


def _with_paths(file: Translated, graph: Graph, paths: Mapping[str, str]) -> Translated:
    """Return a translated file with `graph`, which is its graph under new paths, and the file's names by
    these paths.

    Args:
        paths: by the new path, the path in `file`; paths that stay may be left out.
    """
    paths_in_file = {**{path: path for path in file.names}, **paths}
    return replace(file, graph=graph, names={path: file.names[paths_in_file[path]] for path in graph.by_path})


def _equal_by_chance(checkpoint: Checkpoint, translated: Translated) -> set[str]:
    """Return the paths of nodes that seem to be further calls of a layer, because they have its tensors, and
    are layers of their own: exporters join constants of the same numbers, as norms that were never trained
    have them. Only tensors of one repeated number, such as all 1, are taken for such constants, and not
    those of a layer that comes after another call of one layer, which is a call itself.
    """
    file, graph, by_chance = checkpoint.graph, translated.graph, set[str]()
    assert file is not None
    for node in graph.nodes if file.language not in _WITH_NAMED_TENSORS else ():
        if node.shares is None:
            continue
        # A further call comes after the same layer as the first call does. `shares` is the path of the first
        # call, and `holder` that of the node which has a layer's tensors.
        layers_before = [_layer_before(graph, call) for call in (node, graph.by_path[node.shares])]
        holders = {
            layer.path if layer.path in by_chance else layer.holder for layer in layers_before if layer
        }
        is_call = None not in layers_before and len(holders) == 1
        own_tensors = file.by_name[translated.names[node.path]].tensors
        arrays = [checkpoint.tensors[stored.name] for stored in own_tensors.values()]
        if not is_call and all(np.all(array == array.flat[0]) for array in arrays):
            by_chance.add(node.path)
    return by_chance


def _layer_before(graph: Graph, node: Node) -> Node | None:
    """Return the layer with tensors that a node's first value comes from; None if the input comes first."""
    layer = graph.by_path.get(node.inputs[0])
    # Whether an op has tensors does not depend on its number of channels, here 1.
    while layer is not None and not layer.op.tensors(1):
        layer = graph.by_path.get(layer.inputs[0])
    return layer


def _size_error(size: Size, where: str) -> UsageError:
    """Return the error for a file that leaves rows, columns or both open."""
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
    """Return the fit of a graph that was made from the file itself."""
    file, graph = checkpoint.graph, translated.graph
    assert file is not None
    stored = stored_tensors(graph, file, translated.names, checkpoint)
    unused = "the file's outputs do not need it, or its numbers are constants of the graph"
    return Fit(
        graph=graph,
        tensors={place: tensor.name for place, tensor in stored.items()},
        ignored=dict.fromkeys(
            sorted(checkpoint.tensors.keys() - {tensor.name for tensor in stored.values()}), unused
        ),
        source_classes=classes_of(graph, size, translated.activation),
        head=translated.names[graph.output],
        activation=translated.activation,
        in_file=InFile(
            {path: tap for path, name in translated.names.items() if (tap := file.by_name[name].tap)},
            given_by(file, translated.names),
            stored,
        ),
        notes=(OWN_GRAPH,),
    )


def _sizes_above_one(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def classes_of(graph: Graph, size: KnownSize, activation: str | None) -> int:
    """Return the number of classes that a graph tells apart: the channels of its output; 0 for maps,
    features and several outputs.

    The output has classes if an activation (a softmax or a sigmoid) was taken off it, or if it comes from a
    dense layer, which may stand as a convolution of one cell.

    Args:
        size: rows and columns of the input.
        activation: the one that was taken off the output; None if there was none.
    """
    shape_of = shapes(graph, size)
    if graph.further or len(shape_of[graph.output]) > 1:
        return 0
    # Walk back to the layer that makes the values, over steps that only reshape or scale them.
    node = graph.by_path[graph.output]
    while not isinstance(node.op, Conv | Dense) and len(node.inputs) == 1 and node.inputs[0] in graph.by_path:
        # A step that changes the channels is a layer of its own.
        if _sizes_above_one(shape_of[node.inputs[0]])[:1] != _sizes_above_one(shape_of[node.path])[:1]:
            break
        node = graph.by_path[node.inputs[0]]
    is_conv_of_cell = isinstance(node.op, Conv) and shape_of[node.path][1:] == (1, 1)
    if activation or isinstance(node.op, Dense) or is_conv_of_cell:
        return channels_in(shape_of[graph.output])
    return 0

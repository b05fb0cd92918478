"""A file's graph as porter's own, with no recipe: the paths are the file's names, and what comes after the
logits is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from keyword import iskeyword

from porter.base.errors import CannotRun, GraphError, MappingError, some
from porter.base.options import INPUT_SIZE, OUTPUTS
from porter.filegraph.file_graph import FileGraph, Foreign, Stored, with_momentum
from porter.filegraph.names import Names
from porter.graph import INPUT, OF_LOGITS, Graph, Identity, Node, Op, Shape, is_call, shapes
from porter.graph.memory_bounds import MOST_IN_ALL, count_values, expect_bounded
from porter.graph.walks import downstream
from porter.padding import KnownSize

LONGEST_PATH = 160
_MOST_ENDS = 16
_GROWTH = 4096
"""So many numbers for each of the input's are assumed of a graph that porter cannot read whole: four times a
network's most.
"""
_QUANTISED = re.compile("quant|qlinear|integer$", re.IGNORECASE)
"""Kinds of nodes that compute in whole numbers, or go there and back."""


@dataclass(frozen=True)
class Translated:
    """A file's graph in porter's form.

    Attributes:
        names: by path, the name of the file's node.
        activation: the name of the op that was taken off after the logits.
    """

    graph: Graph
    names: Mapping[str, str]
    activation: str | None


def to_graph(file: FileGraph, keep_activation: bool = False) -> Translated:
    """Translate a file's graph into porter's, which gives the file's outputs in their order.

    A softmax, a log_softmax or a sigmoid that gives the only output is taken off if its values are features,
    so that the port gives logits. Of a number of each image, the logit is one feature.

    Args:
        keep_activation: keep it.

    Raises:
        MappingError: there is no layer, porter has no op for a node, or the file's values do not fit each
            other; `where` is the file's name of it.
    """
    expect_ops(file)
    if all(isinstance(node.op, Identity) for node in file.nodes):
        raise MappingError(
            "this model has no layers: it gives its input", next="save a model that computes something"
        )
    paths = _paths(file.by_name, [image.path for image in file.further_inputs])
    file_names = {path: name for name, path in paths.items()}  # of nodes and inputs
    graph = _rename_to_paths(file, paths)
    shape_of = _known_shapes(graph, file, file_names)
    node_names = {path: name for path, name in file_names.items() if name in file.by_name}
    tensors = {path: file.by_name[name].tensors for path, name in node_names.items()}
    graph = _mark_calls(graph, tensors, shape_of)
    _expect_bounded(graph, file, node_names)
    activation = None if keep_activation or graph.further else _final_activation(graph, shape_of)
    if activation is None:
        return Translated(graph, node_names, None)
    removed = activation.path, graph.output
    nodes = tuple(node for node in graph.nodes if node.path not in removed)
    kept_names = {path: name for path, name in node_names.items() if path not in removed}
    logits = replace(graph, nodes=nodes, output=activation.source)
    return Translated(logits, kept_names, activation.op_name)


def _rename_to_paths(file: FileGraph, paths: Mapping[str, str]) -> Graph:
    """Return a file's graph, all of whose nodes have porter's ops, as a Graph. `paths` has the path of each
    node and input by the file's name.
    """
    nodes = [
        Node(paths[node.name], with_momentum(op), tuple(paths.get(name, name) for name in node.inputs))
        for node in file.nodes
        if isinstance(op := node.op, Op)
    ]
    output, *further = (paths[name] for name in file.outputs)
    inputs = tuple(replace(image, path=paths[image.path]) for image in file.further_inputs)
    return Graph(
        tuple(nodes), file.channels, output, further=tuple(further), axes=file.axes, further_inputs=inputs
    )


def _known_shapes(graph: Graph, file: FileGraph, titles: Mapping[str, str]) -> Mapping[str, Shape]:
    """Return the shapes of all values, by path. Raises MappingError if an op does not take what it gets.

    Args:
        titles: the file's names by path, for the error.
    """
    try:
        return shapes(graph, file.size)
    except GraphError as error:
        advice = error.next if None not in file.size else "build and save the model for images of one size"
        raise MappingError(
            f"the file's graph does not fit together: {error.message}",
            where=titles.get(error.where or "", error.where),
            next=advice,
        ) from None


def _expect_bounded(graph: Graph, file: FileGraph, names: Mapping[str, str]) -> None:
    """Expect that the values take no more memory than any network's. Raises MappingError with the file's name
    of a node.
    """
    try:
        expect_bounded(graph, file.size)
    except GraphError as error:
        advice = f"{error.next}, if the file states none"
        raise MappingError(error.message, where=names.get(error.where or ""), next=advice) from None


def _final_activation(graph: Graph, shape_of: Mapping[str, Shape]) -> Node | None:
    """Return the node of the softmax, log_softmax or sigmoid that computes the output from logits, if the
    output is features and the logits are the value of a node; otherwise None.
    """
    last = graph.by_path[graph.output]
    # where the output is a number of each image, the last node makes it of one feature: look before that
    is_number = shape_of[last.path] == ()
    if is_number and last.source in graph.by_path:
        last = graph.by_path[last.source]
    is_of_features = isinstance(last.op, OF_LOGITS) and len(shape_of[last.path]) == 1
    return last if is_of_features and last.source in graph.by_path else None


def _mark_calls(
    graph: Graph, tensors: Mapping[str, Mapping[str, Stored]], shape_of: Mapping[str, Shape]
) -> Graph:
    """Return the graph with nodes marked as calls of one layer (`shares`) if the file has the same tensors
    for them. The first of them has the tensors.

    Args:
        tensors, shape_of: the file's tensors by role, and the shape, of every path.
    """
    holders_by_tensors: dict[frozenset[tuple[str, Stored]], list[Node]] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        stored = tensors[node.path]
        holders = holders_by_tensors.setdefault(frozenset(stored.items()), []) if stored else []
        holder = next((holder for holder in holders if is_call(node, holder, shape_of)), None)
        if holder is None:
            holders.append(node)
            nodes.append(node)
        else:
            nodes.append(replace(node, shares=holder.path))
    return replace(graph, nodes=tuple(nodes))


def expect_ops(file: FileGraph) -> None:
    """Expect that porter has an op for every node.

    Raises:
        MappingError: it lacks some; `next` says where the graph could end instead.
    """
    foreign = {node.name: node.op.kind for node in file.nodes if isinstance(node.op, Foreign)}
    if not foreign:
        return
    # What reads a foreign node's value is often foreign only because nothing is known of that value.
    affected = downstream(file.by_name, lambda name: file.by_name[name].inputs, foreign)
    causes = {name: kind for name, kind in foreign.items() if affected.isdisjoint(file.by_name[name].inputs)}
    kinds = some([f"'{name}' ({kind})" for name, kind in causes.items()])
    others = len(foreign) - len(causes)
    behind = f"; of the nodes behind, {others} cannot be read" if others else ""
    unsized = "without the input's size, " if file.sizable else ""
    raise MappingError(f"{unsized}porter has no op for {kinds}{behind}", next=_advice(file, causes, affected))


def _advice(file: FileGraph, causes: Mapping[str, str], affected: Collection[str]) -> str:
    """Write how to port a file without the nodes that porter has no op for, as the next step of an error.

    Args:
        causes: the kinds, by name, of those that read no other one's value.
        affected: the names of all of them, and of what is computed from them.
    """
    if file.sizable:
        return (
            f"say at which size the model runs: {INPUT_SIZE('ROWSxCOLUMNS')}, which is then the port's only "
            "one"
        )
    if any(map(_QUANTISED.search, causes.values())):
        return "name the file that it was quantised from: porter ports models of real numbers"
    nodes_before = file.leading_to(source for name in causes for source in file.by_name[name].inputs)
    if outputs := _ends_before(file, affected):
        way = f"{OUTPUTS(outputs)} ends the graph before them"
    elif any(file.by_name[name].tap for name in nodes_before):
        way = "port a model that ends before them"
    else:
        way = "port the layers behind them alone, which then take what they give"
    advice = f"a port without them would be another function: {way}"
    if file.language == "keras":
        advice += "; or try what model.export('FOLDER') writes, which says what each layer computes"
    return advice


def _ends_before(file: FileGraph, refused: Collection[str]) -> list[str]:
    """Return the names that the user can give as the outputs of a smaller graph, which ends before the nodes
    that porter has no op for: the values that these read from other nodes, and the outputs that need none of
    them. Return nothing if the file has no name for one of these values, or they are too many to type.

    Args:
        refused: names of the nodes that porter has no op for, and of all that follow them.
    """
    ends: list[tuple[str, str | None]] = []  # names of nodes, and of their values where these are known
    for node in file.nodes:
        if node.name in refused:
            # a foreign node states what the file calls the values that it reads
            reads = node.op.reads if isinstance(node.op, Foreign) else ()
            value_names = reads if len(reads) == len(node.inputs) else (None,) * len(node.inputs)
            ends += zip(node.inputs, value_names, strict=True)
    ends += [(name, None) for name in file.outputs]
    # otherwise the tap is taken, the name under which the framework gives the node's value; without that
    # too, a graph cannot end there: what is read is a layout of a value
    value_names_at_ends = dict.fromkeys(
        value_name or file.by_name[name].tap or ""
        for name, value_name in ends
        if name in file.by_name and name not in refused
    )
    if "" in value_names_at_ends or len(value_names_at_ends) > _MOST_ENDS:
        return []
    return list(value_names_at_ends)


def _paths(names: Iterable[str], inputs: Iterable[str] = ()) -> dict[str, str]:
    """Return for each name of the file a unique path: words of letters, digits and _, joined by slashes, such
    as `stage1/conv_1` for `model/stage1/conv-1` in a file whose names all begin with `model`; of an input one
    word.

    No path is another node's scope, because a model's layer cannot hold another layer.
    """
    words_of = {name: [path_word(part) for part in name.split("/") if part] or ["layer"] for name in names}
    first_words = {words[0] for words in words_of.values()}
    # a first word that all names have, such as the model's, is left out
    has_common_word = len(first_words) == 1 and all(len(words) > 1 for words in words_of.values())
    start = 1 if has_common_word else 0
    short = {name: _shorten("/".join(words[start:])) for name, words in words_of.items()}
    # `a` and `a/b` of the path `a/b/c`
    scopes = {scope for path in short.values() for scope in accumulate(path.split("/")[:-1], "{}/{}".format)}
    unique_paths = Names(scopes | {INPUT})
    wanted = {name: path_word(name) for name in inputs} | short
    return {name: unique_paths.take(path) for name, path in wanted.items()}


def _shorten(path: str) -> str:
    """Return the end of a path that is too long."""
    return path[-LONGEST_PATH:].lstrip("/_") or "layer"


def path_word(name: str) -> str:
    """Return a layer's name as one part of a path, which is also a valid name in generated code: `conv_1` for
    `conv-1`, `layer_1` for `1`.
    """
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "layer"
    return f"layer_{word}" if word[0].isdigit() or iskeyword(word) else word


def expect_batch(file: FileGraph, images: int, size: KnownSize) -> None:
    """Refuse to fill a batch that takes more memory than any network's: a file may state any number of
    images.

    Args:
        images: that the file takes at once.
        size: of the images, rows and columns.

    Raises:
        CannotRun: their values have too many numbers together, so that the file's graph cannot be run.
    """
    try:
        numbers_per_image = count_values(to_graph(replace(file, size=size), keep_activation=True).graph, size)
    except MappingError:
        rows, columns = size
        numbers_per_image = _GROWTH * file.channels * rows * columns
    if images * numbers_per_image > MOST_IN_ALL:
        message = (
            f"the file takes {images} images at once, whose values have {images * numbers_per_image} "
            f"numbers, more than {MOST_IN_ALL}"
        )
        raise CannotRun(message, next="export it for fewer images, or for any number")

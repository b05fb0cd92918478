"""Reads MXNet's models: their arrays, and their graphs as porter's ops. They are parsed, never run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.dtypes import NamedArrays, is_floating
from porter.base.errors import FileError
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators, names_depending_on
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.layers import read_graph
from porter.filegraph.names import expect_values
from porter.filegraph.reading import GraphInput, begin
from porter.filegraph.value_names import NodeOutput, value_name
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.mxnet.operators import KINDS, READERS
from porter.formats.mxnet.params_file import read_arrays
from porter.formats.mxnet.symbol import Symbol, SymbolNode, join_definition, read_symbol
from porter.padding import Size

_SYMBOL = "-symbol.json"
_EPOCH = re.compile(r"-\d{4}\.params$")
_OPERATORS: Operators[SymbolNode] = Operators(lambda node: KINDS.get(node.op, ""))


def read_mxnet(
    path: Path, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
) -> Checkpoint:
    """Return a graph with its arrays. The path names one of the two files: NAME-symbol.json belongs to
    NAME-0000.params, or to the only .params in its folder. The arrays come without a graph, and with a note
    that says why, where there is no symbol (as in gluon's zoo) or where it does not have one image as its
    only variable without an array.

    Args:
        outputs: names of operators, at which the graph ends.
        size: rows and columns, where the graph does not state them.
        weights: the arrays of the graph that the path names.

    Raises:
        FileError: one of the two is missing or damaged.
        UsageError: the graph lacks one of `outputs`.
    """
    text, params = (path, weights) if weights else _find_both_files(path)
    with refusing_damage(path, "fetch both files again", further=ERRORS_OF_JSON):
        tensors = read_arrays(params.read_bytes())
        if text is None:
            note = f"{UNREAD}: its operators are in a {_SYMBOL}, and there is none beside it"
            return Checkpoint(path, "mxnet", "mxnet", tensors, (note,))
        definition = text.read_bytes()
        symbol = read_symbol(definition, tensors.__contains__)
        if symbol.image is None:
            reason = (
                f"{symbol.lacking} of its variables have no array in {params.name}, expected one, the image"
            )
            note = f"{UNREAD} of {text.name}: {reason}"
            return Checkpoint(path, "mxnet", "mxnet", tensors, (note,), files=(text, params))
        expect_values(outputs, [node.name for node in symbol.nodes])
        # Named outputs replace those of the symbol.
        ends = tuple((name, 0) for name in outputs) or symbol.ends
        graph = _read_graph(replace(symbol, ends=ends), tensors, most_bytes(params.stat().st_size), size)
    graph = replace(
        graph,
        traced=size is not None,
        definition=join_definition(symbol.image, definition),
        language="mxnet",
    )
    # Whole numbers are no weights.
    real = {name: array for name, array in tensors.items() if is_floating(array)}
    return Checkpoint(
        path,
        "mxnet",
        "mxnet",
        {**real, **graph.evaluated},
        graph=graph,
        files=(text, params),
        stated=symbol.said,
    )


def _find_both_files(path: Path) -> tuple[Path | None, Path]:
    """Return the files of the symbol and of the .params of a model, either of which may be named. The symbol
    is None if there is none beside the .params. Raise FileError where the arrays are not there, or could be
    in several files.
    """
    if path.name.endswith(_SYMBOL) or path.suffix == ".json":
        named = sorted(path.parent.glob(f"{path.name.removesuffix(_SYMBOL)}-[0-9][0-9][0-9][0-9].params"))
        choices = named or sorted(path.parent.glob("*.params"))
        if len(choices) != 1:
            found = f"there are {len(choices)}" if choices else "there is none"
            next = "name one of the .params itself" if choices else "fetch both files"
            raise FileError(
                f"an MXNet model's arrays are in a .params beside it: {found}", where=path, next=next
            )
        return path, choices[0]
    # The name may have an epoch, as in NAME-0012.params.
    stem = _EPOCH.sub("", path.name)
    symbol_of_name = path.with_name(f"{stem.removesuffix('.params')}{_SYMBOL}")
    if symbol_of_name.is_file():
        return symbol_of_name, path
    symbols = sorted(path.parent.glob(f"*{_SYMBOL}"))
    return symbols[0] if len(symbols) == 1 else None, path


def _read_graph(symbol: Symbol, tensors: NamedArrays, budget: int, size: Size | None) -> FileGraph:
    """Return the graph of a symbol.

    Args:
        budget: the most bytes of tensors that may be computed.
        size: rows and columns of the image; None to take those that the symbol states.
    """
    nodes = {node.name: node for node in symbol.nodes}
    image = symbol.image or ""
    # Live nodes depend on the image; all others are constants.
    live = names_depending_on(nodes, [image])
    stored = Arrays(tensors)
    flow = Dataflow(nodes, live, stored, _OPERATORS, budget, symbol.passed)
    # A size of 0 is open.
    if len(symbol.sides) == 4:
        _, channels, rows, columns = symbol.sides
    else:
        channels = _channels_of_image(nodes, image, tensors)
        rows = columns = 0
    image_size = (rows or None, columns or None) if size is None else size
    image_input = GraphInput((image, 0), channels, image_size, order="CHW")
    return read_graph(begin(flow, image_input, tensors, tap=value_name), READERS, symbol.ends)


def _channels_of_image(nodes: Mapping[str, SymbolNode], image: str, tensors: NamedArrays) -> int:
    """Return the channels of the image: those that the first convolution takes, of a part of the image or of
    all. Return 3 where there is no convolution with a stored kernel.
    """
    convolutions = (node for node in nodes.values() if node.op == "Convolution")
    first = next((node for node in convolutions if node.inputs[1][0] in tensors), None)
    if first is None:
        return 3
    count = int(tensors[first.inputs[1][0]].shape[1])
    source = first.source[0]
    count *= first.attributes.count("num_group", 1)
    slices = _channel_slices(nodes.values())
    # Back to the image: each operator that takes a part of the channels has more before it.
    while source in nodes and source != image:
        node = nodes[source]
        if node.op in ("SliceChannel", "split") and node.attributes.count("axis", 1) == 1:
            count *= node.attributes.count("num_outputs", 1)
        elif node.op == "slice_axis" and node.attributes.count("axis", 0) == 1:
            count = max(_last_channel(part, count) for part in slices[node.inputs[:1]])
        source = node.source[0] if node.inputs else image
    return count


def _channel_slices(nodes: Iterable[SymbolNode]) -> Mapping[tuple[NodeOutput, ...], Sequence[SymbolNode]]:
    """Return the slice_axis nodes of each value, by the value."""
    slices = defaultdict[tuple[NodeOutput, ...], list[SymbolNode]](list)
    for node in nodes:
        if node.op == "slice_axis":
            slices[node.inputs[:1]].append(node)
    return slices


def _last_channel(part: SymbolNode, count: int) -> int:
    """Return where a part of the channels ends; if the node does not say so, by its beginning and the `count`
    of its channels.
    """
    end = part.attributes.word("end", "None")
    return int(end) if end != "None" else part.attributes.count("begin", 0) + count

"""torch.export's .pt2 archives: their weights and their graphs. They are parsed, never run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import HALVES, Dtype, NamedArrays
from porter.base.errors import FileError, some
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Unsupported
from porter.filegraph.finishing import finish
from porter.filegraph.names import expect_values, node_titles, with_scope_names
from porter.filegraph.reading import GraphInput, begin, read_nodes
from porter.filegraph.to_graph import to_graph
from porter.filegraph.walk import Outputs
from porter.formats.damage import ERRORS_OF_JSON, refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.torch_export import SAVE
from porter.formats.torch_export.aliases import find_changed_uses
from porter.formats.torch_export.archive import FLOATS, TYPES, Archive, read_archive
from porter.formats.torch_export.argument_kinds import expect_kinds
from porter.formats.torch_export.constants import RESHAPES, SIZED, are_same_for_images, is_cast
from porter.formats.torch_export.guards import holds_at_every_size, traced_sizes, why_only_size
from porter.formats.torch_export.moves import VIEWS
from porter.formats.torch_export.nodes import AtenNode, AtenProgram, Sizes, Walk, read_program
from porter.formats.torch_export.ops import READERS
from porter.formats.torch_export.pattern_names import kind_of, operands
from porter.formats.torch_export.program_sizes import SIZES
from porter.formats.torch_export.rewrites import state_cast_types, with_table_rows
from porter.formats.torch_export.writes import replace_writes
from porter.graph import MOST_INPUTS
from porter.graph.walks import downstream, upstream
from porter.padding import ANY, Size

LANGUAGE = "torch-export"

_TAP = "value_"
_CHECKS = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
"""Ops with which a program checks sizes as it runs."""


def read_export(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Read a program of one image: its graph, which ends at `outputs` if any are named, and the tensors of
    its state_dict.

    Args:
        size: of the image, where the program leaves it open.

    Raises:
        FileError: as porter.formats.torch_export.archive.read_archive, or the program is damaged.
        UsageError: the program lacks one of `outputs`.
    """
    archive = read_archive(path)
    with refusing_damage(path, "fetch or export it again", "the program is damaged", ERRORS_OF_JSON):
        graph = _read_archive_graph(archive, path, outputs, size)
    if isinstance(graph, str):
        return Checkpoint(path, "torch-export", "torch", archive.tensors, (f"{UNREAD}: {graph}",))
    graph = replace(graph, traced=graph.built_size is not None, definition=archive.text, language=LANGUAGE)
    note = f"written by torch {archive.program.get('torch_version', 'of an unknown version')}"
    tensors = {**archive.tensors, **graph.evaluated}
    notes = (note, *graph.notes)
    return Checkpoint(path, "torch-export", "torch", tensors, notes, graph=graph)


def _read_archive_graph(
    archive: Archive, path: Path, outputs: Sequence[str], size: Size | None
) -> FileGraph | str:
    """Return the graph of an archive's program, or a sentence about why it is not read. The program is read
    once, and again where that shows that it holds for one size only, or that ops which porter lacks may
    change what other ops use.
    """
    program = _read_program_of(archive, outputs)
    missing = sorted({*program.stored.values()} - archive.tensors.keys())
    if missing:
        raise FileError(f"this archive lacks the tensor '{missing[0]}'", where=path, next=SAVE)
    if bad_input := _find_bad_input(program):
        return bad_input
    arrays = {value: archive.tensors[name] for value, name in program.stored.items()}
    read = partial(_read_graph, program, arrays, most_bytes(path.stat().st_size))
    graph = read(size)
    if not graph.outputs:
        raise FileError(
            "no output of the program depends on the cells of its image",
            where=path,
            next="port a model that computes its outputs from them",
        )
    changed_uses = find_changed_uses(program, READERS)
    if changed_use := _find_certain_use(program, changed_uses, graph):
        return changed_use
    if graph.foreign:
        return read(size, changed_uses) if changed_uses else graph
    # A size that is built in is not looked for again.
    only = None if graph.built_size and not size else _only_size(archive.program, program, graph)
    if only in (None, size):
        return graph
    return replace(read(only), fixed_by=why_only_size(archive.program, program.images[0]))


def _find_certain_use(program: AtenProgram, changed_uses: Mapping[str, str], graph: FileGraph) -> str | None:
    """Return a sentence about a use of a value that an op before it has changed; None if there is none, or
    none that is certain. An op that porter lacks may share memory with what it takes: what would be changed
    then cannot be ported, but another use is wrong even if no such op shares memory.

    Args:
        changed_uses: those that there may be, by the names of nodes.
    """
    if not graph.foreign:
        return next(iter(changed_uses.values()), None)
    # here porter counts as knowing every op
    certain_uses = find_changed_uses(program, {node.op for node in program.nodes.values()})
    return next(iter(certain_uses.values()), changed_uses.get(""))


def _read_program_of(archive: Archive, outputs: Sequence[str]) -> AtenProgram:
    """Return the program that computes these outputs, its own if none are named, with the inputs that they
    need.
    """
    program = with_table_rows(replace_writes(state_cast_types(read_program(archive.program))))
    if outputs:
        names = tuple(name.removeprefix(_TAP) for name in outputs)
        expect_values(names, program.sources)
        program = replace(program, outputs=names)
    return replace(program, images=inputs_among(program, _find_needed(program)) or program.images)


def _find_needed(program: AtenProgram) -> set[str]:
    """Return the names of the nodes that the outputs are computed from."""
    ends = (program.sources[name][0] for name in program.outputs)
    return upstream(ends, lambda name: [source for source, _ in program.nodes[name].inputs])


def inputs_among(program: AtenProgram, needed: Collection[str]) -> tuple[str, ...]:
    """Return the program's inputs among the nodes that are `needed`, images (of four axes) first, the others
    in their order.
    """
    return tuple(
        sorted(
            (name for name in program.images if name in needed),
            key=lambda name: len(program.sizes(name)) != 4,
        )
    )


def _find_bad_input(program: AtenProgram) -> str | None:
    """Return a sentence about why a port cannot take the program's inputs; None if it can."""
    inputs = some([f"'{name}' of {_format_sizes(program.sizes(name))}" for name in program.images]) or "none"
    sizes = [*map(program.sizes, program.images)]
    if not sizes or len(sizes[0]) != 4 or len(sizes) > MOST_INPUTS:
        return f"an image of rank 4 is expected as an input, found {inputs}"
    batch = sizes[0][:1]
    if any(sizes_of_input[:1] != batch for sizes_of_input in sizes):
        return f"inputs of one batch are expected, found {inputs}"
    # Of a further map the channels, of another tensor all sizes but the batch.
    further_sizes = chain(*(axes[1:2] if len(axes) == 4 else axes[1:] for axes in sizes[1:]))
    if any(isinstance(size, str) for size in further_sizes):
        return f"beside the image, inputs of known channels or sizes are expected, found {inputs}"
    computed_with = next((name for name in program.images if not _becomes_real(program, name)), None)
    if computed_with is None:
        return None
    return f"the model computes with the whole numbers of its input '{computed_with}'"


def _becomes_real(program: AtenProgram, image: str) -> bool:
    """Return whether an input has real numbers, or whole ones that are only moved until an op gives real ones
    of them, and that are no output before: torch casts what such an op takes.
    """
    needed = _find_needed(program)
    # The input and what it was moved to, as long as these are whole numbers.
    whole_values = set() if program.types[image] in FLOATS else {image}
    for node in program.nodes.values():
        reads_whole = node.name in needed and any(source in whole_values for source, _ in node.inputs)
        gives_real = program.types.get(node.name) in FLOATS
        if reads_whole and node.op not in SIZES and not gives_real:
            if node.op not in VIEWS:
                return False
            whole_values.add(node.name)
    return whole_values.isdisjoint(program.sources[name][0] for name in program.outputs)


def _format_sizes(sizes: Sizes) -> str:
    return "x".join(map(str, sizes)) or "one number"


def _only_size(program_fields: Mapping[str, Any], program: AtenProgram, graph: FileGraph) -> Size | None:
    """Return rows and columns that a program of open sizes was traced with, if it holds for them only; None
    if it holds for all, or does not say what it was traced with.
    """
    traced = traced_sizes(program_fields, program.images[0])
    if traced is None:
        return None
    size = traced[2], traced[3]
    # Such a check lets other sizes fail.
    if any(node.op in _CHECKS for node in program.nodes.values()):
        return size
    if graph.built_size:
        return None
    translated = to_graph(replace(graph, size=size), keep_activation=True).graph
    return None if holds_at_every_size(program_fields, program.images[0], traced, translated) else size


def _read_graph(
    program: AtenProgram,
    arrays: NamedArrays,
    budget: int,
    only: Size | None = None,
    foreign: Mapping[str, str] = {},
) -> FileGraph:
    """Build the graph of a program for images of any size, or of the `only` one.

    Args:
        budget: as in Dataflow.
        foreign: why nodes cannot be ported, by name.
    """
    # Live nodes are those that the outputs need and that depend on an image; all others are constants.
    dependent = downstream(program.nodes, lambda name: _live_inputs(program.nodes, name), program.images)
    live = _find_needed(program) & dependent
    nodes = _without_size_inputs(program.nodes, live)
    flow = Dataflow(
        nodes,
        live,
        Arrays({**arrays, **program.numbers}),
        Operators(kind_of, is_cast, RESHAPES, operands, repeats=partial(_repeats_for_images, nodes)),
        budget=budget,
    )
    first, *others = program.images
    further = {name: _graph_input(name, program.sizes(name), None) for name in others}
    # A tap is the name under which an engine gives a value.
    taps = {source: name for name, source in program.sources.items()}
    walk = begin(flow, _graph_input(first, program.sizes(first), only), arrays, taps.get, further)
    read = partial(_read_node, foreign)
    read_nodes(walk, lambda op: read if op in READERS else None)
    outputs = {tap_of(name): program.sources[name] for name in program.outputs}
    graph = finish(walk, outputs.values(), outputs)
    if len(graph.further_inputs) < len(further):
        raise FileError(
            "the program takes only the size of one of its inputs",
            next="port a model whose forward does without it",
        )
    names = {**program.stored, **{name: f"{name} (computed)" for name in flow.evaluated}}
    graph = replace(
        graph,
        halves=_half_types(program, live),
        evaluated={names[name]: array for name, array in flow.evaluated.items()},
    )
    return with_scope_names(_with_names_of_file(graph, names), _titles_by_module(graph, nodes))


def _without_size_inputs(nodes: Mapping[str, AtenNode], live: Collection[str]) -> dict[str, AtenNode]:
    """Return the nodes without inputs that constants do not need: one that is repeated for each image needs
    no number of images (`are_same_for_images`), and one that is resized no size of a map.

    Args:
        live: the names of the nodes that depend on the image; all others are constants.
    """

    def without_sizes(node: AtenNode) -> AtenNode:
        """Return a constant's node without the sizes that it reads; others as they are."""
        if node.op not in SIZED or node.name in live:
            return node
        return replace(
            node, inputs=tuple(source for source in node.inputs if nodes[source[0]].op not in SIZES)
        )

    return {name: without_sizes(node) for name, node in nodes.items()}


def _read_node(foreign: Mapping[str, str], walk: Walk, node: AtenNode) -> Outputs:
    """Return what a node gives. Raise Unsupported if porter has no op for it, or if its constants differ by
    image.

    Args:
        foreign: why nodes cannot be ported, by name.
    """
    if node.name in foreign:
        raise Unsupported(f"since {foreign[node.name]}")
    nodes = walk.flow.nodes
    expect_kinds(node, nodes)
    outputs = READERS[node.op](walk, node)
    values = outputs if isinstance(outputs, Sequence) else [outputs]
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if arrays and not are_same_for_images(nodes, node, arrays):
        raise Unsupported("of constants that differ by image")
    return outputs


def _titles_by_module(graph: FileGraph, nodes: Mapping[str, AtenNode]) -> dict[str, str]:
    """Return titles for a graph's nodes, by their names: the paths of their modules (`layer1/0/conv1`), and
    their ops where one module has several.
    """
    # The second value of the split `chunk` is `chunk:1`, and of the same module.
    owners = {node.name: node.name.partition(":")[0] for node in graph.nodes}
    by_name = {name: nodes[owner] for name, owner in owners.items() if owner in nodes}
    # No part of a torch module can be called `to`, which is a method of all modules.
    words = {name: "moved" if node.op == "to" else node.op for name, node in by_name.items()}
    paths = {name: (*filter(None, node.module.split(".")), words[name]) for name, node in by_name.items()}
    return node_titles(paths, words)


def _half_types(program: AtenProgram, live: Collection[str]) -> tuple[Dtype, ...]:
    """Return the types of half precision that values of the network have, or that torch.autocast computes
    in.

    Args:
        live: the names of the nodes that depend on the image.
    """
    kinds = {program.nodes[name].autocast_type for name in live}
    kinds |= {program.types.get(value) for value, (name, _) in program.sources.items() if name in live}
    return tuple(half for half in HALVES if half in {TYPES.get(kind or 0) for kind in kinds})


def _graph_input(name: str, sizes: Sizes, only: Size | None) -> GraphInput:
    """Return the graph's input for an input of the program: a map, of the `only` size if there is one, or
    another tensor of a batch.
    """
    batch, *shape = (size if isinstance(size, int) else None for size in sizes)
    if len(shape) != 3:
        return GraphInput((name, 0), 1, ANY, batch, "CHW", shape=tuple(shape))
    rows, columns = only or (shape[1], shape[2])
    return GraphInput((name, 0), shape[0] or 3, (rows, columns), batch, "CHW", None not in (rows, columns))


def _repeats_for_images(nodes: Mapping[str, AtenNode], node: AtenNode) -> bool:
    """Return whether an expand, a repeat or a tile repeats along the first axis only, or adds one, as (1, 3,
    4) and (3, 4) become (s0, 3, 4); False for other nodes.
    """
    if node.op not in ("expand", "repeat", "tile") or not node.sizes or not nodes[node.source[0]].sizes:
        return False
    name, output = node.source
    sizes, sizes_before = node.sizes[0], (*nodes[name].sizes, ())[output]
    further_axes = len(sizes) - 1
    keeps_further_axes = sizes[1:] == sizes_before[-further_axes:]
    # Before, the first axis had one cell, or it is new.
    repeats_first_axis = sizes_before[:-further_axes] in ((), (1,))
    return keeps_further_axes and len(sizes_before) in (further_axes, len(sizes)) and repeats_first_axis


def _live_inputs(nodes: Mapping[str, AtenNode], name: str) -> list[str]:
    """Return the names of the nodes that a node computes with, and whose pixels it depends on: all that it
    reads, but no sizes, unless it is itself an op of sizes. A constant that is repeated as often as the
    image's size says so stays a constant.
    """
    sources = [source for source, _ in nodes[name].inputs]
    if nodes[name].op in SIZES:
        return sources
    return [source for source in sources if nodes[source].op not in SIZES]


def _with_names_of_file(graph: FileGraph, stored: Mapping[str, str]) -> FileGraph:
    """Return the graph with the state_dict's names of tensors, and with taps (the names under which engines
    give values) that can be names of modules too.

    Args:
        stored: the state_dict's name of each tensor, by the program's.
    """

    def rename(node: FileNode) -> FileNode:
        """Return a node with the file's names of its tensors, and with its taps as they can be shown."""
        op = node.op
        if isinstance(op, Foreign):
            op = replace(op, reads=tuple(name and tap_of(name) for name in op.reads))
        tensors = {role: replace(tensor, name=stored[tensor.name]) for role, tensor in node.tensors.items()}
        return replace(node, op=op, tap=node.tap and tap_of(node.tap), tensors=tensors)

    return replace(graph, nodes=tuple(map(rename, graph.nodes)))


def tap_of(name: str) -> str:
    """Return the name of a value as a tap: torch's modules have attributes, such as `to`, that their parts
    cannot be named after. A tap is the name under which an engine gives a value.
    """
    return f"{_TAP}{name}"

"""A file that carries its graph, opened by itself: as the variant whose graph it has, otherwise under its own names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from porter.errors import MappingError, PorterError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.to_graph import Translated, to_graph
from porter.files import Digests
from porter.fitting.fit import OWN_GRAPH, Fit, some
from porter.formats.recognition import is_there
from porter.frameworks import runner_of
from porter.graph import Conv, Dense, Graph, shapes, tensor_shapes
from porter.padding import ANY, Size
from porter.port import port_at
from porter.port.recipe import recipe_of
from porter.recipe import declared_recipes, recipes_option
from porter.source.blocks import under_paths, with_blocks
from porter.source.matching import Match, rank
from porter.source.opened import Opened, open_checkpoint, open_fit, open_port
from porter.source.weights import read_weights

PROBE = (224, 224)
"""Rows and columns at which a graph of any size is looked at."""


def open_file(
    file: Path, size: Size | None = None, recipes: Path | None = None, keep_background: bool = False, keep_activation: bool = False
) -> Opened:
    """Opens a file by its own graph, or a port.

    Where a variant's graph is the file's, the recipe's paths, labels and protocol are used.

    Args:
        size: from `--input-size`, for a file that states no input size.
        keep_activation: keep the softmax or the sigmoid that gives the file's only output; no recipe is used then.

    Raises:
        UsageError: the file carries no graph, or neither it nor `size` states an input size.
        MappingError: porter has no op for a part of the graph.
        FileError: the file cannot be read.
    """
    port = port_at(file)
    if port is not None:
        record, recipe = port.record, recipe_of(port.record, recipes)
        if recipe is None or record.variant is None or record.zoo is None:
            return open_port(port, None)
        return open_port(port, recipe.member(record.variant, record.zoo))
    checkpoint, files = read_weights(file, with_md5=True)
    if checkpoint.graph is None:
        raise no_graph(checkpoint, recipes)
    if keep_activation:
        return translated(checkpoint, files, size, keep_activation)
    ranked = rank(checkpoint, recipes)
    left_out = tuple(f"this recipe was left out: {fault}" for fault in ranked.faults)
    found, _ = open_likeliest(checkpoint, files, ranked.likely, keep_background)
    try:
        opened = found[1] if found is not None else translated(checkpoint, files, size)
    except PorterError as error:  # the recipe may be the one that was meant for this file
        error.next = "; ".join(filter(None, (error.next, *left_out)))
        raise
    notes = [f"it is {opened.member.name}: the recipe's names, labels and protocol are used"] if opened.member else []
    notes += [f"its {opened.activation} is taken off: --keep-activation keeps it"] if opened.activation else []
    noted = opened.file.model_copy(update={"notes": (*opened.file.notes, *notes)})
    return replace(opened, file=noted, warnings=(*left_out, *opened.warnings))


def expect_file(subject: str, recipes: Path | None, needing: Sequence[str] = ()) -> Path:
    """The file that a command names in place of a variant.

    Args:
        needing: options that were given and that need a recipe.

    Raises:
        UsageError: there is no such file, or such options were given.
    """
    file = Path(subject)
    if not is_there(file):
        variant = any(subject in recipe.variants for recipe in declared_recipes(recipes))
        expected = "porter convert VARIANT --from ZOO --to FRAMEWORK, or porter convert FILE --to FRAMEWORK"
        next = f"add --from ZOO: porter recipe show {subject} lists its zoos" if variant else expected
        raise UsageError(f"'{subject}' is {'a variant without its zoo' if variant else 'no file'}", next=next)
    if needing:
        wanted = "porter convert VARIANT --from ZOO --to FRAMEWORK --weights FILE"
        raise UsageError(f"{needing[0]} needs a recipe's variant", where=needing[0], next=wanted)
    return file


def open_likeliest(
    checkpoint: Checkpoint, files: Digests, matches: Sequence[Match], keep_background: bool = False
) -> tuple[tuple[Match, Opened] | None, list[tuple[Match, PorterError]]]:
    """The match whose graph differs least from the file's, with the file opened as it, and the errors of matches that it is not."""
    found: list[tuple[Match, Opened]] = []
    problems: list[tuple[Match, PorterError]] = []
    for match in matches:
        try:
            found.append((match, open_as(checkpoint, files, match, keep_background=keep_background)))
        except PorterError as error:
            problems.append((match, error))
        if found and not _unlike(found[-1][1]):
            break
    return min(found, key=lambda each: _unlike(each[1]), default=None), problems


def _unlike(opened: Opened) -> int:
    return opened.fit.differences + len(opened.fit.folded) if opened.fit else 0


def open_as(
    checkpoint: Checkpoint,
    files: Digests,
    match: Match,
    settings: tuple[str, ...] = (),
    keep_background: bool = False,
) -> Opened:
    """The file opened as a match; if another zoo publishes exactly this file, opened as that zoo's."""
    found = open_checkpoint(match.member, checkpoint, files, keep_background, settings)
    assert found.member is not None
    again = found.member.name != match.member.name
    return open_checkpoint(found.member, checkpoint, files, keep_background, settings) if again else found


def translation(checkpoint: Checkpoint, size: Size | None, keep_activation: bool = False) -> tuple[Translated, tuple[int, int]]:
    """A file's graph as porter's own, and the rows and columns that it was built for, otherwise `size`.

    Raises:
        UsageError, MappingError: as `open_file`.
    """
    file, where = checkpoint.graph, str(checkpoint.path)
    assert file is not None
    asked = PROBE if size == ANY else size or ANY
    rows, columns = asked if None in file.size else file.size
    if rows is None or columns is None:
        next = "add --input-size N, or any for pads that are computed from the size"
        raise UsageError("the file states no input size", where=where, next=next)
    try:
        found = to_graph(replace(file, size=(rows, columns)), keep_activation)
    except MappingError as error:
        raise MappingError(error.message, where=f"{where}: {error.where}" if error.where else where, next=error.next) from None
    return found, (rows, columns)


def translated(
    checkpoint: Checkpoint,
    files: Digests,
    size: Size | None,
    keep_activation: bool = False,
    names: Mapping[str, str] | None = None,
) -> Opened:
    """A file opened with its own graph.

    Args:
        names: by path, the file's own names, for the paths of a port; None for paths that show the graph's blocks.

    Raises:
        UsageError, MappingError: as `open_file`.
    """
    found, built = translation(checkpoint, size, keep_activation)
    found, names = with_blocks(found) if names is None else (under_paths(found, names), names)
    framework = runner_of(checkpoint)
    assert framework is not None, "a reader gives a graph only if a framework runs it"
    assert checkpoint.graph is not None
    opened = open_fit(_fit(checkpoint, found, built), checkpoint, files, framework, built)
    return replace(opened, names=names, output_names=checkpoint.graph.output_names)


def _fit(checkpoint: Checkpoint, found: Translated, size: tuple[int, int]) -> Fit:
    file, graph, wanted = checkpoint.graph, found.graph, tensor_shapes(found.graph)
    assert file is not None
    stored = {
        (path, role): tensor
        for path, name in found.names.items()
        for role, tensor in file.by_name[name].tensors.items()
        if role in wanted.get(path, {})
    }
    lacking = [f"{path}:{role}" for path, roles in wanted.items() for role in roles if (path, role) not in stored]
    if lacking:
        raise MappingError(f"the file's graph names no tensors for {some(lacking)}", where=str(checkpoint.path))
    unused = "the file's outputs do not need it, or its numbers are constants of the graph"
    return Fit(
        graph=graph,
        found={place: tensor.name for place, tensor in stored.items()},
        stored=stored,
        ignored=dict.fromkeys(sorted(checkpoint.tensors.keys() - {tensor.name for tensor in stored.values()}), unused),
        source_classes=classes_of(graph, size, found.activation),
        head=found.names[graph.output],
        activation=found.activation,
        taps={path: tap for path, name in found.names.items() if (tap := file.by_name[name].tap)},
        notes=(OWN_GRAPH,),
    )


def classes_of(graph: Graph, size: tuple[int, int], activation: str | None) -> int:
    """The number of classes if the only output has one value for each; 0 for maps, features and several outputs.

    What gives them is a dense layer, which may stand as a convolution of one cell, or anything before a softmax or a sigmoid.
    """
    known = shapes(graph, size)
    if graph.further or len(known[graph.output]) != 1:
        return 0
    node = graph.by_path[graph.output]
    while not isinstance(node.op, Conv | Dense) and len(node.inputs) == 1 and node.inputs[0] in graph.by_path:
        if known[node.inputs[0]][0] != known[node.path][0]:
            break
        node = graph.by_path[node.inputs[0]]
    dense = isinstance(node.op, Dense) or (isinstance(node.op, Conv) and known[node.path][1:] == (1, 1))
    return (known[graph.output][0] or 0) if activation or dense else 0


def no_graph(checkpoint: Checkpoint, recipes: Path | None) -> UsageError:
    advice = "porter inspect FILE says what it could be"
    for best in rank(checkpoint, recipes).likely[:1]:
        recipe, variant, zoo = best.member
        words = (variant, "--from", zoo.name, "--to", "FRAMEWORK", "--weights", str(checkpoint.path))
        advice = shlex.join(("porter", "convert", *words, *recipes_option(recipe, recipes)))
    said = f" ({'; '.join(checkpoint.notes)})" if checkpoint.notes else ""
    message = f"this file holds tensors and no graph{said}, so a recipe has to say what they are"
    return UsageError(message, where=str(checkpoint.path), next=advice)

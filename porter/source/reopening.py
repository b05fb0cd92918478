"""What a port was made from, found again: its recipe's variant, and its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.base.errors import DownloadError, UsageError
from porter.base.options import WEIGHTS
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_with_digests
from porter.port import IN_MEMORY, RECORD, Record, StoredPort
from porter.recipe import Member, choose_options
from porter.source.by_recipe import open_candidate
from porter.source.dropouts import has_dropouts, with_dropouts
from porter.source.file_pair import digest_of
from porter.source.fitting.candidate import Candidate, needs_md5
from porter.source.from_port import find_member_of, open_port
from porter.source.in_memory import ModelWeights, checkpoint_of_variables, save_and_read
from porter.source.library_model import build_by_library
from porter.source.opened import Opened
from porter.source.own_graph import open_graph
from porter.source.place import (
    File,
    FilePair,
    InMemory,
    Place,
    PortFolder,
    TrainedPort,
    file_at,
    find,
    find_pair,
    find_weights,
)
from porter.source.reading import read
from porter.source.trained_port import graph_file, open_trained
from porter.source.training_pads import with_padding
from porter.source.wishes import Wishes


def reopen_source(port: StoredPort, weights: ModelWeights | None, recipes: Path | None) -> Opened:
    """Open the source of a port again, as the port records that it was opened, and return it. It is in
    `weights` (the file, or the model in memory, that the port was made from), or in the zoo's published file
    if `weights` is None. It has its dropouts if the port has them.

    Raises:
        UsageError: the port was made from other weights; or none are given, and it was not made from the
            zoo's published ones.
    """
    opened = _reopen(port, weights, recipes)
    if has_dropouts(port.graph) and not has_dropouts(opened.graph):
        return with_dropouts(opened)
    return opened


def _reopen(port: StoredPort, weights: ModelWeights | None, recipes: Path | None) -> Opened:
    """Return the source of a port as it was opened, without the dropouts that a port may keep.

    Raises:
        UsageError: the port was made from other weights; or none are given, and it was not made from the
            zoo's published ones, or does not record whether it was.
    """
    record, member = port.record, find_member_of(port.record, recipes)
    if weights is None:
        _expect_published(port, member)
    wishes = _recorded_wishes(port, member)
    opened = _open_at(_find_source(port, member, weights), record, member, wishes)
    return with_padding(opened, record.padding)


def _find_source(port: StoredPort, member: Member | None, weights: ModelWeights | None) -> Place:
    """Return where the source of a port is: a model in memory, the file or port at `weights`, or the zoo's
    published file. A file whose graph was taken is found by its name: beside the weights, in the folder above
    theirs, or in the working folder.

    Raises:
        UsageError: the file with the graph is in none of these folders.
        DownloadError: the published file cannot be fetched.
    """
    source = port.record.source
    if weights is None:
        assert member is not None, "a zoo publishes it"
        try:
            return find_weights(member, None)
        except DownloadError as error:
            advice = f"give {WEIGHTS} the {source.file} that the port was made from"
            raise error.at(error.where, f"{advice}, or {error.next}") from None
    if not isinstance(weights, Path):
        return InMemory(weights)
    if source.graph is None:
        return find(weights)
    tensors, name = file_at(weights).path, source.graph.file
    folders = (tensors.parent, tensors.resolve().parent.parent, Path())
    graph = next((folder / name for folder in folders if (folder / name).exists()), None)
    if graph is None:
        message = f"the port's graph is that of {name}, which is not beside {tensors.name}"
        raise UsageError(message, where=str(port.folder), next=f"put {name} beside {tensors.name}")
    return find_pair(graph, tensors)


def _open_at(place: Place, record: Record, member: Member | None, wishes: Wishes) -> Opened:
    """Open what is at a place, with the recorded options, and return it. Each kind of place is first compared
    with the digests that the port records.

    Raises:
        UsageError: the port was made from another file or graph.
    """
    ended_at, size = record.ended_at, record.input.native_size
    match place:
        case InMemory(model):
            exported = save_and_read(model, None, ended_at, size)
            # A port with a recipe was made from the variables, if the model's graph has foreign ops.
            variables = checkpoint_of_variables(exported) if member is not None else None
            checkpoint = variables or exported.checkpoint
            _expect_same_file(record, checkpoint.sha256, exported.saved.name, "model")
            return replace(_open_checkpoint(checkpoint, record, member, wishes), in_memory=exported.saved)
        case PortFolder(source_port):
            file = source_port.destination.MODEL_FILE
            _expect_same_file(record, source_port.record.model[file], source_port.folder / file)
            return open_port(source_port, member)
        case TrainedPort(source_port, tensors):
            checkpoint = read_with_digests(tensors)
            _expect_same_file(record, checkpoint.sha256, tensors)
            _expect_graph(record, graph_file(source_port).sha256, source_port.folder, tensors)
            return open_trained(source_port, checkpoint, member)
        case FilePair(graph, tensors):
            checkpoint = read(place, ended_at, size)
            _expect_same_file(record, digest_of(checkpoint, tensors), tensors)
            _expect_graph(record, checkpoint.digests[graph.path]["sha256"], graph.path, tensors)
            return _open_checkpoint(checkpoint, record, member, wishes)
        case File(path):
            checkpoint = read(place, ended_at, size, md5=member is not None and needs_md5(member))
            _expect_same_file(record, checkpoint.sha256, path)
            built = None
            if record.source.built_by is not None:
                # The library of the file's folder builds the network again.
                built = build_by_library(checkpoint, ended_at, size)
            if built is None:
                opened = _open_checkpoint(checkpoint, record, member, wishes)
            else:
                opened = built.as_model(_open_checkpoint(built.checkpoint, record, member, wishes))
            return replace(opened, warnings=(*place.warnings, *opened.warnings))


def _expect_graph(record: Record, sha256: str, where: Path, weights: Path) -> None:
    """Refuse another file with a graph than the one that the port was made from.

    Args:
        sha256: of the file that is there.
        where: its path, for errors.
        weights: the file of tensors, beside which the right one belongs.
    """
    expected = record.source.graph
    assert expected is not None, "two files are looked for where a port was made from two"
    if sha256 != expected.sha256:
        message = (
            f"the port's graph is that of another {expected.file}: its sha256 is {sha256[:12]}..., not "
            f"{expected.sha256[:12]}..."
        )
        raise UsageError(message, where=str(where), next=f"put that {expected.file} beside {weights.name}")


def _expect_published(port: StoredPort, member: Member | None) -> None:
    """Refuse to reopen a port without weights if it was not made from a file that the zoo publishes. The
    error says what it was made from, and how to give that.
    """
    record, source = port.record, port.record.source
    # None where the port does not record it.
    published = source.is_published(member.file) if member else False
    if published:
        return
    made_from = f"{source.file}, sha256 {source.sha256}"
    advice = f"add {WEIGHTS} with {source.file}"
    if source.format == "port":
        made_from = "another port"
        advice = f"add {WEIGHTS} with that port"
    if IN_MEMORY in source.notes:
        made_from = f"the model {source.file} in memory"
        advice = "in Python, porter.verify(DIR, weights=MODEL) takes the model"
    elif published is None:
        made_from = f"{made_from}, and does not record whether the zoo publishes it"
        advice = f"{advice}, or convert again"
    elif source.format != "port" and record.variant is not None:
        made_from = f"{made_from}, which the zoo does not publish"
    raise UsageError(f"this port was made from {made_from}", where=str(port.folder), next=advice)


def _recorded_wishes(port: StoredPort, member: Member | None) -> Wishes:
    """Return the wishes with which the source was opened, as the port records them: with a recipe its
    background, mapping and options, otherwise the size, the outputs and the activation.

    Raises:
        UsageError: the recipe has no longer the recorded options.
    """
    record = port.record
    if member is None:
        return Wishes(
            size=record.input.native_size, keep_activation=record.activation is None, outputs=record.ended_at
        )
    try:
        chosen = choose_options(member.recipe, record.chosen)
    except UsageError as error:
        where = f"{port.folder / RECORD}: chosen"
        raise error.at(where, "convert again, if the recipe has changed") from None
    return Wishes(record.background, record.mapped, chosen)


def _expect_same_file(record: Record, sha256: str, where: Path | str, given: str = "file") -> None:
    """Refuse another file of weights, or another model, than the one that the port was made from.

    Args:
        sha256: of what is there.
        where: its path or name, for errors.
        given: what errors call it.
    """
    source = record.source
    if sha256 != source.sha256:
        message = (
            f"the port was made from {source.file}, sha256 {source.sha256[:12]}..., not from this {given}, "
            f"{sha256[:12]}..."
        )
        next = f"give {WEIGHTS} the {source.file} that the port was made from"
        if IN_MEMORY in source.notes:
            next = f"in Python, give weights the model {source.file} that the port was made from"
        raise UsageError(message, where=str(where), next=next)


def _open_checkpoint(checkpoint: Checkpoint, record: Record, member: Member | None, wishes: Wishes) -> Opened:
    """Open the file of a port's source, as read: as the recipe's variant, or for a port without a recipe by
    the file's own graph, under the names that the port records.

    Raises:
        UsageError: the port has no recipe, and the file no graph.
    """
    if member is not None:
        return open_candidate(Candidate.of(member, checkpoint), wishes)
    if checkpoint.graph is None:
        raise UsageError(
            "expected a file that carries its graph, as the port's source does, got one without",
            where=str(checkpoint.path),
            next=f"give {WEIGHTS} the file that the port was made from",
        )
    return open_graph(checkpoint, wishes, record.names)

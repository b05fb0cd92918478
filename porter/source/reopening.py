"""What a port was made from, found again: its recipe's variant, and its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.base.errors import DownloadError, UsageError
from porter.base.options import WEIGHTS
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_weights
from porter.port import IN_MEMORY, RECORD, Record, StoredPort
from porter.recipe import Member, choose_options
from porter.source.by_recipe import open_candidate
from porter.source.dropouts import has_dropouts, with_dropouts
from porter.source.file_pair import digest_of
from porter.source.fitting.candidate import Candidate, needs_md5
from porter.source.from_port import member_of, open_port
from porter.source.in_memory import ModelWeights, by_variables, export
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


def source_of(port: StoredPort, weights: ModelWeights | None, recipes: Path | None) -> Opened:
    """The source of a port, opened again: `weights`, a file or the model in memory that it was made from, or
    the zoo's published file; with its dropouts if the port has them.

    Raises:
        UsageError: as `_opened_again`.
    """
    opened = _opened_again(port, weights, recipes)
    return with_dropouts(opened) if has_dropouts(port.graph) and not has_dropouts(opened.graph) else opened


def _opened_again(port: StoredPort, weights: ModelWeights | None, recipes: Path | None) -> Opened:
    """The source of a port without what is put into it.

    Raises:
        UsageError: the port was made from other weights; or none are given, and it was not made from the
            zoo's published ones, or does not record whether it was.
    """
    record, member = port.record, member_of(port.record, recipes)
    if weights is None:
        _expect_published(port, member)
    wishes = _wishes_of(port, member)
    opened = _at(_place(port, member, weights), record, member, wishes)
    return with_padding(opened, record.padding)


def _place(port: StoredPort, member: Member | None, weights: ModelWeights | None) -> Place:
    """Where the source of a port is. A file whose graph was taken is found by its name: beside the weights,
    above them, or here.
    """
    source = port.record.source
    if weights is None:
        assert member is not None, "a zoo publishes it"
        try:
            return find_weights(member, None)
        except DownloadError as error:
            given = f"give {WEIGHTS} the {source.file} that the port was made from"
            raise error.at(error.where, f"{given}, or {error.next}") from None
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


def _at(place: Place, record: Record, member: Member | None, wishes: Wishes) -> Opened:
    """Opens what is at a place, if a port was made from it."""
    ended_at, size = record.ended_at, record.input.native_size
    match place:
        case InMemory(model):
            exported = export(model, None, ended_at, size)
            checkpoint = (by_variables(exported) if member is not None else None) or exported.checkpoint
            _expect_same(record, checkpoint.sha256, exported.saved.name)
            return replace(_again(checkpoint, record, member, wishes), in_memory=exported.saved)
        case PortFolder(first):
            file = first.destination.MODEL_FILE
            _expect_same(record, first.record.model[file], first.folder / file)
            return open_port(first, member)
        case TrainedPort(first, tensors):
            checkpoint = read_weights(tensors)
            _expect_same(record, checkpoint.sha256, tensors)
            _expect_graph(record, graph_file(first).sha256, first.folder, tensors)
            return open_trained(first, checkpoint, member)
        case FilePair(graph, tensors):
            checkpoint = read(place, ended_at, size)
            _expect_same(record, digest_of(checkpoint, tensors), tensors)
            _expect_graph(record, checkpoint.digests[graph.path]["sha256"], graph.path, tensors)
            return _again(checkpoint, record, member, wishes)
        case File(path):
            checkpoint = read(place, ended_at, size, md5=member is not None and needs_md5(member))
            _expect_same(record, checkpoint.sha256, path)
            built = None
            if record.source.built_by is not None:  # its folder's library builds the network again
                built = build_by_library(checkpoint, ended_at, size)
            opened = _again(checkpoint if built is None else built.checkpoint, record, member, wishes)
            opened = opened if built is None else built.marked(opened)
            return replace(opened, warnings=(*place.warnings, *opened.warnings))


def _expect_graph(record: Record, found: str, where: Path, weights: Path) -> None:
    """Expects the file with the graph that the port was made from."""
    whose = record.source.graph
    assert whose is not None, "two files are looked for where a port was made from two"
    if found != whose.sha256:
        message = (
            f"the port's graph is that of another {whose.file}: its sha256 is {found[:12]}..., not "
            f"{whose.sha256[:12]}..."
        )
        raise UsageError(message, where=str(where), next=f"put that {whose.file} beside {weights.name}")


def _expect_published(port: StoredPort, member: Member | None) -> None:
    """Refuses a port that was not made from a published file."""
    record, source = port.record, port.record.source
    published = source.is_published(member.file) if member else False
    if published:
        return
    made, given = f"{source.file}, sha256 {source.sha256}", f"add {WEIGHTS} with {source.file}"
    if source.format == "port":
        made, given = "another port", f"add {WEIGHTS} with that port"
    if IN_MEMORY in source.notes:
        made = f"the model {source.file} in memory"
        given = "in Python, porter.verify(DIR, weights=MODEL) takes the model"
    elif published is None:
        made, given = (
            f"{made}, and does not record whether the zoo publishes it",
            f"{given}, or convert again",
        )
    elif source.format != "port" and record.variant is not None:
        made = f"{made}, which the zoo does not publish"
    raise UsageError(f"this port was made from {made}", where=str(port.folder), next=given)


def _wishes_of(port: StoredPort, member: Member | None) -> Wishes:
    """What the user wished of the source."""
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


def _expect_same(record: Record, sha256: str, where: Path | str) -> None:
    """Expects the file of weights that the port was made from."""
    if sha256 != record.source.sha256:
        raise UsageError(
            f"the port was made from {record.source.file}, sha256 {record.source.sha256[:12]}..., not "
            "from this file, "
            f"{sha256[:12]}...",
            where=str(where),
            next=f"give {WEIGHTS} the {record.source.file} that the port was made from",
        )


def _again(checkpoint: Checkpoint, record: Record, member: Member | None, wishes: Wishes) -> Opened:
    """The source of a port, from its file."""
    if member is not None:
        return open_candidate(Candidate.of(member, checkpoint), wishes)
    if checkpoint.graph is None:
        raise UsageError(
            "expected a file that carries its graph, as the port's source does, got one without",
            where=str(checkpoint.path),
            next=f"give {WEIGHTS} the file that the port was made from",
        )
    return open_graph(checkpoint, wishes, record.names)

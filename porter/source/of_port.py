"""The source that a port was made from, opened again."""

from __future__ import annotations

from pathlib import Path

from porter.errors import DownloadError, UsageError
from porter.port import RECORD, Port, Record, port_at
from porter.port.recipe import recipe_of
from porter.recipe import Member, choose_options
from porter.source.from_file import translated
from porter.source.opened import Opened, open_port, open_source
from porter.source.trained import with_padding
from porter.source.weights import read_weights


def source_of(port: Port, weights: Path | None, recipes: Path | None) -> Opened:
    """The source of a port, opened again: `weights`, or the zoo's published file.

    Raises:
        UsageError: the port was made from other weights; or none are given, and it was not made from the zoo's published ones, or
            does not record whether it was.
    """
    record, recipe = port.record, recipe_of(port.record, recipes)
    if recipe is None or record.variant is None or record.zoo is None:
        opened = _file_again(port, weights)
    else:
        opened = _weights_again(port, recipe.member(record.variant, record.zoo), weights)
    if opened.file.sha256 != record.source.sha256:
        raise UsageError(
            f"the port was made from {record.source.file}, sha256 {record.source.sha256[:12]}..., not from this file, "
            f"{opened.file.sha256[:12]}...",
            where=str(weights or opened.file.file),
            next=f"give --weights the {record.source.file} that the port was made from",
        )
    return opened


def _file_again(port: Port, weights: Path | None) -> Opened:
    """The source of a port that was made without a recipe."""
    record = port.record
    if weights is None:
        made, given = _made_from(record)
        raise UsageError(f"this port was made from {made}", where=str(port.folder), next=given)
    beside = port_at(weights)
    if beside is not None:
        return open_port(beside, None)
    checkpoint, files = read_weights(weights, with_md5=False)
    if checkpoint.graph is None:
        raise UsageError("this file carries no graph, and the port was made from one", where=str(weights))
    return translated(checkpoint, files, record.input.native_size, record.activation is None, record.names)


def _weights_again(port: Port, member: Member, weights: Path | None) -> Opened:
    """The source of a port of a recipe's variant."""
    record = port.record
    published = record.source.is_published(member.file)
    if weights is None and not published:
        made, given = _made_from(record)
        if published is None:
            made, given = f"{made}, and does not record whether the zoo publishes it", f"{given}, or convert again"
        elif record.source.format != "port":
            made = f"{made}, which the zoo does not publish"
        raise UsageError(f"this port was made from {made}", where=str(port.folder), next=given)
    try:
        chosen = choose_options(member.recipe, record.chosen)
    except UsageError as error:
        where = f"{port.folder / RECORD}: chosen"
        raise UsageError(error.message, where=where, next="convert again, if the recipe has changed") from None
    try:
        opened = open_source(member, weights, record.background, record.mapped, chosen)
    except DownloadError as error:
        given = f"give --weights the {record.source.file} that the port was made from"
        raise DownloadError(error.message, where=error.where, next=f"{given}, or {error.next}") from None
    return with_padding(opened, record.padding)


def _made_from(record: Record) -> tuple[str, str]:
    """What a port was made from, and how to give it."""
    if record.source.format == "port":
        return "another port", "add --weights with that port"
    return f"{record.source.file}, sha256 {record.source.sha256}", f"add --weights with {record.source.file}"

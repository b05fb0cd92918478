"""Opens the source of a port: a weights file as a variant, or another port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from porter.base.commands import CONVERT, FRAMEWORK
from porter.base.errors import MappingError, UsageError
from porter.base.left_out import LeftOut
from porter.base.options import KEEP_ACTIVATION, MAP, OPTION, ORIGIN, OUTPUTS
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.frameworks import CONVERTED, other_than
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import INPUT
from porter.padding.sizes import InputSizes, size_text
from porter.port import Facts, Origin, Port, SourceFile, TensorLists
from porter.recipe import Member, assumed_size, with_options
from porter.recipe.transforms import computed
from porter.source.assumed import what_is_assumed
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.by_position import name_by_position
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit, read_tensors
from porter.source.opened import Fitted, Opened
from porter.source.protocol import in_proportion, scaled
from porter.source.wishes import NONE, Wishes


def convert_model_file(port: Port, said: Callable[..., str] = CONVERT.advise) -> str:
    """The command that ports the file of a port's model, which may state no size. `said` is CONVERT.line
    where it is printed to be typed, whoever reads it.
    """
    record, file = port.record, port.folder / port.destination.MODEL_FILE
    size = size_text(record.input.native_size) if record.input.size is None else None
    return said(subject=file, to=other_than(record.framework), input_size=size)


def open_port(port: Port, member: Member | None) -> Opened:
    """A port as the source of another one.

    Args:
        member: what it is a port of; None for a port without a recipe, and where the recipe is not needed.

    Raises:
        UsageError: it is not a port of `member`.
    """
    folder, record = port.folder, port.record
    if member is not None and (record.variant, record.zoo) != member.is_a:
        raise UsageError(
            f"this is a port of {record.name}, not of {member.name}",
            where=str(folder),
            next=CONVERT.advise(
                subject=record.variant or folder,
                source=record.zoo,
                to=FRAMEWORK,
                weights=folder if record.variant else None,
            ),
        )
    if record.framework in CONVERTED:
        raise UsageError(
            f"this port does not keep the source's tensors: {port.destination.MODEL_FILE} holds what the "
            "converter computed from them",
            where=str(folder),
            next=convert_model_file(port),
        )
    tensors = port.tensors()
    for path, seen in record.batches.items():
        tensors.get(path, {})["batches"] = np.array(seen, np.int64)
    used = {f"{path}:{role}": f"{path}:{role}" for path in port.graph.calls for role in tensors.get(path, {})}
    return Opened(
        member=member,
        framework=member.zoo.framework if member else record.framework,
        graph=port.graph,
        facts=Facts(**{**record.facts, "source_classes": record.classes, "evaluated": ()}),
        sizes=record.input.sizes,
        tensors=tensors,
        lists=TensorLists(used=used, ignored={}, filled={}),
        file=SourceFile(
            file=port.destination.MODEL_FILE,
            format="port",
            sha256=record.model[port.destination.MODEL_FILE],
            published=False,
        ),
    )


def open_candidate(candidate: Candidate, wishes: Wishes = NONE, origin: Origin | None = None) -> Opened:
    """A file that is read (porter.formats.reading.read_weights) as a variant of a zoo, or of the zoo that
    publishes this very file.

    Raises:
        UsageError: options of the recipe are wished that the file itself states.
        MappingError: file and graph do not cover each other; `maps` has settings of `--map` that would settle
            it.
    """
    member, checkpoint = candidate.member, candidate.checkpoint
    publisher = candidate.publisher
    if publisher not in (None, member) and publisher.is_a not in candidate.equals:
        publisher = None  # the user insists on a twin of it
    other_zoo = _other_zoo_warning(publisher, member)
    member = publisher or member
    zoo = member.zoo
    if checkpoint.dialect not in (None, zoo.framework):
        message = (
            f"this is a {checkpoint.dialect} file ({checkpoint.format}), and zoo '{zoo.name}' is "
            f"{zoo.framework}'s"
        )
        raise MappingError(message, where=str(checkpoint.path))
    if checkpoint.graph is not None:
        expect_no_options(wishes, str(checkpoint.path), "the file carries its own graph")
    usual, member = member.native_size(), with_options(member, wishes.options)
    candidate, placed = name_by_position(
        candidate if member is candidate.member else Candidate.of(member, checkpoint)
    )
    checkpoint = candidate.checkpoint
    fit = _fit(candidate, wishes)
    recorded = publisher is not None or checkpoint.graph is not None
    opened = of_fit(fit, checkpoint, zoo.framework, member.native_size(), get_dialect(zoo.framework))
    protocol, scaling = scaled(in_proportion(zoo.preprocess, opened.sizes.built, usual), fit.scaling)
    labels = zoo.labels if fit.own_head else None
    return replace(
        opened,
        facts=opened.stating(
            options={**fit.options, "classes": fit.classes},
            preprocess=protocol,
            protocol_by=None if protocol is None else "recipe" if publisher is None else "published",
            labels=labels.name if labels else None,
            class_names=labels.names if labels else (),
            origin=origin,
            twins=candidate.twins,
            licence=publisher.zoo.licence_of(publisher.variant) if publisher else None,
            assumed=() if recorded else what_is_assumed(checkpoint, fit, member.zoo),
        ),
        file=opened.file.model_copy(update={"published": publisher is not None}),
        member=member,
        chosen=wishes.options,
        assumed_size=() if recorded else assumed_size(member.zoo, opened.sizes.built),
        warnings=(*other_zoo, *placed, *fit.warnings, *scaling),
    )


def expect_as_made(port: Port, wishes: Wishes) -> None:
    """Refuses wishes that only the file can grant that the port was made from.

    Raises:
        UsageError: with what was wished.
    """
    expect_no_options(wishes, str(port.folder), "a port's graph is in its port.json")
    if wishes.origin not in (None, port.record.zoo):
        message = f"the port is of {port.record.name}, and {ORIGIN} says {wishes.origin}"
        raise UsageError(
            message, where=str(ORIGIN), next="leave it out, or give the file that the port was made from"
        )
    taken_off = port.record.activation if wishes.keep_activation else None
    if wishes.map or wishes.outputs or taken_off:
        option = str(MAP) if wishes.map else str(OUTPUTS) if wishes.outputs else str(KEEP_ACTIVATION)
        reason = (
            f"the port was made without the {taken_off} of its source"
            if taken_off
            else "a port has the layers that it was made with"
        )
        next = f"leave out {option}, or convert {port.record.source.file}, which the port was made from"
        raise UsageError(reason, where=option, next=next)


def expect_no_options(wishes: Wishes, where: str, reason: str) -> None:
    """Refuses options of a recipe, because the source itself states them."""
    if wishes.options:
        message = f"{OPTION} {', '.join(wishes.options)} changes nothing here: {reason}"
        raise UsageError(message, where=where, next="leave it out")


def of_fit(
    fit: Fit, checkpoint: Checkpoint, framework: str, native: tuple[int, int], dialect: Dialect | None = None
) -> Opened:
    """A file opened as it was fitted, without what only a recipe states.

    Args:
        native: rows and columns that the source is built for, where the file states none.
        dialect: as `read_tensors`.

    Raises:
        MappingError, FileError: as `read_tensors`.
    """
    file, holders = checkpoint.graph, {node.path: node.holder for node in fit.graph.nodes}
    used = {name: f"{holders[path]}:{role}" for (path, role), name in fit.tensors.items()}
    return Opened(
        graph=fit.graph,
        tensors=read_tensors(fit, checkpoint, dialect),
        facts=Facts(
            options={},
            preprocess=None,
            labels=None,
            classes=fit.classes,
            source_classes=fit.source_classes,
            background=fit.background,
            output=fit.output,
            activation=fit.activation,
            left_out=_left_out(file, fit.taps) if file else (),
            licence=None,
            evaluated=(
                *(
                    name
                    for (path, role), name in fit.tensors.items()
                    if (file and name in file.evaluated) or computed(fit.transforms.get(path, ()), role)
                ),
                *(f"{path} ({word})" for path, word in fit.computed.items()),
            ),
        ),
        sizes=file.sizes(native) if file else InputSizes(native),
        framework=framework,
        lists=TensorLists(used=used, ignored=fit.ignored, filled={}),
        file=SourceFile(
            file=checkpoint.path.name,
            format=checkpoint.format,
            sha256=checkpoint.sha256,
            published=False,
            notes=(*checkpoint.notes, *fit.notes, *_of_several(fit)),
        ),
        fitted=Fitted(checkpoint, fit),
    )


def _of_several(fit: Fit) -> tuple[str, ...]:
    """A note on tensors that several layers of the port have for themselves, because they are not calls of
    one layer.
    """
    paths: dict[str, list[str]] = {}
    for (path, _), name in fit.tensors.items():
        if fit.graph.by_path[path].shares is None:
            paths.setdefault(name, []).append(path)
    shared = {name: each for name, each in paths.items() if len(each) > 1}
    if not shared:
        return ()
    name, first = next(iter(shared.items()))
    copies = "the port has a copy for each layer, and training it would make the copies differ"
    return (
        (
            f"several layers share tensors ({len(shared)} in all, such as {name} of "
            f"{' and '.join(first[:2])}); {copies}"
        ),
    )


def _left_out(file: FileGraph, taps: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """What a file's graph lacks of the file, behind the paths that show the values of its nodes."""
    paths = {INPUT: INPUT, **{tap: path for path, tap in taps.items()}}
    shown = {INPUT: INPUT, **{node.name: node.tap for node in file.nodes}}
    return tuple(
        replace(layer, after=paths.get(shown.get(layer.after or "") or "")) for layer in file.left_out
    )


def _fit(candidate: Candidate, wishes: Wishes) -> Fit:
    if candidate.checkpoint.graph is None:
        return fit_by_names(candidate, wishes)
    from porter.source.fitting.by_graph import fit_by_graph  # most files hold only weights

    return fit_by_graph(candidate, wishes)


def _other_zoo_warning(publisher: Member | None, asked: Member) -> tuple[str, ...]:
    """A warning if another zoo publishes the weights than was asked for."""
    if publisher is None or publisher.zoo.name == asked.zoo.name:
        return ()
    return (
        (
            f"zoo '{publisher.zoo.name}' publishes this file: its preprocessing and figures are used, not "
            f"{asked.zoo.name}'s"
        ),
    )

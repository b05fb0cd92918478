"""Opens the source of a port: a weights file under a zoo's names or with its own graph, or another port."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from porter.data.labels import Labels
from porter.data.preprocess import Preprocess
from porter.dtypes import Array
from porter.errors import MappingError, PorterError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.files import Digests, fetch
from porter.fitting.by_names import fit_by_names
from porter.fitting.by_position import name_by_position
from porter.fitting.fit import Fit, Output, read_tensors
from porter.frameworks import Runner, get_framework
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Graph
from porter.port import Padding, Port, SourceFile, TensorLists, port_at
from porter.recipe import Member, recipes_option, with_options
from porter.recipe.expressions import Value
from porter.source.assumed import what_is_assumed
from porter.source.protocol import in_proportion, scaled
from porter.source.weights import digest_of, published_file, publisher_of, read_weights

if TYPE_CHECKING:
    from porter.source.matching import Match

NO_MAP = "no --map settles it: give the whole model (.keras, SavedModel), or a file without the layers after the network"


@dataclass(frozen=True, kw_only=True)
class Opened(Output):
    """A source: its graph and its tensors in canonical order.

    Attributes:
        framework: runs the source.
        native_size: `built_size`, otherwise the recipe's; of a port, its only size, otherwise its own native size.
        member: what it is; None for a file of a graph that no recipe has.
        options: those that the graph was expanded with; only the number of classes if the graph is the file's own.
        preprocess: the protocol that turns a photo into the source's input.
        labels: the map of the classes; None if the file's head is not the zoo's own.
        licence: of the zoo's published file; None for any other file.
        assumed: one line for each fact that the file does not record and the recipe states, without the input size.
        sized: whether the source fixes the input size that it was built for.
        padding: whether `graph` has the shipped or the training pads; with training pads, `shipped` is the graph with the source's
            own.
        checkpoint: the file as read, and `fit` its fit to the recipe; None if the source is a port.
        names: by path, what the file calls its layers, and `output_names` its outputs in their order, if no recipe has its graph.
        only_size: rows and columns at which the source is what its file states, if that was traced at one size; otherwise None.
    """

    framework: Runner
    tensors: Mapping[str, Mapping[str, Array]]
    lists: TensorLists
    file: SourceFile
    native_size: tuple[int, int]
    member: Member | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    labels: Labels | None = None
    licence: str | None = None
    assumed: tuple[str, ...] = ()
    sized: bool = True
    warnings: tuple[str, ...] = ()
    padding: Padding = "shipped"
    shipped: Graph | None = None
    checkpoint: Checkpoint | None = None
    fit: Fit | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    only_size: tuple[int, int] | None = None

    @property
    def built_size(self) -> tuple[int, int] | None:
        """Rows and columns that the file's graph was built for; None if the file has no graph, or its graph takes any size."""
        graph = self.checkpoint.graph if self.checkpoint else None
        return graph.built_size if graph else None

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The used tensors that porter computed from the file's."""
        graph = self.checkpoint.graph if self.checkpoint else None
        return tuple(name for name in self.lists.used if graph and name in graph.evaluated)


def open_source(
    member: Member,
    weights: Path | None,
    keep_background: bool = False,
    settings: tuple[str, ...] = (),
    options: Mapping[str, Value] | None = None,
) -> Opened:
    """Opens `weights` (a file, or a port and its files), or the zoo's published file from the cache or the network.

    Args:
        settings: from `--map`, as SRC=NODE.
        options: of the recipe; they override the zoo's own (porter.recipe.choose_options).

    Raises:
        UsageError: the zoo publishes no file for this variant, or the source itself states the options.
        FileError: the file cannot be read.
        MappingError: file and graph do not cover each other; `next` says what the file looks like instead.
    """
    warnings: tuple[str, ...] = ()
    fetching = weights is None
    if weights is None:
        fetched = fetch(published_file(member))
        weights, warnings = fetched.path, fetched.warnings
    port, options = port_at(weights), options or {}
    if port is not None:
        _expect_open(options, str(port.folder), "a port's graph is in its port.json")
        opened = open_port(port, member)
    else:
        opened = _open_file(member, weights, keep_background, settings, options, fetching)
    if keep_background and not opened.background:
        warnings = (
            *warnings,
            f"--keep-background: no background row is known in the {opened.source_classes} classes of {weights.name}",
        )
    return replace(opened, warnings=(*warnings, *opened.warnings))


def _expect_open(options: Mapping[str, Value], where: str, reason: str) -> None:
    """Refuses options of a recipe, because the source itself states them."""
    if options:
        raise UsageError(f"--option {', '.join(options)} changes nothing here: {reason}", where=where, next="leave it out")


def open_port(port: Port, member: Member | None) -> Opened:
    """A port as the source of another one.

    Raises:
        UsageError: it is no port of `member`.
    """
    folder, record = port.folder, port.record
    if member is not None and (record.variant, record.zoo) != (member.variant, member.zoo.name):
        raise UsageError(
            f"this is a port of {record.name}, not of {member.name}",
            where=str(folder),
            next=f"porter convert {record.variant} --from {record.zoo}" if record.variant else "porter convert PORT --to FRAMEWORK",
        )
    tensors = port.tensors()
    for path, seen in record.batches.items():
        tensors.get(path, {})["batches"] = np.array(seen, np.int64)
    used = {f"{path}:{role}": f"{path}:{role}" for path, roles in tensors.items() for role in roles}
    return Opened(
        member=member,
        framework=get_framework(member.zoo.framework) if member else port.framework,
        graph=port.graph,
        source_classes=record.classes,
        background=record.background,
        activation=record.activation,
        tensors=tensors,
        lists=TensorLists(used=used, ignored={}, filled={}),
        file=SourceFile(
            file=port.framework.MODEL_FILE, format="port", sha256=record.model[port.framework.MODEL_FILE], published=False
        ),
        native_size=record.input.size or record.input.native_size,
        options=record.options,
        preprocess=record.preprocess,
        labels=record.label_map,
        licence=record.licence,
        assumed=record.assumed,
        padding=record.padding,
        names=record.names,
        output_names=record.output_names,
        only_size=record.input.size if record.input.traced else None,
    )


def _open_file(
    member: Member,
    weights: Path,
    keep_background: bool,
    settings: tuple[str, ...],
    options: Mapping[str, Value],
    fetched: bool,
) -> Opened:
    pinned = {kind for other in member.kin() if other.file for kind in other.file.published}
    checkpoint, files = read_weights(weights, with_md5="md5" in pinned and not fetched)

    def opened(given: tuple[str, ...]) -> Opened:
        return open_checkpoint(member, checkpoint, files, keep_background, given, options, fetched)

    try:
        return opened(settings)
    except MappingError as error:
        tried = _tried(error, opened, settings)
        tried.next = _advice(tried, checkpoint, member)
        raise tried from None


def _tried(error: MappingError, opened: Callable[[tuple[str, ...]], Opened], settings: tuple[str, ...]) -> MappingError:
    """The error with those settings of `--map` that open the file: what stands beside a head can make each of them fail."""

    def works(setting: str) -> bool:
        node = setting.rpartition("=")[2]
        try:
            opened((*(given for given in settings if given.rpartition("=")[2] != node), setting))
        except PorterError:
            return False
        return True

    working = [setting for setting in error.maps if works(setting)]
    return MappingError(error.message, where=error.where, next=NO_MAP if error.maps else error.next, maps=working)


def open_checkpoint(
    member: Member,
    checkpoint: Checkpoint,
    files: Digests,
    keep_background: bool = False,
    settings: tuple[str, ...] = (),
    options: Mapping[str, Value] | None = None,
    fetched: bool = False,
) -> Opened:
    """Opens a file that is read already (`read_weights`), as `open_source` does.

    Args:
        files: its files, to their digests by algorithm.
        fetched: it is the file that the zoo publishes.

    Raises:
        MappingError: file and graph do not cover each other; `maps` has settings of `--map` that would settle it.
    """
    publisher = member if fetched else publisher_of(member, files)
    other_zoo = _other_zoo_warning(publisher, member)
    member = publisher or member
    recipe, _, zoo = member
    if checkpoint.dialect not in (None, zoo.framework):
        message = f"this is a {checkpoint.dialect} file ({checkpoint.format}), and zoo '{zoo.name}' is {zoo.framework}'s"
        raise MappingError(message, where=str(checkpoint.path))
    if options and checkpoint.graph is not None:
        _expect_open(options, str(checkpoint.path), "the file carries its own graph")
    member = with_options(member, options or {})
    checkpoint, placed = name_by_position(member, checkpoint)
    fit = _fit(member, checkpoint, settings, keep_background)
    recorded = publisher is not None or checkpoint.graph is not None
    native = (checkpoint.graph.built_size if checkpoint.graph else None) or recipe.native_size()
    protocol, scaling = scaled(in_proportion(zoo.preprocess, native, recipe.native_size()), fit.scaling)
    framework, dialect = get_framework(zoo.framework), get_dialect(zoo.framework)
    opened = open_fit(fit, checkpoint, files, framework, native, dialect, publisher is not None)
    return replace(
        opened,
        member=member,
        options={**fit.options, "classes": fit.classes},
        preprocess=protocol,
        labels=zoo.labels if fit.own_head else None,
        licence=publisher.zoo.licence_of(publisher.variant) if publisher else None,
        assumed=() if recorded else what_is_assumed(checkpoint, fit, member.zoo),
        sized=recorded,
        warnings=(*other_zoo, *placed, *fit.warnings, *scaling),
    )


def open_fit(
    fit: Fit,
    checkpoint: Checkpoint,
    files: Digests,
    framework: Runner,
    native_size: tuple[int, int],
    dialect: Dialect | None = None,
    published: bool = False,
) -> Opened:
    """A file opened as it was fitted, without what only a recipe states.

    Args:
        dialect: as `read_tensors`.
        published: the zoo publishes this file.

    Raises:
        MappingError, FileError: as `read_tensors`.
    """
    return Opened(
        graph=fit.graph,
        source_classes=fit.source_classes,
        background=fit.background,
        activation=fit.activation,
        framework=framework,
        tensors=read_tensors(fit, checkpoint, dialect),
        lists=TensorLists(
            used={name: f"{path}:{role}" for (path, role), name in fit.found.items()}, ignored=fit.ignored, filled={}
        ),
        file=SourceFile(
            file=checkpoint.path.name,
            format=checkpoint.format,
            sha256=digest_of(files),
            published=published,
            notes=(*checkpoint.notes, *fit.notes),
        ),
        native_size=native_size,
        checkpoint=checkpoint,
        fit=fit,
        only_size=checkpoint.graph.built_size if checkpoint.graph and checkpoint.graph.traced else None,
    )


def _fit(member: Member, checkpoint: Checkpoint, settings: tuple[str, ...], keep_background: bool) -> Fit:
    if checkpoint.graph is None:
        return fit_by_names(member, checkpoint, settings, keep_background)
    from porter.fitting.by_graph import fit_by_graph  # most files hold only weights

    return fit_by_graph(member, checkpoint, settings, keep_background)


def _other_zoo_warning(publisher: Member | None, asked: Member) -> tuple[str, ...]:
    """A warning if another zoo publishes the weights than was asked for."""
    if publisher is None or publisher.zoo.name == asked.zoo.name:
        return ()
    return (f"this is the file of zoo '{publisher.zoo.name}': its preprocessing and figures are used, not {asked.zoo.name}'s",)


def _advice(error: MappingError, checkpoint: Checkpoint, member: Member) -> str | None:
    """The error's own advice, unless the file looks like another variant or zoo than was asked for."""
    from porter.source.matching import LIKELY, rank  # only for an error

    recipes = member.recipe.path.parent
    matches = rank(checkpoint, recipes).matches
    likely = [match for match in matches if match.score == matches[0].score >= LIKELY]
    asked = any(match.member.name == member.name for match in likely)
    return error.next if asked or (error.maps and not likely) else _described(matches, recipes)


def _described(matches: tuple[Match, ...], recipes: Path) -> str:
    from porter.source.matching import LIKELY, NO_RECIPE

    if not matches or matches[0].score < LIKELY:
        return NO_RECIPE
    best = matches[0].member
    words = ("porter", "convert", best.variant, "--from", best.zoo.name, *recipes_option(best.recipe, recipes))
    return f"it looks like {best.name}: {shlex.join(words)}"

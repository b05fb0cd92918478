"""The one way in: `open_source` opens what is at a place, as the variant that is asked for or as what it is.

A file is read as a `Checkpoint`; a model is first saved by its framework. A `Candidate` is the checkpoint and
a variant: the one that is asked for, otherwise each that the file may be, best first. Its `Fit` says which
tensor is which node's. From the fit, or from the file's own graph, comes the `Opened` source.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from porter.base.errors import MappingError, NotInstalled, PorterError
from porter.base.options import KEEP_ACTIVATION, KEEP_BACKGROUND
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_with_digests
from porter.padding.sizes import InputSizes
from porter.recipe import Member
from porter.source.advice import error_without_graph, with_advice
from porter.source.by_recipe import open_likeliest, open_with_origin
from porter.source.file_pair import record_pair
from porter.source.fitting.candidate import Candidate, needs_md5
from porter.source.from_port import expect_wishes_of_port, find_member_of, open_port
from porter.source.in_memory import Exported, checkpoint_of_variables, naming_model, save_and_read
from porter.source.library_model import build_by_library
from porter.source.opened import Opened
from porter.source.origin import origin_of, stated_origin, twin_warnings
from porter.source.own_graph import open_graph
from porter.source.place import File, FilePair, InMemory, Place, PortFolder, TrainedPort
from porter.source.ranking.rank import rank
from porter.source.reading import read
from porter.source.stated_photos import facts_beside, facts_in_metadata, native_size_in_metadata
from porter.source.trained_port import open_trained
from porter.source.wishes import NONE, Wishes


def open_source(
    place: Place, wishes: Wishes = NONE, member: Member | None = None, recipes: Path | None = None
) -> Opened:
    """Open what is at a place, and return its graph, tensors and facts.

    Without `member`, a file is opened by its own graph; where a variant's graph is the file's, the recipe's
    paths, labels and protocol are used. A folder of the Hub is opened as the variant that its config.json
    states, otherwise as the model that its library builds. A model in memory is not changed; its port is
    compared with `Opened.in_memory` too.

    Args:
        member: the variant that a file or a port is opened as.
        recipes: a folder of recipes besides porter's.

    Raises:
        UsageError: the source itself states the options, it carries no graph, neither it nor `wishes` state
            an input size, or a model cannot be saved (porter.frameworks.in_memory).
        MappingError: file and graph do not cover each other, or porter has no op for a part of the graph;
            `next` says what the file looks like instead.
        FileError: a file cannot be read.
    """
    match place:
        case PortFolder(port):
            expect_wishes_of_port(port, wishes)
            opened = open_port(port, member or find_member_of(port.record, recipes))
        case TrainedPort(port, weights):
            expect_wishes_of_port(port, wishes)
            opened = open_trained(port, read_with_digests(weights), find_member_of(port.record, recipes))
        case InMemory(model, example):
            opened = _open_model(save_and_read(model, example, wishes.outputs, wishes.size), wishes, recipes)
        case File() | FilePair() if member is not None:
            opened = _open_as_member(read(place, md5=needs_md5(member)), member, wishes)
        case File() | FilePair():
            checkpoint = read(place, wishes.outputs, wishes.size)
            open_alone = _open_by_config if checkpoint.graph is None else _open_by_graph
            opened = open_alone(checkpoint, wishes, recipes)
    if isinstance(place, File):
        opened = replace(opened, warnings=(*place.warnings, *opened.warnings))
    if isinstance(place, FilePair):
        opened = replace(opened, file=record_pair(opened, place))
    return replace(opened, warnings=(*opened.warnings, *_background_warnings(opened, wishes)))


def _background_warnings(opened: Opened, wishes: Wishes) -> tuple[str, ...]:
    """Return a warning if a background row is wished and nothing says that there is one."""
    if not wishes.background or opened.facts.background:
        return ()
    return (
        (
            f"{KEEP_BACKGROUND} changes nothing: porter knows no background row among the "
            f"{opened.facts.source_classes} classes of {opened.file.file}"
        ),
    )


def _open_as_member(checkpoint: Checkpoint, member: Member, wishes: Wishes) -> Opened:
    """Open a file as the variant that is asked for. If it is not that variant, the error says what to do."""
    candidate = Candidate.of(member, checkpoint)
    known_origin = origin_of(candidate, wishes.origin)
    try:
        opened = _with_stated_photos(open_with_origin(candidate, known_origin, wishes))
    except MappingError as error:
        raise with_advice(error, candidate, known_origin, wishes) from None
    return replace(opened, warnings=(*twin_warnings(opened, checkpoint.path), *opened.warnings))


def _open_by_graph(checkpoint: Checkpoint, wishes: Wishes, recipes: Path | None) -> Opened:
    """Open a file by its own graph: as the recipe's variant whose graph it is, otherwise under the file's
    names. What porter's metadata in the file, or timm's config.json beside it, states of photos and classes
    comes first.
    """
    assert checkpoint.graph is not None
    # A size in porter's metadata counts only where neither the user nor the graph states one.
    stated_size = None if wishes.size or checkpoint.graph.built_size else native_size_in_metadata(checkpoint)
    wishes = replace(wishes, size=stated_size or wishes.size)
    # Recipes have neither, so only the file's own graph will do.
    if wishes.keep_activation or wishes.outputs:
        return open_graph(checkpoint, wishes)
    ranked = rank(checkpoint, recipes)
    recipe_warnings = tuple(f"this recipe was left out: {fault}" for fault in ranked.faults)
    try:
        opened = open_likeliest(ranked.likely, wishes).opened
        # Without a head there are no classes that the recipe would name.
        if opened is None or (wishes.as_given and not opened.facts.classes):
            opened = open_graph(checkpoint, wishes)
    except PorterError as error:  # the recipe may be the one that was meant for this file
        raise error.at(error.where, "; ".join(filter(None, (error.next, *recipe_warnings)))) from None
    notes = list(opened.file.notes)
    if opened.member:
        notes.append(
            f"it is {opened.member.name}: the recipe's names are used, and its labels and protocol "
            "unless others are stated"
        )
    if activation := opened.facts.activation:
        notes.append(f"its {activation} is taken off: {KEEP_ACTIVATION()} keeps it")
    file = opened.file.model_copy(update={"notes": tuple(notes)})
    photos, damage_warnings = (
        facts_in_metadata(checkpoint) if checkpoint.stated else facts_beside(checkpoint.beside)
    )
    # A file that was changed after porter wrote it may have another head than its metadata says.
    photos, unused_warnings = photos.matching_head(opened.facts)
    facts = photos.override(opened.facts, checkpoint.path.name)
    sizes = replace(opened.sizes, built=stated_size) if stated_size else opened.sizes
    return replace(
        opened,
        file=file,
        facts=facts,
        sizes=sizes,
        warnings=(*recipe_warnings, *damage_warnings, *unused_warnings, *opened.warnings),
    )


def _open_by_config(checkpoint: Checkpoint, wishes: Wishes, recipes: Path | None) -> Opened:
    """Open a file of tensors as the config.json beside it states: as a recipe's variant, otherwise as the
    network that the library which wrote the folder builds.

    Raises:
        UsageError: there is no config.json that names a network.
        NotInstalled: the library is not installed.
    """
    likeliest = open_likeliest(rank(checkpoint, recipes).likely, wishes)
    opened = likeliest.opened
    origin = None if opened is None else opened.facts.origin
    states_library = origin is not None and origin.by == "config.json" and origin.zoo is not None
    if opened is not None and states_library and not wishes.keep_activation:
        return _with_stated_photos(opened)
    try:
        built = build_by_library(checkpoint, wishes.outputs, wishes.size)
    except NotInstalled as error:
        otherwise = error_without_graph(checkpoint, likeliest, recipes).next
        next = f"{error.next}, which builds the network of this folder; or {otherwise}"
        raise error.at(error.where, next) from None
    if built is None:
        raise error_without_graph(checkpoint, likeliest, recipes)
    opened = _open_model(built, wishes, recipes)
    return replace(opened, facts=opened.stating(origin=stated_origin(checkpoint)))


def _with_stated_photos(opened: Opened) -> Opened:
    """Return the source with what timm's config.json beside the weights states of photos and classes: how
    photos are prepared, and the names of the classes. Weights that a zoo publishes stay as they are.
    """
    if opened.file.published or opened.fitted is None:
        return opened
    checkpoint = opened.fitted.checkpoint
    photos, warnings = facts_beside(checkpoint.beside)
    photos, unused_warnings = photos.matching_head(opened.facts)
    facts = photos.override(opened.facts, str(checkpoint.path.parent / CONFIG_FILE))
    return replace(opened, facts=facts, warnings=(*opened.warnings, *warnings, *unused_warnings))


def _open_model(exported: Exported, wishes: Wishes, recipes: Path | None) -> Opened:
    """Open a model by the graph that it was saved with; where porter lacks an op for it, as the recipe's
    variant that has its variables.
    """
    saved = exported.saved
    wishes = replace(wishes, size=wishes.size or saved.size)
    checkpoint = exported.checkpoint
    try:
        opened = (
            open_graph(checkpoint, wishes) if wishes.as_given else _open_by_graph(checkpoint, wishes, recipes)
        )
    except PorterError as error:
        by_variables = _open_by_variables(exported, wishes, recipes)
        if by_variables is None:
            raise naming_model(error, saved) from None
        opened = by_variables
    return exported.as_model(replace(opened, warnings=(*saved.notes, *opened.warnings)))


def _open_by_variables(exported: Exported, wishes: Wishes, recipes: Path | None) -> Opened | None:
    """Open a model whose graph has ops that porter lacks as the variant that its variables fit; None if they
    fit none. Only the model itself says whether it computes that variant.
    """
    variables, size = checkpoint_of_variables(exported), exported.saved.size
    if variables is None or wishes.keep_activation or wishes.outputs:
        return None
    opened = open_likeliest(rank(variables, recipes).likely, wishes).opened
    if opened is None or size is None:
        return opened
    return replace(opened, sizes=InputSizes(size))

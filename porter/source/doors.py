"""Opens a file that a user names: as the variant that they name, or as what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from porter.base.commands import CONVERT, FILE, FRAMEWORK, RECIPE_LIST, RECIPE_SHOW, VARIANT, ZOO
from porter.base.errors import MappingError, NotInstalled, PorterError, UsageError
from porter.base.options import FROM, KEEP_ACTIVATION, KEEP_BACKGROUND
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_weights
from porter.formats.recognition import is_there
from porter.frameworks import TRAINED
from porter.padding.sizes import InputSizes
from porter.port import IN_MEMORY, Port, model_file, port_at
from porter.recipe import Member, declared_recipes
from porter.recipe.spelling import nearest
from porter.source.advice import advised, no_graph
from porter.source.by_recipe import expect_as_made, open_candidate, open_port
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.hub import repository_of
from porter.source.opened import Opened
from porter.source.origin import expect_origin, origin_of, stated_origin, undecided
from porter.source.own_graph import open_graph
from porter.source.pairs import of_pair
from porter.source.ranking.likeliest import open_likeliest
from porter.source.ranking.rank import rank
from porter.source.reading import read_source
from porter.source.reopening import member_of
from porter.source.sidecars import native_within, stated_beside, stated_within, weights_in, with_config
from porter.source.tuned_port import open_tuned
from porter.source.weights import fetch_published, needs_md5
from porter.source.wishes import NONE, Wishes

if TYPE_CHECKING:
    from porter.frameworks.in_memory import Example, Model, Saved


def open_member(member: Member, path: Path | None, wishes: Wishes = NONE) -> Opened:
    """Opens `path` (a file, or a port and its files) as a variant, or the zoo's published file from the cache
    or the network.

    Raises:
        UsageError: the zoo publishes no file for this variant, or the source itself states the options.
        FileError: the file cannot be read.
        MappingError: file and graph do not cover each other; `next` says what the file looks like instead.
    """
    warnings: tuple[str, ...] = ()
    if path is None:
        fetched = fetch_published(member)
        path, warnings = fetched.path, fetched.warnings
    path = weights_in(path)
    port = port_at(path)
    if port is not None:
        expect_as_made(port, wishes)
        opened = open_port(port, member)
    else:
        checkpoint = read_source(path, needs_md5(member))
        candidate = Candidate.of(member, checkpoint)
        known = origin_of(candidate, wishes.origin)
        expect_origin(candidate, known)
        wishes = replace(wishes, options={**known.options, **wishes.options})
        try:
            opened = with_config(open_candidate(candidate, wishes, known.origin))
        except MappingError as error:
            raise advised(error, candidate, wishes) from None
        warnings += undecided(opened, path)
    return replace(opened, warnings=(*warnings, *_no_background(opened, path, wishes), *opened.warnings))


def _no_background(opened: Opened, path: Path, wishes: Wishes) -> tuple[str, ...]:
    """A warning if a background row is wished that nobody knows of."""
    if not wishes.background or opened.facts.background:
        return ()
    return (
        (
            f"{KEEP_BACKGROUND} changes nothing: porter knows no background row among the "
            f"{opened.facts.source_classes} classes of {path.name}"
        ),
    )


def open_file(
    path: Path, wishes: Wishes = NONE, recipes: Path | None = None, weights: Path | None = None
) -> Opened:
    """Opens a file by its own graph, or a port.

    Where a variant's graph is the file's, the recipe's paths, labels and protocol are used. A folder of the
    Hub is opened as the variant that its config.json states.

    Args:
        weights: another file, whose tensors are taken: all of them.

    Raises:
        UsageError: the file carries no graph, or neither it nor `wishes` state an input size.
        MappingError: porter has no op for a part of the graph, or the graph and the tensors of `weights` do
            not cover each other.
        FileError: a file cannot be read.
    """
    port, weights = port_at(path, held=weights is None), weights and model_file(weights_in(weights))
    if port is not None and weights is not None and _is_own(port, weights):
        return open_file(path, wishes, recipes)
    if port is not None:
        expect_as_made(port, wishes)
        member = member_of(port.record, recipes)
        opened = (
            open_port(port, member) if weights is None else open_tuned(port, read_weights(weights), member)
        )
    else:
        file = weights_in(path)
        checkpoint = read_source(file, outputs=wishes.outputs, size=wishes.size, weights=weights)
        opened = (
            _open_stated(checkpoint, wishes, recipes)
            if checkpoint.graph is None
            else _open_graph(checkpoint, wishes, recipes)
        )
        if weights is not None:
            opened = replace(opened, file=of_pair(opened, path, weights))
    return replace(opened, warnings=(*opened.warnings, *_no_background(opened, path, wishes)))


def _is_own(port: Port, weights: Path) -> bool:
    """Whether weights are the model file of a port that nobody trains on: both its files are given."""
    own = port.folder / port.destination.MODEL_FILE
    return port.record.framework not in TRAINED and weights.resolve() == own.resolve()


def open_model(
    model: Model, wishes: Wishes = NONE, recipes: Path | None = None, example: Example | None = None
) -> Opened:
    """Opens a model in memory, a torch.nn.Module, an nnx.Module, a keras.Model or an onnx.ModelProto, as
    `open_file` opens the file that its framework saves it as. `Opened.in_memory` is what its port is compared
    with besides. Not a bit of the model is changed.

    Args:
        example: what a module is exported with, a batch or a tuple of them; None for zeros of `wishes.size`.

    Raises:
        UsageError: the model cannot be saved, with the reason and the way round
            (porter.frameworks.in_memory). Or as `open_file`.
    """
    from porter.source.in_memory import read_model  # most sources are files

    checkpoint, saved = read_model(model, example, wishes.outputs, wishes.size)
    opened = _open_saved(checkpoint, saved, wishes, recipes)
    notes = (IN_MEMORY, *(note for note in opened.file.notes if note != OWN_GRAPH))
    otherwise = "give an example of another size" if saved.size else "give a model that takes another"
    return replace(
        opened,
        sizes=replace(opened.sizes, otherwise=otherwise),
        file=opened.file.model_copy(update={"file": saved.name, "notes": notes}),
        in_memory=saved,
        warnings=(*opened.warnings, *_no_background(opened, Path(saved.name), wishes)),
    )


def _open_saved(checkpoint: Checkpoint, saved: Saved, wishes: Wishes, recipes: Path | None) -> Opened:
    """A model in memory, by the graph that it was saved with; where porter lacks an op for it, as the
    recipe's variant that has its variables.
    """
    wishes = replace(wishes, size=wishes.size or saved.size)
    try:
        opened = _open_graph(checkpoint, wishes, recipes)
    except PorterError as error:
        found = _by_variables(checkpoint, saved, wishes, recipes)
        if found is None:
            from porter.source.in_memory import renamed

            raise renamed(error, saved) from None
        opened = found
    return replace(opened, warnings=(*saved.notes, *opened.warnings))


def _by_variables(
    checkpoint: Checkpoint, saved: Saved, wishes: Wishes, recipes: Path | None
) -> Opened | None:
    """A model in memory whose graph has ops that porter lacks, as the variant that its variables fit. Only
    the model itself says whether it computes that variant.
    """
    from porter.source.in_memory import by_variables

    held = by_variables(checkpoint, saved)
    if held is None or wishes.keep_activation or wishes.outputs:
        return None
    likeliest, _ = open_likeliest(rank(held, recipes).likely, wishes)
    if likeliest is None:
        return None
    return replace(likeliest[1], sizes=InputSizes(saved.size) if saved.size else likeliest[1].sizes)


def _open_graph(checkpoint: Checkpoint, wishes: Wishes, recipes: Path | None) -> Opened:
    """A file by its own graph: as a variant that has it, otherwise under the file's names."""
    assert checkpoint.graph is not None
    native = None if wishes.size or checkpoint.graph.built_size else native_within(checkpoint)
    wishes = replace(wishes, size=native or wishes.size)
    if wishes.keep_activation or wishes.outputs:
        return open_graph(checkpoint, wishes)
    ranked = rank(checkpoint, recipes)
    left_out = tuple(f"this recipe was left out: {fault}" for fault in ranked.faults)
    likeliest, _ = open_likeliest(ranked.likely, wishes)
    try:
        opened = likeliest[1] if likeliest is not None else open_graph(checkpoint, wishes)
    except PorterError as error:  # the recipe may be the one that was meant for this file
        error.next = "; ".join(filter(None, (error.next, *left_out)))
        raise
    notes = (
        [
            (
                f"it is {opened.member.name}: the recipe's names are used, and its labels and protocol "
                "unless others are stated"
            )
        ]
        if opened.member
        else []
    )
    activation = opened.facts.activation
    notes += [f"its {activation} is taken off: {KEEP_ACTIVATION()} keeps it"] if activation else []
    noted = opened.file.model_copy(update={"notes": (*opened.file.notes, *notes)})
    photos, damaged = stated_within(checkpoint) if checkpoint.stated else stated_beside(checkpoint.beside)
    # Of another head where the file was changed after porter wrote it.
    photos, others = photos.for_head(opened.facts)
    facts = photos.of(opened.facts, checkpoint.path.name)
    sizes = replace(opened.sizes, built=native) if native else opened.sizes
    return replace(
        opened,
        file=noted,
        facts=facts,
        sizes=sizes,
        warnings=(*left_out, *damaged, *others, *opened.warnings),
    )


def _open_stated(checkpoint: Checkpoint, wishes: Wishes, recipes: Path | None) -> Opened:
    """A file of tensors as the config.json beside it states: as a recipe's variant, otherwise as the network
    that the library which wrote the folder builds.
    """
    likeliest, _ = open_likeliest(rank(checkpoint, recipes).likely)
    origin = None if likeliest is None else likeliest[1].facts.origin
    if likeliest is not None and origin is not None and origin.by == "config.json" and origin.zoo is not None:
        return with_config(likeliest[1])
    from porter.source.library_model import read_built  # with what saves models in memory

    try:
        built = read_built(checkpoint, wishes.outputs, wishes.size)
    except NotInstalled as error:
        error.next = (
            f"{error.next}, which builds the network of this folder; or {no_graph(checkpoint, recipes).next}"
        )
        raise
    if built is None:
        raise no_graph(checkpoint, recipes)
    opened = built.marked(_open_saved(built.checkpoint, built.saved, wishes, recipes))
    return replace(opened, facts=opened.facts.model_copy(update={"origin": stated_origin(checkpoint)}))


def expect_file(subject: str, recipes: Path | None) -> Path:
    """The file that a command names in place of a variant, or a repository of the Hub.

    Raises:
        UsageError: there is no such file.
    """
    file = Path(subject)
    if repository_of(file) is None and not is_there(file):
        variant = any(subject in recipe.variants for recipe in declared_recipes(recipes))
        expected = (
            f"{RECIPE_LIST.advise()} shows the variants; write "
            f"{CONVERT.advise(subject=VARIANT, source=ZOO, to=FRAMEWORK)}, or "
            f"{CONVERT.advise(subject=FILE, to=FRAMEWORK)}"
        )
        if file.suffix[1:2].isalpha() and not variant:  # not mobilenet_v1_0.35
            near = nearest(file.name, (each.name for each in file.parent.glob("*")))
            next = "check the path" if near is None else f"did you mean '{near}'?"
            raise UsageError("there is no such file", where=subject, next=next)
        zoos = f"add {FROM.placeholder}: {RECIPE_SHOW.advise(name=subject)} lists its zoos"
        next = zoos if variant else expected
        raise UsageError(
            f"'{subject}' is {'a variant without its zoo' if variant else 'no file and no variant'}",
            next=next,
        )
    return file

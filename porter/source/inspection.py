"""What a weights file is, and the command that ports it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from porter.base.calls import takes
from porter.base.commands import CONVERT, InspectOptions
from porter.base.errors import GraphError, MappingError, PaddingError, PorterError
from porter.base.options import path_of
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import fill_free_size
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import known_format
from porter.frameworks import TRAINED, get_destination, is_converted, other_than
from porter.graph import head_of
from porter.graph.plan import make_plan
from porter.padding import ANY, KnownSize, Size
from porter.padding.sizes import parse_size, size_text
from porter.port import Origin, Record, StoredPort
from porter.recipe import Member, convert_command
from porter.recipe.twins import Twin
from porter.source.advice import advice_if_trained, advice_without_recipe, how_to_save_graph
from porter.source.by_recipe import open_likeliest, open_match
from porter.source.fitting.fit import OWN_GRAPH
from porter.source.from_port import convert_model_file
from porter.source.hub_folder import config_of
from porter.source.opened import Opened
from porter.source.origin import origin_of, stated_origin
from porter.source.own_graph import PROBE, open_graph
from porter.source.place import PortFolder, find
from porter.source.ports_beside import find_ports_beside, line_for_trained
from porter.source.ranking.rank import CLOSE, LIKELY, Match, Ranked, rank
from porter.source.reading import read
from porter.source.wishes import Wishes
from porter.zoos.hub_folders import names_a_model


@dataclass(frozen=True)
class Inspection:
    """What a weights file is.

    Attributes:
        checkpoint: the file as read.
        matches: see porter.source.ranking.rank.Ranked.
        match: the match that the file is; None if no recipe fits, and for a port, which outlives its recipe.
        classes: of the port; 0 if a variant or a port gives features. None if the file cannot be ported as it
            is, and for a graph that no recipe has and that gives features.
        source_classes: of the file's head.
        size: rows and columns of the input; None if the file takes any size.
        head: the file's layer that gives the logits.
        activation: the file's activation after the logits.
        differs: the file's differences from the zoo's own, one line each.
        assumed: one line for each fact that the file does not record and porter takes from the recipe.
        origin: where its weights come from, by what states it; None if nothing does.
        twins: see porter.port.Facts.
        problem: the reason why the file cannot be ported as it is, or as `match`.
        left_out: the errors of recipes that cannot be used.
        commands: commands that port the file, each tested: one, or one for each layer that could be the head.
        port: of a port, its record.
        tuned: the port whose model's tensors these are, as they were trained on; None where several ports may
            be.
    """

    checkpoint: Checkpoint
    matches: tuple[Match, ...] = field(default=(), repr=False)
    match: Match | None = None
    classes: int | None = None
    source_classes: int | None = None
    size: KnownSize | None = None
    head: str | None = None
    activation: str | None = None
    differs: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    origin: Origin | None = None
    twins: tuple[Twin, ...] = ()
    problem: str | None = None
    left_out: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    port: Record | None = None
    tuned: Path | None = None

    @property
    def close(self) -> tuple[Match, ...]:
        """The other matches whose scores are about as good."""
        if self.match is None:
            return ()
        others = (match for match in self.matches if match.member.name != self.match.member.name)
        return tuple(match for match in others if match.score >= self.match.score - CLOSE)

    @property
    def states_another_network(self) -> bool:
        """Whether the file is stated to be a network that the recipe it fits does not have."""
        return self.origin is not None and self.origin.by != "graph" and self.origin.variant is None

    @property
    def framework(self) -> str | None:
        """The framework whose own format the file has, or which a port is for; None if several frameworks
        write such files.
        """
        format = known_format(self.checkpoint.format)
        return (format.framework if format else None) or self.checkpoint.dialect

    @property
    def bytes(self) -> int:
        """The size of the file, or of all files that hold the model."""
        files = self.checkpoint.files or (self.checkpoint.path,)
        return sum(file.stat().st_size for file in files if file.is_file())

    def record(self) -> dict[str, Any]:
        """Return the record that `porter inspect --json` prints; its matches are `match` and the `close`
        ones.
        """
        tensors = {
            name: {"shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in self.checkpoint.tensors.items()
        }
        matches = [match.record() for match in (self.match, *self.close) if match is not None]
        if self.port is not None and self.port.variant is not None:
            fits = {"score": 1.0, "missing": (), "unexpected": (), "notes": ()}
            matches = [{"variant": self.port.variant, "zoo": self.port.zoo, **fits}]
        return {
            "format": self.checkpoint.format,
            "bytes": self.bytes,
            "framework": self.framework,
            "classes": self.classes,
            "source_classes": self.source_classes,
            "size": self.size and list(self.size),
            "head": self.head,
            "activation": self.activation,
            "convert": next(iter(self.commands), None),
            "commands": list(self.commands),
            "differs": list(self.differs),
            "assumed": list(self.assumed),
            "origin": self.origin and self.origin.model_dump(),
            "twins": [asdict(twin) for twin in self.twins],
            "problem": self.problem,
            "left_out": list(self.left_out),
            "tuned": self.tuned and str(self.tuned),
            "notes": list(self.checkpoint.notes),
            "tensors": tensors,
            "matches": matches,
        }


@takes(InspectOptions)
def inspect(asked: InspectOptions) -> Inspection:
    """Return what a weights file is: format, variant, zoo, classes, input size, head and differences, and the
    command that ports it.

    Args:
        input_size: `320`, `(320, 640)` (rows x columns) or `320x640`, for a graph that leaves its size open;
            None for its own.
    """
    place = find(Path(asked.file))
    folder = path_of(asked.recipes)
    if isinstance(place, PortFolder):
        return _inspect_port(place.port)
    size = None if asked.input_size is None else parse_size(asked.input_size)
    checkpoint = read(place, size=size, md5=None)
    ranked = rank(checkpoint, folder)
    inspected = _inspect_file(checkpoint, ranked, folder, size)
    return replace(inspected, matches=ranked.matches, left_out=tuple(map(str, ranked.faults)))


def _inspect_file(
    checkpoint: Checkpoint, ranked: Ranked, recipes: Path | None, asked_size: Size | None
) -> Inspection:
    """Return what is known of a file: by the recipe that it is, otherwise by its own graph or its library."""
    likeliest = open_likeliest(ranked.contenders)
    if likeliest.match is not None and likeliest.opened is not None:
        return _inspect_opened(checkpoint, likeliest.match, likeliest.opened, recipes)
    if checkpoint.graph is not None:
        unmatched = _inspect_own_graph(checkpoint, asked_size)
    elif names_a_model(config_of(checkpoint)):
        return _inspect_by_library(checkpoint)
    else:
        unmatched = Inspection(checkpoint, problem=advice_without_recipe(checkpoint))
    for match, problem in likeliest.problems:
        commands = _commands_with_map(match, problem, recipes)
        if match.score >= LIKELY and unmatched.commands and not commands:
            return replace(unmatched, match=match, problem=f"{problem.where}: {problem.message}")
        # A match that does not open is shown if `--map` settles it, or if it is so near that it is meant.
        if commands or match.score >= LIKELY:
            return _inspect_unopened(checkpoint, match, problem, commands)
    return replace(_or_trained_port(unmatched), origin=stated_origin(checkpoint))


def _inspect_unopened(
    checkpoint: Checkpoint, match: Match, problem: PorterError, commands: tuple[str, ...]
) -> Inspection:
    """Return what is known of a file that a match does not open, with the commands that settle it."""
    # What is about the whole file has the commands as its next step.
    message = problem.message if problem.where == str(checkpoint.path) else str(problem)
    advice = None if commands else how_to_save_graph(checkpoint)
    return Inspection(
        checkpoint,
        match=match,
        size=_size(checkpoint, match),
        origin=origin_of(match.candidate).origin,
        problem=f"{message}; {advice}" if advice else message,
        commands=commands,
    )


def _inspect_by_library(checkpoint: Checkpoint) -> Inspection:
    """Return the command that ports a folder of the Hub whose network is in no recipe. Its library builds the
    network then; here it is not built.
    """
    line = CONVERT.line(subject=checkpoint.path.parent, to=other_than(checkpoint.dialect or "torch"))
    return Inspection(checkpoint, origin=stated_origin(checkpoint), commands=(line,))


def _inspect_port(port: StoredPort) -> Inspection:
    """Return what a port's record says of it, with the command that ports it on: to another framework, from
    the port itself or, for a converted one, from its model file.
    """
    record, checkpoint = port.record, read_checkpoint(port.folder / port.destination.MODEL_FILE)
    to, variant, folder = other_than(record.framework), record.variant, port.folder
    line = CONVERT.line(subject=folder, to=to)
    if is_converted(port.destination):
        line = convert_model_file(port, CONVERT.line)
    elif variant is not None:
        line = CONVERT.line(subject=variant, source=record.zoo, to=to, weights=folder, recipes=record.recipes)
    return Inspection(
        replace(
            checkpoint,
            path=port.folder,
            format="port",
            dialect=record.framework,
            files=tuple(port.folder / name for name in record.model),
        ),
        classes=record.classes,
        source_classes=record.classes,
        size=record.input.size,
        head=head_of(port.graph).path if record.classes else None,
        assumed=tuple(record.assumed),
        origin=record.origin,
        twins=record.twins,
        commands=(line,),
        port=record,
    )


def _or_trained_port(unmatched: Inspection) -> Inspection:
    """Return the inspection of a file that no recipe has, with the ports beside it whose models may have been
    trained on and saved as this file. With one such port there is no problem left, with several the problem
    names them, with none it says how to open the file.
    """
    checkpoint = unmatched.checkpoint
    # A file of tensors alone may not say its framework.
    trainable = TRAINED if checkpoint.graph is not None else (None, "jax", *TRAINED)
    if checkpoint.dialect not in trainable:
        return unmatched
    ports = find_ports_beside(checkpoint)
    commands = (*(line_for_trained(port, checkpoint) for port in ports), *unmatched.commands)
    if len(ports) == 1:
        return replace(unmatched, commands=commands, problem=None, tuned=ports[0])
    if ports:
        problem = f"the models of {' and '.join(map(str, ports))} take these tensors, and their graphs differ"
        return replace(unmatched, commands=commands, problem=problem)
    if checkpoint.graph is None:
        return replace(
            unmatched, problem=f"{advice_without_recipe(checkpoint)}; {advice_if_trained(checkpoint)}"
        )
    return unmatched


def _inspect_own_graph(checkpoint: Checkpoint, asked_size: Size | None) -> Inspection:
    """Return what is known of a file with a graph that no recipe has: its classes, size and head, and the
    command that ports it without a recipe; or the problem, if porter cannot open it.
    """
    assert checkpoint.graph is not None
    graph_size, size = checkpoint.graph.size, asked_size
    # A graph of no fixed size is tried at any size, or with its free rows or columns at a usual number.
    if size is None and checkpoint.graph.built_size is None:
        size = ANY if graph_size == ANY else fill_free_size(graph_size, PROBE)
    try:
        opened = open_graph(checkpoint, Wishes(size=size))
    except PorterError as error:
        problem = f"{error.message} ({error.next})" if error.next else error.message
        return Inspection(checkpoint, problem=problem)
    to = other_than(opened.framework)
    # A typed size is needed if the destination cannot say the graph at every size.
    command_size = PROBE if size == ANY and not _takes_any_size(opened, to) else size
    size_option = None if command_size is None else size_text(command_size)
    return Inspection(
        checkpoint,
        classes=opened.facts.classes or None,
        source_classes=opened.facts.classes or None,
        size=opened.built_size,
        head=opened.fitted.fit.head if opened.fitted else None,
        activation=opened.facts.activation,
        commands=(CONVERT.line(subject=checkpoint.path, to=to, input_size=size_option),),
    )


def _takes_any_size(opened: Opened, to: str) -> bool:
    """Return whether the destination can say the graph at every size: Keras, for example, has no pools to
    several cells.
    """
    try:
        make_plan(opened.graph, ANY, get_destination(to).CAPABILITIES)
    except (PaddingError, GraphError):
        return False
    return True


def _inspect_opened(checkpoint: Checkpoint, match: Match, opened: Opened, recipes: Path | None) -> Inspection:
    """Return what is known of a file that a recipe was opened for, with a command for the match and for each
    of its possible twins (zoos' models with the same tensors that compute something else).
    """
    assert opened.member is not None
    match = replace(match, candidate=replace(match.candidate, member=opened.member))
    return Inspection(
        checkpoint,
        match=match,
        classes=opened.facts.classes,
        source_classes=opened.facts.source_classes,
        size=_size(checkpoint, match),
        head=opened.fitted.fit.head if opened.fitted else None,
        activation=opened.facts.activation,
        differs=(
            *(note for note in opened.file.notes if note not in (*checkpoint.notes, OWN_GRAPH)),
            *opened.warnings,
        ),
        assumed=opened.facts.assumed,
        origin=opened.facts.origin,
        twins=opened.facts.twins,
        commands=tuple(
            convert_command(
                member, other_than(opened.framework), checkpoint.path, recipes, write_command=CONVERT.line
            )
            for member in (match.member, *_possible_twins(match.member, opened))
        ),
    )


def _possible_twins(member: Member, opened: Opened) -> tuple[Member, ...]:
    """Return the zoos' models that the file may be as well: they take the same tensors and compute something
    else, and nothing states where the weights come from. Otherwise return an empty tuple.
    """
    twins = () if opened.facts.origin is not None else opened.facts.twins
    return tuple(member.recipe.member(twin.variant, twin.zoo) for twin in twins)


def _commands_with_map(match: Match, error: PorterError, recipes: Path | None) -> tuple[str, ...]:
    """Return a command for each setting of `--map` that the error lists and that opens the file."""
    commands = []
    for setting in error.maps if isinstance(error, MappingError) else ():
        try:
            opened = open_match(match, Wishes(map=(setting,)))
        except PorterError:
            continue
        path = match.candidate.checkpoint.path
        commands.append(
            convert_command(
                match.member, other_than(opened.framework), path, recipes, (setting,), CONVERT.line
            )
        )
    return tuple(commands)


def _size(checkpoint: Checkpoint, match: Match) -> KnownSize | None:
    """Return the input size of the file's graph, None if it takes any; the recipe's own size if the file has
    no graph.
    """
    if checkpoint.graph is None:
        return match.member.native_size()
    return checkpoint.graph.built_size

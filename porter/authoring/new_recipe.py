"""A recipe drafted from a file that carries its graph, or from a file of weights only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from porter.authoring.draft.draft import Draft, DraftFacts, draft_recipe
from porter.authoring.draft.from_weights import draft_from_weights
from porter.authoring.draft.name_table import MARK
from porter.authoring.draft.network_layers import list_layers
from porter.authoring.todo import to_do
from porter.base.commands import CONVERT, FRAMEWORK, INSPECT, RECIPE_CHECK
from porter.base.errors import Contradiction, GraphError, MappingError, PorterError, RecipeError, UsageError
from porter.base.options import FROM_MODEL, WEIGHTS, ZOO
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.to_graph import Translated
from porter.files import behind_links, write_whole
from porter.frameworks import engine_name, other_than
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import ChannelScale, Graph, Op, further_text, tensor_shapes
from porter.graph.difference import same_graph
from porter.padding import Size
from porter.port import TensorLists
from porter.recipe import Member, convert_command, declared_recipes, expand, layer_names, load_recipe
from porter.recipe.schema import Word
from porter.source.advice import error_without_graph, how_to_save_graph
from porter.source.by_recipe import open_candidate, open_likeliest
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.without_cells import without_cells
from porter.source.library_model import build_by_library
from porter.source.open import open_source
from porter.source.origin import as_stated_zoo
from porter.source.own_graph import classes_of, translate
from porter.source.place import file_at, find
from porter.source.ranking.rank import NEAR, rank
from porter.source.reading import read
from porter.source.wishes import Wishes
from porter.zoos.tables import DEFAULT_ZOOS

OWN = "own"
"""The zoo of a drafted recipe, if the caller names none."""


@dataclass(frozen=True)
class NewRecipe:
    """A drafted recipe.

    Attributes:
        path: where it was written.
        command: the line to type next.
        tensors: of the weights that it was tried on; None without weights.
        problem: why it does not fit the weights that it was tried on, if it does not.
    """

    path: Path
    variant: str
    zoo: str
    draft: Draft
    command: str = ""
    tensors: TensorLists | None = None
    problem: str | None = None

    @property
    def lines(self) -> int:
        return len(self.draft.text.splitlines())

    @property
    def to_do(self) -> int:
        """Lines that say what is not known."""
        return sum(1 for _ in to_do(self.draft.text))

    def record(self) -> dict[str, Any]:
        """Return the record that `porter recipe new --json` prints."""
        return {
            "recipe": str(self.path),
            "variant": self.variant,
            "zoo": self.zoo,
            "lines": self.lines,
            "nodes": len(self.draft.graph.nodes),
            "blocks": dict(self.draft.blocks),
            "tensors": self.tensors and self.tensors.counts(),
            "to_do": self.to_do,
            "problem": self.problem,
            "next": self.command,
        }


def _expect_names(variant: str, zoo: str, path: Path) -> None:
    """Expect names that a recipe may have, and that no recipe but the one at `path` has."""
    for name, where in ((variant, "NAME"), (zoo, str(ZOO))):
        try:
            TypeAdapter(Word).validate_python(name)
        except ValidationError:
            next = "write a letter, then letters, digits and _ . + -, 64 at most"
            raise UsageError(f"'{name}' cannot be a name in a recipe", where=where, next=next) from None
    beside = path.parent if any(path.parent.glob("*.yaml")) else None
    for recipe in declared_recipes(beside):
        if variant in recipe.names and recipe.path.resolve() != path.resolve():
            raise UsageError(
                f"the name '{variant}' is taken: {recipe.path} has it",
                where="NAME",
                next="give it another name",
            )


def new_recipe(
    variant: str,
    path: Path,
    model: Path | None = None,
    weights: Path | None = None,
    zoo: str = OWN,
    size: Size | None = None,
) -> NewRecipe:
    """Draft a recipe from the graph of a file, and write it if it loads and expands to the same function.

    Without such a file it is drafted from weights: their layers one after the other, with `# TODO` at what
    they do not say.

    Args:
        variant: the name of the only variant, and of the architecture.
        path: the recipe's file, which is replaced if it exists.
        model: a file that carries its graph, or a folder of the Hub.
        weights: a file on which the recipe is tried too; without `model`, the file that it is drafted from.
        zoo: the name of the only zoo.
        size: the input size, for a file that states none.

    Raises:
        UsageError: the file carries no graph, or one that recipes cannot say; the name is taken or is none.
        MappingError: porter has no op for a part of the graph.
        FileError: a file cannot be read or written.
    """
    _expect_names(variant, zoo, path)
    source_file = model or weights
    if source_file is None:
        next = (
            f"add {FROM_MODEL.placeholder}, which carries a graph, or {WEIGHTS.placeholder}, which does not"
        )
        raise UsageError("a recipe is drafted from a file", where=FROM_MODEL, next=next)
    checkpoint = read(file_at(source_file))
    if model is None and checkpoint.graph is None:
        return _from_weights(checkpoint, variant, zoo, path)
    if checkpoint.graph is None and (built := build_by_library(checkpoint, size=size)) is not None:
        checkpoint, size = built.checkpoint, size or built.saved.size
    if checkpoint.graph is None:
        raise error_without_graph(checkpoint, open_likeliest(rank(checkpoint).likely))
    if checkpoint.graph.further_inputs:
        message = (
            "a recipe's graph has one input, and this model takes more: "
            f"input{further_text(checkpoint.graph)}"
        )
        next = f"port the file itself: {CONVERT.advise(subject=source_file, to=FRAMEWORK)}"
        raise UsageError(message, where=source_file, next=next)
    # Names of tensors that are in no framework's own form, as in ONNX, mostly come from torch.
    names_framework = checkpoint.dialect or engine_name(checkpoint)
    framework = names_framework if names_framework in DEFAULT_ZOOS else "torch"
    draft = _draft_from_graph(checkpoint, checkpoint.graph, framework, variant, zoo, size)

    def open_weights(member: Member) -> TensorLists | None:
        """Return how the tensors of the given weights are used; None without them."""
        return None if weights is None else open_source(find(weights), member=member).lists

    new = _write_tried(NewRecipe(path, variant, zoo, draft), open_weights, (MappingError,), str)
    if new.problem is not None:
        return replace(new, command=RECIPE_CHECK.line(file=path, weights=weights or source_file))
    member = load_recipe(path).member(variant, zoo)
    line = convert_command(member, other_than(framework), weights or source_file, path.parent)
    return replace(new, command=line)


def _draft_from_graph(
    checkpoint: Checkpoint, file: FileGraph, framework: str, variant: str, zoo: str, size: Size | None
) -> Draft:
    """Draft a recipe from the graph `file` that a checkpoint carries, and return it. Maps of one cell are
    features in it, unless the graph does not translate so.
    """
    try:
        translated, native = translate(replace(checkpoint, graph=without_cells(file)), Wishes(size=size))
    except MappingError:  # a convolution reads one cell
        translated, native = translate(checkpoint, Wishes(size=size))
    classes = classes_of(translated.graph, native, translated.activation)
    facts = DraftFacts(variant, zoo, framework, native, classes, translated.activation)
    dialect = get_dialect(framework)
    names = {path: name.replace("/", dialect.SEPARATOR) for path, name in translated.names.items()}
    names |= _bare_names(translated, file, dialect)
    return draft_recipe(with_short_decimals(translated.graph), names, facts)


def _bare_names(translated: Translated, file: FileGraph, dialect: Dialect) -> dict[str, str]:
    """Return by path the names of trained scales whose tensor has no layer of its own in the file, such as
    `blocks.0.gamma`, with `MARK` before the last word.
    """
    names = {}
    for path, roles in tensor_shapes(translated.graph).items():
        node, name = translated.graph.by_path[path], translated.names[path]
        is_single_scale = isinstance(node.op, ChannelScale) and len(roles) == 1
        if not is_single_scale or name not in file.by_name:
            continue
        layer = file.by_name[name]
        tensor = next((stored.name for stored in layer.tensors.values()), "")
        module, separator, variable = tensor.rpartition(dialect.SEPARATOR)
        spelled = dialect.tensor_names(translated.graph, node, layer.name).values()
        names_of_layer = {spelling for spellings in spelled for spelling in spellings}
        if tensor not in names_of_layer and variable.isidentifier():
            names[path] = f"{module}{separator}{MARK}{variable}"
    return names


def _from_weights(checkpoint: Checkpoint, variant: str, zoo: str, path: Path) -> NewRecipe:
    """Draft and write a recipe from a file that has weights and no graph, try it on that file, and return
    it.
    """
    listed = list_layers(checkpoint)
    if not listed.layers:
        message = "no tensor's name says what its layer is, such as conv1.weight or conv1/kernel"
        raise UsageError(
            message,
            where=checkpoint.path,
            next=how_to_save_graph(checkpoint)
            or f"{INSPECT.advise(file=checkpoint.path, tensors=True)} lists them",
        )
    lines = [
        (
            f"Drafted from the {len(listed.layers)} layers of {checkpoint.path.name}: their "
            "names, shapes and order."
        ),
        (
            "A file of weights says no strides, pads, activations, pools, branches and joins: here each "
            "layer reads the one before."
        ),
        (
            "Decide at each TODO, and add what leaves no tensors: the sums of residuals, pools where the "
            "maps become smaller."
        ),
    ]
    if not listed.ordered:
        lines.append(
            "TODO: the order of the layers, because the file does not keep it: they stand in the order "
            "of their names"
        )
    for match in rank(checkpoint, least=NEAR).matches[:1]:
        if match.score >= NEAR:
            member = as_stated_zoo(match.candidate).member
            line = convert_command(member, other_than(listed.framework), checkpoint.path, None)
            lines.append(
                f"{match.score:.0%} of the tensors fit {member.name}, of a recipe that exists: {line}"
            )
    draft = draft_from_weights(listed, variant, zoo, lines)
    return _write_tried(
        NewRecipe(path, variant, zoo, draft, RECIPE_CHECK.line(file=path, weights=checkpoint.path)),
        lambda member: open_candidate(Candidate.of(member, checkpoint)).lists,
        (RecipeError, GraphError, MappingError),  # what is not known has to be decided first
        attrgetter("message"),
    )


def _write_tried(
    new: NewRecipe,
    open_weights: Callable[[Member], TensorLists | None],
    expected: tuple[type[PorterError], ...],
    say: Callable[[PorterError], str],
) -> NewRecipe:
    """Load a drafted recipe, try it on weights, write it, and return it with what came of the trial.

    Args:
        open_weights: opens the weights as the recipe's only member.
        expected: errors that are a problem of the draft, which is written all the same.
        say: gives the words of such a problem.
    """
    tensors, problem = None, None
    with TemporaryDirectory() as folder:
        try:
            tensors = open_weights(_load_draft(new, Path(folder) / new.path.name))
        except expected as error:
            problem = say(error).replace(folder, str(new.path.parent))
    new.path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(behind_links(new.path), new.draft.text)
    return replace(new, tensors=tensors, problem=problem)


def _load_draft(new: NewRecipe, trial: Path) -> Member:
    """Write the draft to the file `trial`, load it, expect that it names its nodes, and return its only
    member.

    Raises:
        Contradiction: it expands to another graph than the one that it is drafted from.
    """
    trial.write_text(new.draft.text, encoding="utf-8")
    member = load_recipe(trial).member(new.variant, new.zoo)
    expanded = expand(member)
    layer_names(member, expanded)
    if not same_graph(new.draft.graph, expanded):
        raise Contradiction("the drafted recipe says another graph than the file", where=new.path)
    return member


def with_short_decimals(graph: Graph) -> Graph:
    """Return the graph with the shortest decimals of epsilons and slopes that a file keeps in float32:
    torch's 1e-5 is 9.99999974e-6 in ONNX.
    """
    nodes = (replace(node, op=_with_short_decimals(node.op)) for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def _with_short_decimals(op: Op) -> Op:
    """Return an op with the shortest decimals of those numbers from 0 to 1 that float32 has."""
    short: dict[str, Any] = {}
    for attribute in fields(op):
        value = getattr(op, attribute.name)
        if isinstance(value, float) and 0 < value < 1 and float(np.float32(value)) == value:
            short[attribute.name] = float(str(np.float32(value)))
    return replace(op, **short)

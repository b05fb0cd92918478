"""A recipe drafted from a file that carries its graph."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from porter.errors import UsageError
from porter.files import write_whole
from porter.frameworks import runner_of
from porter.graph import Graph, Op
from porter.graph.difference import site_differences
from porter.padding import ANY, Convention, Size
from porter.port import TensorLists
from porter.recipe import expand, layer_names, load_recipe, recipes_option
from porter.recipe.draft.draft import Draft, Facts, draft_recipe
from porter.source.from_file import classes_of, no_graph, translation
from porter.source.opened import open_source
from porter.source.weights import read_weights

OWN = "own"
"""The zoo of a drafted recipe, if the caller names none."""


@dataclass(frozen=True)
class NewRecipe:
    """A drafted recipe.

    Attributes:
        path: where it was written.
        command: the line that ports the file with it.
        tensors: of the weights that it was tried on; None without weights.
    """

    path: Path
    variant: str
    zoo: str
    draft: Draft
    command: str
    tensors: TensorLists | None = None

    @property
    def lines(self) -> int:
        return len(self.draft.text.splitlines())

    def record(self) -> dict[str, Any]:
        """As JSON."""
        found = self.tensors
        tensors = None if found is None else {"used": len(found.used), "ignored": len(found.ignored)}
        return {
            "recipe": str(self.path),
            "variant": self.variant,
            "zoo": self.zoo,
            "lines": self.lines,
            "nodes": len(self.draft.graph.nodes),
            "blocks": dict(self.draft.blocks),
            "tensors": tensors,
            "convert": self.command,
        }


def new_recipe(
    variant: str,
    model: Path,
    weights: Path | None = None,
    zoo: str | None = None,
    out: Path | None = None,
    size: Size | None = None,
    overwrite: bool = False,
) -> NewRecipe:
    """Drafts a recipe from the graph of a file, and writes it if it loads and expands to the same function.

    Args:
        variant: the name of the only variant, and of the architecture.
        weights: a file on which the recipe is tried too.
        zoo: the name of the only zoo.
        out: the recipe's file; None for ./VARIANT.yaml.
        size: the input size, for a file that states none.

    Raises:
        UsageError: the file carries no graph, or one that recipes cannot say; `out` exists; the name is taken or is none.
        MappingError: porter has no op for a part of the graph, or `weights` do not fit.
        FileError: a file cannot be read or written.
    """
    path, zoo = out or Path(f"{variant}.yaml"), zoo or OWN
    if path.exists() and not overwrite:
        raise UsageError("this file exists", where=str(path), next="add --overwrite to replace it, or --out FILE")
    checkpoint, _ = read_weights(model, with_md5=False)
    runner = runner_of(checkpoint)
    if checkpoint.graph is None or runner is None:
        raise no_graph(checkpoint, None)
    found, built = translation(checkpoint, size)
    facts = Facts(variant, zoo, runner.NAME, built, classes_of(found.graph, built, found.activation), found.activation)
    draft = draft_recipe(found.graph, found.names, facts)
    with TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(draft.text, encoding="utf-8")
        recipe = load_recipe(trial)
        member = recipe.zoo(zoo, variant)
        expanded = expand(recipe, variant, member)
        layer_names(recipe, variant, member, expanded)
        assert same_function(draft.graph, expanded), "a draft expands to the graph that it is drafted from"
        tried = None if weights is None else open_source(recipe, variant, member, weights).lists
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, draft.text)
    words = ["porter", "convert", variant, "--from", zoo, "--to", _destination(runner.NAME), "--weights", str(weights or model)]
    words += recipes_option(load_recipe(path), path.parent)
    return NewRecipe(path, variant, zoo, draft, shlex.join(words), tried)


def same_function(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same nodes, in any order, and pads that give the same values at every size."""

    def nodes(graph: Graph) -> dict[str, tuple[Op, tuple[str, ...]]]:
        return {node.path: (_unpadded(node.op), node.inputs) for node in graph.nodes}

    return nodes(one) == nodes(other) and one.outputs == other.outputs and not any(site_differences(one, other, ANY))


def _unpadded(op: Op) -> Op:
    return replace(op, convention=Convention()) if hasattr(op, "convention") else op  # type: ignore[type-var]


def _destination(framework: str) -> str:
    return "tf" if framework == "torch" else "torch"

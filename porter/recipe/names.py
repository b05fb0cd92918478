"""What a zoo calls each node of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from porter.errors import RecipeError
from porter.graph import Graph, tensor_shapes
from porter.recipe.errors import did_you_mean
from porter.recipe.expand import expand
from porter.recipe.expressions import ExpressionError
from porter.recipe.patterns import fill, match
from porter.recipe.schema import NameSpec, Recipe, Zoo


@dataclass(frozen=True)
class LayerName:
    """A node's name in a zoo, and the transforms (porter.transforms) that its tensors need."""

    name: str
    transforms: tuple[str, ...] = ()


def layer_names(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, generation: str | None = None) -> dict[str, LayerName]:
    """Path to name for every node that the zoo names, those without tensors (as taps) included.

    Patterns are tried in the order written, the first that matches wins.

    Raises:
        RecipeError: a node with tensors that no pattern names, two nodes with one name, or a pattern that matches no node of
            any variant.
    """
    names = zoo.names if generation is None else zoo.generations[generation]
    table = ("names",) if generation is None else ("generations", generation)
    scope = {**recipe.variants[variant], **recipe.options, **zoo.options, "variant": variant}
    found: dict[str, LayerName] = {}
    owners: dict[str, str] = {}
    unused = set(names)
    for node in graph.nodes:
        for pattern, entry in names.items():
            captured = match(pattern, node.path)
            if captured is None:
                continue
            unused.discard(pattern)
            spec = entry if isinstance(entry, NameSpec) else NameSpec(name=entry)
            where = recipe.where("zoos", zoo.name, *table, pattern)
            try:
                name = fill(spec.name, {**scope, **captured})
            except ExpressionError as error:
                raise RecipeError(str(error), where=where, next=error.hint) from None
            if name in owners:
                raise RecipeError(f"{node.path} and {owners[name]} would both be '{name}'", where=where)
            owners[name] = node.path
            found[node.path] = LayerName(name, spec.transforms)
            break
    unnamed = [path for path in tensor_shapes(graph) if path not in found]
    if unnamed:
        where = recipe.where("zoos", zoo.name, *table)
        raise RecipeError(f"zoo '{zoo.name}' does not name {unnamed[0]}", where=where, next="add it to the names")
    for pattern in unused:
        _expect_match_elsewhere(recipe, zoo, pattern, recipe.where("zoos", zoo.name, *table, pattern))
    return found


def _expect_match_elsewhere(recipe: Recipe, zoo: Zoo, pattern: str, where: str) -> None:
    paths: list[str] = []
    for variant in recipe.variants:
        paths = [node.path for node in expand(recipe, variant, recipe.zoo(zoo.name, variant), {}).nodes]
        if any(match(pattern, path) is not None for path in paths):
            return
    raise RecipeError(f"'{pattern}' matches no node of any variant", where=where, next=did_you_mean(pattern, paths))

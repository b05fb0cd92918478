"""The names that a zoo gives the nodes of a graph: patterns evaluated forwards, first match wins.

In a name, `{count}` is the number of nodes that its line has named before, in the graph's order: for frameworks that number their
layers. `{input}` is the name of the node's input: for norms that are named after their convolution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from porter.errors import RecipeError, UsageError
from porter.graph import INPUT, Graph, Node, tensor_shapes
from porter.recipe.expand import graphs_of_others
from porter.recipe.expressions import fill_in
from porter.recipe.model import LayerName, NameRule, Recipe, Zoo
from porter.recipe.patterns import match_path
from porter.recipe.spelling import hint


def layer_names(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, generation: str | None = None) -> dict[str, LayerName]:
    """The zoo's names of nodes, by path; they are distinct, so that the inverse is a dictionary.

    Args:
        graph: the result of `expand` for this variant and zoo.
        generation: label of an older generation, whose names match before the zoo's, or None for the zoo's own.

    Raises:
        UsageError: no such generation.
        RecipeError: a node with tensors has no name, two nodes have one name, or a pattern matches no node of any variant.
    """
    if generation is not None and generation not in zoo.generations:
        raise UsageError(f"zoo '{zoo.name}' has no generation '{generation}' of names", next=hint(generation, zoo.generations))
    older = () if generation is None else zoo.generations[generation].names
    found = _named(recipe, variant, zoo, graph, (*older, *zoo.names))
    for path in tensor_shapes(graph):
        if path not in found:
            where = recipe.source.where(("zoos", zoo.name, "names"), key=True)
            raise RecipeError(f"zoo '{zoo.name}' does not name '{path}'", where=where)
    return found


def tap_names(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph) -> Mapping[str, str]:
    """By path, the source's layers whose output can be read: the names of `taps`, otherwise those of `layer_names`.

    A layer in `taps` shows that node only: Keras's convolutions may contain their activation, and show its values.

    Raises:
        RecipeError: as `layer_names`.
    """
    taps = {path: layer.name for path, layer in _named(recipe, variant, zoo, graph, zoo.taps).items()}
    layers = layer_names(recipe, variant, zoo, graph)
    return {path: layer.name for path, layer in layers.items() if layer.name not in taps.values()} | taps


def _named(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, rules: Sequence[NameRule]) -> dict[str, LayerName]:
    variables = {**recipe.options, **zoo.options, **recipe.parameters(variant), "variant": variant}
    found: dict[str, LayerName] = {}
    owners: dict[str, str] = {}
    counts: Counter[NameRule] = Counter()
    for node in graph.nodes:
        matches = ((rule, match_path(rule.pattern, node.path)) for rule in rules)
        rule, captured = next(((rule, captured) for rule, captured in matches if captured is not None), (None, None))
        if rule is None or captured is None:
            continue
        with recipe.source.at(rule.location):
            name = fill_in(rule.name, {**variables, **_place(node, found), "count": counts[rule], **captured})
            if name in owners:
                raise RecipeError(f"'{owners[name]}' and '{node.path}' both have the name '{name}'")
        owners[name] = node.path
        counts[rule] += 1
        found[node.path] = LayerName(name, rule.transforms, (*rule.location, "name"))
    _expect_matches(recipe, variant, zoo, graph, rules)
    return found


def _place(node: Node, found: Mapping[str, LayerName]) -> dict[str, str]:
    first = node.inputs[0]
    return {INPUT: found[first].name} if first in found else {}


def _expect_matches(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, rules: Sequence[NameRule]) -> None:
    unmatched = _unmatched(rules, graph)
    if unmatched:
        for other in graphs_of_others(recipe, variant, zoo):
            unmatched = _unmatched(unmatched, other)
    if unmatched:
        where, paths = recipe.source.where(unmatched[0].location, key=True), (node.path for node in graph.nodes)
        raise RecipeError(f"'{unmatched[0].pattern}' matches no node", where=where, next=hint(unmatched[0].pattern, paths))


def _unmatched(rules: Sequence[NameRule], graph: Graph) -> list[NameRule]:
    return [rule for rule in rules if not any(match_path(rule.pattern, node.path) is not None for node in graph.nodes)]

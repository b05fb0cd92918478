"""Makes the graph of a recipe, a variant and a zoo, and checks what it must hold: shapes, sites for the
padding, labels, a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from porter.base.errors import RecipeError, UsageError
from porter.graph import Conv, Dense, Graph, head_of, site_of
from porter.padding import Convention
from porter.recipe.expressions import UnknownVariable, Value
from porter.recipe.faults import Faults
from porter.recipe.kept_graphs import Expanded, KeptGraphs, TooLarge
from porter.recipe.paddings import PadRule
from porter.recipe.path_patterns import match_path, unmatched_error
from porter.recipe.recipe import Member, Recipe
from porter.recipe.source import Location, Mark
from porter.recipe.spelling import hint
from porter.recipe.unrolling import MAX_USES, Unrolling


def expand(member: Member, options: Mapping[str, Value] | None = None, *, as_trained: bool = False) -> Graph:
    """Return the graph of a variant as its zoo has it.

    Args:
        options: they override the zoo's and the recipe's, such as {"classes": 10}.
        as_trained: use the training pads at the sites where the zoo ships others.

    Raises:
        UsageError: no such variant or option.
        RecipeError: with its place: an expression, a value, a shape or a reference is wrong, or a rule of the
            zoo's padding matches no site of any variant.
    """
    if options or as_trained:
        return expand_steps(member, options, as_trained=as_trained).graph
    return _expand_once(member, MAX_USES)


def _expand_once(member: Member, most: int) -> Graph:
    """Return the graph of a member, checked against its zoo. It is kept in the recipe, and returned from
    there the next time.

    Raises:
        TooLarge: it has more than `most` nodes.
    """
    decided_by = (member.zoo.options, member.zoo.padding)  # what a caller may have changed in the zoo
    kept = member.recipe.kept
    expanded = kept.find(member.is_a, decided_by, most)
    if expanded is None:
        expanded = expand_steps(member, most=most)
        kept.keep(member.is_a, decided_by, expanded)
    return expanded.graph


def expand_within(member: Member, nodes: int) -> Graph | None:
    """Return the graph as `expand` does; None if it has more than `nodes` nodes. It is then not expanded to
    its end.

    Raises:
        RecipeError: as `expand`.
    """
    try:
        return _expand_once(member, nodes)
    except TooLarge:
        return None


def expand_steps(
    member: Member,
    options: Mapping[str, Value] | None = None,
    *,
    as_trained: bool = False,
    most: int = MAX_USES,
) -> Expanded:
    """Return the graph as `expand` does, with the step that each node is from.

    Args:
        most: the nodes that the graph may have; more raise TooLarge.
    """
    recipe, chosen = member.recipe, options or {}
    for name in chosen:
        if name not in recipe.options:
            raise UsageError(
                f"'{recipe.architecture}' has no option '{name}'", next=hint(name, recipe.options)
            )
    expanded = _expand_or_reuse(member, chosen, as_trained, most)
    _expect_sites(member, *expanded)
    if "classes" not in chosen:
        _expect_labels(member, expanded.graph)
    return expanded


def trained_conventions(member: Member) -> dict[str, Convention]:
    """Return the convention of pads of training by path, for every site (convolution or pool) that the zoo's
    `padding_as_trained` names; an empty mapping if it names none.
    """
    rules = member.zoo.padding_as_trained
    conventions: dict[str, Convention] = {}
    for node in expand(member, as_trained=True).nodes if rules else ():
        site = site_of(node.op)
        if site is not None and any(rule.matches(node.path, site.kind) for rule in rules):
            conventions[node.path] = site.convention
    return conventions


def options_of(member: Member) -> Mapping[str, Value]:
    """Return all options of a variant's graph by name: the recipe's, with those that the zoo sets for the
    variant in their place.
    """
    return {**member.recipe.options, **member.zoo.options}


def expect_head(recipe: Recipe, graph: Graph) -> None:
    """Refuse a recipe's graph without a head, see porter.graph.head_of.

    Raises:
        RecipeError: it ends in another op.
    """
    head = head_of(graph)
    if not isinstance(head.op, Dense | Conv):
        raise RecipeError(
            f"the graph ends in '{head.path}' ({head.op_name}), expected a dense layer, or a global pool "
            "of a 1x1 convolution",
            where=recipe.source.where(("graph", len(recipe.graph) - 1)),
            next="end it in {dense: head/logits, units: =classes}; a file that has no such layer is "
            "ported to its features",
        )


def graphs_of_other_variants(member: Member) -> Iterator[Graph]:
    """Yield the graphs of the zoo's other variants: a rule that matches nothing in one graph may be there for
    another.
    """
    recipe, variant, zoo = member
    for other_variant in recipe.variants:
        if other_variant != variant and zoo.has(other_variant):
            other_zoo = recipe.zoos.get(zoo.name, zoo).of(other_variant)
            yield _expand_or_reuse(Member(recipe, other_variant, other_zoo), {}, False).graph


def _expand_or_reuse(
    member: Member, options: Mapping[str, Value], as_trained: bool, most: int = MAX_USES
) -> Expanded:
    """Return the graph of a member, not yet checked against its zoo. The recipe keeps it, so that another
    zoo with the same variables and rules of padding uses it again.

    Raises:
        RecipeError: a step is wrong; the message names the variant and the zoo.
        TooLarge: it has more than `most` nodes.
    """
    recipe, variant, zoo = member
    variables = member.variables(options)
    rules = (*zoo.padding_as_trained, *zoo.padding) if as_trained else zoo.padding
    decided_by = variables, [(rule.pattern, rule.value) for rule in rules]
    # Graphs with a caller's options are not kept: there may be any number.
    kept = KeptGraphs() if options else recipe.kept
    if (same := kept.find(variant, decided_by, most)) is not None:
        return same
    expansion = Unrolling(recipe, variables, rules, _origins(member, options), most)
    try:
        graph = expansion.graph()
    except UnknownVariable as error:
        raise _missing_variable(recipe, variant, error) from None
    except RecipeError as error:
        error.message += f", in {variant} from {zoo.name}"
        raise
    expanded = Expanded(graph, expansion.locations)
    kept.keep(variant, decided_by, expanded)
    return expanded


def _missing_variable(recipe: Recipe, variant: str, error: UnknownVariable) -> RecipeError:
    """Return the error for a variable that is not known: `error` itself, or one at the variant, if other
    variants of the recipe have such a parameter and only this one lacks it.
    """
    if not any(error.name in parameters for parameters in recipe.variants.values()):
        return error
    where = recipe.source.where(("variants", variant), key=True)
    advice = hint(error.name, recipe.parameters(variant))
    return RecipeError(
        f"'{variant}' has no '{error.name}', which {error.where} uses", where=where, next=advice
    )


def _origins(member: Member, options: Mapping[str, Value]) -> dict[tuple[str, str], Mark]:
    """Return where the value of each variable is written, by ("", name), as `Unrolling.origins` has them, so
    that an error can name that place. Those of a caller's options are written nowhere.
    """
    recipe, variant, zoo = member
    places: dict[str, Location] = {name: ("options", name) for name in recipe.options}
    places |= {name: ("constants", name) for name in recipe.constants}
    places |= {name: ("zoos", zoo.name, "options", name) for name in zoo.options}
    places |= {name: ("variants", variant, name) for name in recipe.parameters(variant)}
    marks = {name: recipe.source.mark(place) for name, place in places.items() if name not in options}
    return {("", name): mark for name, mark in marks.items() if mark}


def _expect_sites(member: Member, graph: Graph, steps: Mapping[str, Location]) -> None:
    """Expect that each padding rule of a zoo matches a site (convolution or pool) of some variant. Raises
    RecipeError at those that match none, with what they match instead.
    """
    recipe, zoo = member.recipe, member.zoo
    without_site = _rules_without_site((*zoo.padding_as_trained, *zoo.padding), graph)
    if without_site:
        for other_graph in graphs_of_other_variants(member):
            without_site = _rules_without_site(without_site, other_graph)
            if not without_site:
                break
    faults = Faults()
    sites = {node.path: steps[node.path] for node in graph.nodes if site_of(node.op)}
    for rule in without_site:
        with faults.collect(), recipe.source.at(rule.location, key=True):
            matching = (node for node in graph.nodes if match_path(rule.pattern, node.path) is not None)
            node = next(matching, None)
            if node is not None and site_of(node.op) is None:
                message = f"'{rule.pattern}' is not a padding site: '{node.path}' is a {node.op_name}"
                raise RecipeError(message, next="only convolutions and pools have a padding")
            raise unmatched_error(
                f"'{rule.pattern}' matches no padding site",
                rule.pattern,
                sites,
                [padding_rule.pattern for padding_rule in zoo.padding],
            )
    faults.expect_none()


def _expect_labels(member: Member, graph: Graph) -> None:
    """Refuse labels of another number of classes than the zoo's own head has, without a background class.
    Nothing is checked without labels or a head.
    """
    recipe, variant, zoo = member
    labels = zoo.labels
    head = head_of(graph)
    if labels is None or not isinstance(head.op, Dense | Conv):
        return
    rule = next((rule for rule in zoo.names if match_path(rule.pattern, head.path) is not None), None)
    classes = graph.channels_by_path[head.path]
    if rule is not None and "drop_background" in rule.transforms:
        classes -= 1
    if classes != labels.count:
        place = recipe.source.mark(("zoos", zoo.name, "weights", variant, "labels"))
        raise RecipeError(
            f"'{labels.name}' has {labels.count} labels, and the head of {variant} from {zoo.name} has "
            f"{classes} classes",
            where=place or recipe.source.where(("zoos", zoo.name, "labels")),
            next="set 'classes' in the options of the recipe or of the zoo, or name the labels of this head",
        )


def _rules_without_site(rules: Sequence[PadRule], graph: Graph) -> list[PadRule]:
    """Return the rules of padding that match no site (convolution or pool) of a graph."""
    sites = [(node.path, site.kind) for node in graph.nodes if (site := site_of(node.op))]
    return [rule for rule in rules if not any(rule.matches(path, kind) for path, kind in sites)]

"""The names that a zoo gives the nodes of a graph: patterns evaluated forwards, first match that can be
computed wins.

A key that ends with `/` opens a scope: a table whose patterns continue the key. `prefix` in a table is what
all its names begin with, those of its scopes too.

In a name, `{count}` is the number of nodes that its line has named before, in the graph's order: for
frameworks that number their layers. `{place}` is the position of the node, or of a scope, in its table
(porter.recipe.module_numbers). `{input}` is the name of the node's input: for norms that are named after
their convolution. In a tap, `{own}` is the node's own name, and `{input}` its input's. A name that begins
with one of both is whole, so no prefix comes before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.base.errors import RecipeError, UsageError
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import INPUT, Affine, Graph, Node, head_of, tensor_shapes
from porter.recipe.expansion import expand_steps, graphs_of_others
from porter.recipe.expressions import NoNumber, fill_in, placeholders
from porter.recipe.faults import Faults
from porter.recipe.fixed import COMPUTED
from porter.recipe.module_numbers import Places
from porter.recipe.path_patterns import captures, compile_pattern, match_path, unmatched
from porter.recipe.recipe import OWN, PLACE, RESERVED, LayerName, Member, NameRule, NodeNames, Placed
from porter.recipe.schema import NameSection, one_of, parse_section
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint, nearest
from porter.recipe.transforms import TRANSFORMS

PREFIX = "prefix"
WHOLE = (f"{{{INPUT}}}", f"{{{OWN}}}")
"""Words of a name that are whole names."""


def layer_names(member: Member, graph: Graph, generation: str | None = None) -> dict[str, LayerName]:
    """The zoo's names of nodes, by path; they are distinct, so that the inverse is a dictionary.

    Args:
        graph: the result of `expand` for this variant.
        generation: label of an older generation, whose names match before the zoo's, or None for the zoo's
            own.

    Raises:
        UsageError: no such generation.
        RecipeError: a node with tensors has no name, two nodes have one name, or a pattern matches no node of
            any variant.
    """
    recipe, variant, zoo = member
    if generation is not None and generation not in zoo.generations:
        raise UsageError(
            f"zoo '{zoo.name}' has no generation '{generation}' of names",
            next=hint(generation, zoo.generations),
        )
    older = () if generation is None else zoo.generations[generation].names
    names, passed = _named(member, graph, (*older, *zoo.names))
    lacking = [path for path in tensor_shapes(graph) if path not in names]
    if lacking and lacking[0] in passed:
        raise passed[lacking[0]]
    if lacking:
        rest = f", and {len(lacking) - 1} more" if lacking[1:] else ""
        with recipe.source.at(("zoos", zoo.name, "names"), key=True):
            message = f"zoo '{zoo.name}' does not name '{lacking[0]}'{rest}, in {variant}"
            raise RecipeError(message, next=f"add a line, such as {lacking[0]}: NAME")
    return names


def tap_names(member: Member, graph: Graph, layers: NodeNames | None = None) -> Mapping[str, str]:
    """The source's layers by path whose output can be read: the names of `taps`, otherwise those of
    `layer_names`.

    A layer in `taps` shows that node only: Keras's convolutions may contain their activation, and show its
    values. A bare parameter is not a layer.

    Args:
        layers: those of `layer_names`, where they are known.

    Raises:
        RecipeError: as `layer_names`.
    """
    layers = layer_names(member, graph) if layers is None else layers
    taps = {path: layer.name for path, layer in _named(member, graph, member.zoo.taps, layers)[0].items()}
    own = {
        path: layer.name
        for path, layer in layers.items()
        if not layer.bare and layer.name not in taps.values()
    }
    return own | taps


def read_names(source: RecipeSource, location: Location, table: Mapping[str, Any]) -> tuple[NameRule, ...]:
    """A table of names as rules, in its order; patterns, names and transforms are checked.

    Raises:
        RecipeError: with the place.
    """
    return tuple(_rules(source, location, table, "", ()))


def _rules(
    source: RecipeSource,
    location: Location,
    table: Mapping[str, Any],
    scope: str,
    prefixes: tuple[Placed, ...],
) -> Iterator[NameRule]:
    """The rules of a table, and those of its scopes, each with the prefixes around it."""
    if not isinstance(table, dict):
        raise RecipeError("a scope must be a table of names", where=source.where(location))
    if PREFIX in table:
        here, own = (*location, PREFIX), table[PREFIX]
        if not isinstance(own, str):
            raise RecipeError(f"'{PREFIX}' must be a word, got {own!r}", where=source.where(here))
        with source.at(here):
            placeholders(own)
        prefixes = (*prefixes, (here, own))
    for key, value in table.items():
        here, pattern = (*location, key), f"{scope}{key}"
        if key == PREFIX:
            continue
        with source.at(here, key=True):
            if caught := RESERVED & compile_pattern(pattern).groupindex.keys():
                message = f"'{min(caught)}' is a word of recipes and cannot be what a pattern catches"
                raise RecipeError(message, next="give it another name")
        if key.endswith("/"):
            yield from _rules(source, here, value, pattern, prefixes)
            continue
        section = parse_section(
            NameSection, source, here, {"name": value} if isinstance(value, str) else value
        )
        with source.at((*here, "name")):
            placeholders(section.name)
        for index, transform in enumerate(section.transforms):
            one_of(source, (*here, "transforms", index), "transform", transform, TRANSFORMS)
        parts = () if section.name.startswith(WHOLE) else prefixes
        name = (*parts, ((*here, "name"), section.name))
        if section.computed is not None:
            one_of(source, (*here, "computed"), "computed array", section.computed, COMPUTED)
        kinds = section.tensor, section.adapted, section.computed
        yield NameRule(pattern, name, section.transforms, here, *kinds)


def _named(
    member: Member, graph: Graph, rules: Sequence[NameRule], layers: NodeNames | None = None
) -> tuple[dict[str, LayerName], dict[str, RecipeError]]:
    """The names that `rules` give, and the errors of rules that match a path and cannot compute with what
    they caught there: the next rule that matches names it. `layers` are the nodes' own names, if these are
    taps.
    """
    recipe, variant, zoo = member
    variables = {
        **recipe.constants,
        **recipe.options,
        **zoo.options,
        **recipe.parameters(variant),
        "variant": variant,
    }
    names: dict[str, LayerName] = {}
    passed: dict[str, RecipeError] = {}
    owners: dict[str, str] = {}
    counts: Counter[NameRule] = Counter()
    places = Places(rules)
    _expect_matches(member, graph, rules)
    matching = [(rule, compile_pattern(rule.pattern).fullmatch) for rule in rules]
    for node in graph.nodes:
        place = _place(node, names, layers)
        places.count(node.path)
        for rule, matches in matching:
            match = matches(node.path)
            if match is None:
                continue
            captured = captures(match)
            with recipe.source.at(rule.location):
                if layers is None and INPUT not in place and INPUT in placeholders(rule.name):
                    message = (
                        f"zoo '{zoo.name}' does not name '{node.source}', after which "
                        f"'{node.path}' is named, in {variant}"
                    )
                    if node.source == INPUT:
                        raise RecipeError(
                            f"'{node.path}' reads the graph's input, which has no name",
                            next="write the whole name",
                        )
                    raise RecipeError(message, next=f"add a line, such as {node.source}: NAME")
                positions = places.of(rule, node.path, captured)
                known = {**variables, **place, "count": counts[rule], **captured}
                try:
                    parts = (
                        {PLACE: positions[at[:-1]], **known} if at[:-1] in positions else known
                        for at, _ in rule.parts
                    )
                    name = "".join(
                        fill_in(text, scope) for (_, text), scope in zip(rule.parts, parts, strict=True)
                    )
                except NoNumber as error:
                    message = (
                        f"'{rule.pattern}' matches '{node.path}', and its name '{rule.name}' cannot "
                        f"be computed: {error.message}"
                    )
                    where = recipe.source.where(rule.location)
                    passed.setdefault(
                        node.path,
                        RecipeError(message, where=where, next=f"add a line, such as {node.path}: NAME"),
                    )
                    continue
                if rule.tensor is not None:
                    name = _bare_name(graph, node, name, rule.tensor, zoo.framework)
                if rule.adapted and not (isinstance(node.op, Affine) and zoo.framework == "tf"):
                    instead = f"'{node.path}' is {node.op_name} in a {zoo.framework} zoo"
                    message = f"'adapted' is for an affine step in a tf zoo, and {instead}"
                    raise RecipeError(message, next="leave it out", key="adapted")
                if rule.computed is not None:
                    _expect_computed(graph, node, rule)
                if name in owners:
                    message = f"'{owners[name]}' and '{node.path}' both have the name '{name}', in {variant}"
                    raise RecipeError(
                        message,
                        next="write what tells them apart into the name, such as a capture of the pattern",
                    )
            owners[name] = node.path
            counts[rule] += 1
            location = (*rule.location, "name")
            kinds = rule.tensor is not None, rule.adapted, rule.computed
            names[node.path] = LayerName(name, rule.transforms, location, *kinds)
            break
    return names, passed


def _bare_name(graph: Graph, node: Node, module: str, tensor: str, framework: str) -> str:
    """The name of the only tensor of a node, in a module of other layers."""
    roles = [*tensor_shapes(graph).get(node.path, ())]
    if node == head_of(graph) or len(roles) > 1:
        what = "is the head" if node == head_of(graph) else f"has {' and '.join(roles)}"
        message = f"'tensor' names a number that no layer holds, and '{node.path}' {what}"
        advice = "write the name of its layer"
        raise RecipeError(message, next=advice, key="tensor")
    return f"{module}{get_dialect(framework).SEPARATOR}{tensor}" if module else tensor


def _expect_computed(graph: Graph, node: Node, rule: NameRule) -> None:
    """Refuses `computed` where the zoo's code cannot have computed the node's tensor so."""
    array = COMPUTED[str(rule.computed)]
    if rule.tensor is None:
        raise RecipeError(
            "'computed' needs a 'tensor', the name of a tensor that no layer holds",
            next="write the name that the code has for it, such as tensor: pos_embedding",
            key="computed",
        )
    (shape,) = tensor_shapes(graph)[node.path].values()
    if not array.fits(shape):
        message = (
            f"'{node.path}' has {'x'.join(map(str, shape))} numbers, and '{rule.computed}' can only be "
            f"{array.words}"
        )
        raise RecipeError(message, next="leave it out", key="computed")


def _place(node: Node, found: NodeNames, layers: NodeNames | None) -> dict[str, str]:
    places = {INPUT: node.source} if layers is None else {INPUT: node.source, OWN: node.path}
    known = found if layers is None else layers
    return {word: known[path].name for word, path in places.items() if path in known}


def _expect_matches(member: Member, graph: Graph, rules: Sequence[NameRule]) -> None:
    """Expects that each rule names a node of some variant."""
    lost = _unmatched(rules, graph)
    paths = [node.path for node in graph.nodes]
    faults = Faults()
    if lost:
        for other in graphs_of_others(member):
            lost = _unmatched(lost, other)
            paths += [node.path for node in other.nodes]
            if not lost:
                break
    steps = expand_steps(member).steps if lost else {}
    for rule in lost:
        here, pattern = _lost(rule, paths)
        with faults.kept(), member.recipe.source.at(here, key=True):
            if nearest(str(here[-1]), [PREFIX]):
                raise RecipeError(f"'{pattern}' matches no node", next=f"did you mean '{PREFIX}'?")
            raise unmatched(
                f"'{pattern}' matches no node", rule.pattern, steps, [other.pattern for other in rules]
            )
    faults.expect_none()


def _lost(rule: NameRule, paths: Sequence[str]) -> tuple[Location, str]:
    """The key and the pattern of the outermost scope in which there is no node, otherwise the rule's own."""
    pattern = ""
    for end, part in enumerate(rule.location, 1):
        if str(part).endswith("/"):
            pattern += str(part)
            if not any(match_path(f"{pattern}**", path) is not None for path in paths):
                return rule.location[:end], pattern
    return rule.location, rule.pattern


def _unmatched(rules: Sequence[NameRule], graph: Graph) -> list[NameRule]:
    return [rule for rule in rules if not any(map(compile_pattern(rule.pattern).fullmatch, graph.by_path))]


def tensor_names(
    dialect: Dialect, graph: Graph, path: str, layer: LayerName
) -> Mapping[str, tuple[str, ...]]:
    """The names by role that a file may give the tensors of the node `path`, likeliest first; a bare
    parameter has one, and a computed one none.
    """
    if layer.computed:
        return {}
    if layer.bare:
        return dict.fromkeys(tensor_shapes(graph)[path], (layer.name,))
    return dialect.tensor_names(graph, graph.by_path[path], layer.name)

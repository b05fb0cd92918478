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
from dataclasses import dataclass, field
from typing import Any

from porter.base.errors import RecipeError, UsageError
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import INPUT, Affine, Graph, Node, head_of, tensor_shapes
from porter.recipe.expansion import expand_steps, graphs_of_other_variants
from porter.recipe.expressions import NoNumber, fill_in, placeholders
from porter.recipe.faults import Faults
from porter.recipe.fixed import COMPUTED
from porter.recipe.module_numbers import Places
from porter.recipe.path_patterns import captures_of, compile_pattern, match_path, unmatched_error
from porter.recipe.recipe import OWN_NAME, PLACE, RESERVED, LayerName, Member, NameRule, NodeNames, PlacedText
from porter.recipe.schema import NameSection, expect_one_of, parse_section
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint, nearest
from porter.recipe.transforms import TRANSFORMS

PREFIX = "prefix"
WHOLE_NAMES = (f"{{{INPUT}}}", f"{{{OWN_NAME}}}")
"""Words of a name that are whole names."""


def layer_names(member: Member, graph: Graph, generation: str | None = None) -> dict[str, LayerName]:
    """Return the zoo's names of nodes, by path: `layer1.0.conv1` for `stage1/unit1/conv1`. No two are equal,
    so that the inverse is a dictionary.

    Args:
        graph: the result of `expand` for this variant.
        generation: label of an older generation, whose names match before the zoo's, or None for the zoo's
            own.

    Raises:
        UsageError: no such generation.
        RecipeError: a node with tensors has no name, two nodes have one name, or a pattern matches no node
            of any variant.
    """
    recipe, variant, zoo = member
    if generation is not None and generation not in zoo.generations:
        raise UsageError(
            f"zoo '{zoo.name}' has no generation '{generation}' of names",
            next=hint(generation, zoo.generations),
        )
    older = () if generation is None else zoo.generations[generation].names
    names, failed = _apply_rules(member, graph, (*older, *zoo.names))
    lacking = [path for path in tensor_shapes(graph) if path not in names]
    if lacking and lacking[0] in failed:
        raise failed[lacking[0]]
    if lacking:
        further = f", and {len(lacking) - 1} more" if lacking[1:] else ""
        with recipe.source.at(("zoos", zoo.name, "names"), key=True):
            message = f"zoo '{zoo.name}' does not name '{lacking[0]}'{further}, in {variant}"
            raise RecipeError(message, next=f"add a line, such as {lacking[0]}: NAME")
    return names


def tap_names(member: Member, graph: Graph, layers: NodeNames | None = None) -> Mapping[str, str]:
    """Return by path the names under which the zoo's code shows the values of nodes (taps): the names of the
    zoo's `taps`, otherwise those of `layer_names`.

    A layer in `taps` shows that node only: Keras's convolutions may contain their activation, and show its
    values. A bare parameter is not a layer.

    Args:
        layers: those of `layer_names`, where they are known.

    Raises:
        RecipeError: as `layer_names`.
    """
    layers = layer_names(member, graph) if layers is None else layers
    named_by_taps, _ = _apply_rules(member, graph, member.zoo.taps, layers)
    taps = {path: layer.name for path, layer in named_by_taps.items()}
    layers_of_nodes = {
        path: layer.name
        for path, layer in layers.items()
        if not layer.bare and layer.name not in taps.values()
    }
    return layers_of_nodes | taps


def read_names(source: RecipeSource, location: Location, table: Mapping[str, Any]) -> tuple[NameRule, ...]:
    """Return a table of names as rules, in its order. Patterns, names and transforms are checked.

    Raises:
        RecipeError: with the place.
    """
    return tuple(_read_rules(source, location, table, "", ()))


def _read_rules(
    source: RecipeSource,
    location: Location,
    table: Mapping[str, Any],
    scope: str,
    prefixes: tuple[PlacedText, ...],
) -> Iterator[NameRule]:
    """Yield the rules of a table, and those of its scopes, the tables under keys that end with `/`.

    Args:
        scope: the keys around the table, with which its patterns begin.
        prefixes: the prefixes around it, with which its names begin.

    Raises:
        RecipeError: a pattern, a name or a transform is wrong; with its place.
    """
    if not isinstance(table, dict):
        raise RecipeError("a scope must be a table of names", where=source.where(location))
    if PREFIX in table:
        place, prefix = (*location, PREFIX), table[PREFIX]
        if not isinstance(prefix, str):
            raise RecipeError(f"'{PREFIX}' must be a word, got {prefix!r}", where=source.where(place))
        with source.at(place):
            placeholders(prefix)
        prefixes = (*prefixes, (place, prefix))
    for key, value in table.items():
        place, pattern = (*location, key), f"{scope}{key}"
        if key == PREFIX:
            continue
        with source.at(place, key=True):
            if reserved := RESERVED & compile_pattern(pattern).groupindex.keys():
                message = f"'{min(reserved)}' is a word of recipes and cannot be what a pattern catches"
                raise RecipeError(message, next="give it another name")
        if key.endswith("/"):
            yield from _read_rules(source, place, value, pattern, prefixes)
            continue
        # A text is short for a section with only a name.
        values = {"name": value} if isinstance(value, str) else value
        section = parse_section(NameSection, source, place, values)
        with source.at((*place, "name")):
            placeholders(section.name)
        for index, transform in enumerate(section.transforms):
            expect_one_of(source, (*place, "transforms", index), "transform", transform, TRANSFORMS)
        parts = () if section.name.startswith(WHOLE_NAMES) else prefixes
        name = (*parts, ((*place, "name"), section.name))
        if section.computed is not None:
            expect_one_of(source, (*place, "computed"), "computed array", section.computed, COMPUTED)
        kinds = section.tensor, section.adapted, section.computed
        yield NameRule(pattern, name, section.transforms, place, *kinds)


def _apply_rules(
    member: Member, graph: Graph, rules: Sequence[NameRule], layers: NodeNames | None = None
) -> tuple[dict[str, LayerName], dict[str, RecipeError]]:
    """Return the names that `rules` give, by path, and errors by path: of rules that match a path, and whose
    name cannot be computed with what they captured there. Then the next rule that matches names it. A path
    that no rule matches is in neither.

    Args:
        layers: the nodes' own names, if the rules are of taps.

    Raises:
        RecipeError: a rule names no node of any variant, two nodes have one name, or a rule does not fit its
            node.
    """
    variables = {**member.variables(), "variant": member.variant}
    naming = _Naming(member, graph, Places(rules), variables, layers)
    _expect_matches(member, graph, rules)
    matching = [(rule, compile_pattern(rule.pattern).fullmatch) for rule in rules]
    for node in graph.nodes:
        naming.places.count(node.path)
        for rule, matches in matching:
            match = matches(node.path)
            if match is not None and naming.name_by(rule, node, captures_of(match)):
                break
    return naming.names, naming.failed


@dataclass
class _Naming:
    """Names nodes one after the other.

    Attributes:
        variables: what every name may have in it.
        owners: by name, the path of the node that has it.
        counts: of nodes that a rule has named, for `{count}`.
        layers, names, failed: as in `_apply_rules`.
    """

    member: Member
    graph: Graph
    places: Places
    variables: Mapping[str, Any]
    layers: NodeNames | None
    names: dict[str, LayerName] = field(default_factory=dict)
    failed: dict[str, RecipeError] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    counts: Counter[NameRule] = field(default_factory=Counter)

    def name_by(self, rule: NameRule, node: Node, captured: Mapping[str, int | str]) -> bool:
        """Name a node by a rule that matches it, and return True; False where the name cannot be computed, so
        that the next rule that matches may name the node.
        """
        source = self.member.recipe.source
        with source.at(rule.location):
            try:
                name = self._fill(rule, node, captured)
            except NoNumber as error:
                self.failed.setdefault(node.path, _uncomputed_error(source, rule, node, error))
                return False
            framework = self.member.zoo.framework
            if rule.tensor is not None:
                name = _bare_name(self.graph, node, name, rule.tensor, framework)
            if rule.adapted:
                _expect_adapted(node, framework)
            if rule.computed is not None:
                _expect_computed(self.graph, node, rule)
            if name in self.owners:
                both = f"'{self.owners[name]}' and '{node.path}' both have the name '{name}'"
                raise RecipeError(
                    f"{both}, in {self.member.variant}",
                    next="write what tells them apart into the name, such as a capture of the pattern",
                )
        self.owners[name] = node.path
        self.counts[rule] += 1
        location = (*rule.location, "name")
        kinds = rule.tensor is not None, rule.adapted, rule.computed
        self.names[node.path] = LayerName(name, rule.transforms, location, *kinds)
        return True

    def _fill(self, rule: NameRule, node: Node, captured: Mapping[str, int | str]) -> str:
        """Return the name that a rule gives a node.

        Raises:
            NoNumber: it cannot be computed with what the rule captured.
        """
        names_nearby = _names_of_inputs(node, self.names, self.layers)
        if self.layers is None and INPUT not in names_nearby and INPUT in placeholders(rule.name):
            raise _nameless_input_error(self.member, node)
        positions = self.places.numbers_of(rule, node.path, captured)
        return _fill_parts(
            rule, positions, {**self.variables, **names_nearby, "count": self.counts[rule], **captured}
        )


def _nameless_input_error(member: Member, node: Node) -> RecipeError:
    """Return the error for a node that is named after its input (`{input}`), which has no name."""
    if node.source == INPUT:
        message = f"'{node.path}' reads the graph's input, which has no name"
        return RecipeError(message, next="write the whole name")
    message = (
        f"zoo '{member.zoo.name}' does not name '{node.source}', after which '{node.path}' is named, in "
        f"{member.variant}"
    )
    return RecipeError(message, next=f"add a line, such as {node.source}: NAME")


def _uncomputed_error(source: RecipeSource, rule: NameRule, node: Node, error: NoNumber) -> RecipeError:
    """Return the error for a rule that matches a node, and whose name cannot be computed there."""
    message = (
        f"'{rule.pattern}' matches '{node.path}', and its name '{rule.name}' cannot be computed: "
        f"{error.message}"
    )
    where = source.where(rule.location)
    return RecipeError(message, where=where, next=f"add a line, such as {node.path}: NAME")


def _expect_adapted(node: Node, framework: str) -> None:
    """Refuse `adapted` (a Keras Normalization that was adapted to data) at a node that cannot be one."""
    if not isinstance(node.op, Affine) or framework != "tf":
        instead = f"'{node.path}' is {node.op_name} in a {framework} zoo"
        message = f"'adapted' is for an affine step in a tf zoo, and {instead}"
        raise RecipeError(message, next="leave it out", key="adapted")


def _fill_parts(rule: NameRule, positions: Mapping[Location, int], variables: Mapping[str, Any]) -> str:
    """Return a rule's name with its placeholders filled in. `{place}` in a part is the position in the table
    of that part.
    """
    texts = []
    for location, text in rule.parts:
        table = location[:-1]
        place = {PLACE: positions[table]} if table in positions else {}
        texts.append(fill_in(text, {**place, **variables}))
    return "".join(texts)


def _bare_name(graph: Graph, node: Node, module: str, tensor: str, framework: str) -> str:
    """Return the name of a tensor that no layer of its own holds, which is the only one of its node:
    `blocks.0.gamma` for `gamma` in module `blocks.0`. Without a module it is the tensor's own name.

    Raises:
        RecipeError: the node is the head, or has several tensors.
    """
    roles = [*tensor_shapes(graph).get(node.path, ())]
    is_head = node == head_of(graph)
    if is_head or len(roles) > 1:
        reason = "is the head" if is_head else f"has {' and '.join(roles)}"
        message = f"'tensor' names a number that no layer holds, and '{node.path}' {reason}"
        advice = "write the name of its layer"
        raise RecipeError(message, next=advice, key="tensor")
    return f"{module}{get_dialect(framework).SEPARATOR}{tensor}" if module else tensor


def _expect_computed(graph: Graph, node: Node, rule: NameRule) -> None:
    """Refuse a line with `computed` (an array that the zoo's code computes, such as positions of sines) if
    it names no tensor, or if the node's tensor cannot be that array.
    """
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


def _names_of_inputs(node: Node, names: NodeNames, layers: NodeNames | None) -> dict[str, str]:
    """Return what a rule's name may use of the names around a node: its input's name for `{input}`, and in a
    tap its own for `{own}`. Words without a name are left out.

    Args:
        names: those that were computed so far, by path.
        layers: the nodes' own names, for taps; None where these are computed.
    """
    paths_by_word = {INPUT: node.source} if layers is None else {INPUT: node.source, OWN_NAME: node.path}
    layer_by_path = names if layers is None else layers
    return {word: layer_by_path[path].name for word, path in paths_by_word.items() if path in layer_by_path}


def _expect_matches(member: Member, graph: Graph, rules: Sequence[NameRule]) -> None:
    """Expect that each rule names a node of some variant. Raises RecipeError at each that names none."""
    without_node = _rules_without_node(rules, graph)
    paths = [node.path for node in graph.nodes]
    faults = Faults()
    if without_node:
        for other_graph in graphs_of_other_variants(member):
            without_node = _rules_without_node(without_node, other_graph)
            paths += [node.path for node in other_graph.nodes]
            if not without_node:
                break
    steps = expand_steps(member).steps if without_node else {}
    for rule in without_node:
        key, pattern = _outermost_empty_scope(rule, paths)
        with faults.collect(), member.recipe.source.at(key, key=True):
            if nearest(str(key[-1]), [PREFIX]):
                raise RecipeError(f"'{pattern}' matches no node", next=f"did you mean '{PREFIX}'?")
            raise unmatched_error(
                f"'{pattern}' matches no node",
                rule.pattern,
                steps,
                [other_graph.pattern for other_graph in rules],
            )
    faults.expect_none()


def _outermost_empty_scope(rule: NameRule, paths: Sequence[str]) -> tuple[Location, str]:
    """Return the key and the pattern of the outermost scope around a rule in which there is no node, because
    the mistake is there; otherwise the rule's own.
    """
    pattern = ""
    for end, part in enumerate(rule.location, 1):
        if str(part).endswith("/"):
            pattern += str(part)
            if not any(match_path(f"{pattern}**", path) is not None for path in paths):
                return rule.location[:end], pattern
    return rule.location, rule.pattern


def _rules_without_node(rules: Sequence[NameRule], graph: Graph) -> list[NameRule]:
    """Return the rules that match no node of a graph."""
    return [rule for rule in rules if not any(map(compile_pattern(rule.pattern).fullmatch, graph.by_path))]


def tensor_names(
    dialect: Dialect, graph: Graph, path: str, layer: LayerName
) -> Mapping[str, tuple[str, ...]]:
    """Return the names by role that a file may give the tensors of the node `path`, likeliest first. A bare
    parameter has one name, and a computed one none.
    """
    if layer.computed:
        return {}
    if layer.bare:
        return dict.fromkeys(tensor_shapes(graph)[path], (layer.name,))
    return dialect.tensor_names(graph, graph.by_path[path], layer.name)

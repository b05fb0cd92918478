"""From a recipe, a variant and a zoo to the graph: blocks unrolled, expressions computed, every site with the zoo's convention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from porter.errors import GraphError, RecipeError, UsageError
from porter.graph import INPUT, Argument, Conv, Dense, Graph, Node, Scope, Shape, channels_of, head_of, shapes, site_of
from porter.graph.ops import LARGER
from porter.padding import Convention, SiteKind
from porter.recipe.expressions import UnknownVariable, Value, evaluate, fill_in, is_expression
from porter.recipe.faults import Faults
from porter.recipe.model import Recipe, Zoo
from porter.recipe.operations import make_op
from porter.recipe.paddings import PadRule, site_convention
from porter.recipe.patterns import match_path
from porter.recipe.source import Location, Mark
from porter.recipe.spelling import hint
from porter.recipe.steps import OPERATIONS, Block, Step, cycle
from porter.recipe.unknown import unmatched

MAX_REPEAT = 1000
MAX_USES = 20_000
MAX_NESTING = 8
MAX_PATH = 128

_PATH = re.compile(r"[A-Za-z_][\w.-]*(/[A-Za-z_][\w.-]*)*", re.ASCII)
Variables = Mapping[str, Value]


class Expanded(NamedTuple):
    """A graph, and the step in the recipe that each of its nodes and each use of a block is from."""

    graph: Graph
    steps: Mapping[str, Location]


def expand(
    recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value] | None = None, *, as_trained: bool = False
) -> Graph:
    """The graph of `variant` as `zoo` has it.

    Args:
        options: they override the zoo's and the recipe's, such as {"classes": 10}.
        as_trained: use the training pads at the sites where the zoo ships others.

    Raises:
        UsageError: no such variant or option.
        RecipeError: with its place: an expression, a value, a shape or a reference is wrong, or a rule of the zoo's padding
            matches no site of any variant.
    """
    return expand_steps(recipe, variant, zoo, options, as_trained=as_trained).graph


def expand_within(recipe: Recipe, variant: str, zoo: Zoo, nodes: int) -> Graph | None:
    """As `expand`; None if the graph has more than `nodes` nodes: it is then not expanded to its end.

    Raises:
        RecipeError: as `expand`.
    """
    try:
        return expand_steps(recipe, variant, zoo, most=nodes).graph
    except _Large:
        return None


def expand_steps(
    recipe: Recipe,
    variant: str,
    zoo: Zoo,
    options: Mapping[str, Value] | None = None,
    *,
    as_trained: bool = False,
    most: int = MAX_USES,
) -> Expanded:
    """As `expand`, with the step that each node is from. `most` is for `expand_within`."""
    chosen = options or {}
    for name in chosen:
        if name not in recipe.options:
            raise UsageError(f"'{recipe.architecture}' has no option '{name}'", next=hint(name, recipe.options))
    expanded = _expanded(recipe, variant, zoo, chosen, as_trained, most)
    _expect_sites(recipe, variant, zoo, *expanded)
    if "classes" not in chosen:
        _expect_labels(recipe, variant, zoo, expanded.graph)
    return expanded


def options_of(recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value]) -> Mapping[str, Value]:
    """All options of a graph: `options`, then the zoo's for the variant, then the recipe's."""
    return {**recipe.options, **zoo.of(variant).options, **options}


def expect_head(recipe: Recipe, graph: Graph) -> None:
    """Refuses a recipe's graph without a head, see porter.graph.head_of.

    Raises:
        RecipeError: it ends in another op.
    """
    last = head_of(graph)
    if not isinstance(last.op, Dense | Conv):
        raise RecipeError(
            f"the graph ends in '{last.path}' ({last.op_name}), expected a dense layer, or a global pool of a 1x1 convolution",
            where=recipe.source.where(("graph", len(recipe.graph) - 1)),
            next="end it in {dense: head/logits, units: =classes}; a file that has no such layer is ported to its features",
        )


def graphs_of_others(recipe: Recipe, variant: str, zoo: Zoo) -> Iterator[Graph]:
    """The graphs of the zoo's variants except `variant`: a rule that matches nothing in one graph may be there for another."""
    for other in recipe.variants:
        if other != variant and zoo.has(other):
            yield _expanded(recipe, other, recipe.zoos.get(zoo.name, zoo), {}, False).graph


def _expanded(
    recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value], as_trained: bool, most: int = MAX_USES
) -> Expanded:
    zoo = zoo.of(variant)
    variables = {**options_of(recipe, variant, zoo, options), **recipe.parameters(variant)}
    rules = (*zoo.padding_as_trained, *zoo.padding) if as_trained else zoo.padding
    expansion = _Expansion(recipe, variables, rules, _origins(recipe, variant, zoo, options), most)
    try:
        output = expansion.run(recipe.graph, "", INPUT, variables, 0)
        graph = Graph(tuple(expansion.nodes.values()), recipe.channels, output, tuple(expansion.scopes))
        _expect_shapes(recipe, graph, expansion.locations)
    except UnknownVariable as error:
        raise _absent(recipe, variant, error) from None
    except RecipeError as error:
        error.message += f", in {variant} from {zoo.name}"
        raise
    return Expanded(graph, expansion.locations)


def _absent(recipe: Recipe, variant: str, error: UnknownVariable) -> RecipeError:
    """The error at the variant, if only that lacks the variable."""
    if not any(error.name in parameters for parameters in recipe.variants.values()):
        return error
    where = recipe.source.where(("variants", variant), key=True)
    own = hint(error.name, recipe.parameters(variant))
    return RecipeError(f"'{variant}' has no '{error.name}', which {error.where} uses", where=where, next=own)


def _expect_shapes(recipe: Recipe, graph: Graph, steps: Mapping[str, Location]) -> None:
    try:
        shapes(graph, recipe.native_size())
    except GraphError as error:
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise RecipeError(message, where=recipe.source.where(steps.get(error.where or "", ("graph",)))) from None


def _origins(recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value]) -> dict[tuple[str, str], Mark]:
    """Where the values of the variables are written, as `_Expansion.origins`."""
    places: dict[str, Location] = {name: ("options", name) for name in recipe.options}
    places |= {name: ("zoos", zoo.name, "options", name) for name in zoo.options}
    places |= {name: ("variants", variant, name) for name in recipe.parameters(variant)}
    marks = {name: recipe.source.mark(place) for name, place in places.items() if name not in options}
    return {("", name): mark for name, mark in marks.items() if mark}


def _expect_sites(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, steps: Mapping[str, Location]) -> None:
    zoo = zoo.of(variant)
    lost = _unmatched((*zoo.padding_as_trained, *zoo.padding), graph)
    if lost:
        for other in graphs_of_others(recipe, variant, zoo):
            lost = _unmatched(lost, other)
            if not lost:
                break
    faults, sites = Faults(), {node.path: steps[node.path] for node in graph.nodes if site_of(node.op)}
    for rule in lost:
        with faults.kept(), recipe.source.at(rule.location, key=True):
            padless = next((node for node in graph.nodes if match_path(rule.pattern, node.path) is not None), None)
            if padless is not None and site_of(padless.op) is None:
                message = f"'{rule.pattern}' is no padding site: '{padless.path}' is a {padless.op_name}"
                raise RecipeError(message, next="only convolutions and pools have a padding")
            raise unmatched(
                f"'{rule.pattern}' matches no padding site", rule.pattern, sites, [other.pattern for other in zoo.padding]
            )
    faults.expect_none()


def _expect_labels(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph) -> None:
    """Refuses labels of another number of classes than the zoo's own head has, without a background class."""
    labels, head = zoo.of(variant).labels, head_of(graph)
    if labels is None or not isinstance(head.op, Dense | Conv):
        return
    rule = next((rule for rule in zoo.names if match_path(rule.pattern, head.path) is not None), None)
    classes = channels_of(graph)[head.path] - (rule is not None and "drop_background" in rule.transforms)
    if classes != labels.count:
        place = recipe.source.mark(("zoos", zoo.name, "weights", variant, "labels"))
        raise RecipeError(
            f"'{labels.name}' has {labels.count} labels, and the head of {variant} from {zoo.name} has {classes} classes",
            where=str(place or recipe.source.where(("zoos", zoo.name, "labels"))),
            next="set 'classes' in the options of the recipe or of the zoo, or name the labels of this head",
        )


def _unmatched(rules: Sequence[PadRule], graph: Graph) -> list[PadRule]:
    sites = [(node.path, site.kind) for node in graph.nodes if (site := site_of(node.op))]
    return [rule for rule in rules if not any(rule.matches(path, kind) for path, kind in sites)]


class _Large(Exception):
    """A graph has more nodes than it may have."""


class _Expansion:
    """A graph in the making.

    Attributes:
        most: nodes that it may have.
        nodes: by path, in the order of the steps.
        outputs: by the step's path, the node that gives its value: the node itself, or the last node of a block.
        shapes: of every node's output, at the native size.
        locations: of each node's step, and of each use of a block.
        origins: where the value of a variable is written: of a parameter by its block's prefix, of the others by "".
        left_out: the paths of steps whose conditions do not hold.
    """

    def __init__(
        self, recipe: Recipe, variables: Variables, rules: Sequence[PadRule], origins: dict[tuple[str, str], Mark], most: int
    ) -> None:
        self.recipe = recipe
        self.source = recipe.source
        self.variables = variables
        self.rules = rules
        self.nodes: dict[str, Node] = {}
        self.outputs: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {INPUT: (recipe.channels, *recipe.native_size())}
        self.locations: dict[str, Location] = {}
        self.origins = origins
        self.left_out: dict[str, Location] = {}
        self.scopes: list[Scope] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.uses = 0
        self.most = most

    def run(self, steps: Sequence[Step], prefix: str, entry: str, variables: Variables, depth: int) -> str:
        """Adds the steps below `prefix`; the first reads `entry`. Returns the path of the last step's value."""
        current = entry
        for step in steps:
            times = 1 if step.repeat is None else self._times(step, variables)
            for index in range(1, times + 1):
                place: dict[str, Value] = {"index": index, "first": index == 1, "last": index == times}
                current = self._use(step, prefix, entry, current, variables, place, depth)
        return current

    def _times(self, step: Step, variables: Variables) -> int:
        with self.source.at((*step.location, "repeat")):
            times = evaluate(step.repeat, variables)
            if type(times) is not int or not 0 <= times <= MAX_REPEAT:
                raise RecipeError(f"'repeat' is a whole number from 0 to {MAX_REPEAT}, got {times!r}")
            return times

    def _use(
        self, step: Step, prefix: str, entry: str, current: str, variables: Variables, place: dict[str, Value], depth: int
    ) -> str:
        self.uses += 1
        if self.uses > MAX_USES or depth > MAX_NESTING:
            raise self._endless(step)
        if len(self.nodes) > self.most:
            raise _Large
        local = variables if step.repeat is None else {**variables, **place}
        with self.source.at((*step.location, "when")):
            holds = evaluate(step.when, local)
            if not isinstance(holds, bool):
                raise RecipeError(f"'when' is a condition, got {holds!r}")
        if not holds:
            with suppress(RecipeError):
                self.left_out[f"{prefix}{self._name(step, prefix, {**place, **local})}"] = step.location
            return current
        path = self._path(step, prefix, {**place, **local})
        inputs = self._inputs(step, prefix, entry, current, local, depth)
        arguments = self._arguments(step, local, place)
        if step.kind in OPERATIONS:
            output = self._node(step, prefix, path, inputs, arguments, place, local)
        else:
            if len(inputs) != 1:
                raise RecipeError(f"a block takes one input, got {len(inputs)}", where=self.source.where((*step.location, "from")))
            output = self._block(step, prefix, path, inputs[0], arguments, place, depth)
        self.outputs[path] = output
        return output

    def _endless(self, step: Step) -> RecipeError:
        chain, step = cycle(self.recipe.graph, self.recipe.blocks) or ((), step)
        why = f"more than {MAX_USES} steps" if self.uses > MAX_USES else f"blocks nest more than {MAX_NESTING} deep"
        message = f"block '{step.kind}' is used inside itself: {' > '.join(chain)}" if chain else why
        return RecipeError(f"this recipe does not end: {message}", where=self.source.where(step.location))

    def _name(self, step: Step, prefix: str, variables: Variables) -> str:
        name = fill_in(step.path, {**variables, "count": self.counts.get((prefix, step.path), 0)})
        return name if step.repeat is None or step.numbered else f"{name}{variables['index']}"

    def _path(self, step: Step, prefix: str, variables: Variables) -> str:
        with self.source.at((*step.location, step.kind)):
            name = self._name(step, prefix, variables)
            self.counts[prefix, step.path] = self.counts.get((prefix, step.path), 0) + 1
            path = f"{prefix}{name}"
            if not _PATH.fullmatch(name) or name == INPUT or len(path) > MAX_PATH:
                raise RecipeError(f"'{name}' is no path: words of letters, digits, _ . and -, such as stage1/conv")
            if path in self.outputs:
                raise RecipeError(f"two steps have the path '{path}'", next="give them 'when' conditions that exclude each other")
            return path

    def _inputs(self, step: Step, prefix: str, entry: str, current: str, variables: Variables, depth: int) -> tuple[str, ...]:
        if step.branches:
            return tuple(self._branch(branch, prefix, current, variables, depth) for branch in step.branches)
        if step.inputs is None:
            if step.kind in ("add", "concat"):
                raise RecipeError(f"'{step.kind}' needs 'from', the list of its inputs", where=self.source.where(step.location))
            return (current,)
        here = (*step.location, "from")
        names = self._value(step.inputs, here, variables)
        return tuple(
            self._output_of(name, prefix, entry, (*here, place))
            for place, name in enumerate(names if isinstance(names, tuple) else (names,))
        )

    def _branch(self, steps: Sequence[Step], prefix: str, entry: str, variables: Variables, depth: int) -> str:
        output = self.run(steps, prefix, entry, variables, depth)
        if output == entry:
            raise RecipeError("a branch without steps", where=self.source.where(steps[0].location), next="write {identity: NAME}")
        return output

    def _output_of(self, name: Value, prefix: str, entry: str, here: Location) -> str:
        if name == INPUT:
            return entry
        path = f"{prefix}{name}"
        if path in self.outputs:
            return self.outputs[path]
        local = [known.removeprefix(prefix) for known in self.outputs if known.startswith(prefix)]
        message, advice = f"there is no earlier step '{name}' here", hint(str(name), [INPUT, *local])
        if path in self.left_out:
            condition = self.source.where((*self.left_out[path], "when"))
            message = f"step '{name}' is left out here, because its condition does not hold: {condition}"
            advice = "give this step a 'when' too, or read another one"
        raise RecipeError(message, where=self.source.where(here), next=advice)

    def _arguments(self, step: Step, variables: Variables, place: Variables) -> dict[str, Any]:
        given = {**OPERATIONS.get(step.kind, {}), **step.arguments}
        for end in ("first", "last"):
            if place[end]:
                given |= step.overrides[end]
        found = {}
        for key, value in given.items():
            location, _ = step.written(key, place)
            found[key] = self._value(value, location, variables)
        return found

    def _value(self, value: Any, location: Location, variables: Variables) -> Any:
        """A value with its expressions computed."""
        if isinstance(value, dict):
            return {key: self._value(item, (*location, key), variables) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._value(item, (*location, place), variables) for place, item in enumerate(value))
        if not is_expression(value):
            return value
        with self.source.at(location):
            return evaluate(value, variables)

    def _origin(self, prefix: str, location: Location, written: Any) -> Mark | None:
        """Where the value of an argument comes from: `=NAME` only passes on the value of a variable."""
        name = written[1:].strip() if is_expression(written) else ""
        return self.origins.get((prefix, name)) or self.origins.get(("", name)) or self.source.mark(location)

    def _node(
        self,
        step: Step,
        prefix: str,
        path: str,
        inputs: tuple[str, ...],
        values: Mapping[str, Any],
        place: Variables,
        variables: Variables,
    ) -> str:
        def written(key: str) -> str:
            location, value = step.written(key, place)
            return str(self._origin(prefix, location, value) or self.source.where(step.location))

        def pad(kind: SiteKind, default: Convention) -> Convention:
            return site_convention(self.rules, path, kind, default, self.variables, self.source)

        op = make_op(step, path, values, variables, self.shapes[inputs[0]][0] or 0, written, pad)
        self.nodes[path] = Node(path, op, inputs)
        try:
            self.shapes[path] = op.shape(*(self.shapes[name] for name in inputs))
        except GraphError as error:
            advice = "pad its input, or give a smaller kernel" if error.next == LARGER else error.next
            advice = f"make {' and '.join(inputs)} alike" if len(inputs) > 1 else advice
            raise RecipeError(f"{path}: {error.message}", where=self.source.where(step.location), next=advice) from None
        self.locations[path] = step.location
        return path

    def _block(
        self, step: Step, prefix: str, path: str, entry: str, arguments: Mapping[str, Argument], place: Variables, depth: int
    ) -> str:
        block = self.recipe.blocks[step.kind]
        variables = {**self.variables, **place, "channels": self.shapes[entry][0] or 0}
        parameters = self._parameters(step, block, arguments, variables)
        for name in parameters:
            given = step.written(name, place) if name in arguments else (block.place(name), block.parameters[name])
            if origin := self._origin(prefix, *given):
                self.origins[f"{path}/", name] = origin
        self.scopes.append(Scope(path, block.name, parameters))
        self.locations[path] = step.location
        return self.run(block.steps, f"{path}/", entry, {**variables, **parameters}, depth + 1)

    def _parameters(self, step: Step, block: Block, arguments: Mapping[str, Any], variables: Variables) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, default in block.parameters.items():
            if name in arguments:
                found[name] = arguments[name]
            elif default is None:
                raise RecipeError(f"'{block.name}' needs '{name}'", where=self.source.where(step.location))
            else:
                with self.source.at(block.place(name)):
                    found[name] = evaluate(default, {**variables, **found})
            if isinstance(found[name], dict):
                where = self.source.where((*step.location, name))
                raise RecipeError(f"'{name}' is a number, a word or a list", where=where)
        return found

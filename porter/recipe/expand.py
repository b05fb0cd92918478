"""From a recipe, a variant and a zoo to the graph: blocks unrolled, expressions computed, every site with the zoo's convention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from porter.errors import GraphError, RecipeError, UsageError
from porter.graph import INPUT, Argument, Graph, Node, Scope, Shape, shapes, site_of
from porter.padding import Convention, SiteKind
from porter.recipe.expressions import Value, evaluate, fill_in
from porter.recipe.model import Recipe, Zoo
from porter.recipe.operations import make_op
from porter.recipe.paddings import PadRule, evaluate_padding, site_convention
from porter.recipe.source import Location
from porter.recipe.spelling import hint
from porter.recipe.steps import OPERATIONS, Block, Step

MAX_REPEAT = 1000
MAX_USES = 20_000
MAX_NESTING = 8
MAX_PATH = 128

_PATH = re.compile(r"[A-Za-z_][\w.-]*(/[A-Za-z_][\w.-]*)*", re.ASCII)
Variables = Mapping[str, Value]


def expand(
    recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value] | None = None, *, as_trained: bool = False
) -> Graph:
    """The graph of `variant` as `zoo` has it.

    Args:
        options: they override the zoo's and the recipe's, such as {"classes": 10}.
        as_trained: use the training pads at the sites where the zoo ships others.

    Raises:
        UsageError: no such variant or option.
        RecipeError: with file and line: an expression, a value, a shape or a reference is wrong, or a rule of the zoo's padding
            matches no site of any variant.
    """
    chosen = options or {}
    for name in chosen:
        if name not in recipe.options:
            raise UsageError(f"'{recipe.architecture}' has no option '{name}'", next=hint(name, recipe.options))
    graph = _expanded(recipe, variant, zoo, chosen, as_trained)
    _expect_sites(recipe, variant, zoo, graph)
    return graph


def options_of(recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value]) -> Mapping[str, Value]:
    """All options of a graph: `options`, then the zoo's for the variant, then the recipe's."""
    return {**recipe.options, **zoo.of(variant).options, **options}


def graphs_of_others(recipe: Recipe, variant: str, zoo: Zoo) -> Iterator[Graph]:
    """The graphs of the zoo's variants except `variant`: a rule that matches nothing in one graph may be there for another."""
    for other in recipe.variants:
        if other != variant and zoo.has(other):
            yield _expanded(recipe, other, recipe.zoos.get(zoo.name, zoo), {}, False)


def _expanded(recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Value], as_trained: bool) -> Graph:
    zoo = zoo.of(variant)
    variables = {**options_of(recipe, variant, zoo, options), **recipe.parameters(variant)}
    rules = (*zoo.padding_as_trained, *zoo.padding) if as_trained else zoo.padding
    expansion = _Expansion(recipe, variables, rules)
    output = expansion.run(recipe.graph, "", INPUT, variables, 0)
    graph = Graph(tuple(expansion.nodes.values()), recipe.channels, output, tuple(expansion.scopes))
    try:
        shapes(graph, recipe.native_size())
    except GraphError as error:
        location = expansion.locations.get(error.where or "", ("graph",))
        message = f"{error.where}: {error.message}" if error.where else error.message
        raise RecipeError(message, where=recipe.source.where(location)) from None
    return graph


def _expect_sites(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph) -> None:
    zoo = zoo.of(variant)
    unmatched = _unmatched((*zoo.padding_as_trained, *zoo.padding), graph)
    if unmatched:
        for other in graphs_of_others(recipe, variant, zoo):
            unmatched = _unmatched(unmatched, other)
    if unmatched:
        where, sites = recipe.source.where(unmatched[0].location, key=True), (node.path for node in graph.nodes if site_of(node.op))
        raise RecipeError(f"'{unmatched[0].pattern}' matches no padding site", where=where, next=hint(unmatched[0].pattern, sites))


def _unmatched(rules: Sequence[PadRule], graph: Graph) -> list[PadRule]:
    sites = [(node.path, site.kind) for node in graph.nodes if (site := site_of(node.op))]
    return [rule for rule in rules if not any(rule.matches(path, kind) for path, kind in sites)]


class _Expansion:
    """A graph in the making.

    Attributes:
        nodes: by path, in the order of the steps.
        outputs: by the step's path, the node that gives its value: the node itself, or the last node of a block.
        shapes: of every node's output, at the native size.
        locations: of each node's step.
    """

    def __init__(self, recipe: Recipe, variables: Variables, rules: Sequence[PadRule]) -> None:
        self.recipe = recipe
        self.source = recipe.source
        self.variables = variables
        self.rules = rules
        self.nodes: dict[str, Node] = {}
        self.outputs: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {INPUT: (recipe.channels, *recipe.native_size())}
        self.locations: dict[str, Location] = {}
        self.scopes: list[Scope] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.uses = 0

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
            what = f"more than {MAX_USES} steps" if self.uses > MAX_USES else f"blocks nest more than {MAX_NESTING} deep"
            raise RecipeError(f"this recipe does not end: {what}", where=self.source.where(step.location))
        local = variables if step.repeat is None else {**variables, **place}
        with self.source.at((*step.location, "when")):
            holds = evaluate(step.when, local)
            if not isinstance(holds, bool):
                raise RecipeError(f"'when' is a condition, got {holds!r}")
        if not holds:
            return current
        path = self._path(step, prefix, {**place, **local})
        inputs = self._inputs(step, prefix, entry, current, local, depth)
        arguments = self._arguments(step, local, place)
        if step.kind in OPERATIONS:
            output = self._node(step, path, inputs, arguments)
        else:
            if len(inputs) != 1:
                raise RecipeError(f"a block takes one input, got {len(inputs)}", where=self.source.where((*step.location, "from")))
            output = self._block(step, path, inputs[0], arguments, place, depth)
        self.outputs[path] = output
        return output

    def _path(self, step: Step, prefix: str, variables: Variables) -> str:
        with self.source.at((*step.location, step.kind)):
            count = self.counts.get((prefix, step.path), 0)
            self.counts[prefix, step.path] = count + 1
            name = fill_in(step.path, {**variables, "count": count})
            if step.repeat is not None and not step.numbered:
                name = f"{name}{variables['index']}"
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
        with self.source.at((*step.location, "from")):
            names = evaluate(step.inputs, variables)
            listed = names if isinstance(names, tuple) else (names,)
            return tuple(self._output_of(name, prefix, entry) for name in listed)

    def _branch(self, steps: Sequence[Step], prefix: str, entry: str, variables: Variables, depth: int) -> str:
        output = self.run(steps, prefix, entry, variables, depth)
        if output == entry:
            raise RecipeError("a branch without steps", where=self.source.where(steps[0].location), next="write {identity: NAME}")
        return output

    def _output_of(self, name: Value, prefix: str, entry: str) -> str:
        if name == INPUT:
            return entry
        path = f"{prefix}{name}"
        if path not in self.outputs:
            local = [known.removeprefix(prefix) for known in self.outputs if known.startswith(prefix)]
            raise RecipeError(f"there is no earlier step '{name}' here", next=hint(str(name), [INPUT, *local]))
        return self.outputs[path]

    def _arguments(self, step: Step, variables: Variables, place: Variables) -> dict[str, Any]:
        given = {**OPERATIONS.get(step.kind, {}), **step.arguments}
        for end in ("first", "last"):
            if place[end]:
                given |= step.overrides[end]
        found = {}
        for key, value in given.items():
            with self.source.at((*step.location, key)):
                found[key] = evaluate_padding(value, variables)
        return found

    def _node(self, step: Step, path: str, inputs: tuple[str, ...], values: Mapping[str, Any]) -> str:
        def pad(kind: SiteKind, default: Convention) -> Convention:
            return site_convention(self.rules, path, kind, default, self.variables, self.source)

        op = make_op(step, values, self.shapes[inputs[0]][0] or 0, self.source, pad)
        self.nodes[path] = Node(path, op, inputs)
        try:
            self.shapes[path] = op.shape(*(self.shapes[name] for name in inputs))
        except GraphError as error:
            raise RecipeError(f"{path}: {error.message}", where=self.source.where(step.location)) from None
        self.locations[path] = step.location
        return path

    def _block(self, step: Step, path: str, entry: str, arguments: Mapping[str, Argument], place: Variables, depth: int) -> str:
        block = self.recipe.blocks[step.kind]
        variables = {**self.variables, **place, "channels": self.shapes[entry][0] or 0}
        parameters = self._parameters(step, block, arguments, variables)
        self.scopes.append(Scope(path, block.name, parameters))
        return self.run(block.steps, f"{path}/", entry, {**variables, **parameters}, depth + 1)

    def _parameters(self, step: Step, block: Block, arguments: Mapping[str, Any], variables: Variables) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, default in block.parameters.items():
            if name in arguments:
                found[name] = arguments[name]
            elif default is None:
                raise RecipeError(f"'{block.name}' needs '{name}'", where=self.source.where(step.location))
            else:
                with self.source.at((*block.location, "parameters", name)):
                    found[name] = evaluate(default, {**variables, **found})
            if isinstance(found[name], dict):
                where = self.source.where((*step.location, name))
                raise RecipeError(f"'{name}' is a number, a word or a list", where=where)
        return found

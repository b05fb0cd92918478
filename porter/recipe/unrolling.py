"""The steps of a recipe unrolled to nodes: blocks, repeats and branches, expressions computed, the zoo's
padding at every site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from porter.base.errors import GraphError, RecipeError, some
from porter.graph import INPUT, Argument, BlockScope, Graph, Node, Shape, expect_inputs
from porter.graph.ops import LARGER, OPS, Flatten, channels_in
from porter.padding import Convention, SiteKind
from porter.recipe.expressions import Value, evaluate, fill_in, is_expression
from porter.recipe.paddings import PadRule, site_convention
from porter.recipe.recipe import Recipe
from porter.recipe.source import Location, Mark
from porter.recipe.spelling import hint
from porter.recipe.step_ops import Attributes, make_op
from porter.recipe.steps import OPERATIONS, Block, RecipeStep, cycle

MAX_REPEAT = 1000
MAX_USES = 20_000
MAX_NESTING = 8
MAX_PATH = 128

_PATH = re.compile(r"[A-Za-z_][\w.-]*(/[A-Za-z_][\w.-]*)*", re.ASCII)
Variables = Mapping[str, Value]


class TooLarge(Exception):
    """A graph has more nodes than it may have."""


@dataclass(frozen=True)
class _Here:
    """Where steps are unrolled.

    Attributes:
        prefix: of their paths.
        entry: what the first of them reads.
        inputs: the paths of what the block around them reads, by the names that it gives them.
        variables: those in scope.
        depth: of the blocks around them.
    """

    prefix: str
    entry: str
    inputs: Mapping[str, str]
    variables: Variables
    depth: int


class Unrolling:
    """A graph in the making.

    Attributes:
        most: nodes that it may have.
        nodes: by path, in the order of the steps.
        outputs: by the step's path, the node that gives its value: the node itself, or the last node of a
            block.
        shapes: of every node's output, at the native size.
        locations: of each node's step, and of each use of a block.
        origins: where the value of a variable is written: of a parameter by its block's prefix, of the others
            by "".
        left_out: the paths of steps whose conditions do not hold.
    """

    def __init__(
        self,
        recipe: Recipe,
        variables: Variables,
        rules: Sequence[PadRule],
        origins: dict[tuple[str, str], Mark],
        most: int,
    ) -> None:
        self.recipe = recipe
        self.source = recipe.source
        self.variables = variables
        self.rules = rules
        self.nodes: dict[str, Node] = {}
        self.outputs: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {INPUT: (recipe.channels, *recipe.native_size(variables))}
        self.locations: dict[str, Location] = {}
        self.origins = origins
        self.left_out: dict[str, Location] = {}
        self.scopes: list[BlockScope] = []
        self.counts: dict[tuple[str, str], int] = {}
        self.uses = 0
        self.most = most

    def graph(self) -> Graph:
        """The graph of the recipe's steps."""
        output = self._run(self.recipe.graph, _Here("", INPUT, {}, self.variables, 0))
        return Graph(tuple(self.nodes.values()), self.recipe.channels, output, tuple(self.scopes))

    def _run(self, steps: Sequence[RecipeStep], here: _Here) -> str:
        """Adds steps. Returns the path of the last one's value."""
        current = here.entry
        for step in steps:
            times = 1 if step.repeat is None else self._times(step, here.variables)
            for index in range(1, times + 1):
                place: dict[str, Value] = {"index": index, "first": index == 1, "last": index == times}
                current = self._use(step, here, current, place)
        return current

    def _times(self, step: RecipeStep, variables: Variables) -> int:
        """How often a step is repeated."""
        with self.source.at((*step.location, "repeat")):
            times = evaluate(step.repeat, variables)
            if type(times) is not int or not 0 <= times <= MAX_REPEAT:
                raise RecipeError(f"'repeat' must be a whole number from 0 to {MAX_REPEAT}, got {times!r}")
            return times

    def _use(self, step: RecipeStep, here: _Here, current: str, place: Variables) -> str:
        """Adds a step, or passes on `current`, the value before it, if its condition does not hold."""
        self.uses += 1
        if self.uses > MAX_USES or here.depth > MAX_NESTING:
            raise self._endless(step)
        if len(self.nodes) > self.most:
            raise TooLarge
        if step.repeat is not None:
            here = replace(here, variables={**here.variables, **place})
        named = {**place, **here.variables}
        if not self._holds(step, here.variables):
            with suppress(RecipeError):
                self.left_out[f"{here.prefix}{self._name(step, here.prefix, named)}"] = step.location
            return current
        path = self._path(step, here.prefix, named)
        inputs = self._inputs(step, here, current)
        arguments = self._arguments(step, here.variables, place)
        if step.kind in OPERATIONS:
            output = self._node(step, here, path, inputs, arguments, place)
        else:
            output = self._block(step, here, path, inputs, arguments, place)
        self.outputs[path] = output
        return output

    def _holds(self, step: RecipeStep, variables: Variables) -> bool:
        """Whether a step's condition holds; most steps have none."""
        if step.when is True:
            return True
        with self.source.at((*step.location, "when")):
            holds = evaluate(step.when, variables)
            if not isinstance(holds, bool):
                advice = f"put = before it: when: ={holds}" if isinstance(holds, str) else None
                raise RecipeError(f"'when' must be a condition, got {holds!r}", next=advice)
            return holds

    def _endless(self, step: RecipeStep) -> RecipeError:
        """The error that a recipe does not end, with the blocks that use each other."""
        chain, step = cycle(self.recipe.graph, self.recipe.blocks) or ((), step)
        why = (
            f"more than {MAX_USES} steps"
            if self.uses > MAX_USES
            else f"blocks nest more than {MAX_NESTING} deep"
        )
        message = f"block '{step.kind}' is used inside itself: {' > '.join(chain)}" if chain else why
        return RecipeError(f"this recipe does not end: {message}", where=self.source.where(step.location))

    def _name(self, step: RecipeStep, prefix: str, variables: Variables) -> str:
        name = fill_in(step.path, {**variables, "count": self.counts.get((prefix, step.path), 0)})
        return name if step.repeat is None or step.numbered else f"{name}{variables['index']}"

    def _path(self, step: RecipeStep, prefix: str, variables: Variables) -> str:
        """The path of a step's node, which no other node may have."""
        with self.source.at((*step.location, step.kind)):
            name = self._name(step, prefix, variables)
            self.counts[prefix, step.path] = self.counts.get((prefix, step.path), 0) + 1
            path = f"{prefix}{name}"
            if not _PATH.fullmatch(name) or name == INPUT or len(path) > MAX_PATH:
                raise RecipeError(
                    f"'{name}' is not a path: words of letters, digits, _ . and -, such as stage1/conv"
                )
            if path in self.outputs:
                raise RecipeError(
                    f"two steps have the path '{path}'",
                    next="give them 'when' conditions that exclude each other",
                )
            return path

    def _inputs(self, step: RecipeStep, here: _Here, current: str) -> tuple[str, ...]:
        """The nodes that a step reads: those of `from`, its branches' outputs, or the step before."""
        if step.branches:
            return tuple(self._branch(branch, replace(here, entry=current)) for branch in step.branches)
        if step.inputs is None:
            if step.kind in OPS and OPS[step.kind].several and OPS[step.kind].least > 1:
                raise RecipeError(
                    f"'{step.kind}' needs 'from', the list of its inputs",
                    where=self.source.where(step.location),
                )
            return (current,)
        location = (*step.location, "from")
        names = self._value(step.inputs, location, here.variables)
        return tuple(
            self._output_of(name, here, (*location, index))
            for index, name in enumerate(names if isinstance(names, tuple) else (names,))
        )

    def _branch(self, steps: Sequence[RecipeStep], here: _Here) -> str:
        """Adds the nodes of a branch. Returns the path of its output."""
        output = self._run(steps, here)
        if output == here.entry:
            raise RecipeError(
                "a branch without steps",
                where=self.source.where(steps[0].location),
                next="write {identity: NAME}",
            )
        return output

    def _output_of(self, name: Value, here: _Here, location: Location) -> str:
        """The node that gives the value of this name: an input of the block, or an earlier step."""
        if name == INPUT:
            return here.entry
        if name in here.inputs:
            return here.inputs[str(name)]
        path = f"{here.prefix}{name}"
        if path in self.outputs:
            return self.outputs[path]
        local = [known.removeprefix(here.prefix) for known in self.outputs if known.startswith(here.prefix)]
        message = f"there is no earlier step '{name}' here"
        advice = hint(str(name), [INPUT, *here.inputs, *local])
        if path in self.left_out:
            condition = self.source.where((*self.left_out[path], "when"))
            message = f"step '{name}' is left out here, because its condition does not hold: {condition}"
            advice = "give this step a 'when' too, or read another one"
        raise RecipeError(message, where=self.source.where(location), next=advice)

    def _arguments(self, step: RecipeStep, variables: Variables, place: Variables) -> dict[str, Any]:
        """The arguments of a step, evaluated, with those that override them at its first or last
        repetition.
        """
        given = {**OPERATIONS.get(step.kind, {}), **step.arguments}
        for end in ("first", "last"):
            if place[end]:
                given |= step.overrides[end]
        for key, value in given.items():
            if is_expression(value) or isinstance(value, tuple | dict):
                given[key] = self._value(value, step.written(key, place)[0], variables)
        return given

    def _value(self, value: Any, location: Location, variables: Variables) -> Any:
        """A value with its expressions computed."""
        if isinstance(value, dict):
            return {key: self._value(item, (*location, key), variables) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._value(item, (*location, index), variables) for index, item in enumerate(value))
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
        step: RecipeStep,
        here: _Here,
        path: str,
        inputs: tuple[str, ...],
        values: Mapping[str, Any],
        place: Variables,
    ) -> str:
        """Adds the node of a step that is an operation. Returns its path."""

        def written(key: str) -> str:
            location, value = step.written(key, place)
            return str(self._origin(here.prefix, location, value) or self.source.where(step.location))

        def pad(kind: SiteKind, default: Convention) -> Convention:
            return site_convention(self.rules, path, kind, default, self.variables, self.source)

        attributes = Attributes(step.kind, path, values, here.variables, written)
        op = make_op(attributes, channels_in(self.shapes[inputs[0]]), pad)
        self.nodes[path] = Node(path, op, inputs)
        try:
            expect_inputs(op, len(inputs))
            self.shapes[path] = op.shape(*(self.shapes[name] for name in inputs))
        except GraphError as error:
            advice = "pad its input, or give a smaller kernel" if error.next == LARGER else error.next
            advice = f"make {some(inputs)} alike" if len(inputs) > 1 else advice
            advice = "state its rows and columns" if isinstance(op, Flatten) else advice
            raise RecipeError(
                f"{path}: {error.message}", where=self.source.where(step.location), next=advice
            ) from None
        self.locations[path] = step.location
        return path

    def _block(
        self,
        step: RecipeStep,
        here: _Here,
        path: str,
        inputs: tuple[str, ...],
        arguments: Mapping[str, Argument],
        place: Variables,
    ) -> str:
        """Adds the nodes of a step that uses a block. Returns the path of the output."""
        block = self.recipe.blocks[step.kind]
        if len(inputs) != len(block.inputs):
            message = f"'{block.name}' reads {', '.join(block.inputs)}, and is given {len(inputs)}"
            raise RecipeError(
                message, where=self.source.where((*step.location, "from")), next="list them: from: [A, B]"
            )
        named = dict(zip(block.inputs, inputs, strict=True))
        variables = {**self.variables, **place, "channels": channels_in(self.shapes[inputs[0]])}
        parameters = self._parameters(step, block, arguments, variables)
        for name in parameters:
            given = (
                step.written(name, place)
                if name in arguments
                else (block.place(name), block.parameters[name])
            )
            if origin := self._origin(here.prefix, *given):
                self.origins[f"{path}/", name] = origin
        self.scopes.append(BlockScope(path, block.name, parameters))
        self.locations[path] = step.location
        return self._run(
            block.steps, _Here(f"{path}/", inputs[0], named, {**variables, **parameters}, here.depth + 1)
        )

    def _parameters(
        self, step: RecipeStep, block: Block, arguments: Mapping[str, Any], variables: Variables
    ) -> dict[str, Any]:
        """The parameters of a block: what the step gives, otherwise the defaults, which may read earlier
        ones.
        """
        parameters: dict[str, Any] = {}
        for name, default in block.parameters.items():
            if name in arguments:
                parameters[name] = arguments[name]
            elif default is None:
                raise RecipeError(f"'{block.name}' needs '{name}'", where=self.source.where(step.location))
            else:
                with self.source.at(block.place(name)):
                    parameters[name] = evaluate(default, {**variables, **parameters})
            if isinstance(parameters[name], dict):
                where = self.source.where((*step.location, name))
                raise RecipeError(f"'{name}' must be a number, a word or a list, not a mapping", where=where)
        return parameters

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
from porter.recipe.kept_graphs import TooLarge
from porter.recipe.paddings import PadRule, site_convention
from porter.recipe.recipe import Recipe
from porter.recipe.source import Location, Mark
from porter.recipe.spelling import hint
from porter.recipe.step_ops import Attributes, make_op
from porter.recipe.steps import OPERATIONS, Block, RecipeStep, find_cycle

MAX_REPEAT = 1000
MAX_USES = 20_000
MAX_NESTING = 8
MAX_PATH = 128

_PATH = re.compile(r"[A-Za-z_][\w.-]*(/[A-Za-z_][\w.-]*)*", re.ASCII)
Variables = Mapping[str, Value]


@dataclass(frozen=True)
class _Surroundings:
    """What is around the steps that are unrolled.

    Attributes:
        prefix: the beginning of their paths.
        entry: the path of the value that the first of them reads.
        inputs: the paths of the inputs of the block around them, by the names that it gives them.
        variables: those in scope.
        depth: the number of blocks around them.
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
        """Unroll the recipe's steps, and return their graph."""
        output = self._add_steps(self.recipe.graph, _Surroundings("", INPUT, {}, self.variables, 0))
        return Graph(tuple(self.nodes.values()), self.recipe.channels, output, tuple(self.scopes))

    def _add_steps(self, steps: Sequence[RecipeStep], surroundings: _Surroundings) -> str:
        """Add the nodes of steps, each as often as it is repeated, and return the path of the last one's
        value; where no step adds one, that of the value before them.
        """
        current = surroundings.entry
        for step in steps:
            times = 1 if step.repeat is None else self._count_repetitions(step, surroundings.variables)
            for index in range(1, times + 1):
                repetition: dict[str, Value] = {"index": index, "first": index == 1, "last": index == times}
                current = self._add_step(step, surroundings, current, repetition)
        return current

    def _count_repetitions(self, step: RecipeStep, variables: Variables) -> int:
        """Return how often a step is repeated."""
        with self.source.at((*step.location, "repeat")):
            times = evaluate(step.repeat, variables)
            if type(times) is not int or not 0 <= times <= MAX_REPEAT:
                raise RecipeError(f"'repeat' must be a whole number from 0 to {MAX_REPEAT}, got {times!r}")
            return times

    def _add_step(
        self, step: RecipeStep, surroundings: _Surroundings, current: str, repetition: Variables
    ) -> str:
        """Add the nodes of one repetition of a step, and return the path of its value. If its condition does
        not hold, note it as left out and return `current`.

        Args:
            surroundings: what is around the step: its block's prefix, inputs and variables.
            current: the path of the value before it, which it reads if it does not say `from`.
            repetition: the variables `index`, `first` and `last`.

        Raises:
            RecipeError: the recipe does not end, or a value, a path or a shape is wrong.
            TooLarge: the graph has more nodes than it may have.
        """
        self.uses += 1
        if self.uses > MAX_USES or surroundings.depth > MAX_NESTING:
            raise self._endless_error(step)
        if len(self.nodes) > self.most:
            raise TooLarge
        if step.repeat is not None:
            surroundings = replace(surroundings, variables={**surroundings.variables, **repetition})
        path_variables = {**repetition, **surroundings.variables}
        if not self._holds(step, surroundings.variables):
            # a path that cannot be computed here is not missed: it only helps an error message
            with suppress(RecipeError):
                name = self._relative_path(step, surroundings.prefix, path_variables)
                self.left_out[f"{surroundings.prefix}{name}"] = step.location
            return current
        path = self._claim_path(step, surroundings.prefix, path_variables)
        inputs = self._paths_of_inputs(step, surroundings, current)
        arguments = self._evaluate_arguments(step, surroundings.variables, repetition)
        if step.kind in OPERATIONS:
            output = self._add_node(step, surroundings, path, inputs, arguments, repetition)
        else:
            output = self._add_block(step, surroundings, path, inputs, arguments, repetition)
        self.outputs[path] = output
        return output

    def _holds(self, step: RecipeStep, variables: Variables) -> bool:
        """Return whether a step's condition holds; most steps have none."""
        if step.when is True:
            return True
        with self.source.at((*step.location, "when")):
            holds = evaluate(step.when, variables)
            if not isinstance(holds, bool):
                advice = f"put = before it: when: ={holds}" if isinstance(holds, str) else None
                raise RecipeError(f"'when' must be a condition, got {holds!r}", next=advice)
            return holds

    def _endless_error(self, step: RecipeStep) -> RecipeError:
        """Return the error that a recipe does not end, at the step that uses a block inside itself, with the
        blocks on the way there; without one, at `step`, which is one too many or too deep.
        """
        cycle = find_cycle(self.recipe.graph, self.recipe.blocks)
        if cycle is not None:
            chain, step = cycle
            message = f"block '{step.kind}' is used inside itself: {' > '.join(chain)}"
        elif self.uses > MAX_USES:
            message = f"more than {MAX_USES} steps"
        else:
            message = f"blocks nest more than {MAX_NESTING} deep"
        return RecipeError(f"this recipe does not end: {message}", where=self.source.where(step.location))

    def _relative_path(self, step: RecipeStep, prefix: str, variables: Variables) -> str:
        """Return a step's path within its block: `conv2` for the second repetition of `conv`, which has no
        place of its own for the number.
        """
        name = fill_in(step.path, {**variables, "count": self.counts.get((prefix, step.path), 0)})
        return name if step.repeat is None or step.numbered else f"{name}{variables['index']}"

    def _claim_path(self, step: RecipeStep, prefix: str, variables: Variables) -> str:
        """Return the path of a step's node, and count it. Raises RecipeError if it is no path, or another
        node has it.
        """
        with self.source.at((*step.location, step.kind)):
            name = self._relative_path(step, prefix, variables)
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

    def _paths_of_inputs(
        self, step: RecipeStep, surroundings: _Surroundings, current: str
    ) -> tuple[str, ...]:
        """Return the paths of what a step reads: of the outputs of its branches, whose nodes are added now,
        of the values in `from`, or of the value before it.
        """
        if step.branches:
            return tuple(
                self._add_branch(branch, replace(surroundings, entry=current)) for branch in step.branches
            )
        if step.inputs is None:
            if step.kind in OPS and OPS[step.kind].several and OPS[step.kind].least > 1:
                raise RecipeError(
                    f"'{step.kind}' needs 'from', the list of its inputs",
                    where=self.source.where(step.location),
                )
            return (current,)
        location = (*step.location, "from")
        names = self._evaluate(step.inputs, location, surroundings.variables)
        return tuple(
            self._output_of(name, surroundings, (*location, index))
            for index, name in enumerate(names if isinstance(names, tuple) else (names,))
        )

    def _add_branch(self, steps: Sequence[RecipeStep], surroundings: _Surroundings) -> str:
        """Add the nodes of a branch, and return the path of its output. Raises RecipeError if no step of it
        adds one.
        """
        output = self._add_steps(steps, surroundings)
        if output == surroundings.entry:
            raise RecipeError(
                "a branch without steps",
                where=self.source.where(steps[0].location),
                next="write {identity: NAME}",
            )
        return output

    def _output_of(self, name: Value, surroundings: _Surroundings, location: Location) -> str:
        """Return the path of the node that gives the value called `name` in `from`: an input of the block,
        or an earlier step, for a step that uses a block the block's last node. Raises RecipeError if there
        is none.
        """
        if name == INPUT:
            return surroundings.entry
        # A recipe may have written anything here, such as a mapping.
        if str(name) in surroundings.inputs:
            return surroundings.inputs[str(name)]
        path = f"{surroundings.prefix}{name}"
        if path in self.outputs:
            return self.outputs[path]
        names_here = [
            output_path.removeprefix(surroundings.prefix)
            for output_path in self.outputs
            if output_path.startswith(surroundings.prefix)
        ]
        message = f"there is no earlier step '{name}' here"
        advice = hint(str(name), [INPUT, *surroundings.inputs, *names_here])
        if path in self.left_out:
            condition = self.source.where((*self.left_out[path], "when"))
            message = f"step '{name}' is left out here, because its condition does not hold: {condition}"
            advice = "give this step a 'when' too, or read another one"
        raise RecipeError(message, where=self.source.where(location), next=advice)

    def _evaluate_arguments(
        self, step: RecipeStep, variables: Variables, repetition: Variables
    ) -> dict[str, Any]:
        """Return the arguments of a step, evaluated; at its first or last repetition with those that override
        them.
        """
        arguments = {**OPERATIONS.get(step.kind, {}), **step.arguments}
        for end in ("first", "last"):
            if repetition[end]:
                arguments |= step.overrides[end]
        for key, value in arguments.items():
            if is_expression(value) or isinstance(value, tuple | dict):
                location, _ = step.written(key, repetition)
                arguments[key] = self._evaluate(value, location, variables)
        return arguments

    def _evaluate(self, value: Any, location: Location, variables: Variables) -> Any:
        """Return a value with its expressions computed, those inside lists and mappings too."""
        if isinstance(value, dict):
            return {key: self._evaluate(item, (*location, key), variables) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(
                self._evaluate(item, (*location, index), variables) for index, item in enumerate(value)
            )
        if not is_expression(value):
            return value
        with self.source.at(location):
            return evaluate(value, variables)

    def _origin(self, prefix: str, location: Location, written: Any) -> Mark | None:
        """Return where the value of an argument is written, for errors; None if the recipe has no such
        place. An argument `=NAME` only passes on a variable, so it is where that variable gets its value.

        Args:
            prefix: of the block around the step, whose parameters come before other variables.
            location: of the argument.
            written: the argument as the recipe has it, not evaluated.
        """
        name = written[1:].strip() if is_expression(written) else ""
        return self.origins.get((prefix, name)) or self.origins.get(("", name)) or self.source.mark(location)

    def _add_node(
        self,
        step: RecipeStep,
        surroundings: _Surroundings,
        path: str,
        inputs: tuple[str, ...],
        values: Mapping[str, Any],
        repetition: Variables,
    ) -> str:
        """Add the node of a step that is an operation, with its shape and its location, and return its path.

        Raises:
            RecipeError: an attribute is wrong, or the inputs do not fit.
        """

        def place_of(key: str) -> str:
            """Return the file, line and column where an attribute's value is written."""
            location, value = step.written(key, repetition)
            return str(self._origin(surroundings.prefix, location, value) or self.source.where(step.location))

        def pad(kind: SiteKind, default: Convention) -> Convention:
            """Return the zoo's convention at this node, which may differ from the graph's own."""
            return site_convention(self.rules, path, kind, default, self.variables, self.source)

        attributes = Attributes(step.kind, path, values, surroundings.variables, place_of)
        op = make_op(attributes, channels_in(self.shapes[inputs[0]]), pad)
        self.nodes[path] = Node(path, op, inputs)
        try:
            expect_inputs(op, len(inputs))
            self.shapes[path] = op.shape(*(self.shapes[name] for name in inputs))
        except GraphError as error:
            advice = error.next
            if isinstance(op, Flatten):
                advice = "state its rows and columns"
            elif len(inputs) > 1:
                advice = f"make {some(inputs)} alike"
            elif error.next == LARGER:
                advice = "pad its input, or give a smaller kernel"
            raise RecipeError(
                f"{path}: {error.message}", where=self.source.where(step.location), next=advice
            ) from None
        self.locations[path] = step.location
        return path

    def _add_block(
        self,
        step: RecipeStep,
        surroundings: _Surroundings,
        path: str,
        inputs: tuple[str, ...],
        arguments: Mapping[str, Argument],
        repetition: Variables,
    ) -> str:
        """Add the nodes of a step that uses a block, note the use as a scope, and return the path of the
        block's output.

        Raises:
            RecipeError: it gives the block another number of inputs, or a value in it is wrong.
        """
        block = self.recipe.blocks[step.kind]
        if len(inputs) != len(block.inputs):
            message = f"'{block.name}' reads {', '.join(block.inputs)}, and is given {len(inputs)}"
            raise RecipeError(
                message, where=self.source.where((*step.location, "from")), next="list them: from: [A, B]"
            )
        inputs_by_name = dict(zip(block.inputs, inputs, strict=True))
        variables = {**self.variables, **repetition, "channels": channels_in(self.shapes[inputs[0]])}
        parameters = self._evaluate_parameters(step, block, arguments, variables)
        for name in parameters:
            if name in arguments:
                location, written = step.written(name, repetition)
            else:
                location, written = block.place(name), block.parameters[name]
            if origin := self._origin(surroundings.prefix, location, written):
                self.origins[f"{path}/", name] = origin
        self.scopes.append(BlockScope(path, block.name, parameters))
        self.locations[path] = step.location
        inside = _Surroundings(
            f"{path}/", inputs[0], inputs_by_name, {**variables, **parameters}, surroundings.depth + 1
        )
        return self._add_steps(block.steps, inside)

    def _evaluate_parameters(
        self, step: RecipeStep, block: Block, arguments: Mapping[str, Any], variables: Variables
    ) -> dict[str, Any]:
        """Return the parameters of a block: what the step gives, otherwise the defaults, which may read
        earlier ones.
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

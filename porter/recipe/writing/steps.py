"""A graph with blocks as the steps of a recipe: each block once, with parameters for what differs between its
uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from porter.graph import INPUT, BlockScope, Graph
from porter.graph.blocks.block_uses import Unlike
from porter.graph.blocks.parameters import PlainValue
from porter.recipe.expressions import Value
from porter.recipe.steps import NORM, OPERATIONS, WITH_NORM
from porter.recipe.writing.op_steps import default_padding, spell_op
from porter.recipe.writing.repeats import with_repeats
from porter.recipe.writing.template import BlockTemplate, Use, UseStep, YamlStep


@dataclass(frozen=True)
class BlockLines:
    """A block as it is written. A parameter without a default is None."""

    parameters: Mapping[str, PlainValue | None]
    steps: tuple[YamlStep, ...]


@dataclass(frozen=True)
class DraftedSteps:
    """The steps of a graph, and its blocks by name."""

    graph: tuple[YamlStep, ...]
    blocks: Mapping[str, BlockLines]


def draft_steps(graph: Graph, options: Mapping[str, Value]) -> DraftedSteps:
    """Return the steps that expand to `graph`, whose scopes are the uses of its blocks.

    Args:
        options: the recipe's, whose `bn_` options are the defaults of batch norms.
    """
    writer = _BlockWriter(graph, options)
    steps = BlockTemplate([writer.use("")]).steps
    parameters = {name: block.parameters for name, block in writer.blocks.items()}
    blocks = {name: replace(block, steps=_with_norms(block.steps)) for name, block in writer.blocks.items()}
    return DraftedSteps(_with_norms(with_repeats(steps, parameters)), blocks)


def _with_norms(steps: Iterable[YamlStep]) -> tuple[YamlStep, ...]:
    """Return the steps, with a convolution and the plain batch norm right after it as one step:
    `{conv: conv1, ..., norm: bn1}`.
    """
    lines: list[YamlStep] = []
    for step in steps:
        step_before = lines[-1] if lines else {}
        condition = {"when": step_before["when"]} if "when" in step_before else {}
        plain_norm = {"batch_norm": step.get("batch_norm"), **condition}
        if WITH_NORM & step_before.keys() and step == plain_norm:
            lines[-1] = {
                **{key: value for key, value in step_before.items() if key != "when"},
                NORM: step["batch_norm"],
                **condition,
            }
        else:
            lines.append(step)
    return tuple(lines)


def with_arguments(graph: Graph) -> Graph:
    """Return the graph with scopes that have the arguments of each use of a block, such as
    `{'filters': 64}`: all in which the uses differ.
    """
    writer = _BlockWriter(graph, dict.fromkeys((f"bn_{name}" for name in OPERATIONS["batch_norm"]), None))
    writer.use("")
    scopes = (BlockScope(path, *writer.arguments_of_uses[path]) for path in writer.scopes)
    return replace(graph, scopes=tuple(scopes))


class _BlockWriter:
    """Writes blocks, inner ones first, and the arguments of each use of them.

    Attributes:
        around: the scope around each node and each inner scope.
        members: the nodes and scopes directly in each scope.
        sources: the values that each node or scope reads from outside.
    """

    def __init__(self, graph: Graph, options: Mapping[str, Value]) -> None:
        self.graph = graph
        self.channels = graph.channels_by_path
        self.defaults: dict[str, Mapping[str, Any]] = {
            **OPERATIONS,
            "batch_norm": {name: options[f"bn_{name}"] for name in OPERATIONS["batch_norm"]},
        }
        self.scopes = {scope.path: scope.block for scope in graph.scopes}
        self.around: dict[str, str] = {}
        self.members: dict[str, dict[str, None]] = {}
        self.sources: dict[str, dict[str, None]] = {}
        for node in graph.nodes:
            self._note_scopes(node.path, node.inputs)
        self.blocks: dict[str, BlockLines] = {}
        self.arguments_of_uses: dict[str, tuple[str, Mapping[str, PlainValue]]] = {}

    def _note_scopes(self, path: str, inputs: tuple[str, ...]) -> None:
        """Note a node, and each scope around it, as a member of the next scope around that; and the values
        that each of these reads from outside of itself.
        """
        self.sources[path] = dict.fromkeys(inputs)
        scope, inner = path, path
        while scope:
            # up one part of the path; parts that are no scope are passed over
            scope = scope.rpartition("/")[0]
            if scope and scope not in self.scopes:
                continue
            self.around[inner] = scope
            self.members.setdefault(scope, {})[inner] = None
            outside = (source for source in inputs if not source.startswith(f"{scope}/"))
            self.sources.setdefault(scope, {}).update(dict.fromkeys(outside))
            inner = scope

    def use(self, path: str) -> Use:
        """Return a use of a block, whose steps are the members of the scope `path`; of "", the whole graph as
        one.
        """
        # the first value that the scope reads from outside
        entry = next(iter(self.sources[path])) if path else INPUT
        steps = tuple(self._step_of_member(path, member) for member in self.members[path])
        return Use(steps, self.channels[entry])

    def _step_of_member(self, path: str, member: str) -> UseStep:
        """Return a member of a block as a step of it: a node as an operation, a scope as the use of an inner
        block, which is written first.
        """
        prefix = f"{path}/" if path else ""
        name = member.removeprefix(prefix)
        node = self.graph.by_path.get(member)
        inputs = node.inputs if node else tuple(self.sources[member])
        input_names = tuple(self._name_in_scope(source, path) for source in inputs)
        if node is not None:
            kind, values = spell_op(node.op, self.channels[node.source])
            return UseStep(name, kind, values, {**default_padding(kind), **self.defaults[kind]}, input_names)
        if member not in self.arguments_of_uses:
            self._write_block(self.scopes[member])
        kind, arguments = self.arguments_of_uses[member]
        return UseStep(name, kind, arguments, self.blocks[kind].parameters, input_names)

    def _name_in_scope(self, source: str, path: str) -> str:
        """Return the name by which steps in the scope `path` read a value: `input` for one from outside,
        otherwise that of the step, a node or an inner scope, which gives it.
        """
        if path and not source.startswith(f"{path}/"):
            return INPUT
        while source not in self.graph.inputs and self.around[source] != path:
            source = self.around[source]
        return source.removeprefix(f"{path}/") if path else source

    def _write_block(self, block: str) -> None:
        """Write a block by all its uses. If these differ too much for one, those that have the same steps
        become blocks of their own, with a number in their names.
        """
        paths = [path for path, name_of_block in self.scopes.items() if name_of_block == block]
        uses = {path: self.use(path) for path in paths}
        try:
            self._write_lines(block, uses)
        except Unlike:
            uses_by_form: dict[object, dict[str, Use]] = {}
            for path, use in uses.items():
                form = tuple((part.name, part.kind, part.inputs) for part in use.parts)
                uses_by_form.setdefault(form, {})[path] = use
            for number, group in enumerate(uses_by_form.values()):
                self._write_lines(f"{block}_{number + 1}", group)

    def _write_lines(self, name: str, uses: Mapping[str, Use]) -> None:
        """Write the lines of a block that all these uses share, under `name`, and note the arguments of each
        use.
        """
        template = BlockTemplate(list(uses.values()))
        defaults = template.defaults
        self.blocks[name] = BlockLines(
            {key: defaults.get(key) for key in template.parameters}, template.steps
        )
        for number, path in enumerate(uses):
            self.arguments_of_uses[path] = (
                name,
                {key: values[number] for key, values in template.parameters.items()},
            )

"""A graph with blocks as the steps of a recipe: each block once, with parameters for what differs between its
uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from porter.graph import INPUT, BlockScope, Graph, channels_of
from porter.graph.blocks.block_uses import Unlike
from porter.graph.blocks.parameters import PlainValue
from porter.recipe.expressions import Value
from porter.recipe.steps import NORM, NORMED, OPERATIONS
from porter.recipe.writing.op_steps import spelled, usual_padding
from porter.recipe.writing.repeats import with_rows
from porter.recipe.writing.template import BlockTemplate, Use, UseStep, YamlStep


@dataclass(frozen=True)
class BlockLines:
    """A block as it is written. A parameter without a default is None."""

    parameters: Mapping[str, PlainValue | None]
    steps: tuple[YamlStep, ...]


@dataclass(frozen=True)
class Drafted:
    """The steps of a graph, and its blocks by name."""

    graph: tuple[YamlStep, ...]
    blocks: Mapping[str, BlockLines]


def draft_steps(graph: Graph, options: Mapping[str, Value]) -> Drafted:
    """The steps that expand to `graph`, whose scopes are the uses of its blocks.

    Args:
        options: the recipe's, whose `bn_` options are the defaults of batch norms.
    """
    drafting = _Drafting(graph, options)
    steps = BlockTemplate([drafting.use("")]).steps
    parameters = {name: block.parameters for name, block in drafting.blocks.items()}
    blocks = {name: replace(block, steps=_with_norms(block.steps)) for name, block in drafting.blocks.items()}
    return Drafted(_with_norms(with_rows(steps, parameters)), blocks)


def _with_norms(steps: Iterable[YamlStep]) -> tuple[YamlStep, ...]:
    """Steps, with a convolution and the plain batch norm that follows it as one."""
    lines: list[YamlStep] = []
    for step in steps:
        before = lines[-1] if lines else {}
        condition = {"when": before["when"]} if "when" in before else {}
        if NORMED & before.keys() and step == {"batch_norm": step.get("batch_norm"), **condition}:
            lines[-1] = {
                **{key: value for key, value in before.items() if key != "when"},
                NORM: step["batch_norm"],
                **condition,
            }
        else:
            lines.append(step)
    return tuple(lines)


def with_arguments(graph: Graph) -> Graph:
    """The graph, whose scopes have what its blocks' uses are given."""
    drafting = _Drafting(graph, dict.fromkeys((f"bn_{name}" for name in OPERATIONS["batch_norm"]), None))
    drafting.use("")
    scopes = (BlockScope(path, *drafting.given[path]) for path in drafting.scopes)
    return replace(graph, scopes=tuple(scopes))


class _Drafting:
    """Blocks, inner ones first, and what each use of them is given."""

    def __init__(self, graph: Graph, options: Mapping[str, Value]) -> None:
        self.graph = graph
        self.channels = channels_of(graph)
        self.usual: dict[str, Mapping[str, Any]] = {
            **OPERATIONS,
            "batch_norm": {name: options[f"bn_{name}"] for name in OPERATIONS["batch_norm"]},
        }
        self.scopes = {scope.path: scope.block for scope in graph.scopes}
        self.around: dict[str, str] = {}
        self.members: dict[str, dict[str, None]] = {}
        self.sources: dict[str, dict[str, None]] = {}
        for node in graph.nodes:
            self._settle(node.path, node.inputs)
        self.blocks: dict[str, BlockLines] = {}
        self.given: dict[str, tuple[str, Mapping[str, PlainValue]]] = {}

    def _settle(self, path: str, inputs: tuple[str, ...]) -> None:
        """Notes a node as a member of the scopes around it, and what they read."""
        self.sources[path] = dict.fromkeys(inputs)
        around, inner = path, path
        while around:
            around = around.rpartition("/")[0]
            if around and around not in self.scopes:
                continue
            self.around[inner] = around
            self.members.setdefault(around, {})[inner] = None
            outside = (source for source in inputs if not source.startswith(f"{around}/"))
            self.sources.setdefault(around, {}).update(dict.fromkeys(outside))
            inner = around

    def use(self, path: str) -> Use:
        entry = next(iter(self.sources[path])) if path else INPUT
        return Use(tuple(self._part(path, member) for member in self.members[path]), self.channels[entry])

    def _part(self, path: str, member: str) -> UseStep:
        """A member of a block as a step of it."""
        prefix = f"{path}/" if path else ""
        name = member.removeprefix(prefix)
        node = self.graph.by_path.get(member)
        inputs = node.inputs if node else tuple(self.sources[member])
        local = tuple(self._local(source, path) for source in inputs)
        if node is not None:
            kind, own = spelled(node.op, self.channels[node.source])
            return UseStep(name, kind, own, {**usual_padding(kind), **self.usual[kind]}, local)
        if member not in self.given:
            self._define(self.scopes[member])
        kind, arguments = self.given[member]
        return UseStep(name, kind, arguments, self.blocks[kind].parameters, local)

    def _local(self, source: str, path: str) -> str:
        """The name of a value in the scope `path`."""
        if path and not source.startswith(f"{path}/"):
            return INPUT
        while source not in self.graph.inputs and self.around[source] != path:
            source = self.around[source]
        return source.removeprefix(f"{path}/") if path else source

    def _define(self, block: str) -> None:
        """Writes a block; uses that have other steps become blocks of their own."""
        paths = [path for path, own in self.scopes.items() if own == block]
        uses = {path: self.use(path) for path in paths}
        try:
            self._write(block, uses)
        except Unlike:
            alike: dict[object, dict[str, Use]] = {}
            for path, use in uses.items():
                form = tuple((part.name, part.kind, part.inputs) for part in use.parts)
                alike.setdefault(form, {})[path] = use
            for number, group in enumerate(alike.values()):
                self._write(f"{block}_{number + 1}", group)

    def _write(self, name: str, uses: Mapping[str, Use]) -> None:
        """Writes the lines of a block, and notes the arguments of each use."""
        template = BlockTemplate(list(uses.values()))
        defaults = template.defaults
        self.blocks[name] = BlockLines(
            {key: defaults.get(key) for key in template.parameters}, template.steps
        )
        for number, path in enumerate(uses):
            self.given[path] = name, {key: values[number] for key, values in template.parameters.items()}

"""The state of reading a TensorFlow graph: the values of its nodes, and the steps of porter's graph found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from porter.filegraph.file_graph import FileNode, Foreign, Stored
from porter.filegraph.names import unused_name
from porter.formats.tf_graph.constants import Constants
from porter.formats.tf_graph.nodes import GraphNode, Reference
from porter.graph import INPUT, Op, Shape
from porter.padding import Pads

Step = Op | Foreign


@dataclass(frozen=True)
class Value:
    """A value that flows between nodes.

    Attributes:
        source: the node whose FileNode gives it, or INPUT.
        shape: (channels, rows, columns) of a map N×rows×columns×channels, (features,) of N×features, or None where unknown.
    """

    source: str
    shape: Shape | None

    @property
    def channels(self) -> int | None:
        return self.shape[0] if self.shape else None

    @property
    def is_map(self) -> bool:
        """Whether it is a map, or may be one."""
        return self.shape is None or len(self.shape) == 3

    @property
    def is_one_cell(self) -> bool:
        """Whether it certainly is one value per channel."""
        return self.shape is not None and (len(self.shape) == 1 or self.shape[1:] == (1, 1))


@dataclass(frozen=True)
class Padded:
    """The value that a pad node pads, and its pads: top, bottom, left, right."""

    value: Value
    pads: Pads
    fill: float


@dataclass
class Walk:
    """Reading in progress.

    Attributes:
        live: names of the nodes that depend on the input.
        values: the values of the live nodes, by name.
        steps: FileNodes by their last node; their inputs are such nodes too.
        padded: pad nodes, for the windowed nodes that read them.
        min6: nodes that are min(x, 6), for the max(., 0) that makes a ReLU6 of them.
    """

    constants: Constants
    live: set[str]
    values: dict[str, Value] = field(default_factory=dict)
    steps: dict[str, FileNode] = field(default_factory=dict)
    padded: dict[str, Padded] = field(default_factory=dict)
    min6: dict[str, Value] = field(default_factory=dict)

    def is_live(self, source: Reference) -> bool:
        return source[0] in self.live

    def value(self, source: Reference) -> Value:
        """The value of a live node. porter's ops have one output, so further outputs are foreign."""
        name, index = source
        if not index:
            return self.values[name]
        node, key = self.constants.nodes[name], f"{name}:{index}"
        if key not in self.steps:
            inputs = tuple(self.value(other).source for other in node.inputs if self.is_live(other))
            self.steps[key] = FileNode(key, Foreign(f"{node.op} output {index}"), inputs)
        return Value(key, None)

    def add(
        self, node: GraphNode, op: Step, inputs: Sequence[Value], shape: Shape | None, tensors: Mapping[str, Stored] | None = None
    ) -> None:
        """Adds a node's value, which `op` computes from `inputs`."""
        sources = tuple(value.source for value in inputs)
        self.steps[node.name] = FileNode(node.name, op, sources, tensors or {}, node.name)
        self.values[node.name] = Value(node.name, shape)

    def add_foreign(self, node: GraphNode, kind: str | None = None, shape: Shape | None = None) -> None:
        """Adds a node that porter has no op for; the roles of its tensors are the last parts of their names."""
        inputs = [self.value(source) for source in node.inputs if self.is_live(source)]
        found = [self.constants.tensor(source) for source in node.inputs if not self.is_live(source)]
        names = [tensor.name for tensor in found if tensor is not None and tensor.shape]
        roles = Counter(name.rpartition("/")[2] for name in names)
        tensors = {(role if roles[role := name.rpartition("/")[2]] == 1 else name): Stored(name) for name in names}
        self.add(node, Foreign(kind or node.op), inputs, shape, tensors)

    def pass_on(self, node: GraphNode, shape: Shape | None = None) -> None:
        """Adds a node that gives its first input, perhaps in another shape."""
        name, index = node.inputs[0]
        value = self.value((name, index))
        self.values[node.name] = replace(value, shape=shape) if shape else value
        if not index and not shape:
            if name in self.padded:
                self.padded[node.name] = self.padded[name]
            if name in self.min6:
                self.min6[node.name] = self.min6[name]


def named_steps(steps: Mapping[str, FileNode], outputs: Sequence[str]) -> tuple[tuple[FileNode, ...], tuple[str, ...]]:
    """The steps that lead to `outputs`, each with the scope of its tensors as its name, and the outputs' names.

    A step without tensors, or with a scope that other steps share, keeps its node's name.
    """
    needed: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in steps and name not in needed:
            needed.add(name)
            waiting += steps[name].inputs
    kept = [step for name, step in steps.items() if name in needed]
    scopes = {step.name: _scope(step) for step in kept}
    counts = Counter(scopes.values())
    names = {INPUT: INPUT}
    taken = {INPUT} | {scope for scope in counts if scope and counts[scope] == 1}
    for step in kept:
        scope = scopes[step.name]
        names[step.name] = scope if scope and counts[scope] == 1 else unused_name(step.name, taken)
        taken.add(names[step.name])
    renamed = tuple(replace(step, name=names[step.name], inputs=tuple(names[name] for name in step.inputs)) for step in kept)
    return renamed, tuple(names[name] for name in outputs)


def _scope(step: FileNode) -> str:
    """The scope that a step's tensors share: `Conv1` of `Conv1/kernel` and `Conv1/bias`."""
    if isinstance(step.op, Foreign):
        return ""
    paths = [stored.name.split("/")[:-1] for stored in step.tensors.values()]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)

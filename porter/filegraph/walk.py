"""The state of reading an op graph: the values of its nodes, and the steps of porter's graph found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic

from porter.filegraph.builder import Builder, Value
from porter.filegraph.dataflow import Dataflow, N, Reference
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored
from porter.filegraph.names import unused_name
from porter.filegraph.views import View, Views
from porter.graph import INPUT, Op

Read = View | Value | str | None
"""What a reader makes of a node: its value; what porter lacks, in words; or None, if that is the op itself."""


@dataclass
class Walk(Generic[N]):
    """Reading in progress.

    Attributes:
        trained: names of variables.
        found: the values so far, as the file's tensors hold them.
        exact: names of constants that a port says more exactly than the file can, such as the root of a half in a GELU.
    """

    builder: Builder
    views: Views
    flow: Dataflow[N]
    trained: Collection[str]
    found: dict[Reference, View] = field(default_factory=dict)
    exact: dict[str, float] = field(default_factory=dict)
    _settled: dict[Reference, Value] = field(default_factory=dict)

    def view(self, source: Reference) -> View:
        """A value as the tensor holds it. Outputs that no reader gives are foreign."""
        name, index = source
        if source not in self.found:
            node = self.flow.nodes[name]
            inputs = [self.value(other) for other in node.inputs if self.flow.is_value(other)]
            self.found[source] = self.views.of(self.builder.foreign(f"{name}:{index}", f"{node.op} output {index}", *inputs))
        return self.found[source]

    def value(self, source: Reference) -> Value:
        """A value as a map or features, by an op if the tensor holds it in another way."""
        view = self.view(source)
        if source not in self._settled:
            tap = None if source[1] else source[0]
            self._settled[source] = self.views.settled(source[0], view, tap)
        return self._settled[source]

    def kept(self, source: Reference) -> View:
        """A value as the tensor holds it where porter has no op for that, such as a list of cells; otherwise in its own layout."""
        view = self.view(source)
        return view if self.views.op(view) is None else self.views.of(self.value(source))

    def by_cell(self, source: Reference) -> View:
        """As `kept`, but with the channels last."""
        view = self.kept(source)
        return view if view.axes is None or self.views.last(view) else self.views.of(self.value(source))

    def values(self, sources: Iterable[Reference]) -> list[Value]:
        return [self.value(source) for source in sources]

    def give(self, node: N, values: list[View | Value]) -> None:
        """Adds the values that a node gives."""
        for index, value in enumerate(values):
            view = value if isinstance(value, View) else self.views.of(value)
            self.found[node.name, index] = view
            layer = self.builder.nodes.get(view.value.node)
            plain = view == self.views.of(view.value)
            if layer is not None and layer.tap is None and plain and index == 0:
                self.builder.nodes[layer.name] = replace(layer, tap=node.name)
            elif layer is not None and layer.tap == node.name and not plain:
                self.builder.nodes[layer.name] = replace(layer, tap=None)

    def foreign(self, node: N, kind: str) -> Value:
        """A node that porter has no op for; the roles of its tensors are the last parts of their names."""
        found = [self.flow.tensor(source) for source in node.inputs]
        names = [tensor.name for tensor in found if tensor is not None and tensor.shape]
        roles = Counter(name.rpartition("/")[2] for name in names)
        tensors = {(role if roles[role := name.rpartition("/")[2]] == 1 else name): Stored(name) for name in names}
        values = self.values(source for source in node.inputs if self.flow.is_value(source))
        return self.builder.foreign(node.name, kind, *values, tensors=tensors, tap=node.name)


def unary(make: Callable[[N], Op]) -> Callable[[Walk[N], N], Read]:
    """Reads an op of each number, in whatever axes the tensor has them."""

    def read(walk: Walk[N], node: N) -> Read:
        view = walk.kept(node.inputs[0])
        return walk.views.like(view, walk.builder.add(node.name, make(node), view.value, tap=node.name))

    return read


def named(graph: FileGraph, titles: Mapping[str, str] | None = None) -> FileGraph:
    """The graph with each node named by the scope of its tensors.

    A node without tensors, or with a scope that others share, has its name in `titles`, or keeps its own.
    """
    titles = titles or {}
    scopes = {node.name: _scope(node) for node in graph.nodes}
    counts = Counter(scopes.values())
    names = {INPUT: INPUT}
    taken = {INPUT} | {scope for scope in counts if scope and counts[scope] == 1}
    for node in graph.nodes:
        scope = scopes[node.name]
        names[node.name] = scope if scope and counts[scope] == 1 else unused_name(titles.get(node.name, node.name), taken)
        taken.add(names[node.name])
    nodes = (replace(node, name=names[node.name], inputs=tuple(names[name] for name in node.inputs)) for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes), outputs=tuple(names[name] for name in graph.outputs))


def _scope(node: FileNode) -> str:
    """The scope that a node's tensors share: `Conv1` of `Conv1/kernel` and `Conv1/bias`."""
    if isinstance(node.op, Foreign):
        return ""
    # ONNX models of torch have torch's names.
    paths = [stored.name.split("/" if "/" in stored.name else ".")[:-1] for stored in node.tensors.values()]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)

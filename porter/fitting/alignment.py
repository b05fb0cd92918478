"""A recipe's graph and a file's own, laid side by side: which layer is which node.

Nothing depends on names. A layer can be a node if it is of the node's kind and reads what can be the node's inputs; that is decided
node by node from the input on, and read off backwards from the output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from porter.errors import GraphError, MappingError
from porter.frameworks.file_graph import FileGraph, FileNode, Foreign, OutputActivation
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    Conv,
    Dense,
    GlobalAvgPool,
    Graph,
    Identity,
    Node,
    Op,
    Relu,
    Relu6,
    Shape,
    shapes,
)
from porter.windows import Size, Window

_POINT = Window((1, 1))


@dataclass(frozen=True)
class Alignment:
    """Which layers can be which nodes.

    Attributes:
        candidates: by path (`input` included), names of layers that compute the node's value from the file's input, or from that
            input scaled.
    """

    graph: Graph
    file: FileGraph
    candidates: Mapping[str, tuple[str, ...]]

    @property
    def share(self) -> float:
        """The share of the graph's nodes that the file has."""
        return sum(bool(self.candidates[node.path]) for node in self.graph.nodes) / len(self.graph.nodes)

    def pairs(self, path: str, name: str) -> dict[str, str]:
        """The layer of every node that leads to `path`, where `name` is the layer of `path`; INPUT's is what the trunk reads.

        Raises:
            MappingError: a node would have two layers, or a layer two nodes: the file's graph is another one.
        """
        found: dict[str, str] = {}
        walked: set[str] = set()  # each node once: there are as many ways through a network of branches as their product
        waiting = [(path, name)]
        while waiting:
            path, name = waiting.pop()
            if found.setdefault(path, name) != name:
                raise MappingError(f"'{found[path]}' and '{name}' are two layers of the file for one node", where=path)
            if path == INPUT or path in walked:
                continue
            walked.add(path)
            node = self.graph.by_path[path]
            inputs = (name,) if isinstance(node.op, Identity) else self._inputs(node, self.file.by_name[name], found)
            waiting += zip(node.inputs, inputs, strict=True)
        layers = [name for path, name in found.items() if path != INPUT and not isinstance(self.graph.by_path[path].op, Identity)]
        twice = next((name for name in layers if layers.count(name) > 1), None)
        if twice is not None:
            raise MappingError(f"layer '{twice}' stands for two nodes of the graph", where=self.graph.output)
        return found

    def _inputs(self, node: Node, layer: FileNode, known: Mapping[str, str]) -> Sequence[str]:
        """The layer's inputs in the order of the node's."""
        fitting = [
            order
            for order in _orders(node.op, layer.inputs)
            if all(name in self.candidates[path] for path, name in zip(node.inputs, order, strict=True))
        ]
        agreeing = (order for order in fitting if all(known.get(p, n) == n for p, n in zip(node.inputs, order, strict=True)))
        return next(agreeing, fitting[0])

    def expect(self, path: str) -> None:
        """Refuses a file in which nothing can be the node `path`.

        Raises:
            MappingError: names the first node that has no layer, and what the file has in its place.
        """
        if self.candidates[path]:
            return
        leading = _leading_to(self.graph, path)
        node = next(node for node in self.graph.nodes if node.path in leading and not self.candidates[node.path])
        readers = [
            layer
            for layer in self.file.nodes
            if any(name in self.candidates[source] for source in node.inputs for name in layer.inputs) and layer.op != node.op
        ]
        taken = {name for names in self.candidates.values() for name in names}
        readers = [layer for layer in readers if layer.name not in taken]
        foreign = [layer for layer in readers if isinstance(layer.op, Foreign)]
        stands = " or ".join(f"'{layer.name}' ({describe(layer.op)})" for layer in (foreign or readers)[:3]) or "nothing"
        raise MappingError(
            f"the file's graph has {stands} where the recipe has {describe(node.op)}",
            where=node.path,
            next="porter has no op for it" if foreign else "porter inspect FILE ranks what the file could be",
        )


def align(graph: Graph, file: FileGraph, native: tuple[int, int]) -> Alignment:
    """Lays a file's graph beside a recipe's.

    Args:
        native: rows and columns of the input where the file does not say them.

    Raises:
        MappingError: a window of the recipe's does not fit into the file's input.
    """
    readers: dict[tuple[str, ...], list[FileNode]] = defaultdict(list)
    for layer in file.nodes:
        readers[_key(layer.op, layer.inputs)].append(layer)
    size = built_size(file, native)
    try:
        known = shapes(graph, size)
    except GraphError as error:
        raise MappingError(f"an input of {size[0]}x{size[1]} is too small: {error.message}", where=error.where) from None
    found: dict[str, tuple[str, ...]] = {INPUT: _scaled_inputs(file)}
    for node in graph.nodes:
        if isinstance(node.op, Identity):
            found[node.path] = found[node.inputs[0]]
            continue
        keys = {_key(node.op, names) for names in product(*(found[path] for path in node.inputs))}
        layers = [layer for key in sorted(keys) for layer in readers.get(key, ())]
        shape = known[node.inputs[0]]
        found[node.path] = tuple(layer.name for layer in layers if is_kind(node.op, layer.op, shape))
    return Alignment(graph, file, found)


def built_size(file: FileGraph, native: tuple[int, int]) -> Size:
    """Rows and columns that a file's model was built for, or else the native ones."""
    return file.size if None not in file.size else native


def is_kind(wanted: Op, found: Op | OutputActivation | Foreign, shape: Shape) -> bool:
    """Whether a layer can be a node by what it is, whatever its pads, strides, epsilons and clipping.

    A head may be a 1x1 convolution of pooled features, and an average over a whole map (`shape`) is a global one.
    """
    match wanted, found:
        case Conv(), Conv():
            return (wanted.filters, wanted.groups, wanted.window.kernel) == (found.filters, found.groups, found.window.kernel)
        case Dense(), Conv():
            return found.window == _POINT and found.groups == 1
        case GlobalAvgPool(), AvgPool():
            return found.window.kernel == shape[1:] and found.convention.rule == "valid"
        case ((Relu() | Relu6()), (Relu() | Relu6())):
            return True
        case _:
            return type(wanted) is type(found)


def describe(op: Op | OutputActivation | Foreign) -> str:
    """A layer in a few words."""
    match op:
        case Foreign(kind=kind) | OutputActivation(kind=kind):
            return kind
        case Conv(filters=filters, window=window, groups=groups):
            rows, columns = window.kernel
            return f"a {rows}x{columns} conv of {filters} filters" + (f" in {groups} groups" if groups > 1 else "")
        case Dense(units=units):
            return f"a dense layer of {units} units"
        case _:
            return type(op).__name__


def _scaled_inputs(file: FileGraph) -> tuple[str, ...]:
    """The file's input, and what is made of it by constants alone."""
    found = [INPUT]
    for layer in file.nodes:
        if isinstance(layer.op, Affine) and layer.inputs[0] in found:
            found.append(layer.name)
    return tuple(found)


def _key(op: Op | OutputActivation | Foreign, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names)) if isinstance(op, Add) else tuple(names)


def _orders(op: Op, names: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    return permutations(names) if isinstance(op, Add) else (names,)


def _leading_to(graph: Graph, path: str) -> set[str]:
    found, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current in graph.by_path and current not in found:
            found.add(current)
            waiting += graph.by_path[current].inputs
    return found

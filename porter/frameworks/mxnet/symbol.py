"""A plan as a symbol: its JSON, and what its variables hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import GraphError, MappingError, PaddingError, PorterError
from porter.filegraph.names import Names
from porter.frameworks import Tensors
from porter.frameworks.mxnet.maker import Held, SymbolMaker, Trained
from porter.frameworks.mxnet.sites import windowed
from porter.frameworks.mxnet.spellings import PLAIN
from porter.graph import INPUT, AvgPool, Conv, Graph, MaxPool, Node, shapes, tensor_shapes
from porter.graph.ops import Axes
from porter.graph.plan import Plan
from porter.padding import ANY

_VERSION = 10901
"""MXNet 1.9.1, whose operators a symbol says: without a version it would be taken for one of 0.8."""


@dataclass(frozen=True)
class PortSymbol:
    """Nodes in the order in which MXNet runs them.

    Attributes:
        values: the name of the value of each path of the graph.
        held: by variable.
        states: the variables that are no arguments.
    """

    nodes: tuple[Mapping[str, Any], ...]
    heads: tuple[int, ...]
    values: Mapping[str, str]
    held: Mapping[str, Held]
    states: frozenset[str]

    def text(self, about: Mapping[str, str] | None = None) -> str:
        """The symbol as JSON, with facts."""
        variables = [place for place, node in enumerate(self.nodes) if node["op"] == "null"]
        facts = {name: ["str", fact] for name, fact in (about or {}).items()}
        known: dict[str, Any] = {"arg_nodes": variables, "node_row_ptr": [*range(len(self.nodes) + 1)]}
        known |= {"heads": [[place, 0, 0] for place in self.heads], "attrs": {"mxnet_version": ["int", _VERSION], **facts}}
        lines = ",\n".join(json.dumps(node) for node in self.nodes)
        return (
            f'{{"nodes": [\n{lines}\n],\n'
            + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in known.items())
            + "}\n"
        )

    def arrays(self, tensors: Tensors, kind: np.dtype[Any]) -> dict[str, Array]:
        """Those of the variables, in the number type `kind`.

        Raises:
            MappingError: the tensors do not fit the graph.
        """
        try:
            return {name: np.asarray(_array(held, tensors), kind) for name, held in self.held.items()}
        except KeyError as error:
            raise MappingError("the tensors lack one of the graph's", where=str(error)) from None

    def read_back(self, stored: Mapping[str, Array], graph: Graph) -> dict[str, dict[str, Array]]:
        """The canonical tensors in the arrays of a .params.

        Raises:
            MappingError: one is missing, or has another shape, or a constant is another.
        """
        wanted, found = tensor_shapes(graph), dict[str, dict[str, Array]]()
        for name, held in self.held.items():
            array = stored.get(name)
            if array is None or array.shape != held.shape:
                got = f"got {array.shape}" if array is not None else "there is none"
                raise MappingError(f"expected a tensor of shape {held.shape}, {got}", where=name)
            if isinstance(held, Trained):
                found.setdefault(held.path, {})[held.role] = array.reshape(wanted[held.path][held.role])
            elif not np.array_equal(array, held.astype(array.dtype)):
                raise MappingError("expected the constants that porter writes, got other numbers", where=name)
        return {path: {role: found[path][role] for role in roles} for path, roles in wanted.items()}


def make_symbol(plan: Plan) -> PortSymbol:
    """The symbol of a plan.

    Raises:
        GraphError, PaddingError: MXNet has no operators for an op; `where` is its path.
    """
    symbol, refused = _made(plan)
    if refused:
        raise refused[0]
    return symbol


def refusals(plan: Plan) -> Sequence[PorterError]:
    """See porter.frameworks.Destination."""
    return _made(plan)[1]


def _made(plan: Plan) -> tuple[PortSymbol, list[PorterError]]:
    """The symbol with empty nodes for what MXNet has no operators for, and the errors of these ops."""
    graph, taken, refused = plan.graph, Names(), list[PorterError]()
    values = {path: taken.take("data" if path == INPUT else path) for path in (INPUT, *graph.by_path)}
    maker = SymbolMaker(shapes(graph, plan.only_size or ANY), tensor_shapes(graph), taken, values)
    sides = (0, *(tuple(axis or 0 for axis in graph.axes) or (graph.channels, *(plan.only_size or (0, 0)))))
    maker.node("null", values[INPUT], __shape__=sides)
    for node in graph.nodes:
        try:
            _add(maker, node, plan)
        except (GraphError, PaddingError) as error:
            refused.append(error)
            maker.node("null", values[node.path])
    heads = tuple(maker.place(path) for path in graph.outputs)
    return PortSymbol(tuple(maker.nodes), heads, values, maker.held, frozenset(maker.states)), refused


def _add(maker: SymbolMaker, node: Node, plan: Plan) -> None:
    op = node.op
    if any(isinstance(maker.shapes[path], Axes) for path in (node.path, *node.inputs)):
        raise GraphError("porter writes maps and features for MXNet, not arrays of other axes", where=node.path)
    if isinstance(op, Conv | MaxPool | AvgPool):
        windowed(maker, node, op, plan.realisations[node.path])
    elif type(op) in PLAIN:
        PLAIN[type(op)](maker, node, op)
    else:
        raise GraphError(f"porter writes no operator of MXNet for {op.words}", where=node.path)


def fillings(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """The arguments of norms that the source lacks, with the number that changes nothing: a gamma of 1, a beta of 0."""
    held = tensor_shapes(graph)
    roles = ((node.path, role) for node in graph.nodes if node.op_name == "batch_norm" for role in ("gamma", "beta"))
    return {f"{path}_{role}": int(role == "gamma") for path, role in roles if role not in held[path]}


def _array(held: Held, tensors: Tensors) -> Array:
    return tensors[held.path][held.role].reshape(held.shape) if isinstance(held, Trained) else held

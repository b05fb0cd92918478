"""The same function written otherwise: ports that the proof has to accept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.errors import PorterError
from porter.graph import Add, Clip, Conv, Dense, Maximum, Minimum, Multiply, Node, Relu6, site_of
from porter.graph.folding import fold_norms
from porter.graph.ops import channels_in
from porter.padding import Convention, pad_amounts
from tests.mutation.memory import MemoryPort, memory_port, with_function
from tests.mutation.mistakes import right


def rewrites(port: MemoryPort) -> Iterator[tuple[str, MemoryPort]]:
    """Ports of a port's function, with what is written otherwise."""
    record, graph, tensors = port.record, port.graph, port.held
    size, native = port.plan.only_size or (None, None), port.record.input.native_size
    if not record.computed:
        try:
            folded = fold_norms(graph, tensors)
        except PorterError:  # a norm without a scale
            folded = None
        if folded is not None and folded.folded:
            stored = {
                path: {role: _single(array) for role, array in roles.items()}
                for path, roles in folded.tensors.items()
            }
            facts: dict[str, Any] = {"preprocess": record.preprocess, "folded": dict(folded.folded)}
            yield (
                "folded norms",
                memory_port(folded.graph, stored, size, native, port.destination.NAME, **facts),
            )
    known = right(graph, tensors, port.plan.only_size or native).known
    nodes, changed = list[Node](), {path: dict(roles) for path, roles in tensors.items()}
    for node in graph.nodes:
        op, site, inputs = node.op, site_of(node.op), node.inputs
        if isinstance(op, Relu6):
            op = Clip(0.0, 6.0)
        elif isinstance(op, Add | Multiply | Maximum | Minimum):
            inputs = inputs[::-1]
        elif isinstance(op, Conv | Dense) and not op.bias and not record.computed:
            op, filters = replace(op, bias=True), channels_in(known[node.path])
            for path in {node.holder, node.path} & changed.keys():  # a shared layer may be held twice
                changed[path]["bias"] = np.zeros(filters, np.float32)
        if site is not None and site.convention.rule == "same" and port.plan.only_size is not None:
            cells = known[inputs[0]][1:]
            pads = tuple(
                n
                for axis in (0, 1)
                for n in pad_amounts(site.convention, site.window, axis, cells[axis] or 0)
            )
            stated = Convention.stated(
                (pads[0], pads[1], pads[2], pads[3]), site.convention.fill, site.convention.average
            )
            windowed: Any = op
            op = replace(windowed, convention=stated)
        nodes.append(replace(node, op=op, inputs=inputs))
    if tuple(nodes) != graph.nodes:
        yield "ops, pads and sums", with_function(port, replace(graph, nodes=tuple(nodes)), changed)


def _single(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype == np.float64 else array

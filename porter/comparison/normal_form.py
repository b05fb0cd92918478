"""The normal form of a source: units of few kinds, in which what can be written in several ways is written in
one. Norms and scales are in the layers before them, pads in the layers behind them, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from porter.comparison.passes import (
    flatten_concats,
    flatten_sums,
    join_positions,
    make_dense,
    make_swishes,
    put_together,
    take_apart,
    take_in_pads,
    take_in_scales,
    take_in_scales_before,
)
from porter.comparison.unit import Unit, moves_nothing, unit_of
from porter.frameworks import Tensors
from porter.graph import Graph, shapes
from porter.graph.ops import Shape
from porter.graph.walks import in_order, reads_within
from porter.padding import KnownSize


@dataclass(frozen=True)
class NormalForm:
    """Units in topological order.

    Attributes:
        units: by path.
        graph: that it is the form of, with its `tensors`.
        shapes: of the graph's values.
        names: what the model itself calls the graph's nodes, by path, where that is known.
    """

    units: Mapping[str, Unit]
    outputs: tuple[str, ...]
    graph: Graph
    tensors: Tensors
    shapes: Mapping[str, Shape]
    names: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, path: str) -> str:
        """Return what messages call a value: a unit's name, otherwise the node's."""
        return self.units[path].name if path in self.units else self.names.get(path, path)


def normal_form(
    graph: Graph, tensors: Tensors, size: KnownSize, names: Mapping[str, str] | None = None
) -> NormalForm:
    """Return the normal form of a graph with canonical tensors: units (steps) in which several ways to write
    one function are the same.

    Args:
        size: rows and columns of the input, at which what only moves numbers is read.
        names: see NormalForm; None for none.

    Raises:
        MappingError: a norm's variance plus epsilon is not above 0.
    """
    value_shapes = shapes(graph, size)
    units = dict[str, Unit]()
    # by the path of a node that changes nothing, the path of the value that it takes
    passed = dict[str, str]()
    for node in graph.nodes:
        unit = unit_of(node, tuple(passed.get(path, path) for path in node.inputs), tensors, value_shapes)
        if moves_nothing(node, value_shapes):
            passed[node.path] = unit.inputs[0]
        else:
            units[unit.path] = unit
    outputs = tuple(passed.get(path, path) for path in graph.outputs)
    units = take_in_pads(units)
    units = make_dense(units, outputs, value_shapes)
    units = make_swishes(units, outputs)
    units = take_in_scales(units, outputs)
    units = put_together(units, outputs)
    # once more, because layers that are put together take scales, too
    units = take_in_scales(units, outputs)
    units = take_in_scales_before(units, outputs)
    units = take_apart(units, outputs, value_shapes)
    units = join_positions(units, outputs)
    units = flatten_sums(units, outputs)
    units = flatten_concats(units)
    # Units that no output needs are left out.
    order = in_order(outputs, reads_within(units))
    used = {path: units[path] for path in order if path in units}
    with_names = {path: replace(unit, names=names or {}) for path, unit in used.items()}
    return NormalForm(with_names, outputs, graph, tensors, value_shapes, names or {})

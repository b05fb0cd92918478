"""The end of a walk: the graph that a file's values are in, and how its outputs are laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from porter.filegraph.file_graph import FileGraph
from porter.filegraph.layer_values import Value
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Walk
from porter.graph import Rearrange

Values = Mapping[NodeOutput, Value]


def finish(
    walk: Walk,
    ends: Iterable[NodeOutput],
    names: Mapping[str, NodeOutput] | None = None,
    outputs_of: Callable[[Values], Iterable[NodeOutput]] = tuple,
) -> FileGraph:
    """Return the graph of what leads to its outputs.

    Args:
        ends: the values at which the file's graph can end, by the file's names.
        names: what the framework calls the values that the file gives; None if these are the taps (the
            framework's names for values) of `ends`.
        outputs_of: chooses among the ends, given with their values, those that the graph gives.
    """
    values = output_values(walk, ends)
    graph = walk.builder.finish(values[source] for source in outputs_of(values))
    if names is None:
        names = {name: source for source in values if (name := walk.tap(source))}
    nodes = {name: values[source].node for name, source in names.items() if source in values}
    given_nodes = {name: node for name, node in nodes.items() if node in graph.by_name}
    return replace(graph, given=given_nodes, evaluated=walk.flow.evaluated)


def output_values(walk: Walk, ends: Iterable[NodeOutput]) -> Values:
    """Return the values of a graph's outputs, without those that are constants."""
    return {end: _output_value(walk, end) for end in dict.fromkeys(ends) if walk.flow.is_live(end)}


def _output_value(walk: Walk, source: NodeOutput) -> Value:
    """Return the value of an output, laid out as ports give it: what is neither a map nor features in the
    file's own layout, and what is an array already, becomes an array. What no port can give becomes foreign.
    """
    view = walk.view(source)
    node_name, _ = source
    if node_name in walk.apart:
        return walk.builder.foreign(node_name, "an output that is taken apart into images", view.value)
    if view.value.node in walk.builder.truths:
        return walk.builder.foreign(
            node_name, "an output that says whether something holds, in no numbers", view.value
        )
    if walk.cannot_be_output(view):
        return walk.builder.foreign(
            node_name, "an output whose first axis has more than the images", view.value
        )
    rank = view.rank if walk.views.lacks_batch else view.rank - 1  # without the batch
    if rank == 0 and view.value.shape != ():
        feature = walk.views.in_file_layout(node_name, view.with_axes([-1]))  # a number of each image
        return walk.builder.add(node_name, Rearrange("() ->"), feature, tap=walk.tap(source))
    array = walk.layouts.array_unless_map(source)
    has_all_axes = array is not None and len(array.value.shape or ()) == rank
    return array.value if array is not None and has_all_axes else walk.layouts.in_file_layout(source)

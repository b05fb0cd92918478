"""Where a TensorFlow graph begins and ends: its image, and the values that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from porter.filegraph.dataflow import names_depending_on
from porter.filegraph.names import expect_values
from porter.filegraph.value_names import NodeOutput
from porter.formats.tf_graph.function_calls import Inlined
from porter.formats.tf_graph.nodes import GraphNode, parse_reference
from porter.formats.tf_graph.outputs import output_counts

_IMAGE_TYPES = (1, 2, 4, 19)
"""Float, double, unsigned byte and half (tensorflow/core/framework/types.proto)."""
_OBSERVERS = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Assert",
        "InTopK",
        "InTopKV2",
        "Unsupported",
        "Print",
        "PrintV2",
        "Rank",
        "Shape",
        "ShapeN",
        "Size",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
        "TopK",
        "TopKV2",
        "HistogramSummary",
        "ImageSummary",
        "ScalarSummary",
        "TensorSummary",
        "TensorSummaryV2",
    }
)
"""Ops that observe a network and are not part of it: sizes, rankings, losses, summaries."""


def image_inputs(nodes: Mapping[str, GraphNode]) -> list[str]:
    """Return the names of the placeholders that may take images: of a number type and rank 4, or of unknown
    rank if there are none of rank 4. Placeholders with a default count only where there are no others.
    """
    placeholders = [
        node for node in nodes.values() if node.op == "Placeholder" and node.type("dtype") in _IMAGE_TYPES
    ]
    if not placeholders:
        placeholders = [
            node for node in nodes.values() if node.op == "PlaceholderWithDefault" and input_sizes(node)
        ]
    of_rank_4 = [node.name for node in placeholders if len(input_sizes(node)) == 4]
    return of_rank_4 or [node.name for node in placeholders if not input_sizes(node)]


def input_sizes(node: GraphNode) -> tuple[int | None, ...]:
    """Return a placeholder's shape, None where a size is free; nothing if it states none. Keras writes it
    only in `_output_shapes`.
    """
    if "shape" in node.attributes:
        shape = node.attributes["shape"].shape
    elif "_output_shapes" in node.attributes and len(node.attributes["_output_shapes"].list.shape) == 1:
        shape = node.attributes["_output_shapes"].list.shape[0]
    else:
        return ()
    return tuple(int(size.size) if size.size > 0 else None for size in shape.dim)


def choose_ends(
    graph: Inlined, image: str, names: Sequence[str], signature_outputs: Sequence[NodeOutput] = ()
) -> list[NodeOutput]:
    """Return the values at which a graph ends: those of these names, such as `conv` and `split:1`, otherwise
    those of a signature, otherwise those of the nodes that nothing reads; of these only the ones that depend
    on the image.

    Args:
        graph: in order.

    Raises:
        UsageError: the graph lacks a value of one of the names.
    """
    if names:
        references = list(map(parse_reference, names))
        known_names = (*graph.nodes, *(call for call, _ in graph.replacements))
        expect_values([name for name, _ in references], known_names)
        ends: Iterable[NodeOutput] = map(graph.final, references)
    elif signature_outputs:
        ends = map(graph.final, signature_outputs)
    else:
        by_call: dict[str, list[NodeOutput]] = {}
        for source, end in graph.replacements.items():
            by_call.setdefault(source[0], []).append(end)
        # a call stands for all that replaced its outputs
        loose_ends = find_loose_ends(graph.outer, image)
        ends = chain(*(by_call.get(name) or _outputs_of(graph.outer[name]) for name in loose_ends))
    return _within_network(graph.nodes, image, ends)


def find_loose_ends(nodes: Mapping[str, GraphNode], image: str) -> list[str]:
    """Return the loose ends, in order: nodes that depend on the image, whose values no other such node reads.
    Observers, such as summaries, do not count.

    Args:
        nodes: of the graph, each after those that it reads.
    """
    live = names_depending_on(nodes, [image])  # the nodes that depend on the image
    network = live - _find_observers([node for node in nodes.values() if node.name in live])
    read = {source for name in network for source, _ in nodes[name].inputs}
    return [name for name in nodes if name in network and name not in read and name != image]


def _find_observers(nodes: Iterable[GraphNode]) -> set[str]:
    """Return the nodes that only look on: they are of such an op, or read observers only. `nodes` are in
    order, and what they read of others is constants. An observer, such as a summary or an assertion, computes
    nothing that others need.
    """
    visited, observers = set[str](), set[str]()
    for node in nodes:
        sources = {source for source, _ in node.inputs} & visited
        visited.add(node.name)
        if node.op in _OBSERVERS or (sources and observers >= sources):
            observers.add(node.name)
    return observers


def _outputs_of(node: GraphNode) -> list[NodeOutput]:
    """Return the values that a graph gives if it ends at a node: its first output, or all of a list, as a
    Split's. The further outputs of a norm, for one, are statistics.
    """
    # How many values each output has; none for an op that nothing defines.
    counts = list(output_counts(node.op, node.attributes, {}).values())
    first_count = max(1, counts[0]) if counts else 1
    return [(node.name, output) for output in range(first_count)]


def _within_network(
    nodes: Mapping[str, GraphNode], image: str, ends: Iterable[NodeOutput]
) -> list[NodeOutput]:
    """Return the members of `ends`, such as a signature's outputs, that depend on the image and are not of
    observers.
    """
    live = names_depending_on(nodes, [image])  # the nodes that depend on the image
    in_network = (
        (name, output) for name, output in ends if name in live and nodes[name].op not in _OBSERVERS
    )
    return list(dict.fromkeys(in_network))

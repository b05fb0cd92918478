"""Keras's Normalization that was adapted to data: a file of weights holds its mean and variance, and a graph
has an affine step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras.classes import CLASSES
from porter.formats.keras.scaling import normalising, statistics
from porter.graph import Affine, Graph, channels_of
from porter.recipe import LayerName


def adapted_tensors(layer: LayerName) -> tuple[str, ...]:
    """The tensors that the layer holds: its mean, its variance and how much data it saw, which nothing
    needs.
    """
    return tuple(f"{layer.name}/{variable}" for variable in CLASSES["Normalization"].variables)


def adapted_names(
    layers: Mapping[str, LayerName], reference: Mapping[str, LayerName], checkpoint: Checkpoint
) -> dict[str, str]:
    """The names that the zoo's own implementation has for the adapted tensors of a file."""
    return {
        name: own
        for path, layer in layers.items()
        if layer.adapted
        for name, own in zip(adapted_tensors(layer), adapted_tensors(reference[path]), strict=True)
        if name in checkpoint.tensors
    }


def with_adapted(graph: Graph, layers: Mapping[str, LayerName], checkpoint: Checkpoint) -> Graph:
    """The graph with the numbers of its adapted steps.

    Raises:
        MappingError: they are not one number or one for each channel, or a variance is negative.
    """
    channels = channels_of(graph)

    def numbers(path: str) -> Affine:
        mean, variance, _ = (checkpoint.tensors.get(name) for name in adapted_tensors(layers[path]))
        assert mean is not None and variance is not None, "located"
        moments = statistics({}, {"mean": mean, "variance": variance})
        if moments is None or len(moments[0]) not in (1, channels[path]):
            where, expected = str(checkpoint.path), f"one mean and variance, or {channels[path]} of each"
            raise MappingError(
                f"layer '{layers[path].name}', which is node {path}, does not hold {expected}", where=where
            )
        scale, offset = normalising(*moments, invert=False)
        return Affine(tuple(scale.tolist()), tuple(offset.tolist()))

    adapted = {path for path, layer in layers.items() if layer.adapted}
    return replace(
        graph,
        nodes=tuple(
            replace(node, op=numbers(node.path)) if node.path in adapted else node for node in graph.nodes
        ),
    )

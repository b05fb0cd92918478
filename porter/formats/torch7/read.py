"""Reads Torch7's files: their arrays, and the networks of their modules. They are parsed, never run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.layers import read_graph
from porter.filegraph.names import expect_values
from porter.filegraph.reading import GraphInput, begin
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.torch7.network import (
    IMAGE,
    Torch7Network,
    find_arrays,
    find_network,
    read_network,
)
from porter.formats.torch7.objects import output_names, read_objects
from porter.formats.torch7.operators import CONVOLUTIONS, READERS
from porter.padding import Size


def read_torch7(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """Return a model, or the model in a table such as a training's checkpoint. A table of arrays without
    modules is read as arrays only.

    Args:
        outputs: names of layers, at which the graph ends.
        size: rows and columns, which no such file states.

    Raises:
        FileError: it is damaged, or its modules do not fit each other.
        UsageError: the graph lacks one of `outputs`.
    """
    data = path.read_bytes()
    with refusing_damage(path):
        content = read_objects(data)
        module = find_network(content)
        if module is None:
            return Checkpoint(
                path,
                "torch7",
                None,
                find_arrays(content),
                ("read without a graph: it holds no module of nn's",),
            )
        return _make_checkpoint(path, data, read_network(module), outputs, size)


def _make_checkpoint(
    path: Path, data: bytes, network: Torch7Network, outputs: Sequence[str], size: Size | None
) -> Checkpoint:
    """Return the checkpoint of a network: its tensors of real numbers, and its graph."""
    tensors = {name: array for name, array in network.tensors.items() if is_floating(array)}
    computed = _compute_tensors(network)
    layers = {layer.name: layer for layer in network.layers}
    expect_values(outputs, layers)
    channels = next(
        (layer.count("nInputPlane", 3) for layer in network.layers if layer.op in CONVOLUTIONS), 3
    )
    arrays = {**tensors, **computed}
    image = GraphInput((IMAGE, 0), channels, size or (None, None), order="CHW")
    budget = most_bytes(len(data))
    # All layers are live: each depends on the image. None is part of a pattern.
    live = {IMAGE, *layers}
    flow = Dataflow(layers, live, Arrays(arrays), Operators(), budget, network.passed)
    ends = [(name, 0) for name in outputs] or network.ends
    outputs_by_name = None if outputs else dict(zip(output_names(len(ends)), ends, strict=True))
    graph = read_graph(begin(flow, image, arrays), READERS, ends, outputs_by_name)
    graph = replace(
        graph,
        evaluated={**computed, **graph.evaluated},
        traced=size is not None,
        definition=data,
        language="torch7",
    )
    return Checkpoint(path, "torch7", None, {**tensors, **graph.evaluated}, graph=graph)


def _compute_tensors(network: Torch7Network) -> NamedArrays:
    """Return the tensors that are computed: variances of norms that kept one over the deviation, and kernels
    that were stored as a matrix, in four axes.
    """
    computed: dict[str, Array] = {}
    for layer in network.layers:
        if "running_std" in layer.tensors and "running_var" not in layer.tensors:
            deviation = network.tensors[layer.tensors["running_std"]].astype(np.float64)
            # The stored one is 1 / sqrt(variance + eps).
            computed[f"{layer.name}:variance"] = deviation**-2 - layer.number("eps", 1e-5)
        kernel = network.tensors.get(layer.tensors.get("weight", ""))
        if layer.op in CONVOLUTIONS and kernel is not None and kernel.ndim == 2:
            computed[f"{layer.name}:kernel"] = kernel.reshape(len(kernel), -1, *layer.pair("kH", "kW", 1))
    return computed

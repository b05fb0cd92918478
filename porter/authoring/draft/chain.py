"""A file's layers one after the other, as a graph.

The graph is consistent: every layer reads as many channels as its tensors say. Where the layer before it
gives others, branches meet or part, which weights do not show: a value is cut or filled there, as a mark of
what is to be decided.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from porter.authoring.draft.network_layers import NORM_WORD, ListedLayers, WeightsLayer
from porter.filegraph.names import unused_name
from porter.filegraph.to_graph import path_word
from porter.graph import INPUT, Graph, Node, Op, ops
from porter.padding import Convention, Window

EPSILONS, MOMENTA = {"torch": 1e-5, "tf": 1e-3}, {"torch": 0.1, "tf": 0.01}
"""The settings of the batch norms that each framework makes if nothing else is said."""
_SIDE = 64
"""Rows and columns of the input: a chain has no strides, and maps that never become smaller take gigabytes at
224.
"""


@dataclass(frozen=True)
class Chain:
    """Layers as a graph.

    Attributes:
        names: of the file's layers, and made up for other nodes, by path.
        side: rows and columns of the input. A Flatten fixes it.
    """

    graph: Graph
    names: dict[str, str]
    side: int


def chain_layers(listed: ListedLayers) -> Chain:
    """Make a graph of a file's layers, of which there is at least one: each reads the one before it, with
    activations between them.
    """
    chaining = _Chaining(listed)
    for layer in listed.layers:
        chaining.add(layer, is_last=layer is listed.layers[-1])
    return chaining.finish()


class _Chaining:
    """Appends layers.

    Attributes:
        path, channels, is_map: of the value that the next layer reads.
        awaits_activation: whether an activation may follow this value: a layer with weights gives it.
        side: rows and columns that a Flatten needs; 0 without one.
    """

    def __init__(self, listed: ListedLayers) -> None:
        self.listed = listed
        self.nodes: dict[str, Node] = {}
        self.names: dict[str, str] = {}
        self.path = INPUT
        self.channels = listed.layers[0].reads
        self.is_map, self.awaits_activation = True, False
        self.side = 0

    def add(self, layer: WeightsLayer, is_last: bool) -> None:
        """Add the nodes of a layer, and those that must stand between it and the layer before: an activation,
        a pool or a flatten, a change of the channels.

        Args:
            is_last: it is the network's last layer, which may be the head.
        """
        if layer.is_norm:
            self._fit_channels(layer, layer.gives)
            epsilon = EPSILONS[self.listed.framework]
            scale = "gamma" in layer.roles
            center = "beta" in layer.roles
            norm: Op = ops.LayerNorm(epsilon, scale, center)
            if layer.kind == "batch_norm":
                norm = ops.BatchNorm(epsilon, MOMENTA[self.listed.framework], scale, center)
            self._append(layer.name, norm)
            self.awaits_activation = True
            return
        if layer.kind == "prelu":
            self._append(layer.name, ops.PRelu())
            return
        self._add_activation()
        if layer.kind == "dense":
            self._add_dense(layer)
        elif is_last and self._is_head(layer):
            self._append("pool", ops.GlobalAvgPool(keep=True))
            self._add_conv(layer)
            self._append("flatten", ops.Flatten(), is_map=False)
        else:
            self._add_conv(layer)
        self.awaits_activation = not is_last and not layer.linear

    def finish(self) -> Chain:
        """Add the nodes behind the last layer, which give the output, and return the chain."""
        if self.is_map:
            self._add_activation()
            self._append("pool", ops.GlobalAvgPool(), is_map=False)
        graph = Graph(tuple(self.nodes.values()), self.listed.layers[0].reads, self.path)
        return Chain(graph, self.names, self.side or _SIDE)

    def _add_dense(self, layer: WeightsLayer) -> None:
        """Add a dense layer, behind a flatten or a pool that gives it as many features as it reads. It is a
        flatten if the features are the channels of a square of cells.
        """
        if self.is_map:
            cells, remainder = divmod(layer.reads, self.channels)
            side = math.isqrt(cells)
            if side > 1 and not remainder and side * side == cells:
                self.side = side
                flatten = ops.Flatten(side, side, "CHW" if self.listed.framework == "torch" else "HWC")
                self._append("flatten", flatten, layer.reads, is_map=False)
            else:
                self._append("pool", ops.GlobalAvgPool(), is_map=False)
        self._fit_channels(layer, layer.reads)
        self._append(layer.name, ops.Dense(layer.gives, layer.bias), layer.gives)

    def _add_conv(self, layer: WeightsLayer) -> None:
        """Add a convolution, whose groups follow from the channels that it reads."""
        if not self.is_map:
            self._append(f"{layer.name}_map", ops.AsMap(), is_map=True)
        groups = 1
        if layer.depthwise and self.nodes:
            # It does not fit the channels of the value before it. torch's kernel does not say what it reads.
            gives_other_channels = layer.gives % self.channels != 0
            reads_other_channels = self.listed.framework == "tf" and layer.reads not in (1, self.channels)
            if gives_other_channels or reads_other_channels:
                self._fit_channels(layer, layer.gives if layer.reads == 1 else layer.reads)
            # depthwise: one filter, or several, for each channel
            groups = self.channels
        else:
            self._fit_channels(layer, layer.reads)
        pads = _usual_pads(self.listed, layer.kernel)
        conv = ops.Conv(layer.gives, Window(layer.kernel), pads, groups, layer.bias)
        self._append(layer.name, conv, layer.gives)

    def _is_head(self, layer: WeightsLayer) -> bool:
        """Return whether a last convolution is a dense layer, as in TF-slim; torch's models pool after
        theirs.
        """
        return self.listed.framework == "tf" and self.is_map and layer.kernel == (1, 1) and layer.bias

    def _fit_channels(self, layer: WeightsLayer, channels: int) -> None:
        """Cut or fill the current value, so that it has the channels that `layer` reads."""
        if self.channels > channels:
            self._append(f"{layer.name}_join", ops.SliceChannels(0, channels), channels)
        elif self.channels < channels:
            self._append(f"{layer.name}_join", ops.PadChannels(0, channels - self.channels), channels)

    def _add_activation(self) -> None:
        """Add a relu to a value that awaits one: `relu1` after bn1, `conv1_relu` after conv1."""
        if not self.awaits_activation:
            return
        name = self.names[self.path]
        module, separator, layer = name.rpartition(self.listed.separator)
        if NORM_WORD.search(layer):
            name = f"{module}{separator}{NORM_WORD.sub('relu', layer, count=1)}"
        else:
            name = f"{name}_relu"
        self._append(name, ops.Relu())

    def _append(self, name: str, op: Op, channels: int | None = None, is_map: bool | None = None) -> None:
        """Add a node that reads the current value, and make its value the current one; what is not given of
        it stays as before.
        """
        word = re.sub(r"[./]", "_", name.removeprefix(self.listed.container))
        path = unused_name(path_word(word), {INPUT, *self.nodes})
        self.nodes[path] = Node(path, op, (self.path,))
        self.names[path] = unused_name(name, self.names.values())
        self.path, self.awaits_activation = path, False
        self.channels = self.channels if channels is None else channels
        self.is_map = self.is_map if is_map is None else is_map


def _usual_pads(listed: ListedLayers, kernel: tuple[int, int]) -> Convention:
    """Return the pads that a convolution probably has, for weights do not say: `same` in TensorFlow; in
    torch half the kernel on every side, so that an odd window keeps the map's size, and an even one fits.
    """
    if kernel == (1, 1):
        return Convention()
    if listed.framework == "tf":
        return Convention("same")
    rows, columns = (side // 2 for side in kernel)
    return Convention("explicit", (rows, rows, columns, columns))

"""A graph guessed from layers in their order: from their channels, how they are joined, and what is usual for the rest.

The graph is consistent: every layer reads as many channels as its tensors say. Where nothing explains them, a value is cut or
filled to these channels, as a mark of what is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from porter.authoring.draft.grouping import groups_of, parent
from porter.authoring.draft.layers import Layer, Listed
from porter.errors import GraphError
from porter.filegraph.names import unused_name
from porter.filegraph.to_graph import path_word
from porter.graph import (
    INPUT,
    Add,
    AsMap,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Flatten,
    GlobalAvgPool,
    Graph,
    LayerNorm,
    MaxPool,
    Multiply,
    Node,
    Op,
    PadChannels,
    PRelu,
    Relu,
    Sigmoid,
    SliceChannels,
    shapes,
)
from porter.padding import Convention, Window

EPSILONS, MOMENTA = {"torch": 1e-5, "tf": 1e-3}, {"torch": 0.1, "tf": 0.01}
"""Of the batch norms that each framework makes if nothing else is said."""
_SHORTCUT = re.compile(r"(?i)downsample|shortcut|skip|residual|proj[._/]|_0_conv$")
_NAMED = re.compile(r"(?i)batch_?norm|norm|bn|relu")
_EXCITE = re.compile(r"(?i)(^|[._/])(se|squeeze|excit|fc[12]|attention)")
_SIZES = (224, 32, 28, 64, 96, 128, 256)
"""Sides of inputs that are usual."""
_UNSTRIDED = 64
"""The side where no strides could be guessed: maps that never become smaller take gigabytes at 224."""


@dataclass(frozen=True)
class Guess:
    """A guessed graph.

    Attributes:
        names: of the file's layers, and made up for other nodes, by path.
        side: rows and columns of the input. A Flatten fixes it.
    """

    graph: Graph
    names: dict[str, str]
    side: int


def guess_graph(listed: Listed) -> Guess:
    """The graph of a file's layers, of which there is at least one; one after the other, if what was guessed contradicts itself.

    Pools leave no tensors. They are guessed after groups of layers if the size that a Flatten fixes is a usual one then.
    """
    found = [guess for pooling in (False, True) if (guess := _consistent(listed, pooling)) is not None]
    usual = (guess for guess in found if guess.side in _SIZES)
    return next(usual, None) or next(iter(found), None) or _Wiring(listed, joining=False).finish()


def _consistent(listed: Listed, pooling: bool) -> Guess | None:
    guess = _Wiring(listed, pooling=pooling).finish()
    try:
        shapes(guess.graph, (guess.side, guess.side))
    except GraphError:
        return None
    return guess


@dataclass(frozen=True)
class _Value:
    """A node's value, and whether an activation may follow it."""

    path: str
    channels: int
    is_map: bool
    bare: bool = False


class _Wiring:
    """Joins layers one after the other.

    Attributes:
        current: what the next layer reads if nothing says otherwise.
        entered: by group of layers whose names begin alike, the value before the first of them.
        led: the same after the norm that a group may begin with, which a shortcut reads too.
        ends: of branches that are not joined yet.
        joins: the names of the ops that joined branches so far.
        interrupted: the end of a branch that goes on after a shortcut.
        excited: what squeeze and excite will multiply.
        side: rows and columns that a Flatten needs; 0 without one.
        stride: of the whole network so far.

    Args:
        joining: guess branches, strides and pools too.
        pooling: guess a pool after each group of layers that is in no other.
    """

    def __init__(self, listed: Listed, joining: bool = True, pooling: bool = False) -> None:
        self.listed, self.layers, self.joining, self.pooling = listed, listed.layers, joining, pooling
        self.groups, self.container = groups_of(listed), listed.container
        self.nodes: dict[str, Node] = {}
        self.names: dict[str, str] = {}
        self.values: list[_Value] = [_Value(INPUT, self.layers[0].reads, True)]
        self.current = self.values[0]
        self.entered: dict[str, _Value] = {}
        self.led: dict[str, _Value] = {}
        self.ends: list[_Value] = []
        self.joins: set[str] = set()
        self.interrupted: _Value | None = None
        self.excited: _Value | None = None
        self.side, self.stride = 0, 1

    def finish(self) -> Guess:
        """Adds all layers, and what gives the output."""
        for place in range(len(self.layers)):
            self._add(place)
        if self.entered:
            self._close(max(self.entered, key=len), None)
        if self.current.is_map:
            self._activate()
            self._append("pool", GlobalAvgPool(), self.current.channels, is_map=False)
        graph = Graph(tuple(self.nodes.values()), self.values[0].channels, self.current.path)
        usual = _SIZES[0] if self.stride >= 8 else _UNSTRIDED
        return Guess(graph, self.names, self.side * self.stride or usual)

    def _add(self, place: int) -> None:
        """Adds a layer, and what stands before it."""
        layer, own = self.layers[place], self.groups[self.layers[place].name]
        left = [group for group in self.entered if group not in own]
        if left:
            self._close(max(left, key=len), layer)
            if self.pooling and self.current.is_map and min(map(len, left)) == min(map(len, self.entered)):
                self._activate()
                self._max_pool(2)
            self.entered = {group: value for group, value in self.entered.items() if group in own}
        self._pool_before(place)
        for group in own:
            if group not in self.entered:
                if layer.is_norm:
                    self.current = replace(self.current, bare=False)
                self._activate()
                self.entered[group] = self.current
        if layer.is_norm:
            leads = [group for group in own if self.entered[group] == self.current]
            self._norm(layer)
            self.led |= dict.fromkeys(leads, self.current)
        elif layer.kind == "prelu":
            self._append(layer.name, PRelu(), self.current.channels, is_map=self.current.is_map)
        else:
            if layer.kind == "dense":
                self._dense(layer)
            elif self.excited is not None:
                self._excite(layer, self.excited)
                return
            elif self._begins_excitation(place):
                self._activate()
                self.excited = self.current
                self._append(f"{layer.name}_pool", GlobalAvgPool(keep=True), self.current.channels)
                self._conv(layer)
            elif place + 1 == len(self.layers) and _is_head(self.listed, layer):
                self._head(layer)
            else:
                self._conv(layer)
            self.current = replace(self.current, bare=place + 1 < len(self.layers) and not layer.linear)

    # Layers

    def _norm(self, layer: Layer) -> None:
        self.current = replace(self.current, bare=False)
        self._read(layer.gives)
        epsilon, scale, center = EPSILONS[self.listed.framework], "gamma" in layer.roles, "beta" in layer.roles
        batch = BatchNorm(epsilon, MOMENTA[self.listed.framework], scale, center)
        op = batch if layer.kind == "batch_norm" else LayerNorm(epsilon, scale, center)
        self._append(layer.name, op, layer.gives, is_map=self.current.is_map, bare=True)

    def _dense(self, layer: Layer) -> None:
        self._activate()
        if self.current.is_map:
            cells, rest = divmod(layer.reads, self.current.channels)
            side = math.isqrt(cells)
            if side > 1 and not rest and side * side == cells:
                if self.joining and side * self.stride not in _SIZES and 2 * side * self.stride in _SIZES:
                    self._max_pool(2)
                self.side = side
                flatten = Flatten(side, side, "CHW" if self.listed.framework == "torch" else "HWC")
                self._append("flatten", flatten, layer.reads, is_map=False)
            else:
                self._append("pool", GlobalAvgPool(), self.current.channels, is_map=False)
        self._read(layer.reads)
        self._append(layer.name, Dense(layer.gives, layer.bias), layer.gives, is_map=False)

    def _conv(self, layer: Layer) -> None:
        if not self.current.is_map:
            self._append("unknown", AsMap(), self.current.channels)
        channels, groups = self.current.channels, 1
        group = next(reversed(self.groups[layer.name]), "")
        start = self.led.get(group) or self.entered.get(group, self.current)
        if self.joining and _SHORTCUT.search(layer.name) and start.channels == layer.reads and start != self.current:
            self.interrupted = self.current
            self._branch(start)
        elif layer.depthwise and channels > 1:
            if layer.gives % channels or (self.listed.framework == "tf" and layer.reads not in (1, channels)):
                self._read(layer.gives if layer.reads == 1 else layer.reads)
            groups = self.current.channels
        elif channels != layer.reads and self._earlier(layer.reads) is None and channels % layer.reads == 0:
            groups = channels // layer.reads if layer.gives % (channels // layer.reads) == 0 else 1
        if groups == 1:
            self._read(layer.reads)
        self._activate()
        stem = self.joining and not self.nodes and layer.kernel == (7, 7)
        self.stride *= 2 if stem else 1
        window = Window(layer.kernel, (2, 2) if stem else (1, 1))
        op = Conv(layer.gives, window, _usual_pads(self.listed, layer.kernel), groups, layer.bias)
        self._append(layer.name, op, layer.gives)

    def _head(self, layer: Layer) -> None:
        """The dense layer that a convolution of one cell is."""
        self._activate()
        self._append("pool", GlobalAvgPool(keep=True), self.current.channels)
        self._conv(layer)
        self._append("flatten", Flatten(), layer.gives, is_map=False)

    def _begins_excitation(self, place: int) -> bool:
        """Whether this layer and the next are those of squeeze and excite: of one cell, to fewer channels and back."""
        first, *rest = self.layers[place : place + 2]
        if not rest or not (_EXCITE.search(first.name) and _EXCITE.search(rest[0].name)):
            return False
        (second,) = rest
        alike = all((one.kind, one.kernel, one.bias) == ("conv", (1, 1), True) for one in (first, second))
        return alike and self.current.channels == first.reads == second.gives > first.gives == second.reads

    def _excite(self, layer: Layer, whole: _Value) -> None:
        self.excited = None
        self._conv(layer)
        self._append(f"{layer.name}_sigmoid", Sigmoid(), layer.gives)
        self._append(f"{layer.name}_scale", Multiply(), layer.gives, whole, self.current)

    def _pool_before(self, place: int) -> None:
        """A max pool where a numbered row of layers has room for one, or after a first convolution of 7x7."""
        if place == 0 or not self.current.is_map or not self.joining:
            return
        (one, first), (other, number) = (parent(self.layers[at].name) for at in (place - 1, place))
        rowed = one == other and first.isdigit() and number.isdigit() and self.listed.separator == "."
        stem = self.layers[0].kernel == (7, 7) and self.stride == 2 and other != parent(self.layers[0].name)[0]
        if (rowed and int(number) - int(first) > 2 and self.layers[place].kind == "conv") or (
            stem and self.current.path in self.nodes
        ):
            self._activate()
            self._max_pool(3 if stem else 2)

    def _max_pool(self, side: int) -> None:
        pads = _usual_pads(self.listed, (side, side)) if side == 3 else Convention()
        self._append(self._after("pool"), MaxPool(Window((side, side), (2, 2)), pads), self.current.channels)
        self.stride *= 2

    # Values

    def _append(self, name: str, op: Op, channels: int, *sources: _Value, is_map: bool = True, bare: bool = False) -> None:
        """Adds a node that reads `sources`, or the current value, and makes its value the current one."""
        path = unused_name(path_word(re.sub(r"[./]", "_", name.removeprefix(self.container))), {INPUT, *self.nodes})
        inputs = tuple(source.path for source in sources or (self.current,))
        self.nodes[path] = Node(path, op, inputs)
        self.names[path] = unused_name(name, self.names.values())
        self.current = _Value(path, channels, is_map, bare)
        self.values.append(self.current)

    def _activate(self) -> None:
        if self.current.bare:
            before = self.current
            self._append(self._after("relu"), Relu(), before.channels, is_map=before.is_map)
            self.led = {group: self.current if value == before else value for group, value in self.led.items()}

    def _earlier(self, channels: int) -> _Value | None:
        """The value of so many channels that a layer most likely reads, if the current one has others."""
        if not self.joining:
            return None
        starts = [value for _, value in sorted(self.entered.items(), key=lambda entry: -len(entry[0]))]
        known = [*starts, *(value for value in reversed(self.values[1:]) if not value.bare)]
        return next(
            (one for one in known if one.channels == channels and one.is_map == self.current.is_map and one != self.current), None
        )

    def _read(self, channels: int) -> None:
        """Makes a value of so many channels the current one."""
        if self.current.channels == channels:
            return
        found, here = self._earlier(channels), self.current
        if self.interrupted in self.ends and self.interrupted.channels == channels:
            self.ends.remove(self.interrupted)
            self._branch(self.interrupted)
        elif found is not None:
            self._branch(found)
        elif self.ends and sum(end.channels for end in self.ends) + here.channels == channels:
            self._join([*self.ends, here], Concat(), channels)
        elif here.channels > channels:
            self._append("unknown", SliceChannels(0, channels), channels, is_map=here.is_map)
        else:
            self._append("unknown", PadChannels(0, channels - here.channels), channels, is_map=here.is_map)

    def _after(self, word: str) -> str:
        """A name for what follows the current value: `relu1` after bn1, `pool1` after that, `conv1_relu` after conv1."""
        name = self.names[self.current.path]
        last = parent(name)[1]
        return name.removesuffix(last) + _NAMED.sub(word, last, count=1) if _NAMED.search(last) else f"{name}_{word}"

    def _branch(self, start: _Value) -> None:
        self.ends.append(self.current)
        self.current = start

    def _join(self, values: Sequence[_Value], op: Op, channels: int, near: str = "") -> None:
        joined = []
        for value in values:
            self.current = value
            if isinstance(op, Concat):
                self._activate()
            joined.append(self.current)
        self.ends = []
        self.joins.add(op.name)
        self._append(f"{near}{op.name}", op, channels, *joined, is_map=joined[0].is_map, bare=isinstance(op, Add))

    def _close(self, group: str, following: Layer | None) -> None:
        """Joins what a group of layers leaves open."""
        if not self.joining:
            return
        self.interrupted = None
        start, here = self.entered[group], self.current
        own = [layer for layer in self.layers if group in self.groups[layer.name]]
        convs = [layer for layer in own if layer.kind == "conv"]
        wanted = None if following is None else following.gives if following.depthwise or following.is_norm else following.reads
        near, deep = group + self.listed.separator, any(layer.depthwise for layer in convs)
        if own[0].is_norm:  # it leads each convolution, so that nothing follows the last
            here = self.current = replace(here, bare=False)
        if self.ends:
            values = [*self.ends, here]
            total = sum(value.channels for value in values)
            alike = len({value.channels for value in values}) == 1
            if alike and (total != wanted if wanted is not None else self.joins != {"concat"}):
                self._widen_stride(values, start, convs)
                self._join(values, Add(), here.channels, near)
            else:
                self._join(values, Concat(), total, near)
        elif start.is_map and here.is_map and start.path != INPUT and start != here and len(convs) > 1:
            if wanted == start.channels + here.channels != here.channels:
                self._join([start, here], Concat(), start.channels + here.channels, near)
            elif start.channels == here.channels and any(layer.is_norm for layer in own) and (len(convs) > 2 or not deep):
                self._join([start, here], Add(), here.channels, near)
                self.current = replace(self.current, bare=not deep)
            elif deep and len(convs) > 2 and convs[-1].kernel == (1, 1):
                self.current = replace(here, bare=False)  # a linear bottleneck

    def _widen_stride(self, values: Sequence[_Value], start: _Value, convs: Sequence[Layer]) -> None:
        """Gives a block that doubles the channels a stride of 2, in its shortcut and in its first window."""
        paths = {name: path for path, name in self.names.items()}
        own = [self.nodes[paths[layer.name]] for layer in convs]
        starts = {(start.path,), *((value.path,) for value in self.led.values())}
        shortcuts = [node for node in own if node.path != own[0].path and node.inputs in starts]
        shortcuts = shortcuts or [node for node in own if _SHORTCUT.search(self.names[node.path])]
        wide = [layer for layer in convs if layer.kernel != (1, 1) and paths[layer.name] not in {node.path for node in shortcuts}]
        if len(shortcuts) != 1 or not wide or values[0].channels != 2 * start.channels:
            return
        for node in (shortcuts[0], self.nodes[paths[wide[0].name]]):
            assert isinstance(node.op, Conv)
            self.nodes[node.path] = replace(node, op=replace(node.op, window=replace(node.op.window, stride=(2, 2))))
        self.stride *= 2


def _is_head(listed: Listed, layer: Layer) -> bool:
    """Whether a last convolution is a dense layer, as in TF-slim; torch's models pool after theirs."""
    return listed.framework == "tf" and layer.kind == "conv" and layer.kernel == (1, 1) and layer.bias


def _usual_pads(listed: Listed, kernel: tuple[int, int]) -> Convention:
    """`same` in TensorFlow; in torch so many cells on every side that an odd window keeps the map's size, and an even one fits."""
    if kernel == (1, 1):
        return Convention()
    if listed.framework == "tf":
        return Convention("same")
    rows, columns = (side // 2 for side in kernel)
    return Convention("explicit", (rows, rows, columns, columns))

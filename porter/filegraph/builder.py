"""From a file's layers or ops to a FileGraph.

A reader says what each layer is: its window and convention, its tensors and their axes, its constants. The
builder follows the values: their shapes, pads that a window may take into its convention, and reshapes and
clips that are one op together. Nodes that nothing reads, such as a pad layer whose readers have all taken its
pads, are left out at the end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from porter.base.dtypes import Float64Array
from porter.base.errors import GraphError
from porter.base.left_out import LeftOut
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored
from porter.filegraph.layer_values import Clipped, Padded, Value
from porter.filegraph.matching.find_attention import with_attention
from porter.filegraph.names import Names
from porter.graph import INPUT, MOST_CONSTANTS, FurtherInput, Op, Shape, input_shape, ops
from porter.graph.ops import AXES, LARGEST_FLOAT32, Function, Order
from porter.graph.record import expect_attributes
from porter.padding import LOWEST, Convention, Pads, SiteKind, Size, Window

Tensors = Mapping[str, Stored]
_POINT = Window((1, 1))
CELLS = (1, 2)
"""The axes of a map's rows and columns."""


@dataclass
class Builder:
    """A FileGraph in the making. Each method adds one layer, as no node, one or several, and gives the
    layer's value.

    `name` is the layer's; the node's is unique. A layer whose input does not fit becomes foreign.

    Attributes:
        channels, size, axes: of the input.
        order: how the file lays out a map.
        shapes: of the values that nodes give, where they are known.
        fixed: the graph takes only images of the size that it was made for, so a pool over a whole map is a
            global one.
        left_out: layers that act in training only, each behind the node that gives its input.
        truths: names of nodes that say whether something holds. Files have these values in no type of
            numbers, so none is compared.
        further_inputs: what the file's graph takes beside its first input, under the file's names.
    """

    channels: int
    size: Size
    order: Order = "HWC"
    fixed: bool = False
    axes: tuple[int | None, ...] = ()
    nodes: dict[str, FileNode] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    truths: set[str] = field(default_factory=set)
    further_inputs: list[FurtherInput] = field(default_factory=list)
    _names: Names = field(default_factory=lambda: Names({INPUT}))

    @property
    def input(self) -> Value:
        """The value that the graph takes."""
        return Value(INPUT, input_shape(self.channels, self.axes, self.size))

    def value(self, name: str) -> Value:
        """Return the value that a node, or the graph as its input, gives."""
        return self.input if name == INPUT else Value(name, self.shapes.get(name))

    def add_input(self, image: FurtherInput) -> Value:
        """Add a further input of the graph, and return its value. Its path is the file's name of it, or the
        next free one.
        """
        image = replace(image, path=self._names.take(image.name))
        self.further_inputs.append(image)
        return Value(image.path, image.shape(self.size))

    def add(
        self,
        name: str,
        op: Op | Foreign,
        *values: Value,
        tensors: Tensors | None = None,
        tap: str | None = None,
    ) -> Value:
        """Add one node, and return its value. An op that does not fit its inputs becomes foreign, and a value
        that follows one of unknown shape has no shape.

        Args:
            tap: the framework's name for the value, as in FileNode.
        """
        shape = None
        shapes = [value.shape for value in values if value.shape is not None]
        if not isinstance(op, Foreign) and len(shapes) == len(values):
            try:
                expect_attributes(op)
                shape = op.shape(*shapes)
            except GraphError as error:
                op = Foreign(f"{op.words} that does not fit: {error.message}")
        name = self._names.take(name)
        node = FileNode(name, op, tuple(value.node for value in values), tensors or {}, tap)
        self.nodes[name] = node
        if shape is not None:
            self.shapes[name] = shape
        if self._is_truth(node):
            self.truths.add(name)
        bounds = _bounds(op)
        return Value(name, shape, clipped=None if bounds is None else Clipped(values[0], *bounds))

    def _is_truth(self, node: FileNode) -> bool:
        """Return whether a node gives truths, 0 or 1: it compares numbers (Step), or makes `and`, `or` or
        `not` of truths (a product, a maximum, 1 - x).
        """
        may_keep_truths = isinstance(node.op, ops.Multiply | ops.Maximum | ops.Affine)
        reads_truths_only = self.truths.issuperset(node.inputs)
        return isinstance(node.op, ops.Step) or (may_keep_truths and reads_truths_only)

    def foreign(
        self,
        name: str,
        kind: str,
        *values: Value,
        tensors: Tensors | None = None,
        reads: tuple[str | None, ...] = (),
    ) -> Value:
        """Add a layer that porter has no op for, and return its value.

        Args:
            kind: the layer by its framework's name, for messages: `Conv2D with padding 'causal'`.
            reads: what the file calls the values that the layer reads.
        """
        return self.add(name, Foreign(kind, reads), *values, tensors=tensors)

    # Windows.

    def conv(self, name: str, value: Value, op: ops.Conv, tensors: Tensors) -> Value:
        """Add a convolution, with a bias if `tensors` has one. Over a map that is taken apart it becomes one
        dilated convolution of the whole map.
        """
        of_map = self._whole_map_window(f"{name}:pad", value, op.window, op.convention)
        if of_map is None:
            return self.foreign(
                name, "a convolution of a map that is taken apart, with a stride or pads of its own", value
            )
        value, window, convention = of_map
        value, convention = _without_pad_layer("conv", value, window, convention)
        return self.add(
            name,
            replace(op, window=window, convention=convention, bias="bias" in tensors),
            value,
            tensors=tensors,
        )

    def _whole_map_window(
        self, name: str, value: Value, window: Window, convention: Convention
    ) -> tuple[Value, Window, Convention] | None:
        """Return the map, the window and the convention of a windowed layer as layers of whole maps have
        them. They are those given, unless the file has taken the map apart into images (`Value.apart`): then
        the map is the whole one, padded as it was before it was taken apart, and the window is dilated. None
        if the window over such images has a stride, a dilation or pads of its own.

        Args:
            name: of the pad layer.
        """
        if value.apart is None:
            return value, window, convention
        has_only_kernel = window == Window(window.kernel)
        has_pads = convention.rule != "valid" and window != _POINT
        if not has_only_kernel or has_pads:
            return None
        padded = self.pad(name, replace(value, apart=None), value.apart.pads)
        return padded, replace(window, dilation=value.apart.block), replace(convention, rule="valid")

    def conv_transpose(self, name: str, value: Value, op: ops.ConvTranspose, tensors: Tensors) -> Value:
        """Add a transposed convolution, with a bias if `tensors` has one."""
        return self.add(name, replace(op, bias="bias" in tensors), value, tensors=tensors)

    def pool(
        self, name: str, value: Value, function: Function, window: Window, convention: Convention
    ) -> Value:
        """Add a pool, and return its value; nothing is added if each cell is a window of its own. In a graph
        of one image size (`fixed`), an unpadded pool over the whole map becomes a global pool.
        """
        of_map = self._whole_map_window(f"{name}:pad", value, window, convention)
        if of_map is None:
            return self.foreign(
                name, "a pool of a map that is taken apart, with a stride or pads of its own", value
            )
        value, window, convention = of_map
        is_max = function == "max"
        is_whole = value.shape is not None and value.shape[1:] == window.kernel and window.dilation == (1, 1)
        is_unpadded = value.padded is None and (convention.rule == "valid" or window.kernel == (1, 1))
        if self.fixed and is_whole and is_unpadded:
            op: Op = ops.GlobalMaxPool(keep=True) if is_max else ops.GlobalAvgPool(keep=True)
            return self.add(name, op, value)
        if window == _POINT and not any(convention.pads):
            return value
        kind: SiteKind = "max_pool" if is_max else "avg_pool"
        value, convention = _without_pad_layer(kind, value, window, convention)
        op = ops.MaxPool(window, convention) if is_max else ops.AvgPool(window, convention)
        return self.add(name, op, value)

    def pad(self, name: str, value: Value, pads: Pads, fill: float = 0.0) -> Value:
        """Add pads around a map: top, bottom, left, right. Negative ones crop it, and a pad with the same
        fill just before is joined with them.

        Raises:
            PaddingError: the pads are too large, or the fill is not a number.
        """
        if min(pads) < 0:
            top, bottom, left, right = pads
            crops = max(-top, 0), max(-bottom, 0), max(-left, 0), max(-right, 0)
            value = self.add(f"{name}:crop", ops.CropMap(crops), value)
            pads = max(top, 0), max(bottom, 0), max(left, 0), max(right, 0)
        if not any(pads):
            return value
        padded = value.padded
        if padded is not None and padded.fill == fill:
            value = padded.value
            pads = _add_pads(padded.pads, pads)
        Convention("explicit", pads, fill)  # raises the PaddingError
        return replace(self.add(name, ops.PadMap(pads, fill), value), padded=Padded(value, pads, fill))

    # Layers of features, biases and constants.

    def dense(self, name: str, value: Value, units: int, tensors: Tensors) -> Value:
        """Add a dense layer, with a bias if `tensors` has one; over the channels of a map it is a 1x1
        convolution.
        """
        if value.is_map:
            return self.conv(name, value, ops.Conv(units, _POINT, Convention()), tensors)
        return self.add(name, ops.Dense(units, "bias" in tensors), value, tensors=tensors)

    def bias(self, name: str, value: Value, bias: Stored) -> Value | None:
        """Add a bias to the layer that gives `value`, and return the new value; None if that layer takes
        none, or has one already.
        """
        node = self.nodes.get(value.node)
        if node is None:
            return None
        if isinstance(node.op, ops.GroupNorm) and not node.op.center:
            return self._extend_node(name, node, replace(node.op, center=True), value, beta=bias)
        if not isinstance(node.op, ops.Conv | ops.ConvTranspose | ops.Dense | ops.ChannelScale):
            return None
        if node.op.bias:
            return None
        role = "beta" if isinstance(node.op, ops.ChannelScale) else "bias"
        return self._extend_node(name, node, replace(node.op, bias=True), value, **{role: bias})

    def scale(self, name: str, value: Value, gamma: Stored) -> Value:
        """Multiply each channel by a trained number: by the norm that gives `value` if that has no scale yet,
        otherwise by a ChannelScale.
        """
        node = self.nodes.get(value.node)
        if node is not None and isinstance(node.op, ops.GroupNorm) and not (node.op.scale or node.op.center):
            return self._extend_node(name, node, replace(node.op, scale=True), value, gamma=gamma)
        return self.add(name, ops.ChannelScale(), value, tensors={"gamma": gamma})

    def _extend_node(self, name: str, node: FileNode, op: Op, value: Value, **tensors: Stored) -> Value:
        """Add a copy of a node that computes `op` with further tensors, and return its value. The first node
        stays for what else reads it; if nothing does, it is left out at the end.
        """
        name = self._names.take(name)
        self.nodes[name] = replace(node, name=name, op=op, tensors={**node.tensors, **tensors}, tap=None)
        if value.shape is not None:
            self.shapes[name] = value.shape
        return Value(name, value.shape)

    def affine(
        self,
        name: str,
        value: Value,
        scale: Sequence[float] | Float64Array,
        offset: Sequence[float] | Float64Array,
        tensors: Tensors | None = None,
    ) -> Value:
        """Add value * scale + offset, each one number or one for each channel; no node is added if that is
        the value itself.
        """
        if {*scale} == {1} and not any(offset):
            return value
        if len(scale) != len(offset) and 1 not in (len(scale), len(offset)):
            return self.foreign(name, "a scaling by numbers of two lengths", value)
        is_sixth = tuple(scale) == (1 / 6,) and not any(offset)
        if is_sixth and (hard_sigmoid_input := self._shifted_relu6(value)):  # relu6(x + 3) / 6
            return self.add(name, ops.HardSigmoid(), hard_sigmoid_input)
        # + 0.0 makes 0.0 of -0.0
        scales, offsets = np.broadcast_arrays(
            np.asarray(scale, np.float64), np.asarray(offset, np.float64) + 0.0
        )
        op = ops.Affine(tuple(scales.tolist()), tuple(offsets.tolist()))
        return self.add(name, op, value, tensors=tensors)

    def clip(self, name: str, value: Value, low: float = -math.inf, high: float = math.inf) -> Value:
        """Add min(max(value, low), high). Clips after each other, and after a ReLU, become one; equal bounds
        become that number.
        """
        before = value.clipped or Clipped(value, -math.inf, math.inf)
        # the bounds of the clip before it, clipped by this one
        low, high = (min(max(bound, low), high) for bound in (before.low, before.high))
        if low == high:
            return self.affine(name, before.value, (0.0,), (high,))
        op: Op = ops.Clip(max(low, -LARGEST_FLOAT32), min(high, LARGEST_FLOAT32))
        if low == 0 and high in (6, math.inf):
            op = ops.Relu6() if high == 6 else ops.Relu()
        return self.add(name, op, before.value)

    def _shifted_relu6(self, value: Value) -> Value | None:
        """Return x if the value is relu6(x + 3), of which a sixth is a hard sigmoid, otherwise None."""
        clipped = value.clipped
        if clipped is None or (clipped.low, clipped.high) != (0, 6):
            return None
        before = self.nodes.get(clipped.value.node)
        is_shift = before is not None and before.op == ops.Affine((1.0,), (3.0,))
        return Value(before.inputs[0], value.shape) if before is not None and is_shift else None

    # Several values.

    def subtract(self, name: str, first: Value, second: Value) -> Value:
        """Add first - second."""
        return self.add(name, ops.Add(), first, self.negative(f"{name}:negative", second))

    def negative(self, name: str, value: Value) -> Value:
        """Add -value."""
        return self.affine(name, value, (-1.0,), (0.0,))

    def concat(self, name: str, *values: Value) -> Value:
        """Concatenate values along their channels. Where a file slices all channels of the input, scales each
        and joins them again, in their order or reversed, that becomes one scaling of the input.
        """
        scaled_inputs = [scaled for value in values if (scaled := self._scaled_input(value)) is not None]
        are_of_input = len(scaled_inputs) == len(values)
        channels = [channel for scaled in scaled_inputs for channel in scaled[0]] if are_of_input else []
        in_order = [*range(len(channels))]
        is_whole_input = len(channels) == self.input.channels and channels in (in_order, in_order[::-1])
        if is_whole_input:
            scale = np.concatenate([scales for _, scales, _ in scaled_inputs])
            offset = np.concatenate([offsets for _, _, offsets in scaled_inputs])
            input_value = Value(INPUT, (len(channels), *(values[0].shape or ())[1:]))
            reversal = [] if channels == in_order else [ops.SliceChannels(in_order[-1], -1, -1)]
            return self.affine(name, self.chain(name, input_value, reversal), scale, offset)
        return self.add(name, ops.ConcatChannels(), *values) if len(values) > 1 else values[0]

    def join(self, name: str, axis: int, *values: Value) -> Value:
        """Concatenate arrays along an axis, which is counted without the batch, or features along their
        channels, and return the value.
        """
        if not values[0].is_array:
            return self.concat(name, *values)
        return self.add(name, ops.Join(axis), *values) if len(values) > 1 else values[0]

    def _scaled_input(self, value: Value) -> tuple[range, Float64Array, Float64Array] | None:
        """Return the channels, their factors and their offsets, if the value is a slice of the input's
        channels, times numbers, plus numbers; otherwise None.
        """
        scale = np.ones(1)
        offset = np.zeros(1)
        node = self.nodes.get(value.node)
        # backwards: what an earlier step adds is multiplied by the later steps' scales
        while node is not None and isinstance(node.op, ops.Affine):
            offset, scale = offset + scale * node.op.offset, scale * node.op.scale
            node = self.nodes.get(node.inputs[0])
        if (
            node is None
            or not isinstance(node.op, ops.SliceChannels)
            or node.inputs != (INPUT,)
            or self.channels > MOST_CONSTANTS
        ):
            return None
        channels = node.op.channels
        return channels, np.broadcast_to(scale, len(channels)), np.broadcast_to(offset, len(channels))

    def average(self, name: str, *values: Value) -> Value:
        """Add the mean of the values in each place."""
        return self.affine(name, self.add(f"{name}:sum", ops.Add(), *values), (1 / len(values),), (0.0,))

    # Along axes, counted without the batch: each has a form for maps and features, and one for arrays.

    def reduce(
        self, name: str, value: Value, function: Function, axes: Collection[int], keep: bool = True
    ) -> Value:
        """Add the mean, the largest value or the norm over axes, and return its value. An array loses these
        axes; a map keeps them, with one cell each, but without `keep` it becomes features if its rows and
        columns are both reduced. A value that is neither gives a foreign node.
        """
        if value.is_array:
            # the last axis first, so that the positions of the others stay
            reductions = [ops.ReduceAxis(function, axis) for axis in sorted(axes, reverse=True)]
            return self.chain(name, value, reductions)
        if not value.is_map:
            return self.foreign(name, f"a {function} of what is not a map", value)
        over_cells = {*CELLS} <= {*axes}
        if over_cells and function == "norm":  # which has no global pool
            steps: list[Op] = [ops.ReduceMap(function, AXES[axis]) for axis in sorted(axes)]
            return self.chain(name, value, steps if keep else [*steps, ops.Flatten()])
        global_pool = ops.GlobalAvgPool if function == "mean" else ops.GlobalMaxPool
        steps = [global_pool(keep)] if over_cells else []
        remaining_axes = [AXES[axis] for axis in sorted(axes) if not (over_cells and axis in CELLS)]
        return self.chain(name, value, steps + [ops.ReduceMap(function, axis) for axis in remaining_axes])

    def cut(self, name: str, value: Value, slices: Mapping[int, slice]) -> Value | None:
        """Add the ops that cut a part out of a value, as Python's slices take it, and return its value. None
        if the part depends on a size that is unknown, or reverses another axis than the channels of a map.

        Args:
            slices: by axis; another axis stays whole.
        """
        shape = value.shape or ()
        # all axes of an array are cropped alike, but the channels of a map and of features are sliced
        cropped_axes = range(len(shape)) if value.is_array else range(1, len(shape))
        crop_of = {axis: _cells_left_out(slices.get(axis, slice(None)), shape[axis]) for axis in cropped_axes}
        known_crops = {axis: crop for axis, crop in crop_of.items() if crop is not None}
        if value.shape is None or len(known_crops) < len(crop_of):
            return None
        if value.is_array:
            leaves_out_nothing = 0, 0, 1
            crops = [
                ops.CropAxis(axis, *crop) for axis, crop in known_crops.items() if crop != leaves_out_nothing
            ]
            return self.chain(name, value, crops)
        all_channels = range(value.channels or 0)
        channels = all_channels[slices.get(0, slice(None))]
        cuts: list[Op] = []
        if channels != all_channels:
            cuts.append(ops.SliceChannels(channels.start, channels.stop, channels.step))
        return self.chain(name, value, [*cuts, *_crops_of_map(*known_crops.values())])

    def widen(self, name: str, value: Value, ends: Mapping[int, tuple[int, int]], fill: float = 0.0) -> Value:
        """Add cells of `fill` before and after those of axes, but zeros to a map's channels and to features;
        negative amounts cut cells off.

        Args:
            ends: by axis, how many cells before and after.

        Raises:
            PaddingError: as `pad`.
        """
        if value.is_array:
            steps = list[Op]()
            for axis, (before, after) in sorted(ends.items()):
                if min(before, after) < 0:
                    steps.append(ops.CropAxis(axis, max(-before, 0), max(-after, 0)))
                if max(before, after) > 0:
                    steps.append(ops.PadAxis(axis, max(before, 0), max(after, 0), fill))
            return self.chain(name, value, steps)
        channels, rows, columns = (ends.get(axis, (0, 0)) for axis in range(3))
        if any((*rows, *columns)):
            value = self.pad(f"{name}:map" if any(channels) else name, value, (*rows, *columns), fill)
        return self.add(name, ops.PadChannels(*channels), value) if any(channels) else value

    def chain(self, name: str, value: Value, steps: Sequence[Op]) -> Value:
        """Add ops one after the other, and return the last one's value, which is `value` if there are no ops.
        The last one has the layer's name.
        """
        for op in steps[:-1]:
            value = self.add(f"{name}:{op.name}", op, value)
        return self.add(name, steps[-1], value) if steps else value

    # The end.

    def output(self, value: Value) -> Value:
        """Return the value as an output. An Identity is added where the model gives its own input."""
        return value if value.node in self.nodes else self.add("output", ops.Identity(), value)

    def finish(self, outputs: Iterable[Value]) -> FileGraph:
        """Return the graph of the nodes that lead to `outputs`, and of the further inputs that they read.
        Nodes that are together one attention become one op.
        """
        output_names = tuple(self.output(value).node for value in outputs)
        graph = FileGraph(tuple(self.nodes.values()), output_names, self.channels, self.size, axes=self.axes)
        kept_names = graph.leading_to(output_names)
        nodes = tuple(node for node in graph.nodes if node.name in kept_names)
        read_names = {name for node in nodes for name in node.inputs}
        further_inputs = tuple(image for image in self.further_inputs if image.path in read_names)
        # a dropout behind a node that is left out stands behind none
        left_out = tuple(
            layer if layer.after in (*kept_names, INPUT) else replace(layer, after=None)
            for layer in self.left_out
        )
        shapes = {image.path: image.shape(self.size) for image in further_inputs} | self.shapes
        if self.input.shape:
            shapes[INPUT] = self.input.shape
        kept_graph = replace(graph, nodes=nodes, left_out=left_out, further_inputs=further_inputs)
        return with_attention(kept_graph, shapes)


def _without_pad_layer(
    kind: SiteKind, value: Value, window: Window, convention: Convention
) -> tuple[Value, Convention]:
    """Return what a window reads, and its convention. Where the convention can say the pads of a pad layer
    before the window too, it does, and the window reads the value before the pad layer.
    """
    padded = value.padded
    has_pads = any(convention.pads)
    # the pads of `same` depend on the padded size, but a window of one cell never has any
    is_same_of_one_cell = convention.rule == "same" and window.extent(0) == window.extent(1) == 1
    can_add_pads = convention.rule in ("valid", "explicit") or is_same_of_one_cell
    if padded is None or not can_add_pads or convention.rounding != "floor":
        return value, convention
    pads = _add_pads(padded.pads, convention.pads)
    fill = padded.fill
    if kind == "max_pool" and (not has_pads or fill == convention.fill):
        return padded.value, Convention("explicit", pads, fill)
    if kind == "conv" and not fill:
        return padded.value, Convention("explicit", pads)
    # For an average, the cells of the pad layer are cells of its input.
    if kind == "avg_pool" and not fill and (not has_pads or convention.average == "full_window"):
        return padded.value, Convention("explicit", pads, average="full_window")
    return value, convention


def _add_pads(pads: Pads, other: Pads) -> Pads:
    """Return the sums of the pads of two layers on each side."""
    top, bottom, left, right = (a + b for a, b in zip(pads, other, strict=True))
    return top, bottom, left, right


def _bounds(op: Op | Foreign) -> tuple[float, float] | None:
    """Return the bounds of an op that only clips; None for another op."""
    match op:
        case ops.Clip(low, high):
            return low, high
        case ops.Relu():
            return 0.0, math.inf
        case ops.Relu6():
            return 0.0, 6.0
    return None


def _crops_of_map(*crops: tuple[int, int, int]) -> list[Op]:
    """Return the ops that cut rows and columns off, and take every second, third, ... one of the rest. For
    features, which have neither, there are none.

    Args:
        crops: for the rows and for the columns, the cells cut off before and behind, and the step.
    """
    if not crops:
        return []
    (top, bottom, step_down), (left, right, step_across) = crops
    cut_off = top, bottom, left, right
    cuts: list[Op] = [ops.CropMap(cut_off)] if any(cut_off) else []
    if (step_down, step_across) != (1, 1):
        # a pool over single cells skips cells by its stride
        cuts.append(ops.MaxPool(Window((1, 1), (step_down, step_across)), Convention(fill=LOWEST)))
    return cuts


def _cells_left_out(part: slice, size: int | None) -> tuple[int, int, int] | None:
    """Return how many cells a slice leaves out before and after, and its step; None if they depend on a size
    that is unknown, or the slice goes backwards.
    """
    if size is not None:
        start, stop, step = part.indices(size)
        return None if step < 1 else (start, max(size - stop, 0), step)
    start, stop, step = part.start or 0, part.stop or 0, part.step or 1
    # a start from the end, or an end counted from the start, such as [:5], leaves out cells by the size
    depends_on_size = start < 0 or stop > 0 or part.stop == 0
    return None if depends_on_size or step < 1 else (start, -stop, step)

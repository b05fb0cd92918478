"""The ops of a graph: what each computes, its shape rule, its tensors, and whether its values can be negative.

A value is a map, C×H×W, or features, C. Tensors are canonical: convolution kernels are (filters, channels / groups, rows,
columns), those of transposed convolutions (channels, filters / groups, rows, columns), dense kernels (units, features), everything
else a vector of channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from porter.errors import GraphError
from porter.padding import LOWEST, Convention, Pads, Site, Window, output_size

MOST_CONSTANTS = 4096
"""The most constants that an op may have: more than the channels of any model. A larger array is weights."""

Shape = tuple[int | None, ...]
"""(channels, rows, columns), rows and columns None where unknown, or (features,)."""
Tensors = Mapping[str, tuple[int, ...]]

# What an attribute may be; porter.graph.record and recipes check it by this name.
Count = int
"""At least 1."""
Whole = int
"""Any whole number."""
Share = float
"""From 0 to 1."""
Number = float
"""Any finite number."""
Fill = float
"""Any finite number, or -inf."""
Order = Literal["CHW", "HWC"]
Blocks = Literal["DCR", "CRD"]
Function = Literal["mean", "max"]
Axis = Literal["channels", "rows", "columns"]


class Op:
    """What one node computes. A subclass is a frozen dataclass; its fields are the op's attributes.

    Attributes:
        name: in recipes and in port.json.
        several: it takes two inputs or more, not one.
    """

    name: ClassVar[str]
    several: ClassVar[bool] = False

    def shape(self, *inputs: Shape) -> Shape:
        """The shape of the value, from those of the inputs.

        Raises:
            GraphError: the inputs do not fit.
        """
        return inputs[0]

    def tensors(self, channels: int) -> Tensors:
        """The shapes of the canonical tensors by role, for an input of so many channels (or features)."""
        return {}

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        """Whether every value is provably >= 0, from whether those of the inputs are."""
        return False

    @property
    def site(self) -> Site | None:
        """The padding site that the op is, if it is one."""
        return None

    @property
    def words(self) -> str:
        """The op for messages."""
        return f"a {self.name}"


class KeepsSign(Op):
    """An op that gives values >= 0 for values >= 0."""

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)


class NeverNegative(Op):
    """An op that gives values >= 0 for any values."""

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return True


# Windows.


@dataclass(frozen=True)
class Conv(Op):
    """A convolution; it is depthwise if `groups` equals its input's channels."""

    name = "conv"
    filters: Count
    window: Window
    convention: Convention
    groups: Count = 1
    bias: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_groups(self.filters, self.groups, inputs[0])
        return (self.filters, *_windows(self.site, inputs[0]))

    def tensors(self, channels: int) -> Tensors:
        kernel = (self.filters, channels // self.groups, *self.window.kernel)
        return {"kernel": kernel, **_bias(self.bias, self.filters)}

    @property
    def site(self) -> Site:
        return Site("conv", self.window, self.convention)

    @property
    def words(self) -> str:
        return _conv_words("conv", self.filters, self.window, self.groups)


@dataclass(frozen=True)
class ConvTranspose(Op):
    """A transposed convolution: every input cell adds its value times the kernel to the output, `stride` cells apart.

    `cut` is taken from the (size - 1) * stride + extent rows and columns of the sum: top, bottom, left, right. A negative number
    adds cells that only the bias reaches.
    """

    name = "conv_transpose"
    filters: Count
    window: Window
    cut: Pads = (0, 0, 0, 0)
    groups: Count = 1
    bias: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_groups(self.filters, self.groups, inputs[0])
        _, rows, columns = _map(inputs[0])
        sizes: list[int | None] = []
        for axis, n in enumerate((rows, columns)):
            total = None if n is None else (n - 1) * self.window.stride[axis] + self.window.extent(axis)
            cut = self.cut[2 * axis : 2 * axis + 2]
            if total is not None and total <= sum(max(cells, 0) for cells in cut):
                raise GraphError(f"nothing is left of {shape_text(inputs[0])} after the cut", next="give a larger input size")
            sizes.append(None if total is None else total - sum(cut))
        return (self.filters, *sizes)

    def tensors(self, channels: int) -> Tensors:
        kernel = (channels, self.filters // self.groups, *self.window.kernel)
        return {"kernel": kernel, **_bias(self.bias, self.filters)}

    @property
    def words(self) -> str:
        return _conv_words("transposed conv", self.filters, self.window, self.groups)


@dataclass(frozen=True)
class MaxPool(Op):
    name = "max_pool"
    window: Window
    convention: Convention

    def shape(self, *inputs: Shape) -> Shape:
        return (inputs[0][0], *_windows(self.site, inputs[0]))

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        """A window may lie in the pads and give their fill."""
        return all(inputs) and (self.convention.fill >= 0 or self.convention.fill == LOWEST)

    @property
    def site(self) -> Site:
        return Site("max_pool", self.window, self.convention)

    @property
    def words(self) -> str:
        return "a {}x{} max pool".format(*self.window.kernel)


@dataclass(frozen=True)
class AvgPool(KeepsSign):
    name = "avg_pool"
    window: Window
    convention: Convention

    def shape(self, *inputs: Shape) -> Shape:
        return (inputs[0][0], *_windows(self.site, inputs[0]))

    @property
    def site(self) -> Site:
        return Site("avg_pool", self.window, self.convention)

    @property
    def words(self) -> str:
        return "a {}x{} average pool".format(*self.window.kernel)


@dataclass(frozen=True)
class GlobalAvgPool(KeepsSign):
    """The mean over rows and columns: C×H×W to C, or to C×1×1 with `keep`."""

    name = "global_avg_pool"
    keep: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        return (_map(inputs[0])[0], 1, 1)[: 3 if self.keep else 1]


@dataclass(frozen=True)
class GlobalMaxPool(KeepsSign):
    """The largest value over rows and columns: C×H×W to C, or to C×1×1 with `keep`."""

    name = "global_max_pool"
    keep: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        return (_map(inputs[0])[0], 1, 1)[: 3 if self.keep else 1]


@dataclass(frozen=True)
class Reduce(KeepsSign):
    """The mean or the largest value along one axis of a map, which keeps one cell (or channel) there."""

    name = "reduce"
    function: Function
    axis: Axis

    def shape(self, *inputs: Shape) -> Shape:
        shape = list(_map(inputs[0]))
        shape[("channels", "rows", "columns").index(self.axis)] = 1
        return tuple(shape)

    @property
    def words(self) -> str:
        return f"a {self.function} over {self.axis}"


# Layers of features, and norms.


@dataclass(frozen=True)
class Dense(Op):
    name = "dense"
    units: Count
    bias: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        _expect_rank(inputs[0], 1)
        return (self.units,)

    def tensors(self, channels: int) -> Tensors:
        return {"kernel": (self.units, channels), **_bias(self.bias, self.units)}

    @property
    def words(self) -> str:
        return f"a dense layer of {self.units} units"


@dataclass(frozen=True)
class BatchNorm(Op):
    """Batch normalisation; `momentum` is the weight of each new batch (as in torch: 1 - decay)."""

    name = "batch_norm"
    epsilon: Share
    momentum: Share
    scale: bool = True
    center: bool = True

    def tensors(self, channels: int) -> Tensors:
        return {**_trained(self.scale, self.center, channels), "mean": (channels,), "variance": (channels,)}


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) over the channels of each cell, times gamma, plus beta."""

    name = "layer_norm"
    epsilon: Share
    scale: bool = True
    center: bool = True

    def tensors(self, channels: int) -> Tensors:
        return _trained(self.scale, self.center, channels)


@dataclass(frozen=True)
class LocalResponseNorm(KeepsSign):
    """x / (bias + alpha * sum of squares)^beta over `size` channels: size // 2 before a channel, (size - 1) // 2 after it.

    `alpha` multiplies the sum, as in TensorFlow; torch and Caffe state it times `size`.
    """

    name = "local_response_norm"
    size: Count
    alpha: Number
    beta: Number
    bias: Number

    def shape(self, *inputs: Shape) -> Shape:
        return _map(inputs[0])


@dataclass(frozen=True)
class ChannelScale(Op):
    """x times one trained number for each channel, plus another one with `bias`."""

    name = "channel_scale"
    bias: bool = False

    def tensors(self, channels: int) -> Tensors:
        return _trained(True, self.bias, channels)


@dataclass(frozen=True)
class Affine(Op):
    """x * scale + offset with constants, one for all channels or one each, such as a model's scaling of pixels."""

    name = "affine"
    scale: tuple[float, ...]
    offset: tuple[float, ...]

    def shape(self, *inputs: Shape) -> Shape:
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if len(values) not in (1, inputs[0][0]) or len(values) > MOST_CONSTANTS:
                expected = f"one {name} or one for each of {inputs[0][0]} channels (at most {MOST_CONSTANTS})"
                raise GraphError(f"expected {expected}, got {len(values)}")
            unbounded = [value for value in values if not math.isfinite(value)]
            if unbounded:
                raise GraphError(f"expected finite numbers, got {unbounded[0]} as {name}")
        return inputs[0]

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and min(*self.scale, *self.offset) >= 0


# Activations, each applied to every value.


@dataclass(frozen=True)
class Relu(NeverNegative):
    """max(x, 0)."""

    name = "relu"


@dataclass(frozen=True)
class Relu6(NeverNegative):
    """min(max(x, 0), 6)."""

    name = "relu6"


@dataclass(frozen=True)
class Clip(Op):
    """min(max(x, low), high)."""

    name = "clip"
    low: Number
    high: Number

    def shape(self, *inputs: Shape) -> Shape:
        if self.low >= self.high:
            raise GraphError(f"expected low < high, got {self.low:g} and {self.high:g}")
        return inputs[0]

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return self.low >= 0 or (all(inputs) and self.high >= 0)


@dataclass(frozen=True)
class LeakyRelu(KeepsSign):
    """x where x >= 0, otherwise slope * x."""

    name = "leaky_relu"
    slope: Number


@dataclass(frozen=True)
class PRelu(KeepsSign):
    """x where x >= 0, otherwise alpha * x, with one trained alpha for each channel."""

    name = "prelu"

    def tensors(self, channels: int) -> Tensors:
        return {"alpha": (channels,)}


@dataclass(frozen=True)
class Elu(KeepsSign):
    """x where x >= 0, otherwise alpha * (exp(x) - 1)."""

    name = "elu"
    alpha: Number = 1.0


@dataclass(frozen=True)
class Selu(KeepsSign):
    """1.0507 times an ELU of alpha 1.6733, with the constants of arXiv:1706.02515."""

    name = "selu"


@dataclass(frozen=True)
class Sigmoid(NeverNegative):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"


@dataclass(frozen=True)
class Tanh(KeepsSign):
    name = "tanh"


@dataclass(frozen=True)
class Softplus(NeverNegative):
    """log(1 + exp(x))."""

    name = "softplus"


@dataclass(frozen=True)
class HardSigmoid(NeverNegative):
    """min(max(slope * x + offset, 0), 1): 1/6 and 0.5 in Keras 3 and torch, 0.2 and 0.5 in Keras 2 and ONNX."""

    name = "hard_sigmoid"
    slope: Number = 1 / 6
    offset: Number = 0.5


@dataclass(frozen=True)
class Swish(KeepsSign):
    """x * sigmoid(x), which torch calls SiLU."""

    name = "swish"


@dataclass(frozen=True)
class HardSwish(KeepsSign):
    """x * min(max(x + 3, 0), 6) / 6."""

    name = "hard_swish"


@dataclass(frozen=True)
class Gelu(KeepsSign):
    """x times the normal distribution's cumulative function of x, or its approximation by a tanh."""

    name = "gelu"
    approximate: bool = False


@dataclass(frozen=True)
class Softmax(NeverNegative):
    """exp(x) over its sum over the channels, for each cell."""

    name = "softmax"


# Several values.


class Merge(Op):
    """An op of two values or more; a size of 1 is stretched to the others'."""

    several = True

    def shape(self, *inputs: Shape) -> Shape:
        if len({len(shape) for shape in inputs}) != 1:
            raise GraphError(f"cannot {self.name} shapes {_listed(inputs)}")
        found: list[int | None] = []
        for sizes in zip(*inputs, strict=True):
            wide = [size for size in sizes if size != 1]
            if not _alike(wide):
                raise GraphError(f"cannot {self.name} shapes {_listed(inputs)}")
            found.append(_known(wide) if wide else 1)
        return tuple(found)


@dataclass(frozen=True)
class Add(Merge, KeepsSign):
    """The sum."""

    name = "add"


@dataclass(frozen=True)
class Multiply(Merge, KeepsSign):
    """The product of the values in each place."""

    name = "multiply"


@dataclass(frozen=True)
class Maximum(Merge):
    """The largest of the values in each place."""

    name = "maximum"

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return any(inputs)


@dataclass(frozen=True)
class Minimum(Merge, KeepsSign):
    """The smallest of the values in each place."""

    name = "minimum"


@dataclass(frozen=True)
class Concat(KeepsSign):
    """Inputs joined along the channels."""

    name = "concat"
    several = True

    def shape(self, *inputs: Shape) -> Shape:
        if len({len(shape) for shape in inputs}) != 1 or not all(map(_alike, list(zip(*inputs, strict=True))[1:])):
            raise GraphError(f"cannot join shapes {_listed(inputs)}")
        channels, *size = zip(*inputs, strict=True)
        return (sum(n or 0 for n in channels), *map(_known, size))


# Places: what moves values, and computes none.


@dataclass(frozen=True)
class Identity(KeepsSign):
    """Its input."""

    name = "identity"


@dataclass(frozen=True)
class Flatten(KeepsSign):
    """A map of `rows` x `columns` as features, in the order of its source: channel by channel (CHW) or cell by cell (HWC)."""

    name = "flatten"
    rows: Count = 1
    columns: Count = 1
    order: Order = "CHW"

    def shape(self, *inputs: Shape) -> Shape:
        channels, *size = _map(inputs[0])
        if any(n not in (None, wanted) for n, wanted in zip(size, (self.rows, self.columns), strict=True)):
            expected = f"expected a map of {self.rows}x{self.columns}, got {shape_text(inputs[0])}"
            raise GraphError(f"{expected}: what is flattened fixes the input's size")
        return ((channels or 0) * self.rows * self.columns,)


@dataclass(frozen=True)
class AsMap(KeepsSign):
    """Features as a map of one cell: C to C×1×1."""

    name = "as_map"

    def shape(self, *inputs: Shape) -> Shape:
        _expect_rank(inputs[0], 1)
        return (inputs[0][0], 1, 1)


@dataclass(frozen=True)
class PadMap(Op):
    """Cells of `fill` around a map: top, bottom, left, right."""

    name = "pad_map"
    pads: Pads
    fill: Fill = 0.0

    def shape(self, *inputs: Shape) -> Shape:
        _expect_amounts(self.pads)
        return _resized(inputs[0], self.pads)

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and self.fill >= 0


@dataclass(frozen=True)
class Crop(KeepsSign):
    """A map without so many rows and columns at its top, bottom, left and right."""

    name = "crop"
    pads: Pads

    def shape(self, *inputs: Shape) -> Shape:
        _expect_amounts(self.pads)
        top, bottom, left, right = self.pads
        return _resized(inputs[0], (-top, -bottom, -left, -right))


@dataclass(frozen=True)
class PadChannels(KeepsSign):
    """Channels of zeros before and after a value's own."""

    name = "pad_channels"
    before: Whole
    after: Whole

    def shape(self, *inputs: Shape) -> Shape:
        if min(self.before, self.after) < 0:
            raise GraphError(f"expected 0 or more channels, got {self.before} and {self.after}")
        return ((inputs[0][0] or 0) + self.before + self.after, *inputs[0][1:])


@dataclass(frozen=True)
class SliceChannels(KeepsSign):
    """The channels of Python's range(start, stop, step): backwards with a negative step."""

    name = "slice_channels"
    start: Whole
    stop: Whole
    step: Whole = 1

    @property
    def channels(self) -> range:
        return range(self.start, self.stop, self.step)

    def shape(self, *inputs: Shape) -> Shape:
        if not self.step or not self.channels or not 0 <= min(self.channels) <= max(self.channels) < (inputs[0][0] or 0):
            raise GraphError(f"{shape_text(inputs[0])} has no channels {self.start}:{self.stop}:{self.step}")
        return (len(self.channels), *inputs[0][1:])


@dataclass(frozen=True)
class ChannelShuffle(KeepsSign):
    """Channels in `groups` groups, taken one of each group at a time: (groups, n) to (n, groups)."""

    name = "channel_shuffle"
    groups: Count

    def shape(self, *inputs: Shape) -> Shape:
        if (inputs[0][0] or 0) % self.groups:
            raise GraphError(f"{self.groups} groups do not divide {shape_text(inputs[0])}")
        return _map(inputs[0])


@dataclass(frozen=True)
class DepthToSpace(KeepsSign):
    """Channels as cells of block x block: in TensorFlow's order the cell counts first (DCR), in torch's the channel (CRD)."""

    name = "depth_to_space"
    block: Count
    order: Blocks = "DCR"

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = _map(inputs[0])
        if (channels or 0) % self.block**2:
            raise GraphError(f"blocks of {self.block}x{self.block} do not divide {shape_text(inputs[0])}")
        return ((channels or 0) // self.block**2, *(None if n is None else n * self.block for n in (rows, columns)))


@dataclass(frozen=True)
class Upsample(KeepsSign):
    """Every cell repeated `rows` times down and `columns` times across (nearest neighbour)."""

    name = "upsample"
    rows: Count
    columns: Count

    def shape(self, *inputs: Shape) -> Shape:
        channels, rows, columns = _map(inputs[0])
        return (channels, None if rows is None else rows * self.rows, None if columns is None else columns * self.columns)


OPS: Mapping[str, type[Op]] = {
    op.name: op
    for op in (
        *(Conv, ConvTranspose, MaxPool, AvgPool, GlobalAvgPool, GlobalMaxPool, Reduce),
        *(Dense, BatchNorm, LayerNorm, LocalResponseNorm, ChannelScale, Affine),
        *(Relu, Relu6, Clip, LeakyRelu, PRelu, Elu, Selu, Sigmoid, Tanh, Softplus, HardSigmoid, Swish, HardSwish, Gelu, Softmax),
        *(Add, Multiply, Maximum, Minimum, Concat),
        *(Identity, Flatten, AsMap, PadMap, Crop, PadChannels, SliceChannels, ChannelShuffle, DepthToSpace, Upsample),
    )
}
"""Every op by its name. Each destination and each format has a table of those that it knows; a test compares them with this one."""


def shape_text(shape: Shape) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)


def expect_groups(filters: int, groups: int, shape: Shape) -> None:
    """Refuses groups that do not divide a convolution's channels and filters.

    Raises:
        GraphError: they do not, or the input is no map.
    """
    channels = _map(shape)[0] or 0
    if groups < 1 or channels % groups or filters % groups:
        raise GraphError(f"{groups} groups divide neither {channels} channels nor {filters} filters")


def _alike(sizes: Sequence[int | None]) -> bool:
    """Whether sizes can be equal: an unknown one can be any."""
    return len({size for size in sizes if size is not None}) < 2


def _known(sizes: Sequence[int | None]) -> int | None:
    """The size that stands for `_alike` ones."""
    return next((size for size in sizes if size is not None), None)


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(shape_text, shapes))


def _expect_rank(shape: Shape, rank: int) -> None:
    if len(shape) != rank:
        raise GraphError(f"expected an input of rank {rank}, got {shape_text(shape)}")


def _map(shape: Shape) -> Shape:
    _expect_rank(shape, 3)
    return shape


def _windows(site: Site, shape: Shape) -> tuple[int | None, int | None]:
    """Rows and columns of windows over an input of `shape`."""
    _, rows, columns = _map(shape)
    found = output_size(site.convention, site.window, (rows, columns))
    if 0 in found:
        kernel = "{}x{}".format(*site.window.kernel)
        raise GraphError(f"no {kernel} window fits into {shape_text(shape)}", next="give a larger input size")
    return found


def _expect_amounts(pads: Pads) -> None:
    if min(pads) < 0:
        raise GraphError(f"expected amounts of 0 or more, got {pads}")


def _resized(shape: Shape, pads: Pads) -> Shape:
    channels, *size = _map(shape)
    top, bottom, left, right = pads
    found = [None if n is None else n + more for n, more in zip(size, (top + bottom, left + right), strict=True)]
    if any(n is not None and n < 1 for n in found):
        raise GraphError(f"nothing is left of {shape_text(shape)}", next="give a larger input size")
    return (channels, *found)


def _bias(stated: bool, channels: int) -> Tensors:
    return {"bias": (channels,)} if stated else {}


def _trained(scale: bool, center: bool, channels: int) -> Tensors:
    return {**({"gamma": (channels,)} if scale else {}), **({"beta": (channels,)} if center else {})}


def _conv_words(kind: str, filters: int, window: Window, groups: int) -> str:
    rows, columns = window.kernel
    return f"a {rows}x{columns} {kind} of {filters} filters" + (f" in {groups} groups" if groups > 1 else "")

"""The layers and functions that MLX lacks. Generated model.py files have copies of them. Values have the
channels last.
"""

from __future__ import annotations

import math
import re
from typing import Any

import mlx.core as mx
import mlx.nn as nn


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


class ChannelScale(nn.Module):
    """x times a weight for each channel, plus a bias."""

    def __init__(self, features: int, use_bias: bool = False) -> None:
        super().__init__()
        self.weight = mx.ones(features)
        if use_bias:
            self.bias = mx.zeros(features)

    def __call__(self, x: mx.array) -> mx.array:
        x = x * self.weight
        return x + self.bias if "bias" in self else x


class AddArray(nn.Module):
    """x plus a trained array, the same for each image."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = mx.zeros(shape)

    def __call__(self, x: mx.array) -> mx.array:
        return x + self.weight


class MultiplyArray(nn.Module):
    """x times a trained array, the same for each image."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = mx.ones(shape)

    def __call__(self, x: mx.array) -> mx.array:
        return x * self.weight


class Tokens(nn.Module):
    """Trained tokens before those of x, the same for each image."""

    def __init__(self, count: int, features: int) -> None:
        super().__init__()
        self.weight = mx.zeros((count, features))

    def __call__(self, x: mx.array) -> mx.array:
        tokens = mx.broadcast_to(self.weight, (len(x), *self.weight.shape))
        return mx.concatenate([tokens, x], axis=1)


class CroppedConvTranspose2d(nn.Module):
    """A transposed convolution of groups of channels, without the cells `crop` of each side: a
    negative number adds cells, which only the bias reaches. nn.ConvTranspose2d has one group.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        crop: tuple[tuple[int, int], tuple[int, int]],
        stride: int | tuple[int, int] = 1,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        rows, columns = pair(kernel_size)
        scale = math.sqrt(1 / (in_channels * rows * columns))
        shape = (out_channels, rows, columns, in_channels // groups)
        self.weight = mx.random.uniform(-scale, scale, shape)
        if bias:
            self.bias = mx.zeros(out_channels)
        self.stride = stride
        self.crop = crop
        self.dilation = dilation
        self.groups = groups

    def __call__(self, x: mx.array) -> mx.array:
        x = mx.conv_transpose2d(x, self.weight, self.stride, 0, self.dilation, groups=self.groups)
        more = [(max(-before, 0), max(-after, 0)) for before, after in self.crop]
        x = mx.pad(x, [(0, 0), *more, (0, 0)])
        (top, bottom), (left, right) = self.crop
        rows, columns = x.shape[1:3]
        x = x[:, max(top, 0) : rows - max(bottom, 0), max(left, 0) : columns - max(right, 0)]
        return x + self.bias if "bias" in self else x


def same_pad(
    x: mx.array,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    dilation: int | tuple[int, int] = 1,
    lower: bool = False,
    fill: float = 0.0,
) -> mx.array:
    """x padded by the rule of SAME: the odd cell at the end, or at the start if `lower`."""
    sides = []
    windows = zip(pair(kernel_size), pair(stride), pair(dilation), strict=True)
    for size, (cells, step, apart) in zip(x.shape[1:3], windows, strict=True):
        total = max((-(-size // step) - 1) * step + (cells - 1) * apart + 1 - size, 0)
        less = total // 2
        sides.append((total - less, less) if lower else (less, total - less))
    return mx.pad(x, [(0, 0), *sides, (0, 0)], constant_values=fill)


def dilated_max_pool(
    x: mx.array,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int | tuple[int, int],
) -> mx.array:
    """The largest of the cells of each window, which are `dilation` apart."""
    rows, columns = pair(padding)
    x = mx.pad(x, [(0, 0), (rows, rows), (columns, columns), (0, 0)], constant_values=-math.inf)
    windows = zip(pair(kernel_size), pair(stride), pair(dilation), strict=True)
    for axis, (cells, step, apart) in enumerate(windows, 1):
        firsts = mx.arange(0, x.shape[axis] - (cells - 1) * apart, step)
        parts = [mx.take(x, firsts + cell * apart, axis=axis) for cell in range(cells)]
        x = mx.stack(parts).max(axis=0)
    return x


def same_avg_pool(
    x: mx.array,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    lower: bool = False,
) -> mx.array:
    """Average pool under SAME: a window's sum divided by the number of its cells that are input."""
    pool = nn.AvgPool2d(kernel_size, stride)
    cells = mx.ones_like(x[:1, :, :, :1])
    total, count = (pool(same_pad(each, kernel_size, stride, lower=lower)) for each in (x, cells))
    return total / count


def counted_avg_pool(
    x: mx.array,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    counted: tuple[tuple[int, int], tuple[int, int]],
) -> mx.array:
    """Average pool of a map with zeros around it, which `padding` states. A window's sum is divided
    by the number of its cells in the map and in the zeros that count, `counted`.
    """
    pool = nn.AvgPool2d(kernel_size, stride)
    rest = [(p - c, q - d) for (p, q), (c, d) in zip(padding, counted, strict=True)]
    cells = mx.pad(mx.ones_like(x[:1, :, :, :1]), [(0, 0), *counted, (0, 0)], constant_values=1)
    total, count = (
        pool(mx.pad(each, [(0, 0), *pads, (0, 0)])) for each, pads in ((x, padding), (cells, rest))
    )
    return total / count


def adaptive_pool(x: mx.array, rows: int, columns: int, function: str) -> mx.array:
    """The mean or the max of rows x columns windows, which cover the map and differ by one cell."""
    for axis, count in ((1, rows), (2, columns)):
        n = x.shape[axis]
        ends = [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
        parts = (mx.split(x, [first, last], axis=axis)[1] for first, last in ends)
        pool = getattr(mx, function)
        x = mx.concatenate([pool(part, axis=axis, keepdims=True) for part in parts], axis=axis)
    return x


def local_response_norm(
    x: mx.array,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
) -> mx.array:
    """x / (bias + alpha * sum of squares) ** beta over `size` channels around each."""
    wide = mx.pad(x * x, [(0, 0), (0, 0), (0, 0), (size // 2, (size - 1) // 2)])
    total = sum(wide[..., first : first + x.shape[-1]] for first in range(size))
    return x / (bias + alpha * total) ** beta


def affine(x: mx.array, scale: Any = 1.0, offset: Any = 0.0) -> mx.array:
    """x * scale + offset: constants for all channels or for each."""
    return x * mx.array(scale, x.dtype) + mx.array(offset, x.dtype)


def thresholded_relu(x: mx.array, threshold: float) -> mx.array:
    """x where it is above a threshold, otherwise 0."""
    return mx.where(x > threshold, x, 0)


def steep_leaky_relu(x: mx.array, negative_slope: float) -> mx.array:
    """x where it is not below 0, otherwise x times a slope above 1, where nn.leaky_relu gives x."""
    return mx.where(x >= 0, x, negative_slope * x)


def selu(x: mx.array) -> mx.array:
    """1.0507 times an ELU of 1.6733, of which nn.selu has fewer places."""
    return 1.0507009873554805 * nn.elu(x, 1.6732632423543772)


def cut_softplus(x: mx.array) -> mx.array:
    """log(1 + exp(x)); x where it is above 20."""
    return mx.where(x > 20, x, nn.softplus(x))


def hard_sigmoid(x: mx.array, slope: float, offset: float) -> mx.array:
    """slope * x + offset, from 0 to 1."""
    return mx.clip(x * slope + offset, 0, 1)


def power(x: mx.array, exponent: float) -> mx.array:
    """x to the power of a number."""
    return x**exponent


def step(x: mx.array, inclusive: bool = False) -> mx.array:
    """1 where x is above 0, or with `inclusive` not below it; otherwise 0."""
    return (x >= 0 if inclusive else x > 0).astype(x.dtype)


def join(*values: mx.array, axis: int) -> mx.array:
    """Values one after the other along an axis."""
    return mx.concatenate([*values], axis=axis)


def flatten(x: mx.array, order: str = "HWC") -> mx.array:
    """A map as features: all channels of a cell together (HWC), or all cells of a channel (CHW)."""
    return (x.transpose(0, 3, 1, 2) if order == "CHW" else x).reshape(len(x), -1)


def wrapping_pad(x: mx.array, pad_width: tuple[tuple[int, int], ...]) -> mx.array:
    """x padded at each end of an axis by the cells of its other end."""
    for axis, (before, after) in enumerate(pad_width):
        n = x.shape[axis]
        if before or after:
            x = mx.take(x, mx.array([cell % n for cell in range(-before, n + after)]), axis=axis)
    return x


def crop(x: mx.array, cells: tuple[tuple[Any, ...], ...]) -> mx.array:
    """x cut along axes: each of `cells` is an axis, a start, a stop and a step."""
    parts = {axis: slice(*ends) for axis, *ends in cells}
    return x[tuple(parts.get(axis, slice(None)) for axis in range(x.ndim))]


def channel_shuffle(x: mx.array, groups: int) -> mx.array:
    """Channels one of each group at a time: 0, 2, 1, 3 of 4 channels in 2 groups."""
    return x.reshape(*x.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(x.shape)


def depth_to_space(x: mx.array, block: int, order: str = "DCR") -> mx.array:
    """Channels as cells of block x block. Channels that stand together become one cell (DCR),
    or one channel (CRD).
    """
    n, rows, columns, channels = x.shape
    parts = (block, block, -1) if order == "DCR" else (-1, block, block)
    axes = (0, 1, 3, 2, 4, 5) if order == "DCR" else (0, 1, 4, 2, 5, 3)
    cells = x.reshape(n, rows, columns, *parts).transpose(axes)
    return cells.reshape(n, rows * block, columns * block, channels // block**2)


def space_to_depth(x: mx.array, block: int, order: str = "DCR") -> mx.array:
    """Blocks of block x block cells as channels. Those of one cell stand together (DCR),
    or those of one channel (CRD).
    """
    n, rows, columns, channels = x.shape
    cells = x.reshape(n, rows // block, block, columns // block, block, channels)
    cells = cells.transpose((0, 1, 3, 2, 4, 5) if order == "DCR" else (0, 1, 3, 5, 2, 4))
    return cells.reshape(n, rows // block, columns // block, channels * block**2)


def upsample(x: mx.array, rows: int, columns: int) -> mx.array:
    """Every cell repeated `rows` times down and `columns` times across."""
    return mx.repeat(mx.repeat(x, rows, axis=1), columns, axis=2)


def rearrange(x: mx.array, pattern: str) -> mx.array:
    """The numbers of x along other axes, as einops writes it without the batch: "h w c -> (h w) c".
    A split axis has the sizes of its parts in place, of which it may leave out one.
    """
    sides = [re.findall(r"\(([^()]*)\)|(\S+)", side) for side in pattern.split("->")]
    before, after = ([(group or word).split() for group, word in side] for side in sides)
    names, sizes = [], [len(x)]
    for size, parts in zip(x.shape[1:], before, strict=True):
        stated = [int(part.partition("=")[2] or 0) for part in parts]
        sizes += [part or size // math.prod(filter(None, stated)) for part in stated]
        names += [part.partition("=")[0] for part in parts]
    x = x.reshape(sizes).transpose(0, *(1 + names.index(name) for axis in after for name in axis))
    ends = iter(x.shape[1:])
    return x.reshape(len(x), *(math.prod(next(ends) for _ in axis) for axis in after))


def matmul(x: mx.array, other: mx.array, transpose: bool = False) -> mx.array:
    """The matrix product over the last axes; `transpose` swaps those of the second value first."""
    return x @ (other.swapaxes(-1, -2) if transpose else other)


def attention(*values: mx.array, heads: int, scale: float) -> mx.array:
    """softmax(queries @ keys^T * scale) @ values for each head, which is a part of the channels.
    Queries, keys and values are three values, or one that has them side by side.
    """
    parts = mx.split(values[0], 3, axis=-1) if len(values) == 1 else values
    of_heads = (part.reshape(*part.shape[:-1], heads, -1) for part in parts)
    query, key, value = (part.swapaxes(-3, -2) for part in of_heads)
    shares = nn.softmax(query @ key.swapaxes(-1, -2) * scale)
    mixed = (shares @ value).swapaxes(-3, -2)
    return mixed.reshape(*mixed.shape[:-2], -1)


def cell_shares(place: float, mode: str, a: float) -> dict[int, float]:
    """The share of each cell around a place, by the cell's index: 0.75 of cell 2 and 0.25 of cell 3
    for the place 2.25; in the mode `cubic` of four cells, by the polynomials of Keys.
    """
    first = math.floor(place)
    t = place - first
    if mode == "linear":
        return {first: 1 - t, first + 1: t}
    outer = [a * (((d - 5) * d + 8) * d - 4) for d in (t + 1, 2 - t)]
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    return dict(zip(range(first - 1, first + 3), (outer[0], *inner, outer[1]), strict=True))


def resize(
    x: mx.array,
    like: mx.array | None = None,
    *,
    mode: str,
    coordinates: str,
    size: tuple[int, int] | None = None,
    scale: tuple[float, float] | None = None,
    rounding: str = "round_prefer_floor",
    a: float = -0.75,
    inside: bool = False,
) -> mx.array:
    """x with other numbers of rows and columns: `size`, `scale` times as many, or those of `like`.
    Each cell is the nearest one to its place in x, or a sum of those around it with shares.
    Beyond the map are the cells of its edge; if `inside`, these have no share in a cubic one.
    """
    for axis in (1, 2):
        n = x.shape[axis]
        times = None if scale is None else scale[axis - 1]
        cells = like.shape[1:3] if like is not None else size or (0, 0)
        m = int(n * times) if times else cells[axis - 1]
        by = 1 / times if times else n / m
        places = [(i + 0.5) * by - 0.5 if coordinates == "half_pixel" else i * by for i in range(m)]
        if coordinates == "align_corners":
            places = [i * ((n - 1) / max(m - 1, 1)) for i in range(m)]
        if mode == "nearest":
            half = 0.5 if rounding.startswith("round") else 0.0
            up = rounding in ("ceil", "round_prefer_floor")
            near = [math.ceil(place - half) if up else math.floor(place + half) for place in places]
            x = mx.take(x, mx.array([min(max(cell, 0), n - 1) for cell in near]), axis=axis)
            continue
        parts = [cell_shares(place, mode, a) for place in places]
        if inside:
            parts = [{cell: s for cell, s in part.items() if 0 <= cell < n} for part in parts]
            parts = [{cell: s / sum(part.values()) for cell, s in part.items()} for part in parts]
        weights = [[0.0] * n for _ in places]
        for row, part in zip(weights, parts, strict=True):
            for cell, share in part.items():
                row[min(max(cell, 0), n - 1)] += share
        x = mx.tensordot(x, mx.array(weights, x.dtype), axes=[[axis], [1]])
        x = mx.moveaxis(x, -1, axis)
    return x


def pad_like(x: mx.array, like: mx.array, *, rows: str, columns: str) -> mx.array:
    """The first map with as many rows and columns as the second: with cells of 0 at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """
    pads = [(0, 0)]
    for axis, side in ((1, rows), (2, columns)):
        more = 0 if side == "none" else like.shape[axis] - x.shape[axis]
        before = {"start": more, "both": more // 2}.get(side, 0)
        pads.append((before, more - before))
    return mx.pad(x, [*pads, (0, 0)])


def crop_like(x: mx.array, like: mx.array, *, rows: str, columns: str) -> mx.array:
    """The first map with as many rows and columns as the second: without cells at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """
    for axis, side in ((1, rows), (2, columns)):
        m = like.shape[axis]
        less = x.shape[axis] - m
        before = {"start": less, "both": less // 2}.get(side, 0)
        x = x if side == "none" else mx.split(x, [before, before + m], axis=axis)[1]
    return x


class Layers(nn.Module):
    """Layers one after the other, under these names."""

    def __init__(self, **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self._names = tuple(layers)

    def __call__(self, x: mx.array) -> mx.array:
        for name in self._names:
            x = getattr(self, name)(x)
        return x

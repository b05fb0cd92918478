"""The layers and functions that Flax and JAX lack. Generated model.py files have copies of them. Values have
the channels last.
"""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


class ChannelScale(nnx.Module):
    """x times a weight for each channel, plus a bias."""

    def __init__(self, features: int, use_bias: bool = False, *, rngs: nnx.Rngs) -> None:
        self.scale = nnx.Param(jnp.ones(features))
        self.bias = nnx.Param(jnp.zeros(features)) if use_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x * self.scale[...]
        return x if self.bias is None else x + self.bias[...]


class PReLU(nnx.Module):
    """x where it is not below 0, otherwise x times a trained number of its channel."""

    def __init__(self, features: int, *, rngs: nnx.Rngs) -> None:
        self.alpha = nnx.Param(jnp.full(features, 0.25))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.where(x >= 0, x, x * self.alpha[...])


class AddArray(nnx.Module):
    """x plus a trained array, the same for each image."""

    def __init__(self, shape: tuple[int, ...], *, rngs: nnx.Rngs) -> None:
        self.weight = nnx.Param(jnp.zeros(shape))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.weight[...]


class MultiplyArray(nnx.Module):
    """x times a trained array, the same for each image."""

    def __init__(self, shape: tuple[int, ...], *, rngs: nnx.Rngs) -> None:
        self.weight = nnx.Param(jnp.ones(shape))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x * self.weight[...]


class Tokens(nnx.Module):
    """Trained tokens before those of x, the same for each image."""

    def __init__(self, count: int, features: int, *, rngs: nnx.Rngs) -> None:
        self.weight = nnx.Param(jnp.zeros((count, features)))

    def __call__(self, x: jax.Array) -> jax.Array:
        tokens = jnp.broadcast_to(self.weight[...], (len(x), *self.weight.shape))
        return jnp.concatenate([tokens, x], axis=1)


class GroupedConvTranspose(nnx.Module):
    """A transposed convolution of groups of channels; nnx.ConvTranspose has one group."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: tuple[int, int],
        padding: tuple[tuple[int, int], tuple[int, int]],
        groups: int,
        strides: tuple[int, int] = (1, 1),
        kernel_dilation: tuple[int, int] = (1, 1),
        use_bias: bool = True,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        shape = (*kernel_size, out_features // groups, in_features)
        self.kernel = nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(out_features)) if use_bias else None
        self.strides = strides
        self.padding = padding
        self.groups = groups
        self.kernel_dilation = kernel_dilation

    def __call__(self, x: jax.Array) -> jax.Array:
        parts = jnp.split(self.kernel[...][::-1, ::-1], self.groups, axis=3)
        x = jax.lax.conv_general_dilated(
            x,
            jnp.concatenate([part.swapaxes(2, 3) for part in parts], axis=3),
            (1, 1),
            self.padding,
            lhs_dilation=self.strides,
            rhs_dilation=self.kernel_dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=self.groups,
        )
        return x if self.bias is None else x + self.bias[...]


def same_pad(
    x: jax.Array,
    window_shape: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    lower: bool = False,
    fill: float = 0.0,
) -> jax.Array:
    """x padded by the rule of SAME: the odd cell at the end, or at the start if `lower`."""
    sides = []
    for size, cells, stride, apart in zip(x.shape[1:3], window_shape, strides, dilation, strict=True):
        total = max((-(-size // stride) - 1) * stride + (cells - 1) * apart + 1 - size, 0)
        less = total // 2
        sides.append((total - less, less) if lower else (less, total - less))
    return jnp.pad(x, ((0, 0), *sides, (0, 0)), constant_values=fill)


def dilated_max_pool(
    x: jax.Array,
    window_shape: tuple[int, int],
    strides: tuple[int, int],
    padding: Any,
    dilation: tuple[int, int],
) -> jax.Array:
    """The largest of the cells of each window, which are `dilation` apart."""
    sides = padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))
    largest: jax.Array = jax.lax.reduce_window(
        x,
        -jnp.inf,
        jax.lax.max,
        (1, *window_shape, 1),
        (1, *strides, 1),
        sides,
        window_dilation=(1, *dilation, 1),
    )
    return largest


def counted_avg_pool(
    x: jax.Array,
    window_shape: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[tuple[int, int], tuple[int, int]],
    counted: tuple[tuple[int, int], tuple[int, int]],
) -> jax.Array:
    """Average pool of a map with zeros around it, which `padding` states. A window's sum is divided
    by the number of its cells in the map and in the zeros that count, `counted`.
    """
    rest = [(p - c, q - d) for (p, q), (c, d) in zip(padding, counted, strict=True)]
    cells = jnp.pad(jnp.ones_like(x[:1, :, :, :1]), ((0, 0), *counted, (0, 0)), constant_values=1)
    window = (1, *window_shape, 1), (1, *strides, 1), "VALID"
    count, total = (
        jax.lax.reduce_window(jnp.pad(each, ((0, 0), *pads, (0, 0))), 0.0, jax.lax.add, *window)
        for each, pads in ((cells, rest), (x, padding))
    )
    means: jax.Array = total / count
    return means


def adaptive_pool(x: jax.Array, rows: int, columns: int, function: str) -> jax.Array:
    """The mean or the max of rows x columns windows, which cover the map and differ by one cell."""
    for axis, count in ((1, rows), (2, columns)):
        n = x.shape[axis]
        ends = [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
        parts = (jax.lax.slice_in_dim(x, first, last, axis=axis) for first, last in ends)
        pool = getattr(jnp, function)
        x = jnp.concatenate([pool(part, axis=axis, keepdims=True) for part in parts], axis=axis)
    return x


def local_response_norm(
    x: jax.Array,
    size: int,
    alpha: float,
    beta: float,
    bias: float,
) -> jax.Array:
    """x / (bias + alpha * sum of squares) ** beta over `size` channels around each."""
    wide = jnp.pad(x * x, ((0, 0), (0, 0), (0, 0), (size // 2, (size - 1) // 2)))
    total = sum(wide[..., first : first + x.shape[-1]] for first in range(size))
    return x / (bias + alpha * total) ** beta


def affine(x: jax.Array, scale: Any = 1.0, offset: Any = 0.0) -> jax.Array:
    """x * scale + offset: constants for all channels or for each."""
    return x * jnp.asarray(scale, x.dtype) + jnp.asarray(offset, x.dtype)


def thresholded_relu(x: jax.Array, threshold: float) -> jax.Array:
    """x where it is above a threshold, otherwise 0."""
    return jnp.where(x > threshold, x, 0)


def cut_softplus(x: jax.Array) -> jax.Array:
    """log(1 + exp(x)); x where it is above 20."""
    return jnp.where(x > 20, x, nnx.softplus(x))


def hard_sigmoid(x: jax.Array, slope: float, offset: float) -> jax.Array:
    """slope * x + offset, from 0 to 1. Flax's own has a slope of 1/6."""
    return jnp.clip(x * slope + offset, 0, 1)


def power(x: jax.Array, exponent: float) -> jax.Array:
    """x to the power of a number."""
    return x**exponent


def step(x: jax.Array, inclusive: bool = False) -> jax.Array:
    """1 where x is above 0, or with `inclusive` not below it; otherwise 0."""
    return (x >= 0 if inclusive else x > 0).astype(x.dtype)


def join(*values: jax.Array, axis: int) -> jax.Array:
    """Values one after the other along an axis."""
    return jnp.concatenate(values, axis=axis)


def flatten(x: jax.Array, order: str = "HWC") -> jax.Array:
    """A map as features: all channels of a cell together (HWC), or all cells of a channel (CHW)."""
    return (x.transpose(0, 3, 1, 2) if order == "CHW" else x).reshape(len(x), -1)


def crop(x: jax.Array, cells: tuple[tuple[Any, ...], ...]) -> jax.Array:
    """x cut along axes: each of `cells` is an axis, a start, a stop and a step."""
    parts = {axis: slice(*ends) for axis, *ends in cells}
    return x[tuple(parts.get(axis, slice(None)) for axis in range(x.ndim))]


def channel_shuffle(x: jax.Array, groups: int) -> jax.Array:
    """Channels one of each group at a time: 0, 2, 1, 3 of 4 channels in 2 groups."""
    return x.reshape(*x.shape[:-1], groups, -1).swapaxes(-1, -2).reshape(x.shape)


def depth_to_space(x: jax.Array, block: int, order: str = "DCR") -> jax.Array:
    """Channels as cells of block x block. Channels that stand together become one cell (DCR),
    or one channel (CRD).
    """
    n, rows, columns, channels = x.shape
    parts = (block, block, -1) if order == "DCR" else (-1, block, block)
    axes = (0, 1, 3, 2, 4, 5) if order == "DCR" else (0, 1, 4, 2, 5, 3)
    cells = x.reshape(n, rows, columns, *parts).transpose(axes)
    return cells.reshape(n, rows * block, columns * block, channels // block**2)


def space_to_depth(x: jax.Array, block: int, order: str = "DCR") -> jax.Array:
    """Blocks of block x block cells as channels. Those of one cell stand together (DCR),
    or those of one channel (CRD).
    """
    n, rows, columns, channels = x.shape
    cells = x.reshape(n, rows // block, block, columns // block, block, channels)
    cells = cells.transpose((0, 1, 3, 2, 4, 5) if order == "DCR" else (0, 1, 3, 5, 2, 4))
    return cells.reshape(n, rows // block, columns // block, channels * block**2)


def upsample(x: jax.Array, rows: int, columns: int) -> jax.Array:
    """Every cell repeated `rows` times down and `columns` times across."""
    return x.repeat(rows, axis=1).repeat(columns, axis=2)


def rearrange(x: jax.Array, pattern: str) -> jax.Array:
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


def matmul(x: jax.Array, other: jax.Array, transpose: bool = False) -> jax.Array:
    """The matrix product over the last axes; `transpose` swaps those of the second value first."""
    return x @ (other.swapaxes(-1, -2) if transpose else other)


def attention(*values: jax.Array, heads: int, scale: float) -> jax.Array:
    """softmax(queries @ keys^T * scale) @ values for each head, which is a part of the channels.
    Queries, keys and values are three values, or one that has them side by side.
    """
    parts = jnp.split(values[0], 3, axis=-1) if len(values) == 1 else values
    of_heads = (part.reshape(*part.shape[:-1], heads, -1) for part in parts)
    query, key, value = (part.swapaxes(-3, -2) for part in of_heads)
    shares = nnx.softmax(query @ key.swapaxes(-1, -2) * scale)
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
    x: jax.Array,
    like: jax.Array | None = None,
    *,
    mode: str,
    coordinates: str,
    size: tuple[int, int] | None = None,
    scale: tuple[float, float] | None = None,
    rounding: str = "round_prefer_floor",
    a: float = -0.75,
    inside: bool = False,
) -> jax.Array:
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
            x = x.take(jnp.array([min(max(cell, 0), n - 1) for cell in near]), axis=axis)
            continue
        parts = [cell_shares(place, mode, a) for place in places]
        if inside:
            parts = [{cell: s for cell, s in part.items() if 0 <= cell < n} for part in parts]
            parts = [{cell: s / sum(part.values()) for cell, s in part.items()} for part in parts]
        weights = [[0.0] * n for _ in places]
        for row, part in zip(weights, parts, strict=True):
            for cell, share in part.items():
                row[min(max(cell, 0), n - 1)] += share
        x = jnp.tensordot(x, jnp.array(weights, x.dtype), axes=(axis, 1))
        x = jnp.moveaxis(x, -1, axis)
    return x


def pad_like(x: jax.Array, like: jax.Array, *, rows: str, columns: str) -> jax.Array:
    """The first map with as many rows and columns as the second: with cells of 0 at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """
    pads = [(0, 0)]
    for axis, side in ((1, rows), (2, columns)):
        more = 0 if side == "none" else like.shape[axis] - x.shape[axis]
        before = {"start": more, "both": more // 2}.get(side, 0)
        pads.append((before, more - before))
    return jnp.pad(x, (*pads, (0, 0)))


def crop_like(x: jax.Array, like: jax.Array, *, rows: str, columns: str) -> jax.Array:
    """The first map with as many rows and columns as the second: without cells at the `start`,
    the `end` or on `both` sides, an odd one at the end; with `none` it keeps its own.
    """
    for axis, side in ((1, rows), (2, columns)):
        m = like.shape[axis]
        less = x.shape[axis] - m
        before = {"start": less, "both": less // 2}.get(side, 0)
        x = x if side == "none" else jax.lax.slice_in_dim(x, before, before + m, axis=axis)
    return x


class Layers(nnx.Module):
    """Layers one after the other, under these names."""

    def __init__(self, **layers: Any) -> None:
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.names = tuple(layers)

    def __call__(self, x: jax.Array) -> jax.Array:
        for name in self.names:
            x = getattr(self, name)(x)
        return x

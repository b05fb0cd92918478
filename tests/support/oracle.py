"""A plain interpreter of graphs in numpy and float64: the judge of every destination.

It is written from the docstrings of porter.graph.ops. Windows are those of tests.support.padding.windows,
laid cell by cell; nothing here calls porter's own arithmetic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from porter.graph import (
    INPUT,
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    Conv,
    ConvTranspose,
    Graph,
    LocalResponseNorm,
    MaxPool,
    Op,
    Rearrange,
)
from tests.support.arrays import Array
from tests.support.padding.windows import divisors, lay

Tensors = Mapping[str, Array]


class OfAxes(np.ndarray):
    """The value of an array, whose channels are its last axis; other values are maps and features."""


def _axis(x: Array) -> int:
    """The axis of the channels."""
    return x.ndim - 1 if isinstance(x, OfAxes) else 1


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def evaluate(graph: Graph, tensors: Mapping[str, Tensors], batch: Array) -> dict[str, Array]:
    """The value of every path for a batch N×C×H×W, in float64: maps N×C×H×W, features N×C. Where the input is
    no map, the batch has its numbers.
    """
    image = batch.astype(np.float64)
    if graph.axes:  # the open ones are the map's rows and columns
        opened = [*batch.shape[4 - len(graph.axes) :], *[None] * len(graph.axes)]
        image = image.reshape(
            len(batch),
            *(own if axis is None else axis for axis, own in zip(graph.axes, opened, strict=False)),
        )
    values = {INPUT: image.view(OfAxes) if len(graph.axes) > 1 else image}
    for node in graph.nodes:
        values[node.path] = apply(
            node.op, tensors.get(node.path, {}), *(values[path] for path in node.inputs)
        )
    return values


def apply(op: Op, tensors: Tensors, *inputs: Array) -> Array:
    """The value of one op."""
    exact = {role: array.astype(np.float64) for role, array in tensors.items()}
    with np.errstate(invalid="ignore", divide="ignore"):  # of what a function has no value for
        found = np.asarray(
            _OF_VALUES[op.name](op, *inputs)
            if op.name in _OF_VALUES
            else _OF_TENSORS[op.name](op, exact, *inputs)
        )
    of_axes = not op.map if isinstance(op, Rearrange) else any(isinstance(x, OfAxes) for x in inputs)
    return found.view(OfAxes) if of_axes and found.ndim > 2 else found


def _taps(op: Conv | MaxPool | AvgPool, x: Array, fill: float) -> Array:
    """What each window reads, N×C×rows×kernel rows×columns×kernel columns; `fill` outside the map."""
    window, convention = op.window, op.convention
    cells = []
    for axis, size in enumerate(x.shape[2:]):
        geometry = (window.kernel[axis], window.stride[axis], window.dilation[axis])
        pads = (convention.pads[2 * axis], convention.pads[2 * axis + 1])
        cells.append(np.array(lay(convention.rule, *geometry, size, pads, convention.rounding).windows))
    down, along = cells[0][:, :, None, None], cells[1][None, None]
    height, width = x.shape[2:]
    real = (down >= 0) & (down < height) & (along >= 0) & (along < width)
    return np.where(real, x[:, :, down.clip(0, height - 1), along.clip(0, width - 1)], fill)


def _conv(op: Conv, tensors: Tensors, x: Array) -> Array:
    groups = zip(
        np.split(_taps(op, x, 0.0), op.groups, 1), np.split(tensors["kernel"], op.groups), strict=True
    )
    return _shifted(
        np.concatenate([np.einsum("ncrhsw,fchw->nfrs", *pair) for pair in groups], 1), tensors.get("bias")
    )


def _conv_transpose(op: ConvTranspose, tensors: Tensors, x: Array) -> Array:
    window, (count, _, rows, columns) = op.window, x.shape
    (down, along), (high, wide) = (
        window.stride,
        ((n - 1) * window.stride[i] + window.extent(i) for i, n in enumerate((rows, columns))),
    )
    total = np.zeros((count, op.filters, high, wide))
    for row, column in np.ndindex(*window.kernel):
        groups = zip(
            np.split(x, op.groups, 1), np.split(tensors["kernel"][:, :, row, column], op.groups), strict=True
        )
        part = np.concatenate([np.einsum("ncrs,cf->nfrs", *pair) for pair in groups], 1)
        first, left = row * window.dilation[0], column * window.dilation[1]
        total[:, :, first : first + rows * down : down, left : left + columns * along : along] += part
    top, bottom, left, right = op.cut
    more = np.pad(total, ((0, 0), (0, 0), (max(-top, 0), max(-bottom, 0)), (max(-left, 0), max(-right, 0))))
    return _shifted(_crop(more, *(max(n, 0) for n in op.cut)), tensors.get("bias"))


def _avg_pool(op: AvgPool, x: Array) -> Array:
    down, along = (divisors(op.convention, op.window, axis, size) for axis, size in enumerate(x.shape[2:]))
    return _taps(op, x, 0.0).sum((3, 5)) / np.outer(down, along)


def _adaptive(op: AdaptiveAvgPool | AdaptiveMaxPool, x: Array, function: Callable[..., Any]) -> Array:
    found = np.empty((*x.shape[:2], op.rows, op.columns))
    for place in np.ndindex(op.rows, op.columns):
        parts = zip(place, (op.rows, op.columns), x.shape[2:], strict=True)
        down, along = (slice(math.floor(i * n / m), math.ceil((i + 1) * n / m)) for i, m, n in parts)
        found[:, :, *place] = function(x[:, :, down, along], axis=(2, 3))
    return found


def _local_response_norm(op: LocalResponseNorm, x: Array) -> Array:
    sums = [
        (x[:, max(c - op.size // 2, 0) : c + (op.size - 1) // 2 + 1] ** 2).sum(1) for c in range(x.shape[1])
    ]
    return x / (op.bias + op.alpha * np.stack(sums, 1)) ** op.beta


def _crop(x: Array, top: int, bottom: int, left: int, right: int) -> Array:
    return x[:, :, top : x.shape[2] - bottom, left : x.shape[3] - right]


def _each(vector: Array, x: Array) -> Array:
    """A number for each channel, in the form of `x`."""
    return vector if isinstance(x, OfAxes) else vector.reshape(1, -1, *[1] * (x.ndim - 2))


def _shifted(x: Array, vector: Array | None) -> Array:
    return x if vector is None else x + _each(vector, x)


def _scaled(x: Array, tensors: Tensors) -> Array:
    return _shifted(x * _each(tensors["gamma"], x) if "gamma" in tensors else x, tensors.get("beta"))


def _batch_norm(op: Any, tensors: Tensors, x: Array) -> Array:
    return _scaled(
        (x - _each(tensors["mean"], x)) / np.sqrt(_each(tensors["variance"], x) + op.epsilon), tensors
    )


def _layer_norm(op: Any, tensors: Tensors, x: Array) -> Array:
    apart = x - x.mean(_axis(x), keepdims=True)
    return _scaled(apart / np.sqrt((apart**2).mean(_axis(x), keepdims=True) + op.epsilon), tensors)


def _rms_norm(op: Any, tensors: Tensors, x: Array) -> Array:
    return _scaled(x / np.sqrt((x**2).mean(_axis(x), keepdims=True) + op.epsilon), tensors)


def _group_norm(op: Any, tensors: Tensors, x: Array) -> Array:
    groups = x.reshape(len(x), op.groups, -1)
    apart = groups - groups.mean(2, keepdims=True)
    return _scaled(
        (apart / np.sqrt((apart**2).mean(2, keepdims=True) + op.epsilon)).reshape(x.shape), tensors
    )


def _reduce(op: Any, x: Array) -> Array:
    axis = 1 + ("channels", "rows", "columns").index(op.axis)
    functions: dict[str, Callable[..., Array]] = {
        "mean": np.mean,
        "max": np.max,
        "norm": lambda x, axis, keepdims: np.sqrt((x**2).sum(axis, keepdims=keepdims)),
    }
    return functions[op.function](x, axis, keepdims=True)


def _kept(value: Array, keep: bool) -> Array:
    return value[:, :, None, None] if keep else value


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1))


def _gelu(op: Any, x: Array) -> Array:
    if op.approximate:
        return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    return x * (1 + np.vectorize(math.erf, [np.float64])(x / np.sqrt(2))) / 2


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(_axis(x), keepdims=True))
    return powers / powers.sum(_axis(x), keepdims=True)


def _rearranged(op: Any, x: Array) -> Array:
    """Rearranges by einsum's letters, one for each part of an axis."""
    before, after = (re.findall(r"\([^)]*\)|\S+", side) for side in op.pattern.split("->"))
    sizes: dict[str, int] = {}
    for size, axis in zip(x.shape[1:], before, strict=True):
        stated = [
            (name, int(number or 0))
            for name, _, number in (part.partition("=") for part in axis.strip("()").split())
        ]
        rest = size // math.prod(number for _, number in stated if number)
        sizes |= {name: number or rest for name, number in stated}
    letters = {name: chr(ord("a") + place) for place, name in enumerate(sizes)}
    order = [name for axis in after for name in axis.strip("()").split()]
    moved = np.einsum(
        f"Z{''.join(letters.values())}->Z{''.join(letters[name] for name in order)}",
        np.asarray(x).reshape(len(x), *sizes.values()),
    )
    shape = [math.prod(sizes[name] for name in axis.strip("()").split()) for axis in after]
    return moved.reshape(len(x), *shape)


def _attended(op: Any, *inputs: Array) -> Array:
    parts = np.split(inputs[0], 3, -1) if len(inputs) == 1 else inputs
    query, key, value = (part.reshape(*part.shape[:-1], op.heads, -1).swapaxes(-3, -2) for part in parts)
    products = op.scale * np.einsum("...qd,...kd->...qk", query, key)
    powers = np.exp(products - products.max(-1, keepdims=True))
    mixed = np.einsum("...qk,...kd->...qd", powers / powers.sum(-1, keepdims=True), value).swapaxes(-3, -2)
    return np.asarray(mixed.reshape(*mixed.shape[:-2], -1))


def _cropped(op: Any, x: Array) -> Array:
    return np.take(x, range(op.before, x.shape[1 + op.axis] - op.after, op.step), 1 + op.axis)


def _reduced(op: Any, x: Array) -> Array:
    functions: dict[str, Callable[..., Array]] = {
        "mean": np.mean,
        "max": np.max,
        "norm": lambda x, axis: np.sqrt((x**2).sum(axis)),
    }
    return functions[op.function](x, 1 + op.axis)


def _with_tokens(x: Array, tokens: Array) -> Array:
    return np.concatenate([np.stack([tokens] * len(x)), x], 1)


def _shuffle(op: Any, x: Array) -> Array:
    count, channels, *size = x.shape
    return x.reshape(count, op.groups, channels // op.groups, *size).swapaxes(1, 2).reshape(x.shape)


def _depth_to_space(op: Any, x: Array) -> Array:
    channels = x.shape[1] // op.block**2
    result = np.empty((len(x), channels, x.shape[2] * op.block, x.shape[3] * op.block))
    for channel, row, column in np.ndindex(channels, op.block, op.block):
        cell = row * op.block + column
        source = cell * channels + channel if op.order == "DCR" else channel * op.block**2 + cell
        result[:, channel, row :: op.block, column :: op.block] = x[:, source]
    return result


def _space_to_depth(op: Any, x: Array) -> Array:
    channels = x.shape[1]
    result = np.empty((len(x), channels * op.block**2, x.shape[2] // op.block, x.shape[3] // op.block))
    for channel, row, column in np.ndindex(channels, op.block, op.block):
        cell = row * op.block + column
        to = cell * channels + channel if op.order == "DCR" else channel * op.block**2 + cell
        result[:, to] = x[:, channel, row :: op.block, column :: op.block]
    return result


def _resize(op: Any, x: Array, like: Array | None = None) -> Array:
    """Resizes by the matrices of both axes."""
    scale, size = (getattr(op, name, ()) for name in ("scale", "size"))
    matrices = []
    for axis, n in enumerate(x.shape[2:]):
        m = like.shape[2 + axis] if like is not None else size[axis] if size else math.floor(n * scale[axis])
        ratio = scale[axis] if scale else m / n
        matrices.append(np.zeros((m, n)))
        for i, row in enumerate(matrices[-1]):
            place = {
                "half_pixel": (i + 0.5) / ratio - 0.5,
                "asymmetric": i / ratio,
                "align_corners": i * (n - 1) / (m - 1) if m > 1 else 0,
            }[op.coordinates]
            if op.mode == "nearest":
                prefers = {
                    "floor": math.floor(place),
                    "ceil": math.ceil(place),
                    "round_prefer_floor": math.ceil(place - 0.5),
                }
                row[min(max(prefers.get(op.rounding, math.floor(place + 0.5)), 0), n - 1)] = 1
                continue
            cells = range(math.floor(place) - 3, math.floor(place) + 5)
            shares = {cell: _share(op, abs(place - cell)) for cell in cells if not op.inside or 0 <= cell < n}
            for cell, share in shares.items():
                row[min(max(cell, 0), n - 1)] += share / (sum(shares.values()) if op.inside else 1)
    return np.einsum("ri,ncij,sj->ncrs", matrices[0], x, matrices[1])


def _as_large(op: Any, x: Array, like: Array) -> Array:
    for axis, side in ((2, op.rows), (3, op.columns)):
        n, m = x.shape[axis], like.shape[axis]
        before = {"start": abs(m - n), "both": abs(m - n) // 2}.get(side, 0)
        if side != "none" and m >= n:
            wide = np.zeros((*x.shape[:axis], m, *x.shape[axis + 1 :]))
            np.moveaxis(wide, axis, 0)[before : before + n] = np.moveaxis(x, axis, 0)
            x = wide
        elif side != "none":
            x = x.take(range(before, before + m), axis)
    return x


def _share(op: Any, d: float) -> float:
    if op.mode == "linear":
        return max(1 - d, 0)
    a = op.a
    return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d < 1 else a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0


def _pad(x: Array, *widths: tuple[int, int], fill: float = 0.0) -> Array:
    return np.pad(x, ((0, 0), *widths, *[(0, 0)] * (x.ndim - 1 - len(widths))), constant_values=fill)


_OF_TENSORS: dict[str, Callable[..., Array]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "dense": lambda op, tensors, x: _shifted(x @ tensors["kernel"].T, tensors.get("bias")),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "channel_scale": lambda op, tensors, x: _scaled(x, tensors),
    "add_array": lambda op, tensors, x: x + tensors["value"],
    "multiply_array": lambda op, tensors, x: x * tensors["value"],
    "tokens": lambda op, tensors, x: _with_tokens(x, tensors["value"]),
    "prelu": lambda op, tensors, x: np.where(x >= 0, x, _each(tensors["alpha"], x) * x),
}

_OF_VALUES: dict[str, Callable[..., Any]] = {
    "max_pool": lambda op, x: _taps(op, x, op.convention.fill).max((3, 5)),
    "avg_pool": _avg_pool,
    "global_avg_pool": lambda op, x: _kept(x.mean((2, 3)), op.keep),
    "global_max_pool": lambda op, x: _kept(x.max((2, 3)), op.keep),
    "adaptive_avg_pool": lambda op, x: _adaptive(op, x, np.mean),
    "adaptive_max_pool": lambda op, x: _adaptive(op, x, np.max),
    "reduce": _reduce,
    "local_response_norm": _local_response_norm,
    "affine": lambda op, x: x * _each(np.array(op.scale), x) + _each(np.array(op.offset), x),
    "relu": lambda op, x: np.maximum(x, 0),
    "relu6": lambda op, x: np.minimum(np.maximum(x, 0), 6),
    "thresholded_relu": lambda op, x: np.where(x > op.threshold, x, 0),
    "clip": lambda op, x: np.minimum(np.maximum(x, op.low), op.high),
    "leaky_relu": lambda op, x: np.where(x >= 0, x, op.slope * x),
    "elu": lambda op, x: _elu(x, op.alpha),
    "celu": lambda op, x: _elu(x / op.alpha, 1.0) * op.alpha,
    "selu": lambda op, x: SELU_SCALE * _elu(x, SELU_ALPHA),
    "sigmoid": lambda op, x: _sigmoid(x),
    "tanh": lambda op, x: np.tanh(x),
    "softplus": lambda op, x: np.where(op.cut & (x > 20), x, np.logaddexp(0, x)),
    "softsign": lambda op, x: x / (1 + np.abs(x)),
    "hard_sigmoid": lambda op, x: np.minimum(np.maximum(op.slope * x + op.offset, 0), 1),
    "swish": lambda op, x: x * _sigmoid(x),
    "hard_swish": lambda op, x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "abs": lambda op, x: np.abs(x),
    "exp": lambda op, x: np.exp(x),
    "log": lambda op, x: np.log(x),
    "sqrt": lambda op, x: np.sqrt(x),
    "reciprocal": lambda op, x: 1 / x,
    "power": lambda op, x: x**op.exponent,
    "sin": lambda op, x: np.sin(x),
    "cos": lambda op, x: np.cos(x),
    "sign": lambda op, x: np.sign(x),
    "floor": lambda op, x: np.floor(x),
    "ceil": lambda op, x: np.ceil(x),
    "round": lambda op, x: np.round(x),
    "erf": lambda op, x: np.vectorize(math.erf)(x),
    "mish": lambda op, x: x * np.tanh(np.logaddexp(0, x)),
    "gelu": _gelu,
    "softmax": lambda op, x: _softmax(x),
    "log_softmax": lambda op, x: np.log(_softmax(x)),
    "step": lambda op, x: np.where(x >= 0 if op.inclusive else x > 0, 1.0, 0.0),
    "add": lambda op, *values: reduce(np.add, values),
    "multiply": lambda op, *values: reduce(np.multiply, values),
    "divide": lambda op, first, second: first / second,
    "maximum": lambda op, *values: reduce(np.maximum, values),
    "minimum": lambda op, *values: reduce(np.minimum, values),
    "concat": lambda op, *values: np.concatenate(values, 1),
    **dict.fromkeys(("identity", "dropout"), lambda op, x: x),
    "flatten": lambda op, x: (x if op.order == "CHW" else x.transpose(0, 2, 3, 1)).reshape(len(x), -1),
    "as_map": lambda op, x: x[:, :, None, None],
    "pad_map": lambda op, x: _pad(x, (0, 0), op.pads[:2], op.pads[2:], fill=op.fill),
    "extend_map": lambda op, x: np.pad(x, ((0, 0), (0, 0), op.pads[:2], op.pads[2:]), op.mode),
    "crop": lambda op, x: _crop(x, *op.pads),
    "pad_channels": lambda op, x: _pad(x, (op.before, op.after)),
    "slice_channels": lambda op, x: x[:, list(range(op.start, op.stop, op.step))],
    "channel_shuffle": _shuffle,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "rearrange": _rearranged,
    "matmul": lambda op, first, second: first @ (second.swapaxes(-1, -2) if op.transpose else second),
    "attention": _attended,
    "join": lambda op, *values: np.concatenate(values, 1 + op.axis),
    "crop_axis": _cropped,
    "pad_axis": lambda op, x: np.pad(
        x,
        [(op.before, op.after) if axis == 1 + op.axis else (0, 0) for axis in range(x.ndim)],
        constant_values=op.fill,
    ),
    "reduce_axis": _reduced,
    "resize": _resize,
    "resize_like": _resize,
    "pad_like": _as_large,
    "crop_like": _as_large,
    "upsample": lambda op, x: x.repeat(op.rows, 2).repeat(op.columns, 3),
}

"""MLX's operations in float64. Many of them compute in float32 whatever the type says: convolutions,
exponentials, and what is made of these. porter compares ports in float64 with numpy's in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.kernels import windows
from porter.filegraph.kernels.layouts import reorder_axes, with_channels_first, with_channels_last
from porter.filegraph.kernels.values import erf, softmax
from porter.filegraph.kernels.windows import Grid

Pair = int | tuple[int, int]


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _by_numpy(function: Callable[..., Numbers]) -> Callable[..., mx.array]:
    def run(*arrays: Any, **settings: Any) -> mx.array:
        given = (np.asarray(each) if isinstance(each, mx.array) else each for each in arrays)
        with np.errstate(all="ignore"):  # MLX says nothing of numbers that are too large
            return mx.array(np.ascontiguousarray(function(*given, **settings)), mx.float64)

    return run


def _conv(
    x: Numbers, weight: Numbers, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1
) -> Numbers:
    rows, columns = _pair(padding)
    grid = Grid(_pair(stride), _pair(dilation), (rows, rows, columns, columns))
    found = windows.conv(with_channels_first(x), reorder_axes(weight, "OHWI"), grid=grid, groups=groups)
    return with_channels_last(found)


def _transposed(
    x: Numbers,
    weight: Numbers,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    output_padding: Pair = 0,
    groups: int = 1,
) -> Numbers:
    rows, columns = _pair(padding)
    grid = Grid(_pair(stride), _pair(dilation), (rows, rows, columns, columns))
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    kernel = parts.transpose(0, 4, 1, 2, 3).reshape(-1, parts.shape[1], *weight.shape[1:3])
    found = windows.conv_transpose(
        with_channels_first(x), kernel, grid=grid.with_more(*_pair(output_padding)), groups=groups
    )
    return with_channels_last(found)


def _sigmoid(x: Numbers) -> Numbers:
    powers = np.exp(-np.abs(x))
    values: Numbers = np.where(x >= 0, 1, powers) / (1 + powers)
    return values


def _logsumexp(x: Numbers, axis: int, keepdims: bool = False) -> Numbers:
    top = x.max(axis, keepdims=True)
    sums: Numbers = top + np.log(np.exp(x - top).sum(axis, keepdims=True))
    return sums if keepdims else sums.squeeze(axis)


def _layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    return _scaled(x - mx.mean(x, axis=-1, keepdims=True), weight, bias, eps)


def _rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    return _scaled(x, weight, None, eps)


def _scaled(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    x = x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


_OF_CORE: dict[str, Callable[..., mx.array]] = {
    **{name: _by_numpy(getattr(np, name)) for name in ("exp", "sin", "cos", "logaddexp")},
    "conv2d": _by_numpy(_conv),
    "conv_transpose2d": _by_numpy(_transposed),
    "erf": _by_numpy(erf),
    "sigmoid": _by_numpy(_sigmoid),
    "softmax": _by_numpy(softmax),
    "logsumexp": _by_numpy(_logsumexp),
}
_OF_FAST: dict[str, Callable[..., mx.array]] = {"layer_norm": _layer_norm, "rms_norm": _rms_norm}


@contextmanager
def exact_operations() -> Iterator[None]:
    """The layers of MLX compute in float64 here."""
    replaced = [
        (module, name, getattr(module, name), own)
        for module, others in ((mx, _OF_CORE), (mx.fast, _OF_FAST))
        for name, own in others.items()
    ]
    for module, name, _, own in replaced:
        setattr(module, name, own)
    try:
        yield
    finally:
        for module, name, theirs, _ in replaced:
            setattr(module, name, theirs)

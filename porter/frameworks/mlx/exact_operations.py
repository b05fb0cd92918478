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
from porter.filegraph.kernels.values import erf, sigmoid, softmax
from porter.filegraph.kernels.windows import Grid

Pair = int | tuple[int, int]


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _run_by_numpy(function: Callable[..., Numbers]) -> Callable[..., mx.array]:
    """Return an operation on arrays of MLX that computes in float64 by `function`, which takes and gives
    arrays of numpy.
    """

    def run(*arrays: Any, **settings: Any) -> mx.array:
        operands = (np.asarray(array) if isinstance(array, mx.array) else array for array in arrays)
        with np.errstate(all="ignore"):  # MLX says nothing of numbers that are too large
            return mx.array(np.ascontiguousarray(function(*operands, **settings)), mx.float64)

    return run


def _conv(
    x: Numbers, weight: Numbers, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1
) -> Numbers:
    """Compute what mx.conv2d computes, of maps N x H x W x C, by porter's kernel of maps N x C x H x W."""
    rows, columns = _pair(padding)
    grid = Grid(_pair(stride), _pair(dilation), (rows, rows, columns, columns))
    result = windows.conv(with_channels_first(x), reorder_axes(weight, "OHWI"), grid=grid, groups=groups)
    return with_channels_last(result)


def _transposed(
    x: Numbers,
    weight: Numbers,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    output_padding: Pair = 0,
    groups: int = 1,
) -> Numbers:
    """Compute what mx.conv_transpose2d computes, of maps N x H x W x C, by porter's kernel of maps N x C x H
    x W.
    """
    rows, columns = _pair(padding)
    grid = Grid(_pair(stride), _pair(dilation), (rows, rows, columns, columns))
    # Filters x rows x columns x channels of a group become channels x filters of a group x rows x columns.
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    kernel = parts.transpose(0, 4, 1, 2, 3).reshape(-1, parts.shape[1], *weight.shape[1:3])
    result = windows.conv_transpose(
        with_channels_first(x), kernel, grid=grid.with_more(*_pair(output_padding)), groups=groups
    )
    return with_channels_last(result)


def _logsumexp(x: Numbers, axis: int, keepdims: bool = False) -> Numbers:
    """Compute the logarithm of a sum of exponentials. The largest number is taken off first, so that none
    overflows.
    """
    top = x.max(axis, keepdims=True)
    sums: Numbers = top + np.log(np.exp(x - top).sum(axis, keepdims=True))
    return sums if keepdims else sums.squeeze(axis)


def _layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    """Compute a layer norm over the last axis, by root mean squares of the numbers less their mean."""
    return _scaled(x - mx.mean(x, axis=-1, keepdims=True), weight, bias, eps)


def _rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    return _scaled(x, weight, None, eps)


def _scaled(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    """Return numbers divided by their root mean square over the last axis, times a weight, plus a bias."""
    x = x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


_OF_CORE: dict[str, Callable[..., mx.array]] = {
    **{name: _run_by_numpy(getattr(np, name)) for name in ("exp", "sin", "cos", "logaddexp")},
    "conv2d": _run_by_numpy(_conv),
    "conv_transpose2d": _run_by_numpy(_transposed),
    "erf": _run_by_numpy(erf),
    "sigmoid": _run_by_numpy(sigmoid),
    "softmax": _run_by_numpy(softmax),
    "logsumexp": _run_by_numpy(_logsumexp),
}
_OF_FAST: dict[str, Callable[..., mx.array]] = {"layer_norm": _layer_norm, "rms_norm": _rms_norm}


@contextmanager
def exact_operations() -> Iterator[None]:
    """Replace functions of mlx.core and mlx.core.fast by ones that compute in float64, until the block ends,
    so that MLX's layers call them.
    """
    replacements = [
        (module, name, getattr(module, name), exact)
        for module, exact_functions in ((mx, _OF_CORE), (mx.fast, _OF_FAST))
        for name, exact in exact_functions.items()
    ]
    for module, name, _, exact in replacements:
        setattr(module, name, exact)
    try:
        yield
    finally:
        for module, name, of_mlx, _ in replacements:
            setattr(module, name, of_mlx)

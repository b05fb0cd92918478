"""What replaces MLX's operations in float64 computes the same as they do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from porter.frameworks.mlx.exact_operations import exact_operations
from tests.support.arrays import Array

RNG = np.random.default_rng(0)


def _both(compute: Callable[..., Any], *arrays: Array) -> tuple[Array, Array]:
    """In float32 by MLX, and in float64."""
    with mx.stream(mx.cpu):
        single = np.array(compute(*(mx.array(each.astype(np.float32)) for each in arrays)))
        with exact_operations():
            double = np.array(compute(*(mx.array(each, mx.float64) for each in arrays)))
    assert single.dtype == np.float32 and double.dtype == np.float64
    return single, double


def test_convolutions_are_bitwise_those_of_mlx_where_numbers_are_whole() -> None:
    """Every entry of a kernel is read: MLX's own convolutions are right in every combination."""
    for kernel, stride, dilation, groups, padding in product(
        [(1, 1), (2, 3)], [1, (2, 3)], [1, (2, 1)], [1, 2, 4], [0, (2, 1)]
    ):
        x, weight = (
            RNG.integers(-9, 10, shape).astype(float) for shape in ((2, 8, 9, 4), (8, *kernel, 4 // groups))
        )

        def conv(x: Any, weight: Any, settings: tuple[Any, ...] = (stride, padding, dilation, groups)) -> Any:
            return mx.conv2d(x, weight, *settings)

        assert np.array_equal(*_both(conv, x, weight)), (kernel, stride, dilation, groups, padding)


def test_transposed_convolutions_too() -> None:
    for kernel, stride, dilation, groups, padding, added in product(
        [(1, 1), (2, 3)], [1, (2, 3)], [1, (2, 1)], [1, 2, 4], [0, (1, 2)], [0, (1, 0)]
    ):
        if (padding and kernel == (1, 1)) or (added and stride == 1):
            continue  # porter says these otherwise
        x, weight = (
            RNG.integers(-9, 10, shape).astype(float) for shape in ((2, 5, 6, 4), (8, *kernel, 4 // groups))
        )

        def conv(
            x: Any, weight: Any, settings: tuple[Any, ...] = (stride, padding, dilation, added, groups)
        ) -> Any:
            return mx.conv_transpose2d(x, weight, *settings)

        assert np.array_equal(*_both(conv, x, weight)), (kernel, stride, dilation, groups, padding, added)


@pytest.mark.parametrize(
    "compute",
    [
        *(lambda x, name=name: getattr(mx, name)(x) for name in ("exp", "sin", "cos", "erf", "sigmoid")),
        lambda x: mx.softmax(x, axis=-1),
        lambda x: mx.logsumexp(x, axis=-1, keepdims=True),
        lambda x: mx.logaddexp(x, 0),
        lambda x: mx.fast.layer_norm(x, x[0], x[1], 0.1),
        lambda x: mx.fast.rms_norm(x, x[0], 0.1),
    ],
)
def test_other_operations(compute: Callable[..., Any]) -> None:
    single, double = _both(compute, RNG.normal(size=(7, 300)) * 4)
    assert np.linalg.norm(single - double) < 1e-6 * np.linalg.norm(double)
    assert not np.array_equal(single, double.astype(np.float32)) or single.size < 100


def test_mlx_has_its_own_operations_again() -> None:
    own = mx.exp, mx.fast.rms_norm
    with pytest.raises(ZeroDivisionError), exact_operations():
        assert (mx.exp, mx.fast.rms_norm) != own
        raise ZeroDivisionError
    assert (mx.exp, mx.fast.rms_norm) == own

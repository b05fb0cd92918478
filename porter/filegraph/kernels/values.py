"""Norms, products and activations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from porter.base.dtypes import Numbers


def per_channel(vector: Numbers, x: Numbers) -> Numbers:
    """Reshape a vector of a number for each channel so that it broadcasts to N×C×H×W or N×C."""
    return vector.reshape(-1, *[1] * (x.ndim - 2))


def dense(x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Numbers:
    """Multiply N×F by a kernel O×F, and add the bias if there is one."""
    products: Numbers = x @ kernel.T
    return products if bias is None else products + bias


def batch_norm(
    x: Numbers, mean: Numbers, variance: Numbers, gamma: Numbers | None = None, beta: Numbers | None = None
) -> Numbers:
    """Normalise each channel by the stored statistics; the norm's epsilon is in the variance."""
    scale = (1 if gamma is None else gamma) / np.sqrt(variance)
    normed: Numbers = (x - per_channel(mean, x)) * per_channel(scale, x)
    return normed if beta is None else normed + per_channel(beta, x)


def group_norm(x: Numbers, groups: int, gamma: Numbers, beta: Numbers, epsilon: float) -> Numbers:
    """Normalise each image's groups of channels, and scale each channel by a number."""
    parts = x.reshape(len(x), groups, -1)
    normed = standardise(parts, (2,), epsilon).reshape(x.shape)
    return normed * per_channel(gamma, x) + per_channel(beta, x)


def standardise(x: Numbers, axes: Sequence[int], epsilon: float) -> Numbers:
    """Scale and shift the numbers so that they have a mean of 0 and a variance of 1 over some axes."""
    centred: Numbers = x - x.mean(tuple(axes), keepdims=True)
    centred /= np.sqrt((centred**2).mean(tuple(axes), keepdims=True) + epsilon)
    return centred


def with_norms(x: Numbers, norms: Numbers, axes: Sequence[int]) -> Numbers:
    """Return a kernel scaled so that its norms over `axes` are `norms`, as torch's weight norm does."""
    scaled: Numbers = x * (norms / np.sqrt(np.square(x).sum(tuple(axes), keepdims=True)))
    return scaled


def response_norm(x: Numbers, size: int, alpha: float, beta: float, bias: float) -> Numbers:
    """Compute a local response norm: x / (bias + alpha / size * sum of squares) ** beta. The sum is over
    `size` channels around each number; of an even size, one channel more is behind it.
    """
    pads = [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x**2, pads), size, axis=1)
    sums_of_squares = windows.sum(-1)
    normed: Numbers = x / (bias + alpha / size * sums_of_squares) ** beta
    return normed


def softmax(x: Numbers, axis: int) -> Numbers:
    powers: Numbers = np.exp(x - x.max(axis, keepdims=True))
    powers /= powers.sum(axis, keepdims=True)
    return powers


def log_softmax(x: Numbers, axis: int) -> Numbers:
    shifted: Numbers = x - x.max(axis, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis, keepdims=True))
    return shifted


def relu(x: Numbers, most: float = math.inf, slope: float | Numbers = 0.0) -> Numbers:
    """Clip the numbers at `most`, and multiply those below zero by `slope`: a ReLU, ReLU6, leaky ReLU or
    PReLU.
    """
    numbers: Numbers = np.where(x < 0, slope * x, np.minimum(x, most)).astype(x.dtype, copy=False)
    return numbers


def elu(x: Numbers, alpha: float = 1.0) -> Numbers:
    numbers: Numbers = np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    return numbers


def sigmoid(x: Numbers) -> Numbers:
    power = np.exp(-np.abs(x))  # a half and half a tanh would lose the digits of values close to 0
    values: Numbers = np.where(x < 0, power, 1) / (1 + power)
    return values


def hard_sigmoid(x: Numbers, slope: float, offset: float = 0.5) -> Numbers:
    return np.clip(slope * x + offset, 0, 1)


def hard_swish(x: Numbers) -> Numbers:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def erf(x: Numbers) -> Numbers:
    values: Numbers = np.vectorize(math.erf, otypes=[x.dtype])(x)
    return values


def gelu(x: Numbers, tanh: bool = False) -> Numbers:
    """Compute a GELU by the error function, or approximated by a tanh."""
    if tanh:
        return x * (0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) + 0.5)
    return x * (0.5 * erf(x * math.sqrt(0.5)) + 0.5)

"""What Caffe's layers compute, for porter's own engine: as a net says it, not as read.py takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import Numbers
from porter.filegraph.kernels.program import Program, Row, Step
from porter.filegraph.kernels.windows import Grid
from porter.formats.caffe.net import IMAGE, read_net


def program(definition: bytes) -> Program:
    steps = []
    for layer in read_net(definition.decode()).layers:
        gives = tuple(layer.name if not place else f"{layer.name}:{place}" for place in range(layer.gives))
        reads = tuple(name if not place else f"{name}:{place}" for name, place in layer.inputs)
        steps.append(Step(layer.op, reads, gives, {"stated": layer.parameters, "values": layer.values, "gives": layer.gives}))
    return Program(IMAGE, tuple(steps), _ROWS)


def _two(stated: Any, name: str, default: int, short: str | None = None) -> tuple[int, int]:
    both = stated.counts(name) or [default]
    return stated.count(f"{short or name}_h", both[0]), stated.count(f"{short or name}_w", both[-1])


def _grid(stated: Any, **more: Any) -> Grid:
    down, across = _two(stated, "pad", 0)
    return Grid(_two(stated, "stride", 1), _two(stated, "dilation", 1), (down, down, across, across), **more)


def _pooled(attributes: Mapping[str, Any], x: Numbers) -> Any:
    stated = attributes["stated"]
    average = stated.word("pool", "MAX") in ("AVE", "1")
    if stated.flag("global_pooling", False):
        return x.mean((2, 3), keepdims=True) if average else x.max((2, 3), keepdims=True)
    grid = _grid(stated, rounding="floor" if stated.word("round_mode") in ("FLOOR", "1") else "ceil")
    sides = _two(stated, "kernel_size", 0, "kernel")
    return windows.average_pool(x, sides, grid, "clipped_window") if average else windows.max_pool(x, sides, grid)


def _normed(attributes: Mapping[str, Any], x: Numbers, mean: Numbers, variance: Numbers, factor: Numbers) -> Any:
    by = 1 / factor.ravel()[0] if factor.ravel()[0] else 0.0
    return values.batch_norm(x, mean * by, variance * by, None, None, attributes["stated"].number("eps", 1e-5))


def _scaled(attributes: Mapping[str, Any], x: Numbers, gamma: Numbers, beta: Numbers | None = None) -> Any:
    of_images = attributes["values"] == 2 and attributes["stated"].count("axis", 1) == 0
    found = x * (gamma.reshape(*gamma.shape, *[1] * (x.ndim - gamma.ndim)) if of_images else values.across(gamma, x))
    return found if beta is None else found + values.across(beta, x)


def _joined(attributes: Mapping[str, Any], *several: Numbers) -> Any:
    operation, factors = attributes["stated"].word("operation", "SUM"), attributes["stated"].words("coeff")
    if operation in ("PROD", "0"):
        return np.multiply.reduce(several)
    if operation in ("MAX", "2"):
        return np.maximum.reduce(several)
    parts = [float(factor) * x for factor, x in zip(factors or ["1"] * len(several), several, strict=True)]
    return sum(parts[1:], parts[0])


def _powered(attributes: Mapping[str, Any], x: Numbers) -> Any:
    stated = attributes["stated"]
    inner = x * stated.number("scale", 1.0) + stated.number("shift", 0.0)
    return inner if stated.number("power", 1.0) == 1 else inner ** stated.number("power", 1.0)


def _axis(attributes: Mapping[str, Any], older: str) -> int:
    found: int = attributes["stated"].count("axis", attributes["stated"].count(older, 1))
    return found


def _parted(attributes: Mapping[str, Any], x: Numbers) -> tuple[Numbers, ...]:
    stated, count = attributes["stated"], attributes["gives"]
    return tuple(np.split(x, stated.counts("slice_point") or count, _axis(attributes, "slice_dim")))


def _cropped(attributes: Mapping[str, Any], x: Numbers, like: Numbers) -> Any:
    stated, first = attributes["stated"], attributes["stated"].count("axis", 2) % x.ndim
    offsets = stated.counts("offset") or [0]
    every = offsets if len(offsets) > 1 else offsets * (x.ndim - first)
    cut = [slice(start, start + size) for start, size in zip(every, like.shape[first:], strict=True)]
    return x[(*[slice(None)] * first, *cut)]


def _flattened(attributes: Mapping[str, Any], x: Numbers) -> Any:
    first, last = attributes["stated"].count("axis", 1) % x.ndim, attributes["stated"].count("end_axis", -1) % x.ndim
    return x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


def _reshaped(attributes: Mapping[str, Any], x: Numbers) -> Any:
    sizes = attributes["stated"].part("shape").counts("dim")
    return x.reshape([size or x.shape[place] for place, size in enumerate(sizes)])


def _conv(attributes: Mapping[str, Any], x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    return windows.conv(x, kernel, bias, _grid(attributes["stated"]), attributes["stated"].count("group", 1))


def _by_channel(attributes: Mapping[str, Any], x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    return windows.conv(x, kernel, bias, _grid(attributes["stated"]), x.shape[1])


def _deconv(attributes: Mapping[str, Any], x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    return windows.transposed(x, kernel, bias, _grid(attributes["stated"]), attributes["stated"].count("group", 1))


def _product(attributes: Mapping[str, Any], x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    turned = kernel.T if attributes["stated"].flag("transpose", False) else kernel
    return values.dense(x.reshape(len(x), -1), turned, bias)


def _response(attributes: Mapping[str, Any], x: Numbers) -> Any:
    stated = attributes["stated"]
    size, alpha, beta = stated.count("local_size", 5), stated.number("alpha", 1.0), stated.number("beta", 0.75)
    if stated.word("norm_region") in ("WITHIN_CHANNEL", "1"):
        mean = windows.average_pool(x**2, (size, size), Grid(pads=((size - 1) // 2,) * 4), "clipped_window")
        return x * (1 + alpha * mean) ** -beta
    return values.response_norm(x, size, alpha, beta, stated.number("k", 1.0))


_ROWS: Mapping[str, Row] = {
    "Convolution": _conv,
    **dict.fromkeys(("ConvolutionDepthwise", "DepthwiseConvolution"), _by_channel),
    "Deconvolution": _deconv,
    "Pooling": _pooled,
    "InnerProduct": _product,
    "BatchNorm": _normed,
    "Scale": _scaled,
    "Bias": lambda attributes, x, beta: x + (beta if beta.ndim == x.ndim else values.across(beta, x)),
    "Eltwise": _joined,
    "Power": _powered,
    "LRN": _response,
    "PReLU": lambda attributes, x, slope: values.relu(x, slope=values.across(slope, x)),
    "Concat": lambda attributes, *x: np.concatenate(
        x, attributes["stated"].count("axis", attributes["stated"].count("concat_dim", 1))
    ),
    "Slice": _parted,
    "Crop": _cropped,
    "Flatten": _flattened,
    "Reshape": _reshaped,
    "Clip": lambda attributes, x: np.clip(
        x, attributes["stated"].number("min", -math.inf), attributes["stated"].number("max", math.inf)
    ),
    "ReLU": lambda attributes, x: values.relu(x, slope=attributes["stated"].number("negative_slope", 0.0)),
    "ReLU6": lambda attributes, x: values.relu(x, 6.0),
    "ELU": lambda attributes, x: values.elu(x, attributes["stated"].number("alpha", 1.0)),
    "Sigmoid": lambda attributes, x: values.sigmoid(x),
    "TanH": lambda attributes, x: np.tanh(x),
    "BNLL": lambda attributes, x: np.logaddexp(x, 0),
    "Softmax": lambda attributes, x: values.softmax(x, attributes["stated"].count("axis", 1)),
}

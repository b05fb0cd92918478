"""What Caffe's layers compute, for porter's own engine: as a net says it, not as operators.py takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.settings import Settings
from porter.filegraph.kernels.windows import Grid
from porter.filegraph.program import KernelProgram, OperatorCall, Row, each, row
from porter.filegraph.value_names import value_name
from porter.formats.caffe.net import DEPTHWISE, IMAGE, read_net
from porter.formats.caffe.text_format import TextMessage

# A net states a value of an enumeration by its name or by its number (caffe.proto).
_AVERAGE = ("AVE", "1")
_FLOOR = ("FLOOR", "1")
_PRODUCT = ("PROD", "0")
_MAXIMUM = ("MAX", "2")


def program(definition: bytes) -> KernelProgram:
    """Return a net as a program of porter's own engine: a step for each layer, with the names of the values
    and then of the blobs that it reads, and of what it gives, and the functions that compute the layers.

    Args:
        definition: the net's text.
    """
    steps = []
    for layer in read_net(definition.decode()).layers:
        gives = tuple(value_name((layer.name, output)) for output in range(layer.gives))
        reads = (
            *map(value_name, layer.inputs[: layer.values]),
            *(blob for blob, _ in layer.inputs[layer.values :]),
        )
        steps.append(
            OperatorCall(
                layer.op,
                reads,
                gives,
                {"settings": _settings(layer.message), "values": layer.values, "gives": layer.gives},
            )
        )
    return KernelProgram(IMAGE, tuple(steps), _ROWS)


def _settings(layer: TextMessage) -> Settings:
    """Return the settings of a layer's type: the words of its fields, and of the `dim`s of shapes within
    them. A layer has the settings of no other type, so their message's name does not matter.
    """
    words = dict[str, list[str]]()
    parts = [part for name, parts in layer.fields.items() if name.endswith("_param") for part in parts]
    for part in parts:
        for name, field_values in part.fields.items() if isinstance(part, TextMessage) else ():
            shapes = [shape.fields.get("dim", ()) for shape in field_values if isinstance(shape, TextMessage)]
            sizes = (size for shape in shapes for size in shape)
            words.setdefault(name, []).extend(
                value for value in (*field_values, *sizes) if isinstance(value, str)
            )
    return Settings(words)


def _grid(settings: Settings, **more: Any) -> Grid:
    """Return the stride, the dilation and the pads of a window."""
    down, across = settings.pair("pad", 0)
    return Grid(
        settings.pair("stride", 1), settings.pair("dilation", 1), (down, down, across, across), **more
    )


def _pool(settings: Settings, x: Numbers) -> Any:
    """Compute Pooling, over windows or over the whole map."""
    is_average = settings.word("pool", "MAX") in _AVERAGE
    if settings.flag("global_pooling"):
        return x.mean((2, 3), keepdims=True) if is_average else x.max((2, 3), keepdims=True)
    floors = settings.word("round_mode") in _FLOOR or not settings.flag("ceil_mode", True)
    grid = _grid(settings, rounding="floor" if floors else "ceil")
    sides = settings.pair("kernel_size", 0)
    if is_average:
        return windows.average_pool(x, sides, grid, "clipped_window")
    return windows.max_pool(x, sides, grid)


def _batch_norm(settings: Settings, x: Numbers, mean: Numbers, variance: Numbers, factor: Numbers) -> Any:
    """Compute BatchNorm from the stored sums and their divisor; a divisor of 0 makes both statistics 0."""
    factor_of_sums = 1 / factor.ravel()[0] if factor.ravel()[0] else 0.0
    return values.batch_norm(
        x, mean * factor_of_sums, variance * factor_of_sums + settings.number("eps", 1e-5)
    )


def _scale(attributes: Mapping[str, Any], x: Numbers, gamma: Numbers, beta: Numbers | None = None) -> Any:
    """Compute Scale: a product with numbers for each image (a second value at axis 0) or for each channel,
    and a sum with the bias, if there is one.
    """
    is_per_image = attributes["values"] == 2 and attributes["settings"].count("axis", 1) == 0
    if is_per_image:
        further_axes = [1] * (x.ndim - gamma.ndim)
        factors = gamma.reshape(*gamma.shape, *further_axes)
    else:
        factors = values.per_channel(gamma, x)
    scaled = x * factors
    return scaled if beta is None else scaled + values.per_channel(beta, x)


def _eltwise(settings: Settings, *several: Numbers) -> Any:
    """Compute Eltwise: a product, a maximum, or a sum with coefficients."""
    operation = settings.word("operation", "SUM")
    factors = settings.values("coeff")
    if operation in _PRODUCT:
        return np.multiply.reduce(several)
    if operation in _MAXIMUM:
        return np.maximum.reduce(several)
    parts = [float(factor) * x for factor, x in zip(factors or [1] * len(several), several, strict=True)]
    return sum(parts[1:], parts[0])


def _power(settings: Settings, x: Numbers) -> Any:
    """Compute Power: (shift + scale * x) ** power."""
    inner = x * settings.number("scale", 1.0) + settings.number("shift", 0.0)
    return inner if settings.number("power", 1.0) == 1 else inner ** settings.number("power", 1.0)


def _axis(settings: Settings, older: str) -> int:
    """Return the axis that a layer states, under today's name or an older one; the channels' if it states
    none.
    """
    return settings.count("axis", settings.count(older, 1))


def _slice(attributes: Mapping[str, Any], x: Numbers) -> tuple[Numbers, ...]:
    """Compute Slice: cut an axis before the stated cells, or into as many equal parts as the layer gives."""
    settings = attributes["settings"]
    return tuple(
        np.split(x, settings.counts("slice_point") or attributes["gives"], _axis(settings, "slice_dim"))
    )


def _crop(settings: Settings, x: Numbers, like: Numbers) -> Any:
    """Cut `x` to the sizes of `like` from an axis on; one offset is for all these axes."""
    first = settings.count("axis", 2) % x.ndim
    offsets = settings.counts("offset") or [0]
    all_offsets = offsets if len(offsets) > 1 else offsets * (x.ndim - first)
    slices = [slice(start, start + size) for start, size in zip(all_offsets, like.shape[first:], strict=True)]
    whole_axes = [slice(None)] * first
    return x[(*whole_axes, *slices)]


def _flatten(settings: Settings, x: Numbers) -> Any:
    """Compute Flatten: the axes from `axis` to `end_axis`, both among them, become one."""
    first = settings.count("axis", 1) % x.ndim
    last = settings.count("end_axis", -1) % x.ndim
    return x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


def _reshape(settings: Settings, x: Numbers) -> Any:
    """Compute Reshape: 0 keeps a size, and -1 is left to numpy."""
    sizes = settings.counts("shape")
    return x.reshape([size or x.shape[index] for index, size in enumerate(sizes)])


def _conv(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    return windows.conv(x, kernel, bias, _grid(settings), settings.count("group", 1))


def _conv_by_channel(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    """Compute a convolution by channels, which has as many groups as the map has channels."""
    return windows.conv(x, kernel, bias, _grid(settings), x.shape[1])


def _deconv(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    return windows.conv_transpose(x, kernel, bias, _grid(settings), settings.count("group", 1))


def _inner_product(settings: Settings, x: Numbers, kernel: Numbers, bias: Numbers | None = None) -> Any:
    """Compute InnerProduct: a dense layer over all numbers of an image."""
    kernel_out_in = kernel.T if settings.flag("transpose") else kernel
    return values.dense(x.reshape(len(x), -1), kernel_out_in, bias)


def _response_norm(settings: Settings, x: Numbers) -> Any:
    """Compute LRN, across channels or within each of them."""
    size = settings.count("local_size", 5)
    alpha = settings.number("alpha", 1.0)
    beta = settings.number("beta", 0.75)
    if settings.word("norm_region") in ("WITHIN_CHANNEL", "1"):
        mean = windows.average_pool(x**2, (size, size), Grid(pads=((size - 1) // 2,) * 4), "clipped_window")
        return x * (1 + alpha * mean) ** -beta
    return values.response_norm(x, size, alpha, beta, settings.number("k", 1.0))


def _mvn(settings: Settings, x: Numbers) -> Any:
    """Compute MVN: a value less its mean, over its deviation."""
    axes = (1, 2, 3) if settings.flag("across_channels") else (2, 3)
    centred = x - x.mean(axes, keepdims=True)
    deviation = centred.std(axes, keepdims=True) + settings.number("eps", 1e-9)
    return centred / deviation if settings.flag("normalize_variance", True) else centred


def _normalize(settings: Settings, x: Numbers, scale: Numbers) -> Any:
    """Compute Normalize: `x` over its norm across channels, or across all cells too, by a scale."""
    total = (x**2).sum((1, 2, 3) if settings.flag("across_spatial", True) else 1, keepdims=True)
    return x / np.sqrt(total + settings.number("eps", 1e-10)) * scale.reshape(-1, 1, 1)


def _permute(settings: Settings, x: Numbers) -> Any:
    """Compute Permute: the axes that `order` names come first, the others follow in their order."""
    order = settings.counts("order")
    return x.transpose([*order, *sorted({*range(x.ndim)} - {*order})])


def _exp(settings: Settings, x: Numbers) -> Any:
    """Compute Exp: base ** (scale * x + shift), where a base of -1 is e."""
    inner = x * settings.number("scale", 1.0) + settings.number("shift", 0.0)
    base = settings.number("base", -1.0)
    return np.exp(inner) if base == -1 else base**inner


def _log(settings: Settings, x: Numbers) -> Any:
    """Compute Log: log(scale * x + shift) to a base, where -1 is e."""
    inner = x * settings.number("scale", 1.0) + settings.number("shift", 0.0)
    base = settings.number("base", -1.0)
    return np.log(inner) if base == -1 else np.log(inner) / np.log(base)


_ROWS: Mapping[str, Row] = {
    "Convolution": row(_conv),
    **dict.fromkeys(DEPTHWISE, row(_conv_by_channel)),
    "Deconvolution": row(_deconv),
    "Pooling": row(_pool),
    "InnerProduct": row(_inner_product),
    "BatchNorm": row(_batch_norm),
    "Scale": _scale,
    "Bias": each(lambda x, beta: x + (beta if beta.ndim == x.ndim else values.per_channel(beta, x))),
    "Eltwise": row(_eltwise),
    "Power": row(_power),
    "LRN": row(_response_norm),
    "PReLU": each(lambda x, slope: values.relu(x, slope=values.per_channel(slope, x))),
    "Concat": row(lambda settings, *several: np.concatenate(several, _axis(settings, "concat_dim"))),
    "Slice": _slice,
    "Crop": row(_crop),
    "Flatten": row(_flatten),
    "Reshape": row(_reshape),
    "Clip": row(
        lambda settings, x: np.clip(x, settings.number("min", -math.inf), settings.number("max", math.inf))
    ),
    "ReLU": row(lambda settings, x: values.relu(x, slope=settings.number("negative_slope", 0.0))),
    "ReLU6": each(lambda x: values.relu(x, 6.0)),
    "ELU": row(lambda settings, x: values.elu(x, settings.number("alpha", 1.0))),
    "Sigmoid": each(values.sigmoid),
    "TanH": each(np.tanh),
    "Threshold": row(lambda settings, x: (x > settings.number("threshold", 0.0)).astype(x.dtype)),
    "AbsVal": each(np.abs),
    "Exp": row(_exp),
    "Log": row(_log),
    "BNLL": each(lambda x: np.logaddexp(x, 0)),
    "MVN": row(_mvn),
    "Normalize": row(_normalize),
    "Permute": row(_permute),
    "Softmax": row(lambda settings, x: values.softmax(x, settings.count("axis", 1))),
}

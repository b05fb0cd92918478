"""The operations of a Keras file's graph, computed by keras.ops; each from its operands and plain
settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.json import JsonObject
from porter.formats.keras.activations import ACTIVATIONS, PARTS, ActivationRow
from porter.formats.keras.operations import COMPOSED, ELEMENTWISE
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras

OperationSettings = JsonObject
_OTHER_NAMES = {"swish": "silu", "hard_swish": "hard_silu"}
_SCALARS = (int, float, str, bool, type(None))


def operate(operation: str, operands: list[Any], settings: OperationSettings, keras_version: int) -> Any:
    """Return the value of an operation that porter.formats.keras.operations reads, of Keras's symbolic values
    and numbers.

    Raises:
        ValueError, TypeError, KeyError: a setting is an object, missing or does not fit.
    """
    if operation in _OPERATIONS:
        return _OPERATIONS[operation](operands, settings)
    return activate(operation, operands[0], settings, keras_version)


def is_operated(operation: str) -> bool:
    return operation in _OPERATIONS or operation in ACTIVATIONS.keys() | PARTS


def activate(name: str, value: Any, settings: OperationSettings, keras_version: int) -> Any:
    """Return the value of an activation; `settings` as for the operation of this name."""
    ops = import_keras().ops
    alpha = settings.get("alpha")
    match name:
        case "hard_sigmoid" if keras_version < 3:
            return ops.clip(value * _of(value, 0.2) + 0.5, 0, 1)
        case "leaky_relu":
            return rectified(value, settings.get("negative_slope", 0.2 if alpha is None else alpha))
        case "gelu" if settings.get("approximate"):
            return (
                value
                * 0.5
                * (
                    1
                    + ops.tanh(
                        (value + value * value * value * _of(value, 0.044715))
                        * _of(value, np.sqrt(2 / np.pi))
                    )
                )
            )
        case "gelu":
            return value * 0.5 * (1 + ops.erf(value * _of(value, np.sqrt(0.5))))
        case "softmax":
            return ops.softmax(value, axis=plain(settings.get("axis", -1)))
    if name not in ACTIVATIONS.keys() | PARTS:
        raise ValueError("its activation is not on porter's list")
    if isinstance(row := ACTIVATIONS.get(name), ActivationRow):
        return getattr(ops, name)(value, **row.settings(settings))
    function = getattr(ops, _OTHER_NAMES.get(name, name), None)
    return function(value) if function else import_keras().layers.Activation(name, dtype=value.dtype)(value)


def total(values: Sequence[Any]) -> Any:
    """Return the sum, each value stretched to the others'. Keras's own addition may take a value for a bias
    by its sizes, and add it along another axis (keras/src/backend/tensorflow/numpy.py, `add`); its
    subtraction does not.
    """
    ops = import_keras().ops
    return reduce(lambda first, second: ops.subtract(first, ops.negative(second)), values)


def product(equation: str, value: Any, kernel: Array, bias: Array | None = None) -> Any:
    """Return an EinsumDense, whose bias is along the last axes."""
    output = import_keras().ops.einsum(equation, value, kernel)
    return output if bias is None else total([output, bias])


def cosine(first: Any, second: Any) -> Any:
    """Keras 1's Merge by cos of features N×F, which gives N×1×1 (keras/engine/topology.py of Keras 1.2.2,
    `Merge.call`).
    """
    ops = import_keras().ops
    squares = ops.sum(first * first, 1, keepdims=True) * ops.sum(second * second, 1, keepdims=True)
    return ops.expand_dims(
        ops.sum(first * second, 1, keepdims=True) / ops.maximum(ops.sqrt(squares), 10e-8), 1
    )


def rectified(
    value: Any, slope: float = 0.0, most: float | None = None, threshold: float | None = None
) -> Any:
    """Return a ReLU with a slope below 0 and a largest value, or with a threshold. TensorFlow's own rounds
    these to float32, as it does a GELU's constants (keras/src/activations/activations.py, `ReLU`:
    tf.nn.leaky_relu, and casts of the others).
    """
    ops = import_keras().ops
    if threshold:
        return ops.where(value > _of(value, threshold), value, ops.zeros_like(value))
    above = ops.maximum(value, 0)
    if most is not None:
        above = ops.minimum(above, _of(value, most))
    return above + ops.minimum(value, 0) * _of(value, slope) if slope else above


def _of(value: Any, number: float) -> Any:
    """Return a number in the type of `value`. Keras would first round a plain one to float32."""
    return np.asarray(number, value.dtype)


def plain(value: Any) -> Any:
    """Return numbers, texts and lists of them. Keras would revive an object.

    Raises:
        ValueError: it is another thing.
    """
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    raise ValueError("an argument is an object")


def _named(name: str, *settings: str, **renamed: str) -> Callable[[list[Any], OperationSettings], Any]:
    """Return the function of keras.ops, with these settings; `renamed` has its names for those that files
    call otherwise.
    """

    def run(operands: list[Any], stated: OperationSettings) -> Any:
        names = {**{one: one for one in settings}, **renamed}
        given = {
            ours: plain(stated[theirs]) for theirs, ours in names.items() if stated.get(theirs) is not None
        }
        return getattr(import_keras().ops, name)(*operands, **given)

    return run


def _item(operands: Sequence[Any], settings: JsonObject) -> Any:
    """Return a part of a value. Its key is read anew: a mistake of porter's reader would be shared
    otherwise.
    """
    key = settings.get("slice_spec", operands[1] if len(operands) > 1 else None)
    return operands[0][tuple(map(_part, key if isinstance(key, list | tuple) else [key]))]


def _part(item: Any) -> Any:
    """Return a part of an index, as configs write it."""
    match item:
        case {"class_name": "__ellipsis__"}:
            return ...
        case {"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": step}}:
            return slice(start, stop, step)
        case {"start": start, "stop": stop, "step": step}:  # Keras 2
            return slice(start, stop, step)
    return item


def _pad(operands: list[Any], settings: OperationSettings) -> Any:
    widths = plain(settings.get("pad_width", settings.get("paddings")))
    if str(settings.get("mode", "constant")).lower() == "reflect":
        return import_keras().ops.pad(operands[0], widths, mode="reflect")
    return import_keras().ops.pad(
        operands[0], widths, constant_values=plain(settings.get("constant_values") or 0.0)
    )


def _response_norm(operands: list[Any], settings: OperationSettings) -> Any:
    """Return what tf.nn.local_response_normalization computes, which has no float64."""
    ops, x = import_keras().ops, operands[0]
    radius, channels = settings.get("depth_radius", 5), x.shape[-1]
    alpha, beta, bias = (
        plain(settings.get(name, default)) for name, default in (("alpha", 1), ("beta", 0.5), ("bias", 1))
    )
    squares = ops.pad(x * x, [[0, 0], [0, 0], [0, 0], [radius, radius]])
    total = sum(squares[..., first : first + channels] for first in range(2 * radius + 1))
    return x / (bias + alpha * total) ** beta


def _depth_to_space(operands: list[Any], settings: OperationSettings) -> Any:
    keras = import_keras()
    block = int(settings["block_size"])
    layer = keras.layers.Lambda(
        lambda x: import_tensorflow().nn.depth_to_space(x, block), dtype=operands[0].dtype
    )
    return layer(operands[0])


_OPERATIONS: Mapping[str, Callable[[list[Any], OperationSettings], Any]] = {
    **{name: _named(name) for name in (*ELEMENTWISE, "rsqrt", "log_sigmoid", "negative")},
    **{
        name: _named(name)
        for name in (
            "greater",
            "greater_equal",
            "less",
            "less_equal",
            "logical_and",
            "logical_or",
            "logical_not",
        )
    },
    "where": _named("where"),
    **{
        name: _named(name)
        for name in (*COMPOSED, "hypot", "logaddexp", "equal", "not_equal", "mod", "floor_divide")
    },
    **{name: _named(name, "threshold") for name in ("hard_shrink", "soft_shrink")},
    "threshold": _named("threshold", "threshold", "default_value"),
    **{name: _named(name, "axis", "keepdims") for name in ("amax", "amin", "min", "prod", "logsumexp")},
    "cumsum": _named("cumsum", "axis"),
    "rot90": _named("rot90", "k", "axes"),
    "tile": _named("tile", "repeats", multiples="repeats"),
    **{name: _named(name, "k") for name in ("tril", "triu")},
    **{name: _named(name) for name in ("subtract", "multiply", "true_divide", "maximum", "minimum", "power")},
    "add": lambda operands, settings: total(operands),
    "cast": lambda operands, settings: operands[0],
    "clip": _named("clip", "x_min", "x_max", clip_value_min="x_min", clip_value_max="x_max"),
    "concatenate": lambda operands, settings: import_keras().ops.concatenate(
        operands, axis=plain(settings.get("axis", -1))
    ),
    "depth_to_space": _depth_to_space,
    "einsum": lambda operands, settings: import_keras().ops.einsum(
        plain(settings.get("subscripts") or settings["equation"]), *operands
    ),
    "expand_dims": _named("expand_dims", "axis"),
    "flip": _named("flip", "axis"),
    "glu": _named("glu", "axis"),
    "normalize": _named("normalize", "axis", "order", "epsilon"),
    "var": _named("var", "axis", "keepdims"),
    "std": _named("std", "axis", "keepdims"),
    "get_item": _item,
    "identity": lambda operands, settings: operands[0],
    "local_response_normalization": _response_norm,
    "max": _named("max", "axis", "keepdims"),
    "mean": _named("mean", "axis", "keepdims"),
    "moveaxis": _named("moveaxis", "source", "destination"),
    "norm": _named("norm", "axis", "keepdims", "ord"),
    "pad": _pad,
    "matmul": _named("matmul"),
    "ones_like": _named("ones_like"),
    "repeat": _named("repeat", "repeats", "axis"),
    "reshape": _named("reshape", "newshape", shape="newshape"),
    "rms_normalization": _named("rms_normalization", "axis", "epsilon"),
    "roll": _named("roll", "shift", "axis"),
    "split": _named("split", "indices_or_sections", "axis"),
    "square": _named("square"),
    "stack": lambda operands, settings: import_keras().ops.stack(
        operands, axis=plain(settings.get("axis", 0))
    ),
    "sum": _named("sum", "axis", "keepdims"),
    "unstack": _named("unstack", "num", "axis"),
    "squeeze": _named("squeeze", "axis"),
    "swapaxes": _named("swapaxes", "axis1", "axis2"),
    "take": lambda operands, settings: import_keras().ops.take(
        operands[0], np.asarray(plain(operands[1]), np.int64), axis=plain(settings.get("axis"))
    ),
    "transpose": _named("transpose", "axes", perm="axes"),
}
"""What is run: none of it comes from the file."""

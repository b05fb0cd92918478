"""The operations of a Keras file's graph, computed by keras.ops; each from its operands and plain
settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.name_tables import JsonObject
from porter.formats.keras.activations import ACTIVATIONS, PARTS, ActivationRow
from porter.formats.keras.operations import COMPOSED, ELEMENTWISE
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras

OperationSettings = JsonObject
_OTHER_NAMES = {"swish": "silu", "hard_swish": "hard_silu"}
_SCALARS = (int, float, str, bool, type(None))


def operate(operation: str, operands: list[Any], settings: OperationSettings, keras_version: int) -> Any:
    """Run an operation that porter.formats.keras.operations reads, and return its value; a name that is no
    operation is that of an activation.

    Args:
        operation: its name, such as `concatenate`.
        operands: Keras's symbolic values, and numbers.
        settings: the arguments that the file states, by name.
        keras_version: the major version that wrote the file: Keras 1 and 2 have another hard sigmoid.

    Raises:
        ValueError, TypeError, KeyError: a setting is an object, missing or does not fit.
    """
    if operation in _OPERATIONS:
        return _OPERATIONS[operation](operands, settings)
    return activate(operation, operands[0], settings, keras_version)


def has_operation(operation: str) -> bool:
    """Say whether an operation or an activation of this name is run."""
    return operation in _OPERATIONS or operation in ACTIVATIONS.keys() | PARTS


def activate(name: str, value: Any, settings: OperationSettings, keras_version: int) -> Any:
    """Apply an activation to a value and return the result; `settings` are those of the operation of this
    name. Raise ValueError for a name that is on no list.
    """
    ops = import_keras().ops
    alpha = settings.get("alpha")
    match name:
        case "hard_sigmoid" if keras_version < 3:
            return ops.clip(value * _as_type_of(value, 0.2) + 0.5, 0, 1)
        case "leaky_relu":
            return relu(value, settings.get("negative_slope", 0.2 if alpha is None else alpha))
        case "gelu" if settings.get("approximate"):
            # By parts, because Keras rounds its constants to float32.
            half = value * 0.5
            cubic = value + value * value * value * _as_type_of(value, 0.044715)
            return half * (1 + ops.tanh(cubic * _as_type_of(value, np.sqrt(2 / np.pi))))
        case "gelu":
            return value * 0.5 * (1 + ops.erf(value * _as_type_of(value, np.sqrt(0.5))))
        case "softmax":
            return ops.softmax(value, axis=expect_plain(settings.get("axis", -1)))
    if name not in ACTIVATIONS.keys() | PARTS:
        raise ValueError("its activation is not on porter's list")
    row = ACTIVATIONS.get(name)
    if isinstance(row, ActivationRow):
        return getattr(ops, name)(value, **row.settings(settings))
    function = getattr(ops, _OTHER_NAMES.get(name, name), None)
    if function is not None:
        return function(value)
    # Names that keras.ops lacks are activations of Keras's.
    return import_keras().layers.Activation(name, dtype=value.dtype)(value)


def sum_stretched(values: Sequence[Any]) -> Any:
    """Add the values, each stretched to the others' shapes. Keras's own addition may take a value for a bias
    by its sizes, and add it along another axis (keras/src/backend/tensorflow/numpy.py, `add`); its
    subtraction does not.
    """
    ops = import_keras().ops
    return reduce(lambda first, second: ops.subtract(first, ops.negative(second)), values)


def einsum_dense(equation: str, value: Any, kernel: Array, bias: Array | None = None) -> Any:
    """Compute what an EinsumDense layer computes; its bias is along the last axes, and `sum_stretched` adds
    it.
    """
    output = import_keras().ops.einsum(equation, value, kernel)
    return output if bias is None else sum_stretched([output, bias])


def cosine(first: Any, second: Any) -> Any:
    """Compute Keras 1's Merge by cos of features N×F, which gives N×1×1 (keras/engine/topology.py of Keras
    1.2.2, `Merge.call`).
    """
    ops = import_keras().ops

    def dot(left: Any, right: Any) -> Any:
        return ops.sum(left * right, 1, keepdims=True)

    lengths = ops.sqrt(dot(first, first) * dot(second, second))
    # 10e-8 is Keras 1's epsilon.
    return ops.expand_dims(dot(first, second) / ops.maximum(lengths, 10e-8), 1)


def relu(
    value: Any, slope: float = 0.0, max_value: float | None = None, threshold: float | None = None
) -> Any:
    """Compute a ReLU with a slope below 0 and a largest value, or one that gives 0 up to a threshold.
    TensorFlow's own rounds these numbers to float32, as it does a GELU's constants
    (keras/src/activations/activations.py, `ReLU`: tf.nn.leaky_relu, and casts of the others).
    """
    ops = import_keras().ops
    if threshold:
        return ops.where(value > _as_type_of(value, threshold), value, ops.zeros_like(value))
    positive = ops.maximum(value, 0)
    if max_value is not None:
        positive = ops.minimum(positive, _as_type_of(value, max_value))
    return positive + ops.minimum(value, 0) * _as_type_of(value, slope) if slope else positive


def _as_type_of(value: Any, number: float) -> Any:
    """Return a number in the type of `value`. Keras would first round a plain number to float32."""
    return np.asarray(number, value.dtype)


def expect_plain(value: Any) -> Any:
    """Return the value if it is a number, a text, None or a list of such. An object is refused, because Keras
    would revive it.

    Raises:
        ValueError: it is another thing.
    """
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, list | tuple):
        return type(value)(expect_plain(item) for item in value)
    raise ValueError("an argument is an object")


def _keras_function(
    name: str, *settings: str, **renamed: str
) -> Callable[[list[Any], OperationSettings], Any]:
    """Return a row of _OPERATIONS that calls the function `name` of keras.ops.

    Args:
        settings: arguments that it is called with where the file states them.
        renamed: the names of further ones in keras.ops by those in files: `perm="axes"`.
    """

    def run(operands: list[Any], stated: OperationSettings) -> Any:
        """Call the function on the operands, with those of the settings that the file states."""
        # the name in keras.ops by the name in the file
        names = {**{setting: setting for setting in settings}, **renamed}
        arguments = {
            keras_name: expect_plain(stated[stated_name])
            for stated_name, keras_name in names.items()
            if stated.get(stated_name) is not None
        }
        return getattr(import_keras().ops, name)(*operands, **arguments)

    return run


def _get_item(operands: Sequence[Any], settings: JsonObject) -> Any:
    """Return a part of a value, `x[:, 0]`. The key, an operand or the setting `slice_spec` of Keras 2, is
    decoded anew, because a mistake of porter's reader would be shared otherwise.
    """
    key = settings.get("slice_spec", operands[1] if len(operands) > 1 else None)
    items = key if isinstance(key, list | tuple) else [key]
    return operands[0][tuple(map(_index_of, items))]


def _index_of(item: Any) -> Any:
    """Return one entry of an index as Python has it (a slice, `...` or a number), from its form in a
    config.
    """
    match item:
        case {"class_name": "__ellipsis__"}:
            return ...
        case {"class_name": "__slice__", "config": {"start": start, "stop": stop, "step": step}}:
            return slice(start, stop, step)
        case {"start": start, "stop": stop, "step": step}:  # Keras 2
            return slice(start, stop, step)
    return item


def _pad(operands: list[Any], settings: OperationSettings) -> Any:
    """Pad a value with a constant, or by reflection, by the settings of keras.ops.pad or of tf.pad."""
    ops = import_keras().ops
    widths = expect_plain(settings.get("pad_width", settings.get("paddings")))
    if str(settings.get("mode", "constant")).lower() == "reflect":
        return ops.pad(operands[0], widths, mode="reflect")
    fill = expect_plain(settings.get("constant_values") or 0.0)
    return ops.pad(operands[0], widths, constant_values=fill)


def _response_norm(operands: list[Any], settings: OperationSettings) -> Any:
    """Compute tf.nn.local_response_normalization by keras.ops, because TensorFlow's has no float64: each
    number is divided by (bias + alpha * sum of squares in the channels around it) ** beta.
    """
    ops, x = import_keras().ops, operands[0]
    radius, channels = settings.get("depth_radius", 5), x.shape[-1]
    alpha, beta, bias = (
        expect_plain(settings.get(name, default))
        for name, default in (("alpha", 1), ("beta", 0.5), ("bias", 1))
    )
    squares = ops.pad(x * x, [[0, 0], [0, 0], [0, 0], [radius, radius]])
    # The channels up to the radius away, by shifted copies.
    total = sum(squares[..., first : first + channels] for first in range(2 * radius + 1))
    return x / (bias + alpha * total) ** beta


def _depth_to_space(operands: list[Any], settings: OperationSettings) -> Any:
    """Run TensorFlow's depth_to_space as a layer of Keras, which can be called on symbolic values."""
    keras = import_keras()
    block = int(settings["block_size"])
    layer = keras.layers.Lambda(
        lambda x: import_tensorflow().nn.depth_to_space(x, block), dtype=operands[0].dtype
    )
    return layer(operands[0])


_OPERATIONS: Mapping[str, Callable[[list[Any], OperationSettings], Any]] = {
    **{name: _keras_function(name) for name in (*ELEMENTWISE, "rsqrt", "log_sigmoid", "negative")},
    **{
        name: _keras_function(name)
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
    "where": _keras_function("where"),
    **{
        name: _keras_function(name)
        for name in (*COMPOSED, "hypot", "logaddexp", "equal", "not_equal", "mod", "floor_divide")
    },
    **{name: _keras_function(name, "threshold") for name in ("hard_shrink", "soft_shrink")},
    "threshold": _keras_function("threshold", "threshold", "default_value"),
    **{
        name: _keras_function(name, "axis", "keepdims")
        for name in ("amax", "amin", "min", "prod", "logsumexp")
    },
    "cumsum": _keras_function("cumsum", "axis"),
    "rot90": _keras_function("rot90", "k", "axes"),
    "tile": _keras_function("tile", "repeats", multiples="repeats"),
    **{name: _keras_function(name, "k") for name in ("tril", "triu")},
    **{
        name: _keras_function(name)
        for name in ("subtract", "multiply", "true_divide", "maximum", "minimum", "power")
    },
    "add": lambda operands, settings: sum_stretched(operands),
    "cast": lambda operands, settings: operands[0],
    "clip": _keras_function("clip", "x_min", "x_max", clip_value_min="x_min", clip_value_max="x_max"),
    "concatenate": lambda operands, settings: import_keras().ops.concatenate(
        operands, axis=expect_plain(settings.get("axis", -1))
    ),
    "depth_to_space": _depth_to_space,
    "einsum": lambda operands, settings: import_keras().ops.einsum(
        expect_plain(settings.get("subscripts") or settings["equation"]), *operands
    ),
    "expand_dims": _keras_function("expand_dims", "axis"),
    "flip": _keras_function("flip", "axis"),
    "glu": _keras_function("glu", "axis"),
    "normalize": _keras_function("normalize", "axis", "order", "epsilon"),
    "var": _keras_function("var", "axis", "keepdims"),
    "std": _keras_function("std", "axis", "keepdims"),
    "get_item": _get_item,
    "identity": lambda operands, settings: operands[0],
    "local_response_normalization": _response_norm,
    "max": _keras_function("max", "axis", "keepdims"),
    "mean": _keras_function("mean", "axis", "keepdims"),
    "moveaxis": _keras_function("moveaxis", "source", "destination"),
    "norm": _keras_function("norm", "axis", "keepdims", "ord"),
    "pad": _pad,
    "matmul": _keras_function("matmul"),
    "ones_like": _keras_function("ones_like"),
    "repeat": _keras_function("repeat", "repeats", "axis"),
    "reshape": _keras_function("reshape", "newshape", shape="newshape"),
    "rms_normalization": _keras_function("rms_normalization", "axis", "epsilon"),
    "roll": _keras_function("roll", "shift", "axis"),
    "split": _keras_function("split", "indices_or_sections", "axis"),
    "square": _keras_function("square"),
    "stack": lambda operands, settings: import_keras().ops.stack(
        operands, axis=expect_plain(settings.get("axis", 0))
    ),
    "sum": _keras_function("sum", "axis", "keepdims"),
    "unstack": _keras_function("unstack", "num", "axis"),
    "squeeze": _keras_function("squeeze", "axis"),
    "swapaxes": _keras_function("swapaxes", "axis1", "axis2"),
    "take": lambda operands, settings: import_keras().ops.take(
        operands[0], np.asarray(expect_plain(operands[1]), np.int64), axis=expect_plain(settings.get("axis"))
    ),
    "transpose": _keras_function("transpose", "axes", perm="axes"),
}
"""What is run: none of it comes from the file."""

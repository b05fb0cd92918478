"""Constant scalings inside a model: Rescaling, Normalization, and the arithmetic that `preprocess_input` leaves there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.dtypes import Array
from porter.filegraph.file_graph import Foreign, OutputActivation
from porter.formats.keras.flow import Call, Value, values_in
from porter.formats.keras.versions import FUNCTIONS, OPERATION, OPERATIONS
from porter.graph import Add, Affine, GlobalAvgPool, GlobalMaxPool, Op, Relu, Relu6

_MOST_CHANNELS = 1 << 16
_LEAST_DEVIATION = 1e-7
"""keras.config.epsilon(), Normalization's lower bound of a deviation."""

ARITHMETIC = frozenset({"add", "subtract", "multiply", "true_divide"})
_OPERANDS = ("x", "x1", "inputs", "y", "x2")


def operation_of(call: Call) -> str | None:
    """The name in keras.ops of the operation that is called; None for a layer, or an operation that porter does not know."""
    if call.kind == "TFOpLambda":
        return FUNCTIONS.get(str(call.arguments.get("function")))
    return OPERATIONS.get(call.kind.removeprefix(OPERATION)) if call.kind.startswith(OPERATION) else None


def operands_of(call: Call) -> list[Any]:
    """The operands of an operation, in order: values and constants."""
    keywords = call.given.keywords
    return [*call.given.arguments, *(keywords[name] for name in _OPERANDS if name in keywords)]


def operation_step(operation: str, call: Call) -> Op | OutputActivation | Foreign | None:
    """The step that an operation computes; None where it gives its input back."""
    operands = operands_of(call)
    settings = {**call.arguments, **call.given.keywords}
    if operation in ARITHMETIC and len(operands) == 2:
        if all(isinstance(operand, Value) for operand in operands):
            return Add() if operation == "add" else Foreign(f"{operation} of two values")
        affine = _arithmetic(operation, operands)
        return affine or Foreign(f"{operation} by something that is not one number per channel")
    steps: dict[str, Op | OutputActivation] = {"relu": Relu(), "relu6": Relu6(), "sigmoid": OutputActivation("sigmoid")}
    if operation in steps:
        return steps[operation]
    axis = settings.get("axis", -1)
    if operation == "softmax" and axis in (-1, None):
        return OutputActivation("softmax")
    if operation in ("mean", "max") and _are_rows_and_columns(_list(axis)):
        return GlobalAvgPool() if operation == "mean" else GlobalMaxPool()
    if operation == "cast" and str(settings.get("dtype")).startswith(("float", "bfloat")):
        return None
    return Foreign(f"{operation} with {axis!r:.40}" if operation in ("softmax", "mean", "max") else operation)


def _are_rows_and_columns(axes: Sequence[Any]) -> bool:
    """Whether these axes of N x rows x columns x channels, counted from either end, are rows and columns."""
    return all(type(axis) is int for axis in axes) and {axis % 4 for axis in axes} == {1, 2}


def keeps_dimensions(call: Call) -> bool:
    """Whether a mean or maximum over rows and columns leaves them at 1."""
    return bool({**call.arguments, **call.given.keywords}.get("keepdims"))


def constant(value: Any) -> NDArray[np.float64] | None:
    """A number, or one number per channel, as a vector; None where `value` is neither."""
    if isinstance(value, dict) and value.get("class_name") in ("__numpy__", "__tensor__"):
        value = value["config"]["value"]
    if isinstance(value, bool) or not isinstance(value, int | float | list | tuple):
        return None
    if values_in(value):
        return None
    try:
        array = np.asarray(value, np.float64)
    except (ValueError, TypeError):
        return None
    fits = array.size and array.size <= _MOST_CHANNELS and array.size == (array.shape[-1] if array.ndim else 1)
    return array.reshape(-1) if fits and np.isfinite(array).all() else None


def rescaling(arguments: Mapping[str, Any]) -> Affine | Foreign:
    """Rescaling: x * scale + offset."""
    scale, offset = constant(arguments["scale"]), constant(arguments.get("offset", 0.0))
    if scale is None or offset is None:
        return Foreign("Rescaling by something that is not one number per channel")
    return _affine(scale, offset) or Foreign("Rescaling by numbers of two lengths")


def normalization(arguments: Mapping[str, Any], flat: bool, variables: Mapping[str, Array]) -> Affine | Foreign:
    """Normalization. Its mean and variance are in the config, or in the weights if it was adapted to data.

    x becomes (x - mean) / max(sqrt(variance), 1e-7), or the inverse (keras/src/layers/preprocessing/normalization.py, call).
    """
    axis = _list(arguments.get("axis", -1))
    if len(axis) > 1 or (axis and axis[0] not in (-1, 1 if flat else 3)):
        return Foreign(f"Normalization over the axes {axis!r:.40}")
    found = statistics(arguments, variables)
    if found is None:
        return Foreign("Normalization without one mean and variance per channel")
    mean, variance = found
    deviation = np.maximum(np.sqrt(variance), _LEAST_DEVIATION)
    affine = _affine(deviation, mean) if arguments.get("invert") else _affine(1 / deviation, -mean / deviation)
    return affine or Foreign("Normalization by numbers of two lengths")


def statistics(
    arguments: Mapping[str, Any], variables: Mapping[str, Array]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Mean and variance of a Normalization, of the same length; None where they are missing, or not one per channel."""
    stated = arguments.get("mean"), arguments.get("variance")
    stored = variables.get("mean"), variables.get("variance")
    pair = stated if stated[0] is not None else tuple(None if one is None else one.astype(np.float64).tolist() for one in stored)
    mean, variance = (constant(one) for one in pair)
    if mean is None or variance is None or (variance < 0).any() or not _same_length(mean, variance):
        return None
    mean, variance = np.broadcast_arrays(mean, variance)
    return mean, variance


def _arithmetic(operation: str, operands: Sequence[Any]) -> Affine | None:
    first, second = operands
    number = constant(second if isinstance(first, Value) else first)
    if number is None:
        return None
    one, none = np.ones(1), np.zeros(1)
    if operation == "add":
        return _affine(one, number)
    if operation == "multiply":
        return _affine(number, none)
    if operation == "subtract":
        return _affine(one, -number) if isinstance(first, Value) else _affine(-one, number)
    # A number divided by x is no scaling.
    return _affine(1 / number, none) if isinstance(first, Value) and number.all() else None


def _affine(scale: NDArray[np.float64], offset: NDArray[np.float64]) -> Affine | None:
    if not _same_length(scale, offset):
        return None
    scale, offset = np.broadcast_arrays(scale, offset)
    return Affine(tuple(map(float, scale)), tuple(map(float, offset + 0.0)))


def _same_length(*vectors: NDArray[np.float64]) -> bool:
    return len({len(vector) for vector in vectors} - {1}) <= 1


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]

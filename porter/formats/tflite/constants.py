"""What numpy computes from the constants of a TensorFlow Lite model, and from sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from porter.filegraph.dataflow import MOST_OF_SIZES, Evaluator
from porter.filegraph.dims import Numbers, as_real, as_whole
from porter.filegraph.tensorflow import MASKS, numbers_from, sliced, strided
from porter.formats.tflite.model import Operator

_KINDS: Mapping[str, str] = {
    "ADD_N": "Add",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "LOGISTIC": "Sigmoid",
    "SELECT": "Where",
    "SELECT_V2": "Where",
    "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2dNative",
    "PRELU": "PRelu",
    "MAX_POOL_2D": "MaxPool",
    "AVERAGE_POOL_2D": "AvgPool",
    "SPACE_TO_BATCH_ND": "SpaceToBatchND",
    "BATCH_TO_SPACE_ND": "BatchToSpaceND",
    "WHERE": "Where of places",
}
RESHAPES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})


def kind(operator: Operator) -> str:
    """An operator as patterns name it, mostly as the schema does: SquaredDifference for
    SQUARED_DIFFERENCE.
    """
    if operator.op == "MEAN":
        return "Mean" if operator.scalar(0, "B") else "Mean of fewer axes"
    return _KINDS.get(operator.op) or operator.op.title().replace("_", "")


def is_cast(operator: Operator) -> bool:
    return operator.op == "CAST" and operator.scalar(1, "b") == 0


def index_of(node: Operator, rank: int, bounds: Sequence[Any]) -> tuple[slice | int | None, ...]:
    numbers = [np.asarray(each).ravel().tolist() for each in bounds]
    if node.op == "SLICE":
        return tuple(sliced(*numbers))
    return tuple(strided({name: node.scalar(field, "i") for field, name in enumerate(MASKS)}, rank, *numbers))


def stated_numbers(node: Operator) -> list[int]:
    """The sizes of a RESHAPE, or the places of a SQUEEZE."""
    return node.options.numbers(0, "i4").tolist() if node.options is not None else []


def _full(node: Operator, sizes: Numbers, number: Numbers) -> Numbers:
    if math.prod(sizes.ravel().tolist()) > MOST_OF_SIZES:
        raise ValueError("more numbers than a model states")
    return np.full(sizes.ravel().tolist(), number)


EVALUATORS: Mapping[str, Evaluator] = {
    "CAST": lambda node, value: as_real(value) if is_cast(node) else as_whole(value),
    "CONCATENATION": lambda node, *values: np.concatenate(values, node.scalar(0, "i")),
    "EXPAND_DIMS": lambda node, value, axis: np.expand_dims(value, int(axis.item())),
    "FILL": _full,
    "GATHER": lambda node, value, places: value.take(
        places.reshape(-1)[:64].reshape(places.shape), node.scalar(0, "i")
    ),
    "PACK": lambda node, *values: np.stack(values, node.scalar(1, "i")),
    "RANGE": lambda node, *numbers: numbers_from(*numbers),
    "RELU": lambda node, value: np.maximum(value, 0),
    "REVERSE_V2": lambda node, value, axes: np.flip(value, axes.ravel().tolist()),
    "REDUCE_PROD": lambda node, value, axes: np.prod(
        value, tuple(axes.ravel().tolist()), keepdims=bool(node.scalar(0, "B"))
    ),
    "RESHAPE": lambda node, value, sizes=None: value.reshape(
        stated_numbers(node) if sizes is None else sizes.ravel().tolist()
    ),
    "SHAPE": lambda node, value: np.asarray(value.shape),
    "SPLIT": lambda node, axis, value: np.split(value, len(node.gives), int(axis.item())),
    **dict.fromkeys(
        ("SLICE", "STRIDED_SLICE"), lambda node, value, *bounds: value[index_of(node, value.ndim, bounds)]
    ),
    "SQUEEZE": lambda node, value: np.squeeze(value, tuple(stated_numbers(node)) or None),
    "TRANSPOSE": lambda node, value, order: value.transpose(order.ravel().tolist()),
}

"""What numpy computes from the constants of a TensorFlow Lite model, and from sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from porter.filegraph.tensorflow import MASKS, slice_index, strided_slice_index
from porter.formats.tflite import schema
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


def kind_of(operator: Operator) -> str:
    """Return an operator under the name that porter's patterns use, mostly the schema's in another spelling:
    SquaredDifference for SQUARED_DIFFERENCE. A mean that drops its axes has a name that no pattern has.
    """
    if operator.op == "MEAN":
        return "Mean" if operator.option(schema.KEEP_DIMS) else "Mean of fewer axes"
    return _KINDS.get(operator.op) or operator.op.title().replace("_", "")


def is_cast(operator: Operator) -> bool:
    """Return whether an operator is a CAST to float32."""
    return operator.op == "CAST" and operator.option(schema.CAST_TO) == schema.FLOAT32


def read_index(node: Operator, rank: int, bounds: Sequence[Any]) -> tuple[slice | int | None, ...]:
    """Return the index by which a SLICE or a STRIDED_SLICE takes a part of a value, as numpy takes it.

    Args:
        rank: how many axes the value has.
        bounds: the further tensors that the operator reads: begins and sizes, or begins, ends and steps.
    """
    numbers = [np.asarray(tensor).ravel().tolist() for tensor in bounds]
    if node.op == "SLICE":
        return tuple(slice_index(*numbers))
    masks = dict(zip(MASKS, map(node.option, schema.SLICE_MASKS), strict=True))
    return tuple(strided_slice_index(masks, rank, *numbers))

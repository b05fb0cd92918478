"""The operations of Keras that porter's ports have: the class that a function of `keras.ops` calls, and what
it takes.

A saved model has the class by the module in which Keras defines it, because it is not a public name
(keras/src/saving/ serialization_lib.py, serialize_keras_object).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.formats.keras.activations import ACTIVATIONS, ActivationRow
from porter.formats.keras.operations import ELEMENTWISE


@dataclass(frozen=True)
class OperationClass:
    """A class of operations.

    Attributes:
        operands: how many values it is called with, by place.
        parameters: arguments of the class, in the function's order after the operands.
        options: what it is called with by name, unless the function is given another.
    """

    package: str
    kind: str
    operands: int = 1
    parameters: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return f"keras.src.ops.{self.package}"


_REDUCTION_PARAMETERS = ("axis", "keepdims")
OPERATIONS: Mapping[str, OperationClass] = {
    **{
        name: OperationClass("numpy", name.capitalize())
        for name in (*ELEMENTWISE, "negative", "square", "tanh")
    },
    **{
        name: OperationClass("numpy", name.capitalize(), 2)
        for name in (
            "add",
            "divide",
            "equal",
            "greater",
            "matmul",
            "maximum",
            "minimum",
            "multiply",
            "power",
            "subtract",
        )
    },
    **{
        name: OperationClass("numpy", name.capitalize(), 1, _REDUCTION_PARAMETERS)
        for name in ("max", "mean", "sum")
    },
    **{
        name: OperationClass("nn", name.capitalize(), 1, tuple(own for own, _ in row.attributes.values()))
        for name, row in ACTIVATIONS.items()
        if isinstance(row, ActivationRow)
    },
    "cast": OperationClass("core", "Cast", 1, ("dtype",)),
    "clip": OperationClass("numpy", "Clip", 1, ("x_min", "x_max")),
    "cumsum": OperationClass("numpy", "Cumsum"),
    "depth_to_space": OperationClass("nn", "DepthToSpace", 1, ("block_size", "data_format")),
    "erf": OperationClass("math", "Erf"),
    "gelu": OperationClass("nn", "Gelu", 1, ("approximate",)),
    "greater_equal": OperationClass("numpy", "GreaterEqual", 2),
    "getitem": OperationClass("numpy", "GetItem", 2),
    "norm": OperationClass("linalg", "Norm", 1, _REDUCTION_PARAMETERS),
    "ones_like": OperationClass("numpy", "OnesLike"),
    "pad": OperationClass("numpy", "Pad", 1, ("pad_width", "mode")),
    "repeat": OperationClass("numpy", "Repeat", 1, ("repeats", "axis")),
    "reshape": OperationClass("numpy", "Reshape", 1, ("newshape",)),
    # Its call has to be given a scale.
    "rms_normalization": OperationClass("nn", "RMSNorm", 1, ("axis", "epsilon"), {"scale": None}),
    "swapaxes": OperationClass("numpy", "Swapaxes", 1, ("axis1", "axis2")),
    "take": OperationClass("numpy", "Take", 2, ("axis",)),
    "where": OperationClass("numpy", "Where", 3),
    "zeros_like": OperationClass("numpy", "ZerosLike"),
}
"""The operations by the name of the function in `keras.ops`, and `getitem` for a part of a value."""

SINCE: Mapping[str, str] = {
    "RMSNormalization": "3.9",
    "RMSNorm": "3.9",
    "DepthToSpace": "3.14",
    "Celu": "3.7",
}
"""The version of Keras that first had a class, of those that 3.5 lacks."""

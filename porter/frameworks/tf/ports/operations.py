"""The operations of Keras that porter's ports have: the class that a function of `keras.ops` calls, and what
it takes.

A saved model has the class by the module in which Keras defines it, because it is not a public name
(keras/src/saving/ serialization_lib.py, serialize_keras_object).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.formats.keras.activations import ACTIVATIONS, Row
from porter.formats.keras.operations import OF_NUMBERS


@dataclass(frozen=True)
class Operation:
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


_REDUCED = ("axis", "keepdims")
OPERATIONS: Mapping[str, Operation] = {
    **{name: Operation("numpy", name.capitalize()) for name in (*OF_NUMBERS, "negative", "square", "tanh")},
    **{
        name: Operation("numpy", name.capitalize(), 2)
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
    **{name: Operation("numpy", name.capitalize(), 1, _REDUCED) for name in ("max", "mean", "sum")},
    **{
        name: Operation("nn", name.capitalize(), 1, tuple(own for own, _ in row.attributes.values()))
        for name, row in ACTIVATIONS.items()
        if isinstance(row, Row)
    },
    "cast": Operation("core", "Cast", 1, ("dtype",)),
    "clip": Operation("numpy", "Clip", 1, ("x_min", "x_max")),
    "cumsum": Operation("numpy", "Cumsum"),
    "depth_to_space": Operation("nn", "DepthToSpace", 1, ("block_size", "data_format")),
    "erf": Operation("math", "Erf"),
    "gelu": Operation("nn", "Gelu", 1, ("approximate",)),
    "greater_equal": Operation("numpy", "GreaterEqual", 2),
    "getitem": Operation("numpy", "GetItem", 2),
    "norm": Operation("linalg", "Norm", 1, _REDUCED),
    "ones_like": Operation("numpy", "OnesLike"),
    "pad": Operation("numpy", "Pad", 1, ("pad_width", "mode")),
    "repeat": Operation("numpy", "Repeat", 1, ("repeats", "axis")),
    "reshape": Operation("numpy", "Reshape", 1, ("newshape",)),
    # Its call wants one.
    "rms_normalization": Operation("nn", "RMSNorm", 1, ("axis", "epsilon"), {"scale": None}),
    "swapaxes": Operation("numpy", "Swapaxes", 1, ("axis1", "axis2")),
    "take": Operation("numpy", "Take", 2, ("axis",)),
    "where": Operation("numpy", "Where", 3),
    "zeros_like": Operation("numpy", "ZerosLike"),
}
"""By the name of the function in `keras.ops`, and `getitem` for a part of a value."""

SINCE: Mapping[str, str] = {
    "RMSNormalization": "3.9",
    "RMSNorm": "3.9",
    "DepthToSpace": "3.14",
    "Celu": "3.7",
}
"""The version of Keras that first had a class, of those that 3.5 lacks."""

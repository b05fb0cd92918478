"""ATen's ops of one value that are one op of porter's, with torch.nn's class: the destination takes the
reader's rows backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from porter.formats.torch_export.nodes import AtenNode
from porter.graph import Op, ops


@dataclass(frozen=True)
class AtenRow:
    """An op of ATen's.

    Attributes:
        op: the class of porter's op.
        kind: torch.nn's class, or torch's function.
        attributes: torch's name and default of each attribute, by porter's name.
    """

    op: type[Any]
    kind: str
    attributes: Mapping[str, tuple[str, float]]

    def read(self, node: AtenNode) -> Op:
        """Return porter's op with the attributes that a node states, or torch's defaults for them."""
        attributes = {
            name: float(node.arguments.get(torch_name, default))
            for name, (torch_name, default) in self.attributes.items()
        }
        op: Op = self.op(**attributes)
        return op

    def write(self, op: Op) -> dict[str, float]:
        """Return the arguments of torch's class or function for porter's op."""
        return {torch_name: getattr(op, name) for name, (torch_name, _) in self.attributes.items()}


def _row(op: type[Any], kind: str, **attributes: tuple[str, float]) -> AtenRow:
    return AtenRow(op, kind, attributes)


PLAIN: Mapping[str, AtenRow] = {
    "abs": _row(ops.Abs, "abs"),
    "ceil": _row(ops.Ceil, "ceil"),
    "celu": _row(ops.Celu, "CELU", alpha=("alpha", 1.0)),
    "cos": _row(ops.Cos, "cos"),
    "erf": _row(ops.Erf, "erf"),
    "exp": _row(ops.Exp, "exp"),
    "floor": _row(ops.Floor, "floor"),
    "hardswish": _row(ops.HardSwish, "Hardswish"),
    "leaky_relu": _row(ops.LeakyRelu, "LeakyReLU", slope=("negative_slope", 0.01)),
    "log": _row(ops.Log, "log"),
    "mish": _row(ops.Mish, "Mish"),
    "reciprocal": _row(ops.Reciprocal, "reciprocal"),
    "relu": _row(ops.Relu, "ReLU"),
    "relu6": _row(ops.Relu6, "ReLU6"),
    "round": _row(ops.Round, "round"),
    "selu": _row(ops.Selu, "SELU"),
    "sigmoid": _row(ops.Sigmoid, "Sigmoid"),
    "sign": _row(ops.Sign, "sign"),
    "silu": _row(ops.Swish, "SiLU"),
    "sin": _row(ops.Sin, "sin"),
    "sqrt": _row(ops.Sqrt, "sqrt"),
    "tanh": _row(ops.Tanh, "Tanh"),
}

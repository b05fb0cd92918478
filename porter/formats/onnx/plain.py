"""ONNX's operators of one value that are one op of porter's: the destination takes the reader's rows
backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from porter.formats.onnx.nodes import OnnxNode
from porter.graph import Op, ops


@dataclass(frozen=True)
class OnnxRow:
    """An operator's op, and of each of its attributes ONNX's name and default."""

    op: type[Any]
    attributes: Mapping[str, tuple[str, float]]

    def read(self, node: OnnxNode) -> Op:
        """Return the op of a node."""
        op: Op = self.op(
            **{name: node.real(*name_and_default) for name, name_and_default in self.attributes.items()}
        )
        return op

    def write(self, op: Op) -> dict[str, float]:
        """Return the attributes of the operator for an op."""
        return {onnx_name: float(getattr(op, name)) for name, (onnx_name, _) in self.attributes.items()}


def _row(op: type[Any], **attributes: tuple[str, float]) -> OnnxRow:
    return OnnxRow(op, attributes)


PLAIN: Mapping[str, OnnxRow] = {
    "Abs": _row(ops.Abs),
    "Ceil": _row(ops.Ceil),
    "Celu": _row(ops.Celu, alpha=("alpha", 1.0)),
    "Cos": _row(ops.Cos),
    "Elu": _row(ops.Elu, alpha=("alpha", 1.0)),
    "Erf": _row(ops.Erf),
    "Exp": _row(ops.Exp),
    "Floor": _row(ops.Floor),
    "HardSigmoid": _row(ops.HardSigmoid, slope=("alpha", 0.2), offset=("beta", 0.5)),
    "HardSwish": _row(ops.HardSwish),
    "LeakyRelu": _row(ops.LeakyRelu, slope=("alpha", 0.01)),
    "Log": _row(ops.Log),
    "Mish": _row(ops.Mish),
    "Reciprocal": _row(ops.Reciprocal),
    "Relu": _row(ops.Relu),
    "Round": _row(ops.Round),
    "Selu": _row(ops.Selu),
    "Sigmoid": _row(ops.Sigmoid),
    "Sign": _row(ops.Sign),
    "Sin": _row(ops.Sin),
    "Softplus": _row(ops.Softplus),
    "Softsign": _row(ops.Softsign),
    "Sqrt": _row(ops.Sqrt),
    "Tanh": _row(ops.Tanh),
    "ThresholdedRelu": _row(ops.ThresholdedRelu, threshold=("alpha", 1.0)),
}

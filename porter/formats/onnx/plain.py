"""ONNX's operators of one value that are one op of porter's: the destination takes the reader's rows backwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from porter.formats.onnx.nodes import OnnxNode
from porter.graph import (
    Celu,
    Elu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Op,
    Relu,
    Selu,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)


@dataclass(frozen=True)
class Row:
    """An operator's op, and of each of its attributes ONNX's name and default."""

    op: type[Any]
    attributes: Mapping[str, tuple[str, float]]

    def read(self, node: OnnxNode) -> Op:
        found: Op = self.op(**{name: node.real(*stated) for name, stated in self.attributes.items()})
        return found

    def write(self, op: Op) -> dict[str, float]:
        """The attributes of the operator."""
        return {stated: float(getattr(op, name)) for name, (stated, _) in self.attributes.items()}


def _row(op: type[Any], **attributes: tuple[str, float]) -> Row:
    return Row(op, attributes)


PLAIN: Mapping[str, Row] = {
    "Celu": _row(Celu, alpha=("alpha", 1.0)),
    "Elu": _row(Elu, alpha=("alpha", 1.0)),
    "HardSigmoid": _row(HardSigmoid, slope=("alpha", 0.2), offset=("beta", 0.5)),
    "HardSwish": _row(HardSwish),
    "LeakyRelu": _row(LeakyRelu, slope=("alpha", 0.01)),
    "Mish": _row(Mish),
    "Relu": _row(Relu),
    "Selu": _row(Selu),
    "Sigmoid": _row(Sigmoid),
    "Softplus": _row(Softplus),
    "Softsign": _row(Softsign),
    "Tanh": _row(Tanh),
    "ThresholdedRelu": _row(ThresholdedRelu, threshold=("alpha", 1.0)),
}

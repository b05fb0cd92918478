"""ATen's ops of one value that are one op of porter's, with torch.nn's class: the destination takes the reader's rows backwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from porter.formats.torch_export.nodes import AtenNode
from porter.graph import Celu, HardSwish, LeakyRelu, Mish, Op, Relu, Relu6, Selu, Sigmoid, Swish, Tanh


@dataclass(frozen=True)
class Row:
    """An op's op and its class, and of each attribute torch's name, which both have, and default."""

    op: type[Any]
    kind: str
    attributes: Mapping[str, tuple[str, float]]

    def read(self, node: AtenNode) -> Op:
        stated = {name: float(node.arguments.get(*own)) for name, own in self.attributes.items()}
        found: Op = self.op(**stated)
        return found

    def write(self, op: Op) -> dict[str, float]:
        """The arguments of the class."""
        return {own: getattr(op, name) for name, (own, _) in self.attributes.items()}


def _row(op: type[Any], kind: str, **attributes: tuple[str, float]) -> Row:
    return Row(op, kind, attributes)


PLAIN: Mapping[str, Row] = {
    "celu": _row(Celu, "CELU", alpha=("alpha", 1.0)),
    "hardswish": _row(HardSwish, "Hardswish"),
    "leaky_relu": _row(LeakyRelu, "LeakyReLU", slope=("negative_slope", 0.01)),
    "mish": _row(Mish, "Mish"),
    "relu": _row(Relu, "ReLU"),
    "relu6": _row(Relu6, "ReLU6"),
    "selu": _row(Selu, "SELU"),
    "sigmoid": _row(Sigmoid, "Sigmoid"),
    "silu": _row(Swish, "SiLU"),
    "tanh": _row(Tanh, "Tanh"),
}

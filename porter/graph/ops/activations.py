"""Activations: one value from one value, or from those of its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.errors import GraphError
from porter.graph.ops.op import KeepsSign, NeverNegative, Number, Op, Shape, Tensors


@dataclass(frozen=True)
class Relu(NeverNegative):
    """max(x, 0)."""

    name = "relu"


@dataclass(frozen=True)
class Relu6(NeverNegative):
    """min(max(x, 0), 6)."""

    name = "relu6"


@dataclass(frozen=True)
class ThresholdedRelu(Op):
    """x where x > threshold, otherwise 0."""

    name = "thresholded_relu"
    threshold: Number

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return self.threshold >= 0 or all(inputs)


@dataclass(frozen=True)
class Clip(Op):
    """min(max(x, low), high)."""

    name = "clip"
    low: Number
    high: Number

    def shape(self, *inputs: Shape) -> Shape:
        if self.low >= self.high:
            raise GraphError(f"expected low < high, got {self.low:g} and {self.high:g}")
        return inputs[0]

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return self.low >= 0 or (all(inputs) and self.high >= 0)


@dataclass(frozen=True)
class LeakyRelu(KeepsSign):
    """x where x >= 0, otherwise slope * x."""

    name = "leaky_relu"
    slope: Number


@dataclass(frozen=True)
class PRelu(KeepsSign):
    """x where x >= 0, otherwise alpha * x, with one trained alpha for each channel."""

    name = "prelu"

    def tensors(self, channels: int) -> Tensors:
        return {"alpha": (channels,)}


@dataclass(frozen=True)
class Elu(KeepsSign):
    """x where x >= 0, otherwise alpha * (exp(x) - 1)."""

    name = "elu"
    alpha: Number = 1.0


@dataclass(frozen=True)
class Selu(KeepsSign):
    """1.0507 times an ELU of alpha 1.6733, with the constants of arXiv:1706.02515."""

    name = "selu"


@dataclass(frozen=True)
class Sigmoid(NeverNegative):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"


@dataclass(frozen=True)
class Tanh(KeepsSign):
    """The hyperbolic tangent."""

    name = "tanh"


@dataclass(frozen=True)
class Softplus(NeverNegative):
    """log(1 + exp(x)); if it is `cut`, x where x > 20, as in torch by default, which is up to 2e-9 less."""

    name = "softplus"
    cut: bool = False


@dataclass(frozen=True)
class Softsign(KeepsSign):
    """x / (1 + abs(x))."""

    name = "softsign"


@dataclass(frozen=True)
class HardSigmoid(NeverNegative):
    """min(max(slope * x + offset, 0), 1): 1/6 and 0.5 in Keras 3 and torch, 0.2 and 0.5 in Keras 2 and ONNX."""

    name = "hard_sigmoid"
    slope: Number = 1 / 6
    offset: Number = 0.5


@dataclass(frozen=True)
class Swish(KeepsSign):
    """x * sigmoid(x), which torch calls SiLU."""

    name = "swish"


@dataclass(frozen=True)
class HardSwish(KeepsSign):
    """x * min(max(x + 3, 0), 6) / 6."""

    name = "hard_swish"


@dataclass(frozen=True)
class Gelu(KeepsSign):
    """x times the normal distribution's cumulative function of x, or its approximation by a tanh."""

    name = "gelu"
    approximate: bool = False


@dataclass(frozen=True)
class Softmax(NeverNegative):
    """exp(x) over its sum over the channels, for each cell."""

    name = "softmax"

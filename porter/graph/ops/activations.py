"""Activations: one value from one value, or from those of its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.errors import GraphError
from porter.graph.ops.kinds import Flag, Number
from porter.graph.ops.op import OPS, KeepsSign, NeverNegative, OfChannels, Op, Shape, TensorShapes

LARGEST_FLOAT32 = float.fromhex("0x1.fffffep+127")
"""Stands for no bound, because ports have finite numbers."""


class Relu(NeverNegative, name="relu"):
    """max(x, 0)."""

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, math.inf


class Relu6(NeverNegative, name="relu6"):
    """min(max(x, 0), 6)."""

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 6.0


@dataclass(frozen=True)
class ThresholdedRelu(Op, name="thresholded_relu"):
    """x where x > threshold, otherwise 0."""

    threshold: Number

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return self.threshold >= 0 or all(inputs)

    @property
    def bounds(self) -> tuple[float, float]:
        return self.threshold, math.inf


@dataclass(frozen=True)
class Clip(Op, name="clip"):
    """min(max(x, low), high)."""

    low: Number
    high: Number

    def shape(self, *inputs: Shape) -> Shape:
        if self.low >= self.high:
            raise GraphError(f"expected low < high, got {self.low:g} and {self.high:g}")
        return inputs[0]

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return self.low >= 0 or (all(inputs) and self.high >= 0)

    @property
    def bounds(self) -> tuple[float, float]:
        return (
            self.low if self.low > -LARGEST_FLOAT32 else -math.inf,
            self.high if self.high < LARGEST_FLOAT32 else math.inf,
        )


@dataclass(frozen=True)
class LeakyRelu(KeepsSign, name="leaky_relu"):
    """x where x >= 0, otherwise slope * x."""

    slope: Number

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, math.inf


class PRelu(OfChannels, KeepsSign, name="prelu"):
    """x where x >= 0, otherwise alpha * x, with one trained alpha for each channel."""

    def tensors(self, channels: int) -> TensorShapes:
        return {"alpha": (channels,)}


@dataclass(frozen=True)
class Elu(KeepsSign, name="elu"):
    """x where x >= 0, otherwise alpha * (exp(x) - 1)."""

    alpha: Number = 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, math.inf


@dataclass(frozen=True)
class Celu(KeepsSign, name="celu"):
    """x where x >= 0, otherwise alpha * (exp(x / alpha) - 1); alpha is above 0."""

    alpha: Number = 1.0

    def shape(self, *inputs: Shape) -> Shape:
        if self.alpha <= 0:
            raise GraphError(f"expected an alpha above 0, got {self.alpha:g}")
        return inputs[0]

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, math.inf


class Selu(KeepsSign, name="selu"):
    """1.0507 times an ELU of alpha 1.6733, with the constants of arXiv:1706.02515."""


class Sigmoid(NeverNegative, name="sigmoid"):
    """1 / (1 + exp(-x))."""


class Tanh(KeepsSign, name="tanh"):
    """The hyperbolic tangent."""


@dataclass(frozen=True)
class Softplus(NeverNegative, name="softplus"):
    """log(1 + exp(x)); if it is `cut`, x where x > 20, as in torch by default, which is up to 2e-9 less."""

    cut: Flag = False


class Softsign(KeepsSign, name="softsign"):
    """x / (1 + abs(x))."""


@dataclass(frozen=True)
class HardSigmoid(NeverNegative, name="hard_sigmoid"):
    """min(max(slope * x + offset, 0), 1): 1/6 and 0.5 in Keras 3 and torch, 0.2 and 0.5 in Keras 2 and
    ONNX.
    """

    slope: Number = 1 / 6
    offset: Number = 0.5

    @property
    def bounds(self) -> tuple[float, float]:
        if self.slope == 0:
            return -math.inf, math.inf
        ends = -self.offset / self.slope, (1 - self.offset) / self.slope
        return min(ends), max(ends)


class Swish(KeepsSign, name="swish"):
    """x * sigmoid(x), which torch calls SiLU."""


class HardSwish(KeepsSign, name="hard_swish"):
    """x * min(max(x + 3, 0), 6) / 6."""

    @property
    def bounds(self) -> tuple[float, float]:
        return -3.0, 3.0


class Mish(KeepsSign, name="mish"):
    """x * tanh(log(1 + exp(x)))."""


@dataclass(frozen=True)
class Gelu(KeepsSign, name="gelu"):
    """x times the normal distribution's cumulative function of x, or its approximation by a tanh."""

    approximate: Flag = False


class Softmax(NeverNegative, name="softmax"):
    """exp(x) over its sum over the channels, for each cell."""


class LogSoftmax(Op, name="log_softmax"):
    """The natural logarithm of a softmax over the channels."""


OF_LOGITS = (Sigmoid, Softmax, LogSoftmax)
"""What a classifier does to its logits in the end."""


ACTIVATIONS = frozenset(name for name, op in OPS.items() if op.__module__ == __name__)
"""The names of this module's ops."""

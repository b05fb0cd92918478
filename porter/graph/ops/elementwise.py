"""Functions of each number, as mathematics has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.graph.ops.kinds import Flag, Number
from porter.graph.ops.op import KeepsSign, NeverNegative, Op


class Abs(NeverNegative, name="abs"):
    """The size of x."""


class Exp(NeverNegative, name="exp"):
    """e to the x."""


class Log(Op, name="log"):
    """The natural logarithm of x."""


class Sqrt(NeverNegative, name="sqrt"):
    """The root of x."""


class Reciprocal(KeepsSign, name="reciprocal"):
    """1 / x."""


@dataclass(frozen=True)
class Power(Op, name="power"):
    """x to the power of a number. Where that is not whole, x is 0 or above."""

    exponent: Number

    def nonnegative(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) or not self.exponent % 2


class Sin(Op, name="sin"):
    """The sine of x, in radians."""


class Cos(Op, name="cos"):
    """The cosine of x, in radians."""


class Sign(KeepsSign, name="sign"):
    """1, -1, or 0 where x is 0."""


@dataclass(frozen=True)
class Step(NeverNegative, name="step"):
    """1 where x is above 0, otherwise 0."""

    inclusive: Flag = False
    """Also 1 where x is 0."""


class Floor(KeepsSign, name="floor"):
    """The next whole number below x."""


class Ceil(KeepsSign, name="ceil"):
    """The next whole number above x."""


class Round(KeepsSign, name="round"):
    """The nearest whole number; of two as near, the even one."""


class Erf(KeepsSign, name="erf"):
    """The error function: 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""

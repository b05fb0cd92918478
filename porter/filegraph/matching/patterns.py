"""Layers that files write as several ops, each as a pattern of ops and the op that it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from porter.filegraph.matching.match import Captures, OpPattern
from porter.graph import (
    BatchNorm,
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LayerNorm,
    LeakyRelu,
    Mish,
    Op,
    PRelu,
    RmsNorm,
    Softplus,
    Softsign,
    Swish,
)

ROLES = ("gamma", "beta", "mean", "variance", "alpha")
"""Captures that are tensors of the op."""


@dataclass(frozen=True)
class Fused:
    """A layer as several ops.

    Attributes:
        pattern: of its last op.
        op: what it is, from the captures; None where they do not fit.
    """

    pattern: tuple[OpPattern, ...]
    op: Callable[[Captures], Op | None]


Spellings = tuple[Callable[[Captures], Op | None], Sequence[tuple[OpPattern, ...]]]
"""An op by the captures, and the patterns of it."""


@cache
def layers_by_kind() -> Mapping[str, Sequence[Fused]]:
    """Return the layers that files write as several ops, such as a GELU, by the kind of the last of these
    ops.
    """
    activations = (*_gates(), *_hard_gates(), *_leaky_lines(), *_exponentials())
    layers = defaultdict(list)
    for layer in (*_norms(), *(Fused(pattern, op) for op, patterns in activations for pattern in patterns)):
        layers[str(layer.pattern[0])].append(layer)
    return layers


def _norms() -> list[Fused]:
    """Return the patterns of norms: x * inv + (beta - mean * inv), where inv is rsqrt(variance + epsilon) *
    gamma (tf.nn.batch_normalization), (x - mean) * inv + beta (Flax), (x - mean) / sqrt(variance + epsilon) *
    gamma + beta (torch.onnx before opset 17), and x divided by the root of the mean of its squares.
    """
    mean: OpPattern = ("Mean", "x", "#axes")
    centred: OpPattern = ("Sub", "x", mean)
    squares: list[OpPattern] = [
        ("SquaredDifference", "x", mean),
        ("Square", centred),
        ("Pow", centred, 2),
        ("Mul", centred, centred),
    ]
    variances: list[OpPattern] = [("Mean", square, "#axes") for square in squares]
    square_of_mean: OpPattern = ("Mul", mean, mean)
    mean_of_squares: OpPattern = ("Mean", ("Mul", "x", "x"), "#axes")
    variances.append(("Max", 0, ("Sub", mean_of_squares, square_of_mean)))
    norms = [*_norms_by_a_factor("mean", "variance", _batch_norm)]
    for variance in variances:
        norms += _norms_by_a_factor(mean, variance, _layer_norm)
    for variance in variances:
        norms += _norms_by_a_quotient(centred, variance)
    return [*norms, *_norms_by_the_root()]


def _norms_by_a_factor(
    center: OpPattern, variance: OpPattern, op: Callable[[Captures], Op | None]
) -> Iterator[Fused]:
    """Yield the ways to write a norm by one factor, inv = gamma / sqrt(variance + epsilon): as
    x * inv + (beta - center * inv), where the second part is computed once, and as (x - center) * inv + beta;
    each also without gamma or beta, and with -center * inv for a subtraction.

    Args:
        center: the pattern of the mean.
        op: makes the op of a match from what the pattern captured (x, gamma, beta, epsilon).
    """
    for inverse_root in _inverse_roots(("Add", variance, "$epsilon")):
        for factor in (("Mul", inverse_root, "gamma"), inverse_root):
            shift = "Mul", center, factor
            negative = "Mul", ("Neg", center), factor
            for offset in (("Sub", "beta", shift), ("Add", "beta", negative), ("Neg", shift), negative):
                yield Fused(("Add", ("Mul", "x", factor), offset), op)
            normal = "Mul", ("Sub", "x", center), factor
            yield Fused(("Add", normal, "beta"), op)
            yield Fused(normal, op)


def _norms_by_a_quotient(centred: OpPattern, variance: OpPattern) -> Iterator[Fused]:
    """Yield the patterns of (x - mean) / sqrt(variance + epsilon), with a scale and an offset or without."""
    total = "Add", variance, "$epsilon"
    normals = ("Div", centred, ("Sqrt", total)), *(("Mul", centred, root) for root in _inverse_roots(total))
    for normal in normals:
        scaled = "Mul", normal, "gamma"
        for pattern in (normal, scaled, ("Add", scaled, "beta")):
            yield Fused(pattern, _layer_norm)


def _norms_by_the_root() -> Iterator[Fused]:
    """Yield the patterns of x / sqrt(mean of squares + epsilon), with a scale gamma or without."""
    powers: list[OpPattern] = [("Square", "x"), ("Pow", "x", 2), ("Mul", "x", "x")]
    for power in powers:
        total = "Add", ("Mean", power, "#axes"), "$epsilon"
        factors = *_inverse_roots(total), ("Pow", total, -0.5)
        for normal in (("Div", "x", ("Sqrt", total)), *(("Mul", "x", factor) for factor in factors)):
            yield Fused(normal, _rms_norm)
            yield Fused(("Mul", normal, "gamma"), _rms_norm)


def _inverse_roots(total: OpPattern) -> list[OpPattern]:
    """Return the patterns in which files write 1 / sqrt(total)."""
    return [("Rsqrt", total), ("Reciprocal", ("Sqrt", total)), ("Div", 1, ("Sqrt", total))]


def _batch_norm(captures: Captures) -> Op:
    return BatchNorm(captures["$epsilon"], 0.0, "gamma" in captures, "beta" in captures)


def _layer_norm(captures: Captures) -> Op:
    return LayerNorm(captures["$epsilon"], "gamma" in captures, "beta" in captures)


def _rms_norm(captures: Captures) -> Op:
    return RmsNorm(captures["$epsilon"], "gamma" in captures)


def _gates() -> list[Spellings]:
    """Return ops that are x times a smooth step, such as a GELU, each with the patterns in which files write
    it.
    """
    x = "x"
    negative = ("Neg", "x")
    # 1 + erf(x / sqrt(2))
    steps_by_erf: list[OpPattern] = [
        ("Add", 1, ("Erf", ("Mul", x, math.sqrt(0.5)))),
        ("Add", 1, ("Erf", ("Div", x, math.sqrt(2)))),
        ("Erfc", ("Mul", negative, math.sqrt(0.5))),
        ("Sub", 1, ("Erf", ("Mul", negative, math.sqrt(0.5)))),
    ]
    cube = "Mul", 0.044715, ("Pow", x, 3)
    step_by_tanh = "Add", 1, ("Tanh", ("Mul", math.sqrt(2 / math.pi), ("Add", x, cube)))
    return [
        (lambda captures: Swish(), [("Mul", x, ("Sigmoid", x)), ("Mul", x, ("Sigmoid", ("Mul", 1, x)))]),
        (lambda captures: Gelu(), [pattern for step in steps_by_erf for pattern in _half_products(step)]),
        (lambda captures: Gelu(True), _half_products(step_by_tanh)),
        (lambda captures: Mish(), [("Mul", x, ("Tanh", ("Softplus", x)))]),
        (lambda captures: Softsign(), [("Div", x, ("Add", ("Abs", x), 1))]),
    ]


def _hard_gates() -> list[Spellings]:
    """Return a hard sigmoid and a hard swish, with the patterns in which files write them."""
    x = "x"
    x_plus_3 = "Add", x, 3
    # relu6(x + 3), and a sixth of it
    clipped: list[OpPattern] = [
        ("Relu6", x_plus_3),
        ("Clip", x_plus_3, 0, 6),
        ("Min", ("Max", x_plus_3, 0), 6),
    ]
    hard_sigmoids = [sixth for part in clipped for sixth in (("Div", part, 6), ("Mul", part, 1 / 6))]
    line = "Add", ("Mul", x, "$slope"), "$offset"
    clipped_lines = [
        ("Max", ("Min", line, 1), 0),
        ("Clip", line, 0, 1),
        ("Min", ("Relu", line), 1),
        ("Min", ("Max", line, 0), 1),
    ]
    factors_of_swish = (*hard_sigmoids, ("HardSigmoid", x, 1 / 6, 0.5))
    return [
        (lambda captures: HardSwish(), [("Mul", x, factor) for factor in factors_of_swish]),
        (lambda captures: HardSwish(), [("Div", ("Mul", x, part), 6) for part in clipped]),
        (lambda captures: HardSwish(), [("Mul", ("Mul", x, part), 1 / 6) for part in clipped]),
        (lambda captures: HardSigmoid(), hard_sigmoids),
        (lambda captures: HardSigmoid(captures["$slope"], captures["$offset"]), clipped_lines),
    ]


def _leaky_lines() -> list[Spellings]:
    """Return ops that give x above zero, and x times a slope elsewhere, with the patterns in which files
    write them.
    """
    x = "x"
    rest = ("Relu", ("Neg", "x"))
    return [
        (lambda captures: LeakyRelu(captures["$slope"]), _where_above_zero(("Mul", "$slope", x))),
        (lambda captures: LeakyRelu(captures["$slope"]), [("Sub", ("Relu", x), ("Mul", "$slope", rest))]),
        (
            lambda captures: LeakyRelu(captures["$slope"]) if 0 <= captures["$slope"] <= 1 else None,
            [("Max", x, ("Mul", "$slope", x))],
        ),
        (lambda captures: PRelu(), [("Add", ("Relu", x), ("Mul", ("Neg", "alpha"), rest))]),
    ]


def _exponentials() -> list[Spellings]:
    """Return ops that give x above zero or above a threshold, and below it numbers that go to a constant: a
    softplus, an ELU and a CELU. Each comes with the patterns in which files write it.
    """
    x, x_times_beta = "x", ("Mul", "x", 1)  # torch's beta is 1
    softplus_by_compared: list[tuple[OpPattern, OpPattern]] = [
        (x, ("Log1p", ("Exp", x))),
        (x, ("Softplus", x)),
        (x_times_beta, ("Div", ("Log1p", ("Exp", x_times_beta)), 1)),
    ]
    below_zero: list[OpPattern] = [("Elu", x), *_exp_minus_one(x), *_exp_minus_one(("Min", x, 0))]
    times_alpha: list[OpPattern] = [("Mul", "$alpha", part) for part in below_zero]
    of_quotients: list[OpPattern] = [("Mul", "$alpha", part) for part in _exp_minus_one(("Div", x, "$alpha"))]
    return [
        (
            lambda captures: softplus_op(captures["$most"]),
            [
                ("Where", ("Greater", compared, "$most"), x, softplus)
                for compared, softplus in softplus_by_compared
            ],
        ),
        (lambda captures: Elu(), _where_above_zero(*below_zero)),
        (lambda captures: Elu(captures["$alpha"]), _where_above_zero(*times_alpha)),
        (
            lambda captures: Celu(captures["$alpha"]) if captures["$alpha"] > 0 else None,
            _where_above_zero(*of_quotients),
        ),
    ]


def softplus_op(threshold: float) -> Softplus | None:
    """Return a softplus that gives x above a threshold: from 40 on that is the same number in float64. None
    for thresholds that no op has.
    """
    return Softplus(threshold == 20) if threshold == 20 or threshold >= 40 else None


def _exp_minus_one(x: OpPattern) -> list[OpPattern]:
    """Return the patterns in which files write exp(x) - 1."""
    return [("Sub", ("Exp", x), 1), ("Expm1", x)]


def _where_above_zero(*below_zero: OpPattern) -> list[tuple[OpPattern, ...]]:
    """Return the patterns of a choice that gives x where it is above zero, as it is or as an ELU gives it,
    and one of `below_zero` elsewhere.
    """
    tests = [(kind, "x", 0) for kind in ("Greater", "GreaterEqual", "GreaterOrEqual")]
    return [
        ("Where", test, above, below)
        for below in below_zero
        for test in tests
        for above in ("x", ("Elu", "x"))
    ]


def _half_products(factor: OpPattern) -> list[tuple[OpPattern, ...]]:
    """Return the patterns of 0.5 * x * factor in any order."""
    return [
        ("Mul", ("Mul", 0.5, "x"), factor),
        ("Mul", 0.5, ("Mul", "x", factor)),
        ("Mul", "x", ("Mul", 0.5, factor)),
    ]

"""Layers that files write as several ops, each as a pattern of ops and the op that it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from porter.filegraph.dataflow import Captures, Pattern
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

    pattern: tuple[Pattern, ...]
    op: Callable[[Captures], Op | None]


Spellings = tuple[Callable[[Captures], Op | None], Sequence[tuple[Pattern, ...]]]
"""An op by the captures, and the patterns of it."""


@cache
def layers_by_kind() -> Mapping[str, Sequence[Fused]]:
    """Return the layers that files write as several ops, by the kind of the last op."""
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
    mean: Pattern = ("Mean", "x", "#axes")
    centred: Pattern = ("Sub", "x", mean)
    squares: list[Pattern] = [
        ("SquaredDifference", "x", mean),
        ("Square", centred),
        ("Pow", centred, 2),
        ("Mul", centred, centred),
    ]
    variances: list[Pattern] = [("Mean", square, "#axes") for square in squares]
    square_of_mean: Pattern = ("Mul", mean, mean)
    mean_of_squares: Pattern = ("Mean", ("Mul", "x", "x"), "#axes")
    variances.append(("Max", 0, ("Sub", mean_of_squares, square_of_mean)))
    layers = [*_norms_by_a_factor("mean", "variance", _batch_norm)]
    for variance in variances:
        layers += _norms_by_a_factor(mean, variance, _layer_norm)
    for variance in variances:
        layers += _norms_by_a_quotient(centred, variance)
    return [*layers, *_norms_by_the_root()]


def _norms_by_a_factor(
    center: Pattern, variance: Pattern, op: Callable[[Captures], Op | None]
) -> Iterator[Fused]:
    """Yield the ways to write a norm by one factor, inv = gamma / sqrt(variance + epsilon): as
    x * inv + (beta - center * inv), where the second part is computed once, and as (x - center) * inv + beta;
    each also without gamma or beta, and with -center * inv for a subtraction.

    Args:
        center: the pattern of the mean.
        op: makes the op of a match from what the pattern captured (x, gamma, beta, epsilon).
    """
    for root in _inverse_roots(("Add", variance, "$epsilon")):
        for factor in (("Mul", root, "gamma"), root):
            shift = "Mul", center, factor
            negative = "Mul", ("Neg", center), factor
            for each in (("Sub", "beta", shift), ("Add", "beta", negative), ("Neg", shift), negative):
                yield Fused(("Add", ("Mul", "x", factor), each), op)
            normal = "Mul", ("Sub", "x", center), factor
            yield Fused(("Add", normal, "beta"), op)
            yield Fused(normal, op)


def _norms_by_a_quotient(centred: Pattern, variance: Pattern) -> Iterator[Fused]:
    """Yield the patterns of (x - mean) / sqrt(variance + epsilon), with a scale and an offset or without."""
    total = "Add", variance, "$epsilon"
    normals = ("Div", centred, ("Sqrt", total)), *(("Mul", centred, root) for root in _inverse_roots(total))
    for normal in normals:
        scaled = "Mul", normal, "gamma"
        for pattern in (normal, scaled, ("Add", scaled, "beta")):
            yield Fused(pattern, _layer_norm)


def _norms_by_the_root() -> Iterator[Fused]:
    """Yield the patterns of x / sqrt(mean of squares + epsilon), with a scale gamma or without."""
    powers: list[Pattern] = [("Square", "x"), ("Pow", "x", 2), ("Mul", "x", "x")]
    for power in powers:
        total = "Add", ("Mean", power, "#axes"), "$epsilon"
        factors = *_inverse_roots(total), ("Pow", total, -0.5)
        for normal in (("Div", "x", ("Sqrt", total)), *(("Mul", "x", factor) for factor in factors)):
            yield Fused(normal, _rms_norm)
            yield Fused(("Mul", normal, "gamma"), _rms_norm)


def _inverse_roots(total: Pattern) -> list[Pattern]:
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
    errors: list[Pattern] = [
        ("Add", 1, ("Erf", ("Mul", x, math.sqrt(0.5)))),
        ("Add", 1, ("Erf", ("Div", x, math.sqrt(2)))),
        ("Erfc", ("Mul", negative, math.sqrt(0.5))),
        ("Sub", 1, ("Erf", ("Mul", negative, math.sqrt(0.5)))),
    ]
    cube = "Mul", 0.044715, ("Pow", x, 3)
    tanh = "Add", 1, ("Tanh", ("Mul", math.sqrt(2 / math.pi), ("Add", x, cube)))
    return [
        (lambda captures: Swish(), [("Mul", x, ("Sigmoid", x)), ("Mul", x, ("Sigmoid", ("Mul", 1, x)))]),
        (lambda captures: Gelu(), [pattern for each in errors for pattern in _half_products(each)]),
        (lambda captures: Gelu(True), _half_products(tanh)),
        (lambda captures: Mish(), [("Mul", x, ("Tanh", ("Softplus", x)))]),
        (lambda captures: Softsign(), [("Div", x, ("Add", ("Abs", x), 1))]),
    ]


def _hard_gates() -> list[Spellings]:
    """Return a hard sigmoid and a hard swish, with the patterns in which files write them."""
    x = "x"
    three = "Add", x, 3
    sixes: list[Pattern] = [("Relu6", three), ("Clip", three, 0, 6), ("Min", ("Max", three, 0), 6)]
    sixths = [sixth for six in sixes for sixth in (("Div", six, 6), ("Mul", six, 1 / 6))]
    line = "Add", ("Mul", x, "$slope"), "$offset"
    steps = [
        ("Max", ("Min", line, 1), 0),
        ("Clip", line, 0, 1),
        ("Min", ("Relu", line), 1),
        ("Min", ("Max", line, 0), 1),
    ]
    return [
        (
            lambda captures: HardSwish(),
            [("Mul", x, part) for part in (*sixths, ("HardSigmoid", x, 1 / 6, 0.5))],
        ),
        (lambda captures: HardSwish(), [("Div", ("Mul", x, six), 6) for six in sixes]),
        (lambda captures: HardSwish(), [("Mul", ("Mul", x, six), 1 / 6) for six in sixes]),
        (lambda captures: HardSigmoid(), sixths),
        (lambda captures: HardSigmoid(captures["$slope"], captures["$offset"]), steps),
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
    """Return ops that give x above zero or above a threshold, and elsewhere what goes to a constant, such as
    an ELU, with the patterns in which files write them.
    """
    x, by_one = "x", ("Mul", "x", 1)  # by torch's beta
    smooth = [
        (x, ("Log1p", ("Exp", x))),
        (x, ("Softplus", x)),
        (by_one, ("Div", ("Log1p", ("Exp", by_one)), 1)),
    ]
    raised: list[Pattern] = [("Elu", x), *_exp_minus_one(x), *_exp_minus_one(("Min", x, 0))]
    times_alpha: list[Pattern] = [("Mul", "$alpha", part) for part in raised]
    of_quotients: list[Pattern] = [("Mul", "$alpha", part) for part in _exp_minus_one(("Div", x, "$alpha"))]
    return [
        (
            lambda captures: softplus_op(captures["$most"]),
            [("Where", ("Greater", each, "$most"), x, part) for each, part in smooth],
        ),
        (lambda captures: Elu(), [pattern for each in raised for pattern in _where_above_zero(each)]),
        (
            lambda captures: Elu(captures["$alpha"]),
            [pattern for each in times_alpha for pattern in _where_above_zero(each)],
        ),
        (
            lambda captures: Celu(captures["$alpha"]) if captures["$alpha"] > 0 else None,
            [pattern for each in of_quotients for pattern in _where_above_zero(each)],
        ),
    ]


def softplus_op(threshold: float) -> Softplus | None:
    """Return a softplus that gives x above a threshold: from 40 on that is the same number in float64. None
    for thresholds that no op has.
    """
    return Softplus(threshold == 20) if threshold == 20 or threshold >= 40 else None


def _exp_minus_one(x: Pattern) -> list[Pattern]:
    """Return the patterns in which files write exp(x) - 1."""
    return [("Sub", ("Exp", x), 1), ("Expm1", x)]


def _where_above_zero(other: Pattern) -> list[tuple[Pattern, ...]]:
    """Return the patterns of a choice that gives x where it is above zero, as it is or as an ELU gives it,
    and `other` elsewhere.
    """
    tests = [(kind, "x", 0) for kind in ("Greater", "GreaterEqual", "GreaterOrEqual")]
    return [("Where", test, above, other) for test in tests for above in ("x", ("Elu", "x"))]


def _half_products(factor: Pattern) -> list[tuple[Pattern, ...]]:
    """Return the patterns of 0.5 * x * factor in any order."""
    return [
        ("Mul", ("Mul", 0.5, "x"), factor),
        ("Mul", 0.5, ("Mul", "x", factor)),
        ("Mul", "x", ("Mul", 0.5, factor)),
    ]

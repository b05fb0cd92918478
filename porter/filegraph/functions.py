"""Functions of each number that porter's ops say in parts, for every format."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from porter.filegraph.arithmetic import combine, combine_constant, of_values
from porter.filegraph.builder import Builder, Value
from porter.filegraph.dataflow import N, Node, Reference
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.views import View
from porter.filegraph.walk import NodeWalk, Read, Reader, Source, Walk, apply
from porter.graph import Abs, Add, Affine, Divide, Exp, Floor, Log, Multiply, Op, Relu, Softplus, Sqrt, Step
from porter.graph.ops import Cos, Erf, Sin, ThresholdedRelu

Maker = Callable[[Builder, str, Value], Value]
"""Makes a value from another one; the node that gives it has the name."""


def _plus(number: float, scale: float = 1.0) -> Affine:
    return Affine((scale,), (number,))


def _times(number: float) -> Affine:
    return Affine((number,), (0.0,))


_CHAINS: Mapping[str, Sequence[Op]] = {
    "log1p": (_plus(1.0), Log()),
    "expm1": (Exp(), _plus(-1.0)),
    "log2": (Log(), _times(1 / math.log(2))),
    "log10": (Log(), _times(1 / math.log(10))),
    "exp2": (_times(math.log(2)), Exp()),
    "erfc": (Erf(), _plus(1.0, -1.0)),
}


def _chain(links: Sequence[Op]) -> Maker:
    return lambda builder, name, value: builder.chain(name, value, links)


def _of_sides(builder: Builder, name: str, value: Value, links: Sequence[Op]) -> Value:
    """What a chain that makes 0 of 0 makes of the size of each number, with the number's sign."""
    sides = []
    for side, before in (("above", value), ("below", builder.negative(f"{name}:opposite", value))):
        sides.append(builder.chain(f"{name}:{side}", before, (Relu(), *links)))
    return builder.subtract(name, *sides)


def _trunc(builder: Builder, name: str, value: Value) -> Value:
    """The next whole number towards 0."""
    return _of_sides(builder, name, value, (Floor(),))


def _asinh(builder: Builder, name: str, value: Value) -> Value:
    """log(abs(x) + sqrt(x * x + 1)), with the sign of x."""
    size = builder.add(f"{name}:size", Abs(), value)
    whole = _log_with_root(builder, f"{name}:log", size, 1.0)
    side = builder.add(f"{name}:side", Step(True), value)
    return builder.add(name, Multiply(), whole, builder.affine(f"{name}:sign", side, (2.0,), (-1.0,)))


def _log_with_root(builder: Builder, name: str, value: Value, number: float) -> Value:
    """log(x + sqrt(x * x + number))."""
    square = builder.add(f"{name}:square", Multiply(), value, value)
    root = builder.chain(f"{name}:root", square, (_plus(number), Sqrt()))
    return builder.chain(name, builder.add(f"{name}:sum", Add(), value, root), (Log(),))


def _acosh(builder: Builder, name: str, value: Value) -> Value:
    return _log_with_root(builder, name, value, -1.0)


def _atanh(builder: Builder, name: str, value: Value) -> Value:
    """Half of log((1 + x) / (1 - x))."""
    above = builder.chain(f"{name}:above", value, (_plus(1.0), Log(), _times(0.5)))
    below = builder.chain(f"{name}:below", value, (_plus(1.0, -1.0), Log(), _times(0.5)))
    return builder.subtract(name, above, below)


def _hyperbolic(sign: float) -> Maker:
    """sinh, or with a sign of 1 cosh."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        above = builder.chain(f"{name}:above", value, (Exp(), _times(0.5)))
        below = builder.chain(f"{name}:below", value, (_times(-1.0), Exp(), _times(0.5 * sign)))
        return builder.add(name, Add(), above, below)

    return make


def _tan(builder: Builder, name: str, value: Value) -> Value:
    sine, cosine = (builder.add(f"{name}:{op.name}", op, value) for op in (Sin(), Cos()))
    return builder.add(name, Divide(), sine, cosine)


def _frac(builder: Builder, name: str, value: Value) -> Value:
    """What is left of the next whole number towards 0."""
    return builder.subtract(name, value, _trunc(builder, f"{name}:whole", value))


MADE: Mapping[str, Maker] = {
    **{kind: _chain(links) for kind, links in _CHAINS.items()},
    "acosh": _acosh,
    "asinh": _asinh,
    "atanh": _atanh,
    "cosh": _hyperbolic(1.0),
    "frac": _frac,
    "sinh": _hyperbolic(-1.0),
    "tan": _tan,
    "trunc": _trunc,
}
"""By kind."""


def made(walk: Walk, node: Node, source: Source, maker: Maker) -> View:
    """What a maker makes of each number, in whatever axes the tensor has them."""
    view = walk.kept(source)
    return walk.views.like(view, maker(walk.builder, node.name, view.value))


def reader(kind: str) -> Reader[N]:
    """Reads a node of one value as a kind of `MADE`."""
    return lambda walk, node: made(walk, node, node.source, MADE[kind])


def soft_shrink(bound: float) -> Maker:
    """x nearer to 0 by a bound, and 0 within it."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        return builder.subtract(name, value, builder.clip(f"{name}:within", value, -bound, bound))

    return make


def hard_shrink(bound: float) -> Maker:
    """x, and 0 where its size is not above a bound."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        share = builder.chain(f"{name}:share", value, (Abs(), _plus(-bound), Step()))
        return builder.add(name, Multiply(), value, share)

    return make


def threshold(number: float, other: float) -> Maker:
    """x where it is above a number, otherwise another number."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        if other == 0:
            return builder.add(name, ThresholdedRelu(number), value)
        kept = builder.add(f"{name}:kept", ThresholdedRelu(number), value)
        rest = builder.chain(f"{name}:rest", value, (_plus(-number), Step(), _plus(other, -other)))
        return builder.add(name, Add(), kept, rest)

    return make


def logit(least: float | None) -> Maker:
    """log(x / (1 - x)), of x that lies by `least` within 0 and 1 if that is given."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        if least is not None:
            value = builder.clip(f"{name}:within", value, least, 1 - least)
        above = builder.add(f"{name}:above", Log(), value)
        return builder.subtract(name, above, builder.chain(f"{name}:below", value, (_plus(1.0, -1.0), Log())))

    return make


def rounded_quotient(divisor: float, mode: str) -> Maker:
    """x over a number, as the whole number below it (`floor`) or towards 0 (`trunc`).

    It is divided where 1 / divisor is rounded: 49 * (1 / 49) is less than 1.
    """

    def make(builder: Builder, name: str, value: Value) -> Value:
        quotient = (
            builder.affine(f"{name}:quotient", value, (1 / divisor,), (0.0,))
            if abs(math.frexp(divisor)[0]) == 0.5
            else builder.add(
                f"{name}:quotient",
                Divide(),
                value,
                builder.affine(f"{name}:divisor", value, (0.0,), (divisor,)),
            )
        )
        return builder.add(name, Floor(), quotient) if mode == "floor" else _trunc(builder, name, quotient)

    return make


def remainder(divisor: float, mode: str) -> Maker:
    """x less the whole multiple of a number that `rounded_quotient` counts."""

    def make(builder: Builder, name: str, value: Value) -> Value:
        count = rounded_quotient(divisor, mode)(builder, f"{name}:count", value)
        return builder.subtract(name, value, builder.affine(f"{name}:multiple", count, (divisor,), (0.0,)))

    return make


def by_number(walk: Walk, node: Node, source: Source, divisor: float | None, mode: str, whole: bool) -> View:
    """The `rounded_quotient` of a value by a number, or what it leaves.

    Args:
        divisor: None where the file has no single number.
        mode: floor or trunc.
        whole: it is the quotient.
    """
    if not divisor or not (isinstance(source, View) or walk.is_value(source)):
        raise Unsupported("by something that is not one number other than 0")
    return made(walk, node, source, (rounded_quotient if whole else remainder)(divisor, mode))


def there_and_back(walk: NodeWalk[N], node: N, source: Source, goes_back: Callable[[N], bool]) -> View:
    """A cast to whole numbers of which every reader casts them to real ones: the next whole number towards
    0.
    """
    readers = walk.flow.readers[node.name]
    if not readers or not all(map(goes_back, readers)):
        raise Unsupported("to whole numbers")
    return made(walk, node, source, MADE["trunc"])


# Functions of several values, of which some may be constants.


def within(node: N, name: str) -> N:
    """The part of a node that gives a value of its own."""
    return cast(N, replace(cast(Any, node), name=f"{node.name}:{name}"))


def pair(walk: Walk, node: Node, kind: str, first: Source, second: Source) -> View:
    """A sum, difference, product or quotient of two values, of which one may be a constant."""
    if not isinstance(second, View) and not walk.flow.is_value(second):
        return combine_constant(walk, node, kind, walk.kept(first), second)
    if not isinstance(first, View) and not walk.flow.is_value(first):
        return combine_constant(walk, node, kind, walk.kept(second), first, first=False)
    return of_values(walk, node, kind, (first, second))


def hypotenuse(walk: Walk, node: Node, first: Source, second: Source) -> View:
    """sqrt(x * x + y * y)."""
    squares = [pair(walk, within(node, "square"), "Mul", each, each) for each in (first, second)]
    return apply(walk, node, pair(walk, within(node, "sum"), "Add", *squares), Sqrt())


def log_of_sum(walk: Walk, node: Node, first: Source, second: Source) -> View:
    """log(exp(x) + exp(y)): the larger one, and what the smaller adds to it."""
    apart = pair(walk, within(node, "apart"), "Sub", first, second)
    added = apply(walk, within(node, "added"), apart, Abs(), _times(-1.0), Softplus())
    return pair(walk, node, "Add", pair(walk, within(node, "larger"), "Max", first, second), added)


def between(walk: Walk, node: Node, first: Source, second: Source, share: Source | float) -> View:
    """The first value, and a share of what the second is more."""
    apart = pair(walk, within(node, "apart"), "Sub", second, first)
    moved = (
        apply(walk, within(node, "moved"), apart, _times(share))
        if isinstance(share, float)
        else pair(walk, within(node, "moved"), "Mul", apart, share)
    )
    return pair(walk, node, "Add", moved, first)


def equal(walk: Walk, node: Node, first: Source, second: Source, holds: bool = True) -> View:
    """1 where two values are equal, and 0 elsewhere; the other way around without `holds`."""
    stated = [
        numbers
        for each in (first, second)
        if not isinstance(each, View) and not walk.flow.is_value(each)
        if (numbers := walk.flow.value(each)) is not None
    ]
    if not all(np.isfinite(numbers).all() for numbers in stated):
        raise Unsupported("to numbers that are not finite")
    apart = pair(walk, within(node, "apart"), "Sub", first, second)
    links = (Abs(), _times(-1.0), Step(True)) if holds else (Abs(), Step())
    return apply(walk, node, apart, *links)


def band(walk: Walk, node: Node, source: Reference, least: int | None, most: int | None) -> Read:
    """The numbers of the last two axes whose column lies between so many cells behind their row, and zeros
    elsewhere; None is no bound.
    """
    cells = [size for size in (walk.sizes(source) or ())[-2:] if isinstance(size, int)]
    if len(cells) < 2 or not walk.flow.affords(8 * math.prod(cells)):
        raise Unsupported("over axes of open size, or of too many cells")
    ones = np.ones(cells)
    ones = ones if least is None else np.triu(ones, least)
    ones = ones if most is None else np.tril(ones, most)
    return combine(walk, node, "Mul", (source, walk.flow.stated(f"{node.name}:ones", ones)))


def equality(holds: bool) -> Reader[N]:
    """Reads a node of two values as `equal`."""
    return lambda walk, node: equal(walk, node, node.source, node.inputs[1], holds)

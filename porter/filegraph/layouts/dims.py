"""Sizes as values: whole numbers, and sums of products of unknowns where a file leaves a size open.

What is asked of an open size is answered where it holds whatever the unknowns are, and is refused elsewhere:
nothing is guessed.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

from porter.base.errors import GraphError

_MOST_TERMS = 64
"""The most terms of a sum and the most unknowns of a term; a file that squares a size again and again would
take any memory.
"""
_LARGEST_FACTOR = 1 << 62


class Undecided(GraphError):
    """A question about a size whose answer depends on the size of the input."""

    def __init__(self) -> None:
        super().__init__("a size that depends on the input's")


class Unknown(NamedTuple):
    """A whole number that the input decides, such as the rows of a value, and the least that it can be.

    Attributes:
        rounded: of a quotient that is rounded down, what it is before that. Its name says that too.
    """

    name: str
    least: int = 1
    rounded: Open | None = None

    def __hash__(self) -> int:
        return hash(self.name)


_Product = tuple[Unknown, ...]
"""In order; empty for one."""
_Factor = int | Fraction


@dataclass(frozen=True)
class Open:
    """A size that is open: a sum of products of unknowns, each a number of times, which is a fraction where a
    file states that dividing leaves nothing (`exact_size`).

    Two of them are equal (==) where their sums are the same, whatever the unknowns are; see `is_equal`.

    Attributes:
        terms: each product and its factor, in order; at least one of them is of unknowns, and no factor is 0.
        is_real: a file computes it as a real number, whose quotients are not cut.
    """

    terms: tuple[tuple[_Product, _Factor], ...]
    is_real: bool = field(default=False, compare=False)

    def __add__(self, other: Any) -> Any:
        terms: dict[_Product, _Factor] = dict(self.terms)
        for product, factor in terms_of(other):
            terms[product] = terms.get(product, 0) + factor
        return _simplify(terms, is_real(self, other))

    def __mul__(self, other: Any) -> Any:
        terms: dict[_Product, _Factor] = {}
        for unknowns, factor in self.terms:
            for other_unknowns, other_factor in terms_of(other):
                product = tuple(sorted(unknowns + other_unknowns, key=_name))
                terms[product] = terms.get(product, 0) + factor * other_factor
        return _simplify(terms, is_real(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return divide(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return divide(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return divide(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return divide(other, self)[1]

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __gt__(self, other: Any) -> bool:
        return _is_above(self - other, 0)

    def __ge__(self, other: Any) -> bool:
        return _is_above(self - other, -1)

    def __lt__(self, other: Any) -> bool:
        return _is_above(other - self, 0)

    def __le__(self, other: Any) -> bool:
        return _is_above(other - self, -1)

    def __bool__(self) -> bool:
        return not is_equal(self, 0)

    @property
    def bounds(self) -> tuple[_Factor | float, _Factor | float]:
        """Return the least and the most that it can be, as far as the signs of its terms tell, or those of
        what its quotients are before they are rounded: half of n, rounded down, is at least half of n - 1.
        """
        own_least, own_most = _bounds_of_sum(dict(self.terms))
        least = _bounds_of_sum(_sum_without_rounding(self.terms, -1))[0]
        most = _bounds_of_sum(_sum_without_rounding(self.terms, 1))[1]
        is_whole = all(factor.denominator == 1 for _, factor in self.terms)
        if is_whole and not math.isinf(least):
            least = math.ceil(least)
        if is_whole and not math.isinf(most):
            most = math.floor(most)
        return max(own_least, least), min(own_most, most)


def _bounds_of_sum(terms: Mapping[_Product, _Factor]) -> tuple[_Factor | float, _Factor | float]:
    """Return the least and the most of a sum. With all unknowns at their least, it is least if no factor is
    negative, and most if none is positive; a bound that this does not tell is infinite.
    """
    value_at_least = sum(
        factor * math.prod(unknown.least for unknown in product) for product, factor in terms.items()
    )
    factors_of_unknowns = [factor for product, factor in terms.items() if product]
    least = value_at_least if min(factors_of_unknowns, default=0) >= 0 else -math.inf
    most = value_at_least if max(factors_of_unknowns, default=0) <= 0 else math.inf
    return least, most


def _sum_without_rounding(terms: Iterable[tuple[_Product, _Factor]], sign: int) -> Mapping[_Product, _Factor]:
    """Return a sum without rounded quotients that bounds the sum of these terms: one that is nowhere smaller
    (`sign` 1), or nowhere larger (-1). Of n // 2 these are n / 2, and n / 2 - 1 / 2.
    """
    bound: dict[_Product, _Factor] = {(): 0}
    for product, factor in terms:
        unrounded = product[0].rounded if len(product) == 1 else None
        denominator = 1
        for inner_product, inner_factor in [(product, 1)] if unrounded is None else unrounded.terms:
            bound[inner_product] = bound.get(inner_product, 0) + inner_factor * factor
            denominator = math.lcm(denominator, inner_factor.denominator)
        if factor * sign < 0:  # rounding has taken at most (d - 1) / d away
            bound[()] -= Fraction(denominator - 1, denominator) * factor
    return bound


Dim = int | Open


def unknown(name: str, least: int = 1, rounded: Open | None = None) -> Open:
    """Return an open size that is one unknown of this name, which is at least `least`, such as the rows of an
    input. `rounded` is as in Unknown.
    """
    return Open((((Unknown(name, least, rounded),), 1),))


BATCH = unknown("images")
"""The images of a free batch."""
PLACE = unknown("the place of an image", 0)
"""The place of each image in a free batch."""
ONLY = unknown("the only image")
"""The one image of a file that states a batch of one, which is free in the port: its axis is not lost among
those of one cell, and counts as one.
"""


def _name(unknown: Unknown) -> str:
    return unknown.name


def terms_of(number: Any) -> Sequence[tuple[_Product, _Factor]]:
    """Return the terms of a size. A size that is not open is one term without unknowns.

    Raises:
        Undecided: the number is not whole.
    """
    if isinstance(number, Open):
        return number.terms
    integer = int(number)
    if number != integer:
        raise Undecided
    return [((), integer)]


def is_real(*numbers: Any) -> bool:
    """Return whether one of these numbers is computed as a real number, not as a whole one, as a file states
    it.
    """
    return any(
        number.is_real if isinstance(number, Open) else isinstance(number, float) for number in numbers
    )


def _simplify(terms: Mapping[_Product, _Factor], is_real: bool) -> Any:
    """Make a size of the terms of a sum: without terms of factor 0, in order, and with integers for whole
    fractions. A sum in which no unknown is left becomes an integer, or a float if it `is_real`.

    Raises:
        Undecided: the sum has too many terms or too large ones, or is a fraction.
    """
    nonzero = [(product, factor) for product, factor in terms.items() if factor]
    nonzero.sort(key=lambda term: [unknown.name for unknown in term[0]])
    simplified = tuple(
        (product, factor.numerator if factor.denominator == 1 else factor) for product, factor in nonzero
    )
    has_large = any(_is_large(factor) or len(product) > _MOST_TERMS for product, factor in simplified)
    if len(simplified) > _MOST_TERMS or has_large:
        raise Undecided
    has_unknowns = any(product for product, _ in simplified)
    if has_unknowns:
        return Open(simplified, is_real)
    number = sum(factor for _, factor in simplified)
    if number != int(number):
        raise Undecided
    return float(number) if is_real else int(number)


def _is_large(factor: _Factor) -> bool:
    return max(abs(factor.numerator), factor.denominator) > _LARGEST_FACTOR


def divide(number: Any, by: Any) -> tuple[Any, Any]:
    """Return the quotient, rounded down, and what is left. By a number, every term is divided; by an open
    size, the sums are divided as polynomials. Raises Undecided as these do.
    """
    if not isinstance(by, Open):
        # by a number: a quotient that is not whole becomes an unknown of its own
        ((_, divisor),) = terms_of(by)
        quotient = _floor_sum({product: Fraction(factor, divisor) for product, factor in terms_of(number)})
    elif number == 0:
        quotient = 0
    else:
        quotient = _divide_sums(number, by)
    remainder = number - quotient * by
    return (quotient * 1.0 if is_real(number, by) else quotient), remainder


def _divide_sums(number: Any, by: Open) -> Any:
    """Return the quotient of two sums, as long division of polynomials finds it: h of h * w + h by w + 1.

    Raises:
        Undecided: something is left.
    """
    quotient: Any = 0
    divisor_product, divisor_factor = max(by.terms, key=_degree)
    rest = number
    for _ in range(_MOST_TERMS):
        if rest == 0:
            return quotient
        # the leading term of what is left, over the divisor's
        product, factor = max(terms_of(rest), key=_degree)
        exponents = Counter(product)
        exponents.subtract(divisor_product)
        if min(exponents.values()) < 0 or factor % divisor_factor:
            break
        term = _simplify({tuple(sorted(exponents.elements(), key=_name)): factor // divisor_factor}, False)
        quotient = quotient + term
        rest = rest - term * by
    raise Undecided


def _degree(term: tuple[_Product, _Factor]) -> tuple[int, list[str]]:
    """Return the key by which long division orders the terms of a sum. Multiplying two terms by the same
    product keeps their order.
    """
    return len(term[0]), [each.name for each in term[0]]


def _floor_sum(terms: Mapping[_Product, _Factor]) -> Any:
    """Round a sum down: keep its whole factors, and make an unknown of what is left of one unknown and a
    number: of 3/2 n + 1/2 that is n + m, where m is an unknown for n/2 + 1/2 rounded down. That is the same
    unknown however a file comes to it, and rounding twice is rounding once.

    Raises:
        Undecided: more than that is left.
    """
    whole_part = _simplify({product: math.floor(factor) for product, factor in terms.items()}, False)
    fractions = {
        product: factor - math.floor(factor)
        for product, factor in terms.items()
        if factor != math.floor(factor)
    }
    constant = fractions.pop((), Fraction())
    if not fractions:
        return whole_part
    ((product, factor), *more_terms) = fractions.items()
    if more_terms or len(product) != 1:
        raise Undecided
    unrounded = product[0].rounded
    if unrounded is not None and factor.numerator != 1:
        raise Undecided
    # rounded down to the unknown's denominator: what is left of it never makes the sum a whole number more
    constant = Fraction(math.floor(constant * factor.denominator), factor.denominator)
    if unrounded is not None:
        # a rounded quotient that is divided again is rounded once, from what it was before
        divided = {inner_product: times * factor for inner_product, times in unrounded.terms}
        return whole_part + _floor_sum({**divided, (): divided.get((), 0) + constant})
    exact = _simplify({product: factor, (): constant}, False)
    name = f"{factor} {product[0].name} + {constant}"
    return whole_part + unknown(name, math.floor(exact.bounds[0]), exact)


def exact_size(number: Dim) -> Dim:
    """Return a size in which no quotient is rounded, but for those that are subtracted: n / 2 for n // 2. It
    replaces the size of an axis only where the exact one fits: then the division left nothing.

    Raises:
        Undecided: the sum of its parts is not whole.
    """
    exact_sum: Any = 0
    for product, factor in terms_of(number):
        exact_product: Any = 1
        for unknown_factor in product:
            stays = unknown_factor.rounded is None or factor < 0  # negative terms stay rounded
            exact_product = exact_product * (
                Open((((unknown_factor,), 1),)) if stays else unknown_factor.rounded
            )
        term = _simplify({inner: times * factor for inner, times in terms_of(exact_product)}, False)
        exact_sum = exact_sum + term
    exact: Dim = exact_sum
    return exact


def _is_above(difference: Any, bound: int) -> bool:
    """Return whether a difference is above a bound at every size of the input. Raises Undecided if it is at
    some.
    """
    least, most = difference.bounds if isinstance(difference, Open) else (difference, difference)
    if least <= bound < most:
        raise Undecided
    return bool(least > bound)


def is_equal(number: Any, other: Any) -> bool:
    """Return whether two sizes are the same at every size of the input.

    Raises:
        Undecided: they are the same at some sizes of the input only.
    """
    difference = number - other
    if not isinstance(difference, Open):
        return bool(difference == 0)
    least, most = difference.bounds
    if least <= 0 <= most:
        raise Undecided
    return False


def divides(divisor: Dim, number: Dim) -> bool:
    """Return whether a size is known to be a multiple of the divisor."""
    try:
        return divisor != 0 and number % divisor == 0
    except Undecided:
        return False


def ratio(number: Dim, divisor: Dim) -> int | None:
    """Return how many times a size is the divisor; None if that is no whole number, or the input decides."""
    times = number // divisor if divides(divisor, number) else None
    return None if isinstance(times, Open) else times


def quotient(number: Dim, by: Dim) -> Dim | None:
    """Return a size divided by another one if that leaves nothing, or if the quotient is one unknown times a
    fraction, such as n / 2 of n by 2: only the input decides whether that leaves something, and a reshape
    states that it does not. Return None otherwise.
    """
    if divides(by, number):
        return number // by
    divisor_terms = terms_of(by)
    if not isinstance(number, Open) or len(number.terms) != 1 or len(divisor_terms) != 1:
        return None
    (product, factor), (divisor_product, divisor_factor) = number.terms[0], divisor_terms[0]
    if divisor_factor == 0:
        return None
    exponents = Counter(product)
    exponents.subtract(divisor_product)
    if min(exponents.values()) < 0 or exponents.total() != 1:
        return None
    size: Dim = _simplify({tuple(exponents.elements()): Fraction(factor) / divisor_factor}, False)
    return size


def product(dims: Iterable[Dim]) -> Dim:
    """Multiply sizes; the product of none is 1."""
    first, *rest = [*dims] or [1]
    return reduce(operator.mul, rest, first)


def fixed_sizes(dims: Iterable[Dim]) -> list[int]:
    """Return the sizes as integers.

    Raises:
        Undecided: one of them is open.
    """
    sizes = []
    for dim in dims:
        if isinstance(dim, Open):
            raise Undecided
        sizes.append(dim)
    return sizes


def sizes_text(dims: Iterable[Dim]) -> str:
    """Write sizes as messages have them: `3x?x8`."""
    return "x".join("?" if isinstance(dim, Open) or dim < 0 else str(dim) for dim in dims)

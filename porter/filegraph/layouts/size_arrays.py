"""Arrays of numbers that a file computes from sizes, of which some may be open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.layouts.dims import Dim, Open, Undecided, Unknown, divide, is_equal, is_real, terms_of


def sizes_array(numbers: Any) -> Numbers:
    """Make an array of sizes: of integers, or of objects if some sizes are open."""
    array = np.asarray(numbers, object)
    if any(isinstance(each, Open) for each in array.flat):
        return array
    return np.asarray(array.tolist(), None if array.size else int)


def are_open(array: Numbers) -> bool:
    """Return whether an array holds sizes that may be open, as objects."""
    return array.dtype == object


def to_whole_number(number: Any) -> Dim:
    """Cut a real number, or a size that is computed as one, to a whole number."""
    return Open(number.terms) if isinstance(number, Open) else int(number)


def as_whole(array: Numbers) -> Numbers:
    """Cast an array to whole numbers, cut towards 0."""
    if are_open(array):
        return sizes_array(np.frompyfunc(to_whole_number, 1, 1)(array))
    return np.asarray(np.trunc(array), np.int64)


def as_real(array: Numbers) -> Numbers:
    """Cast an array to real numbers; open sizes stay open, and count as real ones."""
    return sizes_array(array * 1.0) if are_open(array) else array.astype(np.float64)


def _divide_like_file(number: Any, by: Any) -> Any:
    """Divide as a file does: real numbers exactly, whole ones cut towards 0.

    Raises:
        Undecided: the input decides whether a real quotient is exact, or to which side a whole one is cut.
    """
    if not isinstance(number, Open) and not isinstance(by, Open):
        return number / by if is_real(number, by) else int(number / by)
    quotient, rest = divide(number, by)
    # where nothing is negative, rounding down is cutting towards 0
    may_round_down = not is_real(number, by) and number >= 0 and by > 0
    if rest != 0 and not may_round_down:
        raise Undecided
    return quotient


def _remainder_size(number: Any, by: Any) -> Any:
    """Return what a division leaves. Where the input decides it, that is an unknown, whose name is made of
    both numbers, so that the same division always gives the same unknown.
    """
    try:
        return number % by
    except Undecided:
        digest = sha256(repr((terms_of(number), terms_of(by))).encode()).hexdigest()
        remainder = Unknown(f"remainder {digest}", 0)
        return Open((((remainder,), 1),), is_real(number, by))


def _elementwise_rounding(function: Callable[[float], int]) -> Callable[..., Any]:
    """Return a function that rounds each number of an array, in the number's own type. Open sizes are whole,
    and stay.
    """

    def round_number(number: Any) -> Any:
        """Round a number; number * 0 is a zero of its own type."""
        return number if isinstance(number, Open) else number * 0 + function(number)

    round_each: Callable[..., Any] = np.frompyfunc(round_number, 1, 1)  # of one array, giving one
    return round_each


ON_SIZES: Mapping[str, Callable[..., Any]] = {
    "Div": np.frompyfunc(_divide_like_file, 2, 1),
    "FloorMod": np.frompyfunc(_remainder_size, 2, 1),
    "Equal": np.frompyfunc(is_equal, 2, 1),
    "NotEqual": np.frompyfunc(lambda one, other: not is_equal(one, other), 2, 1),
    "Floor": _elementwise_rounding(math.floor),
    "Ceil": _elementwise_rounding(math.ceil),
    "Round": _elementwise_rounding(round),
}
"""Functions of arrays in which sizes are open, by the kinds of ELEMENTWISE of
porter.filegraph.tensors.constants: those that numpy lacks.
"""

"""How close the numbers of two tensors or two ops are, and by what the ones become the others: an order, a
factor, a rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.comparison.aligning import drawn_along
from porter.comparison.unit import Numbers, Unit
from porter.graph import ops

EXACT, ROUNDED = 1e-12, 1e-6
"""How far apart numbers may be that are folded in float64, and those that may have been folded before they
were stored in float32.
"""


def neutral_number(role: str) -> float:
    """Return the number with which a norm's scale (gamma, 1) or its offset (0) changes nothing; 0 for a mean
    too.
    """
    return 1.0 if role == "gamma" else 0.0


def equal_values(value_a: Any, value_b: Any) -> bool:
    """Return whether two attributes are the same; a file may store a number in float32."""
    are_numbers = isinstance(value_a, float | int) and isinstance(value_b, float | int)
    if are_numbers and not isinstance(value_a, bool):
        return bool(np.float32(value_a) == np.float32(value_b))
    return bool(value_a == value_b)


def equal_attributes(op_a: ops.Op, op_b: ops.Op) -> bool:
    """Return whether two ops have equal attributes. Pads do not count here, because they are compared as
    windows, nor does what changes no value.
    """
    values_a, values_b = (
        {name: value for name, value in vars(op).items() if name not in ("momentum", "keep", "convention")}
        for op in (op_a, op_b)
    )
    return values_a.keys() == values_b.keys() and all(
        equal_values(value, values_b[name]) for name, value in values_a.items()
    )


def distance(unit_a: Unit, unit_b: Unit, role: str) -> float:
    """Return how far apart the tensors of two units are: the largest difference in a filter over its largest
    number. A bias is one row.
    """
    array_a, array_b = unit_a.tensors[role], unit_b.tensors[role]
    if role in ("bias", "beta"):
        largest = max(float(np.abs(array_a).max(initial=0)), float(np.abs(array_b).max(initial=0)))
        return 0.0 if largest == 0 else float(np.abs(array_a - array_b).max()) / largest
    return row_distance(array_a, array_b)


def row_distance(array_a: Any, array_b: Any) -> float:
    """Return how far apart two arrays are: for each row (filter), the largest difference over the largest
    number of the first array; of these the worst. Infinite for other shapes, or if one array is None.
    """
    if array_a is None or array_b is None or np.shape(array_a) != np.shape(array_b):
        return math.inf
    numbers_a, numbers_b = np.asarray(array_a, np.float64), np.asarray(array_b, np.float64)
    rows = (len(numbers_a), -1) if numbers_a.ndim > 1 else (1, -1)
    apart = np.abs(numbers_a - numbers_b).reshape(rows).max(axis=1, initial=0)
    largest = np.abs(numbers_a).reshape(rows).max(axis=1, initial=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(apart == 0, 0.0, apart / largest)
    return float(np.max(ratios, initial=0))


def order_of_parts(array_a: Any, array_b: Any, axis: int, *biases: Any) -> NDArray[np.int64] | None:
    """Return the order in which A's array has the parts of B's along an axis: B's part i is A's part
    `order[i]`, as `[2, 1, 0]` for RGB beside BGR. Return None where the parts stand in the same order, or are
    others. Parts are sorted by their products with random numbers, and then compared.

    Args:
        biases: of A and B, with one number for each part along the axis.
    """
    if np.shape(array_a) != np.shape(array_b) or np.ndim(array_a) <= axis or np.shape(array_a)[axis] < 2:
        return None
    arrays = [np.asarray(array, np.float64) for array in (array_a, array_b)]
    has_biases = bool(biases) and biases[0] is not None
    largest = float(np.abs(arrays[0]).max(initial=0))
    products = [drawn_along(array, axis) for array in arrays]
    if has_biases:
        # parts with the same numbers are told apart by their biases
        products = [
            product + largest * np.asarray(bias) for product, bias in zip(products, biases, strict=True)
        ]
    sorting_a, sorting_b = (np.argsort(product, kind="stable") for product in products)
    gap = np.abs(products[0][sorting_a] - products[1][sorting_b]).max()
    # a cheap test before the arrays themselves are compared
    are_near = gap <= 1e-4 * np.abs(products[0]).max(initial=0)
    if largest == 0 or not are_near or (sorting_a == sorting_b).all():
        return None
    differences = [arrays[0].take(sorting_a, axis) - arrays[1].take(sorting_b, axis)]
    if has_biases:
        differences.append(np.asarray(biases[0])[sorting_a] - np.asarray(biases[1])[sorting_b])
    if any(np.abs(difference).max() > ROUNDED * largest for difference in differences):
        return None
    order = np.empty(len(sorting_a), np.int64)
    # from B's places to A's, through the sorted order
    order[sorting_b] = sorting_a
    return None if (order == np.arange(len(order))).all() else order


def common_factor(array_a: Any, array_b: Any) -> float | None:
    """Return the number by which the first array is multiplied to be the second, as 2.0 for `[1, 2]` and
    `[2, 4]`; None where there is no such number.
    """
    numbers_a, numbers_b = np.asarray(array_a, np.float64).ravel(), np.asarray(array_b, np.float64).ravel()
    if numbers_a.shape != numbers_b.shape or numbers_a.size < 2 or not numbers_a.any() or not numbers_b.any():
        return None
    # the best factor by least squares
    factor = float(numbers_a @ numbers_b / (numbers_a @ numbers_a))
    farthest = np.abs(numbers_a * factor - numbers_b).max()
    return factor if farthest <= ROUNDED * np.abs(numbers_b).max() else None


def ratios_of_filters(kernel_a: Any, kernel_b: Any) -> Numbers | None:
    """Return for each filter the number by which the first kernel's is multiplied to be the second's; None
    where some filter is no multiple of the other.
    """
    filters_a, filters_b = kernel_a.reshape(len(kernel_a), -1), kernel_b.reshape(len(kernel_b), -1)
    squares = np.square(filters_a).sum(axis=1)
    if filters_a.shape != filters_b.shape or filters_a.shape[1] < 2 or not squares.all():
        return None
    ratios: Numbers = (filters_a * filters_b).sum(axis=1) / squares
    are_multiples = np.abs(filters_a * ratios[:, None] - filters_b).max(axis=1) <= ROUNDED * np.abs(
        filters_b
    ).max(axis=1)
    return ratios if are_multiples.all() else None


def half_type_of(array_a: Any, array_b: Any) -> str | None:
    """Return the half type, float16 or bfloat16, to which the first array has to be rounded to be the
    second; None if it is neither.
    """
    with np.errstate(over="ignore"):
        half = np.asarray(array_a, np.float64).astype(np.float16).astype(np.float64)
    bits = np.asarray(array_a, np.float32).view(np.uint32)
    # round to even at bit 16, as bfloat16 is the upper half of float32
    brain = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    if np.array_equal(half, array_b):
        return "float16"
    return "bfloat16" if np.array_equal(brain, array_b) else None

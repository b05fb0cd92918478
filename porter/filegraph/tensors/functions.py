"""Functions of tensors that are several of porter's ops, for every format.

Axes are places in the tensor as the file has it, from either end; they stay with one cell if `keep`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from operator import add, mul

import numpy as np

from porter.filegraph.dataflow import N
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Open
from porter.filegraph.places import position_of
from porter.filegraph.tensors import constants
from porter.filegraph.tensors.along import Positions
from porter.filegraph.tensors.parts import MOST_PARTS
from porter.filegraph.tensors.several import maximum
from porter.filegraph.tensors.tensor import (
    Tensor,
    combine_operands,
    compare_operands,
    compute_or_derive,
)
from porter.graph import ops

TensorFunction = Callable[[Tensor], Tensor]


def _elementwise(op: ops.Op) -> TensorFunction:
    """Make the function of a tensor that applies an op to each number: `relu(x)`."""
    return lambda x: x.apply_elementwise(op)


cos, erf, exp, floor, log = map(_elementwise, (ops.Cos(), ops.Erf(), ops.Exp(), ops.Floor(), ops.Log()))
relu, sigmoid, sin, softplus = map(_elementwise, (ops.Relu(), ops.Sigmoid(), ops.Sin(), ops.Softplus()))
sqrt = _elementwise(ops.Sqrt())


def rsqrt(x: Tensor) -> Tensor:
    """Compute 1 / sqrt(x)."""
    return x.apply_elementwise(ops.Sqrt(), ops.Reciprocal())


def log_sigmoid(x: Tensor) -> Tensor:
    return -softplus(-x)


def trunc(x: Tensor) -> Tensor:
    """Cut each number to the next whole one towards 0."""
    return floor(relu(x)) - floor(relu(-x))


def _log_with_root(x: Tensor, number: float) -> Tensor:
    """Compute log(x + sqrt(x * x + number))."""
    return log(x + sqrt(x * x + number))


def asinh(x: Tensor) -> Tensor:
    """Compute the inverse of sinh from the size of x, and give it x's sign: for numbers far below 0 the sum
    in the logarithm would be 0.
    """
    return _log_with_root(abs(x), 1.0) * (2.0 * (x >= 0.0) - 1.0)


FUNCTIONS: Mapping[str, TensorFunction] = {
    "acosh": lambda x: _log_with_root(x, -1.0),
    "asinh": asinh,
    "atanh": lambda x: 0.5 * log(1.0 + x) - 0.5 * log(1.0 - x),
    "cosh": lambda x: 0.5 * exp(x) + 0.5 * exp(-x),
    "erfc": lambda x: 1.0 - erf(x),
    "exp2": lambda x: exp(math.log(2) * x),
    "expm1": lambda x: exp(x) - 1.0,
    "frac": lambda x: x - trunc(x),
    "log10": lambda x: (1 / math.log(10)) * log(x),
    "log1p": lambda x: log(1.0 + x),
    "log2": lambda x: (1 / math.log(2)) * log(x),
    "sinh": lambda x: 0.5 * exp(x) - 0.5 * exp(-x),
    "tan": lambda x: sin(x) / cos(x),
    "trunc": trunc,
}
"""Functions of each number, by kind."""


def soft_shrink(x: Tensor, bound: float) -> Tensor:
    """Move x nearer to 0 by a bound; within the bound it becomes 0."""
    return x - x.clip(-bound, bound)


def hard_shrink(x: Tensor, bound: float) -> Tensor:
    """Keep x where its size is above a bound, and put 0 elsewhere."""
    return x * (abs(x) > bound)


def threshold(x: Tensor, number: float, replacement: float) -> Tensor:
    """Keep x where it is above a number, and put another number elsewhere."""
    above_or_zero = x.apply_elementwise(ops.ThresholdedRelu(number))
    return above_or_zero + replacement * (x <= number) if replacement else above_or_zero


def logit(x: Tensor, least: float | None) -> Tensor:
    """Compute log(x / (1 - x)); with `least`, x is first clipped to that distance from 0 and 1."""
    clipped = x if least is None else x.clip(least, 1 - least)
    return log(clipped) - log(1.0 - clipped)


def scaled_elu(x: Tensor, alpha: float, gamma: float) -> Tensor:
    """Compute gamma * Elu(x), which is a SELU with the numbers of its paper."""
    if (alpha, gamma) == (SELU_ALPHA, SELU_GAMMA):
        return x.apply_elementwise(ops.Selu())
    elu = x.apply_elementwise(ops.Elu(alpha))
    return elu if gamma == 1 else gamma * elu


SELU_ALPHA, SELU_GAMMA = 1.6732632423543772, 1.0507009873554805
"""The constants of arXiv:1706.02515, as torch has them; ONNX has them in float32."""


def is_truth(x: Tensor) -> bool:
    """Return whether a value is that of a comparison: 1 where something holds, and 0 elsewhere."""
    return x.view.value.node in x.walk.builder.truths


logical_not = Tensor.__invert__


def ones(x: Tensor) -> Tensor:
    return x.full_like(1.0)


def square(x: Tensor) -> Tensor:
    return x * x


def whole_quotient(x: Tensor, divisor: Tensor, mode: str) -> Tensor:
    """Divide x by a number, and round down (mode `floor`) or towards 0 (`trunc`)."""
    if x.array is not None:
        return combine_operands("quotient", "FloorDiv", x, divisor) if mode == "floor" else trunc(x / divisor)
    number = _divisor(x, divisor)
    mantissa, _ = math.frexp(number)
    is_power_of_two = abs(mantissa) == 0.5
    # x / number becomes x * (1 / number), where 1 / number is rounded unless it is a power of two, and
    # 49 * (1 / 49) is less than 1; a quotient of two values is divided
    quotient = x / number if is_power_of_two else x / x.full_like(number)
    return floor(quotient) if mode == "floor" else trunc(quotient)


def remainder(x: Tensor, divisor: Tensor, mode: str) -> Tensor:
    """Return what is left of x after the division by `whole_quotient`, which rounds down (mode `floor`) or
    towards 0 (`trunc`).
    """
    if x.array is not None:
        return combine_operands("remainder", "FloorMod" if mode == "floor" else "Mod", x, divisor)
    return x - _divisor(x, divisor) * whole_quotient(x, divisor, mode)


def _divisor(x: Tensor, divisor: Tensor) -> float:
    """Return the number by which a value is divided.

    Raises:
        Unsupported: the dividend is a constant, or the divisor is another value, several numbers or 0.
    """
    number = divisor.number() if x.is_value and not divisor.is_value else 0.0
    if not number:
        raise Unsupported("by something that is not one number other than 0")
    return number


def cut_to_whole(x: Tensor, goes_back: Callable[[N], bool]) -> Tensor:
    """Cut x to whole numbers, the next ones towards 0, where a file casts it to a whole type. They stay real
    numbers here, so every reader of the node has to cast them back (`goes_back`).

    Raises:
        Unsupported: some reader does not, or there is none.
    """
    readers = x.walk.flow.readers[x.scope.node.name]
    if not readers or not all(map(goes_back, readers)):
        raise Unsupported("to whole numbers")
    return trunc(x)


# Of two values, of which one may be a constant.


def squared_difference(x: Tensor, other: Tensor) -> Tensor:
    difference = x - other
    return difference * difference


def hypot(x: Tensor, other: Tensor) -> Tensor:
    return sqrt(x * x + other * other)


def log_add_exp(x: Tensor, other: Tensor) -> Tensor:
    """Compute log(exp(x) + exp(other)), as the larger one plus a softplus that cannot overflow."""
    return maximum(x, other) + softplus(-abs(x - other))


def equal(x: Tensor, other: Tensor) -> Tensor:
    return compare_operands("Equal", x, other, lambda x, y: _distance(x, y) <= 0.0)


def not_equal(x: Tensor, other: Tensor) -> Tensor:
    return compare_operands("NotEqual", x, other, lambda x, y: _distance(x, y) > 0.0)


def _distance(x: Tensor, other: Tensor) -> Tensor:
    """Return the absolute difference of two tensors. Raises Unsupported if one is a constant that is not
    finite.
    """
    for each in (x, other):
        if not each.is_value and not np.isfinite(each.numbers()).all():
            raise Unsupported("to numbers that are not finite")
    return abs(x - other)


def where(test: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return a tensor with the numbers of `first` where a comparison holds, and of `second` elsewhere. Either
    may be a constant. It is a sum of products, because a comparison is 1 where it holds and 0 elsewhere.
    """
    return compute_or_derive(
        "choice",
        partial(constants.compute_elementwise, "Where"),
        lambda node: _select(test, first, second).make(node),
        test,
        first,
        second,
    )


def _select(test: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return what `where` gives if one of the three is a value of the network: test * first + (1 - test) *
    second, without a summand that is zeros.
    """
    if not test.walk.is_live(test.source):
        return _select_by_stored(test, first, second)
    zero_sizes = test.walk.zero_sizes
    if zero_sizes.get(first.source) == test.view.sizes:
        return _masked(1.0 - test, second)
    if zero_sizes.get(second.source) == test.view.sizes:
        return _masked(test, first)
    return _masked(test, first) + _masked(1.0 - test, second)


def _masked(test: Tensor, x: Tensor) -> Tensor:
    """Multiply x by a comparison, which keeps x where that is 1, and makes it 0 elsewhere. Raises Unsupported
    for constants that are not finite, whose product with 0 is not 0.
    """
    numbers = None if x.walk.is_live(x.source) else x.walk.constant(x.source)
    if numbers is not None and not np.isfinite(numbers).all():
        raise Unsupported("of numbers that are not finite")
    return test * x


def _select_by_stored(test: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return what `where` gives for booleans that the file stores: the sum of each value times ones and
    zeros, and of one array of the constants' numbers.

    Raises:
        Unsupported: the test or a constant is not stored, or neither of the two is a value.
    """
    walk = test.walk
    truths = walk.constant(walk.drop_repeats(test.source))
    if truths is None or truths.dtype.kind != "b":
        raise Unsupported("by what the file stores")
    masked_values = list[Tensor]()
    masked_constants = np.zeros(())  # their sum
    for x, mask in ((first, truths), (second, ~truths)):
        if x.is_value:
            masked_values.append(x * test.scope.constant(mask))
            continue
        numbers = walk.constant(walk.drop_repeats(x.source))
        if numbers is None:
            raise Unsupported("by what the file stores")
        masked_constants = masked_constants + np.where(mask, numbers, 0.0)
    if not masked_values:
        raise Unsupported("of what the file stores")
    total = reduce(add, masked_values)
    return total + test.scope.constant(masked_constants) if np.any(masked_constants) else total


# Along axes.


def log_sum_exp(x: Tensor, axes: Positions, keep: bool = False) -> Tensor:
    """Compute the logarithm of the sum of exp(x) along axes. The largest number is subtracted before exp,
    which could overflow, and added behind the logarithm.
    """
    largest = x.max(axes, True)
    total = log(exp(x - largest).sum(axes, True)) + largest
    return total if keep else total.without_axes(axes)


def norm(x: Tensor, order: float, axes: Positions, keep: bool = False) -> Tensor:
    """Compute the norm of an order along axes: for 1 the sum of sizes, for infinity the largest size, for
    others the root of a sum of powers. Raises Unsupported for other orders of 0 and below.
    """
    if order == 2:
        return x.reduce("norm", axes, keep)
    if math.isinf(order):
        return abs(x).reduce("max" if order > 0 else "min", axes, keep)
    if order == 1:
        return abs(x).sum(axes, keep)
    if order <= 0:
        raise Unsupported(f"of order {order:g}")
    return abs(x).apply_elementwise(ops.Power(order)).sum(axes, keep).apply_elementwise(ops.Power(1 / order))


def divide_by_norm(x: Tensor, order: float, axes: Positions, least: float) -> Tensor:
    """Divide a value by its norm along axes, or by `least` if the norm is smaller."""
    return x / norm(x, order, axes, True).clip(least, math.inf)


def divide_by_root_of_squares(x: Tensor, axes: Positions, added: float) -> Tensor:
    """Divide a value by the root of its sum of squares along axes and a small number (`added`)."""
    return x / sqrt(square(x).sum(axes, True) + added)


def divide_by_deviation(x: Tensor, axes: Positions, added: float) -> Tensor:
    """Subtract the mean along axes, and divide by the standard deviation and a small number (`added`)."""
    centred = x - x.mean(axes, True)
    return centred / (sqrt(square(centred).mean(axes, True)) + added)


def cosine_similarity(x: Tensor, other: Tensor, axes: Positions, least: float) -> Tensor:
    """Sum the products of two values along axes, and divide by their norms, which are not below `least`."""
    x_norm, other_norm = (norm(each, 2, axes).clip(least, math.inf) for each in (x, other))
    return (x * other).sum(axes) / x_norm / other_norm


def variance(x: Tensor, axes: Positions, keep: bool, less: float = 0.0) -> Tensor:
    """Compute the mean squared difference from the mean along axes. The sum of squares is divided by the
    number of cells less `less`, which is 1 for the unbiased variance.
    """
    known_sizes = [size for size in (x.size(axis) for axis in axes) if not isinstance(size, Open)]
    count = math.prod(known_sizes)
    if less and (len(known_sizes) < len(axes) or count <= less):
        raise Unsupported("over axes of open sizes, or of one cell")
    biased = squared_difference(x, x.mean(axes, True)).mean(axes, keep)
    return count / (count - less) * biased if less else biased


def prod(x: Tensor, axes: Positions, keep: bool = False) -> Tensor:
    """Multiply the numbers along axes. Those of a value have few cells, since each is an operand of its
    own.
    """
    return compute_or_derive(
        "product",
        lambda array: constants.reduce(array, "prod", axes, keep),
        lambda node: _multiply_cells(x, axes, keep).make(node),
        x,
    )


def _multiply_cells(x: Tensor, axes: Positions, keep: bool) -> Tensor:
    """Multiply the cells along axes, one by one. Raises Unsupported for an axis of open size or of too many
    cells.
    """
    result = x
    for axis in axes:
        size = x.size(axis)
        if isinstance(size, Open) or not 0 < size <= MOST_PARTS:
            raise Unsupported(f"over an axis of open size, or of more than {MOST_PARTS} cells")
        cells = [result.cut({axis: slice(index, index + 1)}) for index in range(size)]
        result = reduce(mul, cells)
    return result if keep else result.without_axes(axes)


def swap_axes(x: Tensor, first: int, second: int) -> Tensor:
    """Exchange two axes."""
    order = [*range(x.rank)]
    first, second = position_of(first, len(order)), position_of(second, len(order))
    order[first], order[second] = second, first
    return x.transpose(order)


def move_axes(x: Tensor, sources: Iterable[int], destinations: Iterable[int]) -> Tensor:
    """Put some axes at other places, and all others between these in their order: a map N×C×H×W with axis 1
    moved to 3 is N×H×W×C.
    """
    rank = x.rank
    sources, destinations = ([position_of(axis, rank) for axis in axes] for axes in (sources, destinations))
    order = [axis for axis in range(rank) if axis not in sources]
    # Places ascend, so that an axis that is put in later moves none of those before it.
    for position, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(position, axis)
    return x.transpose(order)


def glu(x: Tensor, axis: int) -> Tensor:
    """Multiply the first half of an axis by the sigmoid of the second half. Raises Unsupported for an open or
    odd size.
    """
    size = x.size(axis)
    if isinstance(size, Open) or size % 2:
        raise Unsupported("over an axis that has no known halves")
    half = size // 2
    return x.cut({axis: slice(0, half)}) * sigmoid(x.cut({axis: slice(half, size)}))


def band_part(x: Tensor, least: int | None, most: int | None) -> Tensor:
    """Keep the numbers of the last two axes on a band of diagonals, and put zeros elsewhere: those whose
    column less their row is at least `least` and at most `most`; None leaves that side open. With `least` 0
    and `most` None that is the upper triangle. Raises Unsupported for axes of open size, or of too many
    cells.
    """
    known_sizes = [size for size in x.sizes[-2:] if not isinstance(size, Open)]
    if len(known_sizes) < 2 or not x.walk.flow.reserve_bytes(8 * math.prod(known_sizes)):
        raise Unsupported("over axes of open size, or of too many cells")
    mask = np.ones(known_sizes)
    if least is not None:
        mask = np.triu(mask, least)
    if most is not None:
        mask = np.tril(mask, most)
    return x * x.scope.constant(mask)

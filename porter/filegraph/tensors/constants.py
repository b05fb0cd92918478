"""What numpy computes of constants, for each operation that a tensor has (porter.filegraph.tensors.tensor).

Functions take numbers as the file has them, whole or real, or sizes that may be open. Axes are places in the
array, from either end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.kernels import layouts, values
from porter.filegraph.kernels.resizing import Rule, resize as resized
from porter.filegraph.layouts.dims import Dim, Open, Undecided, fixed_sizes
from porter.filegraph.layouts.size_arrays import ON_SIZES, are_open
from porter.filegraph.places import position_of
from porter.graph import LogSoftmax, Op, Resize

MOST_COMPUTED = 1 << 23
"""The most numbers of a value that a file computes from stored tensors, if these have fewer: a table of
relative positions.
"""


def expect_room(count: int, *operands: Numbers) -> None:
    """Expect that a result of `count` numbers is no larger than its operands, or than `MOST_COMPUTED`:
    otherwise a short file could make numpy take any memory.

    Raises:
        Unsupported: it is larger.
    """
    if count > max((MOST_COMPUTED, *(operand.size for operand in operands))):
        raise Unsupported(f"that gives {count} numbers of constants")


# Each number.


def _divide_like_file(first: Numbers, second: Numbers) -> Numbers:
    """Divide as a file does: real numbers exactly, whole ones cut towards 0."""
    are_integers = first.dtype.kind == second.dtype.kind == "i"
    return np.trunc(first / second).astype(np.int64) if are_integers else np.asarray(first / second)


def _keep_integers(function: Callable[[Numbers], Numbers]) -> Callable[[Numbers], Numbers]:
    """Return a function that leaves arrays of whole numbers as they are, and calls `function` for others."""
    return lambda x: x if x.dtype.kind == "i" else function(x)


ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Ceil": _keep_integers(np.ceil),
    "Cos": np.cos,
    "Div": _divide_like_file,
    "Equal": np.equal,
    "Erf": values.erf,
    "Exp": np.exp,
    "Floor": _keep_integers(np.floor),
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.fmod,
    "Mul": np.multiply,
    "NotEqual": np.not_equal,
    "Pow": np.power,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": _keep_integers(np.round),
    "Sigmoid": values.sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Where": np.where,
}
"""Functions of each number, by the names of ops and of nodes in patterns; operands broadcast. numpy's own
take open sizes too, but for `ON_SIZES`.
"""


def compute_elementwise(kind: str, *operands: Numbers) -> Numbers:
    """Compute a function of each number, by its kind in ELEMENTWISE; operands broadcast.

    Raises:
        Unsupported: numpy has none of this kind.
        ValueError: the operands do not fit.
    """
    if kind not in ELEMENTWISE:
        raise Unsupported("of constants")
    expect_room(math.prod(np.broadcast_shapes(*(x.shape for x in operands))), *operands)
    function = ELEMENTWISE[kind]
    if any(map(are_open, operands)):
        function = ON_SIZES.get(kind, function)
    return np.asarray(function(*operands))


def chain(x: Numbers, *steps: Op) -> Numbers:
    """Apply ops to each number, one after the other. Raises Unsupported for ops with attributes."""
    for op in steps:
        has_attributes = bool(vars(op))
        if has_attributes:
            raise Unsupported("of constants")
        x = compute_elementwise(type(op).__name__, x)
    return x


def negative(x: Numbers) -> Numbers:
    return -x


def clip(x: Numbers, low: float, high: float) -> Numbers:
    """Clip numbers; whole numbers stay whole between whole bounds."""
    are_integers = x.dtype.kind == "i"
    least, most = (int(bound) if are_integers and bound % 1 == 0 else bound for bound in (low, high))
    raised = x if least == -math.inf else np.maximum(x, least)
    return np.asarray(raised if most == math.inf else np.minimum(raised, most))


def full_like(x: Numbers, number: float) -> Numbers:
    return np.full(x.shape, number)


def full(sizes: Sequence[Dim], number: float) -> Numbers:
    """Return an array of one number. Raises Undecided if a size is open."""
    wanted = fixed_sizes(sizes)
    expect_room(math.prod(wanted))
    return np.full(wanted, number)


def arange(start: Any, limit: Any, step: Any) -> Numbers:
    """Return the numbers from a start on by steps, before a limit. Raises Undecided if one of these is open.
    Raises Unsupported for a step of 0 and for too many numbers.
    """
    if any(isinstance(each, Open) for each in (start, limit, step)):
        raise Undecided
    if not step or (limit - start) / step > MOST_COMPUTED:
        raise Unsupported("of numbers that are not stated, or of too many")
    return np.arange(start, limit, step)


# Along axes, which stay with one cell if `keep`.


def _sum_in_order(x: Numbers, axes: Sequence[int], keepdims: bool) -> Numbers:
    """Sum along axes, one number after the other: numpy's sum adds in another order on each processor, and a
    port's numbers are computed again where it is verified.
    """
    summed_axes = [position_of(axis, x.ndim) for axis in axes]
    kept_axes = [axis for axis in range(x.ndim) if axis not in summed_axes]
    kept_sizes = [x.shape[axis] for axis in kept_axes]
    rows = x.transpose([*kept_axes, *summed_axes]).reshape(*kept_sizes, -1)
    # the last running sum; of no numbers there is none
    total = np.add.accumulate(rows, -1)[..., -1] if rows.shape[-1] else rows.sum(-1)
    return np.expand_dims(total, summed_axes) if keepdims else total


_REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": np.max,
    "mean": np.mean,
    "min": np.min,
    "norm": lambda x, axes, **kept: np.sqrt(np.square(x).sum(axes, **kept)),
    "prod": np.prod,
    "sum": _sum_in_order,
}


def reduce(x: Numbers, function: str, positions: Collection[int], keep: bool = False) -> Numbers:
    return np.asarray(_REDUCTIONS[function](x, tuple(positions), keepdims=keep))


def softmax(x: Numbers, *positions: int, op: Op | None = None) -> Numbers:
    if len(positions) != 1:
        raise Unsupported("of constants over several axes")
    return (values.log_softmax if isinstance(op, LogSoftmax) else values.softmax)(x, *positions)


def cumsum(x: Numbers, axis: int, reverse: bool = False, exclusive: bool = False) -> Numbers:
    """Sum the numbers along an axis up to each of them; from the last one on if `reverse`, without the number
    itself if `exclusive`.
    """
    numbers = np.flip(x, axis) if reverse else x
    sums = np.add.accumulate(numbers, axis)
    running = sums - numbers if exclusive else sums
    return np.flip(running, axis) if reverse else running


# The axes themselves.


def reshape(x: Numbers, sizes: Sequence[Dim]) -> Numbers:
    return x.reshape(fixed_sizes(sizes))


def flatten(x: Numbers, first: int, last: int = -1) -> Numbers:
    """Join the axes from the first to the last."""
    start, end = (position_of(position, x.ndim) for position in (first, last))
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def squeeze(x: Numbers, positions: Collection[int] | None = None) -> Numbers:
    return x.squeeze(tuple(positions) if positions else None)


def unsqueeze(x: Numbers, positions: Collection[int]) -> Numbers:
    return np.expand_dims(x, tuple(positions))


def transpose(x: Numbers, order: Sequence[int]) -> Numbers:
    return x.transpose(order)


def flip(x: Numbers, positions: Collection[int]) -> Numbers:
    return np.flip(x, tuple(positions))


def expand(x: Numbers, sizes: Sequence[Dim]) -> Numbers:
    """Repeat axes of one cell to these sizes; -1 keeps an axis."""
    old_sizes = [1] * (len(sizes) - x.ndim) + [*x.shape]
    replaced_sizes = old_sizes[len(old_sizes) - len(sizes) :]  # of the last axes
    wanted = [
        old if size == -1 else size for old, size in zip(replaced_sizes, fixed_sizes(sizes), strict=True)
    ]
    shape = np.broadcast_shapes(x.shape, tuple(wanted))
    expect_room(math.prod(shape), x)
    return np.broadcast_to(x, shape)


def repeat(x: Numbers, times: Sequence[Dim]) -> Numbers:
    """Repeat each axis so many times, one whole copy after the other, as numpy's tile does."""
    counts = fixed_sizes(times)
    expect_room(x.size * math.prod(counts), x)
    return np.tile(x, counts)


def interleave(x: Numbers, axis: int, times: int) -> Numbers:
    """Repeat each cell of an axis so many times, one copy after the other."""
    expect_room(x.size * times, x)
    return x.repeat(times, axis)


def cut(x: Numbers, parts: Mapping[int, slice | int]) -> Numbers:
    """Cut a part out of each axis that `parts` names; a number takes its axis away."""
    index: list[slice | int] = [slice(None)] * x.ndim
    for position, part in parts.items():
        axis = position_of(position, x.ndim)
        index[axis] = position_of(part, x.shape[axis]) if isinstance(part, int) else known_slice(part)
    return x[tuple(index)]


def known_slice(part: slice) -> slice:
    """Return a slice with its ends as integers. Raises Undecided if one is open."""
    numbers = (part.start, part.stop, part.step)
    return slice(*(None if number is None else fixed_sizes([number])[0] for number in numbers))


def take(x: Numbers, index: Sequence[slice | int | None]) -> Numbers:
    """Take a part of an array by numpy's index, without ellipses; None adds an axis."""
    parts = [part for part in index if part is not None]
    result = cut(x, dict(enumerate(parts)))
    # the result has an axis for each slice, and for each None
    index_of_result = [part for part in index if not isinstance(part, int)]
    added_axes = [position for position, part in enumerate(index_of_result) if part is None]
    return np.expand_dims(result, added_axes) if added_axes else result


def gather(x: Numbers, axis: int, places: Sequence[int]) -> Numbers:
    """Take the cells at these places of an axis."""
    size = x.shape[position_of(axis, x.ndim)]
    count = x.size // max(size, 1) * len(places)
    expect_room(count, x)
    return x.take([position_of(place, size) for place in places], axis)


def pad(x: Numbers, pairs: Mapping[int, tuple[Dim, Dim]], fill: float = 0.0) -> Numbers:
    """Pad axes by one number, within the bound of constants; a negative pad cuts cells off."""
    widths = [(0, 0)] * x.ndim
    for position, pair in pairs.items():
        before, after = fixed_sizes(pair)
        widths[position_of(position, x.ndim)] = before, after
    expect_room(math.prod(size + sum(pair) for size, pair in zip(x.shape, widths, strict=True)), x)
    return layouts.pad(x, widths, value=fill)


def resize(x: Numbers, op: Resize, scales: Mapping[int, float], sizes: Mapping[int, Dim]) -> Numbers:
    """Resize axes of maps, such as a table of positions at another size, by `scales` or to `sizes` of
    axes.
    """
    rule = Rule(op.mode, op.coordinates, op.rounding, op.a, op.inside)
    for axis in {**sizes, **scales}:
        if axis in sizes:
            (size,) = fixed_sizes([sizes[axis]])
        else:
            size = math.floor(x.shape[axis] * scales[axis])
        expect_room(x.size // max(x.shape[axis], 1) * size, x)
        x = resized(x, axis, size, scales.get(axis, size / x.shape[axis]), rule)
    return x


# Several tensors.


def concat(arrays: Sequence[Numbers], axis: int) -> Numbers:
    return np.concatenate(arrays, axis)


def stack(arrays: Sequence[Numbers], axis: int) -> Numbers:
    return np.stack(arrays, axis)


def matmul(first: Numbers, second: Numbers) -> Numbers:
    """Multiply matrices, or stacks of them, within the bound of constants."""
    outer_sizes = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    rows, columns = first.shape[-2:-1], second.shape[-1:]  # of the product; none for a vector
    expect_room(math.prod([*outer_sizes, *rows, *columns]), first, second)
    return np.asarray(first @ second)

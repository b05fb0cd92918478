"""Sums that JAX traces, and what is computed of several of them: means, norms and softmaxes, as operators of
ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, at_each
from porter.frameworks.flax.tracing.writer import Write, Writer, is_open, plain


def mean(writer: Writer, operation: JaxEquation) -> str | None:
    """Return a sum over axes that is divided by their cells."""
    top, bottom = operation.inputs
    total = writer.giving(top, "reduce_sum")
    if total is None:
        return None
    (source,) = total.inputs
    if not is_count(writer, bottom, [writer.shape(source)[axis] for axis in total.params["axes"]]):
        return None
    return _over(writer, operation, total, "ReduceMean", source)


def _over(writer: Writer, operation: JaxEquation, total: JaxEquation, kind: str, source: str) -> str:
    """Return what is computed of a sum, which may have axes of one cell since, as an operator over the same
    axes of `source`.
    """
    axes = tuple(int(axis) for axis in total.params["axes"])
    reduced, top = writer.reduce(kind, source, axes), operation.source
    one = tuple(1 if axis in axes else size for axis, size in enumerate(writer.shape(source)))
    if writer.shape(top) == writer.shape(total.outputs[0]):
        writer.kept[operation.outputs[0]] = axes
    elif writer.shape(top) != one:
        return writer.node("Reshape", reduced, writer.dims(writer.shape(top), one))
    return reduced


def square_root(writer: Writer, operation: JaxEquation) -> str:
    """Return a root; of a sum of squares the norm."""
    total = writer.giving(operation.source, "reduce_sum")
    source = total and _squared(writer, total.source)
    return (
        _over(writer, operation, total, "ReduceL2", source)
        if total and source
        else str(plain("Sqrt")(writer, operation))
    )


def _squared(writer: Writer, name: str) -> str | None:
    """Return what a value is the square of."""
    made = writer.made.get(name)
    if made is None or not (made.name == "square" or (made.name == "mul" and made.source == made.inputs[1])):
        return None
    return made.source


def _mean_of(writer: Writer, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return what a value is the mean of, and over which axes."""
    made = writer.giving(name, "div")
    total = made and writer.giving(made.source, "reduce_sum")
    return (total.source, tuple(map(int, total.params["axes"]))) if total else None


def _variance_of(writer: Writer, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Recognises, as `_mean_of` does, a variance: the mean of the squares of distances from the mean, or of
    squares, less its square.
    """
    largest = writer.giving(name, "max")
    less = largest and writer.giving(largest.inputs[1], "sub")
    mean_of_squares = _mean_of(writer, less.source if less else name)
    source = mean_of_squares and _squared(writer, mean_of_squares[0])
    if mean_of_squares is None or source is None or less is not None:
        return (source, mean_of_squares[1]) if mean_of_squares and source else None
    apart = writer.made.get(source)
    mean = _mean_of(writer, apart.inputs[1]) if apart is not None and apart.name == "sub" else None
    return mean if apart is not None and mean == (apart.source, mean_of_squares[1]) else None


def group_norm(writer: Writer, operation: JaxEquation) -> str | None:
    """(x - mean) / sqrt(variance + epsilon), where both are of groups of channels, as nnx.GroupNorm computes
    it.
    """
    for one, other in (operation.inputs, operation.inputs[::-1]):
        apart, scaled = writer.made.get(one), writer.made.get(other)
        factors = [*scaled.inputs] if scaled is not None and scaled.name == "mul" else [other]
        root = next((name for name in factors if writer.giving(name, "rsqrt")), None)
        if apart is None or apart.name != "sub" or root is None:
            continue
        normed = _normed_groups(writer, apart, root)
        if normed is not None:
            scales = [name for name in factors if name != root]
            return writer.node("Mul", normed, writer.of(scales[0])) if scales else normed
    return None


def _normed_groups(writer: Writer, difference: JaxEquation, root: str) -> str | None:
    """x - mean over the root, without a scale."""
    source, mean = difference.inputs
    rank = len(writer.shape(source))
    total = writer.giving(root, "rsqrt")
    added = total and writer.giving(total.source, "add")
    cells = _mean_of(writer, mean)
    epsilon: Any = writer.constant(added.inputs[1]) if added else None
    if cells is None or added is None or cells != _variance_of(writer, added.source) or is_open(epsilon):
        return None
    made = writer.made.get(cells[0])
    groups = writer.shape(cells[0])[-2]
    if (
        made is None
        or made.name != "reshape"
        or made.source != source
        or len(writer.shape(cells[0])) != rank + 1
    ):
        return None
    if (
        cells[1] != (*range(1, rank - 1), rank)
        or {*writer.shape(mean)[1:-1]} - {1}
        or isinstance(groups, PerTrace)
    ):
        return None
    value = writer.turned(source, (0, rank - 1, *range(1, rank - 1)))
    parted = writer.node("Reshape", value, writer.integers(0, groups, -1))
    neutral = (writer.add_constant(np.full(groups, number, np.float32)) for number in (1, 0))
    normed = writer.node("InstanceNormalization", parted, *neutral, epsilon=float(epsilon))
    return writer.node(
        "Transpose", writer.node("Reshape", normed, writer.node("Shape", value)), perm=(0, *range(2, rank), 1)
    )


def is_count(writer: Writer, name: str, sizes: Sequence[int | PerTrace]) -> bool:
    """Say whether a value is the number of cells of these sizes."""
    number = writer.constant(name)
    count = max((len(each.at) for each in (number, *sizes) if isinstance(each, PerTrace)), default=1)
    products = map(math.prod, zip(*(at_each(size, count) for size in sizes), strict=True))
    if number is None:
        return False
    pairs = zip(at_each(number, count), products, strict=True)
    return all(np.size(each) == 1 and float(each) == cells for each, cells in pairs)


def softmax(writer: Writer, operation: JaxEquation) -> str | None:
    """exp(x - m) divided by its sums along an axis, of which each has one m."""
    raised = writer.made.get(operation.source)
    total = writer.giving(operation.inputs[1], "reduce_sum")
    value = _summed_exponential(writer, raised, total)
    if value is None or raised is None:
        return None
    source, axis = value
    return writer.node("Softmax", writer.full(source), axis=axis)


def log_softmax(writer: Writer, operation: JaxEquation) -> str | None:
    """x - m without the logarithm of the sums of exp(x - m)."""
    log = writer.giving(operation.inputs[1], "log")
    total = None if log is None else writer.giving(log.source, "reduce_sum")
    raised = None if total is None else writer.made.get(total.source)
    value = _summed_exponential(writer, raised, total)
    if value is None or raised is None or raised.source != operation.source:
        return None
    return writer.node("LogSoftmax", writer.full(value[0]), axis=value[1])


def _summed_exponential(
    writer: Writer, raised: JaxEquation | None, total: JaxEquation | None
) -> tuple[str, int] | None:
    """Return the x of exp(x - m) and the axis along which it is summed, where m has one number along it."""
    if (
        raised is None
        or total is None
        or raised.name != "exp"
        or total.inputs != raised.outputs
        or len(total.params["axes"]) != 1
    ):
        return None
    axis = int(total.params["axes"][0])
    difference = writer.made.get(raised.source)
    if (
        difference is None
        or difference.name != "sub"
        or writer.shape(difference.inputs[1])[axis : axis + 1] != (1,)
    ):
        return None
    return difference.source, axis


def reduce(kind: str) -> Write:
    """Write a reduction of this kind, whose axes stay until something reads them."""

    def write(writer: Writer, operation: JaxEquation) -> str:
        axes = tuple(int(axis) for axis in operation.params["axes"])
        writer.kept[operation.outputs[0]] = axes
        return writer.reduce(kind, operation.source, axes)

    return write

"""Sums that JAX traces, and what is computed of several of them: means, norms and softmaxes, as operators of
ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, in_each_trace
from porter.frameworks.flax.tracing.writer import Write, Writer, elementwise, is_open


def write_mean(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a sum over axes that is divided by the number of their cells as a mean; None for any other
    quotient.
    """
    top, bottom = operation.inputs
    total = writer.find_producer(top, "reduce_sum")
    if total is None:
        return None
    (source,) = total.inputs
    if not is_cell_count(writer, bottom, [writer.shape(source)[axis] for axis in total.params["axes"]]):
        return None
    return _reduce_as(writer, operation, total, "ReduceMean", source)


def _reduce_as(writer: Writer, operation: JaxEquation, summed: JaxEquation, kind: str, source: str) -> str:
    """Add one operator, such as ReduceMean, in place of a sum and of what is computed from it, such as a
    division by the number of cells, and return its value.

    Args:
        operation: what is computed from the sum, which may have been reshaped before.
        summed: the sum.
        kind: the operator, over the axes of the sum.
        source: the value that it reduces.
    """
    axes = tuple(int(axis) for axis in summed.params["axes"])
    reduced = writer.add_reduction(kind, source, axes)
    shape = writer.shape(operation.source)  # of the sum, and of what may have been made of it
    kept_shape = tuple(1 if axis in axes else size for axis, size in enumerate(writer.shape(source)))
    # The axes are left out here, and stand with one cell in the model until something reads the value.
    if shape == writer.shape(summed.outputs[0]):
        writer.kept_axes[operation.outputs[0]] = axes
    # Reshaped to anything else than axes of one cell.
    elif shape != kept_shape:
        return writer.add_node("Reshape", reduced, writer.add_sizes(shape, kept_shape))
    return reduced


def write_square_root(writer: Writer, operation: JaxEquation) -> str:
    """Write a square root as a Sqrt; of a sum of squares it is the norm, a ReduceL2."""
    total = writer.find_producer(operation.source, "reduce_sum")
    source = total and _root_of_square(writer, total.source)
    if total and source:
        return _reduce_as(writer, operation, total, "ReduceL2", source)
    return str(elementwise("Sqrt")(writer, operation))


def _root_of_square(writer: Writer, name: str) -> str | None:
    """Return the name of x if this value is x * x or square(x); None for any other value."""
    producer = writer.producers.get(name)
    if producer is None:
        return None
    is_product_with_itself = producer.name == "mul" and producer.source == producer.inputs[1]
    return producer.source if producer.name == "square" or is_product_with_itself else None


def _source_of_mean(writer: Writer, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the name of x and the axes if this value is a sum of x over these axes, divided by a number;
    None for any other value.
    """
    quotient = writer.find_producer(name, "div")
    total = quotient and writer.find_producer(quotient.source, "reduce_sum")
    return (total.source, tuple(map(int, total.params["axes"]))) if total else None


def _source_of_variance(writer: Writer, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return, as `_source_of_mean` does, the value that this one is the variance of, and over which axes;
    None if it is no variance. It is the mean of the squares of distances from the mean, or the mean of the
    squares less the square of the mean, as a max of 0 and the difference.
    """
    clamped = writer.find_producer(name, "max")
    difference = clamped and writer.find_producer(clamped.inputs[1], "sub")
    mean_of_squares = _source_of_mean(writer, difference.source if difference else name)
    if mean_of_squares is None:
        return None
    squares, axes = mean_of_squares
    source = _root_of_square(writer, squares)
    if source is None:
        return None
    if difference is not None:
        return source, axes
    # The squares are of `x - mean(x)`, over the same axes.
    centred = writer.producers.get(source)
    if centred is None or centred.name != "sub":
        return None
    source_of_mean = _source_of_mean(writer, centred.inputs[1])
    return source_of_mean if source_of_mean == (centred.source, axes) else None


def write_group_norm(writer: Writer, operation: JaxEquation) -> str | None:
    """Write (x - mean) / sqrt(variance + epsilon), times a scale, as a group norm if both are of groups of
    channels, as nnx.GroupNorm computes it; None for any other product.
    """
    # Either factor may be the one with the root.
    for centred_name, factor_name in (operation.inputs, operation.inputs[::-1]):
        centred, product = writer.producers.get(centred_name), writer.producers.get(factor_name)
        # That factor is the root, or the root times a scale.
        factors = [*product.inputs] if product is not None and product.name == "mul" else [factor_name]
        root = next((name for name in factors if writer.find_producer(name, "rsqrt")), None)
        if centred is None or centred.name != "sub" or root is None:
            continue
        normed = _add_group_norm(writer, centred, root)
        if normed is None:
            continue
        scales = [name for name in factors if name != root]
        return writer.add_node("Mul", normed, writer.broadcastable_value(scales[0])) if scales else normed
    return None


def _add_group_norm(writer: Writer, difference: JaxEquation, root: str) -> str | None:
    """Add the operators of (x - mean) / root, where `difference` is x - mean and `root` the rsqrt of a
    variance, and return their value, without a scale. None if mean and variance are not those of groups of x.
    """
    source, mean = difference.inputs
    rank = len(writer.shape(source))
    inverse_root = writer.find_producer(root, "rsqrt")
    sum_with_epsilon = inverse_root and writer.find_producer(inverse_root.source, "add")
    source_of_mean = _source_of_mean(writer, mean)
    if source_of_mean is None or sum_with_epsilon is None:
        return None
    epsilon: Any = writer.constant(sum_with_epsilon.inputs[1])
    if source_of_mean != _source_of_variance(writer, sum_with_epsilon.source) or is_open(epsilon):
        return None
    # Mean and variance are those of x with its channels in groups, an axis more.
    grouped_name, axes = source_of_mean
    reshape = writer.producers.get(grouped_name)
    grouped_shape = writer.shape(grouped_name)
    groups = grouped_shape[-2]
    if reshape is None or reshape.name != "reshape" or reshape.source != source:
        return None
    if len(grouped_shape) != rank + 1 or isinstance(groups, PerTrace):
        return None
    # Over rows, columns and the channels of a group, all but the axis of groups, which is last but one.
    are_axes_of_group = axes == (*range(1, rank - 1), rank)
    has_one_mean_per_group = {*writer.shape(mean)[1:-1]} <= {1}
    if not are_axes_of_group or not has_one_mean_per_group:
        return None
    value = writer.add_transpose(source, (0, rank - 1, *range(1, rank - 1)))
    grouped = writer.add_node("Reshape", value, writer.add_integers(0, groups, -1))
    ones_and_zeros = (writer.add_constant(np.full(groups, number, np.float32)) for number in (1, 0))
    normed = writer.add_node("InstanceNormalization", grouped, *ones_and_zeros, epsilon=float(epsilon))
    return writer.add_node(
        "Transpose",
        writer.add_node("Reshape", normed, writer.add_node("Shape", value)),
        perm=(0, *range(2, rank), 1),
    )


def is_cell_count(writer: Writer, name: str, sizes: Sequence[int | PerTrace]) -> bool:
    """Say whether a value is the number of cells along axes of these sizes, such as 49 for 7 and 7, in each
    trace.
    """
    number = writer.constant(name)
    if number is None:
        return False
    trace_count = max((len(value.at) for value in (number, *sizes) if isinstance(value, PerTrace)), default=1)
    sizes_in_traces = zip(*(in_each_trace(size, trace_count) for size in sizes), strict=True)
    pairs = zip(in_each_trace(number, trace_count), map(math.prod, sizes_in_traces), strict=True)
    return all(np.size(stated) == 1 and float(stated) == cells for stated, cells in pairs)


def write_softmax(writer: Writer, operation: JaxEquation) -> str | None:
    """Write exp(x - m) divided by its sums along an axis, along which m is one number, as a softmax; None for
    any other quotient.
    """
    exponential = writer.producers.get(operation.source)
    total = writer.find_producer(operation.inputs[1], "reduce_sum")
    source_and_axis = _summed_exponential(writer, exponential, total)
    if source_and_axis is None:
        return None
    source, axis = source_and_axis
    return writer.add_node("Softmax", writer.full_value(source), axis=axis)


def write_log_softmax(writer: Writer, operation: JaxEquation) -> str | None:
    """Write x - m less the logarithm of the sums of exp(x - m) as a log_softmax; None for any other
    difference.
    """
    log = writer.find_producer(operation.inputs[1], "log")
    total = None if log is None else writer.find_producer(log.source, "reduce_sum")
    exponential = None if total is None else writer.producers.get(total.source)
    source_and_axis = _summed_exponential(writer, exponential, total)
    if source_and_axis is None or exponential is None or exponential.source != operation.source:
        return None
    source, axis = source_and_axis
    return writer.add_node("LogSoftmax", writer.full_value(source), axis=axis)


def _summed_exponential(
    writer: Writer, exponential: JaxEquation | None, total: JaxEquation | None
) -> tuple[str, int] | None:
    """Return the x of exp(x - m) and the axis along which it is summed, where m is one number along it;
    otherwise None.

    Args:
        exponential: the operation that may be exp(x - m); None if nothing gives its value.
        total: the sum that may be over it.
    """
    if exponential is None or exponential.name != "exp":
        return None
    if total is None or total.inputs != exponential.outputs or len(total.params["axes"]) != 1:
        return None
    axis = int(total.params["axes"][0])
    difference = writer.producers.get(exponential.source)
    if difference is None or difference.name != "sub":
        return None
    size_of_m = writer.shape(difference.inputs[1])[axis : axis + 1]
    return (difference.source, axis) if size_of_m == (1,) else None


def reduction(kind: str) -> Write:
    """Return what writes a reduction of this kind, such as ReduceMax. Its axes stay in the model with one
    cell until an operator needs the value without them.
    """

    def write(writer: Writer, operation: JaxEquation) -> str:
        axes = tuple(int(axis) for axis in operation.params["axes"])
        writer.kept_axes[operation.outputs[0]] = axes
        return writer.add_reduction(kind, operation.source, axes)

    return write

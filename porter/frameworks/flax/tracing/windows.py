"""Convolutions and pools that JAX traces, as operators of ONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from porter.frameworks.flax.tracing.sums import is_cell_count
from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, in_each_trace
from porter.frameworks.flax.tracing.writer import LAST, Writer, has_open


def write_average(writer: Writer, top: str, bottom: str) -> str | None:
    """Write the sums of windows that are divided by the number of each window's cells, all or those that are
    no pads, as an average pool; None for any other quotient.
    """
    sums = writer.producers.get(top)
    if sums is None or sums.name != "reduce_window_sum":
        return None
    window = sums.params["window_dimensions"]
    if is_cell_count(writer, bottom, window):
        return write_pool(writer, sums, "AveragePool", count_include_pad=1)
    counts = writer.producers.get(bottom)
    # The counts of real cells are the same sums of a map of ones.
    ones: Any = writer.constant(counts.source) if counts is not None else None
    counts_real_cells = (
        counts is not None
        and counts.name == sums.name
        and counts.params == sums.params
        and np.ndim(ones) == 0
        and ones == 1
    )
    return write_pool(writer, sums, "AveragePool", count_include_pad=0) if counts_real_cells else None


def write_window_sum(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a sum over windows as a mean times the number of cells; None where the value is not there with
    all its cells, or is no pool.
    """
    if operation.source in writer.unexpanded:
        return None
    mean = write_pool(writer, operation, "AveragePool", count_include_pad=1)
    count = math.prod(operation.params["window_dimensions"])
    return mean and writer.add_node("Mul", mean, writer.add_constant(np.asarray(float(count))))


def write_pool(writer: Writer, operation: JaxEquation, kind: str, **attributes: Any) -> str | None:
    """Write a pool over the axes between the batch and the channels, which come last; None for any other
    window.
    """
    params, source = operation.params, operation.source
    window, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    dilations = params["window_dilation"]
    # Neither images nor channels may be pooled, and no zeros may lie between cells.
    of_batch_and_channels = (window[0], window[-1], strides[0], strides[-1])
    if (
        len(window) not in (3, 4)
        or {*of_batch_and_channels} != {1}
        or any((*pads[0], *pads[-1]))
        or {*params["base_dilation"]} != {1}
    ):
        return None
    pads_attributes = _pad_attributes(
        pads[1:-1], writer.shape(source)[1:-1], window[1:-1], strides[1:-1], dilations[1:-1]
    )
    if pads_attributes is None:
        return None
    rank = len(window)
    channels_first = writer.add_transpose(source, (0, rank - 1, *range(1, rank - 1)))
    shape = {"kernel_shape": window[1:-1], "strides": strides[1:-1], "dilations": dilations[1:-1]}
    pooled = writer.add_node(kind, channels_first, **shape, **pads_attributes, **attributes)
    if kind == "MaxPool":
        writer.calls[pooled] = f"{operation.outputs[0]}{LAST}"
    return writer.add_node("Transpose", pooled, perm=(0, *range(2, rank), 1))


def _pad_attributes(
    pads: Any,
    sizes: Sequence[int | PerTrace],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> dict[str, Any] | None:
    """Return the attributes of a window's pads: numbers, or where these differ between sizes or sides and
    follow it at each traced size, the rule SAME. None where ONNX cannot state them: negative or open numbers.
    """
    if not has_open(pads) and min(min(pair) for pair in pads) < 0:
        return None
    count = max((len(size.at) for size in sizes if isinstance(size, PerTrace)), default=1)
    reach = [(cells - 1) * dilation + 1 for cells, dilation in zip(window, dilations, strict=True)]
    # The pads of each axis at each traced size.
    stated = [
        *zip(*(zip(*(in_each_trace(end, count) for end in pair), strict=True) for pair in pads), strict=True)
    ]
    uneven = has_open(pads) or any(first != last for first, last in pads)
    for rule, name in (("SAME", "SAME_UPPER"), ("SAME_LOWER", "SAME_LOWER")) if count > 1 and uneven else ():
        sizes_of_traces = zip(*(in_each_trace(size, count) for size in sizes), strict=True)
        if stated == [
            tuple(map(tuple, jax.lax.padtype_to_pads(each, reach, strides, rule))) for each in sizes_of_traces
        ]:
            return {"auto_pad": name}
    return (
        None
        if has_open(pads)
        else {"pads": [int(first) for first, _ in pads] + [int(last) for _, last in pads]}
    )


def write_convolution(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a convolution, or a transposed one, of maps in any layout; None for one that ONNX lacks."""
    params = operation.params
    spec, groups = params["dimension_numbers"], params["feature_group_count"]
    source, kernel = operation.inputs
    # The specs say where batch, channels and cells, or filters, channels and cells, stand among the axes.
    shape = [writer.shape(kernel)[axis] for axis in spec.rhs_spec]
    sizes = [writer.shape(source)[axis] for axis in spec.lhs_spec[2:]]
    if params["batch_group_count"] != 1:
        return None
    value = writer.add_transpose(source, spec.lhs_spec)
    weights = writer.add_node("Transpose", writer.full_value(kernel), perm=spec.rhs_spec)
    steps = {"kernel_shape": shape[2:], "dilations": params["rhs_dilation"], "group": groups}
    # Zeros between the cells of the input make it a transposed convolution.
    if {*params["lhs_dilation"]} == {1}:
        pads_attributes = _pad_attributes(
            params["padding"], sizes, shape[2:], params["window_strides"], params["rhs_dilation"]
        )
        convolved = pads_attributes and writer.add_node(
            "Conv", value, weights, strides=params["window_strides"], **steps, **pads_attributes
        )
    else:
        convolved = _add_conv_transpose(writer, operation, value, weights, shape[2:], steps)
    if convolved and tuple(spec.out_spec) == (0, 3, 1, 2):
        writer.calls[convolved] = f"{operation.outputs[0]}{LAST}"
    output_order = [spec.out_spec.index(axis) for axis in range(len(spec.out_spec))]
    return writer.add_node("Transpose", convolved, perm=output_order) if convolved else None


def _add_conv_transpose(
    writer: Writer,
    operation: JaxEquation,
    value: str,
    weights: str,
    kernel: Sequence[int],
    steps: Mapping[str, Any],
) -> str | None:
    """Add a ConvTranspose for a convolution over cells that zeros are between; ONNX flips its kernel. None
    for one that ONNX lacks.
    """
    pads, dilations = operation.params["padding"], operation.params["rhs_dilation"]
    if steps["group"] != 1 or {*operation.params["window_strides"]} != {1} or has_open(pads):
        return None
    # A transposed convolution cuts off what its pads lack of the kernel's reach.
    reach = [(cells - 1) * dilation for cells, dilation in zip(kernel, dilations, strict=True)]
    cuts = [[reach[axis] - int(pad[end]) for axis, pad in enumerate(pads)] for end in (0, 1)]
    # More pads at the end than the reach: cells are added there.
    output_padding = [max(-last, 0) for last in cuts[1]]
    if min(cuts[0]) < 0 or any(
        extra >= step for extra, step in zip(output_padding, operation.params["lhs_dilation"], strict=True)
    ):
        return None
    axes = [2 + axis for axis in range(len(kernel))]
    # Start, end and step of a Slice that flips the kernel.
    backwards = [writer.add_integers(*[number] * len(axes)) for number in (-1, -(2**62), -1)]
    flipped = writer.add_node(
        "Slice", weights, backwards[0], backwards[1], writer.add_integers(*axes), backwards[2]
    )
    swapped = writer.add_node("Transpose", flipped, perm=(1, 0, *axes))
    cut = [*cuts[0], *(max(last, 0) for last in cuts[1])]
    return writer.add_node(
        "ConvTranspose",
        value,
        swapped,
        strides=operation.params["lhs_dilation"],
        pads=cut,
        output_padding=output_padding,
        **steps,
    )

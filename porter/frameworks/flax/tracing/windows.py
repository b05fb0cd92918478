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
    if counts is None or counts.name != sums.name or counts.params != sums.params:
        return None
    # The counts of real cells are the same sums of a map of ones.
    ones: Any = writer.constant(counts.source)
    counts_real_cells = np.ndim(ones) == 0 and ones == 1
    return write_pool(writer, sums, "AveragePool", count_include_pad=0) if counts_real_cells else None


def write_window_sum(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a sum over windows as a mean times the number of cells; None where the value is not there with
    all its cells, or is no pool.
    """
    if operation.source in writer.unexpanded:
        return None
    mean = write_pool(writer, operation, "AveragePool", count_include_pad=1)
    if mean is None:
        return None
    count = math.prod(operation.params["window_dimensions"])
    return writer.add_node("Mul", mean, writer.add_constant(np.asarray(float(count))))


def write_pool(writer: Writer, operation: JaxEquation, kind: str, **attributes: Any) -> str | None:
    """Write a pool over the axes between the batch and the channels, which come last; None for any other
    window.
    """
    params, source = operation.params, operation.source
    window, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    dilations = params["window_dilation"]
    # Neither images nor channels may be pooled, and no zeros may lie between cells.
    of_batch_and_channels = (window[0], window[-1], strides[0], strides[-1])
    if len(window) not in (3, 4) or {*of_batch_and_channels} != {1}:
        return None
    if any((*pads[0], *pads[-1])) or {*params["base_dilation"]} != {1}:
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
    """Return the attributes of a window's pads in ONNX: `{"pads": [1, 1, 1, 1]}`, or `{"auto_pad":
    "SAME_UPPER"}` where they differ between sizes or sides and follow this rule at each traced size. None
    where ONNX cannot state them: negative or open numbers.

    Args:
        pads: before and behind each axis.
        sizes: of the axes, which may be open.
    """
    if not has_open(pads) and min(min(pair) for pair in pads) < 0:
        return None
    trace_count = max((len(size.at) for size in sizes if isinstance(size, PerTrace)), default=1)
    reach = [(cells - 1) * dilation + 1 for cells, dilation in zip(window, dilations, strict=True)]

    def transpose_traces(values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return, for each trace, what the values are there."""
        return [*zip(*(in_each_trace(value, trace_count) for value in values), strict=True)]

    sizes_in_traces = transpose_traces(sizes)
    starts_in_traces = transpose_traces([start for start, _ in pads])
    ends_in_traces = transpose_traces([end for _, end in pads])
    # The pads of each axis in each trace.
    stated = [
        tuple(zip(starts, ends, strict=True))
        for starts, ends in zip(starts_in_traces, ends_in_traces, strict=True)
    ]
    is_uneven = has_open(pads) or any(start != end for start, end in pads)
    if trace_count > 1 and is_uneven:
        for rule, name in (("SAME", "SAME_UPPER"), ("SAME_LOWER", "SAME_LOWER")):
            by_rule = [
                tuple(map(tuple, jax.lax.padtype_to_pads(sizes_here, reach, strides, rule)))
                for sizes_here in sizes_in_traces
            ]
            if stated == by_rule:
                return {"auto_pad": name}
    if has_open(pads):
        return None
    return {"pads": [int(start) for start, _ in pads] + [int(end) for _, end in pads]}


def write_convolution(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a convolution, or a transposed one, of maps in any layout, as a Conv or ConvTranspose of maps
    N×C×H×W between two Transposes; None for one that ONNX lacks.
    """
    params = operation.params
    spec, groups = params["dimension_numbers"], params["feature_group_count"]
    source, kernel = operation.inputs
    # The specs say where batch, channels and cells, or filters, channels and cells, stand among the axes.
    kernel_size = [writer.shape(kernel)[axis] for axis in spec.rhs_spec[2:]]
    sizes = [writer.shape(source)[axis] for axis in spec.lhs_spec[2:]]
    if params["batch_group_count"] != 1:
        return None
    value = writer.add_transpose(source, spec.lhs_spec)
    weights = writer.add_node("Transpose", writer.full_value(kernel), perm=spec.rhs_spec)
    attributes = {"kernel_shape": kernel_size, "dilations": params["rhs_dilation"], "group": groups}
    # Zeros between the cells of the input make it a transposed convolution.
    if {*params["lhs_dilation"]} != {1}:
        convolved = _add_conv_transpose(writer, operation, value, weights, kernel_size, attributes)
    else:
        strides = params["window_strides"]
        pads = _pad_attributes(params["padding"], sizes, kernel_size, strides, params["rhs_dilation"])
        convolved = None
        if pads is not None:
            convolved = writer.add_node("Conv", value, weights, strides=strides, **attributes, **pads)
    if convolved is None:
        return None
    if tuple(spec.out_spec) == (0, 3, 1, 2):
        writer.calls[convolved] = f"{operation.outputs[0]}{LAST}"
    output_order = [spec.out_spec.index(axis) for axis in range(len(spec.out_spec))]
    return writer.add_node("Transpose", convolved, perm=output_order)


def _add_conv_transpose(
    writer: Writer,
    operation: JaxEquation,
    value: str,
    weights: str,
    kernel_size: Sequence[int],
    attributes: Mapping[str, Any],
) -> str | None:
    """Add a ConvTranspose for a convolution over cells that zeros are between; ONNX flips its kernel. None
    for one that ONNX lacks.

    Args:
        value: of the maps, with the channels second.
        weights: the value of the kernel, with the filters first and the channels second.
        attributes: those that it shares with a Conv.
    """
    pads, dilations = operation.params["padding"], operation.params["rhs_dilation"]
    if attributes["group"] != 1 or {*operation.params["window_strides"]} != {1} or has_open(pads):
        return None
    strides = operation.params["lhs_dilation"]
    # A transposed convolution cuts off what its pads lack of the kernel's reach.
    reach = [(cells - 1) * dilation for cells, dilation in zip(kernel_size, dilations, strict=True)]
    start_cuts = [cells - int(start) for cells, (start, _) in zip(reach, pads, strict=True)]
    end_cuts = [cells - int(end) for cells, (_, end) in zip(reach, pads, strict=True)]
    # More pads at the end than the reach: cells are added there.
    output_padding = [max(-cut, 0) for cut in end_cuts]
    if min(start_cuts) < 0:
        return None
    if any(added >= stride for added, stride in zip(output_padding, strides, strict=True)):
        return None
    axes = [2 + axis for axis in range(len(kernel_size))]
    # Start, end and step of a Slice that flips the kernel.
    backwards = [writer.add_integers(*[number] * len(axes)) for number in (-1, -(2**62), -1)]
    flipped = writer.add_node(
        "Slice", weights, backwards[0], backwards[1], writer.add_integers(*axes), backwards[2]
    )
    swapped = writer.add_node("Transpose", flipped, perm=(1, 0, *axes))
    return writer.add_node(
        "ConvTranspose",
        value,
        swapped,
        strides=strides,
        pads=[*start_cuts, *(max(cut, 0) for cut in end_cuts)],
        output_padding=output_padding,
        **attributes,
    )

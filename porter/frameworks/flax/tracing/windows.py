"""Convolutions and pools that JAX traces, as operators of ONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from porter.frameworks.flax.tracing.sums import is_count
from porter.frameworks.flax.tracing.trace import JaxEquation, PerTrace, at_each
from porter.frameworks.flax.tracing.writer import LAST, Writer, has_open


def average(writer: Writer, top: str, bottom: str) -> str | None:
    """Return the sums of windows that are divided by the cells of each: by all, or by those that are no
    pads.
    """
    sums = writer.made.get(top)
    if sums is None or sums.name != "reduce_window_sum":
        return None
    window = sums.params["window_dimensions"]
    if is_count(writer, bottom, window):
        return pool(writer, sums, "AveragePool", count_include_pad=1)
    counts = writer.made.get(bottom)
    ones: Any = writer.constant(counts.source) if counts is not None else None
    same = (
        counts is not None
        and counts.name == sums.name
        and counts.params == sums.params
        and np.ndim(ones) == 0
        and ones == 1
    )
    return pool(writer, sums, "AveragePool", count_include_pad=0) if same else None


def window_sum(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a sum over windows, as a mean times the number of cells."""
    if operation.source in writer.narrow:
        return None
    mean = pool(writer, operation, "AveragePool", count_include_pad=1)
    count = math.prod(operation.params["window_dimensions"])
    return mean and writer.node("Mul", mean, writer.add_constant(np.asarray(float(count))))


def pool(writer: Writer, operation: JaxEquation, kind: str, **more: Any) -> str | None:
    """Return a window over the axes between the batch and the channels, which come last."""
    params, source = operation.params, operation.source
    window, strides, pads = params["window_dimensions"], params["window_strides"], params["padding"]
    apart = params["window_dilation"]
    ends = (window[0], window[-1], strides[0], strides[-1])
    if (
        len(window) not in (3, 4)
        or {*ends} != {1}
        or any((*pads[0], *pads[-1]))
        or {*params["base_dilation"]} != {1}
    ):
        return None
    sides = _sides(pads[1:-1], writer.shape(source)[1:-1], window[1:-1], strides[1:-1], apart[1:-1])
    if sides is None:
        return None
    rank = len(window)
    first = writer.turned(source, (0, rank - 1, *range(1, rank - 1)))
    shape = {"kernel_shape": window[1:-1], "strides": strides[1:-1], "dilations": apart[1:-1]}
    pooled = writer.node(kind, first, **shape, **sides, **more)
    if kind == "MaxPool":
        writer.calls[pooled] = f"{operation.outputs[0]}{LAST}"
    return writer.node("Transpose", pooled, perm=(0, *range(2, rank), 1))


def _sides(
    pads: Any,
    sizes: Sequence[int | PerTrace],
    window: Sequence[int],
    strides: Sequence[int],
    apart: Sequence[int],
) -> dict[str, Any] | None:
    """Return the attributes of a window's pads: numbers, or at open sizes the rule of SAME."""
    if not has_open(pads) and min(min(pair) for pair in pads) < 0:
        return None
    count = max((len(size.at) for size in sizes if isinstance(size, PerTrace)), default=1)
    reach = [(cells - 1) * gap + 1 for cells, gap in zip(window, apart, strict=True)]
    stated = [*zip(*(zip(*(at_each(end, count) for end in pair), strict=True) for pair in pads), strict=True)]
    uneven = has_open(pads) or any(first != last for first, last in pads)
    for rule, name in (("SAME", "SAME_UPPER"), ("SAME_LOWER", "SAME_LOWER")) if count > 1 and uneven else ():
        known = zip(*(at_each(size, count) for size in sizes), strict=True)
        if stated == [
            tuple(map(tuple, jax.lax.padtype_to_pads(each, reach, strides, rule))) for each in known
        ]:
            return {"auto_pad": name}
    return (
        None
        if has_open(pads)
        else {"pads": [int(first) for first, _ in pads] + [int(last) for _, last in pads]}
    )


def convolution(writer: Writer, operation: JaxEquation) -> str | None:
    """Write a convolution, or a transposed one, of maps in any layout; None for what ONNX lacks."""
    params = operation.params
    spec, groups = params["dimension_numbers"], params["feature_group_count"]
    source, kernel = operation.inputs
    shape = [writer.shape(kernel)[axis] for axis in spec.rhs_spec]
    sizes = [writer.shape(source)[axis] for axis in spec.lhs_spec[2:]]
    if params["batch_group_count"] != 1:
        return None
    value = writer.turned(source, spec.lhs_spec)
    weights = writer.node("Transpose", writer.full(kernel), perm=spec.rhs_spec)
    steps = {"kernel_shape": shape[2:], "dilations": params["rhs_dilation"], "group": groups}
    if {*params["lhs_dilation"]} == {1}:
        sides = _sides(params["padding"], sizes, shape[2:], params["window_strides"], params["rhs_dilation"])
        made = sides and writer.node(
            "Conv", value, weights, strides=params["window_strides"], **steps, **sides
        )
    else:
        made = _transposed(writer, operation, value, weights, shape[2:], steps)
    if made and tuple(spec.out_spec) == (0, 3, 1, 2):
        writer.calls[made] = f"{operation.outputs[0]}{LAST}"
    back = [spec.out_spec.index(axis) for axis in range(len(spec.out_spec))]
    return writer.node("Transpose", made, perm=back) if made else None


def _transposed(
    writer: Writer,
    operation: JaxEquation,
    value: str,
    weights: str,
    kernel: Sequence[int],
    steps: Mapping[str, Any],
) -> str | None:
    """Return a convolution over cells that are apart, whose kernel ONNX turns around."""
    pads, apart = operation.params["padding"], operation.params["rhs_dilation"]
    if steps["group"] != 1 or {*operation.params["window_strides"]} != {1} or has_open(pads):
        return None
    reach = [(cells - 1) * gap for cells, gap in zip(kernel, apart, strict=True)]
    less = [[reach[axis] - int(pad[end]) for axis, pad in enumerate(pads)] for end in (0, 1)]
    more = [max(-last, 0) for last in less[1]]
    if min(less[0]) < 0 or any(
        extra >= step for extra, step in zip(more, operation.params["lhs_dilation"], strict=True)
    ):
        return None
    axes = [2 + axis for axis in range(len(kernel))]
    ends = [writer.integers(*[number] * len(axes)) for number in (-1, -(2**62), -1)]
    turned = writer.node("Slice", weights, ends[0], ends[1], writer.integers(*axes), ends[2])
    swapped = writer.node("Transpose", turned, perm=(1, 0, *axes))
    cut = [*less[0], *(max(last, 0) for last in less[1])]
    return writer.node(
        "ConvTranspose",
        value,
        swapped,
        strides=operation.params["lhs_dilation"],
        pads=cut,
        output_padding=more,
        **steps,
    )

"""What numpy computes from the tensors of an ONNX file, and from sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from porter.filegraph.dataflow import MOST_COMPUTED, MOST_OF_SIZES, Evaluator
from porter.filegraph.dims import BATCH, PLACE, Dim, Numbers, as_real, as_whole, known, of_sizes
from porter.filegraph.kernels.layouts import pad
from porter.filegraph.kernels.windows import Grid, average_pool
from porter.formats.onnx.nodes import OnnxNode
from porter.formats.onnx.proto import import_onnx

INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
FLOATS = frozenset({1, 10, 11, 16})
"""TensorProto.DataType: whole numbers, and real ones (float, half, double, bfloat16)."""
_TRUTH = 9
RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def is_cast(node: OnnxNode) -> bool:
    """Halves round, integers cut, and truths are 0 and 1."""
    return node.op == "Cast" and node.integer("to") in (1, 11)


def cuts(node: OnnxNode) -> bool:
    """Whether a Cast is one to INT32 or INT64."""
    return node.op == "Cast" and node.integer("to") in (6, 7)


def _cast(node: OnnxNode, value: Numbers) -> Numbers:
    kind = node.integer("to")
    if kind == _TRUTH:
        return value.astype(np.bool_)
    if kind in INTEGERS:
        return as_whole(value)
    return as_real(value) if kind in FLOATS else value  # two whole numbers divide to a whole one


def _clipped(
    node: OnnxNode, value: Numbers, low: Numbers | None = None, high: Numbers | None = None
) -> Numbers:
    bounds = (
        node.real("min", -np.inf) if low is None else low,
        node.real("max", np.inf) if high is None else high,
    )
    return np.asarray(np.minimum(np.maximum(value, bounds[0]), bounds[1]))


def _axes(node: OnnxNode, axes: Numbers | None) -> tuple[int, ...]:
    return node.integers("axes") or (() if axes is None else tuple(axes.ravel().tolist()))


def wanted_sizes(node: OnnxNode, own: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim]:
    """The sizes of a Reshape: 0 stands for the size that the value has there, unless `allowzero`."""
    keeps = not node.integer("allowzero")
    return [own[place] if size == 0 and keeps else size for place, size in enumerate(wanted)]


def stated_sizes(node: OnnxNode, sizes: Sequence[Dim]) -> Numbers:
    """What Shape and Size state of a value with these sizes."""
    part = slice(node.integer("start"), node.attributes["end"].i if "end" in node.attributes else None)
    return of_sizes(math.prod(sizes) if node.op == "Size" else sizes[part])


def filling(node: OnnxNode) -> float | None:
    """The number of a ConstantOfShape; None where it is none."""
    if "value" not in node.attributes:
        return 0.0
    stated = import_onnx().numpy_helper.to_array(node.attributes["value"].t)
    return stated.ravel()[0].item() if stated.size == 1 and stated.dtype.kind in "iuf" else None


def _filled(node: OnnxNode, shape: Numbers) -> Numbers:
    sizes, number = shape.ravel().tolist(), filling(node)
    if number is None or math.prod(sizes) > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return np.full(sizes, number)


def _gathered(node: OnnxNode, value: Numbers, places: Numbers) -> Numbers:
    axis = node.integer("axis")
    if value.size // max(value.shape[axis], 1) * places.size > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return value.take(places, axis)


def _range(node: OnnxNode, start: Numbers, limit: Numbers, step: Numbers) -> Numbers:
    """A Range of known numbers, or of the images of a free batch."""
    numbers = [start.item(), limit.item(), step.item()]
    if numbers == [0, BATCH, 1]:
        return of_sizes([PLACE])
    if not numbers[2] or not 0 < (numbers[1] - numbers[0]) / numbers[2] <= MOST_OF_SIZES:
        raise ValueError("a range of something else")
    return np.arange(*numbers)


def _expanded(node: OnnxNode, value: Numbers, shape: Numbers) -> Numbers:
    """The same numbers along more axes."""
    sizes = shape.ravel().tolist()
    if math.prod(np.broadcast_shapes(value.shape, tuple(sizes))) > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return np.broadcast_to(value, np.broadcast_shapes(value.shape, tuple(sizes)))


def _tiled(node: OnnxNode, value: Numbers, times: Numbers) -> Numbers:
    if value.size * math.prod(times.ravel().tolist()) > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return np.tile(value, times.ravel().tolist())


def _summed(node: OnnxNode, value: Numbers, axis: Numbers) -> Numbers:
    if node.integer("exclusive") or node.integer("reverse"):
        raise ValueError("sums from the end, or without each number itself")
    return np.add.accumulate(value, int(axis.item()))


def slices(node: OnnxNode, rank: int, numbers: Sequence[Sequence[Dim] | None]) -> list[slice]:
    """What a Slice takes of each of `rank` axes. `numbers` are its starts, ends, axes and steps.

    Raises:
        ValueError: starts and ends are missing, or an axis does not exist.
    """
    starts, ends, axes, steps = numbers
    if starts is None or ends is None:
        raise ValueError("a Slice without starts and ends")
    found = [slice(None)] * rank
    places = list(range(len(starts))) if axes is None else known(axes)
    for place, start, end, step in zip(places, starts, ends, steps or [1] * len(starts), strict=True):
        if not -rank <= place < rank:
            raise ValueError("a Slice of an axis that its input lacks")
        found[place] = slice(start, end, step)
    return found


def _sliced(node: OnnxNode, value: Numbers, *bounds: Numbers) -> Numbers:
    stated: list[list[Dim] | None] = [
        list(node.integers(name)) or None for name in ("starts", "ends", "axes", "steps")
    ]
    given: list[list[Dim] | None] = [each.ravel().tolist() for each in bounds]
    return value[tuple(slices(node, value.ndim, (given + stated[len(given) :]) if given else stated))]


def _product(node: OnnxNode, value: Numbers, other: Numbers) -> Numbers:
    if value.ndim != 2 or other.ndim != 2 or value.size * other.shape[1] > MOST_COMPUTED:
        raise ValueError("no two matrices, or more sums than a model states")
    return value @ other


def _reduced(function: Any, node: OnnxNode, value: Numbers, axes: Numbers | None = None) -> Numbers:
    return np.asarray(function(value, _axes(node, axes) or None, keepdims=bool(node.integer("keepdims", 1))))


def _split(node: OnnxNode, value: Numbers, sizes: Numbers | None = None) -> list[Numbers]:
    stated = node.integers("split") if sizes is None else tuple(sizes.ravel().tolist())
    if not stated:
        raise ValueError("a split into parts of unknown size")
    return np.split(value, np.cumsum(stated)[:-1], node.integer("axis"))


def _padded(
    node: OnnxNode,
    value: Numbers,
    widths: Numbers,
    number: Numbers | None = None,
    axes: Numbers | None = None,
) -> Numbers:
    """Cells of one number around a constant, such as the ones that an average counts."""
    sizes = widths.ravel().tolist()
    around = list(zip(sizes[: value.ndim], sizes[value.ndim :], strict=True))
    if axes is not None or node.text("mode", "constant") != "constant":
        raise ValueError("a pad of some axes, or of other cells")
    if math.prod(size + sum(pads) for size, pads in zip(value.shape, around, strict=True)) > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return pad(value, around, value=0.0 if number is None else number.item())


def _averaged(node: OnnxNode, value: Numbers) -> Numbers:
    """The means of the windows of a constant map, in which no cell is a pad's."""
    if (
        any(node.integers("pads"))
        or node.integer("ceil_mode")
        or node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    ):
        raise ValueError("an average over pads")
    kernel, stride, dilation = (
        node.integers(name) or (1, 1) for name in ("kernel_shape", "strides", "dilations")
    )
    if value.ndim != 4 or len(kernel) != 2 or value.size * math.prod(kernel) > MOST_COMPUTED:
        raise ValueError("no map, or more sums than a model states")
    return average_pool(
        value, (kernel[0], kernel[1]), Grid((stride[0], stride[1]), (dilation[0], dilation[1]))
    )


def _dequantized(node: OnnxNode, value: Numbers, scale: Numbers, zero: Numbers | None = None) -> Numbers:
    """The real numbers that whole ones of 8 bits stand for, by a scale of all or of each place of an axis."""
    if node.integer("block_size") or scale.ndim > 1:
        raise ValueError("scales of blocks")
    over = [1] * value.ndim
    if scale.ndim:
        over[node.integer("axis", 1)] = scale.size
    shifted = value.astype(np.float64) if zero is None else value.astype(np.float64) - zero.reshape(over)
    return shifted * scale.reshape(over)


EVALUATORS: Mapping[str, Evaluator] = {
    "AveragePool": _averaged,
    "Cast": _cast,
    "Clip": _clipped,
    "ConstantOfShape": _filled,
    "Concat": lambda node, *values: np.concatenate(values, node.integer("axis")),
    "Flatten": lambda node, value: value.reshape(int(np.prod(value.shape[: node.integer("axis", 1)])), -1),
    "CumSum": _summed,
    "Expand": _expanded,
    "DequantizeLinear": _dequantized,
    "EyeLike": lambda node, value: np.eye(value.shape[0], value.shape[1], node.integer("k")),
    "Gather": _gathered,
    "MatMul": _product,
    "Pad": _padded,
    "Range": _range,
    "ReduceProd": partial(_reduced, np.prod),
    "ReduceSum": partial(_reduced, np.sum),
    "ReduceMean": partial(_reduced, np.mean),
    "ReduceMax": partial(_reduced, np.max),
    "ReduceL2": partial(_reduced, lambda value, axes, **kept: np.sqrt(np.square(value).sum(axes, **kept))),
    "Reshape": lambda node, value, shape: value.reshape(
        wanted_sizes(node, value.shape, shape.ravel().tolist())
    ),
    **dict.fromkeys(("Shape", "Size"), lambda node, value: stated_sizes(node, value.shape)),
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": lambda node, value, axes=None: np.squeeze(value, _axes(node, axes) or None),
    "Tile": _tiled,
    "Transpose": lambda node, value: value.transpose(node.integers("perm") or None),
    "Unsqueeze": lambda node, value, axes=None: np.expand_dims(value, _axes(node, axes)),
}
"""What they give has no more numbers than they take (porter.filegraph.dataflow)."""

"""A step of a normal form, and a node of a graph as one: what several ops have in common is one kind, and the
numbers that a layer lacks are filled in, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array
from porter.frameworks import Tensors
from porter.graph import Node, ops, site_of
from porter.graph.folding import norm_deviation
from porter.graph.ops import Shape, channels_axis, channels_in, is_map
from porter.graph.ops.kinds import attributes
from porter.padding import Window, pad_amounts

Numbers: TypeAlias = NDArray[np.float64]
LINEAR = ("conv", "conv_transpose", "dense")
COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
NORMS = ("layer_norm", "rms_norm", "group_norm")

_SAID_BY_TENSORS = {"bias", "scale", "center", "keep"}
"""Flags of ops that change nothing, or that the tensors say."""


@dataclass(frozen=True)
class Unit:
    """A step of a normal form.

    Attributes:
        path: of the value that it gives, in the graph; a part of it where `rows` says so.
        kind: the name of an op, or `scale`: a number for each channel, times x, plus another one.
        says: the attributes that make the function.
        tensors: by role: `kernel` and `bias`, `gamma` and `beta`, `alpha`, `value`.
        nodes: of the graph, which it is made of, in their order.
        rows: the channels of the value; None for all.
        names: see NormalForm.
    """

    path: str
    kind: str
    says: Mapping[str, Any]
    inputs: tuple[str, ...]
    tensors: Mapping[str, Numbers]
    nodes: tuple[Node, ...]
    rows: slice | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What messages call it: its first layer with tensors, otherwise its last step."""
        trained = (node.path for node in self.nodes if node.op.tensors(1))
        path = next(trained, self.nodes[-1].path)
        return self.names.get(path, path)


def unit_of(node: Node, inputs: tuple[str, ...], tensors: Tensors, value_shapes: Mapping[str, Shape]) -> Unit:
    """Return a node as a unit, under the kind that several ops have in common: a ReLU6 is a `clip` from 0 to
    6, a batch norm a `scale`. Tensors that a layer may lack are filled in: a bias of 0, a scale of 1.

    Args:
        inputs: the units that it reads.
        value_shapes: the shape of each value of one image.
    """
    op, shape = node.op, value_shapes[node.source]
    own_tensors = {role: value.astype(np.float64) for role, value in tensors.get(node.holder, {}).items()}
    own_tensors.pop("batches", None)
    kind, channels = op.name, channels_in(shape)
    says = _attributes_of(op)
    if (scale := _as_scale(node, own_tensors, shape)) is not None:
        kind, says = "scale", {}
        own_tensors = {"gamma": np.ones(channels), "beta": np.zeros(channels)} | scale
    # a PReLU with one slope for all channels
    elif isinstance(op, ops.PRelu) and (own_tensors["alpha"] == own_tensors["alpha"][0]).all():
        kind, says, own_tensors = "leaky_relu", {"slope": float(own_tensors["alpha"][0])}, {}
    elif isinstance(op, ops.Rearrange | ops.Flatten | ops.AsMap | ops.ChannelShuffle):
        kind, says = "move", {"cells": moved(op, shape), "shape": tuple(value_shapes[node.path])}
    elif (renamed := _as_general_kind(op, shape)) is not None:
        kind, says = renamed
    if kind in NORMS:
        centred = {} if kind == "rms_norm" else {"beta": np.zeros(channels)}
        own_tensors = {"gamma": np.ones(channels), **centred, **own_tensors}
    if kind in LINEAR:
        count = int(says["filters"]) if kind == "conv_transpose" else len(own_tensors["kernel"])
        own_tensors = {"bias": np.zeros(count)} | own_tensors
    return Unit(node.path, kind, says, inputs, own_tensors, (node,))


def _attributes_of(op: ops.Op) -> dict[str, Any]:
    """Return the attributes of an op that make its function, beside its tensors: whether it has a bias is
    left out.
    """
    said = {name: getattr(op, name) for name in attributes(type(op))}
    return {
        name: value
        for name, value in said.items()
        if not (name in _SAID_BY_TENSORS and isinstance(value, bool))
    }


def _as_scale(node: Node, tensors: Mapping[str, Numbers], shape: Shape) -> dict[str, Numbers] | None:
    """Return the tensors of a scale (a number for each channel, times x, plus another one) that an op is;
    None where it is none.

    Args:
        tensors: the node's tensors by role.
        shape: of what it reads.
    """
    op = node.op
    match op:
        case ops.BatchNorm():
            return _norm_as_scale(node, op, tensors)
        case ops.ChannelScale():
            return dict(tensors)
        case ops.Affine():
            channels = channels_in(shape)
            return {"gamma": _full(op.scale, channels), "beta": _full(op.offset, channels)}
        # a depthwise convolution of one cell
        case ops.Conv(window=Window(kernel=(1, 1), stride=(1, 1))) if op.groups == op.filters == shape[0]:
            return (
                {"gamma": tensors["kernel"].reshape(-1), "beta": tensors.get("bias", np.zeros(op.filters))}
                if _pads_nothing(op)
                else None
            )
        case ops.AddArray() | ops.MultiplyArray() if _has_number_per_channel(op.sizes, shape):
            return {"beta" if isinstance(op, ops.AddArray) else "gamma": tensors["value"].reshape(-1)}
    return None


def _as_general_kind(op: ops.Op, shape: Shape) -> tuple[str, dict[str, Any]] | None:
    """Return the more general kind that an op is a case of, with its attributes there: a ReLU is `clip` from
    0, a pool over the whole map `global_avg_pool`. Return None for other ops.

    Args:
        shape: of what the op reads.
    """
    rectified = {"low": 0.0, "high": math.inf}
    match op:
        case ops.Relu() | ops.LeakyRelu(slope=0) | ops.ThresholdedRelu(threshold=0):
            return "clip", rectified
        case ops.Relu6() | ops.Clip():
            return "clip", dict(zip(("low", "high"), op.bounds, strict=True))
        case ops.Celu(alpha=1):
            return "elu", {"alpha": 1.0}
        case ops.AdaptiveAvgPool(rows=1, columns=1) | ops.AvgPool() | ops.GlobalAvgPool() if takes_whole_map(
            op, shape
        ):
            return "global_avg_pool", {}
        case ops.AdaptiveMaxPool(rows=1, columns=1) | ops.MaxPool() | ops.GlobalMaxPool() if takes_whole_map(
            op, shape
        ):
            return "global_max_pool", {}
    return None


def _pads_nothing(op: ops.Conv) -> bool:
    return op.convention.rule in ("valid", "same", "same_lower") or not any(op.convention.pads)


def _full(values: Iterable[float], channels: int) -> Numbers:
    return np.broadcast_to(np.array(tuple(values), np.float64), (channels,)).copy()


def _norm_as_scale(node: Node, op: ops.BatchNorm, tensors: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the scale that a batch norm is: gamma / sqrt(variance + epsilon), and beta less the mean times
    that.

    Args:
        tensors: the norm's by role.

    Raises:
        MappingError: a variance plus epsilon is not above 0.
    """
    deviation = norm_deviation(op, tensors["variance"], node.path)
    gamma = tensors.get("gamma", np.ones(1)) / deviation
    return {"gamma": gamma, "beta": tensors.get("beta", np.zeros(1)) - tensors["mean"] * gamma}


def _has_number_per_channel(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Return whether an array of these sizes has a number for each channel of a value, and nothing more:
    `(64, 1, 1)` for maps of 64 channels.
    """
    axis = channels_axis(shape)
    return all(
        size == (shape_size if place == axis else 1)
        for place, (size, shape_size) in enumerate(zip(sizes, shape, strict=True))
    )


def takes_whole_map(op: ops.Op, shape: Shape) -> bool:
    """Return whether the only window of an op is the whole map, without pads; True for an op without a
    window, as a global pool.
    """
    # the op's window and pads
    site = site_of(op)
    if site is None:
        return True
    if site.window.kernel != tuple(shape[1:]):
        return False
    sides = (pad_amounts(site.convention, site.window, axis, shape[1 + axis] or 0) for axis in (0, 1))
    return not any(amount for side in sides for amount in side)


def moved(op: ops.Op, shape: Shape) -> bytes:
    """Return, for an op that only moves the cells of its input, such as a transpose, which input cell each
    cell of the result is, as bytes of int32: ops that move alike have equal bytes.

    Args:
        shape: of the input; an unknown size counts as 1.
    """
    sizes = [size or 1 for size in shape]
    cells: Array = np.arange(math.prod(sizes)).reshape(sizes)
    match op:
        case ops.Rearrange():
            for step in op.steps(shape, is_map(shape)):
                cells = step.apply(cells)
        case ops.Flatten(order="HWC"):
            cells = cells.transpose(1, 2, 0)
        case ops.ChannelShuffle():
            cells = cells.reshape(op.groups, -1, *cells.shape[1:]).swapaxes(0, 1)
    return cells.astype(np.int32).tobytes()


def moves_nothing(node: Node, value_shapes: Mapping[str, Shape]) -> bool:
    """Return whether a node gives the numbers that it takes, in their order along axes of several cells."""
    op = node.op
    cells = tuple(value_shapes[node.source][1:])
    if isinstance(op, ops.Identity | ops.Dropout):
        return True
    if isinstance(op, ops.GlobalPool | ops.AdaptivePool):
        pooled = (op.rows, op.columns) if isinstance(op, ops.AdaptivePool) else (1, 1)
        return cells == pooled
    if not isinstance(op, ops.Rearrange | ops.Flatten | ops.AsMap):
        return False
    before, after = ([size for size in value_shapes[path] if size != 1] for path in (node.source, node.path))
    count = math.prod(size or 1 for size in value_shapes[node.source])
    in_order_of_input = np.arange(count, dtype=np.int32).tobytes()
    return before == after and moved(op, value_shapes[node.source]) == in_order_of_input

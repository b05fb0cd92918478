"""The layers that frameworks with the channels last lack alike, under the names that they have in the
`layers.py` of each, and arguments that are said alike in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from porter.frameworks.code.layer_arguments import constants
from porter.frameworks.code.plan_layers import Layer, plain
from porter.graph import Op, Shape, ops
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import CHANNELS_LAST, channels_in, is_map
from porter.padding import Front, Pads, Site, Window

FUNCTIONS = frozenset({"add", "multiply", "divide", "maximum", "minimum", "concat"})
"""Kinds that are said where they are applied."""


def front_layer(
    pad: str, sizes: Callable[[Window], Mapping[str, PlainValue]]
) -> Callable[[Front, Site, str], Layer]:
    """Return the function that makes the pad layer in front of a windowed op's site (its window, strides and
    padding convention), for Spellings.pad.

    Args:
        pad: the framework's function that pads an array by a `pad_width` with `constant_values`.
        sizes: returns the arguments of `same_pad` that say a window.
    """

    def front_layer_of(front: Front, site: Site, why: str) -> Layer:
        """Return the pad layer in front of a windowed op: by fixed pads, or by a rule SAME that computes them
        as the model runs. `why` is its comment.
        """
        top, bottom, left, right = front.pads
        if front.rule == "explicit":
            width: PlainValue = ((0, 0), (top, bottom), (left, right), (0, 0))
            return Layer(pad, {"pad_width": width, "constant_values": front.fill or 0}, why)
        # SAME depends on the map's size; `same_lower` has the odd cell before the map.
        lower = front.rule == "same_lower"
        return Layer("same_pad", {**sizes(site.window), "lower": lower, "fill": front.fill}, why)

    return front_layer_of


def pad_arguments(op: ops.Pad | ops.ExtendMap, shape: Shape) -> dict[str, PlainValue]:
    """Return the arguments of the framework's function that pads an array of a `shape`: the cells before and
    after each axis, none along the batch, and the number or the mode that fills them. One row above a map:
    `{"pad_width": ((0, 0), (1, 0), (0, 0), (0, 0)), "constant_values": 0}`.
    """
    filling: dict[str, PlainValue] = (
        {"mode": op.mode} if isinstance(op, ops.ExtendMap) else {"constant_values": op.fill or 0}
    )
    widths = (op.ends.get(axis, (0, 0)) for axis in _axes_of_batch(shape))
    return {"pad_width": ((0, 0), *widths), **filling}


def reduce_arguments(op: ops.Reduce) -> dict[str, PlainValue]:
    """Return the arguments of the framework's function that reduces an axis, such as `{"axis": -1,
    "keepdims": True}` for the channels of a map.
    """
    if op.of_arrays:
        return {"axis": 1 + op.over}  # behind the batch
    # Rows and columns have 1 and 2 here as in porter's order, C x H x W; the channels, 0 there, are last.
    is_of_channels = op.over == 0
    return {"axis": -1 if is_of_channels else op.over, "keepdims": True}


def sides(pads: Pads) -> PlainValue:
    """Return pads by axis: (top, bottom), (left, right)."""
    top, bottom, left, right = pads
    return (top, bottom), (left, right)


def _axes_of_batch(shape: Shape) -> Mapping[int, int]:
    """Return, by the axes of a value, their places among the axes of a batch with the channels last: of a map
    C x H x W `{1: 1, 2: 2, 0: 3}`, of an array of two axes `{0: 1, 1: 2}`.
    """
    order = CHANNELS_LAST if is_map(shape) else range(len(shape))
    return {axis: number for number, axis in enumerate(order, 1)}


def _crop(op: ops.Crop, shape: Shape) -> Layer:
    """Return the layer `crop`, whose argument `cells` has the axis, start, stop and step of each cut. A map
    without its last row has `((1, 0, -1, 1), (2, 0, None, 1))`.
    """
    cuts = [
        (axis_of_layer, op.cuts[axis])
        for axis, axis_of_layer in _axes_of_batch(shape).items()
        if axis in op.cuts
    ]
    cells = tuple((axis_of_layer, cut.start, cut.stop, cut.step) for axis_of_layer, cut in cuts)
    return Layer("crop", {"cells": cells})


def _rearrange(op: ops.Rearrange, shape: Shape) -> Layer:
    """Return the layer `rearrange`, whose pattern says how axes are split, moved and joined, as einops does;
    the channels of maps are last: `h w c -> (h w) c` makes tokens of a map's cells.
    """
    split = [[f"{name}={size}" if size else name for name, size in axis] for axis in op.moves.split]
    joined = [list(axis) for axis in op.moves.joined]
    pattern = f"{_pattern_side(split, is_map(shape))} -> {_pattern_side(joined, op.map)}"
    return Layer("rearrange", {"pattern": pattern})


def _pattern_side(axes: Sequence[Sequence[str]], of_map: bool) -> str:
    """Return one side of a pattern, from the parts of each axis in porter's order."""
    order = CHANNELS_LAST if of_map else range(len(axes))
    return " ".join(_axis_text(axes[axis]) for axis in order)


def _axis_text(parts: Sequence[str]) -> str:
    """Return an axis in the words of a pattern: `a`, or in parentheses where it is split, `(a=2 b)`."""
    is_whole = len(parts) == 1 and "=" not in parts[0]
    return parts[0] if is_whole else f"({' '.join(parts)})"


def _resize(op: ops.Resize | ops.ResizeLike, shape: Shape) -> Layer:
    """Return the layer `resize`, with the arguments that count in the op's mode."""
    arguments: dict[str, PlainValue] = {"mode": op.mode, "coordinates": op.coordinates}
    if isinstance(op, ops.Resize):
        arguments |= {"size": op.size} if op.size else {"scale": op.scale}
    if op.mode == "nearest":
        arguments |= {"rounding": op.rounding}
    elif op.mode == "cubic":
        arguments |= {"a": op.a, "inside": op.inside}
    return Layer("resize", arguments)


OWN: Mapping[type[Op], Callable[[Any, Shape], Layer]] = {
    ops.LocalResponseNorm: plain("local_response_norm", "size", "alpha", "beta", "bias"),
    ops.ChannelScale: lambda op, shape: Layer(
        "ChannelScale", {"features": channels_in(shape), "use_bias": op.bias}
    ),
    ops.Affine: lambda op, shape: Layer(
        "affine", {"scale": constants(op.scale), "offset": constants(op.offset)}
    ),
    ops.ThresholdedRelu: plain("thresholded_relu", "threshold"),
    ops.Power: plain("power", "exponent"),
    ops.Step: plain("step", "inclusive"),
    ops.AdaptivePool: plain("adaptive_pool", "rows", "columns", "function"),
    ops.ConcatChannels: plain("concat"),
    ops.Join: lambda op, shape: Layer("join", {"axis": 1 + op.axis}),
    ops.Flatten: lambda op, shape: Layer(
        # Of a single cell both orders are the same, and HWC needs no transpose.
        "flatten",
        {"order": op.order if (op.rows, op.columns) != (1, 1) else "HWC"},
    ),
    ops.Crop: _crop,
    ops.ChannelShuffle: plain("channel_shuffle", "groups"),
    ops.DepthToSpace: plain("depth_to_space", "block", "order"),
    ops.SpaceToDepth: plain("space_to_depth", "block", "order"),
    ops.Upsample: plain("upsample", "rows", "columns"),
    ops.Resize: _resize,
    ops.ResizeLike: _resize,
    ops.PadLike: lambda op, shape: Layer("pad_like", {"rows": op.rows, "columns": op.columns}),
    ops.CropLike: lambda op, shape: Layer("crop_like", {"rows": op.rows, "columns": op.columns}),
    ops.Rearrange: _rearrange,
    ops.MatMul: plain("matmul", "transpose"),
    ops.Attention: plain("attention", "heads", "scale"),
    ops.OfArray: lambda op, shape: Layer(
        type(op).__name__, {"shape": tuple(op.sizes[axis] for axis in _axes_of_batch(shape))}
    ),
    ops.Tokens: lambda op, shape: Layer("Tokens", {"count": op.count, "features": channels_in(shape)}),
}
"""Rows of the ops that none of these frameworks has."""

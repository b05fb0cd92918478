"""A graph's node as a recipe spells it: the operation and its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from porter.graph import Affine, AvgPool, Conv, ConvTranspose, MaxPool, Op
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops.kinds import attributes
from porter.padding import LOWEST, Convention, Window

FILL: Mapping[str, float] = {"max_pool": LOWEST}
"""What the cells outside hold where a recipe says nothing; 0 at other sites."""


def spelled(op: Op, channels: int) -> tuple[str, dict[str, PlainValue]]:
    """The operation, and all of its arguments; those of a `pad` that is a mapping as `pad.fill`.

    Args:
        channels: of the op's input.
    """
    if isinstance(op, Conv):
        window = _window(op.window) | _padding(op.convention, op.window, "conv")
        if op.groups > 1 and op.groups == channels:
            return "depthwise_conv", {**window, "multiplier": op.filters // channels, "bias": op.bias}
        return "conv", {"filters": op.filters, **window, "groups": op.groups, "bias": op.bias}
    if isinstance(op, MaxPool | AvgPool):
        return op.name, _window(op.window) | _padding(op.convention, op.window, op.name)
    if isinstance(op, ConvTranspose):
        return op.name, {
            "filters": op.filters,
            **_window(op.window),
            "cut": op.cut,
            "groups": op.groups,
            "bias": op.bias,
        }
    if isinstance(op, Affine):
        return op.name, {name: values[0] if len(values) == 1 else values for name, values in vars(op).items()}
    return op.name, {name: getattr(op, name) for name in attributes(type(op))}


def _window(window: Window) -> dict[str, PlainValue]:
    return {name: _pair(getattr(window, name)) for name in ("kernel", "stride", "dilation")}


def _pair(sides: tuple[int, int]) -> PlainValue:
    return sides[0] if sides[0] == sides[1] else sides


def _padding(convention: Convention, window: Window, kind: str) -> dict[str, PlainValue]:
    """A convention's parts; what has no effect is as its default, and a window of one cell needs no pads."""
    pads, one_cell = convention.pads, window.extent(0) == window.extent(1) == 1
    explicit = convention.rule == "explicit"
    amount: PlainValue = pads[0] if len(set(pads)) == 1 else pads
    if not explicit:
        amount = convention.rule
    plain = amount in ("same", "same_lower", "cntk") and one_cell
    outside = not plain and (explicit or convention.rule != "valid" or convention.rounds != "floor")
    return {
        "pad": "valid" if plain else amount,
        "pad.fill": convention.fill if outside and kind == "max_pool" else FILL.get(kind, 0.0),
        "pad.average": convention.average if outside and kind == "avg_pool" else "real_cells",
        "pad.rounding": convention.rounds,
    }


def usual_padding(kind: str) -> dict[str, PlainValue]:
    """The defaults of a site's `pad.` arguments."""
    return {"pad.fill": FILL.get(kind, 0.0), "pad.average": "real_cells", "pad.rounding": "floor"}

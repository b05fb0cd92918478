"""A graph's node as a recipe spells it: the operation and its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from porter.graph import Affine, AvgPool, Conv, ConvTranspose, MaxPool, Op
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops.kinds import attributes
from porter.padding import LOWEST, Convention, Window

DEFAULT_FILL: Mapping[str, float] = {"max_pool": LOWEST}
"""The number in the cells outside a map if a recipe states none; 0 at sites that are not listed."""


def spell_op(op: Op, channels: int) -> tuple[str, dict[str, PlainValue]]:
    """Return a graph's op as a recipe has it: the operation, and all of its arguments, as `depthwise_conv`
    and `{'kernel': 3, 'stride': 2, ...}`. Those of a `pad` that is a mapping are called `pad.fill` and so
    on.

    Args:
        channels: of the op's input.
    """
    if isinstance(op, Conv):
        window = _spell_window(op.window) | _spell_padding(op.convention, op.window, "conv")
        if op.groups > 1 and op.groups == channels:
            return "depthwise_conv", {**window, "multiplier": op.filters // channels, "bias": op.bias}
        return "conv", {"filters": op.filters, **window, "groups": op.groups, "bias": op.bias}
    if isinstance(op, MaxPool | AvgPool):
        return op.name, _spell_window(op.window) | _spell_padding(op.convention, op.window, op.name)
    if isinstance(op, ConvTranspose):
        return op.name, {
            "filters": op.filters,
            **_spell_window(op.window),
            "cut": op.cut,
            "groups": op.groups,
            "bias": op.bias,
        }
    if isinstance(op, Affine):
        # one number for all channels, or one for each
        return op.name, {name: values[0] if len(values) == 1 else values for name, values in vars(op).items()}
    return op.name, {name: getattr(op, name) for name in attributes(type(op))}


def _spell_window(window: Window) -> dict[str, PlainValue]:
    """Return the kernel, the stride and the dilation of a window as arguments."""
    return {name: _spell_pair(getattr(window, name)) for name in ("kernel", "stride", "dilation")}


def _spell_pair(sides: tuple[int, int]) -> PlainValue:
    """Return rows and columns as recipes write them: 3 for (3, 3), and (3, 1) as it is."""
    return sides[0] if sides[0] == sides[1] else sides


def _spell_padding(convention: Convention, window: Window, kind: str) -> dict[str, PlainValue]:
    """Return a convention as arguments of a step: `pad`, and `pad.fill`, `pad.average` and `pad.rounding`. A
    part without effect is at its default, and a window of one cell needs no pads.
    """
    pads = convention.pads
    is_one_cell = window.extent(0) == window.extent(1) == 1
    amount: PlainValue = convention.rule
    if convention.rule == "explicit":
        amount = pads[0] if len(set(pads)) == 1 else pads
    needs_no_pads = amount in ("same", "same_lower", "cntk") and is_one_cell
    # A window that rounds up reaches past the map too.
    has_outside_cells = convention.rule != "valid" or convention.rounds != "floor"
    reads_outside = has_outside_cells and not needs_no_pads
    return {
        "pad": "valid" if needs_no_pads else amount,
        "pad.fill": convention.fill if reads_outside and kind == "max_pool" else DEFAULT_FILL.get(kind, 0.0),
        "pad.average": convention.average if reads_outside and kind == "avg_pool" else "real_cells",
        "pad.rounding": convention.rounds,
    }


def default_padding(kind: str) -> dict[str, PlainValue]:
    """Return the defaults of a site's `pad.` arguments."""
    return {"pad.fill": DEFAULT_FILL.get(kind, 0.0), "pad.average": "real_cells", "pad.rounding": "floor"}

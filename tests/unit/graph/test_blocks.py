"""Blocks that are found in graphs without a recipe."""

from __future__ import annotations

from typing import Any

from porter.graph import INPUT, Conv, Node, Op, Rearrange
from porter.graph.blocks.block_uses import with_blocks
from porter.graph.blocks.outline import Group, Leaf
from porter.padding import Convention, Window


def test_no_block_holds_itself() -> None:
    """As in EfficientViM: a module `proj` has only a module `conv`, which ends with a convolution of that
    name.
    """

    def unit(number: int) -> Group:
        ops: dict[str, Op] = {
            "conv1d": Rearrange("c h w -> c w h", map=True),
            "conv": Conv(8, Window((1, 1), (1, 1), (1, 1)), Convention()),
        }
        leaves = tuple(Leaf(name, Node(f"{number}/{name}", op, (INPUT,))) for name, op in ops.items())
        return Group(f"proj{number}", (Group("conv", leaves, module=True),), module=True)

    root = with_blocks(Group("", tuple(map(unit, range(6)))))
    outers: Any = root.members
    found = {(outer.block, inner.block) for outer in outers for inner in getattr(outer, "members", ())}
    assert len(found) == 1 and all(outer != inner for outer, inner in found)

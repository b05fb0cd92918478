"""Ops made of others, exactly, for destinations that lack them. What a port records is the source's graph;
the parts belong to the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from porter.graph import ops
from porter.graph.adaptive import lower_adaptive_pool
from porter.graph.graph import Graph, Node
from porter.graph.lowered_parts import Parts
from porter.graph.ops import Op, Shape, row_of


def _affine(scale: float = 1.0, offset: float = 0.0) -> ops.Affine:
    return ops.Affine((scale,), (offset,))


def _lower_relu6(parts: Parts, op: ops.Relu6) -> None:
    parts.end(ops.Clip(0.0, 6.0), parts.source)


def _lower_hard_sigmoid(parts: Parts, op: ops.HardSigmoid) -> None:
    parts.end(ops.Clip(0.0, 1.0), parts.add("line", _affine(op.slope, op.offset), parts.source))


def _lower_hard_swish(parts: Parts, op: ops.HardSwish) -> None:
    cut = parts.add("cut", ops.Relu6(), parts.add("line", _affine(offset=3.0), parts.source))
    parts.end(_affine(1 / 6), parts.add("product", ops.Multiply(), parts.source, cut))


def _lower_swish(parts: Parts, op: ops.Swish) -> None:
    parts.end(ops.Multiply(), parts.source, parts.add("share", ops.Sigmoid(), parts.source))


def _lower_mish(parts: Parts, op: ops.Mish) -> None:
    """Make a mish, x * tanh(softplus(x)). The softplus may be `cut`: where it is x, its tanh is 1 anyway."""
    smooth = parts.add("smooth", ops.Softplus(cut=parts.lacks(ops.Softplus())), parts.source)
    parts.end(ops.Multiply(), parts.source, parts.add("share", ops.Tanh(), smooth))


def _lower_celu(parts: Parts, op: ops.Celu) -> None:
    """Make a CELU of max(x, 0) plus an ELU of min(x, 0) / alpha."""
    below = parts.add("below", ops.Relu(), parts.add("negative", _affine(-1.0), parts.source))
    curve = parts.add("curve", ops.Elu(op.alpha), parts.add("share", _affine(-1 / op.alpha), below))
    parts.end(ops.Add(), parts.add("over", ops.Relu(), parts.source), curve)


def _lower_softsign(parts: Parts, op: ops.Softsign) -> None:
    size = parts.add("size", ops.Abs(), parts.source)
    parts.end(ops.Divide(), parts.source, parts.add("total", _affine(offset=1.0), size))


def _lower_gelu(parts: Parts, op: ops.Gelu) -> None:
    """Make the GELU that is approximated by a tanh. The exact one is left to be refused: it needs an error
    function, which a destination that lacks it lacks too.
    """
    if not op.approximate:
        return
    cubes = parts.add("cubes", _affine(0.044715), parts.add("power", ops.Power(3.0), parts.source))
    total = parts.add("total", ops.Add(), parts.source, cubes)
    tanh = parts.add("tanh", ops.Tanh(), parts.add("line", _affine(math.sqrt(2 / math.pi)), total))
    parts.end(ops.Multiply(), parts.source, parts.add("share", _affine(0.5, 0.5), tanh))


def _lower_divide(parts: Parts, op: ops.Divide) -> None:
    first, second = parts.node.inputs
    parts.end(ops.Multiply(), first, parts.add("by", ops.Reciprocal(), second))


def _lower_minimum(parts: Parts, op: ops.Minimum) -> None:
    """Make a minimum of a maximum: the negative of the largest of the negatives. As in other lowerings of ops
    without attributes, `op` is unused.
    """
    negatives = [parts.add("negative", _affine(-1.0), path) for path in parts.node.inputs]
    parts.end(_affine(-1.0), parts.add("most", ops.Maximum(), *negatives))


def _lower_global_pool(parts: Parts, op: ops.GlobalPool) -> None:
    """Make a pool that drops its rows and columns of one that keeps them. One that keeps them is left to be
    refused.
    """
    if not op.keep:
        parts.end(ops.Flatten(), parts.add("cell", replace(op, keep=True), parts.source))


def _lower_depth_to_space(parts: Parts, op: ops.DepthToSpace) -> None:
    """Make the order CRD (the channel counts first) of DCR (the cell does), by shuffling the channels first.
    DCR itself is left to be refused.
    """
    if op.order == "CRD":
        channels = (parts.shape[0] or 0) // op.block**2
        order = parts.add("order", ops.ChannelShuffle(channels), parts.source)
        parts.end(ops.DepthToSpace(op.block), order)


def _lower_space_to_depth(parts: Parts, op: ops.SpaceToDepth) -> None:
    """Make the order CRD (the channel counts first) of DCR (the cell does), by shuffling the channels
    afterwards. DCR itself is left to be refused.
    """
    if op.order == "CRD":
        cells = parts.add("cells", ops.SpaceToDepth(op.block), parts.source)
        parts.end(ops.ChannelShuffle(op.block**2), cells)


def _lower_response_norm(parts: Parts, op: ops.LocalResponseNorm) -> None:
    """Make a response norm, x * (bias + alpha * sum of squares) ** -beta. The sum over neighbouring channels
    is that of copies of the squares, each shifted by some channels. Of an even size, one more of these is
    before the channel than behind it.
    """
    channels = parts.shape[0] or 0
    before = min(op.size // 2, channels - 1)
    after = min((op.size - 1) // 2, channels - 1)
    squares = parts.add("squares", ops.Multiply(), parts.source, parts.source)
    padded = parts.add("wide", ops.PadChannels(before, after), squares)
    slices = [ops.SliceChannels(start, start + channels) for start in range(before + after + 1)]
    shifted = [parts.add("shift", channels_slice, padded) for channels_slice in slices]
    total = parts.add("total", ops.Add(), *shifted) if len(shifted) > 1 else shifted[0]
    line = parts.add("line", _affine(op.alpha, op.bias), total)
    power = parts.add("power", ops.Power(-op.beta), line)
    parts.end(ops.Multiply(), parts.source, power)


def _lower_as_large(parts: Parts, op: ops.AsLarge) -> None:
    """Make pads, or a crop, of so many cells as the sizes of the two maps differ by, on the sides that the op
    says.
    """
    amounts = list[int]()
    shape, wanted_shape = (parts.shapes[path] for path in parts.node.inputs)
    for side, size, wanted_size in zip((op.rows, op.columns), shape[1:], wanted_shape[1:], strict=True):
        cells = 0 if side == "none" else abs((wanted_size or 0) - (size or 0))
        # of half of an odd number, the odd cell is at the end
        before = {"start": cells, "both": cells // 2}.get(side, 0)
        amounts += before, cells - before
    top, bottom, left, right = amounts
    pad_or_crop = ops.PadMap if op.grows else ops.CropMap
    parts.end(pad_or_crop((top, bottom, left, right)), parts.source)


LOWERINGS: Mapping[type[Op], Callable[[Parts, Any], None]] = {
    ops.AdaptivePool: lower_adaptive_pool,
    ops.AsLarge: _lower_as_large,
    ops.GlobalPool: _lower_global_pool,
    ops.DepthToSpace: _lower_depth_to_space,
    ops.SpaceToDepth: _lower_space_to_depth,
    ops.LocalResponseNorm: _lower_response_norm,
    ops.Relu6: _lower_relu6,
    ops.HardSigmoid: _lower_hard_sigmoid,
    ops.HardSwish: _lower_hard_swish,
    ops.Swish: _lower_swish,
    ops.Mish: _lower_mish,
    ops.Celu: _lower_celu,
    ops.Softsign: _lower_softsign,
    ops.Gelu: _lower_gelu,
    ops.Divide: _lower_divide,
    ops.Minimum: _lower_minimum,
}
"""What makes the parts of an op. An op without attributes is passed in too, and not used; a function that
makes no parts leaves the op to be refused.
"""


def parts_of(
    graph: Graph, shape_of: Mapping[str, Shape], lacks: Callable[[Op], bool]
) -> dict[str, tuple[Node, ...]]:
    """Return the nodes that stand for each node whose op a destination lacks, by the node's path, which is
    that of its last part.

    Args:
        shape_of: the shape of every path; those of maps of adaptive pools, and of maps that are made as large
            as others, have no open size.
        lacks: whether the destination lacks an op. Parts that it lacks are made of others too.

    Raises:
        GraphError: an adaptive pool has too many windows.
    """
    shapes = dict(shape_of)

    def lower(node: Node) -> tuple[Node, ...]:
        """Return the nodes that stand for a node; it alone if the destination has its op, or nothing makes
        it. Parts whose ops are lacking too are lowered themselves.
        """
        lowering = row_of(LOWERINGS, type(node.op))
        if lowering is None or not lacks(node.op):
            return (node,)
        parts = Parts(node, lacks, shapes)
        lowering(parts, node.op)
        return tuple(inner for part in parts.made for inner in lower(part)) or (node,)

    lowered = ((node, lower(node)) for node in graph.nodes)
    return {node.path: parts for node, parts in lowered if parts[-1] is not node}

"""How ONNX says the ops of arrays that are several of its nodes, see porter.frameworks.onnx.spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from porter.frameworks.onnx.maker import NodeMaker
from porter.graph import Node, ops


def rearrange(maker: NodeMaker, node: Node, op: ops.Rearrange) -> None:
    """A Reshape, a Transpose and a Reshape, of which those that do nothing are left out."""
    path, (source,), moves = node.path, node.inputs, op.moves
    parts = moves.parts(maker.shapes[source])
    turned = moves.order != tuple(sorted(moves.order))
    split, joined = any(len(axis) != 1 for axis in moves.split), any(len(axis) != 1 for axis in moves.joined)
    last = "joined" if joined else "turned" if turned else "split"

    def name(step: str) -> str:
        return path if step == last else maker.name(f"{path}_{step}")

    if split:
        others = [math.prod(size or 1 for _, size in axis) for axis in moves.split]
        cells = [
            (parts[part], [place], others[place])
            for place, axis in enumerate(moves.split)
            for part, _ in axis
        ]
        source = _reshape(maker, name("split"), source, cells)
    if turned:
        source = maker.node(
            "Transpose", name("turned"), source, perm=(0, *(1 + place for place in moves.order))
        )
    if joined:
        places = iter(range(len(moves.names)))
        axes = [([parts[part] for part in axis], [next(places) for _ in axis]) for axis in moves.joined]
        wide = [
            (None if None in sizes else math.prod(size or 0 for size in sizes), own, 1) for sizes, own in axes
        ]
        source = _reshape(maker, name("joined"), source, wide)
    if not (split or turned or joined):
        maker.node("Identity", path, source)


def _reshape(
    maker: NodeMaker, name: str, source: str, axes: Sequence[tuple[int | None, Sequence[int], int]]
) -> str:
    """A Reshape of all axes but the batch, which it copies.

    Args:
        axes: the size of each axis of the result; where it is open, the axes of the value whose product it
            is, and by what that is divided.
    """
    if sum(size is None for size, _, _ in axes) < 2:
        return maker.node(
            "Reshape",
            name,
            source,
            maker.integers(f"{name}.sizes", 0, *(-1 if n is None else n for n, _, _ in axes)),
        )
    shape, sizes = (
        maker.node("Shape", maker.name(f"{name}_shape"), source),
        [maker.integers(f"{name}.batch", 0)],
    )
    for size, places, others in axes:
        if size is not None:
            sizes.append(maker.integers(f"{name}.size", size))
            continue
        own = [
            maker.cut(maker.name(f"{name}_size"), shape, (1 + place,), (2 + place,), (0,)) for place in places
        ]
        whole = reduce(
            lambda first, second: maker.node("Mul", maker.name(f"{name}_cells"), first, second), own
        )
        divisor = [maker.integers(f"{name}.others", others)] if others > 1 else []
        sizes.append(maker.node("Div", maker.name(f"{name}_part"), whole, *divisor) if divisor else whole)
    return maker.node(
        "Reshape", name, source, maker.node("Concat", maker.name(f"{name}_sizes"), *sizes, axis=0)
    )


def attention(maker: NodeMaker, node: Node, op: ops.Attention) -> None:
    """The plain ops: the heads, their products, the softmax, the mixture."""
    path, rank = node.path, len(maker.shapes[node.inputs[0]])
    parts = list(node.inputs)
    if len(parts) == 1:
        width = (maker.shapes[parts[0]][-1] or 0) // 3
        bounds = [(width * place, width * (place + 1)) for place in range(3)]
        parts = [
            maker.cut(maker.name(f"{path}_part"), node.inputs[0], (start,), (end,), (rank,))
            for start, end in bounds
        ]
    turn, kept = [*range(rank - 1), rank, rank - 1, rank + 1], [0] * rank  # a size of 0 is copied
    split = maker.integers(f"{path}.heads", *kept, op.heads, -1)
    heads = []
    for part, name, perm in zip(
        parts, ("query", "key", "value"), (turn, [*turn[:-2], turn[-1], turn[-2]], turn), strict=True
    ):
        of_heads = maker.node("Reshape", maker.name(f"{path}_{name}_of_heads"), part, split)
        heads.append(maker.node("Transpose", maker.name(f"{path}_{name}"), of_heads, perm=perm))
    products = maker.node("MatMul", maker.name(f"{path}_products"), *heads[:2])
    scaled = maker.node(
        "Mul", maker.name(f"{path}_scaled"), products, maker.scalar(f"{path}.scale", op.scale)
    )
    shares = maker.node("Softmax", maker.name(f"{path}_shares"), scaled, axis=-1)
    mixed = maker.node("MatMul", maker.name(f"{path}_mixed"), shares, heads[2])
    turned = maker.node("Transpose", maker.name(f"{path}_turned"), mixed, perm=turn)
    maker.node("Reshape", path, turned, maker.integers(f"{path}.joined", *kept, -1))


def matmul(maker: NodeMaker, node: Node, op: ops.MatMul) -> None:
    """MatMul, of which the second value may be turned."""
    first, second = node.inputs
    if op.transpose:
        rank = len(maker.shapes[second]) + 1
        turn = (*range(rank - 2), rank - 1, rank - 2)
        second = maker.node("Transpose", maker.name(f"{node.path}_turned"), second, perm=turn)
    maker.node("MatMul", node.path, first, second)


def tokens(maker: NodeMaker, node: Node, op: ops.Tokens) -> None:
    """The tokens are stretched to the images by adding them to zeros of that shape."""
    path, (source,) = node.path, node.inputs
    images = maker.cut(
        maker.name(f"{path}_images"),
        maker.node("Shape", maker.name(f"{path}_shape"), source),
        (0,),
        (1,),
        (0,),
    )
    rest = maker.integers(f"{path}.rest", op.count, maker.shapes[path][-1] or 0)
    shape = maker.node("Concat", maker.name(f"{path}_sizes"), images, rest, axis=0)
    tokens = maker.node("Expand", maker.name(f"{path}_expanded"), *maker.trained(node, "value"), shape)
    maker.node("Concat", path, tokens, source, axis=1)

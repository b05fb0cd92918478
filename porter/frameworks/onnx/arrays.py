"""How ONNX says the ops of arrays that are several of its nodes, see porter.frameworks.onnx.spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from porter.frameworks.onnx.maker import NodeMaker, OnnxSpelled
from porter.graph import ops


def rearrange(node: OnnxSpelled[ops.Rearrange]) -> None:
    """A Reshape, a Transpose and a Reshape, of which those that do nothing are left out."""
    source, moves = node.source, node.op.moves
    parts = moves.parts(node.maker.shapes[source])
    turned = moves.order != tuple(sorted(moves.order))
    split, joined = any(len(axis) != 1 for axis in moves.split), any(len(axis) != 1 for axis in moves.joined)
    unjoined = "turned" if turned else "split"
    last = "joined" if joined else unjoined

    def name(step: str) -> str:
        return node.path if step == last else node.part(step)

    if split:
        others = [math.prod(size or 1 for _, size in axis) for axis in moves.split]
        cells = [
            (parts[part], [index], others[index])
            for index, axis in enumerate(moves.split)
            for part, _ in axis
        ]
        source = _reshape(node.maker, name("split"), source, cells)
    if turned:
        source = node.maker.add(
            "Transpose", name("turned"), source, perm=(0, *(1 + index for index in moves.order))
        )
    if joined:
        places = iter(range(len(moves.names)))
        axes = [([parts[part] for part in axis], [next(places) for _ in axis]) for axis in moves.joined]
        wide = [
            (None if None in sizes else math.prod(size or 0 for size in sizes), own, 1) for sizes, own in axes
        ]
        source = _reshape(node.maker, name("joined"), source, wide)
    if not (split or turned or joined):
        node.result("Identity", source)


def _reshape(
    maker: NodeMaker, name: str, source: str, axes: Sequence[tuple[int | None, Sequence[int], int]]
) -> str:
    """Return a Reshape of all axes but the batch, which it copies.

    Args:
        axes: the size of each axis of the result; where it is open, the axes of the value whose product it
            is, and by what that is divided.
    """
    if sum(size is None for size, _, _ in axes) < 2:
        return maker.add(
            "Reshape",
            name,
            source,
            maker.integers(f"{name}.sizes", 0, *(-1 if n is None else n for n, _, _ in axes)),
        )
    shape = maker.add("Shape", maker.name(f"{name}_shape"), source)
    sizes = [maker.integers(f"{name}.batch", 0)]
    for size, places, others in axes:
        if size is not None:
            sizes.append(maker.integers(f"{name}.size", size))
            continue
        own = [
            maker.cut(maker.name(f"{name}_size"), shape, (1 + axis,), (2 + axis,), (0,)) for axis in places
        ]
        whole = reduce(
            lambda first, second: maker.add("Mul", maker.name(f"{name}_cells"), first, second), own
        )
        divisor = [maker.integers(f"{name}.others", others)] if others > 1 else []
        sizes.append(maker.add("Div", maker.name(f"{name}_part"), whole, *divisor) if divisor else whole)
    return maker.add(
        "Reshape", name, source, maker.add("Concat", maker.name(f"{name}_sizes"), *sizes, axis=0)
    )


def attention(node: OnnxSpelled[ops.Attention]) -> None:
    """The plain ops: the heads, their products, the softmax, the mixture."""
    parts = list(node.inputs)
    rank = len(node.maker.shapes[node.source])
    if len(parts) == 1:
        width = (node.maker.shapes[parts[0]][-1] or 0) // 3
        bounds = [(width * index, width * (index + 1)) for index in range(3)]
        parts = [
            node.maker.cut(node.part("part"), node.source, (start,), (end,), (rank,)) for start, end in bounds
        ]
    turn, kept = [*range(rank - 1), rank, rank - 1, rank + 1], [0] * rank  # a size of 0 is copied
    split = node.integers("heads", *kept, node.op.heads, -1)
    heads = []
    for part, name, perm in zip(
        parts, ("query", "key", "value"), (turn, [*turn[:-2], turn[-1], turn[-2]], turn), strict=True
    ):
        of_heads = node.step(f"{name}_of_heads", "Reshape", part, split)
        heads.append(node.step(name, "Transpose", of_heads, perm=perm))
    products = node.step("products", "MatMul", *heads[:2])
    scaled = node.step("scaled", "Mul", products, node.scalar("scale", node.op.scale))
    shares = node.step("shares", "Softmax", scaled, axis=-1)
    mixed = node.step("mixed", "MatMul", shares, heads[2])
    turned = node.step("turned", "Transpose", mixed, perm=turn)
    node.result("Reshape", turned, node.integers("joined", *kept, -1))


def matmul(node: OnnxSpelled[ops.MatMul]) -> None:
    """MatMul, of which the second value may be turned."""
    first, second = node.inputs
    if node.op.transpose:
        rank = len(node.maker.shapes[second]) + 1
        turn = (*range(rank - 2), rank - 1, rank - 2)
        second = node.step("turned", "Transpose", second, perm=turn)
    node.result("MatMul", first, second)


def tokens(node: OnnxSpelled[ops.Tokens]) -> None:
    """The tokens are stretched to the images by adding them to zeros of that shape."""
    images = node.maker.cut(
        node.part("images"),
        node.step("shape", "Shape", node.source),
        (0,),
        (1,),
        (0,),
    )
    rest = node.integers("rest", node.op.count, node.shape[-1] or 0)
    shape = node.step("sizes", "Concat", images, rest, axis=0)
    tokens = node.step("expanded", "Expand", *node.trained("value"), shape)
    node.result("Concat", tokens, node.source, axis=1)

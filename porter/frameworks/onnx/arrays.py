"""How ONNX says the ops of arrays that are several of its nodes, see porter.frameworks.onnx.spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from porter.frameworks.onnx.maker import NodeMaker, OnnxSpelled
from porter.graph import ops


def add_rearrange(node: OnnxSpelled[ops.Rearrange]) -> None:
    """Add a Reshape that splits axes, a Transpose, and a Reshape that joins axes, without those that do
    nothing.
    """
    source, moves = node.source, node.op.moves
    parts = moves.parts(node.maker.shapes[source])  # the size of each part of the axes, by its name
    is_transposed = moves.order != tuple(sorted(moves.order))
    is_split = any(len(axis) != 1 for axis in moves.split)
    is_joined = any(len(axis) != 1 for axis in moves.joined)
    # The last step that there is has the path, the others names of their own.
    last_before_join = "turned" if is_transposed else "split"
    last_step = "joined" if is_joined else last_before_join

    def name(step: str) -> str:
        return node.path if step == last_step else node.part(step)

    if is_split:
        # An open axis is split into parts of which all but one have known sizes.
        known_products = [math.prod(size or 1 for _, size in axis) for axis in moves.split]
        split_axes = [
            (parts[part], [index], known_products[index])
            for index, axis in enumerate(moves.split)
            for part, _ in axis
        ]
        source = _add_reshape(node.maker, name("split"), source, split_axes)
    if is_transposed:
        source = node.maker.add(
            "Transpose", name("turned"), source, perm=(0, *(1 + index for index in moves.order))
        )
    if is_joined:
        new_axes = iter(range(len(moves.names)))
        axes = [([parts[part] for part in axis], [next(new_axes) for _ in axis]) for axis in moves.joined]
        joined_axes = [
            (None if None in sizes else math.prod(size or 0 for size in sizes), axes_of_value, 1)
            for sizes, axes_of_value in axes
        ]
        source = _add_reshape(node.maker, name("joined"), source, joined_axes)
    if not (is_split or is_transposed or is_joined):
        node.result("Identity", source)


def _add_reshape(
    maker: NodeMaker, name: str, source: str, axes: Sequence[tuple[int | None, Sequence[int], int]]
) -> str:
    """Add a Reshape of all axes but the batch, which it copies, and return its value.

    Args:
        axes: for each axis of the result its size; where it is open, the axes of the value whose product
            it is, and by what that is divided.
    """
    # At most one size is open, which a Reshape finds by -1.
    if sum(size is None for size, _, _ in axes) < 2:
        target = maker.integers(f"{name}.sizes", 0, *(-1 if size is None else size for size, _, _ in axes))
        return maker.add("Reshape", name, source, target)
    shape = maker.add("Shape", maker.name(f"{name}_shape"), source)
    # Vectors of one size each; of 0, the size is copied.
    sizes = [maker.integers(f"{name}.batch", 0)]
    for size, axes_of_value, known_product in axes:
        if size is not None:
            sizes.append(maker.integers(f"{name}.size", size))
            continue
        factors = [
            maker.add_slice(maker.name(f"{name}_size"), shape, (1 + axis,), (2 + axis,), (0,))
            for axis in axes_of_value
        ]
        product = factors[0]
        for factor in factors[1:]:
            product = maker.add("Mul", maker.name(f"{name}_cells"), product, factor)
        if known_product > 1:
            divisor = maker.integers(f"{name}.others", known_product)
            product = maker.add("Div", maker.name(f"{name}_part"), product, divisor)
        sizes.append(product)
    all_sizes = maker.add("Concat", maker.name(f"{name}_sizes"), *sizes, axis=0)
    return maker.add("Reshape", name, source, all_sizes)


def add_attention(node: OnnxSpelled[ops.Attention]) -> None:
    """Add softmax(query · key^T · scale) · value for each head of an attention, in parts: the heads, their
    products, the softmax, the mixture.
    """
    parts = list(node.inputs)
    rank = len(node.maker.shapes[node.source])
    if len(parts) == 1:
        # One value holds query, key and value one behind the other.
        width = (node.maker.shapes[parts[0]][-1] or 0) // 3
        bounds = [(width * index, width * (index + 1)) for index in range(3)]
        parts = [
            node.maker.add_slice(node.part("part"), node.source, (start,), (end,), (rank,))
            for start, end in bounds
        ]
    # The heads come before the tokens; of the key, tokens and channels change places too.
    swap_heads = [*range(rank - 1), rank, rank - 1, rank + 1]
    swap_heads_of_key = [*swap_heads[:-2], swap_heads[-1], swap_heads[-2]]
    copied_sizes = [0] * rank  # a size of 0 is copied
    sizes_of_heads = node.integers("heads", *copied_sizes, node.op.heads, -1)
    heads = []
    for part, name, perm in zip(
        parts,
        ("query", "key", "value"),
        (swap_heads, swap_heads_of_key, swap_heads),
        strict=True,
    ):
        of_heads = node.step(f"{name}_of_heads", "Reshape", part, sizes_of_heads)
        heads.append(node.step(name, "Transpose", of_heads, perm=perm))
    products = node.step("products", "MatMul", *heads[:2])
    scaled = node.step("scaled", "Mul", products, node.scalar("scale", node.op.scale))
    shares = node.step("shares", "Softmax", scaled, axis=-1)
    mixed = node.step("mixed", "MatMul", shares, heads[2])
    turned = node.step("turned", "Transpose", mixed, perm=swap_heads)
    node.result("Reshape", turned, node.integers("joined", *copied_sizes, -1))


def add_matmul(node: OnnxSpelled[ops.MatMul]) -> None:
    """Add a MatMul, whose second value is transposed first if the op says so."""
    first, second = node.inputs
    if node.op.transpose:
        rank = len(node.maker.shapes[second]) + 1
        swap_last = (*range(rank - 2), rank - 1, rank - 2)
        second = node.step("turned", "Transpose", second, perm=swap_last)
    node.result("MatMul", first, second)


def add_tokens(node: OnnxSpelled[ops.Tokens]) -> None:
    """Add a Concat of trained tokens (tokens x channels), expanded to the number of images, and a value's own
    tokens behind them.
    """
    # The number of images, the first of the value's sizes. The slice's name is made first.
    name = node.part("images")
    images = node.maker.add_slice(name, node.step("shape", "Shape", node.source), (0,), (1,), (0,))
    tokens_and_channels = node.integers("rest", node.op.count, node.shape[-1] or 0)
    shape = node.step("sizes", "Concat", images, tokens_and_channels, axis=0)
    tokens = node.step("expanded", "Expand", *node.tensors("value"), shape)
    node.result("Concat", tokens, node.source, axis=1)

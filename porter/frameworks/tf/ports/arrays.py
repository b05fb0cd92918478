"""How Keras says the ops of arrays. Values are batch first, arrays in porter's own order, maps N×H×W×C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from porter.base.errors import GraphError
from porter.base.options import INPUT_SIZE
from porter.frameworks.tf.ports.layers import LAYERS
from porter.frameworks.tf.ports.maker import KerasNode
from porter.frameworks.tf.ports.statement import CallValue
from porter.graph import Op, ops
from porter.graph.ops import CHANNELS_LAST, PermuteStep, axis_letters


def _rearrange(node: KerasNode[ops.Rearrange]) -> CallValue:
    """State a rearrangement as Keras's Reshape, which finds one open size, and Permute, or as an Identity
    where nothing moves. Raise GraphError where a Reshape would have to find two.
    """
    value = node.value
    # The shape in porter's order of axes, of a value whose channels are last.
    axes = [CHANNELS_LAST.index(axis) if node.of_map else axis for axis in range(value.ndim - 1)]
    shape = tuple(value.shape[1:][axis] for axis in axes)
    steps = node.op.steps(shape, node.of_map, channels_last=True)
    for number, step in enumerate(steps, 1):
        if isinstance(step, PermuteStep):
            kind, config = "Permute", {"dims": tuple(1 + axis for axis in step.axes)}
        elif step.sizes.count(-1) > 1:
            raise GraphError(
                "Keras reshapes two open sizes for one input size only",
                where=node.name,
                next=f"give an {INPUT_SIZE}",
            )
        else:
            kind, config = "Reshape", {"target_shape": step.sizes}
        # The last step has the node's name.
        named = node if number == len(steps) else node.under(kind.lower())
        value = named.layer(kind, value, **config)
    return value if steps else node.layer("Identity", value)


def _matmul(node: KerasNode[ops.MatMul]) -> CallValue:
    """State a matrix product, whose second value is transposed first if the op says so."""
    first, second = node.inputs
    if node.op.transpose:
        second = node.step("turned", "swapaxes", second, -1, -2)
    return node.operation("matmul", first, second)


def _attention(node: KerasNode[ops.Attention]) -> CallValue:
    """State softmax(query · key^T · scale) · value, for each head of an attention, with an axis for the
    heads. It is made in parts, because Keras's MultiHeadAttention would hold the dense layers around it too.
    """
    parts = list(node.inputs)
    if len(node.inputs) == 1:
        # One value holds query, key and value one behind the other.
        channels = node.value.size(-1) // 3
        parts = [
            node.step(part, "getitem", node.value, (..., slice(channels * index, channels * (index + 1))))
            for index, part in enumerate(("query", "key", "value"))
        ]
    if any(value.shape[1:-1].count(None) > 1 for value in parts):  # a Reshape of Keras leaves one size open
        return _head_by_head(node, parts)
    axes = node.value.ndim - 1
    swap_heads = (*range(1, axes - 1), axes, axes - 1, axes + 1)
    heads = []
    for value, part in zip(parts, ("queries", "keys", "values"), strict=True):
        target = (
            *(-1 if size is None else size for size in value.shape[1:-1]),
            node.op.heads,
            value.size(-1) // node.op.heads,
        )
        split = node.under(f"{part}_of_heads").layer("Reshape", value, target_shape=target)
        heads.append(node.under(part).layer("Permute", split, dims=swap_heads))
    mixed = _attention_of_heads(node, node.under("mixed"), heads)
    heads_last = node.under("turned").layer("Permute", mixed, dims=swap_heads)
    target = (
        *(-1 if size is None else size for size in heads_last.shape[1:-2]),
        heads_last.size(-2) * heads_last.size(-1),
    )
    return node.layer("Reshape", heads_last, target_shape=target)


def _head_by_head(node: KerasNode[ops.Attention], parts: list[CallValue]) -> CallValue:
    """State an attention whose heads' channels are cut out, because no reshape can give the heads an axis
    here.
    """
    if node.op.heads == 1:
        return _attention_of_heads(node, node, parts)
    mixed = []
    for head in range(node.op.heads):
        parts_of_head = []
        for value, part in zip(parts, ("queries", "keys", "values"), strict=True):
            width = value.size(-1) // node.op.heads
            channels = (..., slice(width * head, width * (head + 1)))
            parts_of_head.append(node.step(f"{part}_{head}", "getitem", value, channels))
        node_of_head = replace(node, name=f"{node.name}_{head}")
        mixed.append(_attention_of_heads(node_of_head, node.under(f"mixed_{head}"), parts_of_head))
    return node.layer("Concatenate", mixed, axis=-1)


def _attention_of_heads(
    node: KerasNode[ops.Attention], last: KerasNode[Op], parts: list[CallValue]
) -> CallValue:
    """State softmax(query · key^T · scale) · value of three values ... x tokens x channels; the last product
    has the name of `last`.
    """
    query, key, value = parts
    products = _matmul(node.of(ops.MatMul(transpose=True), "products", query, key))
    scaled = LAYERS[ops.Affine](node.of(ops.Affine((node.op.scale,), (0.0,)), "scaled", products))
    shares = LAYERS[ops.Softmax](node.of(ops.Softmax(), "shares", scaled))
    return last.operation("matmul", shares, value)


def _multiply_array(node: KerasNode[ops.OfArray]) -> CallValue:
    """State a product with a trained array as an EinsumDense: Keras has no layer that is only a trained
    array.
    """
    return _times_array(node, node.op.sizes, node.value)


def _add_array(node: KerasNode[ops.OfArray]) -> CallValue:
    """State a sum with a trained array, which is the array's product with ones."""
    array = _times_array(node, node.op.sizes, node.step("ones", "ones_like", node.value))
    return LAYERS[ops.Add](node.of(ops.Add(), "sum", node.value, array))


def _times_array(node: KerasNode[Op], sizes: Sequence[int], value: CallValue) -> CallValue:
    """State the product of a value and a trained array of these sizes, which an EinsumDense holds, and return
    its value. Where the array is larger than an axis of one cell, that axis of the value is repeated first.
    """
    sizes = [sizes[axis] for axis in CHANNELS_LAST] if node.of_map else sizes
    for axis, (size, own_size) in enumerate(zip(sizes, value.shape[1:], strict=True), 1):
        if size not in (1, own_size):
            value = node.step("wide", "repeat", value, size, axis=axis)
    # A letter for each axis behind the batch, which is z.
    letters = axis_letters(len(sizes))
    # An axis of one cell is not an axis of the weight; a weight of a single number keeps the last.
    weight_axes = [letter for letter, size in zip(letters, sizes, strict=True) if size != 1]
    letters_of_weight = "".join(weight_axes) or letters[-1]
    equation = f"z{letters},{letters_of_weight}->z{letters}"
    return node.layer(
        "EinsumDense", value, equation=equation, output_shape=tuple(value.shape[1:]), bias_axes=None
    )


def _tokens(node: KerasNode[ops.Tokens]) -> CallValue:
    """State trained tokens before those of a value, as ones that a layer multiplies."""
    value = node.value
    # One token, of any numbers, to be replaced by ones.
    cell = node.step("cell", "max", value, axis=1, keepdims=True)
    tokens = _times_array(node, (node.op.count, value.size(2)), node.step("ones", "ones_like", cell))
    return node.under("joined").layer("Concatenate", [tokens, value], axis=1)


ARRAYS: Mapping[type[Op], Callable[[KerasNode[Any]], CallValue]] = {
    ops.Rearrange: _rearrange,
    ops.MatMul: _matmul,
    ops.Attention: _attention,
    ops.AddArray: _add_array,
    ops.MultiplyArray: _multiply_array,
    ops.Tokens: _tokens,
}

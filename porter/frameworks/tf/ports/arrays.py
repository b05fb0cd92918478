"""How Keras says the ops of arrays. Values are batch first, arrays in porter's own order, maps N×H×W×C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from porter.base.errors import GraphError
from porter.base.options import INPUT_SIZE
from porter.frameworks.tf.ports.layers import LAYERS
from porter.frameworks.tf.ports.maker import LayerMaker
from porter.frameworks.tf.ports.statement import Symbol
from porter.graph import Op, ops
from porter.graph.ops import CHANNELS_LAST


def _rearrange(maker: LayerMaker, op: ops.Rearrange, name: str, inputs: list[Symbol], of_map: bool) -> Symbol:
    """Keras's Reshape, which finds one open size, and Permute."""
    value = inputs[0]
    shape = tuple(
        value.shape[1:][CHANNELS_LAST.index(axis) if of_map else axis] for axis in range(value.ndim - 1)
    )
    steps = op.steps(shape, of_map, channels_last=True)
    for place, (reshapes, numbers) in enumerate(steps, 1):
        if reshapes and numbers.count(-1) > 1:
            raise GraphError(
                "Keras reshapes two open sizes for one input size only",
                where=name,
                next=f"give an {INPUT_SIZE}",
            )
        kind = "Reshape" if reshapes else "Permute"
        config = {"target_shape": numbers} if reshapes else {"dims": tuple(1 + axis for axis in numbers)}
        value = maker.layer(
            kind, name if place == len(steps) else maker.name(f"{name}_{kind.lower()}"), value, **config
        )
    return value if steps else maker.layer("Identity", name, value)


def _matmul(maker: LayerMaker, op: ops.MatMul, name: str, inputs: list[Symbol], of_map: bool) -> Symbol:
    first, second = inputs
    if op.transpose:
        second = maker.operation("swapaxes", maker.name(f"{name}_turned"), second, -1, -2)
    return maker.operation("matmul", name, first, second)


def _attention(maker: LayerMaker, op: ops.Attention, name: str, inputs: list[Symbol], of_map: bool) -> Symbol:
    """A Keras MultiHeadAttention would hold the dense layers around it too."""
    parts = list(inputs)
    if len(inputs) == 1:
        width = inputs[0].size(-1) // 3
        parts = [
            maker.part(
                inputs[0], (..., slice(width * place, width * (place + 1))), maker.name(f"{name}_{part}")
            )
            for place, part in enumerate(("query", "key", "value"))
        ]
    if any(value.shape[1:-1].count(None) > 1 for value in parts):  # a Reshape of Keras leaves one size open
        return _head_by_head(maker, op, name, parts)
    axes = inputs[0].ndim - 1
    turn = (*range(1, axes - 1), axes, axes - 1, axes + 1)
    heads = []
    for value, part in zip(parts, ("queries", "keys", "values"), strict=True):
        target = (
            *(-1 if size is None else size for size in value.shape[1:-1]),
            op.heads,
            value.size(-1) // op.heads,
        )
        split = maker.layer("Reshape", maker.name(f"{name}_{part}_of_heads"), value, target_shape=target)
        heads.append(maker.layer("Permute", maker.name(f"{name}_{part}"), split, dims=turn))
    mixed = _attended(maker, op.scale, name, maker.name(f"{name}_mixed"), heads)
    turned = maker.layer("Permute", maker.name(f"{name}_turned"), mixed, dims=turn)
    target = (
        *(-1 if size is None else size for size in turned.shape[1:-2]),
        turned.size(-2) * turned.size(-1),
    )
    return maker.layer("Reshape", name, turned, target_shape=target)


def _head_by_head(maker: LayerMaker, op: ops.Attention, name: str, parts: list[Symbol]) -> Symbol:
    """Each head's channels are cut out, because no reshape can give the heads an axis."""
    if op.heads == 1:
        return _attended(maker, op.scale, name, name, parts)
    mixed = []
    for head in range(op.heads):
        cut = []
        for value, part in zip(parts, ("queries", "keys", "values"), strict=True):
            width = value.size(-1) // op.heads
            channels = (..., slice(width * head, width * (head + 1)))
            cut.append(maker.part(value, channels, maker.name(f"{name}_{part}_{head}")))
        mixed.append(_attended(maker, op.scale, f"{name}_{head}", maker.name(f"{name}_mixed_{head}"), cut))
    return maker.layer("Concatenate", name, mixed, axis=-1)


def _attended(maker: LayerMaker, scale: float, name: str, last: str, parts: list[Symbol]) -> Symbol:
    """Of queries, keys and values ... x tokens x channels; `last` is the name of the result."""
    query, key, value = parts
    products = _matmul(maker, ops.MatMul(transpose=True), maker.name(f"{name}_products"), [query, key], False)
    scaled = LAYERS[ops.Affine](maker, ops.Affine((scale,), (0.0,)), maker.name(f"{name}_scaled"), [products])
    shares = LAYERS[ops.Softmax](maker, ops.Softmax(), maker.name(f"{name}_shares"), [scaled])
    return maker.operation("matmul", last, shares, value)


def _multiply_array(
    maker: LayerMaker, op: ops.OfArray, name: str, inputs: list[Symbol], of_map: bool
) -> Symbol:
    """A product of each number, as an EinsumDense: Keras has no layer that is only a trained array."""
    return _product(maker, op.sizes, name, inputs[0], of_map)


def _add_array(maker: LayerMaker, op: ops.OfArray, name: str, inputs: list[Symbol], of_map: bool) -> Symbol:
    """The array is its product with ones."""
    ones = maker.operation("ones_like", maker.name(f"{name}_ones"), inputs[0])
    array = _product(maker, op.sizes, name, ones, of_map)
    return LAYERS[ops.Add](maker, ops.Add(), maker.name(f"{name}_sum"), [inputs[0], array])


def _product(maker: LayerMaker, sizes: Sequence[int], name: str, value: Symbol, of_map: bool) -> Symbol:
    sizes = [sizes[axis] for axis in CHANNELS_LAST] if of_map else sizes
    for axis, (size, own) in enumerate(zip(sizes, value.shape[1:], strict=True), 1):
        if size not in (1, own):
            value = maker.operation("repeat", maker.name(f"{name}_wide"), value, size, axis=axis)
    letters = "abcdefgh"[: len(sizes)]
    held = "".join(letter for letter, size in zip(letters, sizes, strict=True) if size != 1) or letters[-1]
    equation = f"z{letters},{held}->z{letters}"
    return maker.layer(
        "EinsumDense", name, value, equation=equation, output_shape=tuple(value.shape[1:]), bias_axes=None
    )


def _tokens(maker: LayerMaker, op: ops.Tokens, name: str, inputs: list[Symbol], of_map: bool) -> Symbol:
    value = inputs[0]
    cell = maker.operation("max", maker.name(f"{name}_cell"), value, axis=1, keepdims=True)
    ones = maker.operation("ones_like", maker.name(f"{name}_ones"), cell)
    tokens = _product(maker, (op.count, value.size(2)), name, ones, False)
    return maker.layer("Concatenate", maker.name(f"{name}_joined"), [tokens, value], axis=1)


ARRAYS: Mapping[type[Op], Callable[[LayerMaker, Any, str, list[Symbol], bool], Symbol]] = {
    ops.Rearrange: _rearrange,
    ops.MatMul: _matmul,
    ops.Attention: _attention,
    ops.AddArray: _add_array,
    ops.MultiplyArray: _multiply_array,
    ops.Tokens: _tokens,
}
"""The value of a node, from its op, its name, its inputs, and whether the first of them is a map."""

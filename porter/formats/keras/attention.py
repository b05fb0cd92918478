"""Keras's layers of attention, over the tokens of a transformer or over a map, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Mapping

from porter.filegraph.file_graph import Unsupported
from porter.filegraph.tensors.attention import AttentionScores
from porter.filegraph.tensors.einsum import Equation, Kernel
from porter.filegraph.tensors.several import attention
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.stated_layer import KerasLayer

PARTS: Mapping[str, tuple[str, ...]] = {
    **{part: (part, f"{part}_dense", f"_{part}_dense") for part in ("query", "key", "value")},
    "output": ("attention_output", "output_dense", "_output_dense"),
}
"""The layers in a MultiHeadAttention, by their names in an .h5, and in a .keras file of Keras 3 and of
tf_keras.
"""
_PART_OF = {spelling: part for part, spellings in PARTS.items() for spelling in spellings}
ATTENTIONS = frozenset({"Attention", "MultiHeadAttention"})
"""Layers that are called with more than values."""
_UNREAD_ARGUMENTS = (
    "mask",
    "use_scale",
    "attention_mask",
    "query_mask",
    "value_mask",
    "key_mask",
    "return_attention_scores",
    "use_causal_mask",
    "use_gate",
    "sliding_window",
)
"""Arguments of an attention that change what it computes, and that porter has no op for."""
_AXIS_LETTERS = "bijklmnop"
"""Axes of tokens in an equation, the batch before them; `c` are their channels, `h` heads, `d` a head's
channels.
"""


def variable_in(layer: str, variable: str) -> str:
    """Return the name of a MultiHeadAttention's variable from the names of the layer in it and of that
    layer's variable: `query_dense` and `kernel` give `query/kernel`.
    """
    return f"{_PART_OF.get(layer, layer)}/{variable}"


def read_attention(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of a MultiHeadAttention: q, k and v of each head by a kernel each, attention over some
    axes, and a kernel over all heads. A call with two values takes the second one as the key too.
    """
    _expect_plain(layer)
    if not 1 < len(values) == len(layer.operands) < 4:
        raise Unsupported("with other inputs")
    query, value, key = (*values, values[1])[:3]  # of two values, the second is the key too
    rank = query.rank
    attended = _attended_axes(layer, rank)
    if {tensor.rank for tensor in (query, value, key)} != {rank}:
        raise Unsupported(f"over the axes {layer.arguments.get('attention_axes')!r:.40}")
    letters = _AXIS_LETTERS[: rank - 1]
    other_axes = [axis for axis in range(rank - 1) if axis not in attended]
    # Of N×...×heads×channels: the axes that attend stand between the heads and a head's channels.
    order = [*other_axes, rank - 1, *attended, rank]

    def heads_of(part: str, x: Tensor) -> Tensor:
        """Return q, k or v of each head, in which the axes that attend are one, before the channels."""
        kernel_equation = Equation(f"{letters}c", "chd", f"{letters}hd")
        by_head = _apply_part(layer, part, x, kernel_equation).transpose(order)
        *first, channels = by_head.sizes
        outer = first[: -len(attended)]
        inner = first[-len(attended) :]
        return by_head.reshape([*outer, math.prod(inner), channels])

    mixed = attention(heads_of("query", query), heads_of("key", key), heads_of("value", value))
    # The size of an only axis is inferred, because an open size has another number in each value.
    cells = [query.sizes[axis] for axis in attended] if len(attended) > 1 else [-1]
    split = mixed.reshape([*mixed.sizes[:-2], *cells, mixed.sizes[-1]])
    in_first_order = split.transpose([order.index(axis) for axis in range(rank + 1)])
    return _apply_part(layer, "output", in_first_order, Equation(f"{letters}hd", "hdc", f"{letters}c"))


def _attended_axes(layer: KerasLayer, rank: int) -> list[int]:
    """Return the axes that a MultiHeadAttention's `attention_axes` names: all but batch and channels, if it
    names none.

    Raises:
        Unsupported: there are none, or batch or channels are among them.
    """
    axes = layer.arguments.get("attention_axes")
    between = [*range(1, rank - 1)]
    attended = between if axes is None else [axes] if type(axes) is int else [*axes]
    if not attended or not {*attended} <= {*between}:
        raise Unsupported(f"over the axes {axes!r:.40}")
    return attended


def _apply_part(layer: KerasLayer, part: str, x: Tensor, equation: Equation) -> Tensor:
    """Return the product of `x` with the kernel of a part of a MultiHeadAttention, plus its bias if it has
    one.
    """
    kernel = layer.stored(f"{part}/kernel")
    bias = layer.stored(f"{part}/bias").name if layer.flag("use_bias") else None
    return x.with_kernel(equation, Kernel(kernel.name, layer.arrays[f"{part}/kernel"].shape, bias))


def _expect_plain(layer: KerasLayer) -> None:
    """Raise Unsupported for an attention with masks, gates or trained scales."""
    if unread := [name for name in _UNREAD_ARGUMENTS if layer.arguments.get(name) not in (None, False)]:
        raise Unsupported(f"with {', '.join(unread)}")


def read_plain_attention(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of an Attention layer, which has no scale but a trained one: of queries, values and,
    if there are three values, keys. Two values are queries, and values that are the keys too.
    """
    _expect_plain(layer)
    if layer.arguments.get("score_mode", "dot") != "dot" or not 1 < len(values) < 4:
        raise Unsupported(f"by sums, or of {len(values)} values")
    query, value, key = (*values, values[-1])[:3]  # of two values, the second is the key too
    return attention(query, key, value, AttentionScores(scale=1.0))

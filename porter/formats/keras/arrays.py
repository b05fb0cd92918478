"""Keras's layers of arrays, such as the tokens of a transformer, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Mapping

from porter.base.dtypes import Array
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import Items
from porter.filegraph.tensors.attention import AttentionScores
from porter.filegraph.tensors.einsum import Equation, Kernel, read_equation
from porter.filegraph.tensors.functions import divide_by_norm, norm
from porter.filegraph.tensors.several import attention, einsum
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.keras.stated_layer import KerasLayer, pair

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
_KERAS_1_EPSILON = 10e-8
"""The epsilon of Keras 1's backends, unless a user's ~/.keras/keras.json stated another one
(keras/backend/common.py).
"""
_AXIS_LETTERS = "bijklmnop"
"""Axes of tokens in an equation, the batch before them; `c` are their channels, `h` heads, `d` a head's
channels.
"""


def variable_in(layer: str, variable: str) -> str:
    """Return the name of a MultiHeadAttention's variable from the names of the layer in it and of that
    layer's variable: `query_dense` and `kernel` give `query/kernel`.
    """
    return f"{_PART_OF.get(layer, layer)}/{variable}"


def stored_array(layer: KerasLayer) -> tuple[str, Array] | None:
    """Return the kernel of an EinsumDense that only multiplies each number by one of its own, as an array
    that broadcasts against the input: its tensor's name and its content. Return None for another layer.

    For instance `bijc,jc->bijc` multiplies each row i by a kernel J×C, which is given as 1×1×J×C. The result
    has the input's axes there, and the kernel some of them in the same order.
    """
    if layer.op != "EinsumDense" or "kernel" not in layer.tensors or "bias" in layer.tensors:
        return None
    kernel = layer.arrays["kernel"]
    equation = read_equation(str(layer.arguments.get("equation")), 0)
    if equation is None or equation.result != equation.first or kernel.ndim != len(equation.second):
        return None
    x, second, _ = equation
    if second != "".join(axis for axis in x[1:] if axis in second):
        return None
    sizes = (kernel.shape[second.index(axis)] if axis in second else 1 for axis in x[1:])
    return layer.tensors["kernel"], kernel.reshape(1, *sizes)


def read_einsum(layer: KerasLayer, x: Tensor) -> Tensor:
    """Return the value of an EinsumDense that multiplies each number by its own, or that is a dense layer
    over some axes.
    """
    if (stored := stored_array(layer)) is not None:
        name, _ = stored
        return x * x.scope.tensor((name, 0))
    kernel = layer.stored("kernel")
    bias_axes = layer.arguments.get("bias_axes")
    description = f"by '{layer.arguments.get('equation')!s:.40}'"
    equation = read_equation(str(layer.arguments.get("equation")), x.rank)
    if equation is None:
        raise Unsupported(description)
    # The axes that only the kernel and the result have.
    units = "".join(axis for axis in equation.second if axis not in equation.first)
    if bias_axes:
        # The bias's axes must be the units, in their order.
        in_result = "".join(axis for axis in equation.result if axis in bias_axes)
        in_order_of_units = "".join(sorted(bias_axes, key=units.find))
        if not units == in_result == in_order_of_units:
            raise Unsupported(f"{description} with a bias along {bias_axes!s:.40}")
    bias = layer.stored("bias").name if bias_axes else None
    product_kernel = Kernel(kernel.name, layer.arrays["kernel"].shape, bias)
    return x.with_kernel(equation, product_kernel).with_refusal_prefix(description)


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


def read_dot(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of a Dot: the sums over an axis of each of two values; of features N×1, over their
    norms if they are normalised (keras/src/layers/merging/dot.py, `_merge_function`; Keras 2 has
    tf.math.l2_normalize, which bounds the square of a norm).
    """
    axes = pair(layer.arguments["axes"])
    is_normalised = layer.arguments.get("normalize")
    ranks = [value.rank for value in values]
    if len(ranks) != 2 or (is_normalised and ranks != [2, 2]):
        raise Unsupported(f"of normalised values, or of {len(ranks)}")
    # Two values N×C give one sum for each image.
    if ranks == [2, 2] and all(axis in (1, -1) for axis in axes):
        least_norm = 1e-7 if layer.keras > 2 else 1e-6
        first, second = (
            divide_by_norm(value, 2, [1], least_norm) if is_normalised else value for value in values
        )
        return (first * second).sum([1], True)
    # `n` is the batch, and `k` becomes the axis that is summed over: two values of three axes with `axes` of
    # 2 and 1 give nAk,nkE->nAE.
    sides = ["nABC"[: ranks[0]], "nDEF"[: ranks[1]]]
    for side, axis in enumerate(axes):
        sides[side] = sides[side].replace(Items(sides[side])[axis], "k")
    first_axes, second_axes = (letters.replace("k", "") for letters in sides)
    # The second value's first letter is the batch, which the result has once.
    return einsum(f"{','.join(sides)}->{first_axes}{second_axes[1:]}", *values)


def read_cosine(layer: KerasLayer, *values: Tensor) -> Tensor:
    """Return the value of Keras 1's Merge by cos of features: their product over that of their norms, or over
    its epsilon where that is smaller. It is N×1×1 (keras/engine/topology.py of Keras 1.2.2, which gives the
    root of the product of the sums of squares).
    """
    if [value.rank for value in values] != [2, 2]:
        raise Unsupported("of other values than two of features, whose sums of products may have no root")
    first, second = values
    norms = norm(first, 2, [1], True) * norm(second, 2, [1], True)
    return ((first * second).sum([1], True) / norms.clip(_KERAS_1_EPSILON, math.inf)).unsqueeze([1])

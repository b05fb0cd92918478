"""Keras's layers of arrays, such as the tokens of a transformer, in porter's ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from porter.base.dtypes import Array
from porter.filegraph.arithmetic import combine, of_values
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.places import Items
from porter.filegraph.products import Equation, Kernel, attention, einsum, read_equation, with_kernel
from porter.filegraph.reductions import over_norm, reduce
from porter.filegraph.views import View
from porter.filegraph.walk import Read, Source
from porter.formats.keras.layer import Layer, Taken, pair
from porter.graph import Divide, Multiply
from porter.graph.ops import Function

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
_NOT_PLAIN = (
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
_KERAS_1_EPSILON = 10e-8
"""Of its backends, unless a user's ~/.keras/keras.json stated another one (keras/backend/common.py)."""
_PLACES = "bijklmnop"
"""Axes of tokens in an equation, the batch before them; `c` are their channels, `h` heads, `d` a head's
channels.
"""


def variable_in(layer: str, variable: str) -> str:
    """A variable of a MultiHeadAttention, from those of a layer in it."""
    return f"{_PART_OF.get(layer, layer)}/{variable}"


def stored_array(layer: Layer) -> tuple[str, Array] | None:
    """The kernel of an EinsumDense that multiplies each number by one of its own, with the axes of its input:
    its name, and its content, with one cell along the batch and the axes that it is repeated along. None for
    another layer.
    """
    if layer.op != "EinsumDense" or "kernel" not in layer.tensors or "bias" in layer.tensors:
        return None
    kernel = layer.arrays["kernel"]
    equation = read_equation(str(layer.arguments.get("equation")), 0)
    if equation is None or equation.result != equation.first or kernel.ndim != len(equation.second):
        return None
    x, held, _ = equation
    if held != "".join(axis for axis in x[1:] if axis in held):
        return None
    sizes = (kernel.shape[held.index(axis)] if axis in held else 1 for axis in x[1:])
    return layer.tensors["kernel"], kernel.reshape(1, *sizes)


def read_einsum(layer: Layer) -> Read:
    """An EinsumDense that multiplies each number by its own, or that is a dense layer over some axes."""
    if (stored := stored_array(layer)) is not None:
        return combine(layer.walk, layer, "Mul", (layer.source, (stored[0], 0)))
    kernel, stated = layer.tensor("kernel"), layer.arguments.get("bias_axes")
    view = layer.walk.kept(layer.source)
    equation = read_equation(str(layer.arguments.get("equation")), len(view.axes or ()))
    stated_equation = f"by '{layer.arguments.get('equation')!s:.40}'"
    if equation is None:
        raise Unsupported(stated_equation)
    units = "".join(axis for axis in equation.second if axis not in equation.first)
    if stated and not units == "".join(axis for axis in equation.result if axis in stated) == "".join(
        sorted(stated, key=units.find)
    ):
        raise Unsupported(f"{stated_equation} with a bias along {stated!s:.40}")
    bias = layer.tensor("bias").name if stated else None
    held = Kernel(kernel.name, layer.arrays["kernel"].shape, bias)
    try:
        return with_kernel(layer.walk, layer.name, view, equation, held)
    except Unsupported as error:
        raise Unsupported(f"{stated_equation} {error}") from error


def read_attention(layer: Layer) -> Read:
    """A MultiHeadAttention: q, k and v of each head by a kernel each, attention over some axes, and a kernel
    over all heads.
    """
    sources = [operand.source for operand in layer.operands if isinstance(operand, Taken)]
    _expect_plain(layer)
    if not 1 < len(sources) == len(layer.operands) < 4:
        raise Unsupported("with other inputs")
    query, value, key = (layer.walk.kept(source) for source in (*sources, sources[1])[:3])
    rank, axes = len(query.axes or ()), layer.arguments.get("attention_axes")
    over = [*range(1, rank - 1)] if axes is None else [axes] if type(axes) is int else [*axes]
    if (
        {len(view.axes or ()) for view in (query, value, key)} != {rank}
        or not {*over} <= {*range(1, rank - 1)}
        or not over
    ):
        raise Unsupported(f"over the axes {axes!r:.40}")
    places = _PLACES[: rank - 1]
    beside = [place for place in range(rank - 1) if place not in over]
    by_head = [*beside, rank - 1, *over, rank]
    heads = [
        _attending(
            layer,
            part,
            _part(layer, part, view, Equation(f"{places}c", "chd", f"{places}hd")),
            by_head,
            len(over),
        )
        for part, view in (("query", query), ("key", key), ("value", value))
    ]
    mixed = attention(layer.walk, replace(layer, name=f"{layer.name}:mixed"), heads, None, None)
    # Of an open size each value has its own number.
    cells = [query.known_sizes[place] for place in over] if len(over) > 1 else [-1]
    apart = mixed.reshaped([*mixed.known_sizes[:-2], *cells, mixed.known_sizes[-1]])
    whole = apart.restored(by_head)
    return _part(layer, "output", whole, Equation(f"{places}hd", "hdc", f"{places}c"), layer.name)


def _expect_plain(layer: Layer) -> None:
    """Refuses an attention with masks, gates or trained scales."""
    if stated := [name for name in _NOT_PLAIN if layer.arguments.get(name) not in (None, False)]:
        raise Unsupported(f"with {', '.join(stated)}")


def read_plain_attention(layer: Layer) -> Read:
    """An Attention of queries, values and, if there are others, keys, which has no scale but a trained
    one.
    """
    _expect_plain(layer)
    if layer.arguments.get("score_mode", "dot") != "dot" or not 1 < len(layer.inputs) < 4:
        raise Unsupported(f"by sums, or of {len(layer.inputs)} values")
    query, value, key = (layer.walk.array(source) for source in (*layer.inputs, layer.inputs[-1])[:3])
    return attention(layer.walk, layer, (query, key, value), None, 1.0)


def read_dot(layer: Layer) -> Read:
    """A Dot: the sums over an axis of each of two values; of features N×1."""
    axes, ranks = layer.arguments["axes"], [len(layer.walk.sizes(source) or ()) for source in layer.inputs]
    if len(ranks) != 2 or (layer.arguments.get("normalize") and ranks != [2, 2]):
        raise Unsupported(f"of normalised values, or of {len(ranks)}")
    places = pair(axes)
    if ranks == [2, 2] and all(place in (1, -1) for place in places):
        return _dot_of_features(layer)
    sides = ["nABC"[: ranks[0]], "nDEF"[: ranks[1]]]
    for side, axis in enumerate(places):
        sides[side] = sides[side].replace(Items(sides[side])[axis], "k")
    equation = f"{','.join(sides)}->{sides[0].replace('k', '')}{sides[1][1:].replace('k', '')}"
    return einsum(layer.walk, layer, equation, layer.inputs)


def _dot_of_features(layer: Layer) -> Read:
    """Of vectors over their norms, if they are normalised (keras/src/layers/merging/dot.py,
    `_merge_function`; Keras 2 has tf.math.l2_normalize, which bounds the square of a norm).
    """
    walk, sides, least = layer.walk, list[Source](), 1e-7 if layer.keras > 2 else 1e-6
    for place, source in enumerate(layer.inputs):
        part = replace(layer, name=f"{layer.name}:{place}")
        side = (
            over_norm(walk, part, source, [1], least)
            if layer.arguments.get("normalize")
            else walk.view(source)
        )
        sides.append(side)
    products = of_values(walk, replace(layer, name=f"{layer.name}:products"), "Mul", sides)
    return reduce(walk, layer, products, "sum", [1], True)


def read_cosine(layer: Layer) -> Read:
    """Keras 1's Merge by cos of features: their product over that of their norms, or over its epsilon where
    that is smaller. It is N×1×1 (keras/engine/topology.py of Keras 1.2.2, which gives the root of the product
    of the sums of squares).
    """
    walk, name = layer.walk, layer.name
    if [len(walk.sizes(source) or ()) for source in layer.inputs] != [2, 2]:
        raise Unsupported("of other values than two of features, whose sums of products may have no root")
    products = walk.views.of(layer.build.add(f"{name}:products", Multiply(), *walk.values(layer.inputs)))
    dot = reduce(walk, replace(layer, name=f"{name}:dot"), products, "sum", [1], True)
    norms = [
        reduce(walk, replace(layer, name=f"{name}:{at}"), source, "norm", [1], True).value
        for at, source in enumerate(layer.inputs)
    ]
    both = layer.build.clip(
        f"{name}:norms", layer.build.add(f"{name}:both", Multiply(), *norms), low=_KERAS_1_EPSILON
    )
    return walk.views.of(layer.build.add(name, Divide(), dot.value, both)).with_axes([1])


def _attending(layer: Layer, part: str, view: View, order: list[int], count: int) -> View:
    """Heads with the axes that attend as one, before the channels."""
    turned = view.transposed(order)
    sizes = turned.known_sizes
    flat = turned.reshaped([*sizes[: -count - 1], math.prod(sizes[-count - 1 : -1]), sizes[-1]])
    return layer.walk.as_array(f"{layer.name}:{part}:heads", flat)


def _part(layer: Layer, part: str, view: View, equation: Equation, name: str | None = None) -> View:
    kernel = layer.tensor(f"{part}/kernel")
    bias = layer.tensor(f"{part}/bias").name if layer.flag("use_bias") else None
    held = Kernel(kernel.name, layer.arrays[f"{part}/kernel"].shape, bias)
    return with_kernel(layer.walk, name or f"{layer.name}:{part}", view, equation, held)


def read_pool(function: Function, layer: Layer) -> Read:
    """A GlobalAveragePooling1D or GlobalMaxPooling1D."""
    return reduce(layer.walk, layer, layer.source, function, [1], bool(layer.arguments.get("keepdims")))

"""ONNX's Attention, of opset 23 and later: the heads of its values are an axis, or stand side by side in the
channels.
"""

from __future__ import annotations

import numpy as np

from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import Dim, Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.products import attention
from porter.filegraph.views import View
from porter.formats.onnx.nodes import OnnxNode, Walk
from porter.graph import Join

_NEVER = -1e30
"""What is added to a score that has no share: its exponential is 0, and no number less it is infinite."""
_HEADS = ("q_num_heads", "kv_num_heads", "kv_num_heads")


def read_attention(walk: Walk, node: OnnxNode) -> list[View]:
    """What queries attend to; then the keys and the values, behind those that were computed before.

    Queries may be of more heads than keys and values: those of one key are rows of one product.
    """
    query, *others = (_array(walk, node, place, name) for place, name in enumerate(_HEADS))
    before = [node.input(place) for place in (4, 5)]
    key, value = (_behind(walk, node, *each) for each in zip(before, others, strict=True))
    count, groups, rows = query.size(1), key.size(1), query.size(2)
    if not isinstance(count, int) or not isinstance(groups, int) or count % groups or value.size(1) != groups:
        raise Unsupported(f"of {count} heads by {groups}")
    if node.input(6) is not None:
        raise Unsupported("with a number of keys for each image")
    mask, cap = node.input(3), node.real("softcap", 0.0)
    if cap and (mask is not None or _is_bounded(node)):
        raise Unsupported("with a softcap and a mask, of which ONNX's versions take another first")
    if mask is not None and walk.flow.is_value(mask):
        if _is_bounded(node) or count != groups:
            raise Unsupported(
                "with a mask that the model computes as it runs beside other bounds, or of grouped queries"
            )
    elif mask is not None or _is_bounded(node):
        mask = _bias(walk, node, mask, (count // groups, rows, key.size(2), others[0].size(2)))
    grouped = query.reshaped([query.size(0), groups, rows * (count // groups), query.size(3)])
    views = [
        walk.as_array(f"{node.name}:{name}", view)
        for name, view in zip("qkv", (grouped, key, value), strict=True)
    ]
    found = attention(walk, node, views, mask, node.real("scale", 0.0) or None, cap)
    apart = found.reshaped([query.size(0), count, rows, value.size(3)])
    if len(walk.sizes(node.source) or ()) == 3:
        turned = apart.transposed([0, 2, 1, 3])
        apart = turned.reshaped([query.size(0), rows, value.size(3) * count])
    return [apart, key, value]


def _array(walk: Walk, node: OnnxNode, place: int, count: str) -> View:
    """An input as batch, heads, tokens and channels.

    Raises:
        Unsupported: it has other axes, or no batch, or is stored.
    """
    view, heads = walk.view(node.inputs[place]), node.integer(count)
    sizes, found = view.sizes or (), view
    if len(sizes) == 3 and heads > 0 and isinstance(sizes[2], int) and sizes[2] % heads == 0:
        apart = view.reshaped([*sizes[:2], heads, sizes[2] // heads])
        found = apart.transposed([0, 2, 1, 3])
    if len(found.axes or ()) != 4 or not walk.views.of_each_image(found):
        raise Unsupported("of values of other axes")
    return found


def _behind(walk: Walk, node: OnnxNode, before: Reference | None, view: View) -> View:
    """Keys or values behind earlier ones.

    Raises:
        Unsupported: the earlier ones are stored, or have other axes.
    """
    if before is None:
        return view
    if not walk.flow.is_value(before):
        raise Unsupported("behind keys and values that the file stores")
    first, second = walk.array(before), walk.as_array(f"{node.name}:later", view)
    if len(first.axes or ()) != 4:
        raise Unsupported("behind keys and values of other axes")
    return walk.views.led(walk.builder.add(f"{node.name}:joined", Join(1), first.value, second.value), 4)


def _is_bounded(node: OnnxNode) -> bool:
    return bool(node.integer("is_causal")) or max(_windows(node)) >= 0


def _windows(node: OnnxNode) -> tuple[int, int]:
    """How many tokens before and behind its own a query attends to; -1 for all."""
    return node.integer("left_window_size", -1), node.integer("right_window_size", -1)


def _bias(walk: Walk, node: OnnxNode, mask: Reference | None, sizes: tuple[int, Dim, Dim, Dim]) -> Reference:
    """What is added to the scores: a stored mask, of truths or of numbers, and the bounds that the node
    states.

    Args:
        sizes: queries of one key, tokens of queries and of keys, and those of keys that are the node's own.

    Raises:
        Unsupported: a size is open, the mask is one for each image, or it leaves a query no key.
    """
    times, rows, columns, own = (size if isinstance(size, int) else 0 for size in sizes)
    held = (
        np.zeros(1)
        if mask is None
        else walk.flow.computed[mask]
        if mask in walk.flow.computed
        else walk.flow.held(mask[0])
    )
    added: Numbers = np.where(held, 0.0, _NEVER) if held.dtype.kind == "b" else np.maximum(held, _NEVER)
    ahead = np.arange(columns) - np.arange(rows)[:, None] - (columns - own)
    left, right = _windows(node)
    hidden = (
        (ahead > 0) & bool(node.integer("is_causal"))
        | (ahead < -left) & (left >= 0)
        | (ahead > right) & (right >= 0)
    )
    whole = np.where(hidden, _NEVER, np.broadcast_to(added, np.broadcast_shapes(added.shape, hidden.shape)))
    if (
        not whole.size
        or whole.shape[-2:] != hidden.shape
        or (whole <= _NEVER).all(-1).any()
        or (whole.ndim > 3 and len(whole) > 1)
    ):
        raise Unsupported("with a mask of each image, of open sizes, or one that leaves a query no key")
    of_heads = whole.reshape(-1, rows, columns)
    by_key = (
        np.tile(of_heads, (1, times, 1))
        if len(of_heads) == 1
        else of_heads.reshape(-1, times * rows, columns)
    )
    return walk.flow.stated(f"{node.name}:bias", by_key)

"""ONNX's Attention, of opset 23 and later: the heads of its values are an axis, or stand side by side in the
channels.
"""

from __future__ import annotations

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.dims import Dim
from porter.filegraph.tensors.attention import AttentionScores
from porter.filegraph.tensors.several import attention, concat
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.formats.onnx.nodes import OnnxNode

_NO_SHARE = -1e30
"""The number that takes a score's share away when it is added: its exponential is 0, and subtracting it
from any score gives no infinity.
"""
_COUNTS_OF_HEADS = ("q_num_heads", "kv_num_heads", "kv_num_heads")


def read_attention(node: OnnxNode, *tensors: Tensor | None) -> list[Tensor]:
    """Read Attention and return its outputs: what the queries attend to; then the keys and the values, after
    those that were computed before.

    Queries may be of more heads than keys and values: those of one key are rows of one product.
    """
    # Inputs at the end may be left out.
    queries, keys, values, mask, earlier_key, earlier_value, key_counts = (*tensors, *[None] * 7)[:7]
    query, own_key, own_value = (
        _with_heads_axis(node, tensor, name)
        for tensor, name in zip((queries, keys, values), _COUNTS_OF_HEADS, strict=True)
    )
    key, value = _after_earlier(earlier_key, own_key), _after_earlier(earlier_value, own_value)
    images, count, rows, channels = query.sizes
    groups = key.sizes[1]
    if not isinstance(count, int) or not isinstance(groups, int):
        raise Unsupported(f"of {count} heads by {groups}")
    if count % groups or value.sizes[1] != groups:
        raise Unsupported(f"of {count} heads by {groups}")
    if key_counts is not None:
        raise Unsupported("with a number of keys for each image")
    bias_sizes = count // groups, rows, key.sizes[2], own_key.sizes[2]
    scores = AttentionScores(
        _added_to_scores(query.scope, node, mask, bias_sizes),
        node.real("scale", 0.0) or None,
        node.real("softcap", 0.0),
    )
    grouped = query.reshape([images, groups, rows * (count // groups), channels])
    attended = attention(grouped, key, value, scores).reshape([images, count, rows, value.sizes[3]])
    # The heads stood side by side in the channels of three axes, and do so again.
    if queries is not None and queries.rank == 3:
        attended = attended.transpose([0, 2, 1, 3]).reshape([images, rows, value.sizes[3] * count])
    return [attended, key, value]


def _added_to_scores(
    scope: Scope, node: OnnxNode, mask: Tensor | None, sizes: tuple[int, Dim, Dim, Dim]
) -> NodeOutput | None:
    """Return what is added to the scores: the stored mask and the other bounds (causal, or of a window) as
    one constant, or a mask that the model computes. Return None if there is nothing to add.

    Args:
        sizes: as `_stored_bias` takes them.
    """
    if node.real("softcap", 0.0) and (mask is not None or _is_bounded(node)):
        raise Unsupported("with a softcap and a mask, of which ONNX's versions take another first")
    if mask is None:
        return _stored_bias(scope, node, None, sizes) if _is_bounded(node) else None
    if not mask.walk.is_live(mask.source):
        return _stored_bias(scope, node, mask.reference, sizes)
    queries_of_key = sizes[0]
    if _is_bounded(node) or queries_of_key != 1:
        raise Unsupported(
            "with a mask that the model computes as it runs beside other bounds, or of grouped queries"
        )
    return mask.reference


def _with_heads_axis(node: OnnxNode, x: Tensor | None, count: str) -> Tensor:
    """Return an input as batch, heads, tokens and channels.

    Args:
        count: the name of the attribute that says how many heads it has.

    Raises:
        Unsupported: it has other axes, or no batch, or is stored.
    """
    if x is None or not x.walk.is_live(x.source):
        raise Unsupported("of stored queries, keys or values")
    heads = node.integer(count)
    sizes = x.view.sizes or ()
    if len(sizes) == 3 and heads > 0 and isinstance(sizes[2], int) and sizes[2] % heads == 0:
        x = x.reshape([*sizes[:2], heads, sizes[2] // heads]).transpose([0, 2, 1, 3])
    if x.rank != 4 or not x.walk.views.has_batch_first(x.view):
        raise Unsupported("of values of other axes")
    return x


def _after_earlier(earlier: Tensor | None, x: Tensor) -> Tensor:
    """Return keys or values after those of earlier runs, along the tokens; as they are where there are none.

    Raises:
        Unsupported: the earlier ones are stored, or have other axes.
    """
    if earlier is None:
        return x
    if not earlier.walk.is_live(earlier.source) or earlier.rank != 4:
        raise Unsupported("behind keys and values of other axes, or that the file stores")
    return concat([earlier, x], 2)


def _is_bounded(node: OnnxNode) -> bool:
    """Return whether the node itself bounds which keys a query attends to."""
    return bool(node.integer("is_causal")) or max(_window_sizes(node)) >= 0


def _window_sizes(node: OnnxNode) -> tuple[int, int]:
    """Return how many tokens before and after its own a query attends to; -1 for all."""
    return node.integer("left_window_size", -1), node.integer("right_window_size", -1)


def _stored_bias(
    scope: Scope, node: OnnxNode, mask: NodeOutput | None, sizes: tuple[int, Dim, Dim, Dim]
) -> NodeOutput:
    """Add a constant to the graph, and return it: the numbers that are added to the scores, which are a
    stored mask, of booleans or of numbers, and the bounds that the node states.

    Args:
        sizes: queries of one key, tokens of queries and of keys, and those of keys that are the node's own.

    Raises:
        Unsupported: a size is open, the mask is one for each image, or it leaves a query no key.
    """
    queries_of_key, rows, columns, own_keys = (size if isinstance(size, int) else 0 for size in sizes)
    flow = scope.walk.flow
    mask_numbers: Numbers = np.zeros(1)
    if mask is not None:
        mask_numbers = flow.computed[mask] if mask in flow.computed else flow.stored_numbers(mask[0])
    # A mask of booleans is true where a query may attend.
    added: Numbers
    if mask_numbers.dtype.kind == "b":
        added = np.where(mask_numbers, 0.0, _NO_SHARE)
    else:
        added = np.maximum(mask_numbers, _NO_SHARE)
    # This is how many tokens a key stands behind its query, without the keys of before.
    distance = np.arange(columns) - np.arange(rows)[:, None] - (columns - own_keys)
    left, right = _window_sizes(node)
    hidden = (
        (distance > 0) & bool(node.integer("is_causal"))
        | (distance < -left) & (left >= 0)
        | (distance > right) & (right >= 0)
    )
    bias = np.where(hidden, _NO_SHARE, np.broadcast_to(added, np.broadcast_shapes(added.shape, hidden.shape)))
    has_open_size = not bias.size or bias.shape[-2:] != hidden.shape
    leaves_no_key = (bias <= _NO_SHARE).all(-1).any()
    differs_by_image = bias.ndim > 3 and len(bias) > 1
    if has_open_size or leaves_no_key or differs_by_image:
        raise Unsupported("with a mask of each image, of open sizes, or one that leaves a query no key")
    by_head = bias.reshape(-1, rows, columns)
    if len(by_head) == 1:
        # One mask for all heads, once for each query of a key.
        by_key = np.tile(by_head, (1, queries_of_key, 1))
    else:
        by_key = by_head.reshape(-1, queries_of_key * rows, columns)
    return scope.constant(by_key).reference

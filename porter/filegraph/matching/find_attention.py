"""Attention as one op, found among the ops of arrays that a file says it with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.base.dtypes import Array
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.graph import Affine, Attention, CropAxis, Identity, MatMul, Op, Rearrange, Shape, Softmax
from porter.graph.ops import is_map

_MOST_NUMBERS = 1 << 22
"""The most numbers of an array whose moves are followed."""
_TOKENS = Rearrange("c h w -> (h w) c")


@dataclass(frozen=True)
class _Heads:
    """The queries, the keys or the values of an attention, heads x tokens x channels, as some channels of the
    value that they are cut out of.

    Attributes:
        source: the name of that value.
        first: where their channels, one head after the other, begin among that value's.
        width: how many channels they have.
        source_width: how many channels that value has.
        factor: by which they are multiplied.
    """

    source: str
    first: int
    width: int
    source_width: int
    factor: float


def with_attention(graph: FileGraph, shapes: Mapping[str, Shape]) -> FileGraph:
    """Return the graph with an `Attention` for what computes one: the product of values and of a softmax of
    products of queries and keys, of heads that are cut out of the channels of values and joined again. What
    has another form stays as it is.

    Args:
        shapes: of the values, by node, where they are known.
    """
    nodes = graph.by_name
    reader_counts = Counter(name for node in graph.nodes for name in node.inputs) + Counter(graph.outputs)
    attentions = dict[str, tuple[FileNode, ...]]()  # by the node that joins the heads, what replaces it
    for node in graph.nodes:
        may_join_heads = isinstance(node.op, Rearrange) and reader_counts[node.inputs[0]] == 1
        if may_join_heads and (replacement := _match_attention(node, nodes, shapes)):
            attentions[node.name] = replacement
    if not attentions:
        return graph
    merged_nodes = [step for node in graph.nodes for step in attentions.get(node.name, (node,))]
    merged = replace(graph, nodes=tuple(merged_nodes))
    kept_names = merged.leading_to(merged.outputs)
    return replace(merged, nodes=tuple(node for node in merged.nodes if node.name in kept_names))


def _match_attention(
    node: FileNode, nodes: Mapping[str, FileNode], shapes: Mapping[str, Shape]
) -> tuple[FileNode, ...]:
    """Match softmax(queries @ keys^T) @ values whose heads a node joins. Return the nodes that replace that
    node: those that cut queries, keys and values out of other values, and last the `Attention`, under its
    name. Empty if the node joins no heads of an attention.
    """
    # back from the joined heads: weights @ values, softmax, scores, then queries and keys
    weighted_values = _source_of_kind(node, nodes, MatMul)
    if weighted_values is None or weighted_values.op != MatMul():
        return ()
    weights = _source_of_kind(weighted_values, nodes, Softmax)
    cells = _numbered_cells(shapes.get(weighted_values.name))
    if weights is None or cells is None or cells.ndim < 3 or not _joins_heads(node.op, cells):
        return ()
    scores, factor = _skip_scales(nodes.get(weights.inputs[0]), nodes)
    if scores is None or not isinstance(scores.op, MatMul):
        return ()
    query_name, key_name = scores.inputs
    value_name = weighted_values.inputs[1]
    keys_are_swapped = not scores.op.transpose  # keys are tokens x channels where the product transposes them
    query = _match_heads(query_name, False, nodes, shapes)
    key = _match_heads(key_name, keys_are_swapped, nodes, shapes)
    value = _match_heads(value_name, False, nodes, shapes)
    head_count = cells.shape[-3]
    if query is None or key is None or value is None or value.factor != 1 or query.width % head_count:
        return ()
    attention = replace(node, op=Attention(head_count, factor * query.factor * key.factor))
    return _with_sources(attention, (query, key, value), shapes)


def _joins_heads(op: object, numbers: Array) -> bool:
    """Return whether an op puts heads, which are the third last axis, beside each other as channels.

    Args:
        numbers: an array of the op's input that tells its cells apart, heads x tokens x channels at its end.
    """
    *outer, heads, tokens, width = numbers.shape
    joined = _apply_move(op, numbers)
    wanted = numbers.swapaxes(-3, -2).reshape(*outer, tokens, heads * width)
    return joined is not None and np.array_equal(joined, wanted)


def _skip_scales(node: FileNode | None, nodes: Mapping[str, FileNode]) -> tuple[FileNode | None, float]:
    """Go back from a node over scalings by one number, and return the node before them (None if the graph
    begins there), and the product of their factors.
    """
    factor = 1.0
    while node is not None and (scale := _scale_factor(node.op)) is not None:
        factor = factor * scale
        node = nodes.get(node.inputs[0])
    return node, factor


def _with_sources(
    node: FileNode, heads: Sequence[_Heads], shapes: Mapping[str, Shape]
) -> tuple[FileNode, ...]:
    """Return an attention with its inputs, after the nodes that give these: one value whose channels are
    queries, keys and values side by side, otherwise three, each cut out of its value. Values that are maps
    become lists of tokens first.

    Args:
        node: the attention.
        heads: its queries, keys and values.
    """
    maps = dict.fromkeys(operand.source for operand in heads if is_map(shapes[operand.source]))
    token_nodes = {
        source: FileNode(f"{node.name}:tokens{index or ''}", _TOKENS, (source,))
        for index, source in enumerate(maps)
    }
    inputs = [
        token_nodes[operand.source].name if operand.source in token_nodes else operand.source
        for operand in heads
    ]
    width = heads[0].width
    are_side_by_side = [operand.first for operand in heads] == [0, width, 2 * width]
    if len({*inputs}) == 1 and are_side_by_side and heads[0].source_width == 3 * width:
        return *token_nodes.values(), replace(node, inputs=(inputs[0],))
    cuts = list[FileNode]()
    for index, (word, operand) in enumerate(zip(("query", "key", "value"), heads, strict=True)):
        if operand.source_width != operand.width:
            channels_axis = 1 if operand.source in token_nodes else len(shapes[operand.source]) - 1
            channels_behind = operand.source_width - operand.first - operand.width
            op = CropAxis(channels_axis, operand.first, channels_behind)
            cuts.append(FileNode(f"{node.name}:{word}", op, (inputs[index],)))
            inputs[index] = cuts[-1].name
    return *token_nodes.values(), *cuts, replace(node, inputs=tuple(inputs))


def _match_heads(
    name: str, is_swapped: bool, nodes: Mapping[str, FileNode], shapes: Mapping[str, Shape]
) -> _Heads | None:
    """Follow the operand `name` of an attention, through reshapes, transposes, cuts and factors, back to the
    value that it is cut out of. Return None if its heads are not channels side by side in that value.

    Args:
        is_swapped: the operand's last two axes are channels and tokens, not tokens and channels.
    """
    moves = list[Op]()
    factor = 1.0
    while (node := nodes.get(name)) is not None and len(node.inputs) == 1:
        scale = _scale_factor(node.op)
        if isinstance(node.op, Rearrange | CropAxis | Identity):
            moves.append(node.op)
        elif scale is None:
            break
        factor = factor * (1.0 if scale is None else scale)
        name = node.inputs[0]
    # number the cells of that value, and move the numbers as its cells are moved
    cells = _numbered_cells(shapes.get(name))
    moved_cells = cells
    for op in reversed(moves):
        moved_cells = None if moved_cells is None else _apply_move(op, moved_cells)
    if moved_cells is None or cells is None or moved_cells.ndim < 3:
        return None
    heads = moved_cells.swapaxes(-1, -2) if is_swapped else moved_cells
    tokens = _apply_move(_TOKENS, cells) if is_map(shapes[name]) else cells
    first = None if tokens is None else _first_channel(tokens, heads)
    if tokens is None or first is None:
        return None
    head_count, _, head_width = heads.shape[-3:]
    return _Heads(name, first, head_count * head_width, tokens.shape[-1], factor)


def _first_channel(tokens: Array, heads: Array) -> int | None:
    """Return where, among the channels of `tokens`, those of `heads` begin, if these stand there side by
    side, one head's after the other's; otherwise None. Both arrays hold the numbers of cells, by which these
    are told apart.

    Args:
        tokens: tokens x channels.
        heads: heads x tokens x channels.
    """
    *outer, head_count, token_count, head_width = heads.shape
    if tokens.shape[:-1] != (*outer, token_count):
        return None
    width = tokens.shape[-1]
    place_of_first_cell = int(np.flatnonzero(tokens.reshape(-1, width) == heads.flat[0])[0])
    first = place_of_first_cell % width
    channels = tokens[..., first : first + head_count * head_width]
    if channels.shape[-1] != head_count * head_width:
        return None
    split = channels.reshape(*outer, token_count, head_count, head_width).swapaxes(-3, -2)
    return first if np.array_equal(split, heads) else None


def _source_of_kind(node: FileNode, nodes: Mapping[str, FileNode], kind: type[Op]) -> FileNode | None:
    """Return the first node that a node reads, if it is of this kind, otherwise None."""
    source = nodes.get(node.inputs[0])
    return source if source is not None and isinstance(source.op, kind) else None


def _numbered_cells(shape: Shape | None) -> Array | None:
    """Return an array of a value's shape that numbers its cells, to see where ops move them; None for a shape
    that is unknown or too large.
    """
    sizes = [size for size in shape or () if size is not None]
    is_known = shape is not None and len(sizes) == len(shape)
    if not is_known or math.prod(sizes) > _MOST_NUMBERS:
        return None
    return np.arange(math.prod(sizes)).reshape(sizes)


def _apply_move(op: object, numbers: Array) -> Array | None:
    """Apply an op that only moves or cuts off numbers to an array of one image; return None for another op,
    and for one that gives a map.
    """
    if isinstance(op, Rearrange):
        for step in op.steps(numbers.shape, of_map=False):
            numbers = step.apply(numbers)
        return None if op.map else numbers
    if isinstance(op, CropAxis):
        cells = slice(op.before, numbers.shape[op.axis] - op.after, op.step)
        return numbers[(*[slice(None)] * op.axis, cells)]
    return numbers if isinstance(op, Identity) else None


def _scale_factor(op: object) -> float | None:
    """Return the factor by which an op multiplies every number; None for another op."""
    is_scale = isinstance(op, Affine) and len(op.scale) == 1 and set(op.offset) == {0.0}
    return op.scale[0] if isinstance(op, Affine) and is_scale else None

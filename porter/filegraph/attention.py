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
    """An operand of a product of heads, heads x tokens x channels.

    Attributes:
        source: the value that it is a part of.
        first: where its channels, one head after the other, begin in that value's.
        width: how many they are.
        whole: how many channels that value has.
        factor: by which they are multiplied.
    """

    source: str
    first: int
    width: int
    whole: int
    factor: float


def with_attention(graph: FileGraph, shapes: Mapping[str, Shape]) -> FileGraph:
    """Return the graph with an `Attention` for what computes one: the product of values and of a softmax of
    products of queries and keys, of heads that are cut out of the channels of values and joined again. What
    has another form stays as it is.

    Args:
        shapes: of the values, by node, where they are known.
    """
    nodes = graph.by_name
    readers = Counter(name for node in graph.nodes for name in node.inputs) + Counter(graph.outputs)
    attentions = {
        node.name: steps
        for node in graph.nodes
        if isinstance(node.op, Rearrange)
        and readers[node.inputs[0]] == 1
        and (steps := _match_attention(node, nodes, shapes))
    }
    if not attentions:
        return graph
    merged = replace(
        graph, nodes=tuple(step for node in graph.nodes for step in attentions.get(node.name, (node,)))
    )
    leading = merged.leading_to(merged.outputs)
    return replace(merged, nodes=tuple(node for node in merged.nodes if node.name in leading))


def _match_attention(
    node: FileNode, nodes: Mapping[str, FileNode], shapes: Mapping[str, Shape]
) -> tuple[FileNode, ...]:
    """Return the attention whose heads a node joins, after the nodes that cut its operands out of values;
    nothing if it is none.
    """
    weighted_values = _source_of_kind(node, nodes, MatMul)
    # back from the joined heads: shares @ values, softmax, scores, then queries and keys
    if weighted_values is None or weighted_values.op != MatMul():
        return ()
    shares = _source_of_kind(weighted_values, nodes, Softmax)
    numbers = _numbered_cells(shapes.get(weighted_values.name))
    if shares is None or numbers is None or numbers.ndim < 3 or not _joins_heads(node.op, numbers):
        return ()
    scores, factor = _skip_scales(nodes.get(shares.inputs[0]), nodes)
    if scores is None or not isinstance(scores.op, MatMul):
        return ()
    query, key = scores.inputs
    # keys are tokens x channels where the product transposes them itself
    operands = (query, False), (key, not scores.op.transpose), (weighted_values.inputs[1], False)
    found = [_match_heads(name, is_swapped, nodes, shapes) for name, is_swapped in operands]
    heads = [each for each in found if each is not None]
    count = numbers.shape[-3]
    if len(heads) < 3 or heads[2].factor != 1 or heads[0].width % count:
        return ()
    op = Attention(count, factor * heads[0].factor * heads[1].factor)
    return _with_sources(replace(node, op=op), heads, shapes)


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
    """Return the node before the scalings that lead to `node`, and the product of these."""
    factor = 1.0
    while node is not None and (scale := _scale_factor(node.op)) is not None:
        factor = factor * scale
        node = nodes.get(node.inputs[0])
    return node, factor


def _with_sources(
    node: FileNode, heads: Sequence[_Heads], shapes: Mapping[str, Shape]
) -> tuple[FileNode, ...]:
    """Return the nodes of an attention, itself the last one, after those that give its operands: one value if
    queries, keys and values are side by side in its channels, otherwise each cut out. Maps become lists of
    tokens first.
    """
    maps = dict.fromkeys(each.source for each in heads if is_map(shapes[each.source]))
    lists = {
        source: FileNode(f"{node.name}:tokens{index or ''}", _TOKENS, (source,))
        for index, source in enumerate(maps)
    }
    sources = [lists[each.source].name if each.source in lists else each.source for each in heads]
    are_side_by_side = [each.first for each in heads] == [heads[0].width * index for index in range(3)]
    if len({*sources}) == 1 and are_side_by_side and heads[0].whole == 3 * heads[0].width:
        return *lists.values(), replace(node, inputs=(sources[0],))
    cuts = list[FileNode]()
    for index, each in enumerate(heads):
        if each.whole != each.width:
            axis = 1 if each.source in lists else len(shapes[each.source]) - 1
            op = CropAxis(axis, each.first, each.whole - each.first - each.width)
            cuts.append(FileNode(f"{node.name}:{('query', 'key', 'value')[index]}", op, (sources[index],)))
            sources[index] = cuts[-1].name
    return *lists.values(), *cuts, replace(node, inputs=tuple(sources))


def _match_heads(
    name: str, is_swapped: bool, nodes: Mapping[str, FileNode], shapes: Mapping[str, Shape]
) -> _Heads | None:
    """Follow moves, cuts and factors from an operand, whose last axes may be swapped, back to the value
    before them. Return None if its heads are not channels side by side in that value.
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
    places = numbers = _numbered_cells(shapes.get(name))
    for op in reversed(moves):
        # where each number of the operand stands in the value before the moves
        places = None if places is None else _apply_move(op, places)
    if places is None or numbers is None or places.ndim < 3:
        return None
    places = places.swapaxes(-1, -2) if is_swapped else places
    tokens = _apply_move(_TOKENS, numbers) if is_map(shapes[name]) else numbers
    first = None if tokens is None else _first_channel(tokens, places)
    if tokens is None or first is None:
        return None
    return _Heads(name, first, places.shape[-3] * places.shape[-1], tokens.shape[-1], factor)


def _first_channel(tokens: Array, heads: Array) -> int | None:
    """Return where, among the channels of `tokens`, those of `heads` begin, if these stand there side by
    side, one head's after the other's; otherwise None. Both are arrays of the same numbers, which tell cells
    apart.
    """
    *outer, count, rows, channels = heads.shape
    if tokens.shape[:-1] != (*outer, rows):
        return None
    width = tokens.shape[-1]
    first = int(np.flatnonzero(tokens.reshape(-1, width) == heads.flat[0])[0]) % width  # of the first head
    own = tokens[..., first : first + count * channels]
    fits = own.shape[-1] == count * channels and np.array_equal(
        own.reshape(*outer, rows, count, channels).swapaxes(-3, -2), heads
    )
    return first if fits else None


def _source_of_kind(node: FileNode, nodes: Mapping[str, FileNode], kind: type[Op]) -> FileNode | None:
    """Return the first node that a node reads, if it is of this kind, otherwise None."""
    source = nodes.get(node.inputs[0])
    return source if source is not None and isinstance(source.op, kind) else None


def _numbered_cells(shape: Shape | None) -> Array | None:
    """Return an array of a value's shape that numbers its cells; None for a shape that is unknown or too
    large.
    """
    sizes = [size for size in shape or () if size is not None]
    is_small = shape is not None and len(sizes) == len(shape) and math.prod(sizes) <= _MOST_NUMBERS
    return np.arange(math.prod(sizes)).reshape(sizes) if is_small else None


def _apply_move(op: object, numbers: Array) -> Array | None:
    """Apply an op that only moves and cuts to an array; return None for another op."""
    if isinstance(op, Rearrange):
        for reshapes, sizes in op.steps(numbers.shape, of_map=False):
            numbers = numbers.reshape(sizes) if reshapes else numbers.transpose(sizes)
        return None if op.map else numbers
    if isinstance(op, CropAxis):
        cells = slice(op.before, numbers.shape[op.axis] - op.after, op.step)
        return numbers[(*[slice(None)] * op.axis, cells)]
    return numbers if isinstance(op, Identity) else None


def _scale_factor(op: object) -> float | None:
    """Return the factor by which an op multiplies every number; None for another op."""
    is_scale = isinstance(op, Affine) and len(op.scale) == 1 and set(op.offset) == {0.0}
    return op.scale[0] if isinstance(op, Affine) and is_scale else None

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
    """The graph with an `Attention` for what computes one: the product of values and of a softmax of products
    of queries and keys, of heads that are cut out of the channels of values and joined again. What has
    another form stays as it is.

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
    """The attention that a node joins the heads of, and what takes its operands out of values; nothing if it
    is none.
    """
    mixed = _source_of_kind(node, nodes, MatMul)
    if mixed is None or mixed.op != MatMul():
        return ()
    shares = _source_of_kind(mixed, nodes, Softmax)
    numbers = _numbered(shapes.get(mixed.name))
    if shares is None or numbers is None or numbers.ndim < 3 or not _joins_heads(node.op, numbers):
        return ()
    products, factor = _skip_scales(nodes.get(shares.inputs[0]), nodes)
    if products is None or not isinstance(products.op, MatMul):
        return ()
    turned = (False, not products.op.transpose, False)
    operands = zip((*products.inputs, mixed.inputs[1]), turned, strict=True)
    heads = [part for name, turn in operands if (part := _match_heads(name, turn, nodes, shapes)) is not None]
    count = numbers.shape[-3]
    if len(heads) < 3 or heads[2].factor != 1 or heads[0].width % count:
        return ()
    op = Attention(count, factor * heads[0].factor * heads[1].factor)
    return _with_sources(replace(node, op=op), heads, shapes)


def _joins_heads(op: object, numbers: Array) -> bool:
    """Whether an op puts heads, which are the third last axis, beside each other as channels."""
    *outer, heads, tokens, width = numbers.shape
    joined = _move(op, numbers)
    wanted = numbers.swapaxes(-3, -2).reshape(*outer, tokens, heads * width)
    return joined is not None and np.array_equal(joined, wanted)


def _skip_scales(node: FileNode | None, nodes: Mapping[str, FileNode]) -> tuple[FileNode | None, float]:
    """The node below the scalings that lead to `node`, and their product."""
    factor = 1.0
    while node is not None and (scale := _scale_factor(node.op)) is not None:
        factor = factor * scale
        node = nodes.get(node.inputs[0])
    return node, factor


def _with_sources(
    node: FileNode, heads: Sequence[_Heads], shapes: Mapping[str, Shape]
) -> tuple[FileNode, ...]:
    """An attention after what gives its operands: their channels side by side, or each apart."""
    maps = dict.fromkeys(each.source for each in heads if is_map(shapes[each.source]))
    lists = {
        source: FileNode(f"{node.name}:tokens{index or ''}", _TOKENS, (source,))
        for index, source in enumerate(maps)
    }
    sources = [lists[each.source].name if each.source in lists else each.source for each in heads]
    beside = [each.first for each in heads] == [heads[0].width * index for index in range(3)]
    if len({*sources}) == 1 and beside and heads[0].whole == 3 * heads[0].width:
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
    name: str, turned: bool, nodes: Mapping[str, FileNode], shapes: Mapping[str, Shape]
) -> _Heads | None:
    """The value before the moves, cuts and factors that lead to an operand, which may be `turned`; None if
    its heads are not channels side by side.
    """
    moves, factor = list[Op](), 1.0
    while (node := nodes.get(name)) is not None and len(node.inputs) == 1:
        scale = _scale_factor(node.op)
        if isinstance(node.op, Rearrange | CropAxis | Identity):
            moves.append(node.op)
        elif scale is None:
            break
        factor = factor * (1.0 if scale is None else scale)
        name = node.inputs[0]
    places = numbers = _numbered(shapes.get(name))
    for op in reversed(moves):
        places = None if places is None else _move(op, places)
    if places is None or numbers is None or places.ndim < 3:
        return None
    places = places.swapaxes(-1, -2) if turned else places
    tokens = _move(_TOKENS, numbers) if is_map(shapes[name]) else numbers
    if tokens is None or (first := _first_channel(tokens, places)) is None:
        return None
    return _Heads(name, first, places.shape[-3] * places.shape[-1], tokens.shape[-1], factor)


def _first_channel(tokens: Array, heads: Array) -> int | None:
    """The first of the channels of tokens that heads are side by side; None if they are none."""
    *outer, count, rows, channels = heads.shape
    if tokens.shape[:-1] != (*outer, rows):
        return None
    width = tokens.shape[-1]
    first = int(np.flatnonzero(tokens.reshape(-1, width) == heads.flat[0])[0]) % width
    own = tokens[..., first : first + count * channels]
    fits = own.shape[-1] == count * channels and np.array_equal(
        own.reshape(*outer, rows, count, channels).swapaxes(-3, -2), heads
    )
    return first if fits else None


def _source_of_kind(node: FileNode, nodes: Mapping[str, FileNode], kind: type[Op]) -> FileNode | None:
    """What a node reads first, if it is of this kind."""
    source = nodes.get(node.inputs[0])
    return source if source is not None and isinstance(source.op, kind) else None


def _numbered(shape: Shape | None) -> Array | None:
    """The place of each number of a value, in its shape; None for a shape that is not known."""
    sizes = [size for size in shape or () if size is not None]
    is_small = shape is not None and len(sizes) == len(shape) and math.prod(sizes) <= _MOST_NUMBERS
    return np.arange(math.prod(sizes)).reshape(sizes) if is_small else None


def _move(op: object, numbers: Array) -> Array | None:
    """What an op that only moves and cuts makes of an array."""
    if isinstance(op, Rearrange):
        for reshapes, sizes in op.steps(numbers.shape, of_map=False):
            numbers = numbers.reshape(sizes) if reshapes else numbers.transpose(sizes)
        return None if op.map else numbers
    if isinstance(op, CropAxis):
        cells = slice(op.before, numbers.shape[op.axis] - op.after, op.step)
        return numbers[(*[slice(None)] * op.axis, cells)]
    return numbers if isinstance(op, Identity) else None


def _scale_factor(op: object) -> float | None:
    """The factor by which an op multiplies every number."""
    return op.scale[0] if isinstance(op, Affine) and len(op.scale) == 1 and set(op.offset) == {0.0} else None

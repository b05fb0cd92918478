"""Atrous convolutions as TensorFlow's graphs write them: a map is taken apart into images of cells that are `block` apart
(SpaceToBatchND), these are convolved, and the map is put together again (BatchToSpaceND). The three are one convolution that is
dilated; ops of each cell may stand behind it before the map is put together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from porter.filegraph.builder import Apart
from porter.filegraph.dataflow import ELEMENTWISE, N
from porter.filegraph.dims import Open, divides, known
from porter.filegraph.walk import Lacks, NoOp, Read, Walk

_TOGETHER = "BatchToSpaceND"
_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
_OF_EACH_CELL = frozenset(
    {
        *(*ELEMENTWISE, "Clip", "Elu", "Erf", "Gelu", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Relu6", "Selu", "Sigmoid"),
        *("Softplus", "Softsign", "Tanh", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
    }
)
"""Kinds of ops that give the same whatever stands beside a cell."""


def nodes_read(node: N, kind: Callable[[N], str]) -> list[str]:
    """The nodes that a node reads, in the order in which they are to be read: what is cropped of a map before the map, because the
    pads of an atrous convolution are what its crops leave of them.
    """
    sources = [source for source, _ in node.inputs]
    return sources[::-1] if kind(node) == _TOGETHER else sources


def take_apart(walk: Walk[N], node: N) -> Read:
    """SpaceToBatchND of a map, a block and pads: the map, which the convolution behind it knows to be apart."""
    inside, ends = _until_together(walk, node)
    source, block, pads = node.inputs[0], walk.flow.integers(node.inputs[1]), walk.flow.dims(node.inputs[2])
    again, crops = ([numbers(end.inputs[at]) for end in ends] for at, numbers in ((1, walk.flow.integers), (2, walk.flow.dims)))
    value, sizes = walk.value(source), walk.sizes(source)
    if block is None or pads is None or sizes is None or not value.is_map or len(block) != 2 or len(pads) != 4:
        return Lacks(f"{node.op} of other axes than rows and columns, or by numbers that the model computes as it runs")
    if crops[0] is None or any(each != block for each in again) or any(each != crops[0] for each in crops):
        return Lacks(f"{node.op} whose {ends[0].op} is by another block, or by numbers that the model computes as it runs")
    for axis, (size, step) in enumerate(zip(sizes[1:3], block, strict=True)):
        around, cut = pads[2 * axis : 2 * axis + 2], crops[0][2 * axis : 2 * axis + 2]
        if not any(isinstance(pad, Open) for pad in around) and not divides(step, size + sum(around)):
            return Lacks(f"{node.op} by a block of which the padded map has no whole number, at some size of the image")
        # Numbers for the cells of an image would then fit those of the map.
        if not any(isinstance(crop, Open) for crop in cut) and sum(cut) >= step:
            return Lacks(f"{node.op} before a {_TOGETHER} that crops a whole block or more")
    top, bottom, left, right = known(pad - crop for pad, crop in zip(pads, crops[0], strict=True))
    walk.apart.update({node.name, *inside})
    return replace(value, apart=Apart((block[0], block[1]), (top, bottom, left, right)))


def put_together(walk: Walk[N], node: N) -> Read:
    """BatchToSpaceND: the value that the nodes inside have given of the whole map."""
    source = node.inputs[0]
    return walk.view(source) if source[0] in walk.apart else Lacks(f"{node.op} behind something else than a convolution")


def _until_together(walk: Walk[N], node: N) -> tuple[dict[str, N], list[N]]:
    """The nodes that compute with the map that a node takes apart, and those that put it together.

    Raises:
        NoOp: they are no convolution and ops of each cell behind it.
    """
    inside, ends, waiting = dict[str, N](), list[N](), [*walk.flow.readers.get(node.name, ())]
    while waiting:
        each = waiting.pop()
        kind, first = walk.flow.kind(each), (node.name, 0) in each.inputs
        if kind == _TOGETHER and not first:
            ends.append(each)
        elif kind in (_CONVOLUTIONS if first else _OF_EACH_CELL):
            waiting += [] if each.name in inside else walk.flow.readers.get(each.name, ())
            inside[each.name] = each
        else:
            raise NoOp(f"{node.op} before {each.op}")
    beside = {source for each in inside.values() for source in each.inputs if source[0] not in inside} - {(node.name, 0)}
    if any(map(walk.flow.is_value, beside)):
        raise NoOp(f"{node.op} before an op of several values")
    if not ends:
        raise NoOp(f"{node.op} without a {_TOGETHER}")
    return inside, ends

"""Comparisons of numbers, and choices by them: a comparison is 1 where it holds and 0 elsewhere, so that a
choice is a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from porter.filegraph.arithmetic import combine, combine_constant, of_values
from porter.filegraph.dataflow import N, Node
from porter.filegraph.dims import Numbers
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.views import View
from porter.filegraph.walk import Read, Reader, Source, Walk, apply, within
from porter.graph import Affine, Step

COMPARISONS: Mapping[str, tuple[bool, bool]] = {
    "Greater": (False, False),
    "GreaterOrEqual": (False, True),
    "Less": (True, False),
    "LessOrEqual": (True, True),
}
"""By kind: whether the second value is the larger one, and whether it holds of equal ones too."""
_OPPOSITE = Affine((-1.0,), (1.0,))


def compare(walk: Walk, node: Node, kind: str, sources: Sequence[Source]) -> View:
    """A comparison of two values, or of a value and a constant, by the sign of their difference, which is
    exact.
    """
    turned, inclusive = COMPARISONS[kind]
    difference = combine(walk, within(node, "difference"), "Sub", sources[::-1] if turned else sources)
    return apply(walk, node, walk.given(difference), Step(inclusive))


def comparison(kind: str) -> Reader[N]:
    """Reads a node of two values as a comparison."""
    return lambda walk, node: compare(walk, node, kind, node.inputs)


def choose(walk: Walk, node: Node, test: Source, first: Source, second: Source) -> View:
    """The first value where a comparison holds, otherwise the second; either may be a constant."""
    if not walk.is_live(test):
        return _chosen(walk, node, test, first, second)
    share = walk.kept(test)
    for zeros, other, truth in ((first, second, False), (second, first, True)):
        # Only the other value is left of the sum.
        if zeros in walk.blank and walk.blank[zeros] == share.sizes:
            return _times(
                walk,
                node,
                share if truth else apply(walk, within(node, "otherwise"), share, _OPPOSITE),
                other,
            )
    rest = apply(walk, within(node, "otherwise"), share, _OPPOSITE)
    parts = [
        _times(walk, within(node, "first"), share, first),
        _times(walk, within(node, "second"), rest, second),
    ]
    return of_values(walk, node, "Add", parts)


def _chosen(walk: Walk, node: Node, test: Source, first: Source, second: Source) -> View:
    """As `choose`, by truths that the file stores: each value times ones and zeros."""
    truths = walk.constant(walk.unrepeated(test))
    if truths is None or truths.dtype.kind != "b":
        raise Unsupported("by what the file stores")
    kept = list[View]()
    added: Numbers = np.zeros(())
    for name, source, share in (("first", first, truths), ("second", second, ~truths)):
        if walk.is_value(source):
            ones = walk.flow.stated(f"{node.name}:{name}:ones", share.astype(np.float64))
            kept.append(walk.given(combine(walk, within(node, name), "Mul", (source, ones))))
            continue
        numbers = walk.constant(walk.unrepeated(source))
        if numbers is None:
            raise Unsupported("by what the file stores")
        added = added + np.where(share, numbers, 0.0)
    if not kept:
        raise Unsupported("of what the file stores")
    found = of_values(walk, node, "Add", kept) if len(kept) == 2 else kept[0]
    if not np.any(added):
        return found
    return combine_constant(walk, node, "Add", found, walk.flow.stated(f"{node.name}:numbers", added))


def choice(walk: Walk, node: Node) -> View:
    """Reads a node of three values as a choice."""
    return choose(walk, node, node.source, node.inputs[1], node.inputs[2])


def _times(walk: Walk, node: Node, share: View, source: Source) -> View:
    if walk.is_live(source):
        return of_values(walk, node, "Mul", (share, source))
    numbers = walk.constant(source)
    if numbers is not None and not np.isfinite(numbers).all():
        raise Unsupported("of numbers that are not finite")
    return walk.given(combine(walk, node, "Mul", (share, source)))


def both(walk: Walk, node: Node) -> Read:
    """1 where two comparisons hold."""
    return combine(walk, node, "Mul", node.inputs)


def either(walk: Walk, node: Node) -> Read:
    """1 where one of two comparisons holds."""
    return combine(walk, node, "Max", node.inputs)


def opposite(walk: Walk, node: Node) -> View:
    """1 where a comparison does not hold."""
    return apply(walk, node, node.source, _OPPOSITE)

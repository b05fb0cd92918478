"""Cells of an axis in any order, which a file states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from porter.filegraph import arrays, moves
from porter.filegraph.builder import Value
from porter.filegraph.dataflow import N, Reference
from porter.filegraph.dims import Open
from porter.filegraph.layouts import View
from porter.filegraph.places import place_of
from porter.filegraph.walk import Lacks, Read, Walk

_MOST_PARTS = 64
"""Each part is a node of its own, however short the file is."""


def gather(walk: Walk[N], node: N, source: Reference, place: int, places: Sequence[int]) -> Read:
    """The cells at these places of an axis: by one slice, or as parts one after the other."""
    view = walk.kept(source)
    size = view.size(place)
    cells = [] if isinstance(size, Open) else [place_of(each, size) for each in places]
    steps = {after - before for before, after in pairwise(cells)}
    if len(steps) == 1 and (step := min(steps)) and (step > 0 or (view.value.is_map and walk.views.has_channels(view, place))):
        end = cells[-1] + step
        return moves.cut(walk, node, source, {place: slice(cells[0], end if end >= 0 else None, step)})
    if (shuffled := _shuffled(view, place_of(place, len(view.sizes or ())), cells)) is not None:
        return shuffled
    if not 0 < len(cells) <= _MOST_PARTS:
        return Lacks(f"{node.op} of {len(places)} places")
    parts = [moves.cut(walk, node, source, {place: slice(each, each + 1)}) for each in cells]
    views = [part if isinstance(part, View) else walk.views.of(part) for part in parts if isinstance(part, View | Value)]
    if len(views) < len(cells):
        return next((part for part in parts if isinstance(part, Lacks)), Lacks())
    names = walk.views.alike(views)
    if names is not None and names[place] == "channels":
        return walk.views.laid(walk.builder.concat(node.name, *(part.value for part in views)), names) or Lacks()
    found = [array for part in views if (array := walk.as_array(f"{node.name}:array", part)) is not None]
    if len(found) < len(views):
        return Lacks(f"{node.op} of values whose batch is moved")
    if not found[0].value.is_array:
        return walk.builder.concat(node.name, *(part.value for part in found))
    return arrays.joined(walk, node, found, arrays.place_in(found[0], place))


def _shuffled(view: View, place: int, cells: Sequence[int]) -> View | None:
    """All cells of an axis, one of each of so many equal groups at a time; None where they have another order."""
    sizes, count = view.sizes or (), len(cells)
    each = cells[1] if count > 1 else 0
    if not 1 < each < count or count % each or [*cells] != [at for first in range(each) for at in range(first, count, each)]:
        return None
    apart = view.reshaped([*sizes[:place], count // each, each, *sizes[place + 1 :]])
    order = [*range(place), place + 1, place, *range(place + 2, len(sizes) + 1)]
    turned = apart and apart.transposed(order)
    return turned and turned.reshaped(sizes)

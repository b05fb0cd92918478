"""Which unit of one normal form is which of another: by values and by structure. Names decide ties only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from porter.comparison.normal_form import COMMUTATIVE, LINEAR, NORMS, NormalForm, Unit
from porter.graph.ops import OPS, activations
from porter.graph.walks import in_order

_ACTIVATIONS = {name for name, op in OPS.items() if op.__module__ == activations.__name__}
_FAMILIES = (
    {*LINEAR},
    {*NORMS, "scale"},
    _ACTIVATIONS,
    {"max_pool", "avg_pool", "global_avg_pool", "global_max_pool", "adaptive_avg_pool", "adaptive_max_pool"},
    {"add", "multiply", "concat", "maximum", "minimum"},
    {"tokens", "add_array", "pad_axis"},
)
"""Kinds that stand in each other's place."""
_NEAR = 1e-5
"""Tensors no further apart are taken for the same layer's. Whether they are equal is not decided by it."""


@dataclass(frozen=True)
class Pairing:
    """Two normal forms, aligned.

    Attributes:
        pairs: paths of units of the first to those of the second, in the order of the first.
        inputs: of the models, by their places.
    """

    one: NormalForm
    other: NormalForm
    pairs: Mapping[str, str]
    only_one: tuple[str, ...]
    only_other: tuple[str, ...]
    inputs: Mapping[str, str]


def align(one: NormalForm, other: NormalForm) -> Pairing:
    """Pair the units (steps) of two normal forms, and return the pairs and the units that are in no pair:
    those of equal tensors first, then the rest by the longest sequence of like units in an order of
    computation that both have, last those that cross that order.
    """
    prints = _Prints(one), _Prints(other)
    anchors = _anchors(*prints)
    first = _ordered(one, {})
    places = {path: place for place, path in enumerate(first)}
    second = _ordered(other, {theirs: places[mine] for mine, theirs in anchors.items()})
    likeness = _likeness(one, other, first, second, prints)
    pairs = {first[row]: second[column] for row, column in _longest(likeness)}
    given = dict(zip(one.graph.inputs, other.graph.inputs, strict=False))
    pairs |= _crossing(one, other, {**given, **pairs})
    paired = set(pairs.values())
    return Pairing(
        one,
        other,
        {path: pairs[path] for path in one.units if path in pairs},
        tuple(path for path in one.units if path not in pairs),
        tuple(path for path in other.units if path not in paired),
        given,
    )


def family(kind: str) -> int | str:
    """Return the family of a kind, whose members may stand in each other's place; the kind itself if it is in
    none.
    """
    return next((place for place, kinds in enumerate(_FAMILIES) if kind in kinds), kind)


@dataclass
class _Prints:
    """A few numbers of each unit's tensors, by which equal ones are found."""

    form: NormalForm
    of: dict[str, tuple[tuple[int, ...], Sequence[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path, unit in self.form.units.items():
            arrays = [unit.tensors[role] for role in sorted(unit.tensors)]
            if not arrays or arrays[-1].size == 0:
                continue
            numbers = [value for array in arrays for value in _print(array)]
            self.of[path] = (max((array.shape for array in arrays), key=len), numbers)

    def near(self, path: str, other: _Prints, theirs: str) -> bool:
        """Return whether two units have the same numbers, roughly; False where one of them has no tensors.

        Args:
            path: the unit of this form.
            other: the prints of the other form.
            theirs: its unit.
        """
        if path not in self.of or theirs not in other.of:
            return False
        (shape, mine), (its_shape, its) = self.of[path], other.of[theirs]
        size = max(map(abs, mine), default=0.0) or 1.0
        return (
            shape == its_shape
            and len(mine) == len(its)
            and all(abs(one - two) <= _NEAR * size for one, two in zip(mine, its, strict=True))
        )


def _print(array: NDArray[np.float64]) -> tuple[float, float]:
    """Return the norm of an array, and its product with random numbers, by which equal arrays are found."""
    return float(np.sqrt(np.square(array).sum())), float(drawn_along(array, None))


def drawn_along(array: NDArray[np.float64], axis: int | None) -> NDArray[np.float64]:
    """Return the products of the parts of an array along an axis, or of all of it if the axis is None, with
    random numbers that are the same in every call: equal parts give equal products.
    """
    rng = np.random.default_rng(0)
    # backwards, so that the axes before keep their numbers
    for place in reversed(range(array.ndim)):
        if place != axis:
            drawn = rng.standard_normal(array.shape[place])
            array = np.tensordot(array, drawn, axes=(place, 0))
    return array


def _anchors(one: _Prints, other: _Prints) -> dict[str, str]:
    """Return the pairs of units whose tensors are near only one unit of the other form, each way: by the
    first form's path, the second's.
    """
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for path, (shape, _) in other.of.items():
        by_shape.setdefault(shape, []).append(path)
    found = {
        path: [theirs for theirs in by_shape.get(shape, ()) if one.near(path, other, theirs)]
        for path, (shape, _) in one.of.items()
    }
    once = [theirs[0] for theirs in found.values() if len(theirs) == 1]
    return {
        path: theirs[0] for path, theirs in found.items() if len(theirs) == 1 and once.count(theirs[0]) == 1
    }


def _ordered(form: NormalForm, places: Mapping[str, int]) -> list[str]:
    """Return the units in an order of computation that does not depend on how the graph was written.

    Args:
        places: those that some units have in the other form's order.
    """
    depths = _depths(form)
    keys = dict[str, tuple[float, ...]]()
    nearest = dict[str, int]()
    for path, unit in form.units.items():
        above = [nearest[read] for read in unit.inputs if read in nearest]
        nearest[path] = places.get(path, max(above, default=-1))
        # by the nearest anchor before it, then those farthest from the input first
        keys[path] = (nearest[path], -depths[path], len(unit.inputs))

    def inputs(path: str) -> list[str]:
        """Return what a unit reads, in the order in which it is visited; nothing for the graph's input."""
        unit = form.units.get(path)
        if unit is None:
            return []
        own = list(dict.fromkeys(unit.inputs))
        reorder = unit.kind in COMMUTATIVE or bool(places)
        # -2: the graph's input comes before all units
        return sorted(own, key=lambda read: keys.get(read, (-2.0,))) if reorder else own

    return [path for path in in_order(form.outputs, inputs) if path in form.units]


def _depths(form: NormalForm) -> dict[str, int]:
    """Return how many units at most lie between the input and each unit, with itself."""
    depths = dict[str, int]()
    for path, unit in form.units.items():
        depths[path] = 1 + max((depths.get(read, 0) for read in unit.inputs), default=0)
    return depths


def _likeness(
    one: NormalForm,
    other: NormalForm,
    first: Sequence[str],
    second: Sequence[str],
    prints: tuple[_Prints, _Prints],
) -> NDArray[np.float64]:
    """Return how much speaks for each pair of units, rows of the first form x columns of the second; 0 where
    they cannot stand in each other's place, because their kinds are of different families.
    """
    likeness = np.zeros((len(first), len(second)))
    families: dict[int | str, list[int]] = {}
    for column, path in enumerate(second):
        families.setdefault(family(other.units[path].kind), []).append(column)
    for row, path in enumerate(first):
        mine = one.units[path]
        for column in families.get(family(mine.kind), ()):
            likeness[row, column] = _alike(one, mine, other, other.units[second[column]], prints)
    return likeness


def _alike(
    one: NormalForm, mine: Unit, other: NormalForm, its: Unit, prints: tuple[_Prints, _Prints]
) -> float:
    """Return how much speaks for a pair: equal numbers most, then shapes, attributes and kind, and the last
    word of the name least.

    Args:
        one, mine: the first form and its unit.
        other, its: the second form and its unit.
        prints: of both forms.
    """
    named = 0.1 * (mine.name.rpartition("/")[2] == its.name.rpartition("/")[2])
    if mine.kind != its.kind:
        return 0.5 + named
    shapes = [{role: array.shape for role, array in unit.tensors.items()} for unit in (mine, its)]
    same_shapes = 2.0 * (shapes[0] == shapes[1]) if mine.tensors else 0.0
    same_values = 6.0 * prints[0].near(mine.path, prints[1], its.path)
    return 1 + named + (mine.says == its.says) + same_shapes + same_values


def _longest(likeness: NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of rows and columns, both rising, whose likeness is largest together; of several such,
    those that come first.
    """
    rows, columns = likeness.shape
    # Turned round, so that the walk back through the table yields the first pairs first.
    likeness = likeness[::-1, ::-1]
    best = np.zeros((rows + 1, columns + 1))
    for row in range(rows):
        # best[r, c] is the most that r rows and c columns give together
        paired = best[row, :-1] + likeness[row]
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(best[row, 1:], paired))
    row, column, found = rows, columns, list[tuple[int, int]]()
    while row and column:
        gain = likeness[row - 1, column - 1]
        if gain and best[row, column] == best[row - 1, column - 1] + gain:
            row, column = row - 1, column - 1
            found.append((likeness.shape[0] - 1 - row, likeness.shape[1] - 1 - column))
        elif best[row, column] == best[row - 1, column]:
            row -= 1
        else:
            column -= 1
    yield from found


def _crossing(one: NormalForm, other: NormalForm, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return pairs of units that the order of computation did not pair: of one kind, which read, or are read
    by, pairs; or of any kind, which read and are read by pairs.
    """
    more = dict[str, str]()
    left = [path for path in other.units if path not in {*pairs.values()}]
    own, its_readers = _readers(one), _readers(other)
    for path, unit in one.units.items():
        if path in pairs:
            continue
        read = [pairs.get(each) or more.get(each) or each for each in unit.inputs]
        reading = {pairs[each] for each in own.get(path, ()) if each in pairs}
        for theirs in left:
            its = other.units[theirs]
            alike = its.kind == unit.kind and its.tensors.keys() == unit.tensors.keys()
            reads = read == [*its.inputs] or (alike and {*read} == {*its.inputs})
            # an output is read by the caller
            is_read = bool(reading & {*its_readers.get(theirs, ())}) or (
                path in one.outputs and theirs in other.outputs
            )
            if (reads and is_read) or (alike and (reads or is_read)):
                more[path] = theirs
                left.remove(theirs)
                break
    return more


def _readers(form: NormalForm) -> dict[str, list[str]]:
    """Return by path the units that read a value."""
    readers: dict[str, list[str]] = {}
    for path, unit in form.units.items():
        for read in unit.inputs:
            readers.setdefault(read, []).append(path)
    return readers

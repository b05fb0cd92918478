"""Which unit of one normal form is which of another: by values and by structure. Names decide ties only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from porter.comparison.normal_form import NormalForm
from porter.comparison.unit import COMMUTATIVE, LINEAR, NORMS, Unit
from porter.graph.ops.activations import ACTIVATIONS
from porter.graph.walks import in_order

_FAMILIES = (
    {*LINEAR},
    {*NORMS, "scale"},
    {*ACTIVATIONS},
    {"max_pool", "avg_pool", "global_avg_pool", "global_max_pool", "adaptive_avg_pool", "adaptive_max_pool"},
    {"add", "multiply", "concat", "maximum", "minimum"},
    {"tokens", "add_array", "pad_axis"},
)
"""Kinds that stand in each other's place."""
_NEAR = 1e-5
"""Tensors no further apart are taken for the same layer's. Whether they are equal is not decided by it."""


@dataclass(frozen=True)
class Pairing:
    """Two normal forms, aligned: that of model A, the first, and that of model B, the second.

    Attributes:
        pairs: paths of A's units to those of B's, in the order of A.
        only_a, only_b: paths of units that have no pair.
        inputs: paths of A's inputs to those of B's, which stand in the same places.
    """

    form_a: NormalForm
    form_b: NormalForm
    pairs: Mapping[str, str]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    inputs: Mapping[str, str]


def align(form_a: NormalForm, form_b: NormalForm) -> Pairing:
    """Pair the units (steps) of two normal forms, and return the pairs and the units that are in no pair:
    those of equal tensors first, then the rest by the longest sequence of like units in an order of
    computation that both have, last those that cross that order.
    """
    fingerprints = _Fingerprints(form_a), _Fingerprints(form_b)
    anchors = _anchors(*fingerprints)
    order_a = _ordered(form_a, {})
    places = {path: place for place, path in enumerate(order_a)}
    order_b = _ordered(form_b, {path_b: places[path_a] for path_a, path_b in anchors.items()})
    likeness = _likeness(form_a, form_b, order_a, order_b, fingerprints)
    pairs = {order_a[row]: order_b[column] for row, column in _longest(likeness)}
    inputs = dict(zip(form_a.graph.inputs, form_b.graph.inputs, strict=False))
    pairs |= _crossing(form_a, form_b, {**inputs, **pairs})
    paired_in_b = set(pairs.values())
    return Pairing(
        form_a,
        form_b,
        {path: pairs[path] for path in form_a.units if path in pairs},
        tuple(path for path in form_a.units if path not in pairs),
        tuple(path for path in form_b.units if path not in paired_in_b),
        inputs,
    )


def family(kind: str) -> int | str:
    """Return the family of a kind, whose members may stand in each other's place; the kind itself if it is in
    none.
    """
    return next((place for place, kinds in enumerate(_FAMILIES) if kind in kinds), kind)


@dataclass
class _Fingerprints:
    """A few numbers of each unit's tensors, by which units of equal tensors are found quickly.

    Attributes:
        of: by a unit's path, the shape of its tensor with the most axes, and two numbers for each tensor.
    """

    form: NormalForm
    of: dict[str, tuple[tuple[int, ...], Sequence[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path, unit in self.form.units.items():
            arrays = [unit.tensors[role] for role in sorted(unit.tensors)]
            if not arrays or arrays[-1].size == 0:
                continue
            numbers = [value for array in arrays for value in _fingerprint(array)]
            self.of[path] = (max((array.shape for array in arrays), key=len), numbers)

    def near(self, path: str, other: _Fingerprints, other_path: str) -> bool:
        """Return whether two units have nearly the same numbers; False where one of them has no tensors.

        Args:
            path: the unit of this form.
            other: the fingerprints of the other form.
            other_path: its unit.
        """
        if path not in self.of or other_path not in other.of:
            return False
        shape, numbers = self.of[path]
        other_shape, other_numbers = other.of[other_path]
        if shape != other_shape or len(numbers) != len(other_numbers):
            return False
        largest = max(map(abs, numbers), default=0.0) or 1.0
        return all(
            abs(number - other_number) <= _NEAR * largest
            for number, other_number in zip(numbers, other_numbers, strict=True)
        )


def _fingerprint(array: NDArray[np.float64]) -> tuple[float, float]:
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


def _anchors(fingerprints_a: _Fingerprints, fingerprints_b: _Fingerprints) -> dict[str, str]:
    """Return the pairs of units that are certain because their tensors are near those of only one unit of the
    other model, each way: A's path to B's.
    """
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for path, (shape, _) in fingerprints_b.of.items():
        by_shape.setdefault(shape, []).append(path)
    near = {
        path_a: [
            path_b
            for path_b in by_shape.get(shape, ())
            if fingerprints_a.near(path_a, fingerprints_b, path_b)
        ]
        for path_a, (shape, _) in fingerprints_a.of.items()
    }
    only_near = {path_a: paths_b[0] for path_a, paths_b in near.items() if len(paths_b) == 1}
    counts = Counter(only_near.values())
    return {path_a: path_b for path_a, path_b in only_near.items() if counts[path_b] == 1}


def _ordered(form: NormalForm, places: Mapping[str, int]) -> list[str]:
    """Return the paths of the units in an order of computation that does not depend on how the graph was
    written, so that two models are compared in one order.

    Args:
        places: by path, the places of some units' pairs in the order of the other form.
    """
    depths = _depths(form)
    keys = dict[str, tuple[float, ...]]()
    nearest = dict[str, int]()
    for path, unit in form.units.items():
        above = [nearest[read] for read in unit.inputs if read in nearest]
        # the place of the unit's pair, or of the last unit before it that has one
        nearest[path] = places.get(path, max(above, default=-1))
        # Sorted by that place, then those farthest from the input first.
        keys[path] = (nearest[path], -depths[path], len(unit.inputs))

    def inputs(path: str) -> list[str]:
        """Return what a unit reads, in the order in which it is visited; nothing for the graph's input."""
        unit = form.units.get(path)
        if unit is None:
            return []
        paths = list(dict.fromkeys(unit.inputs))
        if unit.kind in COMMUTATIVE or places:
            # -2: the graph's input comes before all units
            paths.sort(key=lambda read: keys.get(read, (-2.0,)))
        return paths

    return [path for path in in_order(form.outputs, inputs) if path in form.units]


def _depths(form: NormalForm) -> dict[str, int]:
    """Return by path the depth of each unit: how many units the longest way from the input to it has, with
    itself.
    """
    depths = dict[str, int]()
    for path, unit in form.units.items():
        depths[path] = 1 + max((depths.get(read, 0) for read in unit.inputs), default=0)
    return depths


def _likeness(
    form_a: NormalForm,
    form_b: NormalForm,
    order_a: Sequence[str],
    order_b: Sequence[str],
    fingerprints: tuple[_Fingerprints, _Fingerprints],
) -> NDArray[np.float64]:
    """Return a table of how much speaks for each pair of units, rows of A x columns of B; 0 where they
    cannot stand in each other's place, because their kinds are of different families.

    Args:
        order_a, order_b: paths of the units, in the order of the rows and of the columns.
        fingerprints: of both forms.
    """
    likeness = np.zeros((len(order_a), len(order_b)))
    families: dict[int | str, list[int]] = {}
    for column, path in enumerate(order_b):
        families.setdefault(family(form_b.units[path].kind), []).append(column)
    for row, path in enumerate(order_a):
        unit_a = form_a.units[path]
        for column in families.get(family(unit_a.kind), ()):
            likeness[row, column] = _alike(unit_a, form_b.units[order_b[column]], fingerprints)
    return likeness


def _alike(unit_a: Unit, unit_b: Unit, fingerprints: tuple[_Fingerprints, _Fingerprints]) -> float:
    """Return how much speaks for a pair of units, as points: most for nearly equal tensors (6), then for
    shapes (2), attributes and kind, and least for the last word of the name (0.1), which only decides ties.

    Args:
        fingerprints: of both forms.
    """
    same_name = unit_a.name.rpartition("/")[2] == unit_b.name.rpartition("/")[2]
    points = 0.1 if same_name else 0.0
    if unit_a.kind != unit_b.kind:
        return points + 0.5
    points += 1
    if unit_a.says == unit_b.says:
        points += 1
    if unit_a.tensors and _shapes(unit_a) == _shapes(unit_b):
        points += 2
    if fingerprints[0].near(unit_a.path, fingerprints[1], unit_b.path):
        points += 6
    return points


def _shapes(unit: Unit) -> dict[str, tuple[int, ...]]:
    return {role: array.shape for role, array in unit.tensors.items()}


def _longest(likeness: NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """Yield the (row, column) of pairs, both rising from pair to pair, whose sum of likeness is largest; of
    several such choices, the one whose pairs come first. It is the longest common subsequence of both orders,
    with likeness for length.
    """
    rows, columns = likeness.shape
    # Turned round, so that the walk back through the table yields the first pairs first.
    likeness = likeness[::-1, ::-1]
    best = np.zeros((rows + 1, columns + 1))
    for row in range(rows):
        # best[r, c] is the most that r rows and c columns give together
        paired = best[row, :-1] + likeness[row]
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(best[row, 1:], paired))
    row, column = rows, columns
    pairs = list[tuple[int, int]]()
    # Walk back through the table, from the best sum of all rows and columns.
    while row and column:
        gain = likeness[row - 1, column - 1]
        if gain and best[row, column] == best[row - 1, column - 1] + gain:
            row, column = row - 1, column - 1
            pairs.append((likeness.shape[0] - 1 - row, likeness.shape[1] - 1 - column))
        elif best[row, column] == best[row - 1, column]:
            row -= 1
        else:
            column -= 1
    yield from pairs


def _crossing(form_a: NormalForm, form_b: NormalForm, pairs: Mapping[str, str]) -> dict[str, str]:
    """Return further pairs, A's path to B's, of units that the order of computation did not pair: of one
    kind, which read, or are read by, pairs; or of any kind, which read and are read by pairs.

    Args:
        pairs: those that are known, of inputs too.
    """
    further = dict[str, str]()
    unpaired_b = [path for path in form_b.units if path not in {*pairs.values()}]
    readers_a, readers_b = _readers(form_a), _readers(form_b)
    for path_a, unit_a in form_a.units.items():
        if path_a in pairs:
            continue
        # B's partners of what the unit reads, and of the units that read it
        inputs = [pairs.get(read) or further.get(read) or read for read in unit_a.inputs]
        readers = {pairs[reader] for reader in readers_a.get(path_a, ()) if reader in pairs}
        for path_b in unpaired_b:
            unit_b = form_b.units[path_b]
            alike = unit_b.kind == unit_a.kind and unit_b.tensors.keys() == unit_a.tensors.keys()
            reads_pairs = inputs == [*unit_b.inputs] or (alike and {*inputs} == {*unit_b.inputs})
            # an output is read by the caller
            are_outputs = path_a in form_a.outputs and path_b in form_b.outputs
            is_read_by_pairs = are_outputs or not readers.isdisjoint(readers_b.get(path_b, ()))
            if (reads_pairs and is_read_by_pairs) or (alike and (reads_pairs or is_read_by_pairs)):
                further[path_a] = path_b
                unpaired_b.remove(path_b)
                break
    return further


def _readers(form: NormalForm) -> dict[str, list[str]]:
    """Return by a value's path the paths of the units that read it."""
    readers: dict[str, list[str]] = {}
    for path, unit in form.units.items():
        for read in unit.inputs:
            readers.setdefault(read, []).append(path)
    return readers

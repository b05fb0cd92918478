"""Two models run beside each other: each pair of layers on the same numbers, and both as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from porter.base.dtypes import Array
from porter.comparison.aligning import Pairing
from porter.comparison.normal_form import COMMUTATIVE, NormalForm, Unit
from porter.comparison.sides import IN
from porter.frameworks import get_destination
from porter.graph import INPUT, Node, nonnegative_paths
from porter.padding import KnownSize
from porter.verification.cut_points import Draws
from porter.verification.inputs import FALLBACKS, make_images
from porter.verification.memory import in_parts
from porter.verification.numbers import distance, farthest_draw
from porter.verification.references import OwnBuild
from porter.verification.results import Distance

_DRAWS, _IMAGES = 2, 2


@dataclass(frozen=True)
class _Wire:
    """A value that a pair reads: its path in each form."""

    mine: str
    its: str


def builds(pairing: Pairing) -> tuple[OwnBuild, OwnBuild]:
    """Return the graphs of two forms, as models that are run."""
    destination = get_destination(IN)
    one, other = (OwnBuild(destination, form.graph, form.tensors) for form in (pairing.one, pairing.other))
    return one, other


def on_the_same(
    pairing: Pairing, models: tuple[OwnBuild, OwnBuild], size: KnownSize, pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return how far apart the values of units are that are given the same random numbers (relative L2, the
    worst of several draws), by the paths of the two. Pairs that cannot be given the same numbers are left
    out.
    """
    rng = np.random.default_rng()
    left = {pair: wires for pair in pairs if (wires := _wires(pairing, *pair)) is not None}
    found = dict[tuple[str, str], float]()
    # A value can have one draw at a time: pairs that want it to be two wait for the next turn.
    while left:
        given = dict[str, str]()
        now = list[tuple[str, str]]()
        for pair, wires in left.items():
            wanted = {wire.its: wire.mine for wire in wires}
            if all(given.get(its, mine) == mine for its, mine in wanted.items()):
                given |= wanted
                now.append(pair)
        found |= _run(pairing, models, size, now, given, rng)
        left = {pair: wires for pair, wires in left.items() if pair not in now}
    return found


def _wires(pairing: Pairing, mine: str, its: str) -> tuple[_Wire, ...] | None:
    """Return the values that two units read, one for the other; None where they are of other numbers or
    sizes.
    """
    one, other = pairing.one.units[mine], pairing.other.units[its]
    read = [*other.inputs]
    if len(one.inputs) != len(read) or _reads_joined(one) or _reads_joined(other):
        return None
    if one.kind in COMMUTATIVE:
        read = _as_in(one, read, {**pairing.inputs, **pairing.pairs})
    wires = tuple(_Wire(*each) for each in zip(one.inputs, read, strict=True))
    fits = all(_count(pairing.one, wire.mine) == _count(pairing.other, wire.its) for wire in wires)
    return wires if fits and _count(pairing.one, mine) == _count(pairing.other, its) else None


def _reads_joined(unit: Unit) -> bool:
    """Return whether a unit joins what an inner join reads, which may be given numbers of its own."""
    return unit.kind == "concat" and len(unit.inputs) != len(unit.nodes[-1].inputs)


def _as_in(one: Unit, read: list[str], pairs: Mapping[str, str]) -> list[str]:
    """Return the values that a unit reads, where their order does not matter, in the order of their pairs in
    the first unit. Those without a pair fill the places that are left.

    Args:
        one: the unit whose inputs give the order.
        read: what the unit of the other form reads.
        pairs: by the first form's path, the second's.
    """
    left = [*read]
    placed: list[str | None] = []
    for path in one.inputs:
        wanted = pairs.get(path, path)
        placed.append(wanted if wanted in left else None)
        if wanted in left:
            left.remove(wanted)
    return [each if each is not None else left.pop(0) for each in placed]


def _count(form: NormalForm, path: str) -> int:
    """Return how many numbers a value has; of a unit that is a part of a layer, those of its rows."""
    unit = form.units.get(path)
    shape = form.shapes[_value(form, path)]
    if unit is None or unit.rows is None:
        return math.prod(size or 1 for size in shape)
    rows = unit.rows
    return (
        math.prod(size or 1 for size in shape) // (shape[-1] or 1) * len(range(*rows.indices(shape[-1] or 1)))
    )


def _value(form: NormalForm, path: str) -> str:
    """Return the path in the graph of the value that a unit's path stands for: of a part of a layer, the
    layer's.
    """
    unit = form.units.get(path)
    return path if unit is None or unit.rows is None else unit.nodes[-1].path


def _run(
    pairing: Pairing,
    models: tuple[OwnBuild, OwnBuild],
    size: KnownSize,
    pairs: list[tuple[str, str]],
    given: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[tuple[str, str], float]:
    """Return the distances of pairs, where each value of the second form is given the same draw as its
    partner in the first.

    Args:
        given: by what is read in the second form, what is read in the first.
    """
    one, other = pairing.one, pairing.other
    readers: dict[str, list[Node]] = {}
    for its, mine in given.items():
        found = [unit.nodes[0] for unit in one.units.values() if mine in unit.inputs]
        readers.setdefault(mine, []).extend(
            found + [unit.nodes[0] for unit in other.units.values() if its in unit.inputs]
        )
    shared = nonnegative_paths(one.graph)
    theirs = nonnegative_paths(other.graph)
    nonnegative = {mine for its, mine in given.items() if mine in shared and its in theirs}
    draws = Draws(rng, nonnegative, (), {node.path for nodes in readers.values() for node in nodes}, readers)
    drawn = dict[str, Array]()
    for mine in dict.fromkeys(given.values()):
        shape = (_DRAWS, *(each or 1 for each in one.shapes[_value(one, mine)]))
        drawn[mine] = draws.of(
            mine, (_DRAWS, _count(one, mine)) if _count(one, mine) * _DRAWS != math.prod(shape) else shape
        )
    theirs_drawn = {its: drawn[mine] for its, mine in given.items()}
    distances = dict[tuple[str, str], float]()
    shapes = {path: tuple(each or 1 for each in shape) for path, shape in one.shapes.items()}
    for part in in_parts(one.graph, shapes, 2 * _DRAWS):
        now = [pair for pair in pairs if _value(one, pair[0]) in part]
        if not now:
            continue
        firsts = _values(one, models[0], [pair[0] for pair in now], drawn, size)
        seconds = _values(other, models[1], [pair[1] for pair in now], theirs_drawn, size)
        distances |= {pair: farthest_draw(firsts[pair[0]], seconds[pair[1]]).rel_l2 for pair in now}
    return distances


def _values(
    form: NormalForm, model: OwnBuild, paths: list[str], drawn: Mapping[str, Array], size: KnownSize
) -> dict[str, Array]:
    """Return the values of units of one form, N x numbers, where others are given draws.

    Args:
        drawn: what each path is given.
        size: rows and columns of the input.
        paths: of the units that are wanted.
    """
    batch: Array = np.zeros((_DRAWS, form.graph.channels, *size))  # nothing that is shown depends on it
    # the cuts: the numbers that replace values of the graph, by path
    cut = dict[str, Array]()
    for path, numbers in drawn.items():
        if path in form.graph.inputs:
            batch = numbers.reshape(batch.shape) if path == INPUT and numbers.size == batch.size else batch
            continue
        value = _value(form, path)
        shape = (_DRAWS, *(each or 1 for each in form.shapes[value]))
        rows = form.units[path].rows
        if rows is None:
            cut[value] = numbers.reshape(shape)
        else:
            cut.setdefault(value, np.zeros(shape))[..., rows] = numbers.reshape(*shape[:-1], -1)
    taps = [*dict.fromkeys((*(_value(form, path) for path in paths), *cut))]
    values = model.run_cut(batch, taps, cut)
    found = dict[str, Array]()
    for path in paths:
        shown = values[_value(form, path)]
        part = form.units[path].rows
        found[path] = (shown if part is None else shown[..., part]).reshape(len(shown), -1)
    return found


def outputs_apart(
    pairing: Pairing, models: tuple[OwnBuild, OwnBuild], sizes: Sequence[KnownSize]
) -> Distance | None:
    """Return how far apart the outputs of both models are on images, the worst of several ranges and sizes;
    None where they take other channels, or give outputs of other numbers or sizes.
    """
    one, other = pairing.one, pairing.other
    if one.graph.channels != other.graph.channels or len(one.outputs) != len(other.outputs):
        return None
    worst: Distance | None = None
    for taken, size in product(FALLBACKS, sizes):
        images = make_images(size, _IMAGES, one.graph.channels, taken)
        values = [model.run(images, "float64", model.graph.outputs) for model in models]
        for mine, its in zip(one.graph.outputs, other.graph.outputs, strict=True):
            first, second = values[0][mine], values[1][its]
            if first.size != second.size:
                return None
            apart = distance(first, second.reshape(first.shape))
            # not `>`, because NaN is the worst
            worst = apart if worst is None or not apart.rel_l2 <= worst.rel_l2 else worst
    return worst

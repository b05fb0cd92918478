"""Two models run beside each other: each pair of layers on the same numbers, and both as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from porter.base.dtypes import Array
from porter.comparison.aligning import Pairing
from porter.comparison.normal_form import NormalForm
from porter.comparison.sides import IN
from porter.comparison.unit import COMMUTATIVE, Unit
from porter.frameworks import get_destination
from porter.graph import INPUT, Node, nonnegative_paths
from porter.padding import KnownSize
from porter.verification.draws import LEAST_DRAWS, Draws
from porter.verification.inputs import FALLBACKS, make_images
from porter.verification.memory import in_parts
from porter.verification.numbers import distance, farthest_draw
from porter.verification.references.own_build import OwnBuild
from porter.verification.results import Distance, farthest

IMAGES = 2
"""So many images of each range two models' outputs are compared on."""


@dataclass(frozen=True)
class _Wire:
    """A value that both units of a pair read: its path in each model's form."""

    path_a: str
    path_b: str


def builds(pairing: Pairing) -> tuple[OwnBuild, OwnBuild]:
    """Return porter's builds of the two models' graphs, which can be run."""
    destination = get_destination(IN)
    model_a, model_b = (
        OwnBuild(destination, form.graph, form.tensors) for form in (pairing.form_a, pairing.form_b)
    )
    return model_a, model_b


def on_the_same(
    pairing: Pairing, models: tuple[OwnBuild, OwnBuild], size: KnownSize, pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return how far apart the values of units are that are given the same random numbers (relative L2, the
    worst of several draws), by the paths of the two. Pairs that cannot be given the same numbers are left
    out.
    """
    rng = np.random.default_rng()
    waiting = {pair: wires for pair in pairs if (wires := _wires(pairing, *pair)) is not None}
    distances = dict[tuple[str, str], float]()
    # A value of B can have the draw of one value of A at a time: a pair that needs another one waits for the
    # next turn.
    while waiting:
        partners = dict[str, str]()
        run_now = list[tuple[str, str]]()
        for pair, wires in waiting.items():
            needed = {wire.path_b: wire.path_a for wire in wires}
            if all(partners.get(path_b, path_a) == path_a for path_b, path_a in needed.items()):
                partners |= needed
                run_now.append(pair)
        distances |= _run(pairing, models, size, run_now, partners, rng)
        waiting = {pair: wires for pair, wires in waiting.items() if pair not in run_now}
    return distances


def _wires(pairing: Pairing, path_a: str, path_b: str) -> tuple[_Wire, ...] | None:
    """Return the values that two units read, each of A's with that of B's which is given the same numbers;
    None if the units cannot be run on the same numbers, because they read or give values of other sizes.
    """
    form_a, form_b = pairing.form_a, pairing.form_b
    unit_a, unit_b = form_a.units[path_a], form_b.units[path_b]
    inputs_b = [*unit_b.inputs]
    if len(unit_a.inputs) != len(inputs_b) or _reads_joined(unit_a) or _reads_joined(unit_b):
        return None
    if unit_a.kind in COMMUTATIVE:
        inputs_b = _as_in(unit_a, inputs_b, {**pairing.inputs, **pairing.pairs})
    wires = tuple(_Wire(*paths) for paths in zip(unit_a.inputs, inputs_b, strict=True))
    values = [*wires, _Wire(path_a, path_b)]
    fits = all(_count(form_a, value.path_a) == _count(form_b, value.path_b) for value in values)
    return wires if fits else None


def _reads_joined(unit: Unit) -> bool:
    """Return whether a unit joins what an inner join reads, which may be given numbers of its own."""
    return unit.kind == "concat" and len(unit.inputs) != len(unit.nodes[-1].inputs)


def _as_in(unit_a: Unit, inputs_b: list[str], pairs: Mapping[str, str]) -> list[str]:
    """Return what a unit of B reads in the order of A's unit, for ops such as add, where the order does not
    matter: each next to its pair. Those without a pair fill the places that are left.

    Args:
        unit_a: the unit whose inputs give the order.
        inputs_b: what the unit of B reads.
        pairs: A's path to B's.
    """
    unplaced = [*inputs_b]
    ordered: list[str | None] = []
    for path_a in unit_a.inputs:
        partner = pairs.get(path_a, path_a)
        if partner in unplaced:
            unplaced.remove(partner)
            ordered.append(partner)
        else:
            ordered.append(None)
    return [path if path is not None else unplaced.pop(0) for path in ordered]


def _count(form: NormalForm, path: str) -> int:
    """Return how many numbers a value has; of a unit that is a part of a layer, those of its rows."""
    unit = form.units.get(path)
    shape = form.shapes[_value(form, path)]
    count = math.prod(size or 1 for size in shape)
    if unit is None or unit.rows is None:
        return count
    channels = shape[-1] or 1
    kept_channels = len(range(*unit.rows.indices(channels)))
    return count // channels * kept_channels


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
    partners: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[tuple[str, str], float]:
    """Return how far apart the values of pairs are (relative L2), where all that they read is given random
    numbers: each value in B the same draw as its partner in A.

    Args:
        partners: by the path of what is read in B, that of what is read in A.
    """
    form_a, form_b = pairing.form_a, pairing.form_b
    shapes = {path: tuple(size or 1 for size in shape) for path, shape in form_a.shapes.items()}
    drawn_a = _draw(pairing, shapes, partners, rng)
    drawn_b = {path_b: drawn_a[path_a] for path_b, path_a in partners.items()}
    distances = dict[tuple[str, str], float]()
    # Values are shown in parts, so that they fit into memory.
    for part in in_parts(form_a.graph, shapes, 2 * LEAST_DRAWS):
        shown = [pair for pair in pairs if _value(form_a, pair[0]) in part]
        if not shown:
            continue
        values_a = _values(form_a, models[0], [path_a for path_a, _ in shown], drawn_a, size)
        values_b = _values(form_b, models[1], [path_b for _, path_b in shown], drawn_b, size)
        distances |= {
            (path_a, path_b): farthest_draw(values_a[path_a], values_b[path_b]).rel_l2
            for path_a, path_b in shown
        }
    return distances


def _draw(
    pairing: Pairing,
    shapes: Mapping[str, tuple[int, ...]],
    partners: Mapping[str, str],
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return by path in A random numbers for what is read there and, under its partner's path, in B.

    Args:
        shapes: by path, those of the values of an image in A.
        partners: as in `_run`.
    """
    form_a, form_b = pairing.form_a, pairing.form_b
    # What reads a value says which numbers are drawn for it.
    readers: dict[str, list[Node]] = {}
    for path_b, path_a in partners.items():
        readers_a = [unit.nodes[0] for unit in form_a.units.values() if path_a in unit.inputs]
        readers_b = [unit.nodes[0] for unit in form_b.units.values() if path_b in unit.inputs]
        readers.setdefault(path_a, []).extend(readers_a + readers_b)
    nonnegative_a = nonnegative_paths(form_a.graph)
    nonnegative_b = nonnegative_paths(form_b.graph)
    nonnegative = {
        path_a for path_b, path_a in partners.items() if path_a in nonnegative_a and path_b in nonnegative_b
    }
    draws = Draws(rng, nonnegative, (), {node.path for nodes in readers.values() for node in nodes}, readers)
    drawn_a = dict[str, Array]()
    for path_a in dict.fromkeys(partners.values()):
        shape: tuple[int, ...] = (LEAST_DRAWS, *shapes[_value(form_a, path_a)])
        count = _count(form_a, path_a)
        # a part of a layer's channels, which has no shape of its own
        if count * LEAST_DRAWS != math.prod(shape):
            shape = (LEAST_DRAWS, count)
        drawn_a[path_a] = draws.of(path_a, shape)
    return drawn_a


def _values(
    form: NormalForm, model: OwnBuild, paths: list[str], drawn: Mapping[str, Array], size: KnownSize
) -> dict[str, Array]:
    """Return the values of units of one form, each N x numbers, when some values of the graph are replaced
    by random draws.

    Args:
        drawn: by path, the numbers of a value that is replaced.
        size: rows and columns of the input.
        paths: of the units that are wanted.
    """
    batch: Array = np.zeros((LEAST_DRAWS, form.graph.channels, *size))  # nothing that is shown depends on it
    # the cuts: the numbers that replace values of the graph, by path
    cut = dict[str, Array]()
    for path, numbers in drawn.items():
        if path in form.graph.inputs:
            if path == INPUT and numbers.size == batch.size:
                batch = numbers.reshape(batch.shape)
            continue
        value = _value(form, path)
        shape = (LEAST_DRAWS, *(each or 1 for each in form.shapes[value]))
        rows = form.units[path].rows
        if rows is None:
            cut[value] = numbers.reshape(shape)
        else:
            cut.setdefault(value, np.zeros(shape))[..., rows] = numbers.reshape(*shape[:-1], -1)
    # the taps: the values that the model shows
    taps = [*dict.fromkeys((*(_value(form, path) for path in paths), *cut))]
    shown = model.run_cut(batch, taps, cut)
    values = dict[str, Array]()
    for path in paths:
        numbers = shown[_value(form, path)]
        rows = form.units[path].rows
        values[path] = (numbers if rows is None else numbers[..., rows]).reshape(len(numbers), -1)
    return values


def outputs_apart(
    pairing: Pairing, models: tuple[OwnBuild, OwnBuild], sizes: Sequence[KnownSize]
) -> Distance | None:
    """Return how far apart the outputs of both models are on images, the worst of several ranges and sizes;
    None where they take other channels, or give outputs of other numbers or sizes.
    """
    form_a, form_b = pairing.form_a, pairing.form_b
    if form_a.graph.channels != form_b.graph.channels or len(form_a.outputs) != len(form_b.outputs):
        return None
    worst: Distance | None = None
    for value_range, size in product(FALLBACKS, sizes):
        images = make_images(size, IMAGES, form_a.graph.channels, value_range)
        values = [model.run(images, "float64", model.graph.outputs) for model in models]
        for path_a, path_b in zip(form_a.graph.outputs, form_b.graph.outputs, strict=True):
            output_a, output_b = values[0][path_a], values[1][path_b]
            if output_a.size != output_b.size:
                return None
            worst = worse(worst, output_a, output_b)
    return worst


def worse(worst: Distance | None, output_a: Array, output_b: Array) -> Distance:
    """Return the larger of the worst distance so far and that of two outputs of as many numbers."""
    apart = distance(output_a, output_b.reshape(output_a.shape))
    return apart if worst is None else farthest((worst, apart))

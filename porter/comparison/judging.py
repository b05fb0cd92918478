"""Judges two models whose graphs were read: layer by layer, and at their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from porter.base.errors import CannotRun, GraphError, MappingError, NotInstalled, PaddingError
from porter.comparison.aligning import Pairing, align
from porter.comparison.closeness import ROUNDED
from porter.comparison.comparison_result import Comparison, Decision
from porter.comparison.differing import Differences, FoundInPairing
from porter.comparison.found_difference import FoundDifference, Kind
from porter.comparison.normal_form import normal_form
from porter.comparison.running import builds, on_the_same, outputs_apart
from porter.comparison.side_by_side import LayerPair
from porter.comparison.sides import SideProof, layer_names
from porter.padding import ANY, KnownSize
from porter.padding.sizes import size_text
from porter.source.opened import Opened
from porter.verification.numbers import FLOAT64_LIMIT
from porter.verification.results import Distance

_SAME_OUTPUTS, _ROUNDED_OUTPUTS = 1e-9, 1e-4
"""Outputs in float64 no further apart show no difference, the second where weights were rounded to float32.
"""

_FURTHER = 33, 18
"""Rows and columns by which a second size is larger, at which models are compared too where pads are compared
for every size: a network's strides, 4 and higher powers of 2, leave a remainder of both.
"""


def compare_graphs(
    names: tuple[str, str],
    opened: tuple[Opened, Opened],
    proofs: tuple[SideProof, ...],
    size: KnownSize,
    every: bool = False,
    tolerance: float | None = None,
) -> Comparison:
    """Compare two models whose graphs were read, layer by layer and at their outputs, and return the
    comparison with the verdict.

    Args:
        names: what the user calls each.
        opened: the graphs and tensors.
        proofs: of each graph, that it is its model's.
        size: rows and columns of the input.
        every: pads are compared for every size.
        tolerance: as in `compare`.
    """
    notes = tuple(_notes(*opened))
    open_questions = [
        f"{name} is not proved: {proof.words}"
        for name, proof in zip("AB", proofs, strict=True)
        if not proof.holds
    ]
    sizes = [size, (size[0] + _FURTHER[0], size[1] + _FURTHER[1])] if every else [size]
    try:
        at_sizes = [
            Differences(_aligned(opened, compared_size), ANY if every else size, tolerance)
            for compared_size in sizes
        ]
    except (GraphError, MappingError) as error:
        return Comparison(*names, "undecided", (), None, proofs=proofs, notes=notes, undecided=(str(error),))
    first = at_sizes[0]
    differences, rounded = _found(at_sizes)
    differences += stated_differences(*opened)
    try:
        distances, parity = _run(first.pairing, sizes, differences)
    except (NotInstalled, CannotRun, GraphError, PaddingError) as error:
        distances, parity = {}, None
        open_questions.append(f"the layers were not run: {error}")
    differences = [_confirmed(difference, distances) for difference in differences]
    differences += _unexplained(first, differences, distances)
    verdict, why = decide(differences, parity, open_questions, bool(rounded))
    compared_at = size_text(size)
    if every:
        compared_at = f"any size: pads at every one, the rest at {' and '.join(map(size_text, sizes))}"
    layers = _layers(first.pairing, distances)
    notes += _rounding_note(rounded)
    return Comparison(*names, verdict, tuple(differences), parity, layers, compared_at, proofs, notes, why)


def _aligned(opened: tuple[Opened, Opened], size: KnownSize) -> Pairing:
    """Return the normal forms of two models at a size, aligned."""
    form_a, form_b = (normal_form(model.graph, model.tensors, size, layer_names(model)) for model in opened)
    return align(form_a, form_b)


def _found(at_sizes: Sequence[Differences]) -> FoundInPairing:
    """Return what differs at several sizes, each difference once; tensors are the same at all of them."""
    first, *at_further_sizes = at_sizes
    differences, rounded = first.find()
    for further in at_further_sizes:
        seen = {(difference.kind, difference.pair) for difference in differences}
        more = further.find().differences
        differences += [found for found in more if (found.kind, found.pair) not in seen]
    return FoundInPairing(differences, rounded)


def _rounding_note(rounded: Mapping[str, float]) -> tuple[str, ...]:
    """Return the note that layers are equal to rounding only, if there are any.

    Args:
        rounded: by layer, how far apart their tensors are.
    """
    if not rounded:
        return ()
    count = f"{len(rounded)} layers are" if len(rounded) > 1 else "1 layer is"
    return (
        f"{count} equal to rounding to float32 only, at most {max(rounded.values()):.1e} apart: norms may be "
        "folded there",
    )


def _run(
    pairing: Pairing, sizes: Sequence[KnownSize], differences: list[FoundDifference]
) -> tuple[dict[tuple[str, str], float], Distance | None]:
    """Return how far apart pairs of units are on the same numbers (by their paths), and how far the outputs
    are on images; None for outputs that cannot be compared.
    """
    pairs = [*pairing.pairs.items()]
    # Outputs that differ are pairs that the alignment may not have.
    for difference in differences:
        path_a, path_b = difference.pair
        if path_a and path_b and (path_a, path_b) not in pairing.pairs.items():
            pairs.append((path_a, path_b))
    models = builds(pairing)
    return on_the_same(pairing, models, sizes[0], pairs), outputs_apart(pairing, models, sizes)


def _notes(opened_a: Opened, opened_b: Opened) -> Iterator[str]:
    """Yield a note if the two models say different things of how photos are prepared. That is no difference
    of their functions.
    """
    photos = [model.facts.preprocess for model in (opened_a, opened_b)]
    if None not in photos and photos[0] != photos[1]:
        yield "A and B state other preprocessing of photos, which is not in their graphs"


def stated_differences(opened_a: Opened, opened_b: Opened) -> Iterator[FoundDifference]:
    """Yield what differs beside the graphs: the activation after the outputs and the row of a background
    class, which are taken off, and the names of classes, where both models state them.
    """
    endings = [model.facts.activation for model in (opened_a, opened_b)]
    if endings[0] != endings[1]:
        kind: Kind = "activation"
        if not all(endings):
            kind = "missing" if endings[0] else "extra"
        ends = [f"ends in a {ending}" if ending else "in none" for ending in endings]
        yield FoundDifference(kind, None, None, f"A {ends[0]}, B {ends[1]}; what comes before it is compared")
    rows = [model.facts.source_classes for model in (opened_a, opened_b)]
    # A port may lack a row that its source has.
    is_port = "port" in (opened_a.file.format, opened_b.file.format)
    same_classes = opened_a.facts.classes == opened_b.facts.classes
    if rows[0] != rows[1] and same_classes and not is_port:
        longer = "A" if rows[0] > rows[1] else "B"
        text = (
            f"A has {rows[0]} rows, B {rows[1]}: the first of {longer} is a background class, which is left "
            "out"
        )
        yield FoundDifference("labels", None, None, text)
    names = [model.facts.class_names for model in (opened_a, opened_b)]
    if all(names) and names[0] != names[1]:
        # the first class with two names; None where one model has fewer classes
        label, (name_a, name_b) = next(
            (label, pair) for label, pair in enumerate(zip_longest(*names)) if pair[0] != pair[1]
        )
        yield FoundDifference("labels", None, None, f"class {label} is {name_a!r} in A, {name_b!r} in B")


def _confirmed(difference: FoundDifference, distances: Mapping[tuple[str, str], float]) -> FoundDifference:
    """Return a difference with how far apart its layers are on the same numbers, if it is of two layers.

    Args:
        distances: by pair of paths, how far apart they are.
    """
    path_a, path_b = difference.pair
    if path_a is None or path_b is None:
        return difference
    return replace(difference, apart=distances.get((path_a, path_b)))


def _unexplained(
    differing: Differences, differences: list[FoundDifference], distances: Mapping[tuple[str, str], float]
) -> list[FoundDifference]:
    """Return a difference for each pair in which nothing was found and which gives other values for the same
    numbers.

    Args:
        differing: what finds the differences of the pairing.
        differences: those that were found.
        distances: by pair of paths, how far apart they are on the same numbers.
    """
    known_pairs = {difference.pair for difference in differences}
    pairing = differing.pairing
    limit = max(FLOAT64_LIMIT, 10 * (ROUNDED if differing.tolerance is None else differing.tolerance))
    unexplained = []
    for pair, apart in distances.items():
        unit_a, unit_b = pairing.form_a.units[pair[0]], pairing.form_b.units[pair[1]]
        # not `apart > limit`, because NaN is a difference too
        if pair in known_pairs or apart <= limit:
            continue
        # The norm that one of the layers lacks is reported where it stands.
        if known_pairs and differing.reasons.is_split(unit_a, unit_b):
            continue
        text = f"{unit_a.name}: A and B give other values for the same numbers ({apart:.1e} apart)"
        unexplained.append(FoundDifference("operator", unit_a.name, unit_b.name, text, apart, pair))
    return unexplained


def decide(
    differences: list[FoundDifference],
    parity: Distance | None,
    open_questions: list[str],
    rounded: bool = False,
) -> tuple[Decision, tuple[str, ...]]:
    """Return the verdict, and why it is undecided, which is empty otherwise. Differences in layers that no
    output shows leave it undecided, and so do equal graphs with other outputs.

    Args:
        differences: those of layers. One whose `pair` is (None, None) is of the whole models, such as
            another number of outputs.
        parity: how far the outputs are apart; None if they were not run.
        open_questions: reasons that leave the verdict undecided, whatever else is known.
        rounded: some layers' weights are equal only after rounding to float32, so the outputs may be as far
            apart as float32 rounds.
    """
    if not differences:
        if parity is not None and not parity.rel_l2 <= _ROUNDED_OUTPUTS:
            open_questions = [
                *open_questions,
                f"the graphs are equal, and their outputs are {parity.rel_l2:.1e} apart",
            ]
        elif parity is None and not open_questions:
            open_questions = ["the outputs were not run"]
        return ("undecided", tuple(open_questions)) if open_questions else ("same", ())
    limit = _ROUNDED_OUTPUTS if rounded else _SAME_OUTPUTS
    outputs_equal = parity is not None and parity.rel_l2 <= limit
    if outputs_equal and not any(difference.pair == (None, None) for difference in differences):
        open_questions = [
            *open_questions,
            "the layers differ, and the outputs do not on any image that was tried",
        ]
    return ("undecided", tuple(open_questions)) if open_questions else ("differs", ())


def _layers(pairing: Pairing, distances: Mapping[tuple[str, str], float]) -> tuple[LayerPair, ...]:
    """Return all units as rows of a table, in the first model's order; those that only the second has follow
    what they follow there.

    Args:
        distances: by pair of paths, how far apart they are on the same numbers.
    """
    units_a, units_b = pairing.form_a.units, pairing.form_b.units
    # B's unpaired units, by the path of the paired unit that they follow; None for those before the first
    following: dict[str | None, list[LayerPair]] = {}
    last_paired: str | None = None
    for path_b, unit_b in units_b.items():
        if path_b in pairing.only_b:
            row = LayerPair(None, unit_b.name, unit_b.kind, None, (None, path_b))
            following.setdefault(last_paired, []).append(row)
        else:
            last_paired = path_b
    rows = following.get(None, [])
    for path_a, unit_a in units_a.items():
        partner = pairing.pairs.get(path_a)
        if partner is None:
            rows.append(LayerPair(unit_a.name, None, unit_a.kind, None, (path_a, None)))
            continue
        apart = distances.get((path_a, partner))
        rows.append(LayerPair(unit_a.name, units_b[partner].name, unit_a.kind, apart, (path_a, partner)))
        rows += following.get(partner, [])
    return tuple(rows)

"""Compares two models: the same function, or what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

from porter.base.calls import takes
from porter.base.commands import CompareOptions
from porter.base.errors import (
    CannotRun,
    GraphError,
    MappingError,
    NotInstalled,
    PaddingError,
    UsageError,
)
from porter.base.options import INPUT_SIZE, AnyPath
from porter.comparison.aligning import Pairing, align
from porter.comparison.closeness import ROUNDED
from porter.comparison.differing import Differences, FoundInPairing
from porter.comparison.found_difference import FoundDifference, Kind
from porter.comparison.normal_form import normal_form
from porter.comparison.outputs_only import outputs_only
from porter.comparison.running import builds, on_the_same, outputs_apart
from porter.comparison.side_by_side import COLOURS, LayerPair, drawn, page_of
from porter.comparison.sides import Side, SideProof, layer_names, side_of
from porter.files import path_of, write_whole
from porter.padding import ANY, KnownSize, Size
from porter.padding.sizes import parse_size, size_text
from porter.source.opened import Opened
from porter.source.place import InMemory
from porter.verification.numbers import FLOAT64_LIMIT
from porter.verification.results import Distance

Judged: TypeAlias = Literal["same", "differs", "undecided"]
_USUAL = 224, 224
"""What most networks take: two that state no size are run at it where pads are compared for every size."""
_SAME_OUTPUTS, _ROUNDED_OUTPUTS, _WRONG_OUTPUTS = 1e-9, 1e-4, 1e-3
"""Outputs in float64 no further apart show no difference, the second where weights were rounded to float32;
outputs in float32 further apart than the third are no rounding.
"""


@dataclass(frozen=True)
class Comparison:
    """What `porter.compare` finds.

    Attributes:
        verdict: `same`, `differs` or `undecided`.
        differences: all that were found, in the order of the first model's computation.
        parity: of the outputs of the graphs that were read, in float64; None where they were not run.
        layers: pairs of layers, and those that only one model has.
        size: rows and columns that were compared, `any` where pads are compared for every size.
        proofs: of each model's graph.
        notes: what a reader has to know.
        undecided: why nothing is decided.
    """

    a: str
    b: str
    verdict: Judged
    differences: tuple[FoundDifference, ...]
    parity: Distance | None
    layers: tuple[LayerPair, ...] = ()
    size: str = ""
    proofs: tuple[SideProof, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both models are the same function."""
        return self.verdict == "same"

    @property
    def only_a(self) -> tuple[str, ...]:
        return tuple(each.a for each in self.layers if each.a is not None and each.b is None)

    @property
    def only_b(self) -> tuple[str, ...]:
        return tuple(each.b for each in self.layers if each.b is not None and each.a is None)

    @property
    def summary(self) -> str:
        """The verdict in one line: `A and B differ: 3 differences`."""
        if self.verdict == "same":
            return f"A and B are the same function at {self.size}"
        if self.verdict == "undecided":
            return "undecided: " + "; ".join(self.undecided)
        if not self.differences:
            return "A and B differ: the outputs do"
        if all(difference.kind in ("weights", "bias") for difference in self.differences):
            layers = len({difference.pair for difference in self.differences})
            plural = "s" if layers > 1 else ""
            return f"A and B differ: the same graph, other weights at {layers} layer{plural}"
        count = len(self.differences)
        return f"A and B differ: {count} difference{'s' if count > 1 else ''}"

    def lines(self) -> list[str]:
        """Return the verdict, and each difference, in lines."""
        return [self.summary, *(f"  {each.kind:<13} {each.text}" for each in self.differences)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Show a notebook the verdict, the differences, and both models side by side."""
        proofs = [f"{name}: {proof.words}" for name, proof in zip("AB", self.proofs, strict=False)]
        verdict = self.summary, COLOURS[self.verdict]
        return drawn((self.a, self.b), verdict, self.differences, self.layers, (*proofs, *self.notes))

    def report(self, out: AnyPath) -> Path:
        """Write the same as a self-contained HTML page, and return its path."""
        path = Path(out)
        write_whole(path, page_of((self.a, self.b), self._repr_html_()))
        return path

    def record(self) -> dict[str, Any]:
        """Return the record that `porter compare --json` prints."""
        parity = None if self.parity is None else _finite(asdict(self.parity))
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "differences": [each.record() for each in self.differences],
            "nodes": {
                "paired": sum(None not in (each.a, each.b) for each in self.layers),
                "only_a": [*self.only_a],
                "only_b": [*self.only_b],
            },
            "parity": parity,
            "size": self.size,
            "proofs": [asdict(each) for each in self.proofs],
            "notes": [*self.notes],
            "undecided": [*self.undecided],
        }


def _finite(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with None for NaN and infinities, which JSON lacks."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


@takes(CompareOptions)
def compare(asked: CompareOptions) -> Comparison:
    """Compare two models and return whether they are the same function, and what differs if they are not.

    Each is opened as `convert` opens it, and its graph is proved against the model itself. Both graphs are
    brought to one normal form, aligned by structure and values, and compared layer by layer; pairs of layers
    are also run on the same numbers.

    Args:
        a, b: a file that carries its graph, a folder of the Hub, a port, `FILE.py:CALLABLE`, whose code is
            run, or a model in memory, each with its own weights.
        input_size: rows and columns at which they are compared: `224`, `(225, 201)`, or `any` to compare pads
            for every size. None for the size that one of them states.
        example: what modules of torch and Flax are exported with: a batch, or one for each input; None for
            zeros of the input size.
        tolerance: how far apart tensors may be, the largest difference in a filter over its largest number.
            None for 1e-12, which is rounding of float64, and 1e-6 where norms may have been folded before the
            weights were stored in float32.
        recipes: as `convert`.

    Raises:
        UsageError: an argument is wrong, or no size is known.
        FileError: a file is damaged.
    """
    size = None if asked.input_size is None else parse_size(asked.input_size)
    sides = side_of(asked.a, asked.example, "a"), side_of(asked.b, asked.example, "b")
    return _Comparing(sides, size, asked.tolerance, path_of(asked.recipes)).done()


@dataclass
class _Comparing:
    """Two models to be compared, and how.

    Attributes:
        unread: why a model's graph cannot be read, by its place: 0 for A, 1 for B.
    """

    sides: tuple[Side, Side]
    size: Size | None
    tolerance: float | None
    recipes: Path | None
    unread: dict[int, str] = field(default_factory=dict)

    def done(self) -> Comparison:
        """Open both models, prove each graph, and return the comparison; only outputs are compared where a
        graph cannot be read.
        """
        opened_a, opened_b = self._opened()
        if opened_a is None or opened_b is None:
            return self._at_outputs((opened_a, opened_b))
        size = self._common(opened_a, opened_b)
        opened = opened_a, opened_b
        proofs = tuple(side.prove(model, size) for side, model in zip(self.sides, opened, strict=True))
        names = self.sides[0].name, self.sides[1].name
        return judged(names, opened, proofs, size, self.size == ANY, self.tolerance)

    def _opened(self) -> tuple[Opened | None, Opened | None]:
        """Open both models and return them, None for one whose graph cannot be read; `unread` then has the
        reason. The model that states its own size is opened first, because the other one may need it.

        Raises:
            UsageError: no size is known.
        """
        opened: list[Opened | None] = [None, None]
        size = None if self.size == ANY else self.size
        for place in sorted((0, 1), key=lambda place: self.sides[place].needs_size):
            side = self.sides[place]
            if side.needs_size and size is None:
                usual_size = _USUAL if self.size == ANY else None
                sizes_of_opened = (model.sizes.built for model in opened if model is not None)
                size = next(sizes_of_opened, usual_size)
            if side.needs_size and size is None:
                raise UsageError(
                    f"{side.name} does not say the size of its input",
                    where=str(INPUT_SIZE),
                    next=f"add {INPUT_SIZE.placeholder}",
                )
            try:
                opened[place] = side.open(size, self.recipes)
            except (MappingError, UsageError, CannotRun) as error:
                # What a user typed wrongly is no graph that cannot be read.
                if not (isinstance(error, MappingError) or isinstance(side.place, InMemory)):
                    raise
                self.unread[place] = f"{'AB'[place]} cannot be read: {error}"
        return opened[0], opened[1]

    def _at_outputs(self, opened: tuple[Opened | None, Opened | None]) -> Comparison:
        """Compare only the outputs, where a graph of a model cannot be read, and return the comparison: it
        differs if the outputs do, and is otherwise undecided.
        """
        names, unread = (self.sides[0].name, self.sides[1].name), tuple(self.unread.values())
        asked = self.size if self.size != ANY else None
        rows, columns = asked or next((each.sizes.built for each in opened if each is not None), (None, None))
        if rows is None or columns is None:
            return Comparison(
                *names, "undecided", (), None, undecided=(*unread, f"add {INPUT_SIZE.placeholder}")
            )
        parity, why = outputs_only(self.sides, opened, (rows, columns))
        size = size_text((rows, columns))
        # not `>`, because NaN is a difference too
        if parity is not None and not parity.rel_l2 <= _WRONG_OUTPUTS:
            text = f"the outputs are {parity.rel_l2:.1e} apart (relative L2)"
            difference = FoundDifference("operator", None, None, text, parity.rel_l2)
            return Comparison(*names, "differs", (difference,), parity, size=size, notes=unread)
        outputs_note = () if parity is None else (f"the outputs are {parity.rel_l2:.1e} apart",)
        return Comparison(
            *names, "undecided", (), parity, size=size, undecided=(*unread, *([why] if why else outputs_note))
        )

    def _common(self, opened_a: Opened, opened_b: Opened) -> KnownSize:
        """Return the size at which both are compared: the one that was asked for, otherwise one that a model
        is bound to or was built for.

        Raises:
            UsageError: there is none that both take.
        """
        asked = None if self.size in (None, ANY) else self.size
        # `only`: the one size that a model takes; `built`: the size that its graph or its recipe states.
        rows, columns = (
            asked
            or opened_a.sizes.only
            or opened_b.sizes.only
            or opened_a.built_size
            or opened_b.built_size
            or opened_a.sizes.built
        )
        assert rows is not None and columns is not None
        for opened in (opened_a, opened_b):
            opened.sizes.expect((rows, columns))
        return rows, columns


def judged(
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
    # A second size, whose maps have other lengths, if pads are compared for every size.
    sizes = [size, (size[0] + 33, size[1] + 18)] if every else [size]
    try:
        at_sizes = [
            Differences(_aligned(opened, compared_size), ANY if every else size, tolerance)
            for compared_size in sizes
        ]
    except (GraphError, MappingError) as error:
        return Comparison(*names, "undecided", (), None, proofs=proofs, notes=notes, undecided=(str(error),))
    first = at_sizes[0]
    differences, rounded = _found(at_sizes)
    differences += _stated(*opened)
    try:
        distances, parity = _run(first.pairing, sizes, differences)
    except (NotInstalled, CannotRun, GraphError, PaddingError) as error:
        distances, parity = {}, None
        open_questions.append(f"the layers were not run: {error}")
    differences = [_confirmed(difference, distances) for difference in differences]
    differences += _unexplained(first, differences, distances)
    verdict, why = _judge(differences, parity, open_questions, bool(rounded))
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


def _stated(opened_a: Opened, opened_b: Opened) -> Iterator[FoundDifference]:
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


def _judge(
    differences: list[FoundDifference],
    parity: Distance | None,
    open_questions: list[str],
    rounded: bool = False,
) -> tuple[Judged, tuple[str, ...]]:
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

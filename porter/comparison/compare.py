"""Compares two models: the same function, or what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

from porter.base.commands import CompareOptions, takes
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
from porter.comparison.differing import ROUNDED, Differences, FoundDifference, Kind
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
        """Return the verdict in one line."""
        if self.verdict == "same":
            return f"A and B are the same function at {self.size}"
        layers = len({each.pair for each in self.differences})
        if self.verdict == "undecided":
            return "undecided: " + "; ".join(self.undecided)
        if self.differences and all(each.kind in ("weights", "bias") for each in self.differences):
            return f"A and B differ: the same graph, other weights at {layers} layer{'s' * (layers > 1)}"
        count = len(self.differences)
        return (
            f"A and B differ: {count} difference{'s' * (count > 1)}"
            if count
            else "A and B differ: the outputs do"
        )

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
    sides: tuple[Side, Side]
    size: Size | None
    tolerance: float | None
    recipes: Path | None
    unread: dict[int, str] = field(default_factory=dict)

    def done(self) -> Comparison:
        """Open both models, prove each graph, and return the comparison; only outputs are compared where a
        graph cannot be read.
        """
        one, other = self._opened()
        if one is None or other is None:
            return self._at_outputs((one, other))
        size = self._common(one, other)
        proofs = tuple(side.prove(each, size) for side, each in zip(self.sides, (one, other), strict=True))
        names = self.sides[0].name, self.sides[1].name
        return judged(names, (one, other), proofs, size, self.size == ANY, self.tolerance)

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
                usual = _USUAL if self.size == ANY else None
                size = next((each.sizes.built for each in opened if each is not None), usual)
            if side.needs_size and size is None:
                raise UsageError(
                    f"{side.name} does not say the size of its input",
                    where=str(INPUT_SIZE),
                    next=f"add {INPUT_SIZE.placeholder}",
                )
            try:
                opened[place] = side.open(size, self.recipes)
            except (MappingError, UsageError, CannotRun) as error:
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
            found = FoundDifference("operator", None, None, text, parity.rel_l2)
            return Comparison(*names, "differs", (found,), parity, size=size, notes=unread)
        near = () if parity is None else (f"the outputs are {parity.rel_l2:.1e} apart",)
        return Comparison(
            *names, "undecided", (), parity, size=size, undecided=(*unread, *([why] if why else near))
        )

    def _common(self, one: Opened, other: Opened) -> KnownSize:
        """Return the size at which both are compared: the one that was asked for, otherwise one that a model
        is bound to or was built for.

        Raises:
            UsageError: there is none that both take.
        """
        asked = None if self.size in (None, ANY) else self.size
        wanted = (
            [asked]
            if asked
            else [
                *filter(None, (one.sizes.only, other.sizes.only, one.built_size, other.built_size)),
                one.sizes.built,
            ]
        )
        rows, columns = wanted[0]
        assert rows is not None and columns is not None
        for each in (one, other):
            each.sizes.expect((rows, columns))
        return rows, columns


def judged(
    names: tuple[str, str],
    opened: tuple[Opened, Opened],
    proofs: tuple[SideProof, ...],
    size: KnownSize,
    every: bool = False,
    tolerance: float | None = None,
) -> Comparison:
    """Judge two models whose graphs were read, and return the comparison.

    Args:
        names: what the user calls each.
        opened: the graphs and tensors.
        proofs: of each graph, that it is its model's.
        size: rows and columns of the input.
        every: pads are compared for every size.
        tolerance: as in `compare`.
    """
    notes = tuple(_notes(*opened))
    open_ = list[str]()
    for name, proof in zip("AB", proofs, strict=True):
        open_ += [] if proof.holds else [f"{name} is not proved: {proof.words}"]
    # With `every`, a second size, whose maps have other lengths.
    found, sizes = list[Differences](), (size, (size[0] + 33, size[1] + 18))[: 1 + every]
    try:
        for each in sizes:
            one, other = (normal_form(side.graph, side.tensors, each, layer_names(side)) for side in opened)
            found.append(Differences(align(one, other), ANY if every else size, tolerance))
    except (GraphError, MappingError) as error:
        return Comparison(*names, "undecided", (), None, proofs=proofs, notes=notes, undecided=(str(error),))
    differing = found[0]
    pairing, differences = differing.pairing, differing.all()
    for more in found[1:]:
        seen = {(each.kind, each.pair) for each in differences}
        differences += [each for each in more.all() if (each.kind, each.pair) not in seen]
    differences += _stated(*opened)
    if rounded := differing.rounded:
        said = (
            f"{len(rounded)} layer{'s are' if len(rounded) > 1 else ' is'} equal to rounding to float32 only"
        )
        notes += (f"{said}, at most {max(rounded.values()):.1e} apart: norms may be folded there",)
    try:
        layers, parity = _run(pairing, sizes, differences)
    except (NotInstalled, CannotRun, GraphError, PaddingError) as error:
        layers, parity = {}, None
        open_.append(f"the layers were not run: {error}")
    differences = [_confirmed(each, layers) for each in differences]
    differences += _unexplained(differing, differences, layers)
    verdict, why = _judge(differences, parity, open_, bool(differing.rounded))
    said = (
        f"any size: pads at every one, the rest at {' and '.join(map(size_text, sizes))}"
        if every
        else size_text(size)
    )
    shown = _layers(pairing, layers)
    return Comparison(*names, verdict, tuple(differences), parity, shown, said, proofs, notes, why)


def _run(
    pairing: Pairing, sizes: Sequence[KnownSize], differences: list[FoundDifference]
) -> tuple[dict[tuple[str, str], float], Distance | None]:
    """Return how far apart pairs of units are on the same numbers (by their paths), and how far the outputs
    are on images; None for outputs that cannot be compared.
    """
    pairs = [*pairing.pairs.items()]
    # differing units that the alignment did not pair
    pairs += [(a, b) for each in differences for a, b in [each.pair] if a and b and (a, b) not in pairs]
    models = builds(pairing)
    return on_the_same(pairing, models, sizes[0], pairs), outputs_apart(pairing, models, sizes)


def _notes(one: Opened, other: Opened) -> Iterator[str]:
    """Yield what two models say about how photos are prepared, if they say different things. It does not
    change their functions.
    """
    photos = [each.facts.preprocess for each in (one, other)]
    if None not in photos and photos[0] != photos[1]:
        yield "A and B state other preprocessing of photos, which is not in their graphs"


def _stated(one: Opened, other: Opened) -> Iterator[FoundDifference]:
    """Yield what differs beside the graphs: the activation after the outputs and the row of a background
    class, which are taken off, and the names of classes, where both models state them.
    """
    endings = [each.facts.activation for each in (one, other)]
    if endings[0] != endings[1]:
        kind: Kind = "activation" if all(endings) else "missing" if endings[0] else "extra"
        said = [f"ends in a {ending}" if ending else "in none" for ending in endings]
        yield FoundDifference(kind, None, None, f"A {said[0]}, B {said[1]}; what comes before it is compared")
    rows = [each.facts.source_classes for each in (one, other)]
    made = "port" in (one.file.format, other.file.format)  # its source has the rows that it lacks
    if rows[0] != rows[1] and one.facts.classes == other.facts.classes and not made:
        more = "A" if rows[0] > rows[1] else "B"
        text = (
            f"A has {rows[0]} rows, B {rows[1]}: the first of {more} is a background class, which is left out"
        )
        yield FoundDifference("labels", None, None, text)
    names = [each.facts.class_names for each in (one, other)]
    if all(names) and names[0] != names[1]:
        pairs = enumerate(zip_longest(*names))
        place, said = next((at, [f"{name!r}" for name in pair]) for at, pair in pairs if pair[0] != pair[1])
        yield FoundDifference("labels", None, None, f"class {place} is {said[0]} in A, {said[1]} in B")


def _confirmed(found: FoundDifference, layers: Mapping[tuple[str, str], float]) -> FoundDifference:
    """Return a difference with the distance of its layers on the same numbers, if it is of two layers."""
    a, b = found.pair
    return replace(found, apart=layers.get((a, b))) if a is not None and b is not None else found


def _unexplained(
    differing: Differences, differences: list[FoundDifference], layers: Mapping[tuple[str, str], float]
) -> list[FoundDifference]:
    """Return a difference for each pair in which nothing was found and which gives other values for the same
    numbers.

    Args:
        layers: by pair of paths, how far apart they are on the same numbers.
    """
    known, pairing = {each.pair for each in differences}, differing.pairing
    limit = max(FLOAT64_LIMIT, 10 * (ROUNDED if differing.tolerance is None else differing.tolerance))
    found = []
    for pair, apart in layers.items():
        mine, its = pairing.one.units[pair[0]], pairing.other.units[pair[1]]
        # not `>`, because NaN is a difference too
        if pair not in known and not apart <= limit and not (known and differing.is_split(mine, its)):
            text = f"{mine.name}: A and B give other values for the same numbers ({apart:.1e} apart)"
            found.append(FoundDifference("operator", mine.name, its.name, text, apart, pair))
    return found


def _judge(
    differences: list[FoundDifference], parity: Distance | None, open_: list[str], rounded: bool = False
) -> tuple[Judged, tuple[str, ...]]:
    """Return the verdict, and why it is undecided, which is empty otherwise. Differences in layers that no
    output shows leave it undecided, and so do equal graphs with other outputs.

    Args:
        differences: those of layers. One whose `pair` is (None, None) is of the whole models, such as
            another number of outputs.
        parity: how far the outputs are apart; None if they were not run.
        open_: reasons that leave the verdict undecided, whatever else is known.
        rounded: some layers' weights are equal only after rounding to float32, so the outputs may be as far
            apart as float32 rounds.
    """
    if not differences:
        if parity is not None and not parity.rel_l2 <= _ROUNDED_OUTPUTS:
            open_ = [*open_, f"the graphs are equal, and their outputs are {parity.rel_l2:.1e} apart"]
        elif parity is None and not open_:
            open_ = ["the outputs were not run"]
        return ("undecided", tuple(open_)) if open_ else ("same", ())
    near = parity is not None and parity.rel_l2 <= (_ROUNDED_OUTPUTS if rounded else _SAME_OUTPUTS)
    if near and not any(each.pair == (None, None) for each in differences):
        open_ = [*open_, "the layers differ, and the outputs do not on any image that was tried"]
    return ("undecided", tuple(open_)) if open_ else ("differs", ())


def _layers(pairing: Pairing, layers: Mapping[tuple[str, str], float]) -> tuple[LayerPair, ...]:
    """Return all units in the first model's order; those that only the second has follow what they follow
    there.

    Args:
        layers: by pair of paths, how far apart they are on the same numbers.
    """
    one, other = pairing.one.units, pairing.other.units
    after: dict[str | None, list[LayerPair]] = {}
    last: str | None = None
    for path, unit in other.items():
        last = last if path in pairing.only_other else path
        after.setdefault(last, [])
        if path in pairing.only_other:
            after[last].append(LayerPair(None, unit.name, unit.kind, None, (None, path)))
    # those before the second model's first pair
    shown = after.get(None, [])
    for path, unit in one.items():
        its = pairing.pairs.get(path)
        name = None if its is None else other[its].name
        apart = None if its is None else layers.get((path, its))
        shown += [
            LayerPair(unit.name, name, unit.kind, apart, (path, its)),
            *(after.get(its, []) if its is not None else []),
        ]
    return tuple(shown)

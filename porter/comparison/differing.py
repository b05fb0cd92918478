"""What differs between two aligned normal forms: in their paired units, wires and outputs, and what only one
of them has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from porter.comparison.aligning import Pairing
from porter.comparison.closeness import (
    EXACT,
    ROUNDED,
    distance,
    equal_values,
    row_distance,
)
from porter.comparison.difference_words import (
    input_change_words,
    names_of_pair,
    number_words,
    pads_words,
    unit_words,
)
from porter.comparison.found_difference import Finding, FoundDifference, Kind
from porter.comparison.normal_form import NormalForm
from porter.comparison.tensor_reasons import TensorReasons, is_norm, same_node
from porter.comparison.unit import COMMUTATIVE, LINEAR, Unit
from porter.graph import INPUT, nonnegative_paths
from porter.graph.ops.activations import ACTIVATIONS
from porter.padding import Site, Size, same_function
from porter.verification.results import severity


class FoundInPairing(NamedTuple):
    """What differs, and the layers whose tensors are equal to rounding only, with how far apart they are."""

    differences: list[FoundDifference]
    rounded: Mapping[str, float]


@dataclass(frozen=True)
class Differences:
    """Finds what differs in a pairing.

    Attributes:
        size: at which pads are compared; ANY for every size.
        tolerance: how far apart tensors may be; None for EXACT and ROUNDED.
    """

    pairing: Pairing
    size: Size
    tolerance: float | None = None

    @property
    def reasons(self) -> TensorReasons:
        """What finds why tensors differ."""
        return TensorReasons(self.pairing)

    def find(self) -> FoundInPairing:
        """Return all differences, in the order of the first model's computation. What only the second has
        stands behind the pair that it follows there, and outputs come last.
        """
        pairing, rounded = self.pairing, dict[str, float]()
        # by the place in the first model's order, and the place among what follows that
        placed = list[tuple[tuple[float, int], FoundDifference]]()
        form_a, form_b = pairing.form_a, pairing.form_b
        places = {path: place for place, path in enumerate(form_a.units)}
        for path_a, path_b in pairing.pairs.items():
            unit_a, unit_b = form_a.units[path_a], form_b.units[path_b]
            findings, rounding = self._of_pair(unit_a, unit_b)
            if rounding is not None:
                rounded[unit_a.name] = rounding
            for kind, where, text in (*findings, *self._wires(unit_a, unit_b)):
                pair = FoundDifference(
                    kind, unit_a.name, unit_b.name, f"{where}: {text}", None, (path_a, path_b)
                )
                placed.append(((places[path_a], 0), pair))
        for path in pairing.only_a:
            if not self._displaced(form_a.units[path], form_a, form_b):
                placed.append(((places[path], 0), self._alone(form_a.units[path], None)))
        paths_a = {path_b: path_a for path_a, path_b in pairing.pairs.items()}
        place, rank = -1, 0
        for path in form_b.units:
            place, rank = (places[paths_a[path]], 0) if path in paths_a else (place, rank + 1)
            if path in pairing.only_b and not self._displaced(form_b.units[path], form_b, form_a):
                placed.append(((place, rank), self._alone(None, form_b.units[path])))
        placed += [((math.inf, 0), difference) for difference in self._outputs()]
        return FoundInPairing([difference for _, difference in sorted(placed, key=itemgetter(0))], rounded)

    def _alone(self, unit_a: Unit | None, unit_b: Unit | None) -> FoundDifference:
        """Return the difference that one model has a unit which the other lacks. A scale, or another order of
        channels, that reads the model's input is one of preprocessing.

        Args:
            unit_a: the unit of the first model, or None.
            unit_b: that of the second, or None.
        """
        unit = unit_a or unit_b
        assert unit is not None
        has, lacks = ("A", "B") if unit_b is None else ("B", "A")
        pair = None if unit_a is None else unit_a.path, None if unit_b is None else unit_b.path
        names = None if unit_a is None else unit_a.name, None if unit_b is None else unit_b.name
        if unit.inputs == (INPUT,) and unit.kind in ("scale", "slice_channels"):
            changes = " and ".join(map(input_change_words, unit.nodes))
            return FoundDifference(
                "preprocessing", *names, f"{has}'s input is {changes}, {lacks}'s is not", None, pair
            )
        kind: Kind = "missing" if unit_b is None else "extra"
        return FoundDifference(kind, *names, f"{lacks} lacks {unit.name} ({unit_words(unit)})", None, pair)

    def _displaced(self, unit: Unit, form: NormalForm, elsewhere: NormalForm) -> bool:
        """Return whether a unit that only one model has consists of norms which the other model has inside
        its layers, because nothing lies between the layer and the norm there. Then it is no difference of
        its own: what lies between is reported.

        Args:
            form: the unit's own form.
            elsewhere: the other model's.
        """
        norms = [node for each in elsewhere.units.values() if each.kind in LINEAR for node in each.nodes]
        return unit.kind == "scale" and all(
            any(same_node(node, form, norm, elsewhere) for norm in norms) for node in unit.nodes
        )

    def _read(
        self, paths_a: tuple[str, ...], paths_b: tuple[str, ...]
    ) -> tuple[list[str], list[str], list[str]]:
        """Return three lists of paths: the values that a unit of A reads, past units that only A has; the
        same for B; and B's partners of the first list, which the second list has to equal.

        Args:
            paths_a: what the unit of A reads.
            paths_b: what that of B reads.
        """
        pairing = self.pairing
        pairs = {**pairing.inputs, **pairing.pairs}
        read_a = [_paired_above(pairing.form_a, path, pairs) for path in paths_a]
        read_b = [_paired_above(pairing.form_b, path, {*pairs.values()}) for path in paths_b]
        return read_a, read_b, [pairs.get(path, path) for path in read_a]

    def _wires(self, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield a difference where two paired units are wired otherwise: they read values that are no pairs,
        or pairs in another order.
        """
        read_a, read_b, expected_b = self._read(unit_a.inputs, unit_b.inputs)
        is_other_order = sorted(expected_b) == sorted(read_b)
        if expected_b == read_b or (is_other_order and unit_a.kind in COMMUTATIVE):
            return
        names_a = ", ".join(map(self.pairing.form_a.name_of, read_a))
        names_b = ", ".join(map(self.pairing.form_b.name_of, read_b))
        kind: Kind = "order" if is_other_order else "operator"
        yield kind, names_of_pair(unit_a.name, unit_b.name), f"A reads {names_a}, B {names_b}"

    @property
    def _forms(self) -> tuple[NormalForm, NormalForm]:
        return self.pairing.form_a, self.pairing.form_b

    def _outputs(self) -> Iterator[FoundDifference]:
        """Yield a difference where the outputs are no pairs, or stand in another order."""
        form_a, form_b = self._forms
        _, outputs_b, expected_b = self._read(form_a.outputs, form_b.outputs)
        if expected_b != outputs_b:
            names = [", ".join(map(form.name_of, form.outputs)) for form in self._forms]
            kind: Kind = "order" if sorted(expected_b) == sorted(outputs_b) else "operator"
            pair = form_a.outputs[0], form_b.outputs[0]
            yield FoundDifference(kind, None, None, f"A gives {names[0]}, B {names[1]}", None, pair)

    def _of_pair(self, unit_a: Unit, unit_b: Unit) -> tuple[list[Finding], float | None]:
        """Return the differences of two paired units, and how far apart their tensors are if they are equal
        to rounding only. Units of other kinds have only that difference.

        Args:
            unit_a, unit_b: the units of both models.
        """
        where = names_of_pair(unit_a.name, unit_b.name)
        if unit_a.kind != unit_b.kind:
            kind: Kind = "activation" if {unit_a.kind, unit_b.kind} <= ACTIVATIONS else "operator"
            return [(kind, where, f"A has {unit_words(unit_a)}, B {unit_words(unit_b)}")], None
        findings = [*self._windows(where, unit_a, unit_b)] if "convention" in unit_a.says else []
        for name, value_a in unit_a.says.items():
            value_b = unit_b.says.get(name)
            # Windows and their pads were compared above.
            if name in ("window", "convention") or equal_values(value_a, value_b):
                continue
            if name in ("filters", "units") and (rows := _some_rows(unit_a, unit_b)):
                return [*findings, ("labels", where, rows)], None
            change = f"{name} {number_words(value_a)}, {number_words(value_b)}"
            if name == "cells":
                change = "B moves the cells otherwise"
            findings.append((_of_attribute(unit_a, name), where, change))
        of_tensors, rounding = self._tensors(where, unit_a, unit_b)
        return [*findings, *of_tensors], rounding

    def _windows(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield the differences of two windows: in kernel, stride or dilation, otherwise in pads, where
        these are not the same function at the compared sizes.

        Args:
            where: the layer's name, for the difference.
            unit_a, unit_b: the units of both models.
        """
        kind: Any = unit_a.kind
        # A site is an op's kind with its window and its convention of pads.
        sites = [Site(kind, unit.says["window"], unit.says["convention"]) for unit in (unit_a, unit_b)]
        site_a, site_b = sites
        for name in ("kernel", "stride", "dilation"):
            geometry = [getattr(site.window, name) for site in sites]
            if geometry[0] != geometry[1]:
                sizes = ["x".join(map(str, numbers)) for numbers in geometry]
                yield "operator", where, f"{name} {sizes[0]}, {sizes[1]}"
        if site_a.window != site_b.window:
            return
        form = self.pairing.form_a
        input_path = unit_a.nodes[0].source
        _, rows, columns = form.shapes[input_path]
        size: Size = (None, None) if None in self.size else (rows, columns)
        # Where no value is negative, pads of 0 are pads of -inf for a max pool.
        nonnegative = input_path in nonnegative_paths(form.graph)
        if site_a != site_b and not same_function(site_a, site_b.convention, size, nonnegative):
            pads = [pads_words(site, (rows or 1, columns or 1)) for site in sites]
            if pads[0] == pads[1]:
                pads = [f"{text} ({site})" for text, site in zip(pads, sites, strict=True)]
            yield "padding", where, f"A {pads[0]}, B {pads[1]}"

    def _tensors(self, where: str, unit_a: Unit, unit_b: Unit) -> tuple[Iterable[Finding], float | None]:
        """Return the differences between the tensors of two paired units: other shapes, or values that are
        further apart than the limit allows, with the reason if one is known; none for equal tensors. And how
        far apart they are if they are only rounded otherwise, else None.

        Args:
            where: the layer's name, for the difference.
            unit_a, unit_b: the units of both models.
        """
        if not unit_a.tensors or self.reasons.are_stored_alike(unit_a, unit_b):
            return (), None
        shapes = [{role: array.shape for role, array in unit.tensors.items()} for unit in (unit_a, unit_b)]
        if shapes[0] != shapes[1]:
            # Units whose ops differ are reported elsewhere, and their shapes follow from that.
            if unit_a.says != unit_b.says:
                return (), None
            words = [
                ", ".join(f"{role} {'x'.join(map(str, shape))}" for role, shape in roles.items())
                for roles in shapes
            ]
            return [("weights", where, f"A's tensors are {words[0]}, B's {words[1]}")], None
        distances = {role: distance(unit_a, unit_b, role) for role in unit_a.tensors}
        limit = self._limit(unit_a, unit_b)
        farthest = max(map(severity, distances.values()))
        too_far = {role: apart for role, apart in distances.items() if apart > limit}
        if too_far:
            return self.reasons.why(where, unit_a, unit_b, too_far), None
        return (), farthest if farthest > EXACT else None

    def _limit(self, unit_a: Unit, unit_b: Unit) -> float:
        """Return how far apart the tensors of two units may be: the user's tolerance, otherwise rounding of
        float64, or of float32 where norms may have been folded into the stored kernel.
        """
        if self.tolerance is not None:
            return self.tolerance
        layers_a, layers_b = (
            [(type(node.op), getattr(node.op, "bias", None)) for node in unit.nodes]
            for unit in (unit_a, unit_b)
        )
        # A layer with a bias and without a norm may have taken one in.
        has_bias = unit_a.kind in LINEAR and bool(unit_a.tensors["bias"].any())
        may_be_folded = has_bias and not any(map(is_norm, unit_a.nodes))
        return ROUNDED if may_be_folded or layers_a != layers_b else EXACT


def _paired_above(form: NormalForm, path: str, pairs: Collection[str]) -> str:
    """Return the path of the nearest value that has a pair: that of `path`, or of the first unit before it,
    along first inputs; the graph's input if none has.
    """
    while path in form.units and path not in pairs:
        path = form.units[path].inputs[0]
    return path


def _of_attribute(unit: Unit, name: str) -> Kind:
    """Return the kind of the difference that two units have in the attribute `name`, such as `epsilon`."""
    if unit.kind in ACTIVATIONS:
        return "activation"
    if unit.kind == "move":
        return "order"
    if name == "epsilon":
        return "epsilon"
    return "scale" if name == "scale" else "operator"


def _some_rows(unit_a: Unit, unit_b: Unit) -> str | None:
    """Return in words that one model's head has all rows of the other's and more, and at which label the
    others begin there; None if the rows are others.
    """
    kernel_a, kernel_b = unit_a.tensors["kernel"], unit_b.tensors["kernel"]
    if kernel_a.shape[1:] != kernel_b.shape[1:]:
        return None
    (more, has), (less, lacks) = sorted(((kernel_a, "A"), (kernel_b, "B")), key=lambda side: -len(side[0]))
    # `first`: the label in the larger head at which the smaller one would begin.
    for first in range(len(more) - len(less) + 1):
        if row_distance(more[first : first + len(less)], less) <= ROUNDED:
            return f"{has} has {len(more)} rows, {lacks} {len(less)}: {lacks}'s label 0 is {has}'s {first}"
    return None

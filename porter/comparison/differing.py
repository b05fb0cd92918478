"""What differs between two paired units, in words, and what only one of two normal forms has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.comparison.aligning import Pairing
from porter.comparison.closeness import (
    EXACT,
    ROUNDED,
    common_factor,
    distance,
    equal_attributes,
    equal_values,
    half_type_of,
    order_of_parts,
    ratios_of_filters,
    row_distance,
)
from porter.comparison.difference_words import (
    input_change_words,
    input_difference_words,
    names_of_pair,
    number_words,
    order_words,
    pads_words,
    unit_words,
)
from porter.comparison.found_difference import Finding, FoundDifference, Kind
from porter.comparison.normal_form import COMMUTATIVE, LINEAR, NormalForm, Unit
from porter.graph import INPUT, Node, nonnegative_paths, ops
from porter.graph.ops import OPS, activations
from porter.padding import Site, Size, same_function

_ACTIVATIONS = {name for name, op in OPS.items() if op.__module__ == activations.__name__}


@dataclass(frozen=True)
class Differences:
    """Finds what differs in a pairing.

    Attributes:
        size: at which pads are compared; None for every size.
        tolerance: how far apart tensors may be; None for EXACT and ROUNDED.
        rounded: layers whose tensors are equal to rounding only, with how far apart they are; known after
            `all`.
    """

    pairing: Pairing
    size: Size
    tolerance: float | None = None
    rounded: dict[str, float] = field(default_factory=dict)

    def all(self) -> list[FoundDifference]:
        """Return all differences, in the order of the first model's computation. What only the second has
        stands behind the pair that it follows there, and outputs come last.
        """
        pairing, placed = self.pairing, list[tuple[float, FoundDifference]]()
        form_a, form_b = pairing.form_a, pairing.form_b
        places = {path: float(place) for place, path in enumerate(form_a.units)}
        paths_a = {path_b: path_a for path_a, path_b in pairing.pairs.items()}
        for path_a, path_b in pairing.pairs.items():
            unit_a, unit_b = form_a.units[path_a], form_b.units[path_b]
            for kind, where, text in (*self.of_pair(unit_a, unit_b), *self._wires(unit_a, unit_b)):
                pair = FoundDifference(
                    kind, unit_a.name, unit_b.name, f"{where}: {text}", None, (path_a, path_b)
                )
                placed.append((places[path_a], pair))
        for path in pairing.only_a:
            if not self._displaced(form_a.units[path], form_a, form_b):
                placed.append((places[path], self._alone(form_a.units[path], None)))
        place_b = -1.0
        for path in form_b.units:
            # a step that is smaller than any between places
            place_b = places[paths_a[path]] if path in paths_a else place_b + 1e-6
            if path in pairing.only_b and not self._displaced(form_b.units[path], form_b, form_a):
                placed.append((place_b, self._alone(None, form_b.units[path])))
        placed += [(math.inf, difference) for difference in self._outputs()]
        return [difference for _, difference in sorted(placed, key=lambda pair: pair[0])]

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
            any(_same_node(node, form, norm, elsewhere) for norm in norms) for node in unit.nodes
        )

    def is_split(self, unit_a: Unit, unit_b: Unit) -> bool:
        """Return whether two layers differ only because one of them has taken in a norm or scale that stands
        behind something else in the other model, so that the layers alone are the same.

        Args:
            unit_a, unit_b: the units of both models.
        """
        pairing = self.pairing
        form_a, form_b = pairing.form_a, pairing.form_b
        norms_a, norms_b = ([node for node in unit.nodes if _is_scale(node)] for unit in (unit_a, unit_b))
        if len(norms_a) == len(norms_b):
            return False
        if not _same_kernel(self._raw(form_a, unit_a), self._raw(form_b, unit_b)):
            return False
        # The last norm of the unit that has more is looked for among the unpaired units of the other model.
        if len(norms_a) > len(norms_b):
            norm, form, elsewhere, unpaired = norms_a[-1], form_a, form_b, pairing.only_b
        else:
            norm, form, elsewhere, unpaired = norms_b[-1], form_b, form_a, pairing.only_a
        return any(
            _same_node(norm, form, node, elsewhere)
            for path in unpaired
            for node in elsewhere.units[path].nodes
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

    def of_pair(self, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield the differences of two paired units. Units of other kinds have only that one.

        Args:
            unit_a, unit_b: the units of both models.
        """
        where = names_of_pair(unit_a.name, unit_b.name)
        if unit_a.kind != unit_b.kind:
            are_activations = {unit_a.kind, unit_b.kind} <= _ACTIVATIONS
            yield (
                "activation" if are_activations else "operator",
                where,
                f"A has {unit_words(unit_a)}, B {unit_words(unit_b)}",
            )
            return
        if "convention" in unit_a.says:
            yield from self._windows(where, unit_a, unit_b)
        for name, value_a in unit_a.says.items():
            value_b = unit_b.says.get(name)
            # Windows and their pads were compared above.
            if name not in ("window", "convention") and not equal_values(value_a, value_b):
                is_number_of_rows = name in ("filters", "units")
                if is_number_of_rows and (rows := _some_rows(unit_a, unit_b)):
                    yield "labels", where, rows
                    return
                change = (
                    "B moves the cells otherwise"
                    if name == "cells"
                    else f"{name} {number_words(value_a)}, {number_words(value_b)}"
                )
                yield _of_attribute(unit_a, name), where, change
        yield from self._tensors(where, unit_a, unit_b)

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
                yield "operator", where, f"{name} {_pair(geometry[0])}, {_pair(geometry[1])}"
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

    def _tensors(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield the differences between the tensors of two paired units: other shapes, or values that are
        further apart than the limit allows, with the reason if one is known. Yield none for equal tensors;
        values that are only rounded otherwise are noted in `rounded`.

        Args:
            where: the layer's name, for the difference.
            unit_a, unit_b: the units of both models.
        """
        if not unit_a.tensors or self._raw_equal(unit_a, unit_b):
            return
        shapes = [{role: array.shape for role, array in unit.tensors.items()} for unit in (unit_a, unit_b)]
        if shapes[0] != shapes[1]:
            # Units whose ops differ are reported elsewhere, and their shapes follow from that.
            if unit_a.says == unit_b.says:
                yield "weights", where, f"A's tensors are {_shapes(shapes[0])}, B's {_shapes(shapes[1])}"
            return
        distances = {role: distance(unit_a, unit_b, role) for role in unit_a.tensors}
        too_far = {role: apart for role, apart in distances.items() if apart > self.limit(unit_a, unit_b)}
        if too_far:
            yield from self._why(where, unit_a, unit_b, too_far)
        elif max(distances.values()) > EXACT:
            self.rounded[unit_a.name] = max(distances.values())

    def limit(self, unit_a: Unit, unit_b: Unit) -> float:
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
        may_be_folded = has_bias and not any(map(_is_norm, unit_a.nodes))
        return ROUNDED if may_be_folded or layers_a != layers_b else EXACT

    def _raw(self, form: NormalForm, unit: Unit) -> list[tuple[Node, Mapping[str, Any]]]:
        """Return the nodes that a unit is made of, with their tensors as they are stored."""
        return [(node, form.tensors.get(node.holder, {})) for node in unit.nodes]

    def _raw_equal(self, unit_a: Unit, unit_b: Unit) -> bool:
        """Return whether two units are made of the same nodes with the same numbers."""
        return len(unit_a.nodes) == len(unit_b.nodes) and all(
            _same_node(node_a, self.pairing.form_a, node_b, self.pairing.form_b)
            for node_a, node_b in zip(unit_a.nodes, unit_b.nodes, strict=True)
        )

    def _why(
        self, where: str, unit_a: Unit, unit_b: Unit, distances: Mapping[str, float]
    ) -> Iterator[Finding]:
        """Yield the reason why tensors differ: the first of the known ones that explains all of it,
        otherwise that the bias or the numbers are others. Yield none where a norm only stands elsewhere
        (`is_split`).

        Args:
            distances: by role, how far apart the tensors are.
        """
        if self.is_split(unit_a, unit_b):
            return
        reasons = (self._on_input, self._in_order, self._by_parts, self._of_epsilon, self._by_factor)
        for reason in reasons:
            if findings := [*reason(where, unit_a, unit_b)]:
                yield from findings
                return
        roles = ", ".join(f"{role} {distance:.1e}" for role, distance in distances.items())
        if {*distances} <= {"bias", "beta"}:
            role = next(iter(distances))
            text = f"another bias ({roles} apart)"
            # a bias of zeros
            for name, unit in (("B", unit_b), ("A", unit_a)):
                if not unit.tensors[role].any():
                    text = f"{name} lacks the bias"
            yield "bias", where, text
        else:
            is_scale = unit_a.kind == "scale" and not any(map(_is_norm, unit_a.nodes))
            kind: Kind = "scale" if is_scale else "weights"
            yield kind, where, f"other numbers ({roles} apart)"

    def _on_input(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield a difference in what the two models do to their input before the first layer, such as
        `divided by 255`, where it is in the layer's tensors and the layer itself is the same.

        Args:
            unit_a, unit_b: the units of both models.
        """
        scales = [[node for node in unit.nodes if _scales_input(node, unit)] for unit in (unit_a, unit_b)]
        if not any(scales) or not _same_kernel(
            self._raw(self.pairing.form_a, unit_a), self._raw(self.pairing.form_b, unit_b)
        ):
            return
        changes = [" and ".join(map(input_change_words, nodes)) for nodes in scales]
        if changes[0] != changes[1]:
            yield "preprocessing", where, input_difference_words(*changes)

    def _by_parts(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield the differences of the layers and norms that units are made of, one by one, where both
        models have them; or that one lacks a norm.

        Args:
            where: the name of the whole unit.
            unit_a, unit_b: the units of both models.
        """
        parts_a, parts_b = self._raw(self.pairing.form_a, unit_a), self._raw(self.pairing.form_b, unit_b)
        norms = [[each for each in raw if _is_norm(each[0])] for raw in (parts_a, parts_b)]
        if len(norms[0]) != len(norms[1]) and _same_kernel(parts_a, parts_b):
            # the model that has more norms: 0 for A, 1 for B
            side = 0 if len(norms[0]) > len(norms[1]) else 1
            node, _ = norms[side][-1]
            kind: Kind = "missing" if side == 0 else "extra"
            name = _name_of(self._forms[side], node)
            yield kind, where, f"{'BA'[side]} lacks {name} ({node.op.words})"
            return
        if [type(node.op) for node, _ in parts_a] != [type(node.op) for node, _ in parts_b]:
            return
        for (node_a, tensors_a), (node_b, tensors_b) in zip(parts_a, parts_b, strict=True):
            part = names_of_pair(*map(_name_of, self._forms, (node_a, node_b)))
            epsilons = [getattr(node.op, "epsilon", None) for node in (node_a, node_b)]
            if not equal_values(*epsilons):
                yield "epsilon", part, f"epsilon {number_words(epsilons[0])}, {number_words(epsilons[1])}"
            for role in {**tensors_a, **tensors_b}:
                if role == "batches" or row_distance(tensors_a.get(role), tensors_b.get(role)) <= EXACT:
                    continue
                if role not in tensors_a or role not in tensors_b:
                    # A scale of 1 or an offset of 0 changes nothing.
                    neutral = 1 if role == "gamma" else 0
                    if np.any(np.asarray(tensors_a.get(role, tensors_b.get(role))) != neutral):
                        kind = "bias" if role in ("bias", "beta") else "scale"
                        yield kind, part, f"{'A' if role not in tensors_a else 'B'} lacks the {role}"
                elif (rows := order_of_parts(tensors_a[role], tensors_b[role], 0)) is not None:
                    yield "order", part, f"B's {role} has A's rows in another order{order_words(rows)}"
                else:
                    yield from self._of_role(part, node_a, role, tensors_a[role], tensors_b[role])

    def _of_role(self, part: str, node: Node, role: str, tensor_a: Any, tensor_b: Any) -> Iterator[Finding]:
        """Yield how the tensors of one role differ: by a factor, by a bias, by rounding to a half type, or
        otherwise.

        Args:
            part: the layer's name, for the difference.
            node: the first model's layer.
            tensor_a, tensor_b: the tensors of both models.
        """
        values_a, values_b = np.asarray(tensor_a, np.float64), np.asarray(tensor_b, np.float64)
        apart = f"{row_distance(values_a, values_b):.1e} apart"
        factor = common_factor(values_a, values_b)
        if factor is not None and role != "bias":
            yield "scale", part, f"B's {role} is A's times {factor:.6g}"
        elif role in ("bias", "beta"):
            yield "bias", part, f"B lacks the {role}" if not values_b.any() else f"another {role} ({apart})"
        elif isinstance(node.op, ops.ChannelScale):
            yield "scale", part, f"another {role} ({apart})"
        elif (rounded := half_type_of(values_a, values_b)) is not None:
            yield "weights", part, f"B's {role} is A's, rounded to {rounded}"
        else:
            yield "weights", part, f"another {role} ({apart})"

    def _in_order(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield that B's tensor has the same numbers as A's in another order: of its rows (filters), or of
        the inputs, rows or columns of a kernel. Yield none if the numbers are others.
        """
        role = next((role for role in ("kernel", "gamma", "value") if role in unit_a.tensors), None)
        if unit_a.kind == "conv_transpose" or role is None:
            return
        kernel_a, kernel_b = unit_a.tensors[role], unit_b.tensors[role]
        bias = [unit.tensors.get("bias", unit.tensors.get("beta")) for unit in (unit_a, unit_b)]
        rows = order_of_parts(kernel_a, kernel_b, 0, *bias)
        if rows is not None:
            # the first row that stands elsewhere
            label = int(np.flatnonzero(rows != np.arange(len(rows)))[0])
            # The rows of the last layer are classes.
            if _ends(self.pairing.form_a, unit_a.path):
                example = f"B's label {label} is A's {rows[label]}"
                yield "labels", where, f"B's rows are A's in another order ({example})"
            else:
                yield "order", where, f"B's filters are A's in another order{order_words(rows)}"
            return
        if kernel_a.ndim < 2:
            return
        for axis, parts in ((1, "inputs"), (2, "rows"), (3, "columns")):
            moved = order_of_parts(kernel_a, kernel_b, axis) if axis < kernel_a.ndim else None
            if moved is not None and (bias[0] is None or row_distance(bias[0], bias[1]) <= ROUNDED):
                yield "order", where, f"B takes the {parts} in another order{order_words(moved)}"
                return
        is_square = kernel_a.ndim == 4 and kernel_a.shape[2] == kernel_a.shape[3] > 1
        if is_square and row_distance(kernel_a.swapaxes(2, 3), kernel_b) <= ROUNDED < row_distance(
            kernel_a, kernel_b
        ):
            yield "order", where, "B's kernel has A's rows as columns"

    def _of_epsilon(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield that one model's kernel was folded with another epsilon than the other model's norm has,
        before it was stored. That epsilon is computed from the ratio of the kernels, and has to be the same
        for all filters.
        """
        if unit_a.kind not in ("conv", "dense"):
            return
        for side, (unit, other_unit, form) in enumerate(
            ((unit_a, unit_b, self.pairing.form_a), (unit_b, unit_a, self.pairing.form_b))
        ):
            norms = [node for node in unit.nodes if isinstance(node.op, ops.BatchNorm)]
            if len(norms) != 1 or any(map(_is_norm, other_unit.nodes)):
                continue
            ratios = ratios_of_filters(unit.tensors["kernel"], other_unit.tensors["kernel"])
            if ratios is None or not (ratios > 0).all():
                continue
            node, op = norms[0], norms[0].op
            assert isinstance(op, ops.BatchNorm)
            variance = form.tensors[node.holder]["variance"].astype(np.float64)
            # ratio = sqrt((variance + own epsilon) / (variance + other epsilon))
            epsilons = (variance + op.epsilon) / np.square(ratios) - variance
            epsilon = float(np.median(epsilons))
            spread = 1e-5 * float((variance + epsilon).max())
            if epsilon > -1e-7 and np.abs(epsilons - epsilon).max() <= spread < abs(epsilon - op.epsilon):
                names = ("A", "B") if side == 0 else ("B", "A")
                own_epsilon = number_words(op.epsilon)
                text = f"epsilon {own_epsilon} in {names[0]}, {names[1]} was folded with {epsilon:.2g}"
                yield "epsilon", node.path, text

    def _by_factor(self, where: str, unit_a: Unit, unit_b: Unit) -> Iterator[Finding]:
        """Yield the factor by which all of B's kernel is A's, or the range of factors, if each filter has
        one of its own.
        """
        role = "kernel" if "kernel" in unit_a.tensors else "gamma"
        if role not in unit_a.tensors:
            return
        factor = common_factor(unit_a.tensors[role], unit_b.tensors[role])
        if factor is not None and abs(factor - 1) > ROUNDED:
            yield "scale", where, f"B's {role} is A's times {factor:.6g}"
        elif unit_a.kind in ("conv", "dense"):
            ratios = ratios_of_filters(unit_a.tensors[role], unit_b.tensors[role])
            if ratios is not None and np.abs(ratios - 1).max() > ROUNDED:
                yield "scale", where, f"B's filters are A's times {ratios.min():.4g} to {ratios.max():.4g}"


def _same_node(node_a: Node, form_a: NormalForm, node_b: Node, form_b: NormalForm) -> bool:
    """Return whether two nodes have the same op and stored tensors; the batches that a norm has seen do not
    count.

    Args:
        node_a, form_a: a node, and the form with its tensors.
        node_b, form_b: the other node and its form.
    """
    tensors_a, tensors_b = form_a.tensors.get(node_a.holder, {}), form_b.tensors.get(node_b.holder, {})
    return (
        type(node_a.op) is type(node_b.op)
        and equal_attributes(node_a.op, node_b.op)
        and tensors_a.keys() - {"batches"} == tensors_b.keys() - {"batches"}
        and all(np.array_equal(tensors_a[role], tensors_b[role]) for role in tensors_a if role != "batches")
    )


def _reading(form: NormalForm, path: str) -> set[str]:
    return {reader for reader, unit in form.units.items() if path in unit.inputs}


def _paired_above(form: NormalForm, path: str, pairs: Collection[str]) -> str:
    """Return the path of the nearest value that has a pair: that of `path`, or of the first unit before it,
    along first inputs; the graph's input if none has.
    """
    while path in form.units and path not in pairs:
        path = form.units[path].inputs[0]
    return path


def _ends(form: NormalForm, path: str) -> bool:
    """Return whether a unit gives the logits: only activations and a global pool lie between it and an
    output.
    """
    while path not in form.outputs:
        readers = [form.units[reader] for reader in _reading(form, path)]
        if len(readers) != 1 or readers[0].kind not in (*_ACTIVATIONS, "global_avg_pool", "global_max_pool"):
            return False
        path = readers[0].path
    return True


def _name_of(form: NormalForm, node: Node) -> str:
    """Return what the model of a form calls a node."""
    return form.names.get(node.path, node.path)


def _of_attribute(unit: Unit, name: str) -> Kind:
    """Return the kind of the difference that two units have in the attribute `name`, such as `epsilon`."""
    if unit.kind in _ACTIVATIONS:
        return "activation"
    if unit.kind == "move":
        return "order"
    if name == "epsilon":
        return "epsilon"
    return "scale" if name == "scale" else "operator"


def _pair(numbers: tuple[int, int]) -> str:
    return "x".join(map(str, numbers))


def _is_norm(node: Node) -> bool:
    return isinstance(node.op, ops.BatchNorm | ops.LayerNorm | ops.GroupNorm | ops.RmsNorm)


def _is_scale(node: Node) -> bool:
    return isinstance(
        node.op, ops.BatchNorm | ops.ChannelScale | ops.Affine | ops.AddArray | ops.MultiplyArray
    )


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


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{role} {'x'.join(map(str, shape))}" for role, shape in shapes.items())


def _scales_input(node: Node, unit: Unit) -> bool:
    """Return whether a node of a unit changes the model's input, as by a division by 255, before the unit's
    layer with a kernel.
    """
    place = unit.nodes.index(node)
    is_before_kernel = not any(earlier.op.tensors(1).get("kernel") for earlier in unit.nodes[: place + 1])
    is_layer = isinstance(node.op, ops.Conv | ops.Dense | ops.PadMap)
    return unit.inputs == (INPUT,) and is_before_kernel and not is_layer


def _same_kernel(
    parts_a: list[tuple[Node, Mapping[str, Any]]], parts_b: list[tuple[Node, Mapping[str, Any]]]
) -> bool:
    """Return whether the layers among nodes have the same stored kernels, and there is at least one.

    Args:
        parts_a, parts_b: the nodes of a unit of each model, with their tensors by role.
    """
    kernels_a, kernels_b = (
        [tensors["kernel"] for _, tensors in parts if "kernel" in tensors] for parts in (parts_a, parts_b)
    )
    return len(kernels_a) == len(kernels_b) > 0 and all(
        row_distance(kernel_a, kernel_b) <= EXACT
        for kernel_a, kernel_b in zip(kernels_a, kernels_b, strict=True)
    )

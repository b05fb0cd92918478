"""What differs between two paired units, in words, and what only one of two normal forms has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from porter.comparison.aligning import Pairing, drawn_along
from porter.comparison.normal_form import COMMUTATIVE, LINEAR, NormalForm, Numbers, Unit
from porter.graph import INPUT, Node, nonnegative_paths, ops
from porter.graph.ops import OPS, activations
from porter.padding import KnownSize, Site, Size, pad_amounts, same_function
from porter.padding.windows import pads_text

Kind: TypeAlias = Literal[
    "padding",
    "epsilon",
    "activation",
    "weights",
    "bias",
    "order",
    "scale",
    "operator",
    "missing",
    "extra",
    "preprocessing",
    "labels",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXACT, ROUNDED = 1e-12, 1e-6
"""How far apart numbers may be that are folded in float64, and those that may have been folded before they
were stored in float32.
"""
_ACTIVATIONS = {name for name, op in OPS.items() if op.__module__ == activations.__name__}


@dataclass(frozen=True)
class FoundDifference:
    """One difference between two models.

    Attributes:
        kind: one of KINDS.
        a, b: the layers' names in each; None where it has none.
        text: in words.
        apart: how far apart the two layers' values are for the same numbers (relative L2); None where they
            were not run.
        pair: the paths of the units.
    """

    kind: Kind
    a: str | None
    b: str | None
    text: str
    apart: float | None = None
    pair: tuple[str | None, str | None] = (None, None)

    def record(self) -> dict[str, Any]:
        return {"kind": self.kind, "a": self.a, "b": self.b, "text": self.text}


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
        stands behind the pair before it there, and outputs come last.
        """
        pairing, found = self.pairing, list[tuple[float, FoundDifference]]()
        one, other = pairing.one, pairing.other
        places = {path: float(place) for place, path in enumerate(one.units)}
        back = {theirs: mine for mine, theirs in pairing.pairs.items()}
        for mine, theirs in pairing.pairs.items():
            unit, its = one.units[mine], other.units[theirs]
            for kind, where, text in (*self.of_pair(unit, its), *self._wires(unit, its)):
                pair = FoundDifference(kind, unit.name, its.name, f"{where}: {text}", None, (mine, theirs))
                found.append((places[mine], pair))
        for path in pairing.only_one:
            if not self._displaced(one.units[path], one, other):
                found.append((places[path], self._alone(one.units[path], None)))
        place = -1.0
        for path in other.units:
            # a step that is smaller than any between places
            place = places[back[path]] if path in back else place + 1e-6
            if path in pairing.only_other and not self._displaced(other.units[path], other, one):
                found.append((place, self._alone(None, other.units[path])))
        found += [(math.inf, each) for each in self._outputs()]
        return [each for _, each in sorted(found, key=lambda one: one[0])]

    def _alone(self, mine: Unit | None, its: Unit | None) -> FoundDifference:
        """Return the difference that one model has a unit which the other lacks. A scale, or another order of
        channels, that reads the model's input is one of preprocessing.

        Args:
            mine: the unit of the first model, or None.
            its: that of the second, or None.
        """
        unit = mine or its
        assert unit is not None
        has, lacks = ("A", "B") if its is None else ("B", "A")
        pair = None if mine is None else mine.path, None if its is None else its.path
        names = None if mine is None else mine.name, None if its is None else its.name
        if unit.inputs == (INPUT,) and unit.kind in ("scale", "slice_channels"):
            said = " and ".join(map(_of_input, unit.nodes))
            return FoundDifference(
                "preprocessing", *names, f"{has}'s input is {said}, {lacks}'s is not", None, pair
            )
        kind: Kind = "missing" if its is None else "extra"
        return FoundDifference(kind, *names, f"{lacks} lacks {unit.name} ({_words(unit)})", None, pair)

    def _displaced(self, unit: Unit, form: NormalForm, elsewhere: NormalForm) -> bool:
        """Return whether a unit is only norms that are in the layers before them in the other model, because
        that lacks what lies between. It is no difference of its own then.

        Args:
            form: the unit's own form.
            elsewhere: the other model's.
        """
        norms = [node for each in elsewhere.units.values() if each.kind in LINEAR for node in each.nodes]
        return unit.kind == "scale" and all(
            any(_same_node(node, form, norm, elsewhere) for norm in norms) for node in unit.nodes
        )

    def is_split(self, mine: Unit, its: Unit) -> bool:
        """Return whether the norm or scale that only one of two layers has follows behind something else in
        the other model, so that the layers alone are the same.

        Args:
            mine: the first model's unit.
            its: the second model's.
        """
        pairing = self.pairing
        one, other = pairing.one, pairing.other
        norms = [[node for node in unit.nodes if _is_scale(node)] for unit in (mine, its)]
        longer = len(norms[0]) > len(norms[1])
        if len(norms[0]) == len(norms[1]) or not _same_kernel(self._raw(one, mine), self._raw(other, its)):
            return False
        form, elsewhere, alone = (
            (one, other, pairing.only_other) if longer else (other, one, pairing.only_one)
        )
        norm = max(norms, key=len)[-1]
        return any(
            _same_node(norm, form, node, elsewhere) for path in alone for node in elsewhere.units[path].nodes
        )

    def _read(
        self, paths_of_one: tuple[str, ...], paths_of_other: tuple[str, ...]
    ) -> tuple[list[str], list[str], list[str]]:
        """Return the values that a unit of each model reads, past units that only one model has; and the
        partners of the first model's in the second.

        Args:
            paths_of_one: what the unit of the first model reads.
            paths_of_other: what that of the second reads.
        """
        pairing = self.pairing
        pairs = {**pairing.inputs, **pairing.pairs}
        read = [_paired_above(pairing.one, path, pairs) for path in paths_of_one]
        theirs = [_paired_above(pairing.other, path, {*pairs.values()}) for path in paths_of_other]
        return read, theirs, [pairs.get(path, path) for path in read]

    def _wires(self, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield a difference where a pair of units reads values that are no pairs, or reads pairs in another
        order.
        """
        read, theirs, wanted = self._read(mine.inputs, its.inputs)
        crosses = sorted(wanted) == sorted(theirs)
        if wanted == theirs or (crosses and mine.kind in COMMUTATIVE):
            return
        said = [
            ", ".join(map(form.name_of, paths))
            for form, paths in zip(self._forms, (read, theirs), strict=True)
        ]
        yield (
            "order" if crosses else "operator",
            _where(mine.name, its.name),
            f"A reads {said[0]}, B {said[1]}",
        )

    @property
    def _forms(self) -> tuple[NormalForm, NormalForm]:
        return self.pairing.one, self.pairing.other

    def _outputs(self) -> Iterator[FoundDifference]:
        """Yield a difference where the outputs are no pairs, or stand in another order."""
        one, other = self._forms
        _, theirs, wanted = self._read(one.outputs, other.outputs)
        if wanted != theirs:
            said = [", ".join(map(form.name_of, form.outputs)) for form in self._forms]
            kind: Kind = "order" if sorted(wanted) == sorted(theirs) else "operator"
            pair = one.outputs[0], other.outputs[0]
            yield FoundDifference(kind, None, None, f"A gives {said[0]}, B {said[1]}", None, pair)

    def of_pair(self, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield the differences of two paired units: the kind, where, and what in words. Units of other kinds
        have only that one.

        Args:
            mine: the first model's unit.
            its: the second model's.
        """
        where = _where(mine.name, its.name)
        if mine.kind != its.kind:
            both = {mine.kind, its.kind} <= _ACTIVATIONS
            yield "activation" if both else "operator", where, f"A has {_words(mine)}, B {_words(its)}"
            return
        if "convention" in mine.says:
            yield from self._windows(where, mine, its)
        for name in (name for name in mine.says if name not in ("window", "convention")):
            if not _equal(one := mine.says[name], other := its.says.get(name)):
                if name in ("filters", "units") and (rows := _some_rows(mine, its)):
                    yield "labels", where, rows
                    return
                said = (
                    "B moves the cells otherwise"
                    if name == "cells"
                    else f"{name} {_number(one)}, {_number(other)}"
                )
                yield _of_attribute(mine, name), where, said
        yield from self._tensors(where, mine, its)

    def _windows(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield the differences of two windows: in kernel, stride or dilation, otherwise in pads, where these
        are not the same function at the compared sizes.

        Args:
            where: in words, for the difference.
            mine: the first model's unit.
            its: the second model's.
        """
        kind: Any = mine.kind
        sites = [Site(kind, unit.says["window"], unit.says["convention"]) for unit in (mine, its)]
        one, other = sites
        for name in ("kernel", "stride", "dilation"):
            geometry = [getattr(site.window, name) for site in sites]
            if geometry[0] != geometry[1]:
                yield "operator", where, f"{name} {_pair(geometry[0])}, {_pair(geometry[1])}"
        if one.window != other.window:
            return
        form = self.pairing.one
        read = mine.nodes[0].source
        _, rows, columns = form.shapes[read]
        size: Size = (None, None) if None in self.size else (rows, columns)
        # Where no value is negative, pads of 0 are pads of -inf for a max pool.
        nonnegative = read in nonnegative_paths(form.graph)
        if one != other and not same_function(one, other.convention, size, nonnegative):
            said = [_pads(site, (rows or 1, columns or 1)) for site in sites]
            if said[0] == said[1]:
                said = [f"{text} ({site})" for text, site in zip(said, sites, strict=True)]
            yield "padding", where, f"A {said[0]}, B {said[1]}"

    def _tensors(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield the differences between the tensors of two paired units, each with its kind and place: other
        shapes, or values that are further apart than the limit allows, with the reason if one is known. Yield
        none for equal tensors; values that are only rounded otherwise are noted in `rounded`.

        Args:
            mine: the first model's unit.
            its: the second model's.
        """
        if not mine.tensors or self._raw_equal(mine, its):
            return
        shapes = [{role: array.shape for role, array in unit.tensors.items()} for unit in (mine, its)]
        if shapes[0] != shapes[1]:
            # Units whose ops differ are reported elsewhere, and their shapes follow from that.
            if mine.says == its.says:
                yield "weights", where, f"A's tensors are {_shapes(shapes[0])}, B's {_shapes(shapes[1])}"
            return
        far = {role: distance(mine, its, role) for role in mine.tensors}
        wrong = {role: apart for role, apart in far.items() if apart > self.limit(mine, its)}
        if wrong:
            yield from self._why(where, mine, its, wrong)
        elif max(far.values()) > EXACT:
            self.rounded[mine.name] = max(far.values())

    def limit(self, mine: Unit, its: Unit) -> float:
        """Return how far apart the tensors of two units may be: the user's tolerance, otherwise rounding of
        float64, or of float32 where norms may have been folded into the stored kernel.
        """
        if self.tolerance is not None:
            return self.tolerance
        alike = [type(node.op) for node in mine.nodes] == [type(node.op) for node in its.nodes]
        alike = alike and [getattr(node.op, "bias", None) for node in mine.nodes] == [
            getattr(node.op, "bias", None) for node in its.nodes
        ]
        folded = (
            mine.kind in LINEAR and bool(mine.tensors["bias"].any()) and not any(map(_is_norm, mine.nodes))
        )
        return ROUNDED if folded or not alike else EXACT

    def _raw(self, form: NormalForm, unit: Unit) -> list[tuple[Node, Mapping[str, Any]]]:
        """Return the nodes that a unit is made of, with their tensors as they are stored."""
        return [(node, form.tensors.get(node.holder, {})) for node in unit.nodes]

    def _raw_equal(self, mine: Unit, its: Unit) -> bool:
        """Return whether two units are made of the same nodes with the same numbers."""
        return len(mine.nodes) == len(its.nodes) and all(
            _same_node(first, self.pairing.one, second, self.pairing.other)
            for first, second in zip(mine.nodes, its.nodes, strict=True)
        )

    def _why(
        self, where: str, mine: Unit, its: Unit, wrong: Mapping[str, float]
    ) -> Iterator[tuple[Kind, str, str]]:
        """Yield the reason why tensors differ: the first that explains all of it, otherwise that the bias or
        the numbers are others. Yield none where a norm only stands elsewhere (`is_split`).

        Args:
            wrong: by role, how far apart the tensors are.
        """
        if self.is_split(mine, its):
            return
        reasons = (self._on_input, self._in_order, self._by_parts, self._of_epsilon, self._by_factor)
        for reason in reasons:
            if said := [*reason(where, mine, its)]:
                yield from said
                return
        roles = ", ".join(f"{role} {far:.1e}" for role, far in wrong.items())
        if {*wrong} <= {"bias", "beta"}:
            lacking = [
                name
                for name, unit in zip("AB", (mine, its), strict=True)
                if not unit.tensors[next(iter(wrong))].any()
            ]
            yield (
                "bias",
                where,
                f"{lacking[0]} lacks the bias" if lacking else f"another bias ({roles} apart)",
            )
        else:
            kind: Kind = "scale" if mine.kind == "scale" and not any(map(_is_norm, mine.nodes)) else "weights"
            yield kind, where, f"other numbers ({roles} apart)"

    def _on_input(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield a difference in the scales of the model's input that are in the first layer, where the layer
        itself is the same. `mine` and `its` are the first and the second model's unit.
        """
        scales = [[node for node in unit.nodes if _scales_input(node, unit)] for unit in (mine, its)]
        if not any(scales) or not _same_kernel(
            self._raw(self.pairing.one, mine), self._raw(self.pairing.other, its)
        ):
            return
        said = [" and ".join(map(_of_input, nodes)) for nodes in scales]
        if said[0] != said[1]:
            yield "preprocessing", where, _of_both(*said)

    def _by_parts(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield the differences of the layers and norms that units are made of, one by one, where both models
        have them; or that one lacks a norm.

        Args:
            where: in words, for the whole units.
            mine: the first model's unit.
            its: the second model's.
        """
        one, other = self._raw(self.pairing.one, mine), self._raw(self.pairing.other, its)
        norms = [[each for each in raw if _is_norm(each[0])] for raw in (one, other)]
        if len(norms[0]) != len(norms[1]) and _same_kernel(one, other):
            side = 0 if len(norms[0]) > len(norms[1]) else 1
            node = norms[side][-1][0]
            kind: Kind = "missing" if side == 0 else "extra"
            name = _name_of(self._forms[side], node)
            yield kind, where, f"{'BA'[side]} lacks {name} ({node.op.words})"
            return
        if [type(node.op) for node, _ in one] != [type(node.op) for node, _ in other]:
            return
        for (first, ours), (second, theirs) in zip(one, other, strict=True):
            at = _where(*map(_name_of, self._forms, (first, second)))
            epsilons = [getattr(node.op, "epsilon", None) for node in (first, second)]
            if not _equal(*epsilons):
                yield "epsilon", at, f"epsilon {_number(epsilons[0])}, {_number(epsilons[1])}"
            for role in {**ours, **theirs}:
                if role == "batches" or _far(ours.get(role), theirs.get(role)) <= EXACT:
                    continue
                if role not in ours or role not in theirs:
                    if np.any(np.asarray(ours.get(role, theirs.get(role))) != (role == "gamma")):
                        kind = "bias" if role in ("bias", "beta") else "scale"
                        yield kind, at, f"{'A' if role not in ours else 'B'} lacks the {role}"
                elif (moved := _permuted(ours[role], theirs[role], 0)) is not None:
                    yield "order", at, f"B's {role} has A's rows in another order{_which(moved)}"
                else:
                    yield from self._of_role(at, first, role, ours[role], theirs[role])

    def _of_role(
        self, at: str, node: Node, role: str, ours: Any, theirs: Any
    ) -> Iterator[tuple[Kind, str, str]]:
        """Yield how the tensors of one role differ: by a factor, by a bias, by rounding to a half type, or
        otherwise.

        Args:
            at: where, in words.
            node: the first model's layer.
            ours, theirs: the first model's tensor and the second's.
        """
        one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        far = f"{_far(one, other):.1e} apart"
        factor = _factor(one, other)
        if factor is not None and role != "bias":
            yield "scale", at, f"B's {role} is A's times {factor:.6g}"
        elif role in ("bias", "beta"):
            yield "bias", at, f"B lacks the {role}" if not other.any() else f"another {role} ({far})"
        elif isinstance(node.op, ops.ChannelScale):
            yield "scale", at, f"another {role} ({far})"
        elif (rounded := _rounded_as(one, other)) is not None:
            yield "weights", at, f"B's {role} is A's, rounded to {rounded}"
        else:
            yield "weights", at, f"another {role} ({far})"

    def _in_order(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield that the rows are the same in another order, or the inputs, rows or columns of a kernel; none
        if the numbers are others.
        """
        role = "kernel" if "kernel" in mine.tensors else "gamma" if "gamma" in mine.tensors else "value"
        if mine.kind == "conv_transpose" or role not in mine.tensors:
            return
        one, other = mine.tensors[role], its.tensors[role]
        bias = [unit.tensors.get("bias", unit.tensors.get("beta")) for unit in (mine, its)]
        rows = _permuted(one, other, 0, *bias)
        if rows is not None:
            first = int(np.flatnonzero(rows != np.arange(len(rows)))[0])
            # The rows of the last layer are classes.
            if _ends(self.pairing.one, mine.path):
                said = f"B's label {first} is A's {rows[first]}"
                yield "labels", where, f"B's rows are A's in another order ({said})"
            else:
                yield "order", where, f"B's filters are A's in another order{_which(rows)}"
            return
        if one.ndim < 2:
            return
        for axis, what in ((1, "inputs"), (2, "rows"), (3, "columns")):
            moved = _permuted(one, other, axis) if axis < one.ndim else None
            if moved is not None and (bias[0] is None or _far(bias[0], bias[1]) <= ROUNDED):
                yield "order", where, f"B takes the {what} in another order{_which(moved)}"
                return
        if (
            one.ndim == 4
            and one.shape[2] == one.shape[3] > 1
            and _far(one.swapaxes(2, 3), other) <= ROUNDED < _far(one, other)
        ):
            yield "order", where, "B's kernel has A's rows as columns"

    def _of_epsilon(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield another epsilon with which one model's kernel was folded before it was stored. It is computed
        from the ratio of the kernels, and has to be the same for all filters.
        """
        if mine.kind not in ("conv", "dense"):
            return
        for side, (unit, other, form) in enumerate(
            ((mine, its, self.pairing.one), (its, mine, self.pairing.other))
        ):
            norms = [node for node in unit.nodes if isinstance(node.op, ops.BatchNorm)]
            if len(norms) != 1 or any(map(_is_norm, other.nodes)):
                continue
            ratios = _ratios(unit.tensors["kernel"], other.tensors["kernel"])
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
                text = (
                    f"epsilon {_number(op.epsilon)} in {names[0]}, {names[1]} was folded with {epsilon:.2g}"
                )
                yield "epsilon", node.path, text

    def _by_factor(self, where: str, mine: Unit, its: Unit) -> Iterator[tuple[Kind, str, str]]:
        """Yield a factor that all of a kernel has, or each of its filters another one."""
        role = "kernel" if "kernel" in mine.tensors else "gamma"
        if role not in mine.tensors:
            return
        factor = _factor(mine.tensors[role], its.tensors[role])
        if factor is not None and abs(factor - 1) > ROUNDED:
            yield "scale", where, f"B's {role} is A's times {factor:.6g}"
        elif mine.kind in ("conv", "dense"):
            ratios = _ratios(mine.tensors[role], its.tensors[role])
            if ratios is not None and np.abs(ratios - 1).max() > ROUNDED:
                yield "scale", where, f"B's filters are A's times {ratios.min():.4g} to {ratios.max():.4g}"


def _same_node(node: Node, form: NormalForm, other: Node, elsewhere: NormalForm) -> bool:
    """Return whether two nodes have the same op and stored tensors; the batches that a norm has seen do not
    count.

    Args:
        node, form: the first node, and the form with its tensors.
        other, elsewhere: the second node and its form.
    """
    ours, theirs = form.tensors.get(node.holder, {}), elsewhere.tensors.get(other.holder, {})
    return (
        type(node.op) is type(other.op)
        and _equal_attributes(node.op, other.op)
        and ours.keys() - {"batches"} == theirs.keys() - {"batches"}
        and all(np.array_equal(ours[role], theirs[role]) for role in ours if role != "batches")
    )


def _reading(form: NormalForm, path: str) -> set[str]:
    return {reader for reader, unit in form.units.items() if path in unit.inputs}


def _paired_above(form: NormalForm, path: str, pairs: Collection[str]) -> str:
    """Return the nearest value before a unit, or the unit itself, that has a pair; the graph's input if none
    has.
    """
    while path in form.units and path not in pairs:
        path = form.units[path].inputs[0]
    return path


def _ends(form: NormalForm, path: str) -> bool:
    """Return whether only activations and a global pool lie between a unit and an output."""
    while path not in form.outputs:
        readers = [form.units[reader] for reader in _reading(form, path)]
        if len(readers) != 1 or readers[0].kind not in (*_ACTIVATIONS, "global_avg_pool", "global_max_pool"):
            return False
        path = readers[0].path
    return True


def _name_of(form: NormalForm, node: Node) -> str:
    """Return what the model of a form calls a node."""
    return form.names.get(node.path, node.path)


def _where(mine: str, its: str) -> str:
    return mine if mine == its else f"{mine} (B: {its})"


def _words(unit: Unit) -> str:
    """Return a unit in words, with its article."""
    if unit.kind == "scale":
        return "a scale of channels" if not unit.tensors["beta"].any() else "a scale and a shift of channels"
    if unit.kind == "move":
        return "a rearrangement"
    if unit.kind == "clip":
        low, high = unit.says["low"], unit.says["high"]
        if high == math.inf and low == 0:
            return "a relu"
        return "a relu6" if (low, high) == (0, 6) else f"a clip from {low:g} to {high:g}"
    own = next((node.op.words for node in unit.nodes if node.op.name == unit.kind), None)
    return own or f"a {unit.kind.replace('_', ' ')}"


def _of_attribute(unit: Unit, name: str) -> Kind:
    """Return the kind of a difference in an attribute of a unit."""
    if unit.kind in _ACTIVATIONS:
        return "activation"
    if unit.kind == "move":
        return "order"
    if name == "epsilon":
        return "epsilon"
    return "scale" if name == "scale" else "operator"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _pair(numbers: tuple[int, int]) -> str:
    return "x".join(map(str, numbers))


def _pads(site: Site, size: KnownSize) -> str:
    """Say what a site pads at a size."""
    sides = [pad_amounts(site.convention, site.window, axis, size[axis]) for axis in (0, 1)]
    amounts = *sides[0], *sides[1]
    return f"pads {pads_text(amounts)}".replace(",", ", ") if any(amounts) else "pads nothing"


def _equal(one: Any, other: Any) -> bool:
    """Return whether two attributes are the same; a file may store a number in float32."""
    if isinstance(one, float | int) and isinstance(other, float | int) and not isinstance(one, bool):
        return bool(np.float32(one) == np.float32(other))
    return bool(one == other)


def _equal_attributes(one: ops.Op, other: ops.Op) -> bool:
    """Return whether two ops have equal attributes. Pads do not count here, because they are compared as
    windows, nor does what changes no value.
    """
    mine, theirs = (
        {k: v for k, v in vars(op).items() if k not in ("momentum", "keep", "convention")}
        for op in (one, other)
    )
    return mine.keys() == theirs.keys() and all(_equal(mine[name], theirs[name]) for name in mine)


def _is_norm(node: Node) -> bool:
    return isinstance(node.op, ops.BatchNorm | ops.LayerNorm | ops.GroupNorm | ops.RmsNorm)


def _is_scale(node: Node) -> bool:
    return isinstance(
        node.op, ops.BatchNorm | ops.ChannelScale | ops.Affine | ops.AddArray | ops.MultiplyArray
    )


def distance(mine: Unit, its: Unit, role: str) -> float:
    """Return how far apart the tensors of two units are: the largest difference in a filter over its largest
    number. A bias is one row.
    """
    one, other = mine.tensors[role], its.tensors[role]
    if role in ("bias", "beta"):
        size = max(float(np.abs(one).max(initial=0)), float(np.abs(other).max(initial=0)))
        return 0.0 if size == 0 else float(np.abs(one - other).max()) / size
    return _far(one, other)


def _far(one: Any, other: Any) -> float:
    """Return the largest difference of two arrays in a row over the row's largest number in the first;
    infinite for other shapes, or if one is None.
    """
    if one is None or other is None or np.shape(one) != np.shape(other):
        return math.inf
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    rows = (len(first), -1) if first.ndim > 1 else (1, -1)
    apart = np.abs(first - second).reshape(rows).max(axis=1, initial=0)
    size = np.abs(first).reshape(rows).max(axis=1, initial=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.where(apart == 0, 0.0, apart / size)
    return float(np.max(far, initial=0))


def _permuted(one: Any, other: Any, axis: int, *bias: Any) -> NDArray[np.int64] | None:
    """Return the places in `one` of the parts of `other` along an axis, where these are the same in another
    order; None where they are the same in order, or others. Parts are sorted by their products with random
    numbers, and then compared.

    Args:
        bias: numbers of both that go with the parts along the axis.
    """
    if np.shape(one) != np.shape(other) or np.ndim(one) <= axis or np.shape(one)[axis] < 2:
        return None
    parts = [np.asarray(each, np.float64) for each in (one, other)]
    size = float(np.abs(parts[0]).max(initial=0))
    drawn = [drawn_along(part, axis) for part in parts]
    if bias and bias[0] is not None:
        # parts with the same numbers are told apart by their biases
        drawn = [each + size * np.asarray(own) for each, own in zip(drawn, bias, strict=True)]
    order = [np.argsort(each, kind="stable") for each in drawn]
    near = np.abs(drawn[0][order[0]] - drawn[1][order[1]]).max() <= 1e-4 * np.abs(drawn[0]).max(initial=0)
    if size == 0 or not near or (order[0] == order[1]).all():
        return None
    taken = [part.take(places, axis) for part, places in zip(parts, order, strict=True)]
    if bias and bias[0] is not None:
        taken += [np.asarray(own)[places] for own, places in zip(bias, order, strict=True)]
    if any(
        np.abs(mine - its).max() > ROUNDED * size for mine, its in zip(taken[::2], taken[1::2], strict=True)
    ):
        return None
    places = np.empty(len(order[0]), np.int64)
    # from the second's places to the first's, through the sorted order
    places[order[1]] = order[0]
    return None if (places == np.arange(len(places))).all() else places


def _which(moved: NDArray[np.int64]) -> str:
    if (moved == np.arange(len(moved))[::-1]).all():
        return ": reversed" + (", as RGB is beside BGR" if len(moved) == 3 else "")
    first = int(np.flatnonzero(moved != np.arange(len(moved)))[0])
    return f" (B's {first} is A's {moved[first]})"


def _factor(one: Any, other: Any) -> float | None:
    """Return the number that an array is multiplied by to be another; None where there is no such number."""
    first, second = np.asarray(one, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    if first.shape != second.shape or first.size < 2 or not first.any() or not second.any():
        return None
    # the best factor by least squares
    factor = float(first @ second / (first @ first))
    return factor if np.abs(first * factor - second).max() <= ROUNDED * np.abs(second).max() else None


def _ratios(one: Any, other: Any) -> Numbers | None:
    """Return what each filter of a kernel is multiplied by to be that of another; None where some filter is
    no multiple.
    """
    first, second = one.reshape(len(one), -1), other.reshape(len(other), -1)
    squares = np.square(first).sum(axis=1)
    if first.shape != second.shape or first.shape[1] < 2 or not squares.all():
        return None
    ratios: Numbers = (first * second).sum(axis=1) / squares
    near = np.abs(first * ratios[:, None] - second).max(axis=1) <= ROUNDED * np.abs(second).max(axis=1)
    return ratios if near.all() else None


def _rounded_as(one: Any, other: Any) -> str | None:
    """Return the type, float16 or bfloat16, to which one array is rounded to be another; None if it is
    neither.
    """
    with np.errstate(over="ignore"):
        half = np.asarray(one, np.float64).astype(np.float16).astype(np.float64)
    bits = np.asarray(one, np.float32).view(np.uint32)
    # round to even at bit 16, as bfloat16 is the upper half of float32
    brain = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return next(
        (name for name, made in (("float16", half), ("bfloat16", brain)) if np.array_equal(made, other)), None
    )


def _some_rows(mine: Unit, its: Unit) -> str | None:
    """Say that one model has more rows in its head, if the others are the same, and at which label these
    begin; None if they are others.
    """
    one, other = mine.tensors["kernel"], its.tensors["kernel"]
    if one.shape[1:] != other.shape[1:]:
        return None
    (more, has), (less, lacks) = sorted(((one, "A"), (other, "B")), key=lambda side: -len(side[0]))
    for first in range(len(more) - len(less) + 1):
        if _far(more[first : first + len(less)], less) <= ROUNDED:
            return f"{has} has {len(more)} rows, {lacks} {len(less)}: {lacks}'s label 0 is {has}'s {first}"
    return None


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{role} {'x'.join(map(str, shape))}" for role, shape in shapes.items())


def _scales_input(node: Node, unit: Unit) -> bool:
    """Return whether a node of a unit changes the model's input before the unit's layer."""
    place = unit.nodes.index(node)
    before = all(not each.op.tensors(1).get("kernel") for each in unit.nodes[: place + 1])
    return unit.inputs == (INPUT,) and before and not isinstance(node.op, ops.Conv | ops.Dense | ops.PadMap)


def _same_kernel(
    one: list[tuple[Node, Mapping[str, Any]]], other: list[tuple[Node, Mapping[str, Any]]]
) -> bool:
    """Return whether the layers among nodes have the same stored kernels, and there is at least one."""
    kernels = [[roles["kernel"] for _, roles in raw if "kernel" in roles] for raw in (one, other)]
    return len(kernels[0]) == len(kernels[1]) > 0 and all(
        _far(ours, theirs) <= EXACT for ours, theirs in zip(*kernels, strict=True)
    )


def _of_input(node: Node) -> str:
    """Say what a node does to a model's input."""
    if isinstance(node.op, ops.Affine):
        return _scaled_by(np.array(node.op.scale), np.array(node.op.offset))
    if isinstance(node.op, ops.SliceChannels):
        return "in another order of channels"
    return f"put through {node.op.words}"


def _scaled_by(gamma: Any, beta: Any) -> str:
    """Say a scale and a shift as people do: `divided by 255, plus 1`. The text is empty where both change
    nothing.
    """
    said = []
    if np.any(np.abs(gamma - 1) > 1e-12):
        below = np.all((np.abs(gamma) < 1) & (gamma != 0))
        said.append(f"divided by {_values(1 / gamma)}" if below else f"times {_values(gamma)}")
    if np.any(beta):
        said.append(f"plus {_values(beta)}")
    return ", ".join(said)


def _values(array: Any) -> str:
    values = [float(f"{value:.6g}") for value in np.unique(array)]
    if len(values) == 1:
        return f"{values[0]:.6g}"
    return f"({', '.join(f'{value:.6g}' for value in np.ravel(array)[:4])})"


def _of_both(one: str, other: str) -> str:
    if not one or not other:
        has, lacks = ("A", "B") if one else ("B", "A")
        return f"{has}'s input is {one or other}, {lacks}'s is not"
    return f"A's input is {one}, B's is {other}"

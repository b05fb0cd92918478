"""Why the tensors of two paired units differ, in words: another order, factor, epsilon, norm or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.comparison.aligning import Pairing
from porter.comparison.closeness import (
    EXACT,
    ROUNDED,
    common_factor,
    equal_attributes,
    equal_values,
    half_type_of,
    neutral_number,
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
)
from porter.comparison.found_difference import Finding, Kind
from porter.comparison.normal_form import NormalForm
from porter.comparison.unit import Unit
from porter.graph import INPUT, Node, ops
from porter.graph.ops.activations import ACTIVATIONS


@dataclass(frozen=True)
class TensorReasons:
    """Finds why the tensors of two paired units differ."""

    pairing: Pairing

    @property
    def _forms(self) -> tuple[NormalForm, NormalForm]:
        return self.pairing.form_a, self.pairing.form_b

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
        if not _same_kernel(_stored(form_a, unit_a), _stored(form_b, unit_b)):
            return False
        # The last norm of the unit that has more is looked for among the unpaired units of the other model.
        if len(norms_a) > len(norms_b):
            norm, form, elsewhere, unpaired = norms_a[-1], form_a, form_b, pairing.only_b
        else:
            norm, form, elsewhere, unpaired = norms_b[-1], form_b, form_a, pairing.only_a
        return any(
            same_node(norm, form, node, elsewhere)
            for path in unpaired
            for node in elsewhere.units[path].nodes
        )

    def are_stored_alike(self, unit_a: Unit, unit_b: Unit) -> bool:
        """Return whether two units are made of the same nodes with the same numbers."""
        return len(unit_a.nodes) == len(unit_b.nodes) and all(
            same_node(node_a, self.pairing.form_a, node_b, self.pairing.form_b)
            for node_a, node_b in zip(unit_a.nodes, unit_b.nodes, strict=True)
        )

    def why(
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
            is_scale = unit_a.kind == "scale" and not any(map(is_norm, unit_a.nodes))
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
            _stored(self.pairing.form_a, unit_a), _stored(self.pairing.form_b, unit_b)
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
        parts_a, parts_b = _stored(self.pairing.form_a, unit_a), _stored(self.pairing.form_b, unit_b)
        norms = [[each for each in raw if is_norm(each[0])] for raw in (parts_a, parts_b)]
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
                    if np.any(np.asarray(tensors_a.get(role, tensors_b.get(role))) != neutral_number(role)):
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
            if len(norms) != 1 or any(map(is_norm, other_unit.nodes)):
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


def _stored(form: NormalForm, unit: Unit) -> list[tuple[Node, Mapping[str, Any]]]:
    """Return the nodes that a unit is made of, with their tensors as they are stored."""
    return [(node, form.tensors.get(node.holder, {})) for node in unit.nodes]


def same_node(node_a: Node, form_a: NormalForm, node_b: Node, form_b: NormalForm) -> bool:
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


def _ends(form: NormalForm, path: str) -> bool:
    """Return whether a unit gives the logits: only activations and a global pool lie between it and an
    output.
    """
    while path not in form.outputs:
        readers = [unit for unit in form.units.values() if path in unit.inputs]
        if len(readers) != 1 or readers[0].kind not in (*ACTIVATIONS, "global_avg_pool", "global_max_pool"):
            return False
        path = readers[0].path
    return True


def _name_of(form: NormalForm, node: Node) -> str:
    """Return what the model of a form calls a node."""
    return form.names.get(node.path, node.path)


def is_norm(node: Node) -> bool:
    return isinstance(node.op, ops.BatchNorm | ops.LayerNorm | ops.GroupNorm | ops.RmsNorm)


def _is_scale(node: Node) -> bool:
    return isinstance(
        node.op, ops.BatchNorm | ops.ChannelScale | ops.Affine | ops.AddArray | ops.MultiplyArray
    )


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

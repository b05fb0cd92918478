"""What each tensor of a target is made of, in canonical axes: tensors of the source whose units are paired
with the target's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from porter.base.errors import GraphError, MappingError
from porter.comparison.aligning import Pairing
from porter.comparison.closeness import neutral_number
from porter.comparison.normal_form import NormalForm, normal_form
from porter.comparison.transfer.array_moves import Places, counted
from porter.comparison.unit import Unit
from porter.frameworks import Tensors
from porter.graph import Node, ops
from porter.padding import KnownSize

Key: TypeAlias = tuple[str, str]
"""The path of the node that holds a tensor, and the tensor's role."""
_MOVING = ops.Flatten | ops.AsMap | ops.Rearrange | ops.SliceChannels | ops.CropAxis | ops.Concat


@dataclass(frozen=True)
class Copied:
    """Numbers of tensors of the source.

    Attributes:
        keys: of these tensors.
        which: for each cell the place in `keys` of the tensor that it is from; None for the only one.
        places: for each cell its place in that tensor; None for the same cell.
    """

    keys: tuple[Key, ...]
    which: Places | None = None
    places: Places | None = None


@dataclass(frozen=True)
class ComputedValue:
    """What a function of porter.comparison.transfer.converter_functions gives.

    Attributes:
        given: its arguments by name: tensors of the source, and numbers.
    """

    function: str
    given: Mapping[str, Copied | float]


@dataclass(frozen=True)
class SameNumber:
    """A number in all cells: that of a norm which changes nothing."""

    number: float


Value: TypeAlias = Copied | ComputedValue | SameNumber


def assign(pairing: Pairing, size: KnownSize) -> dict[Key, Value]:
    """Return how each tensor of the target (the second form) is made of tensors of the source (the first),
    by the path of the node that holds it, and its role; tensors of which the source says nothing are left
    out.

    Args:
        pairing: the units of both forms, aligned.
        size: at which both forms were made.
    """
    assigned = dict[Key, Value]()
    pairs = [
        (pairing.form_a.units[path_a], pairing.form_b.units[path_b])
        for path_a, path_b in pairing.pairs.items()
    ]
    odd = [pair for pair in pairs if not _is_plain(pairing, *pair)]
    kernels = _kernels(pairing, odd, size)
    for source, target in pairs:
        if _is_plain(pairing, source, target):
            values = _copy_all(pairing, source, target)
        else:
            values = _assign_odd(pairing, kernels, source, target)
        for key, value in values:
            assigned.setdefault(key, value)
    return assigned


def _roles(form: NormalForm, node: Node) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a node's tensors by their roles."""
    tensors = form.tensors.get(node.holder, {})
    return {role: array.shape for role, array in tensors.items() if role != "batches"}


def _holders(form: NormalForm, unit: Unit) -> list[Node]:
    """Return the nodes of a unit that have tensors."""
    return [node for node in unit.nodes if _roles(form, node)]


def _is_plain(pairing: Pairing, source: Unit, target: Unit) -> bool:
    """Return whether two units are made of the same layers, whose tensors have the same cells in the same
    order, so that each tensor is copied. Others are `odd`.

    Args:
        source, target: the unit of each model.
    """
    source_nodes, target_nodes = _holders(pairing.form_a, source), _holders(pairing.form_b, target)
    moves = [[node.op for node in unit.nodes if isinstance(node.op, _MOVING)] for unit in (source, target)]
    return (
        len(source_nodes) == len(target_nodes)
        and source.rows == target.rows
        and moves[0] == moves[1]
        and all(
            _alike(pairing, source_node, target_node)
            for source_node, target_node in zip(source_nodes, target_nodes, strict=True)
        )
    )


def _alike(pairing: Pairing, source: Node, target: Node) -> bool:
    """Return whether two nodes have tensors of the same roles and shapes, but for axes of one cell."""
    source_shapes, target_shapes = _roles(pairing.form_a, source), _roles(pairing.form_b, target)
    return source_shapes.keys() == target_shapes.keys() and all(
        _cells(source_shapes[role]) == _cells(target_shapes[role]) for role in source_shapes
    )


def _cells(shape: Sequence[int]) -> list[int]:
    """Return a shape without its axes of one cell."""
    return [size for size in shape if size != 1]


def _copy_all(pairing: Pairing, source: Unit, target: Unit) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a unit that both models have in the same form: each key of the target with the
    whole tensor of the source that fills it.
    """
    source_nodes, target_nodes = _holders(pairing.form_a, source), _holders(pairing.form_b, target)
    for source_node, target_node in zip(source_nodes, target_nodes, strict=True):
        for role in _roles(pairing.form_b, target_node):
            yield (target_node.holder, role), _copy(source_node, role)


def _copy(node: Node, role: str) -> Copied:
    """Return a tensor of the source as it is."""
    return Copied(((node.holder, role),))


@dataclass(frozen=True)
class _Chain:
    """The layers of a unit, and the norm behind them."""

    layers: tuple[Node, ...]
    norm: Node | None


def _chain(form: NormalForm, unit: Unit) -> _Chain | None:
    """Return the layers and the norm that a unit is made of; None where it is made of anything else with
    tensors, of several norms, or of a transposed convolution.
    """
    holders = _holders(form, unit)
    layers = tuple(node for node in holders if "kernel" in _roles(form, node))
    norms = [node for node in holders if isinstance(node.op, ops.BatchNorm)]
    if len(layers) + len(norms) < len(holders) or len(norms) > 1 or unit.kind == "conv_transpose":
        return None
    if not layers and not norms:
        return None
    return _Chain(layers, norms[0] if norms else None)


def _assign_odd(
    pairing: Pairing, kernels: Mapping[str, Copied], source: Unit, target: Unit
) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a unit of the target whose layers are others than its partner's in the source:
    kernels that are made of other kernels' cells, and norms that only one of them has. Yield none where the
    units are made of more than layers and one norm, or a kernel is not known.

    Args:
        kernels: by holder, the path of the node that has a kernel in the target, the cells that it is made
            of.
        source, target: the unit of each model.
    """
    source_chain, target_chain = _chain(pairing.form_a, source), _chain(pairing.form_b, target)
    if source_chain is None or target_chain is None or bool(source_chain.layers) != bool(target_chain.layers):
        return
    if not all(node.holder in kernels for node in target_chain.layers):
        return
    if target_chain.norm is None and source_chain.norm is None:
        yield from _assign_layers(pairing, target_chain.layers, kernels)
        return
    # With a norm, each side has one layer at most, and its rows stay in order.
    if len(source_chain.layers) > 1 or len(target_chain.layers) > 1:
        return
    if not all(_in_order(kernels[node.holder]) for node in target_chain.layers):
        return
    source_layer, target_layer = (
        chain.layers[0] if chain.layers else None for chain in (source_chain, target_chain)
    )
    yield from _assign_layer_and_norm(
        pairing, (source_layer, target_layer), (source_chain.norm, target_chain.norm), kernels
    )


def _assign_layers(
    pairing: Pairing, layers: Sequence[Node], kernels: Mapping[str, Copied]
) -> Iterator[tuple[Key, Value]]:
    """Yield the kernels of layers, and the biases of the same rows: those of the source's rows, or 0 where
    the source has none.
    """
    for node in layers:
        kernel = kernels[node.holder]
        yield (node.holder, "kernel"), kernel
        if "bias" not in _roles(pairing.form_b, node):
            continue
        have_bias = ["bias" in pairing.form_a.tensors.get(path, {}) for path, _ in kernel.keys]
        if not any(have_bias):
            yield (node.holder, "bias"), SameNumber(0)
        elif all(have_bias) and (biases := _rows_of(pairing, kernel)) is not None:
            yield (node.holder, "bias"), biases


def _rows_of(pairing: Pairing, kernel: Copied) -> Copied | None:
    """Return the biases that belong to a kernel's rows (filters): those of the source's rows that each row
    is made of. None where a row has numbers of several rows.
    """
    keys = tuple((path, "bias") for path, _ in kernel.keys)
    if kernel.places is None:
        return Copied(keys)
    row_sizes = np.array([pairing.form_a.tensors[path]["kernel"][0].size for path, _ in kernel.keys])
    # for each cell, which of the source's kernels it is from
    which = kernel.which if kernel.which is not None else np.zeros_like(kernel.places)
    which = which.reshape(len(which), -1)
    places = kernel.places.reshape(len(kernel.places), -1)
    # from the cell in its kernel to the row
    rows = places // row_sizes[which]
    if (rows != rows[:, :1]).any() or (which != which[:, :1]).any():
        return None
    return Copied(keys, which[:, 0] if len(keys) > 1 else None, rows[:, 0])


def _in_order(kernel: Copied) -> bool:
    """Return whether row i of a kernel is made of row i of one kernel of the source, for all rows."""
    if kernel.places is None:
        return True
    places = kernel.places.reshape(len(kernel.places), -1)
    rows = places.min(axis=1) // places.shape[1]
    return len(kernel.keys) == 1 and bool((rows == np.arange(len(rows))).all())


def _assign_layer_and_norm(
    pairing: Pairing,
    layers: tuple[Node | None, Node | None],
    norms: tuple[Node | None, Node | None],
    kernels: Mapping[str, Copied],
) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of one layer and one norm of the target, of which one model may lack one, or a bias.
    A norm that the target lacks is folded into its layer, and one that the source lacks changes nothing.
    Yield none for a folded norm if there is no bias to take its offset.

    Args:
        layers: the source's layer and the target's; None where there is none.
        norms: the same for the norms.
    """
    layer, target_layer = layers
    norm, target_norm = norms
    has_bias = layer is not None and "bias" in _roles(pairing.form_a, layer)
    target_has_bias = target_layer is not None and "bias" in _roles(pairing.form_b, target_layer)
    bias: Copied | float = _copy(layer, "bias") if layer is not None and has_bias else 0.0
    if target_norm is None:
        if norm is not None and target_layer is not None and target_has_bias:
            yield from _assign_folded(pairing, norm, target_layer, kernels[target_layer.holder], bias)
        return
    if target_layer is not None:
        yield (target_layer.holder, "kernel"), kernels[target_layer.holder]
        if target_has_bias:
            # Without a norm in the source, its bias goes into the target's norm.
            value = bias if norm is not None and isinstance(bias, Copied) else SameNumber(0)
            yield (target_layer.holder, "bias"), value
    if norm is None:
        yield from _assign_neutral(pairing, target_norm, bias)
    else:
        # The norm's mean takes a bias that has no other place.
        bias_for_mean = 0.0 if target_has_bias else bias
        yield from _assign_norm(pairing, norm, target_norm, bias_for_mean)


def _assign_folded(
    pairing: Pairing, norm: Node, target_layer: Node, kernel: Copied, bias: Copied | float
) -> Iterator[tuple[Key, Value]]:
    """Yield the kernel and the bias of a layer of the target that takes in the source's norm, as calls of
    the functions `folded_kernel` and `folded_bias`.

    Args:
        kernel: the source's cells that the kernel is made of, without the norm.
        bias: that of the source's layer; 0 if it has none.
    """
    assert isinstance(norm.op, ops.BatchNorm)
    roles = _roles(pairing.form_a, norm)
    epsilon = float(norm.op.epsilon)
    gamma: Copied | float = _copy(norm, "gamma") if "gamma" in roles else 1.0
    beta: Copied | float = _copy(norm, "beta") if "beta" in roles else 0.0
    of_norm: dict[str, Copied | float] = {"variance": _copy(norm, "variance"), "epsilon": epsilon}
    yield (
        (target_layer.holder, "kernel"),
        ComputedValue("folded_kernel", {"kernel": kernel, "gamma": gamma, **of_norm}),
    )
    yield (
        (target_layer.holder, "bias"),
        ComputedValue(
            "folded_bias",
            {"bias": bias, "gamma": gamma, "beta": beta, "mean": _copy(norm, "mean"), **of_norm},
        ),
    )


def _assign_neutral(pairing: Pairing, norm: Node, bias: Copied | float) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a norm of the target that the source lacks: numbers with which it only adds the
    source's bias. Yield none if there is a bias and the norm has no offset to add it.
    """
    assert isinstance(norm.op, ops.BatchNorm)
    roles = _roles(pairing.form_b, norm)
    if isinstance(bias, Copied) and "beta" not in roles:
        return
    numbers = _neutral_numbers(norm.op)
    for role in roles:
        yield (
            (norm.holder, role),
            bias if role == "beta" and isinstance(bias, Copied) else SameNumber(numbers[role]),
        )


def _assign_norm(
    pairing: Pairing, norm: Node, target_norm: Node, bias: Copied | float
) -> Iterator[tuple[Key, Value]]:
    """Yield a norm's tensors, of which the source may lack some; its mean takes a bias that the target lacks.
    Yield none if the source has a tensor that the target lacks.
    """
    source_roles, target_roles = _roles(pairing.form_a, norm), _roles(pairing.form_b, target_norm)
    if source_roles.keys() - target_roles.keys():
        return
    for role in target_roles:
        value = _copy(norm, role) if role in source_roles else SameNumber(neutral_number(role))
        if role == "mean" and isinstance(bias, Copied) and isinstance(value, Copied):
            yield (target_norm.holder, role), ComputedValue("mean_less_bias", {"mean": value, "bias": bias})
        else:
            yield (target_norm.holder, role), value


def _neutral_numbers(norm: ops.BatchNorm) -> dict[str, float]:
    """Return by role the numbers with which a norm changes nothing: its variance plus epsilon is 1."""
    numbers = {role: neutral_number(role) for role in ("gamma", "beta", "mean")}
    return {**numbers, "variance": 1 - float(norm.epsilon)}


_Spans: TypeAlias = dict[str, tuple[int, tuple[int, ...]]]
"""The first of the numbers that count a kernel's cells, and its shape, by path."""


def _kernels(pairing: Pairing, odd: Sequence[tuple[Unit, Unit]], size: KnownSize) -> dict[str, Copied]:
    """Return the kernels of the second form's layers that are made of cells of the first's, by their holders.
    To find these, both forms are made once more with kernels whose numbers count their cells: the number in a
    place of the normal form tells which cell came there. Return an empty mapping if that fails.

    Args:
        odd: the pairs of units whose tensors are not simply copied.
        size: rows and columns of the input.
    """
    if not odd:
        return {}
    forms, spans = list[NormalForm](), list[_Spans]()
    for side, form in enumerate((pairing.form_a, pairing.form_b)):
        tensors, spans_of_form = _counted(form, [pair[side] for pair in odd])
        spans.append(spans_of_form)
        try:
            forms.append(normal_form(form.graph, tensors, size))
        except (GraphError, MappingError):
            return {}
    # for each cell of the target's kernels, the number of the source's cell that fills it
    cells = {path: np.zeros(math.prod(shape), np.int64) for path, (_, shape) in spans[1].items()}
    for pair in odd:
        units = [form.units.get(unit.path) for form, unit in zip(forms, pair, strict=True)]
        codes = [_codes(unit) for unit in units]
        if codes[0] is None or codes[1] is None or codes[0].size != codes[1].size:
            continue
        for path in dict.fromkeys(node.holder for node in pair[1].nodes if node.holder in cells):
            # In one place of both kernels stand a cell of the target's, and the source's cell that fills it.
            start, _ = spans[1][path]
            target_cells = codes[1] - start
            is_of_kernel = (target_cells >= 0) & (target_cells < cells[path].size)
            cells[path][target_cells[is_of_kernel]] = codes[0][is_of_kernel]
    # A cell that no number came to is 0: such a kernel is left out.
    return {
        path: _cells_of(numbers.reshape(spans[1][path][1]), spans[0])
        for path, numbers in cells.items()
        if numbers.all()
    }


def _counted(form: NormalForm, units: Sequence[Unit]) -> tuple[Tensors, _Spans]:
    """Return the tensors of a form with other numbers in some units: kernels count their cells, from 1 on
    through all kernels, and norms change nothing. Return too, by path, the number at which each kernel
    starts, and its shape.
    """
    tensors, start = dict(form.tensors), 1
    spans: _Spans = {}
    for node in (node for unit in units for node in unit.nodes):
        own_tensors = form.tensors.get(node.holder, {})
        if "kernel" in own_tensors and node.holder not in spans:
            shape = own_tensors["kernel"].shape
            spans[node.holder] = start, shape
            tensors[node.holder] = {**own_tensors, "kernel": counted(shape).astype(np.float64) + start}
            start += own_tensors["kernel"].size
        elif isinstance(node.op, ops.BatchNorm):
            neutral = _neutral_numbers(node.op)
            tensors[node.holder] = {
                role: np.full(array.shape, neutral[role]) if role in neutral else array
                for role, array in own_tensors.items()
            }
    return tensors, spans


def _codes(unit: Unit | None) -> Places | None:
    """Return the numbers of a unit's kernel as whole numbers, which count cells; None where they are none,
    because something else was folded into the kernel.
    """
    kernel = None if unit is None else unit.tensors.get("kernel")
    if kernel is None:
        return None
    codes = np.rint(kernel)
    return codes.reshape(-1).astype(np.int64) if np.abs(codes - kernel).max(initial=0) < 0.1 else None


def _cells_of(codes: Places, spans: _Spans) -> Copied:
    """Return the source's cells that these numbers stand for: each number is a cell of the last kernel that
    starts at or before it.
    """
    starts = np.array([start for start, _ in spans.values()])
    which = np.searchsorted(starts, codes, side="right") - 1
    used = np.unique(which)
    keys = tuple(([*spans][place], "kernel") for place in used)
    return Copied(keys, np.searchsorted(used, which) if len(used) > 1 else None, codes - starts[which])

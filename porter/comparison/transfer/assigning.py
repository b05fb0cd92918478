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
from porter.comparison.normal_form import NormalForm, Unit, normal_form
from porter.comparison.transfer.array_moves import Places, counted
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
    """Return the value of each tensor of the second form that the first says, by its holder (the path of the
    node that has the tensors) and role; others are left out.

    Args:
        pairing: the units of both forms, aligned.
        size: at which both forms were made.
    """
    found = dict[Key, Value]()
    pairs = [(pairing.one.units[mine], pairing.other.units[its]) for mine, its in pairing.pairs.items()]
    odd = [pair for pair in pairs if not _is_plain(pairing, *pair)]
    kernels = _kernels(pairing, odd, size)
    for mine, its in pairs:
        made = (
            _same(pairing, mine, its)
            if _is_plain(pairing, mine, its)
            else _of_odd(pairing, kernels, mine, its)
        )
        for key, value in made:
            found.setdefault(key, value)
    return found


def _roles(form: NormalForm, node: Node) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a node's tensors by their roles."""
    own = form.tensors.get(node.holder, {})
    return {role: array.shape for role, array in own.items() if role != "batches"}


def _holders(form: NormalForm, unit: Unit) -> list[Node]:
    return [node for node in unit.nodes if _roles(form, node)]


def _is_plain(pairing: Pairing, mine: Unit, its: Unit) -> bool:
    """Return whether two units are made of the same layers, whose tensors have the same cells in the same
    order, so that each tensor is copied. Others are `odd`.

    Args:
        mine: the first form's unit.
        its: the second form's.
    """
    ours, theirs = _holders(pairing.one, mine), _holders(pairing.other, its)
    moves = [[node.op for node in unit.nodes if isinstance(node.op, _MOVING)] for unit in (mine, its)]
    return (
        len(ours) == len(theirs)
        and mine.rows == its.rows
        and moves[0] == moves[1]
        and all(_alike(pairing, one, other) for one, other in zip(ours, theirs, strict=True))
    )


def _alike(pairing: Pairing, one: Node, other: Node) -> bool:
    mine, its = _roles(pairing.one, one), _roles(pairing.other, other)
    return mine.keys() == its.keys() and all(_cells(mine[role]) == _cells(its[role]) for role in mine)


def _cells(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _same(pairing: Pairing, mine: Unit, its: Unit) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a unit that both models have in the same form: the key of each tensor in the other
    model (its holder and role), and the whole tensor of the first model that fills it.
    """
    ours, theirs = _holders(pairing.one, mine), _holders(pairing.other, its)
    for one, other in zip(ours, theirs, strict=True):
        for role in _roles(pairing.other, other):
            yield (other.holder, role), _whole(one, role)


def _whole(node: Node, role: str) -> Copied:
    return Copied(((node.holder, role),))


@dataclass(frozen=True)
class _Chain:
    """The layers of a unit, and the norm behind them."""

    layers: tuple[Node, ...]
    norm: Node | None


def _chain(form: NormalForm, unit: Unit) -> _Chain | None:
    """Return the layers and the norm that a unit is made of; None where it is made of something else too."""
    holders = _holders(form, unit)
    layers = tuple(node for node in holders if "kernel" in _roles(form, node))
    norms = [node for node in holders if isinstance(node.op, ops.BatchNorm)]
    if len(layers) + len(norms) < len(holders) or len(norms) > 1 or unit.kind == "conv_transpose":
        return None
    return _Chain(layers, norms[0] if norms else None) if layers or norms else None


def _of_odd(
    pairing: Pairing, kernels: Mapping[str, Copied], mine: Unit, its: Unit
) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a unit whose layers are others than its partner's: kernels that are made of other
    kernels' cells, and norms that only one of them has. Yield none where the units are made of more than
    layers and one norm, or a kernel is not known.

    Args:
        kernels: by holder, the cells that a kernel of the second form is made of.
        kernels: by holder, the path of the node that has a kernel, the cells that it is made of.
        mine, its: the first form's unit and the second's.
    """
    ours, theirs = _chain(pairing.one, mine), _chain(pairing.other, its)
    if ours is None or theirs is None or bool(ours.layers) != bool(theirs.layers):
        return
    if not all(node.holder in kernels for node in theirs.layers):
        return
    if theirs.norm is None and ours.norm is None:
        yield from _of_layers(pairing, theirs.layers, kernels)
        return
    if (
        len(ours.layers) > 1
        or len(theirs.layers) > 1
        or not all(_in_order(kernels[node.holder]) for node in theirs.layers)
    ):
        return
    layer, its_layer = (chain.layers[0] if chain.layers else None for chain in (ours, theirs))
    yield from _of_norms(pairing, (layer, its_layer), (ours.norm, theirs.norm), kernels)


def _of_layers(
    pairing: Pairing, layers: Sequence[Node], kernels: Mapping[str, Copied]
) -> Iterator[tuple[Key, Value]]:
    """Yield the kernels of layers, and the biases of the same rows: those of the source's rows, or 0 where
    the source has none.
    """
    for node in layers:
        kernel = kernels[node.holder]
        yield (node.holder, "kernel"), kernel
        if "bias" not in _roles(pairing.other, node):
            continue
        has = ["bias" in pairing.one.tensors.get(path, {}) for path, _ in kernel.keys]
        if not any(has):
            yield (node.holder, "bias"), SameNumber(0)
        elif all(has) and (rows := _rows_of(pairing, kernel)) is not None:
            yield (node.holder, "bias"), rows


def _rows_of(pairing: Pairing, kernel: Copied) -> Copied | None:
    """Return the biases of the rows of a kernel; None where a row has numbers of several rows."""
    keys = tuple((path, "bias") for path, _ in kernel.keys)
    if kernel.places is None:
        return Copied(keys)
    sizes = np.array([pairing.one.tensors[path]["kernel"][0].size for path, _ in kernel.keys])
    which = kernel.which if kernel.which is not None else np.zeros_like(kernel.places)
    flat = (each.reshape(len(each), -1) for each in (which, kernel.places))
    which, places = flat
    # from the cell in its kernel to the row
    rows = places // sizes[which]
    if (rows != rows[:, :1]).any() or (which != which[:, :1]).any():
        return None
    return Copied(keys, which[:, 0] if len(keys) > 1 else None, rows[:, 0])


def _in_order(kernel: Copied) -> bool:
    """Return whether the rows of a kernel are those of one other, in the same order."""
    if kernel.places is None:
        return True
    rows = kernel.places.reshape(len(kernel.places), -1)
    return len(kernel.keys) == 1 and bool((rows.min(axis=1) // rows.shape[1] == np.arange(len(rows))).all())


def _of_norms(
    pairing: Pairing,
    layers: tuple[Node | None, Node | None],
    norms: tuple[Node | None, Node | None],
    kernels: Mapping[str, Copied],
) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of one layer and one norm, of which one side may lack one, or a bias. A norm that the
    second lacks is folded into its layer, and one that the first lacks changes nothing. Yield none for a
    folded norm if there is no bias to take its offset.

    Args:
        layers: the first form's layer and the second's; None where there is none.
        norms: the same for the norms.
    """
    (layer, its_layer), (norm, its_norm) = layers, norms
    own = {} if layer is None else _roles(pairing.one, layer)
    its_own = {} if its_layer is None else _roles(pairing.other, its_layer)
    bias: Copied | float = _whole(layer, "bias") if layer is not None and "bias" in own else 0.0
    if its_norm is None:
        if norm is not None and its_layer is not None and "bias" in its_own:
            yield from _folded(pairing, norm, its_layer, kernels[its_layer.holder], bias)
        return
    if its_layer is not None:
        yield (its_layer.holder, "kernel"), kernels[its_layer.holder]
        if "bias" in its_own:
            kept = norm is not None and "bias" in own
            yield (its_layer.holder, "bias"), bias if kept and isinstance(bias, Copied) else SameNumber(0)
    if norm is None:
        yield from _changing_nothing(pairing, its_norm, bias)
    else:
        # The norm's mean takes a bias that has no other place.
        lost = 0.0 if "bias" in its_own else bias
        yield from _of_norm(pairing, norm, its_norm, lost)


def _folded(
    pairing: Pairing, norm: Node, its_layer: Node, kernel: Copied, bias: Copied | float
) -> Iterator[tuple[Key, Value]]:
    """Yield the kernel and the bias of a layer that takes in the norm behind it.

    Args:
        bias: that of the first form's layer; 0 if it has none.
    """
    assert isinstance(norm.op, ops.BatchNorm)
    has = _roles(pairing.one, norm)
    epsilon = float(norm.op.epsilon)
    gamma: Copied | float = _whole(norm, "gamma") if "gamma" in has else 1.0
    beta: Copied | float = _whole(norm, "beta") if "beta" in has else 0.0
    of_norm: dict[str, Copied | float] = {"variance": _whole(norm, "variance"), "epsilon": epsilon}
    yield (
        (its_layer.holder, "kernel"),
        ComputedValue("folded_kernel", {"kernel": kernel, "gamma": gamma, **of_norm}),
    )
    yield (
        (its_layer.holder, "bias"),
        ComputedValue(
            "folded_bias",
            {"bias": bias, "gamma": gamma, "beta": beta, "mean": _whole(norm, "mean"), **of_norm},
        ),
    )


def _changing_nothing(pairing: Pairing, norm: Node, bias: Copied | float) -> Iterator[tuple[Key, Value]]:
    """Yield the tensors of a norm that only adds a bias; none if the norm has no offset to add it."""
    assert isinstance(norm.op, ops.BatchNorm)
    roles = _roles(pairing.other, norm)
    if isinstance(bias, Copied) and "beta" not in roles:
        return
    # the variance plus epsilon is 1
    numbers = {"gamma": 1.0, "mean": 0.0, "variance": 1 - float(norm.op.epsilon), "beta": 0.0}
    for role in roles:
        yield (
            (norm.holder, role),
            bias if role == "beta" and isinstance(bias, Copied) else SameNumber(numbers[role]),
        )


def _of_norm(
    pairing: Pairing, norm: Node, its_norm: Node, bias: Copied | float
) -> Iterator[tuple[Key, Value]]:
    """Yield a norm's tensors, of which the source may lack some; its mean takes a bias that the target lacks.
    Yield none if the source has a tensor that the target lacks.
    """
    has, wants = _roles(pairing.one, norm), _roles(pairing.other, its_norm)
    if has.keys() - wants.keys():
        return
    for role in wants:
        own = _whole(norm, role) if role in has else SameNumber(1 if role == "gamma" else 0)
        if role == "mean" and isinstance(bias, Copied) and isinstance(own, Copied):
            yield (its_norm.holder, role), ComputedValue("mean_less_bias", {"mean": own, "bias": bias})
        else:
            yield (its_norm.holder, role), own


_Spans: TypeAlias = dict[str, tuple[int, tuple[int, ...]]]
"""The first of the numbers that count a kernel's cells, and its shape, by path."""


def _kernels(pairing: Pairing, odd: Sequence[tuple[Unit, Unit]], size: KnownSize) -> dict[str, Copied]:
    """Return the kernels of the second form's layers that are made of cells of the first's, by their holders.
    Both forms are made once more of kernels whose numbers count their cells: the number in a place of the
    normal form tells which cell came there. Return none if that fails.
    """
    if not odd:
        return {}
    forms, spans = list[NormalForm](), list[_Spans]()
    for side, form in enumerate((pairing.one, pairing.other)):
        tensors, own = _counted(form, [pair[side] for pair in odd])
        spans.append(own)
        try:
            forms.append(normal_form(form.graph, tensors, size))
        except (GraphError, MappingError):
            return {}
    cells = {path: np.zeros(math.prod(shape), np.int64) for path, (_, shape) in spans[1].items()}
    for pair in odd:
        units = [form.units.get(unit.path) for form, unit in zip(forms, pair, strict=True)]
        codes = [_codes(unit) for unit in units]
        if codes[0] is None or codes[1] is None or codes[0].size != codes[1].size:
            continue
        for path in dict.fromkeys(node.holder for node in pair[1].nodes if node.holder in cells):
            # where the second's kernel has its cells, the first's cells stand
            inside = codes[1] - spans[1][path][0]
            within = (inside >= 0) & (inside < cells[path].size)
            cells[path][inside[within]] = codes[0][within]
    return {
        path: _cells_of(own.reshape(spans[1][path][1]), spans[0]) for path, own in cells.items() if own.all()
    }


def _counted(form: NormalForm, units: Sequence[Unit]) -> tuple[Tensors, _Spans]:
    """Return the tensors of a form with other numbers in some units: kernels count their cells from 1 on,
    norms change nothing. Return too where the numbers of each kernel start, and its shape.
    """
    tensors, start = dict(form.tensors), 1
    spans: _Spans = {}
    for node in (node for unit in units for node in unit.nodes):
        own = form.tensors.get(node.holder, {})
        if "kernel" in own and node.holder not in spans:
            shape = own["kernel"].shape
            spans[node.holder] = start, shape
            tensors[node.holder] = {**own, "kernel": counted(shape).astype(np.float64) + start}
            start += own["kernel"].size
        elif isinstance(node.op, ops.BatchNorm):
            norm = {"gamma": 1.0, "beta": 0.0, "mean": 0.0, "variance": 1 - float(node.op.epsilon)}
            tensors[node.holder] = {
                role: np.full(array.shape, norm[role]) if role in norm else array
                for role, array in own.items()
            }
    return tensors, spans


def _codes(unit: Unit | None) -> Places | None:
    """Return the numbers of a unit's kernel; None where they count no cells, because something else is in it
    too.
    """
    kernel = None if unit is None else unit.tensors.get("kernel")
    if kernel is None:
        return None
    codes = np.rint(kernel)
    return codes.reshape(-1).astype(np.int64) if np.abs(codes - kernel).max(initial=0) < 0.1 else None


def _cells_of(codes: Places, spans: _Spans) -> Copied:
    """Return which cells of which kernels these numbers count."""
    starts = np.array([start for start, _ in spans.values()])
    which = np.searchsorted(starts, codes, side="right") - 1
    used = np.unique(which)
    keys = tuple(([*spans][place], "kernel") for place in used)
    return Copied(keys, np.searchsorted(used, which) if len(used) > 1 else None, codes - starts[which])

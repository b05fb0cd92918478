"""The normal form of a source: units of few kinds, in which what can be written in several ways is written in
one. Norms and scales are in the layers before them, pads in the layers behind them, in float64.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from porter.base.errors import MappingError
from porter.frameworks import Tensors
from porter.graph import Graph, Node, ops, shapes, site_of
from porter.graph.ops import Axes, Shape, channels_in, is_map
from porter.graph.ops.kinds import attributes
from porter.graph.walks import in_order
from porter.padding import Convention, KnownSize, Window, pad_amounts

Numbers: TypeAlias = NDArray[np.float64]
LINEAR = ("conv", "conv_transpose", "dense")
NORMS = ("layer_norm", "rms_norm", "group_norm")
COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
_SAID_BY_TENSORS = {"bias", "scale", "center", "keep"}
"""Flags of ops that change nothing, or that the tensors say."""


@dataclass(frozen=True)
class Unit:
    """A step of a normal form.

    Attributes:
        path: of the value that it gives, in the graph; a part of it where `rows` says so.
        kind: the name of an op, or `scale`: a number for each channel, times x, plus another one.
        says: the attributes that make the function.
        tensors: by role: `kernel` and `bias`, `gamma` and `beta`, `alpha`, `value`.
        nodes: of the graph, which it is made of, in their order.
        rows: the channels of the value; None for all.
        names: see NormalForm.
    """

    path: str
    kind: str
    says: Mapping[str, Any]
    inputs: tuple[str, ...]
    tensors: Mapping[str, Numbers]
    nodes: tuple[Node, ...]
    rows: slice | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What messages call it: its first layer with tensors, otherwise its last step."""
        trained = (node.path for node in self.nodes if node.op.tensors(1))
        path = next(trained, self.nodes[-1].path)
        return self.names.get(path, path)


@dataclass(frozen=True)
class NormalForm:
    """Units in topological order.

    Attributes:
        units: by path.
        graph: that it is the form of, with its `tensors`.
        shapes: of the graph's values.
        names: what the model itself calls the graph's nodes, by path, where that is known.
    """

    units: Mapping[str, Unit]
    outputs: tuple[str, ...]
    graph: Graph
    tensors: Tensors
    shapes: Mapping[str, Shape]
    names: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, path: str) -> str:
        """Return what messages call a value: a unit's name, otherwise the node's."""
        return self.units[path].name if path in self.units else self.names.get(path, path)


_Units: TypeAlias = dict[str, Unit]
"""Units by path, in topological order. Each step to the normal form takes them with the paths of the outputs
and the shapes of the graph's values by path (of one image), and gives them changed.
"""


def normal_form(
    graph: Graph, tensors: Tensors, size: KnownSize, names: Mapping[str, str] | None = None
) -> NormalForm:
    """Return the normal form of a graph with canonical tensors: units (steps) in which several ways to write
    one function are the same.

    Args:
        size: rows and columns of the input, at which what only moves numbers is read.
        names: see NormalForm; None for none.

    Raises:
        MappingError: a norm's variance plus epsilon is not above 0.
    """
    value_shapes = shapes(graph, size)
    units = dict[str, Unit]()
    # by the path of a node that changes nothing, the path of the value that it takes
    passed = dict[str, str]()
    for node in graph.nodes:
        unit = _unit(node, tuple(passed.get(path, path) for path in node.inputs), tensors, value_shapes)
        if _moves_nothing(node, value_shapes):
            passed[node.path] = unit.inputs[0]
        else:
            units[unit.path] = unit
    outputs = tuple(passed.get(path, path) for path in graph.outputs)
    # Scales are joined twice, because layers that are put together take them too.
    for step in (_with_pads, _as_dense, _products, _with_scales, _together, _with_scales, _before_layers):
        units = step(units, outputs, value_shapes)
    for step in (_apart, _positions, _sums, _joins):
        units = step(units, outputs, value_shapes)
    # Units that no output needs are left out.
    order = in_order(outputs, lambda path: units[path].inputs if path in units else ())
    used = {path: units[path] for path in order if path in units}
    with_names = {path: replace(unit, names=names or {}) for path, unit in used.items()}
    return NormalForm(with_names, outputs, graph, tensors, value_shapes, names or {})


def _unit(node: Node, inputs: tuple[str, ...], tensors: Tensors, value_shapes: Mapping[str, Shape]) -> Unit:
    """Return a node as a unit, under the kind that several ops have in common: a ReLU6 is a `clip` from 0 to
    6, a batch norm a `scale`. Tensors that a layer may lack are filled in: a bias of 0, a scale of 1.

    Args:
        inputs: the units that it reads.
        value_shapes: the shape of each value of one image.
    """
    op, shape = node.op, value_shapes[node.source]
    own_tensors = {role: value.astype(np.float64) for role, value in tensors.get(node.holder, {}).items()}
    own_tensors.pop("batches", None)
    kind, channels = op.name, channels_in(shape)
    says = _said(op)
    if (scale := _scale_of(node, own_tensors, shape)) is not None:
        kind, says = "scale", {}
        own_tensors = {"gamma": np.ones(channels), "beta": np.zeros(channels)} | scale
    # a PReLU with one slope for all channels
    elif isinstance(op, ops.PRelu) and (own_tensors["alpha"] == own_tensors["alpha"][0]).all():
        kind, says, own_tensors = "leaky_relu", {"slope": float(own_tensors["alpha"][0])}, {}
    elif isinstance(op, ops.Rearrange | ops.Flatten | ops.AsMap | ops.ChannelShuffle):
        kind, says = "move", {"cells": moved(op, shape), "shape": tuple(value_shapes[node.path])}
    elif (renamed := _as_general_kind(op, shape)) is not None:
        kind, says = renamed
    if kind in NORMS:
        centred = {} if kind == "rms_norm" else {"beta": np.zeros(channels)}
        own_tensors = {"gamma": np.ones(channels), **centred, **own_tensors}
    if kind in LINEAR:
        count = int(says["filters"]) if kind == "conv_transpose" else len(own_tensors["kernel"])
        own_tensors = {"bias": np.zeros(count)} | own_tensors
    return Unit(node.path, kind, says, inputs, own_tensors, (node,))


def _said(op: ops.Op) -> dict[str, Any]:
    """Return the attributes of an op that make its function, beside its tensors: whether it has a bias is
    left out.
    """
    said = {name: getattr(op, name) for name in attributes(type(op))}
    return {
        name: value
        for name, value in said.items()
        if not (name in _SAID_BY_TENSORS and isinstance(value, bool))
    }


def _scale_of(node: Node, tensors: Mapping[str, Numbers], shape: Shape) -> dict[str, Numbers] | None:
    """Return the tensors of a scale (a number for each channel, times x, plus another one) that an op is;
    None where it is none.

    Args:
        tensors: the node's tensors by role.
        shape: of what it reads.
    """
    op = node.op
    match op:
        case ops.BatchNorm():
            return _of_norm(node, op, tensors)
        case ops.ChannelScale():
            return dict(tensors)
        case ops.Affine():
            channels = channels_in(shape)
            return {"gamma": _full(op.scale, channels), "beta": _full(op.offset, channels)}
        # a depthwise convolution of one cell
        case ops.Conv(window=Window(kernel=(1, 1), stride=(1, 1))) if op.groups == op.filters == shape[0]:
            return (
                {"gamma": tensors["kernel"].reshape(-1), "beta": tensors.get("bias", np.zeros(1))}
                if _pads_nothing(op)
                else None
            )
        case ops.AddArray() | ops.MultiplyArray() if _of_channels(op.sizes, shape):
            return {"beta" if isinstance(op, ops.AddArray) else "gamma": tensors["value"].reshape(-1)}
    return None


def _as_general_kind(op: ops.Op, shape: Shape) -> tuple[str, dict[str, Any]] | None:
    """Return the more general kind that an op is a case of, with its attributes there: a ReLU is `clip` from
    0, a pool over the whole map `global_avg_pool`. Return None for other ops.

    Args:
        shape: of what the op reads.
    """
    rectified = {"low": 0.0, "high": math.inf}
    match op:
        case ops.Relu() | ops.LeakyRelu(slope=0) | ops.ThresholdedRelu(threshold=0):
            return "clip", rectified
        case ops.Relu6() | ops.Clip():
            return "clip", dict(zip(("low", "high"), op.bounds, strict=True))
        case ops.Celu(alpha=1):
            return "elu", {"alpha": 1.0}
        case ops.AdaptiveAvgPool(rows=1, columns=1) | ops.AvgPool() | ops.GlobalAvgPool() if _is_whole(
            op, shape
        ):
            return "global_avg_pool", {}
        case ops.AdaptiveMaxPool(rows=1, columns=1) | ops.MaxPool() | ops.GlobalMaxPool() if _is_whole(
            op, shape
        ):
            return "global_max_pool", {}
    return None


def _pads_nothing(op: ops.Conv) -> bool:
    return op.convention.rule in ("valid", "same", "same_lower") or not any(op.convention.pads)


def _full(values: Iterable[float], channels: int) -> Numbers:
    return np.broadcast_to(np.array(tuple(values), np.float64), (channels,)).copy()


def _of_norm(node: Node, op: ops.BatchNorm, tensors: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the scale that a batch norm is: gamma / sqrt(variance + epsilon), and beta less the mean times
    that.

    Args:
        tensors: the norm's by role.

    Raises:
        MappingError: a variance plus epsilon is not above 0.
    """
    spread = tensors["variance"] + op.epsilon
    if not np.all(spread > 0):
        raise MappingError(
            f"expected a variance above -{op.epsilon:g}, got {np.min(tensors['variance']):g}",
            where=f"{node.path}:variance",
        )
    gamma = tensors.get("gamma", np.ones(1)) / np.sqrt(spread)
    return {"gamma": gamma, "beta": tensors.get("beta", np.zeros(1)) - tensors["mean"] * gamma}


def _of_channels(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Return whether an array of these sizes has a number for each channel of a value, and nothing more:
    `(64, 1, 1)` for maps of 64 channels.
    """
    # Tokens have the channels last, maps first.
    axis = len(shape) - 1 if isinstance(shape, Axes) else 0
    return all(
        size == (shape_size if place == axis else 1)
        for place, (size, shape_size) in enumerate(zip(sizes, shape, strict=True))
    )


def _is_whole(op: ops.Op, shape: Shape) -> bool:
    """Return whether the only window of an op is the whole map, without pads; True for an op without a
    window, as a global pool.
    """
    # the op's window and pads
    site = site_of(op)
    if site is None:
        return True
    if site.window.kernel != tuple(shape[1:]):
        return False
    sides = (pad_amounts(site.convention, site.window, axis, shape[1 + axis] or 0) for axis in (0, 1))
    return not any(amount for side in sides for amount in side)


def moved(op: ops.Op, shape: Shape) -> bytes:
    """Return, for an op that only moves the cells of its input, such as a transpose, which input cell each
    cell of the result is, as bytes of int32: ops that move alike have equal bytes.

    Args:
        shape: of the input; an unknown size counts as 1.
    """
    sizes = [size or 1 for size in shape]
    cells: NDArray[np.int64] = np.arange(math.prod(sizes)).reshape(sizes)
    match op:
        case ops.Rearrange():
            for reshapes, numbers in op.steps(shape, is_map(shape)):
                cells = cells.reshape(numbers) if reshapes else cells.transpose(numbers)
        case ops.Flatten(order="HWC"):
            cells = cells.transpose(1, 2, 0)
        case ops.ChannelShuffle():
            cells = cells.reshape(op.groups, -1, *cells.shape[1:]).swapaxes(0, 1)
    return cells.astype(np.int32).tobytes()


def _moves_nothing(node: Node, value_shapes: Mapping[str, Shape]) -> bool:
    """Return whether a node gives the numbers that it takes, in their order along axes of several cells."""
    op = node.op
    cells = tuple(value_shapes[node.source][1:])
    if isinstance(op, ops.Identity | ops.Dropout):
        return True
    if isinstance(op, ops.GlobalPool | ops.AdaptivePool):
        pooled = (op.rows, op.columns) if isinstance(op, ops.AdaptivePool) else (1, 1)
        return cells == pooled
    if not isinstance(op, ops.Rearrange | ops.Flatten | ops.AsMap):
        return False
    before, after = ([size for size in value_shapes[path] if size != 1] for path in (node.source, node.path))
    count = math.prod(size or 1 for size in value_shapes[node.source])
    in_order_of_input = np.arange(count, dtype=np.int32).tobytes()
    return before == after and moved(op, value_shapes[node.source]) == in_order_of_input


def _readers(units: _Units, outputs: Iterable[str]) -> Counter[str]:
    """Return how often each value is read, or given as an output."""
    counts = Counter(path for unit in units.values() for path in unit.inputs)
    counts.update(outputs)
    return counts


def _joined(first: Unit, second: Unit, **changes: Any) -> Unit:
    """Return two units as one, which reads what the first reads and gives the value of the second."""
    return replace(second, inputs=first.inputs, nodes=(*first.nodes, *second.nodes), **changes)


def _chains(units: _Units, outputs: Iterable[str], join: Callable[[Unit, Unit], Unit | None]) -> _Units:
    """Return the units with neighbours joined: where a unit has one input, and is the only reader of it,
    `join` is asked for the unit that both are together, as a convolution with a scale behind it is a
    convolution. Where it gives None, both stay.
    """
    counts = _readers(units, outputs)
    done: _Units = {}
    for path, unit in units.items():
        done[path] = unit
        layer_before = done.get(unit.inputs[0])
        if layer_before is None or len(unit.inputs) != 1 or counts[layer_before.path] != 1:
            continue
        joined = join(layer_before, unit)
        if joined is not None:
            del done[layer_before.path]
            done[path] = joined
    return done


def _with_pads(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with each pad op as pads of the layer behind it, where that gives the same: a pad of
    zeros before a convolution, or one that fills with what a max pool pads with.
    """

    def padded(unit: Unit) -> Unit:
        """Return a unit with the pads before it as its own, or as it is."""
        pad = units.get(unit.inputs[0])
        convention_behind = unit.says.get("convention")
        if pad is None or pad.kind != "pad_map" or not isinstance(convention_behind, Convention):
            return unit
        fill = pad.says["fill"]
        if unit.kind == "max_pool":
            # One with explicit pads has a fill of its own.
            takes_fill = convention_behind.rule == "valid" or fill == convention_behind.fill
        else:
            takes_fill = unit.kind == "conv" and not fill
        if convention_behind.rule not in ("valid", "explicit") or not takes_fill:
            return unit
        top, bottom, left, right = (
            own_pad + pad_before
            for own_pad, pad_before in zip(convention_behind.pads, pad.says["pads"], strict=True)
        )
        convention = replace(convention_behind, rule="explicit", pads=(top, bottom, left, right), fill=fill)
        return _joined(pad, unit, says={**unit.says, "convention": convention})

    return {path: padded(unit) for path, unit in units.items()}


def _as_dense(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with each convolution whose only window is the whole map as a dense layer of its
    numbers, and with each dense layer behind a rearrangement (such as a flattening) as one that reads the
    cells before it, its kernel's columns moved instead.
    """

    def alone(unit: Unit) -> Unit:
        """Return a unit as a dense layer, if it is such a convolution; otherwise as it is."""
        shape, op = value_shapes[unit.nodes[0].source], unit.nodes[-1].op
        is_single_conv = isinstance(op, ops.Conv) and op.groups == 1 and len(unit.nodes) == 1
        if not is_single_conv or not _is_whole(op, shape):
            return unit
        kernel = unit.tensors["kernel"]
        return replace(
            unit,
            kind="dense",
            says={"units": len(kernel)},
            tensors={**unit.tensors, "kernel": kernel.reshape(len(kernel), -1)},
        )

    def join(move: Unit, unit: Unit) -> Unit | None:
        """Return a dense layer that reads the value before a rearrangement; None for other pairs."""
        if move.kind != "move" or unit.kind != "dense" or len(value_shapes[move.path]) != 1:
            return None
        cells = np.frombuffer(move.says["cells"], np.int32)
        kernel = np.empty_like(unit.tensors["kernel"])
        # Cell i of the rearranged value was cell cells[i].
        kernel[:, cells] = unit.tensors["kernel"]
        return _joined(move, unit, tensors={**unit.tensors, "kernel": kernel})

    return _chains({path: alone(unit) for path, unit in units.items()}, outputs, join)


def _products(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with x times a sigmoid of x as a swish, and times a hard sigmoid as a hard swish."""
    counts = _readers(units, outputs)
    activations = {"sigmoid": "swish", "hard_sigmoid": "hard_swish"}
    done: _Units = dict(units)
    for path, unit in units.items():
        if unit.kind != "multiply" or len(unit.inputs) != 2:
            continue
        # either factor may be the gate
        for value, gate_path in (unit.inputs, unit.inputs[::-1]):
            gate = done.get(gate_path)
            is_gate = gate is not None and (gate.kind == "sigmoid" or _of_sixths(gate))
            if gate is not None and is_gate and gate.inputs == (value,) and counts[gate_path] == 1:
                del done[gate_path]
                done[path] = replace(
                    unit, kind=activations[gate.kind], inputs=(value,), nodes=(*gate.nodes, *unit.nodes)
                )
    return done


def _of_sixths(unit: Unit) -> bool:
    """Return whether a unit is the hard sigmoid of a hard swish: x / 6 + 0.5, between 0 and 1."""
    return unit.kind == "hard_sigmoid" and np.allclose(
        [unit.says["slope"], unit.says["offset"]], [1 / 6, 0.5], 1e-6
    )


def _with_scales(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with each scale that is the only reader of a layer, a norm or another scale in the
    tensors of that one: gamma times the kernel, and gamma times the bias, plus beta. An RMS norm has no
    place for beta.
    """

    def join(layer: Unit, scale: Unit) -> Unit | None:
        """Return a layer with the scale in its tensors; None where it is no scale, or has no place there."""
        if scale.kind != "scale" or layer.kind not in (*LINEAR, *NORMS, "scale"):
            return None
        gamma, beta = scale.tensors["gamma"], scale.tensors["beta"]
        if layer.kind == "rms_norm" and beta.any():
            return None
        factor_role, offset_role = ("kernel", "bias") if layer.kind in LINEAR else ("gamma", "beta")
        tensors = dict(layer.tensors)
        tensors[factor_role] = _scaled(layer, tensors[factor_role], gamma)
        if offset_role in tensors:
            tensors[offset_role] = tensors[offset_role] * gamma + beta
        return _joined(layer, scale, kind=layer.kind, says=layer.says, tensors=tensors)

    return _chains(units, outputs, join)


def _scaled(layer: Unit, array: Numbers, gamma: Numbers) -> Numbers:
    """Return a layer's kernel with each of its filters times its number of `gamma`. A transposed convolution
    has its filters on the second axis, in groups.
    """
    if layer.kind != "conv_transpose":
        return array * gamma.reshape(-1, *[1] * (array.ndim - 1))
    groups = int(layer.says["groups"])
    parts = array.reshape(groups, -1, *array.shape[1:]) * gamma.reshape(groups, 1, -1, 1, 1)
    return parts.reshape(array.shape)


def _before_layers(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with each scale that only a convolution or a dense layer reads in that one's kernel;
    what the scale adds goes into the bias, if the layer pads nothing. Another order of channels goes into the
    kernel, too.
    """

    def join(scale: Unit, layer: Unit) -> Unit | None:
        """Return a layer with the scale or the order of channels in its kernel; None where the sums at its
        pads would be others, or for other pairs.
        """
        if layer.kind not in ("conv", "dense") or scale.kind not in ("scale", "slice_channels"):
            return None
        if scale.kind == "slice_channels":
            return _turned(scale, layer)
        kernel, gamma, beta = layer.tensors["kernel"], scale.tensors["gamma"], scale.tensors["beta"]
        convention = layer.says.get("convention")
        # Pads of 0 come after the scale, and have no beta in them.
        if beta.any() and isinstance(convention, Convention) and convention.rule != "valid":
            return None
        if layer.kind == "dense" and kernel.shape[1] != len(gamma):
            # It reads the cells of a map, channels first: each channel's cells lie together.
            cells_of_channel = kernel.shape[1] // len(gamma)
            gamma, beta = (np.repeat(numbers, cells_of_channel) for numbers in (gamma, beta))
        groups = int(layer.says.get("groups", 1))
        # groups x filters of a group x inputs of a group x window
        in_groups = kernel.reshape(groups, -1, *kernel.shape[1:])
        by_input = (groups, 1, -1, *[1] * (kernel.ndim - 2))
        offsets = (in_groups * beta.reshape(by_input)).sum(axis=tuple(range(2, in_groups.ndim)))
        tensors = {
            **layer.tensors,
            "kernel": (in_groups * gamma.reshape(by_input)).reshape(kernel.shape),
            "bias": layer.tensors["bias"] + offsets.ravel(),
        }
        return _joined(scale, layer, tensors=tensors)

    return _chains(units, outputs, join)


def _apart(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with one layer taken apart where its channels are used apart: the queries, keys and
    values that one dense layer gives to an attention as three layers, and each part of a layer's channels
    that a slice takes as a layer of its own.

    Args:
        outputs: of the graph, which read their values too.
        value_shapes: the shape of each value of one image.
    """
    counts = _readers(units, outputs)
    done: _Units = {}
    for path, unit in units.items():
        layer = units.get(unit.inputs[0])
        if layer is None or layer.kind not in ("dense", "conv") or layer.says.get("groups", 1) != 1:
            done[path] = unit
            continue
        if unit.kind == "attention" and len(unit.inputs) == 1 and counts[layer.path] == 1:
            third = len(layer.tensors["bias"]) // 3
            parts = [
                _part(layer, slice(place * third, (place + 1) * third), f"{layer.path}#{place}")
                for place in range(3)
            ]
            done.pop(layer.path, None)
            done |= {part.path: part for part in parts}
            done[path] = replace(unit, inputs=tuple(part.path for part in parts))
        elif (rows := _cut(unit, value_shapes[unit.nodes[0].source])) is not None:
            done[path] = replace(_part(layer, rows, unit.path), rows=None, nodes=(*layer.nodes, *unit.nodes))
        else:
            done[path] = unit
    return done


def _part(layer: Unit, rows: slice, path: str) -> Unit:
    """Return a layer that has only the units or filters `rows` of another one, at `path`."""
    tensors = {role: array[rows] for role, array in layer.tensors.items()}
    counts = {name: len(tensors["bias"]) for name in ("units", "filters") if name in layer.says}
    return replace(layer, path=path, says={**layer.says, **counts}, tensors=tensors, rows=rows)


def _cut(unit: Unit, shape: Shape) -> slice | None:
    """Return the channels that a unit keeps as a slice, if it does nothing else; None otherwise.

    Args:
        shape: of what it reads.
    """
    op = unit.nodes[0].op
    if not isinstance(op, ops.SliceChannels | ops.CropAxis) or len(unit.nodes) > 1:
        return None
    channel_axis = len(shape) - 1 if isinstance(shape, Axes) else 0
    return op.cuts[channel_axis] if [*op.cuts] == [channel_axis] else None


def _turned(order: Unit, layer: Unit) -> Unit | None:
    """Return a layer and the slice before it, which puts channels into another order (as RGB to BGR), as one
    layer with its kernel's inputs in the other order instead; None if the slice drops or repeats channels,
    or the layer has groups.
    """
    op = order.nodes[-1].op
    assert isinstance(op, ops.SliceChannels)
    kernel = layer.tensors["kernel"]
    if sorted(op.channels) != [*range(kernel.shape[1])] or layer.says.get("groups", 1) != 1:
        return None
    # Input i of the layer was channel op.channels[i].
    turned = np.empty_like(kernel)
    turned[:, list(op.channels)] = kernel
    return _joined(order, layer, tensors={**layer.tensors, "kernel": turned})


def _together(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with layers that read one value, and whose channels a concat joins, as one layer with
    all their filters.
    """
    counts = _readers(units, outputs)
    done: _Units = {}
    for path, unit in units.items():
        parts = [done.get(read) for read in unit.inputs]
        layers = [part for part in parts if part is not None]
        whole = _whole(layers) if unit.kind == "concat" else None
        are_read_by_others = any(counts[read] > 1 for read in unit.inputs)
        if whole is None or None in parts or are_read_by_others:
            done[path] = unit
            continue
        for read in unit.inputs:
            del done[read]
        done[path] = replace(whole, path=path, nodes=(*whole.nodes, *unit.nodes))
    return done


def _whole(parts: Sequence[Unit]) -> Unit | None:
    """Return the layer that has the filters of several layers, one after another; None where they do not
    read one value, or differ in more than their number of filters.
    """
    pattern = parts[0] if parts else None
    if pattern is None or pattern.kind not in ("dense", "conv") or pattern.says.get("groups", 1) != 1:
        return None
    count = next(name for name in ("units", "filters") if name in pattern.says)
    alike = all(
        (part.kind, part.inputs, {**part.says, count: 0})
        == (pattern.kind, pattern.inputs, {**pattern.says, count: 0})
        for part in parts
    )
    if not alike:
        return None
    tensors = {role: np.concatenate([part.tensors[role] for part in parts]) for role in pattern.tensors}
    nodes = tuple(node for part in parts for node in part.nodes)
    return replace(pattern, says={**pattern.says, count: len(tensors["bias"])}, tensors=tensors, nodes=nodes)


def _positions(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with trained positions that are added to tokens as part of the `tokens` before them:
    a class token with zeros in place of the others, and numbers added to all, are one array that is added.
    """

    def join(tokens: Unit, unit: Unit) -> Unit | None:
        """Return tokens with what is added to them; None where the result cannot be said as numbers that are
        put before a value and added to it.
        """
        value = unit.tensors.get("value")
        if tokens.kind not in ("tokens", "pad_axis") or unit.kind != "add_array" or value is None:
            return None
        says, total = {"axis": 0, "before": 0, "after": 0, "fill": 0.0, **tokens.says}, value.copy()
        if tokens.kind == "tokens":
            before = tokens.tensors["value"]
            if value.shape[0] == 1:
                return None
            total[: len(before)] += before
            says = {"axis": 0, "before": len(before), "after": 0, "fill": 0.0}
        if says["fill"]:
            return None
        return _joined(tokens, unit, kind="tokens", says=says, tensors={"value": total})

    return _chains(units, outputs, join)


def _sums(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with sums of sums as one sum: `(a + b) + c` reads a, b and c. The same for products,
    maxima and minima.
    """
    counts = _readers(units, outputs)
    done: _Units = {}
    for path, unit in units.items():
        inputs, nodes = list[str](), list[Node]()
        for read in unit.inputs:
            inner = done.get(read)
            is_same_op = inner is not None and inner.kind == unit.kind and unit.kind in COMMUTATIVE
            if inner is not None and is_same_op and counts[read] == 1:
                inputs += inner.inputs
                nodes += inner.nodes
                del done[read]
            else:
                inputs.append(read)
        done[path] = replace(unit, inputs=tuple(inputs), nodes=(*nodes, *unit.nodes))
    return done


def _joins(units: _Units, outputs: tuple[str, ...], value_shapes: Mapping[str, Shape]) -> _Units:
    """Return the units with concats of concats along the same axis as one concat of all that they join,
    whoever else reads the inner ones.
    """
    done: _Units = {}
    for path, unit in units.items():
        done[path] = unit
        if unit.kind != "concat":
            continue
        inputs = list[str]()
        for read in unit.inputs:
            inner = done.get(read)
            is_same_concat = inner is not None and (inner.kind, inner.says) == (unit.kind, unit.says)
            inputs += inner.inputs if inner is not None and is_same_concat else [read]
        done[path] = replace(unit, inputs=tuple(inputs))
    return done

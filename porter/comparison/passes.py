"""The steps from a graph's units to their normal form: each joins, moves or takes apart what can be written
in several ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from porter.comparison.unit import COMMUTATIVE, LINEAR, NORMS, Numbers, Unit, takes_whole_map
from porter.graph import Node, ops
from porter.graph.ops import Shape, channels_axis
from porter.padding import Convention

Units: TypeAlias = dict[str, Unit]
"""Units by path, in topological order. A step takes them and gives them changed; some need the paths of the
`outputs`, which read values too, and the shapes of the graph's values by path (of one image).
"""


def _count_readers(units: Units, outputs: Iterable[str]) -> Counter[str]:
    """Return how often each value is read, or given as an output."""
    counts = Counter(path for unit in units.values() for path in unit.inputs)
    counts.update(outputs)
    return counts


def _join(first: Unit, second: Unit, **changes: Any) -> Unit:
    """Return two units as one, which reads what the first reads and gives the value of the second."""
    return replace(second, inputs=first.inputs, nodes=(*first.nodes, *second.nodes), **changes)


def _join_neighbours(
    units: Units, outputs: Iterable[str], join: Callable[[Unit, Unit], Unit | None]
) -> Units:
    """Return the units with neighbours joined: where a unit has one input, and is the only reader of it,
    `join` is asked for the unit that both are together, as a convolution with a scale behind it is a
    convolution. Where it gives None, both stay.
    """
    counts = _count_readers(units, outputs)
    done: Units = {}
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


def take_in_pads(units: Units) -> Units:
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
        return _join(pad, unit, says={**unit.says, "convention": convention})

    return {path: padded(unit) for path, unit in units.items()}


def make_dense(units: Units, outputs: Iterable[str], value_shapes: Mapping[str, Shape]) -> Units:
    """Return the units with each convolution whose only window is the whole map as a dense layer of its
    numbers, and with each dense layer behind a rearrangement (such as a flattening) as one that reads the
    cells before it, its kernel's columns moved instead.
    """

    def alone(unit: Unit) -> Unit:
        """Return a unit as a dense layer, if it is such a convolution; otherwise as it is."""
        shape, op = value_shapes[unit.nodes[0].source], unit.nodes[-1].op
        is_single_conv = isinstance(op, ops.Conv) and op.groups == 1 and len(unit.nodes) == 1
        if not is_single_conv or not takes_whole_map(op, shape):
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
        return _join(move, unit, tensors={**unit.tensors, "kernel": kernel})

    return _join_neighbours({path: alone(unit) for path, unit in units.items()}, outputs, join)


def make_swishes(units: Units, outputs: Iterable[str]) -> Units:
    """Return the units with x times a sigmoid of x as a swish, and times a hard sigmoid as a hard swish."""
    counts = _count_readers(units, outputs)
    activations = {"sigmoid": "swish", "hard_sigmoid": "hard_swish"}
    done: Units = dict(units)
    for path, unit in units.items():
        if unit.kind != "multiply" or len(unit.inputs) != 2:
            continue
        # either factor may be the gate
        for value, gate_path in (unit.inputs, unit.inputs[::-1]):
            gate = done.get(gate_path)
            is_gate = gate is not None and (gate.kind == "sigmoid" or _is_hard_sigmoid_of_swish(gate))
            if gate is not None and is_gate and gate.inputs == (value,) and counts[gate_path] == 1:
                del done[gate_path]
                done[path] = replace(
                    unit, kind=activations[gate.kind], inputs=(value,), nodes=(*gate.nodes, *unit.nodes)
                )
    return done


def _is_hard_sigmoid_of_swish(unit: Unit) -> bool:
    """Return whether a unit is the hard sigmoid of a hard swish: x / 6 + 0.5, between 0 and 1."""
    return unit.kind == "hard_sigmoid" and np.allclose(
        [unit.says["slope"], unit.says["offset"]], [1 / 6, 0.5], 1e-6
    )


def take_in_scales(units: Units, outputs: Iterable[str]) -> Units:
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
        tensors[factor_role] = _scale_filters(layer, tensors[factor_role], gamma)
        if offset_role in tensors:
            tensors[offset_role] = tensors[offset_role] * gamma + beta
        return _join(layer, scale, kind=layer.kind, says=layer.says, tensors=tensors)

    return _join_neighbours(units, outputs, join)


def _scale_filters(layer: Unit, array: Numbers, gamma: Numbers) -> Numbers:
    """Return a layer's kernel with each of its filters times its number of `gamma`. A transposed convolution
    has its filters on the second axis, in groups.
    """
    if layer.kind != "conv_transpose":
        return array * gamma.reshape(-1, *[1] * (array.ndim - 1))
    groups = int(layer.says["groups"])
    parts = array.reshape(groups, -1, *array.shape[1:]) * gamma.reshape(groups, 1, -1, 1, 1)
    return parts.reshape(array.shape)


def take_in_scales_before(units: Units, outputs: Iterable[str]) -> Units:
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
            return _take_in_order(scale, layer)
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
        return _join(scale, layer, tensors=tensors)

    return _join_neighbours(units, outputs, join)


def take_apart(units: Units, outputs: Iterable[str], value_shapes: Mapping[str, Shape]) -> Units:
    """Return the units with one layer taken apart where its channels are used apart: the queries, keys and
    values that one dense layer gives to an attention as three layers, and each part of a layer's channels
    that a slice takes as a layer of its own.

    Args:
        outputs: of the graph, which read their values too.
        value_shapes: the shape of each value of one image.
    """
    counts = _count_readers(units, outputs)
    done: Units = {}
    for path, unit in units.items():
        layer = units.get(unit.inputs[0])
        if layer is None or layer.kind not in ("dense", "conv") or layer.says.get("groups", 1) != 1:
            done[path] = unit
            continue
        if unit.kind == "attention" and len(unit.inputs) == 1 and counts[layer.path] == 1:
            third = len(layer.tensors["bias"]) // 3
            parts = [
                _take_rows(layer, slice(place * third, (place + 1) * third), f"{layer.path}#{place}")
                for place in range(3)
            ]
            done.pop(layer.path, None)
            done |= {part.path: part for part in parts}
            done[path] = replace(unit, inputs=tuple(part.path for part in parts))
        elif (rows := _cut_channels(unit, value_shapes[unit.nodes[0].source])) is not None:
            done[path] = replace(
                _take_rows(layer, rows, unit.path), rows=None, nodes=(*layer.nodes, *unit.nodes)
            )
        else:
            done[path] = unit
    return done


def _take_rows(layer: Unit, rows: slice, path: str) -> Unit:
    """Return a layer that has only the units or filters `rows` of another one, at `path`."""
    tensors = {role: array[rows] for role, array in layer.tensors.items()}
    counts = {name: len(tensors["bias"]) for name in ("units", "filters") if name in layer.says}
    return replace(layer, path=path, says={**layer.says, **counts}, tensors=tensors, rows=rows)


def _cut_channels(unit: Unit, shape: Shape) -> slice | None:
    """Return the channels that a unit keeps as a slice, if it does nothing else; None otherwise.

    Args:
        shape: of what it reads.
    """
    op = unit.nodes[0].op
    if not isinstance(op, ops.SliceChannels | ops.CropAxis) or len(unit.nodes) > 1:
        return None
    channel_axis = channels_axis(shape)
    return op.cuts[channel_axis] if [*op.cuts] == [channel_axis] else None


def _take_in_order(order: Unit, layer: Unit) -> Unit | None:
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
    return _join(order, layer, tensors={**layer.tensors, "kernel": turned})


def put_together(units: Units, outputs: Iterable[str]) -> Units:
    """Return the units with layers that read one value, and whose channels a concat joins, as one layer with
    all their filters.
    """
    counts = _count_readers(units, outputs)
    done: Units = {}
    for path, unit in units.items():
        parts = [done.get(read) for read in unit.inputs]
        layers = [part for part in parts if part is not None]
        whole = _join_filters(layers) if unit.kind == "concat" else None
        are_read_by_others = any(counts[read] > 1 for read in unit.inputs)
        if whole is None or None in parts or are_read_by_others:
            done[path] = unit
            continue
        for read in unit.inputs:
            del done[read]
        done[path] = replace(whole, path=path, nodes=(*whole.nodes, *unit.nodes))
    return done


def _join_filters(parts: Sequence[Unit]) -> Unit | None:
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


def join_positions(units: Units, outputs: Iterable[str]) -> Units:
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
        return _join(tokens, unit, kind="tokens", says=says, tensors={"value": total})

    return _join_neighbours(units, outputs, join)


def flatten_sums(units: Units, outputs: Iterable[str]) -> Units:
    """Return the units with sums of sums as one sum: `(a + b) + c` reads a, b and c. The same for products,
    maxima and minima.
    """
    counts = _count_readers(units, outputs)
    done: Units = {}
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


def flatten_concats(units: Units) -> Units:
    """Return the units with concats of concats along the same axis as one concat of all that they join,
    whoever else reads the inner ones.
    """
    done: Units = {}
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

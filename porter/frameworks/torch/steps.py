"""A plan as a list of torch layers, from which both the built module and the generated model.py are made. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.errors import PaddingError
from porter.graph import (
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Identity,
    MaxPool,
    Node,
    Op,
    Relu,
    Relu6,
    shapes,
)
from porter.graph.plan import ANY, Plan
from porter.padding import Front, Pads, Realisation, Window

Value = int | float | bool | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True)
class Layer:
    """A constructor call: a class of torch.nn, one of layers.py, or one of FUNCTIONS and GLOBAL_POOLS.

    `arguments` are all arguments that matter, also those at their defaults, under torch's keyword names.
    """

    kind: str
    arguments: Mapping[str, Value]


@dataclass(frozen=True)
class Step:
    """A layer at its place. `path` is the node's path; for a pad layer, the path of its node followed by `_pad`."""

    path: str
    layer: Layer
    inputs: tuple[str, ...]
    why: str = ""


FUNCTIONS = ("add", "concat")
GLOBAL_POOLS: Mapping[str, str] = {"global_avg_pool": "AdaptiveAvgPool2d", "global_max_pool": "AdaptiveMaxPool2d"}
"""Kinds that are a pool to 1x1 and then a Flatten, with torch's class of the pool."""


def make_steps(plan: Plan) -> tuple[Step, ...]:
    """The layers of a plan in the order of its graph. Each pad layer is a step of its own.

    Raises:
        PaddingError: torch's layers lack a realisation, because the plan was made for another framework.
    """
    known = shapes(plan.graph, ANY)
    taken = set(known)
    steps: list[Step] = []
    for node in plan.graph.nodes:
        source = known[node.inputs[0]]
        inputs, why = node.inputs, ""
        realisation = plan.realisations.get(node.path)
        if realisation is None:
            layer = _plain_layer(node.op, source[0] or 0, len(source))
        else:
            _refuse_foreign(node, realisation)
            why = realisation.why.replace("the destination", "torch")
            if realisation.front is not None and realisation.counted is None:
                pad = _free(f"{node.path}_pad", taken)
                steps.append(Step(pad, _pad_layer(realisation.front, _window(node.op)), inputs, why))
                inputs, why = (pad,), ""
            layer = _windowed_layer(node, realisation, source[0] or 0)
            why = why if realisation.counted is not None else ""
        steps.append(Step(node.path, layer, inputs, why))
    return tuple(steps)


def _free(path: str, taken: set[str]) -> str:
    while path in taken:
        path += "_"
    taken.add(path)
    return path


def _window(op: Op) -> Window:
    assert isinstance(op, Conv | MaxPool | AvgPool)
    return op.window


def _refuse_foreign(node: Node, realisation: Realisation) -> None:
    native, front = realisation.native, realisation.front
    top, bottom, left, right = native.pads
    counted_at_run_time = realisation.counted not in (None, (0, 0, 0, 0)) and front is not None and front.rule != "explicit"
    if native.rule not in ("valid", "explicit") or (top, left) != (bottom, right):
        raise PaddingError(f"torch's layers lack the padding '{native}'", where=node.path)
    if realisation.subsample or native.rounding == "full" or counted_at_run_time:
        raise PaddingError(f"torch's layers lack '{realisation}'", where=node.path)


def _plain_layer(op: Op, channels: int, rank: int) -> Layer:
    match op:
        case BatchNorm():
            return Layer(
                "BatchNorm2d" if rank == 3 else "BatchNorm1d",
                {"num_features": channels, "eps": op.epsilon, "momentum": op.momentum, "affine": op.scale or op.center},
            )
        case Dense():
            return Layer("Linear", {"in_features": channels, "out_features": op.units, "bias": op.bias})
        case Relu():
            return Layer("ReLU", {})
        case Relu6():
            return Layer("ReLU6", {})
        case GlobalAvgPool():
            return Layer("global_avg_pool", {})
        case GlobalMaxPool():
            return Layer("global_max_pool", {})
        case Affine():
            return Layer("Affine", {"scale": _constants(op.scale), "offset": _constants(op.offset)})
        case Add():
            return Layer("add", {})
        case Concat():
            return Layer("concat", {})
        case Identity():
            return Layer("Identity", {})
        case _:
            raise PaddingError(f"the plan does not say how to pad this {type(op).__name__}")


def _constants(values: tuple[float, ...]) -> Value:
    """A single number if there is one for all channels."""
    return values[0] if len(values) == 1 else values


def _windowed_layer(node: Node, realisation: Realisation, channels: int) -> Layer:
    op, native, front = node.op, realisation.native, realisation.front
    window = _window(op)
    own: dict[str, Value] = {"kernel_size": _pair(window.kernel), "stride": _pair(window.stride)}
    padding = {"padding": _pair((native.pads[0], native.pads[2]))}
    dilation = {"dilation": _pair(window.dilation)}
    if isinstance(op, Conv):
        ends: dict[str, Value] = {"in_channels": channels, "out_channels": op.filters}
        return Layer("Conv2d", {**ends, **own, **padding, **dilation, "groups": op.groups, "bias": op.bias})
    ceil: dict[str, Value] = {"ceil_mode": native.rounding == "ceil"}
    if isinstance(op, MaxPool):
        return Layer("MaxPool2d", {**own, **padding, **dilation, **ceil})
    if realisation.counted is not None and front is not None:
        if front.rule != "explicit":
            return Layer("SameAvgPool2d", {**own, "lower": front.rule == "same_lower"})
        return Layer("PaddedAvgPool2d", {**own, "padding": _torch_pads(front.pads), "counted": _torch_pads(realisation.counted)})
    return Layer("AvgPool2d", {**own, **padding, **ceil, "count_include_pad": native.average == "clipped_window"})


def _pad_layer(front: Front, window: Window) -> Layer:
    if front.rule == "explicit":
        pads: dict[str, Value] = {"padding": _torch_pads(front.pads)}
        return Layer("ZeroPad2d", pads) if front.fill == 0 else Layer("ConstantPad2d", {**pads, "value": front.fill})
    return Layer(
        "SamePad2d",
        {
            "kernel_size": _pair(window.kernel),
            "stride": _pair(window.stride),
            "dilation": _pair(window.dilation),
            "lower": front.rule == "same_lower",
            "value": front.fill,
        },
    )


def _torch_pads(pads: Pads) -> tuple[int, int, int, int]:
    top, bottom, left, right = pads
    return left, right, top, bottom


def _pair(values: tuple[int, int]) -> Value:
    """A single number if both axes agree, as torch's layers accept it."""
    return values[0] if values[0] == values[1] else values

"""A plan as a list of torch layers, from which both the built module and the generated model.py are made.
Imports no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.code.layer_arguments import pair
from porter.frameworks.code.plan_layers import Layer, LayerStep, Spellings
from porter.frameworks.torch.spellings import IN_PLACE, PLAIN, WINDOWED, constant_pad
from porter.graph import Op
from porter.graph.plan import Plan
from porter.padding import Front, Realisation, Site

_FREE_OUTPUTS = frozenset(
    {
        "Conv2d",
        "ConvTranspose2d",
        "Linear",
        "BatchNorm1d",
        "BatchNorm2d",
        "MaxPool2d",
        "AvgPool2d",
        "add",
        "multiply",
        "concat",
    }
)
"""Kinds whose value is new memory, and which keep no hold of it."""


def make_steps(plan: Plan) -> tuple[LayerStep, ...]:
    """Return the layers of a plan in the order of its graph. Each pad layer is a step of its own.

    Raises:
        PaddingError: torch's layers lack a realisation, because the plan was made for another framework.
    """
    return _set_in_place(_SPELLINGS.steps(plan), plan.lowered.outputs)


def _set_in_place(steps: Sequence[LayerStep], outputs: Sequence[str]) -> tuple[LayerStep, ...]:
    """Let activations overwrite a value that nothing else reads, as torchvision does: a tenth of MobileNet
    v2's time went into new memory. What computes the value does not need it for its gradient, so that the
    model can be trained.
    """
    # An output counts as a read, because it must stay.
    reads = Counter(path for step in steps for path in step.inputs) + Counter(outputs)
    overwritable = {step.path for step in steps if step.layer.kind in _FREE_OUTPUTS and reads[step.path] == 1}

    def with_in_place(step: LayerStep) -> LayerStep:
        """Return a step with the argument `inplace`, if its layer has one."""
        if step.layer.kind not in IN_PLACE:
            return step
        arguments = {**step.layer.arguments, "inplace": step.inputs[0] in overwritable}
        return replace(step, layer=replace(step.layer, arguments=arguments))

    return tuple(map(with_in_place, steps))


def _refusing_foreign_pads(
    make: Callable[[Any, int, Realisation], Layer],
) -> Callable[[Any, int, Realisation], Layer]:
    """Return a maker of windowed layers that refuses, by PaddingError, realisations (ways to make the pads)
    which only other frameworks' layers have, and otherwise calls `make`.
    """

    def checked_make(op: Any, channels: int, realisation: Realisation) -> Layer:
        """Make the layer of an op that reads so many channels."""
        # `native`: how the layer itself pads; `front`: how a pad layer before it does.
        native, front = realisation.native, realisation.front
        top, bottom, left, right = native.pads
        # An average counts pads that a rule computes as the model runs.
        counts_pads = realisation.counted not in (None, (0, 0, 0, 0))
        counted_at_run_time = counts_pads and front is not None and front.rule != "explicit"
        if native.rule not in ("valid", "explicit") or (top, left) != (bottom, right):
            raise PaddingError(f"torch's layers lack the padding '{native}'")
        if realisation.subsample or realisation.by_cell or native.rounding == "full" or counted_at_run_time:
            raise PaddingError(f"torch's layers lack '{realisation}'")
        return make(op, channels, realisation)

    return checked_make


def _pad_layer(front: Front, site: Site, why: str) -> Layer:
    """Make the pad layer in front of a windowed op. Its `site` is the op's window with its padding
    convention, `front` says how the layer pads, and `why` is its comment in model.py.
    """
    fill, window = front.fill, site.window
    if site.kind == "max_pool" and fill == site.convention.fill == 0:
        # onnxruntime merges a Pad of zeros, of any exporter, into the max pool behind it, whose pads are
        # -inf. It compares bytes, so negative zeros stay (onnxruntime/core/optimizer/pad_fusion.cc).
        fill = -0.0
    if front.rule == "explicit":
        # why a pad of -0.0 stands there
        zeros = "the source's pool pads with zeros; onnxruntime drops a pad of 0.0, not one of -0.0"
        return replace(constant_pad(front.pads, fill), why=zeros if str(fill) == "-0.0" else why)
    return Layer(
        "SamePad2d",
        {
            "kernel_size": pair(window.kernel),
            "stride": pair(window.stride),
            "dilation": pair(window.dilation),
            "lower": front.rule == "same_lower",
            "value": fill,
        },
        why,
    )


_WINDOWED: Mapping[type[Op], Callable[[Any, int, Realisation], Layer]] = {
    op: _refusing_foreign_pads(make) for op, make in WINDOWED.items()
}
_SPELLINGS = Spellings("torch", PLAIN, _WINDOWED, _pad_layer)

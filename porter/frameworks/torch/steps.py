"""A plan as a list of torch layers, from which both the built module and the generated model.py are made. Imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from porter.base.errors import PaddingError
from porter.frameworks.torch.spellings import IN_PLACE, PLAIN, WINDOWED, Layer, constant_pad, pair
from porter.graph import INPUT, Node, Shape, shapes
from porter.graph.plan import Plan
from porter.padding import ANY, Front, Realisation, Site

_FORGOTTEN = frozenset(
    {"Conv2d", "ConvTranspose2d", "Linear", "BatchNorm1d", "BatchNorm2d", "MaxPool2d", "AvgPool2d", "add", "multiply", "concat"}
)
"""Kinds whose value is new memory, and which keep no hold of it."""


@dataclass(frozen=True)
class Step:
    """A layer at its place. `path` is the node's path; for a pad layer, the path of its node followed by `_pad`.

    Attributes:
        shares: the path of the step whose module is called here too.
    """

    path: str
    layer: Layer
    inputs: tuple[str, ...]
    shares: str | None = None


def make_steps(plan: Plan) -> tuple[Step, ...]:
    """The layers of a plan in the order of its graph. Each pad layer is a step of its own.

    Raises:
        PaddingError: torch's layers lack a realisation, because the plan was made for another framework.
    """
    known = shapes(plan.graph, ANY)
    taken = set(known)
    steps: list[Step] = []
    for node in plan.graph.nodes:
        source, inputs = known[node.inputs[0]], node.inputs
        realisation = plan.realisations.get(node.path)
        if realisation is None:
            layer = _plain(node, source)
        else:
            _refuse_foreign(node, realisation)
            layer = WINDOWED[type(node.op)](node.op, source[0] or 0, realisation)
            why = realisation.why.replace("the destination", "torch")
            if realisation.counted is not None:
                layer = replace(layer, why=why)
            elif realisation.front is not None and node.op.site is not None:
                pad = _free(f"{node.path}_pad", taken)
                steps.append(Step(pad, _pad_layer(realisation.front, node.op.site, why), inputs))
                inputs = (pad,)
        steps.append(Step(node.path, layer, inputs, node.shares))
    return _in_place([_noted(step, plan.notes) for step in steps], plan.graph.outputs)


def _noted(step: Step, notes: Mapping[str, str]) -> Step:
    """With what code says at its node; what is said of the input stands at what reads it."""
    said = [notes[path] for path in (step.path, *(path for path in step.inputs if path == INPUT)) if path in notes]
    return replace(step, layer=replace(step.layer, why="; ".join(filter(None, (step.layer.why, *said))))) if said else step


def _in_place(steps: Sequence[Step], outputs: Sequence[str]) -> tuple[Step, ...]:
    """Lets activations overwrite a value that nothing else reads, as torchvision does: a tenth of MobileNet v2's time went into new
    memory. What computes the value does not need it for its gradient, so that the model can be trained.
    """
    reads = Counter(path for step in steps for path in step.inputs) + Counter(outputs)
    own = {step.path for step in steps if step.layer.kind in _FORGOTTEN and reads[step.path] == 1}
    return tuple(
        replace(step, layer=replace(step.layer, arguments={**step.layer.arguments, "inplace": step.inputs[0] in own}))
        if step.layer.kind in IN_PLACE
        else step
        for step in steps
    )


def _free(path: str, taken: set[str]) -> str:
    while path in taken:
        path += "_"
    taken.add(path)
    return path


def _plain(node: Node, source: Shape) -> Layer:
    if type(node.op) not in PLAIN:
        raise PaddingError(f"the plan does not say how to pad {node.op.words}", where=node.path)
    return PLAIN[type(node.op)](node.op, source)


def _refuse_foreign(node: Node, realisation: Realisation) -> None:
    native, front = realisation.native, realisation.front
    top, bottom, left, right = native.pads
    counted_at_run_time = realisation.counted not in (None, (0, 0, 0, 0)) and front is not None and front.rule != "explicit"
    if native.rule not in ("valid", "explicit") or (top, left) != (bottom, right):
        raise PaddingError(f"torch's layers lack the padding '{native}'", where=node.path)
    if realisation.subsample or realisation.by_cell or native.rounding == "full" or counted_at_run_time:
        raise PaddingError(f"torch's layers lack '{realisation}'", where=node.path)


def _pad_layer(front: Front, site: Site, why: str) -> Layer:
    fill, window = front.fill, site.window
    if site.kind == "max_pool" and fill == site.convention.fill == 0:
        # onnxruntime merges a Pad of zeros, of any exporter, into the max pool behind it, whose pads are -inf. It compares bytes,
        # so negative zeros stay (onnxruntime/core/optimizer/pad_fusion.cc).
        fill = -0.0
    if front.rule == "explicit":
        zeros = "the source's pool reads its pads as 0; onnxruntime would ignore them, but not -0.0"
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

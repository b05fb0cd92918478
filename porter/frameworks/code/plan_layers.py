"""A plan as a list of a framework's layers, from which a model is built and its code is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from porter.base.errors import PaddingError
from porter.graph import INPUT, Node, Op, Shape, shapes
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import row_of
from porter.graph.plan import Plan
from porter.padding import ANY, Front, Realisation, Site


@dataclass(frozen=True)
class Layer:
    """A call that makes a layer: the framework's class or function, or one of porter's own that model.py has
    a copy of.

    Attributes:
        arguments: all that matter, also those at their defaults, under the framework's keyword names.
        why: a comment for the reader of model.py.
    """

    kind: str
    arguments: Mapping[str, PlainValue] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class LayerStep:
    """A layer at its place in the graph, which becomes one call in `forward`.

    Attributes:
        path: of the node; for a pad layer, the path of its node followed by `_pad`.
        inputs: the paths of the steps that feed it.
        shares: the path of the step whose module is called here too.
    """

    path: str
    layer: Layer
    inputs: tuple[str, ...]
    shares: str | None = None


@dataclass(frozen=True)
class Spellings:
    """The layer that a framework has for each op, such as `nn.Linear` for Dense.

    Attributes:
        framework: its name in comments.
        plain: makes the layer of an op without a window, from the op and the shape of its input; the forms of
            an op may have one row.
        windowed: makes that of a convolution or pool, from the op, the channels of its input and its
            realisation, which says how it pads; a pad layer stands before it if the realisation has one and
            does not correct an average.
        pad: makes a pad layer, with the reason for it as a comment.
    """

    framework: str
    plain: Mapping[type[Op], Callable[[Any, Shape], Layer]]
    windowed: Mapping[type[Op], Callable[[Any, int, Realisation], Layer]]
    pad: Callable[[Front, Site, str], Layer]

    def steps(self, plan: Plan) -> list[LayerStep]:
        """Return the layers of a plan in the order of its graph. Each pad layer is a step of its own before
        its node's, with the reason for it as its comment. Where a layer itself corrects an average, the layer
        has that comment.

        Raises:
            PaddingError: the plan was made for another framework.
        """
        known = shapes(plan.lowered, ANY)
        taken = set(known)
        steps: list[LayerStep] = []
        for node in plan.lowered.nodes:
            input_shape, inputs = known[node.source], node.inputs
            realisation = plan.realisations.get(node.path)
            if realisation is None:
                layer = self._layer_without_window(node, input_shape)
            else:
                channels = input_shape[0] or 0
                try:
                    layer = self.windowed[type(node.op)](node.op, channels, realisation)
                except PaddingError as error:
                    raise error.at(node.path) from None
                why = realisation.why.replace("the destination", self.framework)
                # The layer itself counts the pads, so no pad layer stands before it.
                if realisation.counted is not None:
                    layer = replace(layer, why=why)
                elif realisation.front is not None and node.op.site is not None:
                    pad = _take_free_path(f"{node.path}_pad", taken)
                    steps.append(LayerStep(pad, self.pad(realisation.front, node.op.site, why), inputs))
                    inputs = (pad,)
            steps.append(LayerStep(node.path, layer, inputs, node.shares))
        return [_add_note(step, plan.notes) for step in steps]

    def _layer_without_window(self, node: Node, input_shape: Shape) -> Layer:
        """Return the layer of a node that has no realisation of pads. Raise PaddingError where its op is
        windowed, so that the plan should have one.
        """
        spelling = row_of(self.plain, type(node.op))
        if spelling is None:
            raise PaddingError(f"the plan does not say how to pad {node.op.words}", where=node.path)
        return spelling(node.op, input_shape)


def _add_note(step: LayerStep, notes: Mapping[str, str]) -> LayerStep:
    """Return a step whose layer has the plan's notes on it as its comment, behind one that it has; a note on
    the model's input stands at what reads the input.

    Args:
        notes: by path.
    """
    noted_paths = [step.path, *(path for path in step.inputs if path == INPUT)]
    step_notes = [notes[path] for path in noted_paths if path in notes]
    if not step_notes:
        return step
    comments = filter(None, (step.layer.why, *step_notes))
    return replace(step, layer=replace(step.layer, why="; ".join(comments)))


def _take_free_path(path: str, taken: set[str]) -> str:
    """Return a path that is not taken, `path` or that with underscores behind it, and add it to `taken`."""
    while path in taken:
        path += "_"
    taken.add(path)
    return path


def plain(kind: str, *attributes: str, **named: str) -> Callable[[Any, Shape], Layer]:
    """Return a spelling of an op as a layer of this kind, whose arguments are the op's attributes; those
    `named` have other names in the layer: `plain("jnp.clip", min="low")` passes `op.low` as `min`.
    """
    slots = {**{name: name for name in attributes}, **named}
    return lambda op, shape: Layer(kind, {slot: getattr(op, name) for slot, name in slots.items()})

"""A plan as a list of a framework's layers, from which a model is built; and how the framework's code says
them, for model.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from porter.base.errors import PaddingError
from porter.frameworks.code.text import Bracketed, Expression, Item
from porter.graph import INPUT, Node, Op, Shape, shapes
from porter.graph.blocks.parameters import PlainValue
from porter.graph.ops import row_of
from porter.graph.plan import Plan
from porter.padding import ANY, Front, Realisation, Site

CHAIN, ROW = "chain", "row"
"""Kinds of parts that are modules one after the other, with names or without."""
Apply = Callable[[Sequence[Expression]], Expression]
"""Applies a layer to the expressions of values."""


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


@dataclass(frozen=True)
class Norm:
    """A kind of batch norm that has a name of its own where several places share the arguments `shared`.

    Attributes:
        name: in the text.
        maker: the framework's.
        shared: arguments with their defaults.
    """

    name: str
    maker: str
    shared: Mapping[str, PlainValue]


class Language(ABC):
    """How the code of a framework says layers, modules and their calls.

    Attributes:
        layers: what the framework's module of layers is imported as, such as `nn`.
        begin: the lines with which a constructor begins.
        method: what a call of a module runs.
        identity: a layer that changes nothing.
        of_modules: names that every module has; a part of that name would hide them.
        functions: kinds that are said where they are applied, and have no arguments.
        with_tensors: kinds that hold tensors.
        of_map: the layer that makes a map of features.
        norms: kinds of batch norms by the names that they get where several places share some arguments, with
            these arguments' defaults.
        passed: an argument that every constructor takes by name and passes on, such as `rngs`.
        rows: whether numbered uses of a block, one after the other, are a list without names.
    """

    layers: str
    begin: tuple[str, ...]
    method: str
    identity: str
    of_modules: frozenset[str]
    functions: Collection[str]
    with_tensors: Collection[str]
    of_map: Layer
    norms: Mapping[str, Norm]
    passed: str = ""
    rows: bool = False

    @property
    @abstractmethod
    def imported(self) -> frozenset[str]:
        """Names that the text imports, and functions that it defines and calls."""

    @property
    @abstractmethod
    def taken(self) -> frozenset[str]:
        """Other names that it uses itself."""

    @abstractmethod
    def keep_map(self, layer: Layer) -> Layer | None:
        """Return the global pool that keeps the map of one that does not; None for other layers."""

    @abstractmethod
    def apply_function(self, function: str, inputs: Sequence[Expression]) -> Expression:
        """Return the expression of one of `functions` applied to values: of `maximum`, a and b,
        `torch.maximum(a, b)`.
        """

    @abstractmethod
    def construct(self, kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
        """Return the expression that makes a layer, `nn.Conv2d(3, 64, 7)`, without the arguments that are at
        their defaults.

        Args:
            texts: of all arguments, by name; of a norm under a name, without those that the name includes.
            name: the variable that holds the class, as `norm_layer` does; None for the class itself.
        """

    @abstractmethod
    def chain(self, items: tuple[Item, ...], row: bool) -> Bracketed:
        """Return the expression of layers one after the other, whose items are named, or of a `row` of them:
        `nnx.Sequential(a, b)`.
        """

    @abstractmethod
    def add_part(self, target: str, name: str, layer: Expression) -> Bracketed:
        """Return the call that adds a part to a module (`self`) or to a row, by its name as the inside of an
        f-string: `setattr(self, f"unit{index}", layer)`.
        """

    @abstractmethod
    def get_part(self, name: str) -> str:
        """Return the expression of the part of that name: `getattr(self, f"unit{index}")`."""

    @abstractmethod
    def refuse_size(self, x: str, rows: int, columns: int, message: str) -> list[str]:
        """Return the lines that raise an error where the input `x`, a map, has another size: the message,
        followed by the size that it has.
        """

    @abstractmethod
    def refuse_shape(self, x: str, axes: int, wrong_sizes: Sequence[str], message: str) -> list[str]:
        """Return the lines that raise an error where the input `x` has another number of axes, the batch with
        them, or where one of the conditions `wrong_sizes` holds: the message, followed by its shape.
        """

    def inline(self, kind: str, texts: Mapping[str, Expression]) -> Apply | None:
        """Return how a layer of constant arguments, the same in all uses of a block, is said where it is
        applied: `nnx.max_pool(x, (2, 2))`. None where it is a part of its module.
        """
        return None

    @property
    def module(self) -> str:
        """The class that modules extend."""
        return f"{self.layers}.Module"

    @property
    def row(self) -> str:
        """An empty row of modules."""
        return f"{self.layers}.Sequential()"

    @property
    def in_a_row(self) -> str:
        """The kind of parts that a loop can make."""
        return ROW if self.rows else CHAIN

    @property
    def passed_names(self) -> tuple[str, ...]:
        """How a function takes `passed`."""
        return (self.passed,) if self.passed else ()

    @property
    def passed_items(self) -> tuple[Item, ...]:
        """How a call passes `passed` on."""
        return tuple(Item(name, name) for name in self.passed_names)

    @property
    def reserved(self) -> frozenset[str]:
        """Names that no variable can have."""
        return self.imported | {"self", "index"}


def plain(kind: str, *attributes: str, **named: str) -> Callable[[Any, Shape], Layer]:
    """Return a spelling of an op as a layer of this kind, whose arguments are the op's attributes; those
    `named` have other names in the layer: `plain("jnp.clip", min="low")` passes `op.low` as `min`.
    """
    slots = {**{name: name for name in attributes}, **named}
    return lambda op, shape: Layer(kind, {slot: getattr(op, name) for slot, name in slots.items()})

"""A recipe's graph fitted to one file: the graph, and which tensor of the file belongs to which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, Stored
from porter.graph import OF_LOGITS, Affine, Graph, Op, Rearrange, Sigmoid, Softmax, tensor_shapes
from porter.port import Gives
from porter.recipe.expressions import Value

TensorKey: TypeAlias = tuple[str, str]
"""A node's path, and the role of one of its tensors."""
CONSTANTS = "its numbers are the constants of {}"
"""The reason why a tensor that was made into a node of constants is no tensor of the graph."""
OWN_GRAPH = "the graph is the file's own"
"""The note of a fit by the file's graph."""


@dataclass(frozen=True)
class StandIn:
    """A head that returns its input, for the zoo's own implementation if the file has no head or another one.

    Attributes:
        tensors: under the implementation's names.
        tap: the name under which the implementation shows the head's value.
        path: of the features.
    """

    tensors: Mapping[str, Array]
    tap: str
    path: str


@dataclass(frozen=True)
class Given:
    """A value that a file's graph gives, as a port has it.

    Attributes:
        path: of the node whose value it is.
        after: the ops that follow that node in the file only; the port does without them.
        shaped: the value has the port's axes; a recipe's head may be a map of one cell in a file.
    """

    path: str
    after: tuple[Op, ...] = ()
    shaped: bool = True


@dataclass(frozen=True)
class InFile:
    """What a fit has of the file's own graph; empty if the file has none.

    Attributes:
        taps: by path, the name under which the file's own graph shows the node's value.
        given: by the name under which it shows them, the values that the file's own graph gives, of those
            that the graph has.
        stored: the fit's tensors as the file's graph says them, with their axes; empty if the names tell the
            axes.
        folded: by path, the batch norms of the recipe that the file has folded into the layers before them,
            to these layers' paths.
        differences: how many other differences the file's graph has from the recipe's.
        scaling: the ops of the file's graph on its input before the network's first layer.
    """

    taps: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    stored: Mapping[TensorKey, Stored] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)
    differences: int = 0
    scaling: tuple[Affine, ...] = ()


@dataclass(frozen=True)
class InZoo:
    """What a fit has of the zoo's own implementation; empty if the graph is no zoo's.

    Attributes:
        taps: as `InFile.taps`, of the implementation.
        names: source tensor name to its name in the implementation; empty if that computes another function
            than the file.
        stand_in: replaces the head of the implementation; the file's layers after the features follow it.
    """

    taps: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    stand_in: StandIn | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A file fitted to a graph.

    Attributes:
        graph: with the classes of the port, or without a head.
        source_classes: rows of the file's head; 0 if it has none.
        background, activation: see porter.port.Facts.
        tensors: (path, role) to source tensor name.
        options: those that the recipe's graph was expanded with, with the zoo's own number of classes; empty
            if the graph is the file's.
        transforms: by path, the changes of its arrays besides the axis order (porter.recipe.transforms).
        computed: by path, the array that the zoo's code computes for its tensor, which the file lacks
            (porter.recipe.fixed).
        ignored: source tensor name to the reason.
        own_head: the head is the zoo's own, with its classes and their order.
        head: the file's layer that gives the logits or features; None if a file without a head does not name
            it.
        in_file: the same nodes and tensors in the file's own graph.
        in_zoo: the same in the zoo's own implementation.
        places: by path, file:line:column of the recipe's name for the node; empty if the file's graph names
            its tensors.
        warnings: for the user; `notes`: for port.json.
    """

    graph: Graph
    source_classes: int
    background: bool = False
    activation: str | None = None
    tensors: Mapping[TensorKey, str]
    head: str | None
    ignored: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    own_head: bool = False
    in_file: InFile = InFile()
    in_zoo: InZoo = InZoo()
    places: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        """Rows of the port's head; 0 if it has none."""
        return self.graph.channels_by_path[self.graph.output] if self.source_classes else 0

    @property
    def output(self) -> Gives:
        """What the port gives: features, logits, or probabilities where the activation is kept."""
        if not self.source_classes:
            return "features"
        keeps_activation = self.activation is None and isinstance(
            self.graph.by_path[self.graph.output].op, Softmax | Sigmoid
        )
        return "probabilities" if keeps_activation else "logits"


def own_checkpoint(fit: Fit, checkpoint: Checkpoint) -> dict[str, Array]:
    """Return the file's tensors under the names of the zoo's own implementation."""
    return {own: checkpoint.tensors[name] for name, own in fit.in_zoo.names.items()}


def with_places(lines: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return each line of an error with `(file:line:column)` of the recipe's name for its tensor. A line
    without a place, or with the same one as the line before it, stays as it is.

    Args:
        lines: each with its place; None if it has none.
    """
    places_before = (None, *(place for _, place in lines))
    return [
        line if place in (None, place_before) else f"{line} ({place})"
        for (line, place), place_before in zip(lines, places_before, strict=False)
    ]


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as a message shows it: `64x3x7x7`."""
    return "x".join(map(str, np.asarray(shape, int))) or "a scalar"


def stored_tensors(
    graph: Graph, file: FileGraph, layers: Mapping[str, str], checkpoint: Checkpoint
) -> dict[TensorKey, Stored]:
    """Return the tensors of a graph as the layers of a file's graph hold them, by path and role. Roles that
    the graph does not need are left out.

    Args:
        layers: by path, the file's node.

    Raises:
        MappingError: the file lacks some.
    """
    shapes = tensor_shapes(graph)
    stored = {
        (path, role): tensor
        for path, name in layers.items()
        for role, tensor in file.by_name[name].tensors.items()
        if role in shapes.get(path, {})
    }
    places = ((path, role) for path, roles in shapes.items() for role in roles)
    if lacking := [f"{path}:{role}" for path, role in places if (path, role) not in stored]:
        message = f"the file's graph has no tensors for these nodes: {some(lacking)}"
        raise MappingError(message, where=str(checkpoint.path))
    return stored


def given_by(file: FileGraph, names: Mapping[str, str], shaped: bool = True) -> dict[str, Given]:
    """Return the values that the file's graph gives and the port's graph has, by the tap of each (the name
    under which the file's engine shows it). The port may lack the activation or the rearrangement that makes
    such a value: then the value before it is taken, and these ops stand in `Given.after`. A value with no
    such node is left out.

    Args:
        names: by path of the graph, the file's node.
        shaped: see Given.
    """
    paths = {name: path for path, name in names.items()}
    given = dict[str, Given]()
    for tap, name in file.given.items():
        after: list[Op] = []
        # Walk back over ops that the port lacks, to a value that it has.
        while name not in paths and name in file.by_name:
            node = file.by_name[name]
            if not isinstance(node.op, (*OF_LOGITS, Rearrange)):
                break
            # backwards, because the walk goes from the value to what it comes from
            after.insert(0, node.op)
            name = node.inputs[0]
        if name in paths:
            is_rearranged = any(isinstance(op, Rearrange) for op in after)
            given[tap] = Given(paths[name], tuple(after), shaped and not is_rearranged)
    return given

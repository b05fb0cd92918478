"""A recipe's graph fitted to one file: the graph, and which tensor of the file belongs to which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from porter.base.dtypes import Array, is_floating
from porter.base.errors import FileError, MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import Stored, canonical
from porter.frameworks.dialects import Dialect
from porter.graph import Affine, Graph, Op, Sigmoid, Softmax, channels_of, head_of, tensor_shapes
from porter.port import Gives
from porter.recipe.expressions import Value
from porter.recipe.fixed import COMPUTED
from porter.recipe.transforms import apply_transforms

CONSTANTS = "its numbers are the constants of {}"
"""Why a tensor that a node of constants was made from is not a tensor of the graph."""
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
    """What a file's graph gives, as a port has it.

    Attributes:
        path: of the node whose value it is.
        after: what follows that in the file only, and is taken off.
        shaped: it has the port's axes; a recipe's head may be a map of one cell in a file.
    """

    path: str
    after: tuple[Op, ...] = ()
    shaped: bool = True


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A file fitted to a graph.

    Attributes:
        graph: with the classes of the port, or without a head.
        source_classes: rows of the file's head; 0 if it has none.
        background, activation: see porter.port.Facts.
        tensors: (path, role) to source tensor name.
        stored: the same tensors as the file's graph says them, with their axes; empty if the names tell the
            axes.
        options: those that the recipe's graph was expanded with, with the zoo's own number of classes; empty
            if the graph is the file's.
        transforms: by path, the changes of its arrays besides the axis order (porter.recipe.transforms).
        computed: by path, the array that the zoo's code computes for its tensor, which the file lacks
            (porter.recipe.fixed).
        ignored: source tensor name to the reason.
        own_head: the head is the zoo's own, with its classes and their order.
        head: the file's layer that gives the logits or features; None if a file without a head does not name
            it.
        taps: by path, the name under which the file's own graph shows the node's value; empty if the file has
            no graph.
        given: by the name under which it shows them, the values that the file's own graph gives, of those
            that the graph has.
        reference_taps: `taps` for the zoo's own implementation.
        reference_names: source tensor name to its name in the zoo's own implementation; empty if that
            computes another function than the file.
        stand_in: replaces the head of the zoo's own implementation; the file's layers after the features
            follow it.
        folded: by path, the batch norms of the recipe that the file has folded into the layers before them,
            to these layers' paths.
        differences: how many other differences the file's graph has from the recipe's.
        scaling: the ops of the file's graph on its input before the network's first layer.
        places: by path, file:line:column of the recipe's name for the node; empty if the file's graph names
            its tensors.
        warnings: for the user; `notes`: for port.json.
    """

    graph: Graph
    source_classes: int
    background: bool = False
    activation: str | None = None
    tensors: Mapping[tuple[str, str], str]
    head: str | None
    ignored: Mapping[str, str] = field(default_factory=dict)
    transforms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    own_head: bool = False
    taps: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    reference_taps: Mapping[str, str] = field(default_factory=dict)
    reference_names: Mapping[str, str] = field(default_factory=dict)
    stand_in: StandIn | None = None
    folded: Mapping[str, str] = field(default_factory=dict)
    differences: int = 0
    scaling: tuple[Affine, ...] = ()
    stored: Mapping[tuple[str, str], Stored] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        """Rows of the port's head; 0 if it has none."""
        return channels_of(self.graph)[self.graph.output] if self.source_classes else 0

    @property
    def output(self) -> Gives:
        if not self.source_classes:
            return "features"
        kept = self.activation is None and isinstance(
            self.graph.by_path[self.graph.output].op, Softmax | Sigmoid
        )
        return "probabilities" if kept else "logits"


def read_tensors(fit: Fit, checkpoint: Checkpoint, dialect: Dialect | None) -> dict[str, dict[str, Array]]:
    """Every tensor of the fitted graph, in canonical axis order, path to role to array.

    Args:
        dialect: of the file's names, which tells the axes where the file's graph does not (Fit.stored).

    Raises:
        MappingError: tensors have another shape than the graph needs. FileError: a tensor has a NaN.
    """
    shapes = tensor_shapes(fit.graph)
    tensors: dict[str, dict[str, Array]] = {}
    wrong: list[tuple[str, str | None]] = []
    for (path, role), name in fit.tensors.items():
        node, expected, array = fit.graph.by_path[path], shapes[path].get(role), checkpoint.tensors[name]
        transforms = fit.transforms.get(path, ())
        try:
            if fit.stored and expected is not None:
                in_file = (fit.source_classes, *expected[1:]) if "drop_background" in transforms else expected
                array = canonical(array, fit.stored[path, role], in_file)
            else:
                assert dialect is not None
                array = dialect.to_canonical(fit.graph, node, role, array)
            array = apply_transforms(transforms, role, array)
        except MappingError as error:
            wrong.append((f"{name} at {path}: {error.message}", fit.places.get(path)))
            continue
        if expected is not None and array.shape != expected:
            needed = f"{name} is {shape_text(array.shape)} where {path} needs {shape_text(expected)}"
            wrong.append((needed, fit.places.get(path)))
        tensors.setdefault(path, {})[role] = array
    for path, word in fit.computed.items():
        tensors[path] = {role: COMPUTED[word].values(shape) for role, shape in shapes[path].items()}
    if wrong:
        raise MappingError("tensors of another shape: " + some(placed(wrong)), where=str(checkpoint.path))
    _expect_numbers(fit, checkpoint)
    return tensors


def _expect_numbers(fit: Fit, checkpoint: Checkpoint) -> None:
    """Refuses NaN: one in the weights can make every logit NaN. Infinities may be intended: see
    --allow-overflow.
    """
    for name in fit.tensors.values():
        array = checkpoint.tensors[name]
        if is_floating(array) and (lost := int(np.count_nonzero(np.isnan(array)))):
            raise FileError(
                f"{lost} of {array.size} values in tensor '{name}' are NaN: the training diverged, or "
                "the file is damaged",
                where=str(checkpoint.path),
                next="take an earlier checkpoint, or fetch the file again",
            )


def own_checkpoint(fit: Fit, checkpoint: Checkpoint) -> dict[str, Array]:
    """The file's tensors under the names of the zoo's own implementation."""
    return {own: checkpoint.tensors[name] for name, own in fit.reference_names.items()}


def without_head(graph: Graph) -> Graph:
    """The graph without its head: features, one value per channel. What follows the head reads its input."""
    head = head_of(graph)

    def past(path: str) -> str:
        return head.inputs[0] if path == head.path else path

    nodes = tuple(replace(node, inputs=tuple(map(past, node.inputs))) for node in graph.nodes if node != head)
    return replace(graph, nodes=nodes, output=past(graph.output), further=())


def placed(lines: Sequence[tuple[str, str | None]]) -> list[str]:
    """Each line with the place in the recipe that names its tensor, unless the line before is named there
    too.
    """
    before = (None, *(place for _, place in lines))
    return [
        line if place in (None, last) else f"{line} ({place})"
        for (line, place), last in zip(lines, before, strict=False)
    ]


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, np.asarray(shape, int))) or "a scalar"

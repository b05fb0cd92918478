"""The source of a port, opened: a weights file under a zoo's names or with its own graph, or another port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from porter.data.labels import Labels
from porter.data.preprocess import Preprocess
from porter.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.fitting.fit import Fit, Output
from porter.frameworks import Runner
from porter.graph import Graph
from porter.port import Padding, SourceFile, TensorLists
from porter.recipe import Member
from porter.recipe.expressions import Value


@dataclass(frozen=True, kw_only=True)
class Opened(Output):
    """A source: its graph and its tensors in canonical order.

    Attributes:
        framework: runs the source.
        native_size: `built_size`, otherwise the recipe's; of a port, its only size, otherwise its own native size.
        member: what it is; None for a file of a graph that no recipe has.
        options: those that the graph was expanded with; only the number of classes if the graph is the file's own.
        preprocess: the protocol that turns a photo into the source's input.
        labels: the map of the classes; None if the file's head is not the zoo's own.
        licence: of the zoo's published file; None for any other file.
        assumed: one line for each fact that the file does not record and the recipe states, without the input size.
        sized: whether the source fixes the input size that it was built for.
        padding: whether `graph` has the shipped or the training pads; with training pads, `shipped` is the graph with the source's
            own.
        checkpoint: the file as read, and `fit` its fit to the recipe; None if the source is a port.
        names: by path, what the file calls its layers, and `output_names` its outputs in their order, if no recipe has its graph.
        only_size: rows and columns at which the source is what its file states, if that was traced at one size; otherwise None.
    """

    framework: Runner
    tensors: Mapping[str, Mapping[str, Array]]
    lists: TensorLists
    file: SourceFile
    native_size: tuple[int, int]
    member: Member | None = None
    options: Mapping[str, Value] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    labels: Labels | None = None
    licence: str | None = None
    assumed: tuple[str, ...] = ()
    sized: bool = True
    warnings: tuple[str, ...] = ()
    padding: Padding = "shipped"
    shipped: Graph | None = None
    checkpoint: Checkpoint | None = None
    fit: Fit | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    only_size: tuple[int, int] | None = None

    @property
    def built_size(self) -> tuple[int, int] | None:
        """Rows and columns that the file's graph was built for; None if the file has no graph, or its graph takes any size."""
        graph = self.checkpoint.graph if self.checkpoint else None
        return graph.built_size if graph else None

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The used tensors that porter computed from the file's."""
        graph = self.checkpoint.graph if self.checkpoint else None
        return tuple(name for name in self.lists.used if graph and name in graph.evaluated)

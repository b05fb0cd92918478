"""The source of a port, opened: a weights file under a zoo's names or with its own graph, or another port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.graph import Graph
from porter.padding.sizes import InputSizes
from porter.port import Facts, SourceFile, TensorLists
from porter.recipe import Member
from porter.recipe.expressions import Value
from porter.source.fitting.fit import Fit

if TYPE_CHECKING:
    from porter.frameworks.in_memory import Saved


@dataclass(frozen=True)
class Fitted:
    """The file that a source was opened from, as read, and its fit to the graph."""

    checkpoint: Checkpoint
    fit: Fit


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A source: its graph and its tensors in canonical order.

    Attributes:
        framework: the zoo's or the port's, otherwise the engine that runs the file's graph.
        sizes: the size that the file states, otherwise the recipe's; of a port, its only size, otherwise its
            own native size.
        member: what it is; None for a file of a graph that no recipe has.
        chosen: the options of the recipe that a user, or what stands beside the file, sets.
        assumed_size: one line if the recipe and not the source says what input size it was built for.
        shipped: with training pads, the graph with the source's own.
        fitted: None if the source is a port.
        own_model: what the model is called that porter builds from the graph, where the tensors were trained
            in that very model.
        in_memory: the model that the user holds, if the source is one.
    """

    graph: Graph
    tensors: Mapping[str, Mapping[str, Array]]
    facts: Facts
    sizes: InputSizes
    framework: str
    lists: TensorLists
    file: SourceFile
    member: Member | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)
    assumed_size: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shipped: Graph | None = None
    fitted: Fitted | None = None
    own_model: str | None = None
    in_memory: Saved | None = None

    def stating(self, **facts: Any) -> Facts:
        """Its facts, with others in place of some."""
        return self.facts.model_copy(update=facts)

    @property
    def built_size(self) -> tuple[int, int] | None:
        """Rows and columns that the file's graph was built for; None if the file has no graph, or its graph
        takes any size.
        """
        graph = self.fitted.checkpoint.graph if self.fitted else None
        return graph.built_size if graph else None

"""A node of a graph, as a destination of nets says it: by layers whose names begin with the node's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from porter.graph import Node, Op, Shape
from porter.graph.ops import channels_in


class LayerMaker(Protocol):
    """What makes the layers of one net."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of the value of every path."""

    def name(self, wanted: str) -> str:
        """Return `wanted`, or the first variation of it that nothing has, and reserve it."""

    def add(self, kind: str, name: str, /, *inputs: str, **own: Any) -> str:
        """Add a layer of the framework's `kind` that reads the values `inputs`, with arguments `own` as the
        framework calls them, and return the name of its value.
        """

    def tensors_of(self, path: str, name: str, *roles: str) -> list[Any]:
        """Return what holds the tensors of a path of these roles, without those that its op lacks, for the
        layer `name`.
        """


LayersT = TypeVar("LayersT", bound=LayerMaker, covariant=True)
OpT = TypeVar("OpT", bound=Op, covariant=True)


@dataclass(frozen=True)
class Spelled(Generic[LayersT, OpT]):
    """A node that is being said.

    Attributes:
        name: of its value; names of the layers before it begin so.
    """

    maker: LayersT
    node: Node
    op: OpT
    name: str

    @property
    def path(self) -> str:
        return self.node.path

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.node.inputs

    @property
    def source(self) -> str:
        """The first of the values that the node reads."""
        return self.inputs[0]

    @property
    def shape(self) -> Shape:
        """Return the shape of the node's value."""
        return self.maker.shapes[self.path]

    @property
    def channels(self) -> int:
        return channels_in(self.shape)

    def part(self, ending: str) -> str:
        """Return a name for a layer before the last one, with this ending; without an ending, the name of the
        last one.
        """
        return self.maker.name(f"{self.name}_{ending}") if ending else self.name

    def step(self, ending: str, kind: str, *inputs: str, **own: Any) -> str:
        """Add a layer of this kind under the name that `part` gives for this ending, and return its value's
        name. `own` are the layer's arguments, as the framework calls them.
        """
        return self.maker.add(kind, self.part(ending), *inputs, **own)

    def result(self, kind: str, *inputs: str, **own: Any) -> str:
        """Add the layer that gives the node's value, under the node's own name, and return that name;
        arguments as `step`.
        """
        return self.step("", kind, *inputs, **own)

    def tensors(self, *roles: str) -> list[Any]:
        """Return what holds the node's tensors of these roles, without those that its op lacks."""
        return self.maker.tensors_of(self.path, self.name, *roles)

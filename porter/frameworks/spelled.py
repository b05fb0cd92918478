"""A node of a graph, as a destination of nets says it: by layers whose names begin with the node's.

Nets name their values, so that inputs are names here, and shapes are the maker's. Keras's calls have values
that carry their shape, and functions stand beside layers: porter.frameworks.tf.ports.maker.KerasNode.
"""

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
    """A node of a graph while a destination adds the layers that compute it: its methods add them.

    Attributes:
        maker: adds layers to the whole net.
        name: of the node's value and of its last layer; names of the layers before that begin so.
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
        """Return a new name for a layer before the last one: `conv1_pad` for the ending `pad`. Without an
        ending, it is the name of the last one.
        """
        return self.maker.name(f"{self.name}_{ending}") if ending else self.name

    def step(self, ending: str, kind: str, *inputs: str, **own: Any) -> str:
        """Add a layer before the last one, and return its value's name: `step("pad", "Pad", x)` adds the
        layer `conv1_pad` of the class `Pad`, which reads x. Without an ending it is the last one.

        Args:
            own: the layer's arguments, as the framework calls them.
        """
        return self.maker.add(kind, self.part(ending), *inputs, **own)

    def result(self, kind: str, *inputs: str, **own: Any) -> str:
        """Add the layer that gives the node's value, under the node's own name, and return that name;
        arguments as `step`.
        """
        return self.step("", kind, *inputs, **own)

    def tensors(self, *roles: str) -> list[Any]:
        """Return what the net holds the node's tensors of these roles in, such as names of variables; see
        LayerMaker. Tensors that its op lacks, such as an absent bias, are left out.
        """
        return self.maker.tensors_of(self.path, self.name, *roles)

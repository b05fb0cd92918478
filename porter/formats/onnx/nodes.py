"""An ONNX graph's nodes: their inputs, and their attributes with the defaults that files leave out.

A value is named by the node that gives it and the place among its outputs. In ONNX values have names, and
nodes need none: a node is known by the name of its first output, as a stored tensor is by its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.base.errors import GraphError
from porter.filegraph import walk
from porter.filegraph.dataflow import Reference
from porter.filegraph.dims import Dim, known
from porter.filegraph.places import Items
from porter.formats.protobuf import Attributed

Walk = walk.NodeWalk["OnnxNode"]
MISSING: Reference = ("", 0)
"""An optional input that a node does not take."""


@dataclass(frozen=True, slots=True)
class OnnxNode(Attributed):
    """One node, or a tensor that the file stores (`Constant`).

    Attributes:
        op: the operator; one of another domain than ONNX's own has the domain before it.
        opset: the version of the operators.
        title: the node's own name, which people know; empty if it has none.
        attributes: by name, AttributeProto (onnx/onnx.proto).
        outputs: how many it gives.
    """

    name: str
    op: str
    inputs: tuple[Reference, ...]
    opset: int
    title: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def input(self, place: int) -> Reference | None:
        """An optional input; None where the node does not take it."""
        return self.inputs[place] if place < len(self.inputs) and self.inputs[place] != MISSING else None

    def integers(self, name: str) -> tuple[int, ...]:
        return Items(self.attributes[name].ints) if name in self.attributes else ()

    def stated(self, flow: Any, name: str, place: int) -> list[int] | None:
        """Whole numbers that older operators have as an attribute and newer ones as an input; None where
        neither is there.

        Raises:
            GraphError: the model computes the input as it runs.
        """
        dims = self.dims(flow, name, place)
        return None if dims is None else known(dims)

    def dims(self, flow: Any, name: str, place: int) -> list[Dim] | None:
        """As `stated`, of sizes, which may be open."""
        if name in self.attributes:
            return list(self.integers(name))
        source = self.input(place)
        if source is None:
            return None
        found: list[Dim] | None = flow.dims(source)
        if found is None:
            raise GraphError(f"{name} that the model computes as it runs")
        return found

    def bound(self, flow: Any, name: str, place: int, default: float) -> float:
        """As `stated`, for one number.

        Raises:
            GraphError: the input is not a single constant number.
        """
        if name in self.attributes:
            return self.real(name, default)
        source = self.input(place)
        if source is None:
            return default
        found: float | None = flow.number(source)
        if found is None:
            raise GraphError(f"'{name}' that is not a constant number")
        return found

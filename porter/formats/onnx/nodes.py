"""An ONNX graph's nodes: their inputs, and their attributes with the defaults that files leave out.

A value is named by the node that gives it and the place among its outputs. In ONNX values have names, and
nodes need none: a node is known by the name of its first output, as a stored tensor is by its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.filegraph import walk
from porter.filegraph.layouts.dims import Dim, fixed_sizes
from porter.filegraph.places import Items
from porter.filegraph.readers import as_outputs, call_with_inputs
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Outputs, Reader
from porter.formats.protobuf import AttributeReading

Walk = walk.NodeWalk["OnnxNode"]
MISSING: NodeOutput = ("", 0)
"""An optional input that a node does not take."""


@dataclass(frozen=True, slots=True)
class OnnxNode(AttributeReading):
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
    inputs: tuple[NodeOutput, ...]
    opset: int
    title: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def input(self, index: int) -> NodeOutput | None:
        """Return an optional input; None if the node does not take it."""
        source = self.inputs[index] if index < len(self.inputs) else MISSING
        return None if source == MISSING else source

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the integers of an attribute; none if it is missing."""
        return Items(self.attributes[name].ints) if name in self.attributes else ()

    def stated_integers(self, name: str, tensor: Tensor | None) -> list[int] | None:
        """Return the integers that older operators have as an attribute and newer ones as an input; None if
        neither is there.

        Raises:
            Unsupported: the model computes the input as it runs.
        """
        sizes = self.sizes(name, tensor)
        return None if sizes is None else fixed_sizes(sizes)

    def sizes(self, name: str, tensor: Tensor | None) -> list[Dim] | None:
        """Return the sizes that older operators have as an attribute and newer ones as an input, which may be
        open; None if neither is there.
        """
        if name in self.attributes:
            return list(self.integers(name))
        return None if tensor is None else tensor.dims()

    def number(self, name: str, tensor: Tensor | None, default: float) -> float:
        """Return a number that is an attribute in older operators and an input in newer ones; the default if
        neither is there.
        """
        if name in self.attributes:
            return self.real(name, default)
        return default if tensor is None else tensor.number()


def reader_of(function: Callable[..., Any]) -> Reader[OnnxNode]:
    """Return the reader that calls a function with the node, for what it states, and with the tensors that it
    reads; None for a tensor that it leaves out.
    """

    def read(walk: Walk, node: OnnxNode) -> Outputs:
        """Call the function with the node's tensors, None for each that it leaves out."""
        scope = Scope(walk, node)
        tensors = [None if source == MISSING else scope.tensor(source) for source in node.inputs]
        return as_outputs(call_with_inputs(function, node, *tensors))

    return read

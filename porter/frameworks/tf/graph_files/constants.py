"""What the parts of a TensorFlow graph hold that do not depend on its input: weights by name, and the values of small sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.dtypes import Array, is_floating
from porter.frameworks.tf.graph_files.nodes import GraphNode, Reference, Refuse
from porter.frameworks.tf.runtime import import_tensorflow

THROUGH = frozenset({"Identity", "Snapshot", "StopGradient", "CheckNumerics", "PlaceholderWithDefault", "PreventGradient"})
"""Ops that give their first input."""
_RESHAPES = frozenset({"Reshape", "Squeeze", "ExpandDims"})
"""Ops after which a vector is still that vector."""
_MOST_STEPS = 64
_BIG = 1024
"""Bytes from which on a constant's proto counts as weights."""

Numbers = np.ndarray[Any, np.dtype[Any]]
_EVALUATED: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Div": np.divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Square": np.square,
    "Reciprocal": np.reciprocal,
}


@dataclass(frozen=True)
class Tensor:
    """A constant or a variable, by the name of its node."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Constants:
    """The constants of a graph.

    Attributes:
        nodes: in order.
        variables: values of nodes that are variables, by name.
        budget: bytes that one constant may unpack to: a proto declares any shape over a single number.
    """

    nodes: Mapping[str, GraphNode]
    variables: Mapping[str, Array]
    budget: int
    refuse: Refuse
    _decoded: dict[str, Array] = field(default_factory=dict)

    def tensor(self, source: Reference) -> Tensor | None:
        """The constant or variable that a value is; None for one that is computed, or that is no vector and reshaped."""
        node = self.node(source)
        if node.name in self.variables:
            found = Tensor(node.name, self.variables[node.name].shape)
        elif node.op == "Const":
            found = Tensor(node.name, self._declared(node))
        else:
            return None
        return found if len(found.shape) == 1 or self._source(source, THROUGH | {"Cast"}).name == node.name else None

    def array(self, name: str) -> Array:
        """The value of a constant or variable.

        Raises:
            FileError: a constant that does not hold what it declares.
        """
        if name in self.variables:
            return self.variables[name]
        if name not in self._decoded:
            self._decoded[name] = self._decode(self.nodes[name])
        return self._decoded[name]

    def is_big(self, node: GraphNode) -> bool:
        return node.op == "Const" and bool(node.attributes["value"].ByteSize() > _BIG) and is_floating(self.array(node.name))

    def value(self, source: Reference) -> Numbers | None:
        """What a value is, computed in float64 from what the file holds; None where an op is none of a closed list."""
        return self._value(source, _MOST_STEPS)

    def _value(self, source: Reference, steps: int) -> Numbers | None:
        node, index = self.nodes[source[0]], source[1]
        if index or not steps:
            return None
        if node.name in self.variables or node.op == "Const":
            array = self.array(node.name)
            return array.astype(np.float64) if is_floating(array) else array
        inputs = [self._value(other, steps - 1) for other in node.inputs]
        if not inputs or any(value is None for value in inputs):
            return None
        if node.op in THROUGH or node.op == "Cast":
            return inputs[0]
        return _apply(node, [value for value in inputs if value is not None], self.budget)

    def node(self, source: Reference) -> GraphNode:
        """The node that computes a value, looking through what leaves a vector one."""
        return self._source(source, THROUGH | _RESHAPES | {"Cast"})

    def same(self, one: Reference, other: Reference) -> bool:
        """Whether two values are one, looking through what leaves a vector one."""
        return self.node(one).name == self.node(other).name and one[1] == other[1]

    def _source(self, source: Reference, through: frozenset[str]) -> GraphNode:
        node = self.nodes[source[0]]
        while node.op in through and node.inputs and node.name not in self.variables:
            node = self.nodes[node.inputs[0][0]]
        return node

    def _declared(self, node: GraphNode) -> tuple[int, ...]:
        shape = node.attributes["value"].tensor.tensor_shape
        sizes = tuple(int(dimension.size) for dimension in shape.dim)
        if shape.unknown_rank or any(size < 0 for size in sizes):
            raise self.refuse(f"constant '{node.name}' has no shape")
        return sizes

    def _decode(self, node: GraphNode) -> Array:
        shape = self._declared(node)
        tf = import_tensorflow()
        proto = node.attributes["value"].tensor
        try:
            kind = tf.dtypes.as_dtype(proto.dtype)
            size = math.prod(shape) * max(kind.size or 0, 1)
            if size > self.budget:
                raise self.refuse(f"constant '{node.name}' declares {size} bytes, more than the {self.budget} it can hold")
            array = np.asarray(tf.make_ndarray(proto))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise self.refuse(f"constant '{node.name}' does not hold what it declares: {reason[:200]}") from None
        if array.shape != shape:
            raise self.refuse(f"constant '{node.name}' declares shape {shape} and holds {array.shape}")
        return array


def _apply(node: GraphNode, inputs: list[Numbers], budget: int) -> Numbers | None:
    """One op in numpy; None for an op that is not on the list, and for operands that do not fit."""
    try:
        if node.op == "Reshape":
            return np.reshape(inputs[0], tuple(inputs[1].ravel().tolist()))
        if node.op == "ExpandDims":
            return np.expand_dims(inputs[0], int(inputs[1]))
        if node.op == "Squeeze":
            return np.squeeze(inputs[0], node.integers("squeeze_dims") or None)
        if node.op not in _EVALUATED or math.prod(np.broadcast_shapes(*(value.shape for value in inputs))) * 8 > budget:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(_EVALUATED[node.op](*inputs))
    except (ValueError, TypeError):
        return None

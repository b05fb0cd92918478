"""The parts of a TensorFlow graph that do not depend on its input: weights by name, and the values of small sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from porter.dtypes import Array, is_floating
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph.nodes import GraphNode, Reference, Refuse
from porter.graph import MOST_CONSTANTS

_CASTS = frozenset({"Cast"})
_RESHAPES = frozenset({"Reshape", "Squeeze", "ExpandDims"})
"""Ops that keep a vector's values."""
_BIG = 1024
"""A constant whose proto has more bytes counts as weights."""

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
_COMPUTED = _EVALUATED.keys() | _RESHAPES | _CASTS


@dataclass(frozen=True)
class Tensor:
    """A constant or a variable, by the name of its node."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Constants:
    """The constants of a graph.

    Attributes:
        nodes: in order, without nodes that give their input unchanged.
        variables: values of nodes that are variables, by name.
        budget: bytes that one constant may unpack to, because a proto can declare any shape with a single number; and bytes that
            all values computed from constants may take.
    """

    nodes: Mapping[str, GraphNode]
    variables: Mapping[str, Array]
    budget: int
    refuse: Refuse
    _decoded: dict[str, Array] = field(default_factory=dict)

    def tensor(self, source: Reference) -> Tensor | None:
        """The constant or variable that a value is; None for a computed value, or a reshaped one that is no vector."""
        node = self.node(source)
        if node.name in self.variables:
            found = Tensor(node.name, self.variables[node.name].shape)
        elif node.op == "Const":
            found = Tensor(node.name, self._declared(node))
        else:
            return None
        return found if len(found.shape) == 1 or self._uncast[source[0]].name == node.name else None

    def array(self, name: str) -> Array:
        """The value of a constant or variable.

        Raises:
            FileError: a constant does not hold what it declares.
        """
        if name in self.variables:
            return self.variables[name]
        if name not in self._decoded:
            self._decoded[name] = self._decode(self.nodes[name])
        return self._decoded[name]

    def is_big(self, node: GraphNode) -> bool:
        return node.op == "Const" and bool(node.attributes["value"].ByteSize() > _BIG) and is_floating(self.array(node.name))

    def value(self, source: Reference) -> Numbers | None:
        """A value computed in float64 from the file's constants; None where an op is not on a closed list, or where the value has
        more numbers than an op of porter's may state.

        Raises:
            FileError: a constant does not hold what it declares.
        """
        return self._stored(source) if self._is_stored(self.nodes[source[0]]) else self._small(source, self._computed)

    def _is_stored(self, node: GraphNode) -> bool:
        return node.name in self.variables or node.op == "Const"

    def _stored(self, source: Reference) -> Numbers | None:
        array = None if source[1] else self.array(source[0])
        return array.astype(np.float64) if array is not None and is_floating(array) else array

    def _small(self, source: Reference, computed: Mapping[str, Numbers]) -> Numbers | None:
        """A value with no more numbers than an op of porter's may state; None for any other."""
        node = self.nodes[source[0]]
        if not self._is_stored(node):
            return None if source[1] else computed.get(node.name)
        shape = self.variables[node.name].shape if node.name in self.variables else self._declared(node)
        return self._stored(source) if math.prod(shape) <= MOST_CONSTANTS else None

    @cached_property
    def _computed(self) -> Mapping[str, Numbers]:
        """The values that nodes compute from constants, each once: in 64 sums of a value with itself it is read 2**64 times."""
        found: dict[str, Numbers] = {}
        left = self.budget
        for node in self.nodes.values():
            if node.op not in _COMPUTED or node.name in self.variables:
                continue
            inputs = [value for source in node.inputs if (value := self._small(source, found)) is not None]
            value = _apply(node, inputs) if inputs and len(inputs) == len(node.inputs) else None
            if value is not None and value.nbytes <= left:
                left -= value.nbytes
                found[node.name] = value
        return found

    def node(self, source: Reference) -> GraphNode:
        """The node that computes a value, before all casts and reshapes."""
        return self._unshaped[source[0]]

    def same(self, one: Reference, other: Reference) -> bool:
        """Whether two values are the same before all casts and reshapes."""
        return self.node(one).name == self.node(other).name and one[1] == other[1]

    @cached_property
    def _uncast(self) -> Mapping[str, GraphNode]:
        return self._origins(_CASTS)

    @cached_property
    def _unshaped(self) -> Mapping[str, GraphNode]:
        return self._origins(_CASTS | _RESHAPES)

    def _origins(self, through: frozenset[str]) -> Mapping[str, GraphNode]:
        """For every node the one that it reads through such ops."""
        found: dict[str, GraphNode] = {}
        for node in self.nodes.values():
            passing = node.op in through and node.inputs and node.name not in self.variables
            found[node.name] = found[node.inputs[0][0]] if passing else node
        return found

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


def _apply(node: GraphNode, inputs: list[Numbers]) -> Numbers | None:
    """One op of `_COMPUTED` in numpy; None for operands that do not fit, or that give more than MOST_CONSTANTS numbers."""
    try:
        if node.op in _CASTS:
            return inputs[0]
        if node.op == "Reshape":
            return np.reshape(inputs[0], tuple(inputs[1].ravel().tolist()))
        if node.op == "ExpandDims":
            return np.expand_dims(inputs[0], int(inputs[1]))
        if node.op == "Squeeze":
            return np.squeeze(inputs[0], node.integers("squeeze_dims") or None)
        if math.prod(np.broadcast_shapes(*(value.shape for value in inputs))) > MOST_CONSTANTS:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(_EVALUATED[node.op](*inputs))
    except (ValueError, TypeError, OverflowError):
        return None

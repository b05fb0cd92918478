"""The constants and variables of a TensorFlow graph, and what numpy computes from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, Numbers, is_floating
from porter.base.errors import first_line
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.size_arrays import as_real, as_whole
from porter.filegraph.tensorflow import MASKS
from porter.filegraph.tensors.constants import arange, expect_room
from porter.filegraph.tensors.tensor import Tensor
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph.nodes import GraphNode, Refuse

_WEIGHT_BYTES = 1024
"""A constant whose proto has more bytes counts as weights."""

_BYTES_PER_TEXT = 64
"""Bytes that a text takes besides its letters."""
INTEGERS = (3, 9)
"""types.proto: DT_INT32 and DT_INT64."""
TRUTH = 10
"""types.proto: DT_BOOL."""
HALF_TYPES: Mapping[int, Dtype] = {19: "float16", 14: "bfloat16"}
FLOATS = (1, 2, *HALF_TYPES)
"""types.proto: DT_FLOAT, DT_DOUBLE, DT_HALF and DT_BFLOAT16."""

RESHAPES = frozenset({"Reshape", "Squeeze", "ExpandDims"})


def masks_of(node: GraphNode) -> Mapping[str, int]:
    """Return the masks of a StridedSlice by their names."""
    return {name: node.integer(f"{name}_mask") for name in MASKS}


def is_cast(node: GraphNode) -> bool:
    """Return whether a node is a Cast to real numbers; halves are read in exact arithmetic."""
    return node.op == "Cast" and node.type("DstT") in FLOATS


def cast(node: GraphNode, value: Numbers) -> Numbers:
    """Return a constant in the type that a Cast states."""
    if node.type("DstT") == TRUTH:
        return value.astype(np.bool_)
    return as_whole(value) if node.type("DstT") in INTEGERS else as_real(value)


def _diagonal(
    node: GraphNode, x: Tensor, offset: Tensor, rows: Tensor, columns: Tensor, fill: Tensor
) -> Numbers:
    """Return the square matrix of a MatrixDiagV3 with one stored diagonal, as of tf.eye. Raise Unsupported
    for others.
    """
    array = x.array
    if array is None or array.ndim != 1 or offset.number():
        raise Unsupported("of other than one stored diagonal")
    if not {rows.number(), columns.number()} <= {-1, array.size}:
        raise Unsupported("of another matrix than a square")
    expect_room(array.size**2)
    return np.where(np.eye(array.size, dtype=bool), array, fill.item())


FUNCTIONS: Mapping[str, Callable[..., Numbers]] = {
    "MatrixDiagV3": _diagonal,
    "Range": lambda node, start, limit, step: arange(start.item(), limit.item(), step.item()),
}


@dataclass
class GraphConstants:
    """What a graph stores.

    Attributes:
        nodes: by name.
        variables: values of nodes that are variables, by name.
        budget: bytes that its constants may still unpack to, because a proto can declare any shape with a
            single number.
    """

    nodes: Mapping[str, GraphNode]
    variables: NamedArrays
    budget: int
    refuse: Refuse
    _decoded: dict[str, Array] = field(default_factory=dict)

    def declared(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a constant or variable; None for a node that is computed.

        Raises:
            FileError: a constant has no shape.
        """
        if name in self.variables:
            return self.variables[name].shape
        if name in self.nodes and self.nodes[name].op == "Const":
            return self._shape(self.nodes[name])
        return None

    def array(self, name: str) -> Array:
        """Return the value of a constant or variable; a constant is decoded once.

        Raises:
            FileError: a constant does not hold what it declares.
        """
        if name in self.variables:
            return self.variables[name]
        if name not in self._decoded:
            self._decoded[name] = self._decode(self.nodes[name])
        return self._decoded[name]

    def is_big(self, node: GraphNode) -> bool:
        """Return whether a node is a constant of so many real numbers that it counts as weights."""
        return (
            node.op == "Const"
            and bool(node.attributes["value"].ByteSize() > _WEIGHT_BYTES)
            and is_floating(self.array(node.name))
        )

    def _shape(self, node: GraphNode) -> tuple[int, ...]:
        """Return the shape of a constant. Raise FileError for one without a known shape."""
        shape = node.attributes["value"].tensor.tensor_shape
        sizes = tuple(int(dimension.size) for dimension in shape.dim)
        if shape.unknown_rank or any(size < 0 for size in sizes):
            raise self.refuse(f"constant '{node.name}' has no shape")
        return sizes

    def _decode(self, node: GraphNode) -> Array:
        """Return the array of a Const, and take its bytes from the budget. Raise FileError if it has more, or
        does not hold what it declares.
        """
        shape = self._shape(node)
        tf = import_tensorflow()
        proto = node.attributes["value"].tensor
        try:
            dtype = tf.dtypes.as_dtype(proto.dtype)
            size = math.prod(shape) * (dtype.size or _BYTES_PER_TEXT)
            if size > self.budget:
                raise self.refuse(
                    f"constant '{node.name}' declares {size} bytes, and its file can hold {self.budget} more"
                )
            self.budget -= size
            array = np.asarray(tf.make_ndarray(proto))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise self.refuse(
                f"constant '{node.name}' does not hold what it declares: {first_line(error)}"
            ) from None
        if array.shape != shape:
            raise self.refuse(f"constant '{node.name}' declares shape {shape} and holds {array.shape}")
        return array

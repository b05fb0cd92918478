"""The constants and variables of a TensorFlow graph, and what numpy computes from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.base.errors import first_line
from porter.filegraph.dataflow import MOST_COMPUTED, Evaluator
from porter.filegraph.dims import Numbers, as_real, as_whole
from porter.filegraph.tensorflow import MASKS, numbers_from, sliced, strided
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph.nodes import GraphNode, Refuse

_BIG = 1024
"""A constant whose proto has more bytes counts as weights."""

_TEXT = 64
"""Bytes that a text takes besides its letters."""
INTEGERS = (3, 9)
"""types.proto: DT_INT32 and DT_INT64."""
TRUTH = 10
WIDE_FLOATS = (1, 2)
"""types.proto: DT_FLOAT and DT_DOUBLE."""

RESHAPES = frozenset({"Reshape", "Squeeze", "ExpandDims"})


def _reduced(function: Any) -> Evaluator:
    return lambda node, value, axes: function(
        value, tuple(axes.ravel().tolist()), keepdims=node.flag("keep_dims")
    )


def masks_of(node: GraphNode) -> Mapping[str, int]:
    return {name: node.integer(f"{name}_mask") for name in MASKS}


def _gathered(node: GraphNode, value: Numbers, places: Numbers, axis: Numbers | None = None) -> Numbers:
    place = 0 if axis is None else int(axis)
    if node.integer("batch_dims") or value.size // max(value.shape[place], 1) * places.size > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return value.take(places, place)


def _repeated(node: GraphNode, value: Numbers, times: Numbers) -> Numbers:
    if value.size * math.prod(times.ravel().tolist()) > MOST_COMPUTED:
        raise ValueError("more numbers than a model states")
    return np.tile(value, times.ravel().tolist())


def is_cast(node: GraphNode) -> bool:
    """Halves round, integers cut, and truths are 0 and 1."""
    return node.op == "Cast" and node.type("DstT") in WIDE_FLOATS


def _cast(node: GraphNode, value: Numbers) -> Numbers:
    if node.type("DstT") == TRUTH:
        return value.astype(np.bool_)
    return as_whole(value) if node.type("DstT") in INTEGERS else as_real(value)


def _diagonal(
    node: GraphNode, value: Numbers, place: Numbers, rows: Numbers, columns: Numbers, fill: Numbers
) -> Numbers:
    """A MatrixDiagV3 of one diagonal, as of tf.eye: MatrixDiagV3 (value, place, rows, columns, fill)."""
    if (
        value.ndim != 1
        or place.item()
        or not {rows.item(), columns.item()} <= {-1, value.size}
        or value.size**2 > MOST_COMPUTED
    ):
        raise ValueError("other than a square with one diagonal")
    return np.where(np.eye(value.size, dtype=bool), value, fill)


def _band(node: GraphNode, value: Numbers, below: Numbers, above: Numbers) -> Numbers:
    """Some diagonals of the last two axes; those of a side are all where their number is below 0."""
    found = value if below < 0 else np.triu(value, -int(below))
    return found if above < 0 else np.tril(found, int(above))


EVALUATORS: Mapping[str, Evaluator] = {
    "Cast": _cast,
    "Reshape": lambda node, value, shape: value.reshape(shape.ravel().tolist()),
    "ExpandDims": lambda node, value, axis: np.expand_dims(value, int(axis)),
    "Squeeze": lambda node, value: np.squeeze(value, node.integers("squeeze_dims") or None),
    "MatrixBandPart": _band,
    "MatrixDiagV3": _diagonal,
    "Mean": _reduced(np.mean),
    "Range": lambda node, *numbers: numbers_from(*numbers),
    "Tile": _repeated,
    "Transpose": lambda node, value, order: value.transpose(order.ravel().tolist()),
    "Prod": _reduced(np.prod),
    "Sum": _reduced(np.sum),
    "GatherV2": _gathered,
    "Gather": _gathered,
    "Pack": lambda node, *values: np.stack(values, node.integer("axis")),
    "Unpack": lambda node, value: list(np.moveaxis(value, node.integer("axis"), 0)),
    "ConcatV2": lambda node, *values: np.concatenate(values[:-1], int(values[-1])),
    "StridedSlice": lambda node, value, *bounds: value[
        tuple(strided(masks_of(node), value.ndim, *(each.ravel().tolist() for each in bounds)))
    ],
    "Slice": lambda node, value, begin, size: value[
        tuple(sliced(begin.ravel().tolist(), size.ravel().tolist()))
    ],
}


@dataclass
class Constants:
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
        """The shape of a constant or variable; None for a node that is computed.

        Raises:
            FileError: a constant has no shape.
        """
        if name in self.variables:
            return self.variables[name].shape
        return (
            self._shape(self.nodes[name]) if name in self.nodes and self.nodes[name].op == "Const" else None
        )

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
        return (
            node.op == "Const"
            and bool(node.attributes["value"].ByteSize() > _BIG)
            and is_floating(self.array(node.name))
        )

    def _shape(self, node: GraphNode) -> tuple[int, ...]:
        shape = node.attributes["value"].tensor.tensor_shape
        sizes = tuple(int(dimension.size) for dimension in shape.dim)
        if shape.unknown_rank or any(size < 0 for size in sizes):
            raise self.refuse(f"constant '{node.name}' has no shape")
        return sizes

    def _decode(self, node: GraphNode) -> Array:
        shape = self._shape(node)
        tf = import_tensorflow()
        proto = node.attributes["value"].tensor
        try:
            kind = tf.dtypes.as_dtype(proto.dtype)
            size = math.prod(shape) * (kind.size or _TEXT)
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

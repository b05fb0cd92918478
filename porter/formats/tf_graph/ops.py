"""TensorFlow's ops in porter's terms, one reader each. A foreign node's name says what porter's ops cannot
do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layouts.size_arrays import sizes_array
from porter.filegraph.matching.norms import sqrt_or_norm
from porter.filegraph.readers import Functions, node_reader, op_reader, tensor_reader
from porter.filegraph.tensorflow import gather, slice_index, strided_slice_index
from porter.filegraph.tensors import functions
from porter.filegraph.tensors.atrous import Stated, put_together, stated_by_inputs, take_apart
from porter.filegraph.tensors.reductions import Reduction
from porter.filegraph.tensors.several import concat, maximum, stack
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Reader, Repeated, Zeros
from porter.formats.tf_graph import arithmetic, windows
from porter.formats.tf_graph.constants import FLOATS, FUNCTIONS, INTEGERS, TRUTH, cast, is_cast, masks_of
from porter.formats.tf_graph.nodes import GraphNode, Walk
from porter.graph import (
    Abs,
    Ceil,
    Cos,
    DepthToSpace,
    Elu,
    Erf,
    Floor,
    LeakyRelu,
    LocalResponseNorm,
    Log,
    LogSoftmax,
    Op,
    Reciprocal,
    Relu,
    Relu6,
    Round,
    Selu,
    Sigmoid,
    Sign,
    Sin,
    Softplus,
    Softsign,
    Tanh,
)

_REDUCTIONS: Mapping[str, Reduction] = {"Mean": "mean", "Max": "max", "Min": "min", "Sum": "sum"}


def _state_sizes(node: GraphNode, *values: Tensor) -> list[Numbers | None]:
    """Return what Shape, ShapeN, Size and Rank give: numbers about the sizes of values, None for a value of
    unknown sizes.
    """
    sizes_of_values = [value.walk.sizes(value.source) for value in values]
    number: Any = {"Size": math.prod, "Rank": len}.get(node.op, tuple)
    return [None if sizes is None else sizes_array(number(sizes)) for sizes in sizes_of_values]


def _cast(node: GraphNode, x: Tensor) -> Tensor | Numbers:
    """Return the value of a Cast. A constant is cast; a cast between real numbers changes nothing in exact
    arithmetic, and neither does one of truths to numbers; one to whole numbers and back cuts.
    """
    if x.array is not None:
        return cast(node, x.array)
    source_type, target_type = node.type("SrcT"), node.type("DstT")
    before = x.walk.flow.nodes[node.source[0]]
    is_number = source_type in FLOATS or (source_type == TRUTH and functions.is_truth(x))
    # The Cast before this one has cut the numbers, and they only become real again.
    if is_cast(node) and (is_number or before.op == "Cast"):
        return x
    if target_type in INTEGERS and is_number:
        return functions.cut_to_whole(x, is_cast)
    raise Unsupported("to, or of, numbers that are not real")


def _reduce(node: GraphNode, x: Tensor, axes: Tensor) -> Tensor:
    """Return the value of a reduction such as Mean, Max, Min or Sum over the stated axes; over none it is
    Unsupported.
    """
    numbers = axes.integers()
    if not numbers:
        raise Unsupported("over no axes")
    return x.reduce(_REDUCTIONS[node.op], numbers, node.flag("keep_dims"))


def _slice(node: GraphNode, x: Tensor, *bounds: Tensor) -> Tensor:
    """Return the value of Slice, by begins and sizes, or of StridedSlice, by begins, ends and steps."""
    numbers = [tensor.dims() for tensor in bounds]
    if len(numbers) != (2 if node.op == "Slice" else 3):
        raise Unsupported(f"by {len(numbers)} bounds")
    if node.op == "Slice":
        return x.take(slice_index(*numbers))
    return x.take(strided_slice_index(masks_of(node), len(x.sizes), *numbers))


def _gather(node: GraphNode, x: Tensor, index: Tensor, axis: Tensor | None = None) -> Tensor:
    """Return the value of GatherV2: the cells of an axis at stored indices; see
    porter.filegraph.tensorflow.gather.
    """
    if node.integer("batch_dims"):
        raise Unsupported("of several places")
    return gather(x, index, 0 if axis is None else int(axis.number()))


def _reshape(node: GraphNode, x: Tensor, sizes: Tensor) -> Tensor | Repeated:
    """Return the value of a Reshape; of a constant that is repeated for each image, with a batch of its own,
    as tf.repeat writes a class token.
    """
    source = x.walk.drop_repeats(x.source)
    if source == x.source:
        return x.reshape(sizes.dims())
    return Repeated(source, tuple(sizes.dims()))


def _depth_to_space(node: GraphNode, x: Tensor) -> Tensor:
    """Return the value of DepthToSpace, which makes blocks of cells of channels."""
    windows.expect_layout(node)
    return x.apply_op(DepthToSpace(node.integer("block_size"), "DCR"))


def _response_norm(node: GraphNode, x: Tensor) -> Tensor:
    """Return the value of LRN, with the defaults of core/ops/nn_ops.cc."""
    size = 2 * node.integer("depth_radius", 5) + 1
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 0.5)
    return x.apply_op(LocalResponseNorm(size, alpha, beta, node.real("bias", 1.0)))


def _fill(node: GraphNode, sizes: Tensor, number: Tensor) -> Repeated | Zeros:
    """Return the value of a Fill whose sizes are computed from open ones: one number, repeated to these
    sizes, or `Zeros` of them if it is 0.
    """
    shape = tuple(sizes.dims())
    return Repeated(number.reference, shape) if number.number() else Zeros(shape)


def _stated_block(walk: Walk, node: GraphNode) -> Stated:
    """Return the block and the pads that a node states. The first SpaceToBatch and BatchToSpace have one
    number for rows and columns, as an attribute.
    """
    if node.op in ("SpaceToBatchND", "BatchToSpaceND"):
        return stated_by_inputs(walk, node)
    return [node.integer("block_size")] * 2, walk.flow.dims(node.inputs[1])


def _space_to_depth(node: GraphNode, x: Tensor) -> Tensor:
    """Return the value of SpaceToDepth, which makes channels of blocks of cells."""
    windows.expect_layout(node)
    return x.cells_as_channels(node.integer("block_size"))


PLAIN: Mapping[str, Op] = {
    "Elu": Elu(),
    "Relu": Relu(),
    "Relu6": Relu6(),
    "Selu": Selu(),
    "Sigmoid": Sigmoid(),
    "Softplus": Softplus(),
    "Softsign": Softsign(),
    "Tanh": Tanh(),
    "Abs": Abs(),
    "Erf": Erf(),
    "Log": Log(),
    "Sin": Sin(),
    "Cos": Cos(),
    "Reciprocal": Reciprocal(),
    "Inv": Reciprocal(),
    "Sign": Sign(),
    "Floor": Floor(),
    "Ceil": Ceil(),
    "Round": Round(),
    "Rint": Round(),
}
"""Ops of one value that are one op of porter's."""
_FUNCTIONS: Functions = by_name(
    {
        **FUNCTIONS,
        **arithmetic.FUNCTIONS,
        **windows.FUNCTIONS,
        **dict.fromkeys(_REDUCTIONS, _reduce),
        "Gather GatherV2": _gather,
        "Rank Shape ShapeN Size": _state_sizes,
        "Slice StridedSlice": _slice,
        "BroadcastTo": lambda node, x, sizes: x.expand(sizes.dims()),
        "Cast": _cast,
        "ConcatV2": lambda node, *tensors: concat(tensors[:-1], int(tensors[-1].number())),
        "DepthToSpace": _depth_to_space,
        "ExpandDims": lambda node, x, axes: x.unsqueeze(axes.integers()),
        "Fill": _fill,
        "LRN": _response_norm,
        "LeakyRelu": lambda node, x: x.apply_elementwise(LeakyRelu(node.real("alpha", 0.2))),
        "LogSoftmax": lambda node, x: x.softmax(-1, op=LogSoftmax()),
        "MatrixDiagPartV3": lambda node, x, offset, fill: x.diagonal((-2, -1), int(offset.number())),
        "Pack": lambda node, *values: stack(values, node.integer("axis")),
        "Reshape": _reshape,
        "ReverseV2": lambda node, x, axes: x.flip(axes.integers()),
        "Roll": lambda node, x, shifts, axes: x.roll(
            dict(zip(axes.integers(), shifts.integers(), strict=True))
        ),
        "Softmax": lambda node, x: x.softmax(-1),
        "SpaceToDepth": _space_to_depth,
        "Split": lambda node, axis, x: x.split_evenly(int(axis.number()), node.integer("num_split", 1)),
        "SplitV": lambda node, x, sizes, axis: x.split(int(axis.number()), sizes.dims()),
        "Sqrt": lambda node, x: sqrt_or_norm(x, lambda total: total.flag("keep_dims")),
        "Squeeze": lambda node, x: x.squeeze(node.integers("squeeze_dims")),
        "Tile": lambda node, x, times: x.repeat(times.dims()),
        "Transpose": lambda node, x, order: x.transpose(order.integers()),
        "Unpack": lambda node, x: x.split_evenly(node.integer("axis"), node.integer("num", 1), keep=False),
        "ZerosLike": lambda node, x: Zeros(x.sizes),
    }
)
"""The functions of the node and the tensors that it reads."""
_EXPRESSIONS: Mapping[str, Callable[..., Tensor]] = {
    **{
        kind: functions.FUNCTIONS[kind.lower()]
        for kind in ("Acosh", "Asinh", "Atanh", "Cosh", "Erfc", "Expm1", "Log1p", "Sinh", "Tan")
    },
    **dict.fromkeys(("Select", "SelectV2"), functions.where),
    "Equal": functions.equal,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "LogicalAnd": operator.mul,
    "LogicalNot": functions.logical_not,
    "LogicalOr": maximum,
    "Neg": operator.neg,
    "NotEqual": functions.not_equal,
    "OnesLike": functions.ones,
    "Rsqrt": functions.rsqrt,
    "Square": functions.square,
    "SquaredDifference": functions.squared_difference,
}
"""The functions of the tensors alone."""
READERS: Mapping[str, Reader[GraphNode]] = by_name(
    {
        **{kind: op_reader(op) for kind, op in PLAIN.items()},
        **{kind: node_reader(function) for kind, function in _FUNCTIONS.items()},
        **{kind: tensor_reader(function) for kind, function in _EXPRESSIONS.items()},
        "BatchToSpace BatchToSpaceND": put_together,
        "SpaceToBatch SpaceToBatchND": lambda walk, node: take_apart(walk, node, _stated_block),
    }
)

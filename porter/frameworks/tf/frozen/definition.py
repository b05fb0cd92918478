"""A serialised GraphDef, reduced to what chosen nodes need, and checked to be pure maths before TensorFlow
imports it.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

from porter.base.errors import CannotRun, FileError, GraphError
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tf_graph.ops import PLAIN
from porter.graph.walks import upstream

_PURE_OPS_BY_KIND = {
    "constants and what gives a value on": (
        "Const Placeholder PlaceholderWithDefault Identity IdentityN Snapshot StopGradient "
        "PreventGradient CheckNumerics Cast"
    ),
    "layers": (
        "Conv2D DepthwiseConv2dNative Conv2DBackpropInput BiasAdd BiasAddV1 MatMul BatchMatMul "
        "BatchMatMulV2 Einsum FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 "
        "BatchNormWithGlobalNormalization LRN MaxPool MaxPoolV2 AvgPool"
    ),
    "activations": "LeakyRelu Softmax LogSoftmax",
    "reductions": "Mean Sum Max Min Prod ArgMax Cumsum",
    "of two numbers": (
        "Add AddV2 AddN Sub Mul Div RealDiv FloorDiv Mod FloorMod TruncateMod Maximum Minimum "
        "SquaredDifference Pow"
    ),
    "of one number": (
        "ClipByValue Neg Abs Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Erf Erfc Tan Sinh "
        "Cosh Asinh Acosh Atanh"
    ),
    "comparisons": (
        "Equal NotEqual Less LessEqual Greater GreaterEqual IsFinite LogicalAnd LogicalOr LogicalNot "
        "Select SelectV2"
    ),
    "moves": (
        "Reshape Squeeze ExpandDims Transpose Concat ConcatV2 Split SplitV Pack Unpack Slice "
        "StridedSlice Gather GatherV2 ReverseV2 Roll Tile BroadcastTo Pad PadV2 MirrorPad "
        "DepthToSpace SpaceToDepth SpaceToBatch SpaceToBatchND BatchToSpace BatchToSpaceND "
        "MatrixBandPart MatrixDiagPartV3 MatrixDiagV3"
    ),
    "resizes": "ResizeNearestNeighbor ResizeBilinear ResizeBicubic",
    "sizes and what is made of them": "Shape ShapeN Size Rank Fill OnesLike ZerosLike Range",
}
PURE_OPS = frozenset((*PLAIN, *" ".join(_PURE_OPS_BY_KIND.values()).split()))
"""Ops that read nothing, write nothing, call nothing and hold no state: the only ones that a stranger's graph
may run here.
"""

_NUMBER_TYPES = (
    "half",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "bool",
)


def read_definition(definition: bytes, outputs: Collection[str]) -> Any:
    """Return the part of a serialised GraphDef that computes `outputs` (ops, or `op:place`), as a GraphDef.

    Control inputs are left out, because ops without effects do not need them. Devices and TensorFlow's own
    attributes (`_class`, `_output_shapes`) are left out too, because they may name ops that are not part of
    it.

    Raises:
        FileError: these bytes are no GraphDef.
        GraphError: an op's name is used twice, or an op does not exist.
        CannotRun: an op is not on `PURE_OPS`, or this processor cannot run it; the op is named.
    """
    tensorflow = import_tensorflow()
    definition_of_all = tensorflow.compat.v1.GraphDef()
    try:
        definition_of_all.ParseFromString(definition)
    except import_module("google.protobuf.message").DecodeError as error:
        raise FileError(f"not a GraphDef: {error}") from None
    nodes: dict[str, Any] = {}
    for node in definition_of_all.node:
        if node.name in nodes:
            raise GraphError("two ops have this name", where=node.name)
        nodes[node.name] = node
    wanted = _ancestors(nodes, [op_name(output) for output in outputs])
    part = tensorflow.compat.v1.GraphDef(
        versions=definition_of_all.versions,
        node=[_without_placement(nodes[name]) for name in nodes if name in wanted],
    )
    _expect_pure(part)
    for node in part.node:
        _expect_numbers(tensorflow, node)
    return part


def op_name(source: str) -> str:
    """Return the name of the op that an entry of NodeDef.input reads: `name` of `name`, `name:1` and
    `^name`.
    """
    return source.removeprefix("^").split(":", 1)[0]


def output_index(source: str) -> int:
    """Return the index of the output that an entry of NodeDef.input reads; 0 where it states none."""
    _, _, index = source.partition(":")
    return int(index) if index.isdecimal() else 0


def _ancestors(nodes: dict[str, Any], outputs: Collection[str]) -> set[str]:
    """Return the names of the outputs and of all nodes that they are computed from. A name that the graph
    lacks is refused.
    """

    def expect_known(names: Collection[str], reader: str) -> Collection[str]:
        """Return the names; refuse one that the graph lacks, in the words of the node `reader` that reads
        it.
        """
        for name in names:
            if name not in nodes:
                raise GraphError(f"reads '{name}', which the graph lacks", where=reader)
        return names

    def inputs(name: str) -> Collection[str]:
        """Return the names of the nodes that a node computes from; `^` marks a control input."""
        sources = [source for source in nodes[name].input if not source.startswith("^")]
        return expect_known([op_name(source) for source in sources], name)

    return upstream(expect_known(outputs, "the outputs"), inputs)


def _expect_pure(graph: Any) -> None:
    """Refuse ops that do more than compute numbers, such as reading files."""
    for node in graph.node:
        if node.op not in PURE_OPS:
            raise CannotRun(
                f"porter does not run the op '{node.op[:60]}'",
                where=node.name,
                next="freeze a graph whose ops only compute numbers",
            )


def _expect_numbers(tensorflow: Any, node: Any) -> None:
    """Refuse an op of texts or of handles of things outside the graph, and an order of axes that needs a
    GPU.
    """
    numbers = {getattr(tensorflow, name).as_datatype_enum for name in _NUMBER_TYPES}
    for key, value in node.attr.items():
        # One type, or a list of them; empty for an attribute that is no type.
        types = [value.type] if value.WhichOneof("value") == "type" else list(value.list.type)
        if not numbers.issuperset(types):
            raise CannotRun(
                f"porter does not run a '{node.op}' whose {key} is not a type of numbers", where=node.name
            )
    if "data_format" in node.attr and node.attr["data_format"].s != b"NHWC":
        layout = node.attr["data_format"].s.decode(errors="replace")[:20]
        raise CannotRun(
            f"TensorFlow does not run '{node.op}' with data_format {layout} on a CPU", where=node.name
        )


def _without_placement(node: Any) -> Any:
    """Return a copy of a NodeDef without control inputs, its device, and TensorFlow's own attributes, such as
    `_class`.
    """
    copy = type(node)(
        name=node.name, op=node.op, input=[source for source in node.input if not source.startswith("^")]
    )
    for key, value in node.attr.items():
        if not key.startswith("_"):
            copy.attr[key].CopyFrom(value)
    return copy

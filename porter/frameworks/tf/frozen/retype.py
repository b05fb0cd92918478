"""A GraphDef in another floating type: its constants, the types of its ops, and norms, which have no kernel
in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import CannotRun, FileError, MappingError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.frozen.definition import op_name, output_index
from porter.frameworks.tf.resizing import resize_map
from porter.frameworks.tf.runtime import keras_do
from porter.graph import ResizeLike

_FUSED_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_NORM_OF_2015 = "BatchNormWithGlobalNormalization"
_RESPONSE_NORM = "LRN"
_RESIZES = ("ResizeBilinear", "ResizeBicubic")


def read_constants(graph: Any, tensors: NamedArrays, max_bytes: int) -> dict[str, Array]:
    """Return the values of a graph's Const ops, by name: those of `tensors`, otherwise the graph's own.

    Args:
        max_bytes: bytes that the graph's own constants may unpack to; a GraphDef may state one number and a
            large shape.

    Raises:
        MappingError: an array has another shape than its constant.
        FileError: the constants are larger than `max_bytes`, or one cannot be read.
    """
    make_ndarray, arrays = import_tensorflow().make_ndarray, {}
    for node in graph.node:
        if node.op != "Const":
            continue
        proto = node.attr["value"].tensor
        shape = tuple(int(dimension.size) for dimension in proto.tensor_shape.dim)
        if node.name in tensors:
            array = tensors[node.name]
            if array.shape != shape:
                raise MappingError(f"expected shape {shape}, got {array.shape}", where=node.name)
        else:
            # 8 bytes a number, the most of any type
            max_bytes -= math.prod(shape) * 8
            if max_bytes < 0 or min(shape, default=0) < 0:
                raise FileError(
                    "the constants of this graph are larger than its file can hold", where=node.name
                )
            try:
                array = make_ndarray(proto)
            except (TypeError, ValueError) as error:
                raise FileError(f"this constant cannot be read: {error}", where=node.name) from None
        arrays[node.name] = array
    return arrays


def in_dtype(
    graph: Any, constants: NamedArrays, dtype: Dtype | None, decimal_epsilons: bool
) -> tuple[Any, dict[str, Array]]:
    """Return `graph` with every floating type replaced by `dtype`, `float32` or `float64` (unchanged where
    that is None), and the arrays to feed it.

    Floating constants become placeholders that are fed, because a GraphDef holds at most 2 GB, and TensorFlow
    would keep several copies of each. TensorNets's ResNeXt-101 (64x4d) needs 1.9 GB of them in float64.

    In float64 a batch norm of inference becomes Sub, Mul, Rsqrt and AddV2, the last under the norm's own
    name: TensorFlow's FusedBatchNorm has kernels only for half, bfloat16 and float inputs
    (core/kernels/fused_batch_norm_op.cc). A BatchNormWithGlobalNormalization becomes these ops in both types,
    because today's TensorFlow refuses it in new graphs (core/ops/nn_ops.cc). An LRN becomes sums of slices in
    float64, and a linear or a cubic resize takes of cells.

    Args:
        constants: values of the Const ops (`read_constants`).
        decimal_epsilons: for a graph made here from code that says 0.001: a GraphDef holds epsilons as
            float32, and in float64 this restores the number in the code. A file's epsilon is the float32 that
            the file stores.

    Raises:
        CannotRun: a batch norm normalises by the batch itself, or an op reads its other outputs.
    """
    tensorflow = import_tensorflow()
    # TensorFlow's numbers for types; unused where the types stay.
    target = 0 if dtype is None else getattr(tensorflow, dtype).as_datatype_enum
    floats = frozenset(
        getattr(tensorflow, name).as_datatype_enum for name in ("half", "bfloat16", "float32", "float64")
    )
    retyped, arrays_to_feed = type(graph)(versions=graph.versions), {}
    fused_norms = {node.name: node for node in graph.node if node.op in _FUSED_NORMS}
    is_double = dtype == "float64"
    for node in graph.node:
        _expect_inference(node, fused_norms)
        if (is_double and node.name in fused_norms) or node.op == _NORM_OF_2015:
            retyped.node.extend(_norm_in_parts(tensorflow, node, target, decimal_epsilons))
        elif is_double and node.op == _RESPONSE_NORM:
            retyped.node.extend(_response_norm_in_parts(tensorflow, node, target))
        elif is_double and node.op in _RESIZES:
            retyped.node.extend(_resize_in_parts(tensorflow, node, target))
        elif node.op != "Const":
            copy = retyped.node.add()
            copy.CopyFrom(node)
            if dtype is None:
                continue
            # Types that the file leaves out are those of the op's default, and are stated now.
            for name in _types_by_default(node.op, floats) - node.attr.keys():
                copy.attr[name].type = target
            _retype(copy, floats, target)
        elif node.attr["dtype"].type in floats:
            kind = tensorflow.as_dtype(node.attr["dtype"].type if dtype is None else target)
            array = arrays_to_feed[node.name] = constants[node.name].astype(kind.as_numpy_dtype, copy=False)
            placeholder = retyped.node.add(name=node.name, op="Placeholder")
            placeholder.attr["dtype"].type = kind.as_datatype_enum
            placeholder.attr["shape"].shape.CopyFrom(tensorflow.TensorShape(array.shape).as_proto())
        else:
            retyped.node.append(_make_constant(tensorflow, node, node.name, constants[node.name]))
    return retyped, arrays_to_feed


def _expect_inference(node: Any, fused: Mapping[str, Any]) -> None:
    """Refuse a fused norm that normalises by its own batch, and a node that reads the batch statistics of
    one, by CannotRun. `fused` has the fused norms by name.
    """
    # The default of is_training is True (core/ops/nn_ops.cc).
    if node.name in fused and ("is_training" not in node.attr or node.attr["is_training"].b):
        raise CannotRun(
            f"this {node.op} normalises by the batch that it sees",
            where=node.name,
            next="freeze it for inference",
        )
    for source in node.input:
        if output_index(source) and op_name(source) in fused:
            raise CannotRun(
                f"reads the batch statistics '{source}'", where=node.name, next="freeze it for inference"
            )


def _norm_in_parts(tensorflow: Any, node: Any, target: int, decimal_epsilons: bool) -> list[Any]:
    """Return the nodes of (x - mean) * (gamma * rsqrt(variance + epsilon)) + beta for a batch norm; the last
    has the norm's own name.

    Args:
        target: TensorFlow's number for the type of the nodes.
        decimal_epsilons: see `in_dtype`.
    """
    if node.op == _NORM_OF_2015:
        x, mean, variance, beta, gamma = node.input
        stored = node.attr["variance_epsilon"].f
        if not node.attr["scale_after_normalization"].b:
            gamma = ""
    else:
        x, gamma, beta, mean, variance = node.input
        # The default (core/ops/nn_ops.cc).
        stored = node.attr["epsilon"].f if "epsilon" in node.attr else 1e-4
    # The shortest decimal of the float32 is the number in the code: 0.001.
    epsilon = float(str(np.float32(stored))) if decimal_epsilons else float(np.float32(stored))

    def part_name(part: str) -> str:
        return f"{node.name}/porter_{part}"

    number_type = tensorflow.as_dtype(target).as_numpy_dtype
    constant = _make_constant(tensorflow, node, part_name("epsilon"), np.array(epsilon, number_type))
    steps: list[tuple[str, ...]] = [
        ("AddV2", part_name("variance"), variance, constant.name),
        ("Rsqrt", part_name("scale"), part_name("variance")),
    ]
    factor = part_name("scale")
    if gamma:
        factor = part_name("scaled_gamma")
        steps.append(("Mul", factor, gamma, part_name("scale")))
    steps += [
        ("Sub", part_name("centred"), x, mean),
        ("Mul", part_name("scaled"), part_name("centred"), factor),
        ("AddV2", node.name, part_name("scaled"), beta),
    ]
    return [constant, *_make_nodes(node, target, steps)]


def _response_norm_in_parts(tensorflow: Any, node: Any, target: int) -> list[Any]:
    """Return the nodes of x * (bias + alpha * sum)^-beta for an LRN, the last under its own name; the sum is
    over the squares of the channels up to `depth_radius` away, as shifted slices of a padded map.
    """

    def part_name(part: str) -> str:
        return f"{node.name}/porter_{part}"

    number_type = tensorflow.as_dtype(target).as_numpy_dtype
    radius = node.attr["depth_radius"].i if "depth_radius" in node.attr else 5
    values = {"alpha": 1.0, "beta": 0.5, "bias": 1.0}
    values = {name: node.attr[name].f if name in node.attr else default for name, default in values.items()}
    constants = {
        part_name(name): np.array(-value if name == "beta" else value, number_type)
        for name, value in values.items()
    }
    constants[part_name("pads")] = np.array([[0, 0], [0, 0], [0, 0], [radius, radius]], np.int32)
    constants[part_name("step")] = np.array([1, 1, 1, 1], np.int32)
    steps = [
        ("Square", part_name("squares"), node.input[0]),
        ("Pad", part_name("padded"), part_name("squares"), part_name("pads")),
    ]
    shifted = []
    for shift in range(2 * radius + 1):
        constants[part_name(f"from_{shift}")] = np.array([0, 0, 0, shift], np.int32)
        constants[part_name(f"to_{shift}")] = np.array([0, 0, 0, shift - 2 * radius], np.int32)
        shifted.append(part_name(f"shifted_{shift}"))
        steps.append(
            (
                "StridedSlice",
                shifted[-1],
                part_name("padded"),
                part_name(f"from_{shift}"),
                part_name(f"to_{shift}"),
                part_name("step"),
            )
        )
    steps += [
        ("AddN", part_name("sum"), *shifted),
        ("Mul", part_name("scaled"), part_name("sum"), part_name("alpha")),
        ("AddV2", part_name("base"), part_name("scaled"), part_name("bias")),
        ("Pow", part_name("power"), part_name("base"), part_name("beta")),
        ("Mul", node.name, node.input[0], part_name("power")),
    ]
    nodes = _make_nodes(node, target, steps)
    for made in nodes:
        if made.op == "AddN":
            made.attr["N"].i = len(shifted)
        elif made.op == "Pad":
            made.attr["Tpaddings"].type = tensorflow.int32.as_datatype_enum
        elif made.op == "StridedSlice":
            made.attr["Index"].type = tensorflow.int32.as_datatype_enum
            # All of the first three axes, and the channels from the shift on; the last shift ends at the last
            # channel.
            made.attr["begin_mask"].i = 0b0111
            made.attr["end_mask"].i = 0b1111 if made.name == shifted[-1] else 0b0111
    return [*(_make_constant(tensorflow, node, name, array) for name, array in constants.items()), *nodes]


def _resize_in_parts(tensorflow: Any, node: Any, target: int) -> list[Any]:
    """Return the nodes of a resize as keras.ops compute it, to the size of a map of ones, the last under its
    own name; TensorFlow's own resizes give float32. The nodes are traced in a graph of their own, whose
    placeholders become the inputs of `node`.
    """
    half_pixel, align_corners = node.attr["half_pixel_centers"].b, node.attr["align_corners"].b
    # With half pixels, TensorFlow's cubic resize is Keys's (a of -0.5), of the cells inside the map only.
    is_keys = half_pixel and node.op == "ResizeBicubic"
    coordinates: Any = "half_pixel" if half_pixel else "asymmetric"
    if align_corners:
        coordinates = "align_corners"
    mode: Any = "linear" if node.op == "ResizeBilinear" else "cubic"
    op = ResizeLike(mode, coordinates, a=-0.5 if is_keys else -0.75, inside=is_keys)
    prefix, v1, kind = f"{node.name}/porter_", tensorflow.compat.v1, tensorflow.as_dtype(target)
    with tensorflow.Graph().as_default() as graph:
        x = v1.placeholder(kind, [None] * 4, f"{prefix}x")
        size = v1.placeholder(tensorflow.int32, [2], f"{prefix}size")
        with v1.name_scope(f"{prefix}parts/"):
            like = tensorflow.ones(tensorflow.concat([[1], size, [1]], 0), kind)
            output = resize_map(x, op, keras_do, "float64", like)
        tensorflow.identity(output, prefix)
    # What the traced nodes read of placeholders, they read of the node's own inputs.
    placeholders = {f"{prefix}x": node.input[0], f"{prefix}size": node.input[1]}
    nodes = []
    for traced in graph.as_graph_def().node:
        if traced.name in placeholders:
            continue
        # The identity at the end is the resize.
        name = node.name if traced.name == prefix else traced.name
        copy = type(node)(name=name, op=traced.op, attr=traced.attr)
        copy.input.extend(placeholders.get(source, source) for source in traced.input)
        nodes.append(copy)
    return nodes


def _make_nodes(node: Any, target: int, steps: Sequence[tuple[str, ...]]) -> list[Any]:
    """Make a NodeDef of the type `target` for each step, which is an op, a name and the names of its inputs.
    `node` is any NodeDef, for its class.
    """
    nodes = []
    for op, name, *inputs in steps:
        made = type(node)(name=name, op=op, input=inputs)
        made.attr["T"].type = target
        nodes.append(made)
    return nodes


def _make_constant(tensorflow: Any, node: Any, name: str, array: Array) -> Any:
    """Make a Const node that holds the array. `node` is any NodeDef, for its class."""
    constant = type(node)(name=name, op="Const")
    value = tensorflow.make_tensor_proto(array)
    constant.attr["dtype"].type = value.dtype
    constant.attr["value"].tensor.CopyFrom(value)
    return constant


@cache
def _types_by_default(op: str, floats: frozenset[int]) -> frozenset[str]:
    """Return the attributes of an op whose default is a floating type: a file may leave them out, as
    SavedModels do with MaxPool's T.
    """
    definition = import_module("tensorflow.python.framework.op_def_registry").get(op)
    attributes = definition.attr if definition is not None else ()
    return frozenset(attribute.name for attribute in attributes if attribute.default_value.type in floats)


def _retype(node: Any, floats: frozenset[int], target: int) -> None:
    """Replace the floating types in a node's attributes, in place, by the type `target`."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "type" and value.type in floats:
            value.type = target
        elif kind == "list":
            for index, number_type in enumerate(value.list.type):
                if number_type in floats:
                    value.list.type[index] = target

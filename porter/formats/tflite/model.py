"""A TensorFlow Lite model's operators, in the order in which they run, and what it stores
(tensorflow/lite/schema/schema.fbs).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Float64Array, NamedArrays
from porter.base.name_tables import by_name
from porter.filegraph.places import Reading
from porter.filegraph.value_names import NodeOutput, take_name
from porter.formats.limits import MOST_NODES, most_bytes
from porter.formats.tflite.flatbuffer import Table, root
from porter.formats.tflite.sparse import fill_dense

IMAGE = "image"
# Fields of the schema's tables, by their places in these.
_MODEL_CODES, _MODEL_GRAPHS, _MODEL_BUFFERS = 1, 2, 4
_GRAPH_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS, _GRAPH_OPERATORS = 0, 1, 2, 3
_TENSOR_SHAPE, _TENSOR_TYPE, _TENSOR_BUFFER, _TENSOR_NAME, _TENSOR_QUANTISATION = 0, 1, 2, 3, 4
_TENSOR_SPARSITY, _TENSOR_SHAPE_SIGNATURE = 6, 7
_OPERATOR_CODE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS, _OPERATOR_OPTIONS = 0, 1, 2, 4
_BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 0, 1, 2
_SCALE, _ZERO_POINT, _QUANTISED_AXIS = 2, 3, 6
_BYTE_CODE, _CUSTOM_CODE, _BUILTIN_CODE = 0, 1, 3
_NUMPY_TYPES = {
    0: "f4",
    1: "f2",
    2: "i4",
    3: "u1",
    4: "i8",
    6: "?",
    7: "i2",
    9: "i1",
    10: "f8",
    12: "u8",
    15: "u4",
    16: "u2",
}
"""The types of numpy by the numbers of the schema's TensorType."""
_QUANTISED = (3, 7, 9, 17, 19, 20)
"""UINT8, INT16, INT8, INT4, INT2 and UINT4 of the schema's TensorType, if they state a scale."""
_OPERATOR_CODES = (
    "ADD",
    "AVERAGE_POOL_2D",
    "CONCATENATION",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "DEPTH_TO_SPACE",
    "DEQUANTIZE",
    "",
    "FLOOR",
    "FULLY_CONNECTED",
    "",
    "L2_NORMALIZATION",
    "L2_POOL_2D",
    "LOCAL_RESPONSE_NORMALIZATION",
    "LOGISTIC",
    "",
    "LSTM",
    "MAX_POOL_2D",
    "MUL",
    "RELU",
    "RELU_N1_TO_1",
    "RELU6",
    "RESHAPE",
    "RESIZE_BILINEAR",
    "RNN",
    "SOFTMAX",
    "SPACE_TO_DEPTH",
    "SVDF",
    "TANH",
    "",
    "",
    "CALL",
    "CUSTOM",
    "",
    "PAD",
    "",
    "GATHER",
    "BATCH_TO_SPACE_ND",
    "SPACE_TO_BATCH_ND",
    "TRANSPOSE",
    "MEAN",
    "SUB",
    "DIV",
    "SQUEEZE",
    "",
    "STRIDED_SLICE",
    "",
    "EXP",
    "TOPK_V2",
    "SPLIT",
    "LOG_SOFTMAX",
    "",
    "",
    "CAST",
    "PRELU",
    "MAXIMUM",
    "ARG_MAX",
    "MINIMUM",
    "LESS",
    "NEG",
    "PADV2",
    "GREATER",
    "GREATER_EQUAL",
    "LESS_EQUAL",
    "SELECT",
    "SLICE",
    "SIN",
    "TRANSPOSE_CONV",
    "",
    "TILE",
    "EXPAND_DIMS",
    "EQUAL",
    "NOT_EQUAL",
    "LOG",
    "SUM",
    "SQRT",
    "RSQRT",
    "SHAPE",
    "POW",
    "ARG_MIN",
    "FAKE_QUANT",
    "REDUCE_PROD",
    "REDUCE_MAX",
    "PACK",
    "LOGICAL_OR",
    "ONE_HOT",
    "LOGICAL_AND",
    "LOGICAL_NOT",
    "UNPACK",
    "REDUCE_MIN",
    "FLOOR_DIV",
    "REDUCE_ANY",
    "SQUARE",
    "ZEROS_LIKE",
    "FILL",
    "FLOOR_MOD",
    "RANGE",
    "RESIZE_NEAREST_NEIGHBOR",
    "LEAKY_RELU",
    "SQUARED_DIFFERENCE",
    "MIRROR_PAD",
    "ABS",
    "SPLIT_V",
    "UNIQUE",
    "CEIL",
    "REVERSE_V2",
    "ADD_N",
    "GATHER_ND",
    "COS",
    "WHERE",
    "RANK",
    "ELU",
    "",
    "",
    "QUANTIZE",
    "",
    "ROUND",
    "HARD_SWISH",
    "IF",
    "WHILE",
    "",
    "",
    "",
    "SELECT_V2",
    "DENSIFY",
    "",
    "BATCH_MATMUL",
    "",
    "CUMSUM",
    "CALL_ONCE",
    "BROADCAST_TO",
)
"""The schema's BuiltinOperator by number, as far as vision models have them."""
_LATER_CODES = {150: "GELU", 152: "RELU_0_TO_1", 158: "SIGN"}
_ACTIVATION_FIELDS = {
    **dict.fromkeys(("ADD", "MUL", "SUB", "DIV", "FULLY_CONNECTED", "L2_NORMALIZATION"), 0),
    "CONCATENATION": 1,
    "CONV_2D": 3,
    "TRANSPOSE_CONV": 3,
    "DEPTHWISE_CONV_2D": 4,
    "AVERAGE_POOL_2D": 5,
    "MAX_POOL_2D": 5,
}
"""Where the options of an operator have its activation."""
_UINT8, _INT8 = 3, 9
_HYBRID = by_name(
    {
        "CONV_2D FULLY_CONNECTED": (_UINT8, _INT8),
        "BATCH_MATMUL DEPTHWISE_CONV_2D TRANSPOSE_CONV": (_INT8,),
    }
)
"""Operators of real numbers that take a kernel of whole numbers as it is stored, of these kinds of the
schema's TensorType. Both are int8 to them, whose zero is 0, whatever the file states: what TensorFlow 1.11 to
1.13 stored as UINT8 is int8. Others read what DEQUANTIZE makes of such a tensor.
"""
_ACTIVATIONS = ("", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
_PARTS_OF_A_LAYER = frozenset(
    {
        "read",
        "weights",
        "depthwise_weights",
        "kernel",
        "depthwise_kernel",
        "filter",
        "convolution",
        "conv2d",
        "depthwise",
        "Conv2D",
        "DepthwiseConv2dNative",
        "MatMul",
        "BiasAdd",
        "ReadVariableOp",
        "conv_transpose",
        "conv2d_transpose",
    }
)


_REAL_TYPE = 0
"""FLOAT32 of the schema's TensorType."""
_MOST_AXES = 8
EXPECTED = "an image is expected, and beside it only real numbers of stated sizes for each image"
_IN_WHOLE_NUMBERS = "a fully quantised graph computes in whole numbers"
_CONVERT_AGAIN = "convert the model again with a current TensorFlow"
_USE_REAL_MODEL = (
    "name the file that it was made from, or convert the model again without a representative dataset"
)


class Unread(Exception):
    """The model is not damaged, but porter does not read it: its arguments are why, and what to do."""


@dataclass(frozen=True)
class Operator(Reading):
    """An operator; an activation that the file states inside another one is one of its own.

    Attributes:
        name: of its layer, or of its first value; unique.
        op: as the schema has it, such as CONV_2D.
        inputs: the values that it reads, or names of stored tensors; none that are left out.
        gives: the file's names of what it gives; unique. None before an activation, which gives the value
            that has the name.
        options: what it states; None if it states nothing.
        inner: what porter calls the value before an activation that the file states inside the operator;
            empty for others.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    gives: tuple[str, ...]
    options: Table | None
    inner: str = ""

    def scalar(self, field: int, kind: str, default: Any = 0) -> Any:
        """Return an option by its place; see porter.formats.tflite.flatbuffer."""
        return default if self.options is None else self.options.scalar(field, kind, default)


@dataclass(frozen=True)
class TfliteModel:
    """A model's first graph.

    Attributes:
        stored: tensors by name; quantised ones as the real numbers that they stand for, in float32.
        rounded: whether some of them were quantised to whole numbers.
        ends: the values at which the graph ends.
        sizes: of the image, which is the first input of four axes; None where they are open.
        further: the sizes of what it takes beside the image, by name, None where they are open.
        problem: why it is no model of one image, in words; None if it is one.
    """

    operators: tuple[Operator, ...]
    stored: NamedArrays
    rounded: bool
    ends: tuple[NodeOutput, ...]
    sizes: tuple[int | None, ...]
    further: Mapping[str, tuple[int | None, ...]]
    problem: str | None = None


def read_model(data: bytes) -> TfliteModel:
    """Read a model's first graph and its tensors.

    Raises:
        ValueError: the file is damaged.
        Unread: porter does not read it.
    """
    file = root(data)
    graph = next(iter(file.tables(_MODEL_GRAPHS, MOST_NODES)), None)
    if graph is None:
        raise ValueError("it has no graph")
    tensors = graph.tables(_GRAPH_TENSORS, MOST_NODES)
    used_names = set[str]()
    names = [
        take_name(tensor.text(_TENSOR_NAME) or "tensor", index, used_names)
        for index, tensor in enumerate(tensors)
    ]
    codes = [_operator_code(code) for code in file.tables(_MODEL_CODES, MOST_NODES)]
    buffers = file.tables(_MODEL_BUFFERS, MOST_NODES)
    stored = _read_stored(data, names, tensors, buffers, _readers_by_tensor(graph, codes))
    inputs = graph.numbers(_GRAPH_INPUTS, "i4").tolist()
    image = _find_image(inputs, tensors)
    further = _name_further_inputs(names, inputs, image)
    # By its index in the file, the value that each tensor is: stored, the image, a further input; then what
    # operators give.
    values: dict[int, NodeOutput] = {index: (name, 0) for index, name in enumerate(names) if name in stored}
    values |= {} if image is None else {image: (IMAGE, 0)}
    values |= {index: (name, 0) for index, name in further.items()}
    reader = _OperatorReader(names, tensors, stored, values, {IMAGE, *stored, *further.values()})
    reader.read_all(graph.tables(_GRAPH_OPERATORS, MOST_NODES), codes)
    _expect_real([tensors[index] for index in inputs])
    sizes = () if image is None else _open_sizes(tensors[image])
    return TfliteModel(
        operators=tuple(reader.operators),
        stored=stored,
        rounded=any(_quantisation(tensors[index]) for index, name in enumerate(names) if name in stored),
        ends=tuple(
            values[index] for index in graph.numbers(_GRAPH_OUTPUTS, "i4").tolist() if index in values
        ),
        sizes=sizes,
        further={name: _open_sizes(tensors[index]) for index, name in further.items()},
        problem=_find_problem(sizes, [tensors[index] for index in further]),
    )


def _find_problem(sizes: Sequence[int | None], further: Sequence[Table]) -> str | None:
    """Return why a model does not take one image of these sizes and such tensors beside it; None if it
    does.
    """
    are_real = all(_type(tensor) == _REAL_TYPE for tensor in further)
    takes_one_image = bool(sizes) and sizes[0] in (None, 1)
    return None if are_real and takes_one_image else EXPECTED


def _read_stored(
    data: bytes,
    names: Sequence[str],
    tensors: Sequence[Table],
    buffers: Sequence[Table],
    readers: Mapping[int, Collection[str]],
) -> dict[str, Array]:
    """Return the tensors that have numbers in the file, by name. Tensors without numbers are values of
    operators or inputs, and are left out.

    Args:
        readers: the operators that read each tensor, by its index.
    """
    arrays = dict[str, Array]()
    budget = most_bytes(len(data))
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        content = _buffer_bytes(data, buffers, tensor.scalar(_TENSOR_BUFFER, "I"))
        if content is None:
            continue
        arrays[name] = array = _read_array(name, tensor, content, budget, readers.get(index, ()))
        # A view of the file takes no further memory.
        is_view = array.base is not None
        budget -= 0 if is_view else array.nbytes
        if budget < 0:
            raise ValueError("its tensors unpack to more than the file can hold")
    return arrays


def _name_further_inputs(names: Sequence[str], inputs: Sequence[int], image: int | None) -> dict[int, str]:
    """Return names for the inputs beside the image, by the indices of their tensors; none of them is another
    tensor's.
    """
    others = [index for index in inputs if index != image]
    used_names = {IMAGE, *(name for index, name in enumerate(names) if index not in others)}
    return {index: take_name(_input_word(names[index]), index, used_names) for index in others}


def _find_image(inputs: Sequence[int], tensors: Sequence[Table]) -> int | None:
    """Return the index of the first input of four axes; None where there is none."""
    return next((index for index in inputs if len(_open_sizes(tensors[index])) == 4), None)


def _expect_real(inputs: Sequence[Table]) -> None:
    """Raise Unread if an input is in whole numbers."""
    if any(_quantisation(tensor) is not None for tensor in inputs):
        raise Unread(f"{_IN_WHOLE_NUMBERS}: its image is in whole numbers", _USE_REAL_MODEL)


@dataclass
class _OperatorReader:
    """Collects the operators of a graph.

    Attributes:
        names: of the tensors.
        stored: the tensors that have numbers.
        values: what operators give so far, by the indices of their tensors.
        used_names: names that no operator gets.
        operators: those so far.
        inner: names that no value before an activation gets.
    """

    names: Sequence[str]
    tensors: Sequence[Table]
    stored: dict[str, Array]
    values: dict[int, NodeOutput]
    used_names: set[str]
    operators: list[Operator] = field(default_factory=list)
    inner: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.inner = {*self.names, *self.used_names}

    def read_all(self, operators: Sequence[Table], codes: Sequence[str]) -> None:
        """Read operators, whose names are among the codes."""
        for operator in operators:
            self.read(operator, codes[operator.scalar(_OPERATOR_CODE, "I")])

    def read(self, operator: Table, op: str) -> None:
        """Read an operator, whose inputs have been read before. One that only unpacks a stored tensor stands
        for that tensor; one with an activation inside becomes two. Raise Unread for one that computes in
        whole numbers.
        """
        outputs = operator.numbers(_OPERATOR_OUTPUTS, "i4").tolist()
        sources = [index for index in operator.numbers(_OPERATOR_INPUTS, "i4").tolist() if index >= 0]
        inputs = tuple(self._source(index, op) for index in sources)
        if op in ("DEQUANTIZE", "DENSIFY") and inputs[0][0] in self.stored:
            self.values[outputs[0]] = inputs[0]  # its numbers are real and all there already
            return
        quantised = next((index for index in outputs if _quantisation(self.tensors[index]) is not None), None)
        if quantised is not None:
            message = f"'{self.names[quantised]}', which {op} gives, is in whole numbers"
            raise Unread(f"{_IN_WHOLE_NUMBERS}: {message}", _USE_REAL_MODEL)
        name = take_name(_layer_name(self.names, sources, outputs, op), len(self.operators), self.used_names)
        options = operator.table(_OPERATOR_OPTIONS)
        names = tuple(self.names[index] for index in outputs)
        if activation := _inner_activation(op, options):
            inner = take_name(f"{name}:linear", len(self.operators), self.inner)
            self.operators.append(Operator(name, op, inputs, (), options, inner))
            inputs = ((name, 0),)
            name, op, options = f"{name}:{activation.lower()}", activation, None
        self.operators.append(Operator(name, op, inputs, names, options))
        self.values |= {output: (name, index) for index, output in enumerate(outputs)}

    def _source(self, index: int, op: str) -> NodeOutput:
        """Return a value that an operator reads, or a tensor that is stored without numbers, as the shape of
        a scalar is. Raise ValueError if nothing before the operator gives it.
        """
        name, tensor = self.names[index], self.tensors[index]
        if index not in self.values and 0 in tensor.numbers(_TENSOR_SHAPE, "i4"):
            self.stored[name] = _read_array(name, tensor, np.zeros(0, np.uint8), 0)
            self.values[index] = name, 0
        if index not in self.values:
            raise ValueError(f"{op} reads '{name}', which no operator before it gives")
        return self.values[index]


def _inner_activation(op: str, options: Table | None) -> str:
    """Return the activation that an operator states inside it; empty if it states none."""
    field = _ACTIVATION_FIELDS.get(op)
    if options is None or field is None:
        return ""
    return _ACTIVATIONS[options.scalar(field, "b")]


def _type(tensor: Table) -> int:
    """Return the number of a tensor's type in the schema."""
    number: int = tensor.scalar(_TENSOR_TYPE, "b")
    return number


def _buffer_bytes(data: bytes, buffers: Sequence[Table], index: int) -> Array | None:
    """Return the bytes of a buffer, which stand behind the tables in files above 2 GiB; None for an empty
    one.
    """
    buffer = buffers[index]
    start, size = buffer.scalar(_BUFFER_OFFSET, "Q"), buffer.scalar(_BUFFER_SIZE, "Q")
    is_behind_tables = start > 1  # 0 and 1 say that it is not
    if is_behind_tables and start + size <= len(data):
        return np.frombuffer(data, np.uint8, size, start)
    content = buffer.numbers(_BUFFER_DATA, "u1")
    return content if content.size else None


def _readers_by_tensor(graph: Table, codes: Sequence[str]) -> dict[int, set[str]]:
    """Return the names of the operators that read each tensor, by the tensor's index; none for a tensor that
    nothing reads.
    """
    readers = dict[int, set[str]]()
    for operator in graph.tables(_GRAPH_OPERATORS, MOST_NODES):
        for index in operator.numbers(_OPERATOR_INPUTS, "i4").tolist():
            readers.setdefault(index, set()).add(codes[operator.scalar(_OPERATOR_CODE, "I")])
    return readers


def _read_array(
    name: str, tensor: Table, content: Array, byte_limit: int, readers: Collection[str] = ()
) -> Array:
    """Return a stored tensor; real numbers of a type of half the width, and quantised ones, become float32.

    Args:
        byte_limit: the bytes that a sparse one may become.
        readers: the operators that read it.
    """
    dtype = _NUMPY_TYPES.get(_type(tensor))
    if dtype is None:
        message = (
            f"the tensor '{name}' has the type {_type(tensor)} of the schema, which porter does not read"
        )
        raise Unread(message, "convert the model again with weights of float32 or float16")
    array = _stored_numbers(name, tensor, content, np.dtype(dtype).newbyteorder("<"), byte_limit)
    quantisation = _quantisation(tensor)
    if quantisation is None:
        return array.astype(np.float32) if dtype == "f2" else array
    scale, zero, axis = quantisation
    cells = array.shape[axis] if axis < array.ndim else 1
    if scale.size not in (1, cells) or zero.size not in (0, 1, scale.size):
        raise ValueError(f"the tensor '{name}' has {scale.size} scales along an axis of other cells")
    # Operators that take real values with a quantised kernel read its bytes as signed, and no zero points.
    if not _HYBRID.keys().isdisjoint(readers):
        _expect_hybrid(name, tensor, scale.size, zero, readers)
        array = array.view("i1")
        zero = zero[:0]
    along_axis = [1] * array.ndim
    if scale.size > 1:
        along_axis[axis] = -1
    shift: Float64Array | int = 0
    if zero.size:
        shift = zero.astype(np.float64).reshape(along_axis if zero.size > 1 else -1)
    shifted = array.astype(np.float64) - shift
    return (shifted * scale.astype(np.float64).reshape(along_axis)).astype(np.float32)


def _stored_numbers(name: str, tensor: Table, content: Array, dtype: np.dtype[Any], byte_limit: int) -> Array:
    """Return a tensor's numbers in the type that the file has them in; sparse ones are filled up with zeros.
    Raise ValueError if they are not as many as the shape says.

    Args:
        dtype: of a number in the file.
        byte_limit: the bytes that a sparse tensor may become.
    """
    shape = tuple(int(size) for size in tensor.numbers(_TENSOR_SHAPE, "i4"))
    sparsity = tensor.table(_TENSOR_SPARSITY)
    cells = math.prod(shape)
    fits = sparsity is not None or cells * dtype.itemsize == content.size
    if len(shape) > _MOST_AXES or min(shape, default=0) < 0 or not fits:
        raise ValueError(
            f"the tensor '{name}' has {content.size} bytes, not those of "
            f"{'x'.join(map(str, shape)) or 'one number'}"
        )
    if sparsity is None:
        return content.view(dtype).reshape(shape)
    float32_bytes = cells * 4
    if float32_bytes > byte_limit or content.size % dtype.itemsize:
        raise ValueError(f"the sparse tensor '{name}' is larger than the file can hold")
    return fill_dense(content.view(dtype), shape, sparsity)


def _expect_hybrid(name: str, tensor: Table, scales: int, zero: Array, readers: Collection[str]) -> None:
    """Raise Unread for a quantised kernel that TensorFlow Lite's operators of real numbers do not take as
    stored, and for one that its readers take for different numbers.

    Args:
        scales: how many the kernel has.
        readers: the operators that read it.
    """
    kind = _type(tensor)
    channels = int(tensor.numbers(_TENSOR_SHAPE, "i4")[-1])
    unsuited = next((op for op in sorted(readers) if kind not in _HYBRID.get(op, (kind,))), None)
    problem = ""
    if unsuited is not None:
        problem = f"which TensorFlow Lite's {unsuited} does not take beside real numbers"
    elif kind == _UINT8 and "CONV_2D" in readers and scales > 1:
        problem = f"with {scales} scales, of which TensorFlow Lite's CONV_2D takes the first"
    elif "DEPTHWISE_CONV_2D" in readers and scales < channels:
        problem = f"and TensorFlow Lite's DEPTHWISE_CONV_2D takes {channels} scales of it, not {scales}"
    elif (kind == _UINT8 or zero.any()) and not _HYBRID.keys() >= {*readers}:
        problem = f"which {' and '.join(sorted(readers))} take for other numbers each"
    if problem:
        raise Unread(f"the kernel '{name}' is of whole numbers, {problem}", _CONVERT_AGAIN)


def _quantisation(tensor: Table) -> tuple[Array, Array, int] | None:
    """Return the scales and zero points of a quantised tensor, and the axis that they are along; None for a
    tensor that is not quantised.
    """
    table = tensor.table(_TENSOR_QUANTISATION) if _type(tensor) in _QUANTISED else None
    if table is None:
        return None
    scale = table.numbers(_SCALE, "f4")
    if not scale.size:
        return None
    return scale, table.numbers(_ZERO_POINT, "i8"), abs(table.scalar(_QUANTISED_AXIS, "i"))


def _operator_code(code: Table) -> str:
    """Return an operator's name. Numbers above 127 have a field of their own, because the first one is a
    byte.
    """
    number = max(code.scalar(_BYTE_CODE, "b"), code.scalar(_BUILTIN_CODE, "i"))
    name = _LATER_CODES.get(number, "")
    if 0 <= number < len(_OPERATOR_CODES):
        name = _OPERATOR_CODES[number]
    if name == "CUSTOM":
        return f"custom operator {code.text(_CUSTOM_CODE)}"
    return name or f"operator {number}"


def _layer_name(names: Sequence[str], sources: Sequence[int], outputs: Sequence[int], op: str) -> str:
    """Return a name for an operator: `block1/conv` where its kernel is `block1/conv/Conv2D`, otherwise that
    of what it gives. The converter joins the names of what it fuses by `;`, and a kernel has that of its
    layer.

    Args:
        names: of all tensors.
        sources, outputs: the indices of those that the operator reads and gives.
    """
    if op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") and len(sources) > 1:
        kernel = names[sources[1]]
        # The last of the joined names that stands in a scope.
        parts = [part for part in kernel.split(";") if not part or "/" in part]
        words = (parts[-1] if parts else "").split("/")
        # What stands behind the layer's name is a part of it, such as `Conv2D` or `kernel`.
        while len(words) > 1 and not _PARTS_OF_A_LAYER.isdisjoint(
            (words[-1], words[-1].rstrip("0123456789"))
        ):
            words.pop()
        if any(words):
            return "/".join(words)
    return names[outputs[0]].split(";")[0] or op


def _input_word(name: str) -> str:
    """Return the name of an input as its function has it: the converter writes `serving_default_left:0` for
    `left`.
    """
    return name.removeprefix("serving_default_").removesuffix(":0")


def _open_sizes(tensor: Table) -> tuple[int | None, ...]:
    """Return a tensor's sizes, None where they are open, which is -1 in its signature."""
    shape, signature = tensor.numbers(_TENSOR_SHAPE, "i4"), tensor.numbers(_TENSOR_SHAPE_SIGNATURE, "i4")
    sizes = signature if signature.size == shape.size else shape
    return tuple(int(size) if size > 0 else None for size in sizes)

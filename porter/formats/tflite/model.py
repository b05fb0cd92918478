"""A TensorFlow Lite model's operators, in the order in which they run, and what it stores
(tensorflow/lite/schema/schema.fbs).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.name_tables import by_name
from porter.filegraph.kernels.program import NodeOutput, take_name
from porter.filegraph.places import Reading
from porter.formats.limits import MOST_NODES, most_bytes
from porter.formats.tflite.flatbuffer import Table, root
from porter.formats.tflite.sparse import dense

IMAGE = "image"
_TYPES = {
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
_QUANTISED = (3, 7, 9, 17, 19, 20)
"""UINT8, INT16, INT8, INT4, INT2 and UINT4 of the schema's TensorType, if they state a scale."""
_CODES = (
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
_LATER = {150: "GELU", 152: "RELU_0_TO_1", 158: "SIGN"}
_ACTIVATED = {
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
EXPECTED = "an image is expected, and beside it only real numbers of stated sizes for each image"
_WHOLE = "a fully quantised graph computes in whole numbers"
_AGAIN = "convert the model again with a current TensorFlow"
_REAL = "name the file that it was made from, or convert the model again without a representative dataset"


class Unread(Exception):
    """The model is not damaged, but porter does not read it: why, and what to do."""


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
        """An option by its place; see porter.formats.tflite.flatbuffer."""
        return default if self.options is None else self.options.scalar(field, kind, default)


@dataclass(frozen=True)
class TfliteModel:
    """A model's first graph.

    Attributes:
        stored: tensors by name; quantised ones as the real numbers that they stand for, in float32.
        rounded: whether some of them were quantised to whole numbers.
        ends: the values that it gives.
        sides: of the image, which is the first input of four axes; None where they are open.
        beside: the sizes of what it takes beside the image, by name, None where they are open.
        problem: why it is none of one image.
    """

    operators: tuple[Operator, ...]
    stored: NamedArrays
    rounded: bool
    ends: tuple[NodeOutput, ...]
    sides: tuple[int | None, ...]
    beside: Mapping[str, tuple[int | None, ...]]
    problem: str | None = None


def read_model(data: bytes) -> TfliteModel:
    """Raises ValueError where the file is damaged, and Unread."""
    file = root(data)
    graph = next(iter(file.tables(2, MOST_NODES)), None)
    if graph is None:
        raise ValueError("it has no graph")
    tensors = graph.tables(0, MOST_NODES)
    taken = set[str]()
    names = [take_name(tensor.text(3) or "tensor", index, taken) for index, tensor in enumerate(tensors)]
    codes = [_code(code) for code in file.tables(1, MOST_NODES)]
    stored = _stored(data, names, tensors, file.tables(4, MOST_NODES), _readers(graph, codes))
    inputs = graph.numbers(1, "i4").tolist()
    image = _image(inputs, tensors)
    beside = _beside(names, inputs, image)
    outputs_by_index: dict[int, NodeOutput] = {
        index: (name, 0) for index, name in enumerate(names) if name in stored
    }
    outputs_by_index |= {} if image is None else {image: (IMAGE, 0)}
    outputs_by_index |= {index: (name, 0) for index, name in beside.items()}
    reader = _Operators(names, tensors, stored, outputs_by_index, {IMAGE, *stored, *beside.values()})
    reader.read_all(graph.tables(3, MOST_NODES), codes)
    _expect_real([tensors[index] for index in inputs])
    sides = () if image is None else _sides(tensors[image])
    return TfliteModel(
        operators=tuple(reader.operators),
        stored=stored,
        rounded=any(_scales(tensors[index]) for index, name in enumerate(names) if name in stored),
        ends=tuple(
            outputs_by_index[index] for index in graph.numbers(2, "i4").tolist() if index in outputs_by_index
        ),
        sides=sides,
        beside={name: _sides(tensors[index]) for index, name in beside.items()},
        problem=_problem(sides, [tensors[index] for index in beside]),
    )


def _problem(sides: Sequence[int | None], beside: Sequence[Table]) -> str | None:
    """Why a model is none of one image with these sides and of such tensors beside it."""
    real = all(_type(tensor) == _REAL_TYPE for tensor in beside)
    return None if real and sides and sides[0] in (None, 1) else EXPECTED


def _stored(
    data: bytes,
    names: Sequence[str],
    tensors: Sequence[Table],
    buffers: Sequence[Table],
    readers: Mapping[int, Collection[str]],
) -> dict[str, Array]:
    """The tensors that have numbers in the file, by name."""
    arrays = dict[str, Array]()
    budget = most_bytes(len(data))
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        content = _content(data, buffers, tensor.scalar(2, "I"))
        if content is None:
            continue
        arrays[name] = array = _array(name, tensor, content, budget, readers.get(index, ()))
        budget -= array.nbytes if array.base is None else 0
        if budget < 0:
            raise ValueError("its tensors unpack to more than the file can hold")
    return arrays


def _beside(names: Sequence[str], inputs: Sequence[int], image: int | None) -> dict[int, str]:
    """What inputs beside the image are called."""
    others = [index for index in inputs if index != image]
    taken = {IMAGE, *(name for index, name in enumerate(names) if index not in others)}
    return {index: take_name(_word(names[index]), index, taken) for index in others}


def _image(inputs: Sequence[int], tensors: Sequence[Table]) -> int | None:
    """The first input of four axes."""
    return next((index for index in inputs if len(_sides(tensors[index])) == 4), None)


def _expect_real(inputs: Sequence[Table]) -> None:
    if any(_scales(tensor) is not None for tensor in inputs):
        raise Unread(f"{_WHOLE}: its image is in whole numbers", _REAL)


@dataclass
class _Operators:
    """The operators so far.

    Attributes:
        names: of the tensors.
        stored: the tensors that have numbers.
        values: what operators give so far, by the indices of their tensors.
        taken: names that no operator gets.
    """

    names: Sequence[str]
    tensors: Sequence[Table]
    stored: dict[str, Array]
    values: dict[int, NodeOutput]
    taken: set[str]
    operators: list[Operator] = field(default_factory=list)
    inner: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.inner = {*self.names, *self.taken}

    def read_all(self, operators: Sequence[Table], codes: Sequence[str]) -> None:
        """Reads operators, whose names are among the codes."""
        for each in operators:
            self.read(each, codes[each.scalar(0, "I")])

    def read(self, operator: Table, op: str) -> None:
        """Reads an operator, after those that it reads."""
        gives = operator.numbers(2, "i4").tolist()
        sources = [index for index in operator.numbers(1, "i4").tolist() if index >= 0]
        inputs = tuple(self._source(index, op) for index in sources)
        if op in ("DEQUANTIZE", "DENSIFY") and inputs[0][0] in self.stored:
            self.values[gives[0]] = inputs[0]  # its numbers are real and all there already
            return
        whole = next((index for index in gives if _scales(self.tensors[index]) is not None), None)
        if whole is not None:
            raise Unread(f"{_WHOLE}: '{self.names[whole]}', which {op} gives, is in whole numbers", _REAL)
        name = take_name(_title(self.names, sources, gives, op), len(self.operators), self.taken)
        options = operator.table(4)
        names = tuple(self.names[index] for index in gives)
        if activation := _activation(op, options):
            inner = take_name(f"{name}:linear", len(self.operators), self.inner)
            self.operators.append(Operator(name, op, inputs, (), options, inner))
            name, op, inputs, options = f"{name}:{activation.lower()}", activation, ((name, 0),), None
        self.operators.append(Operator(name, op, inputs, names, options))
        self.values |= {given: (name, index) for index, given in enumerate(gives)}

    def _source(self, index: int, op: str) -> NodeOutput:
        """A value that an operator reads, or a tensor that is stored without numbers, as the shape of a
        scalar is.
        """
        name, tensor = self.names[index], self.tensors[index]
        if index not in self.values and 0 in tensor.numbers(0, "i4"):
            self.stored[name] = _array(name, tensor, np.zeros(0, np.uint8), 0)
            self.values[index] = name, 0
        if index not in self.values:
            raise ValueError(f"{op} reads '{name}', which no operator before it gives")
        return self.values[index]


def _activation(op: str, options: Table | None) -> str:
    """The activation that an operator states inside it; none is empty."""
    number = _ACTIVATED.get(op)
    return "" if options is None or number is None else _ACTIVATIONS[options.scalar(number, "b")]


def _type(tensor: Table) -> int:
    """The number of a tensor's type in the schema."""
    number: int = tensor.scalar(1, "b")
    return number


def _content(data: bytes, buffers: Sequence[Table], index: int) -> Array | None:
    """The bytes of a buffer, which stand behind the tables in files above 2 GiB; None for an empty one."""
    buffer = buffers[index]
    start, size = buffer.scalar(1, "Q"), buffer.scalar(2, "Q")
    if start > 1 and start + size <= len(data):
        return np.frombuffer(data, np.uint8, size, start)
    content = buffer.numbers(0, "u1")
    return content if content.size else None


def _readers(graph: Table, codes: Sequence[str]) -> dict[int, set[str]]:
    """The operators that read each tensor, by its place."""
    readers = dict[int, set[str]]()
    for operator in graph.tables(3, MOST_NODES):
        for index in operator.numbers(1, "i4").tolist():
            readers.setdefault(index, set()).add(codes[operator.scalar(0, "I")])
    return readers


def _array(name: str, tensor: Table, content: Array, most: int, readers: Collection[str] = ()) -> Array:
    """A stored tensor; real numbers of a type of half the width, and quantised ones, are float32.

    Args:
        most: the bytes that a sparse one may become.
        readers: the operators that read it.
    """
    kind = _TYPES.get(_type(tensor))
    if kind is None:
        message = (
            f"the tensor '{name}' has the type {_type(tensor)} of the schema, which porter does not read"
        )
        raise Unread(message, "convert the model again with weights of float32 or float16")
    array = _as_stored(name, tensor, content, np.dtype(kind).newbyteorder("<"), most)
    scales = _scales(tensor)
    if scales is None:
        return array.astype(np.float32) if kind == "f2" else array
    scale, zero, axis = scales
    cells = array.shape[axis] if axis < array.ndim else 1
    if scale.size not in (1, cells) or zero.size not in (0, 1, scale.size):
        raise ValueError(f"the tensor '{name}' has {scale.size} scales along an axis of other cells")
    if not _HYBRID.keys().isdisjoint(readers):
        _expect_hybrid(name, tensor, scale.size, zero, readers)
        array = array.view("i1")
        zero = zero[:0]
    along = [1] * array.ndim
    if scale.size > 1:
        along[axis] = -1
    shift = zero.astype(np.float64).reshape(along if zero.size > 1 else -1) if zero.size else 0
    apart = array.astype(np.float64) - shift
    return (apart * scale.astype(np.float64).reshape(along)).astype(np.float32)


def _as_stored(name: str, tensor: Table, content: Array, kind: np.dtype[Any], most: int) -> Array:
    """A tensor's numbers of the kind that the file has them in; `most` is as in `_array`."""
    shape = tuple(int(size) for size in tensor.numbers(0, "i4"))
    sparse = tensor.table(6)
    cells = math.prod(shape)
    whole = sparse is not None or cells * kind.itemsize == content.size
    if len(shape) > 8 or min(shape, default=0) < 0 or not whole:
        raise ValueError(
            f"the tensor '{name}' has {content.size} bytes, not those of "
            f"{'x'.join(map(str, shape)) or 'one number'}"
        )
    if sparse is None:
        return content.view(kind).reshape(shape)
    if cells * 4 > most or content.size % kind.itemsize:
        raise ValueError(f"the sparse tensor '{name}' is larger than the file can hold")
    return dense(content.view(kind), shape, sparse)


def _expect_hybrid(name: str, tensor: Table, scales: int, zero: Array, readers: Collection[str]) -> None:
    """Expects that a quantised kernel is one that TensorFlow Lite's operators of real numbers take as stored,
    and that what reads it reads the same.
    """
    kind = _type(tensor)
    channels = int(tensor.numbers(0, "i4")[-1])
    other = next((op for op in sorted(readers) if kind not in _HYBRID.get(op, (kind,))), None)
    problem = ""
    if other is not None:
        problem = f"which TensorFlow Lite's {other} does not take beside real numbers"
    elif kind == _UINT8 and "CONV_2D" in readers and scales > 1:
        problem = f"with {scales} scales, of which TensorFlow Lite's CONV_2D takes the first"
    elif "DEPTHWISE_CONV_2D" in readers and scales < channels:
        problem = f"and TensorFlow Lite's DEPTHWISE_CONV_2D takes {channels} scales of it, not {scales}"
    elif (kind == _UINT8 or zero.any()) and not _HYBRID.keys() >= {*readers}:
        problem = f"which {' and '.join(sorted(readers))} take for other numbers each"
    if problem:
        raise Unread(f"the kernel '{name}' is of whole numbers, {problem}", _AGAIN)


def _scales(tensor: Table) -> tuple[Array, Array, int] | None:
    """The scales and zeros of a quantised tensor, and the axis that they are along."""
    quantisation = tensor.table(4) if _type(tensor) in _QUANTISED else None
    scale = None if quantisation is None else quantisation.numbers(2, "f4")
    if quantisation is None or scale is None or not scale.size:
        return None
    return scale, quantisation.numbers(3, "i8"), abs(quantisation.scalar(6, "i"))


def _code(code: Table) -> str:
    """An operator's name. Numbers above 127 have a field of their own, because the first one is a byte."""
    number = max(code.scalar(0, "b"), code.scalar(3, "i"))
    name = _LATER.get(number) or (_CODES[number] if 0 <= number < len(_CODES) else "") or f"operator {number}"
    return f"custom operator {code.text(1)}" if name == "CUSTOM" else name


def _title(names: Sequence[str], sources: Sequence[int], gives: Sequence[int], op: str) -> str:
    """What to call an operator. The converter joins the names of what it fuses by `;`, and a kernel has that
    of its layer.
    """
    if op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") and len(sources) > 1:
        *parts, last = (part for part in ("", *names[sources[1]].split(";")) if not part or "/" in part)
        words = (last or next(iter(parts), "")).split("/")
        while len(words) > 1 and (
            words[-1] in _PARTS_OF_A_LAYER or words[-1].rstrip("0123456789") in _PARTS_OF_A_LAYER
        ):
            words.pop()
        if any(words):
            return "/".join(words)
    return names[gives[0]].split(";")[0] or op


def _word(name: str) -> str:
    """The name of an input as its function has it: the converter writes `serving_default_left:0` for
    `left`.
    """
    return name.removeprefix("serving_default_").removesuffix(":0")


def _sides(tensor: Table) -> tuple[int | None, ...]:
    """A tensor's sizes; those that are open are -1 in its signature."""
    shape, signature = tensor.numbers(0, "i4"), tensor.numbers(7, "i4")
    return tuple(
        int(size) if size > 0 else None for size in (signature if signature.size == shape.size else shape)
    )

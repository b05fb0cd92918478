"""A TensorFlow Lite model's operators, in the order in which they run, and what it stores
(tensorflow/lite/schema/schema.fbs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.filegraph.places import Reading
from porter.filegraph.value_names import NodeOutput, take_name
from porter.formats.limits import MOST_NODES
from porter.formats.tflite import schema
from porter.formats.tflite.flatbuffer import Field, Table, root
from porter.formats.tflite.tensors import (
    Unread,
    open_sizes,
    quantisation_of,
    read_array,
    read_stored,
    type_of,
)

IMAGE = "image"
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


EXPECTED = "an image is expected, and beside it only real numbers of stated sizes for each image"
_IN_WHOLE_NUMBERS = "a fully quantised graph computes in whole numbers"
_USE_REAL_MODEL = (
    "name the file that it was made from, or convert the model again without a representative dataset"
)


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

    def option(self, field: Field) -> Any:
        """Return one of the options of porter.formats.tflite.schema."""
        return field.default if self.options is None else self.options.scalar(field)

    def pair(self, fields: tuple[Field, Field]) -> tuple[int, int]:
        rows, columns = fields
        return self.option(rows), self.option(columns)

    @property
    def padding(self) -> str:
        """How its window pads: SAME or VALID. Raise ValueError for what the schema lacks."""
        return _name_in_schema(self.op, "padding", self.option(schema.PADDING), schema.PADDINGS)

    @property
    def stated_numbers(self) -> list[int]:
        """The sizes of a RESHAPE, or the places of a SQUEEZE, from its options."""
        return [] if self.options is None else self.options.numbers(schema.STATED_NUMBERS).tolist()


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
    graph = next(iter(file.tables(schema.MODEL_GRAPHS, MOST_NODES)), None)
    if graph is None:
        raise ValueError("it has no graph")
    tensors = graph.tables(schema.GRAPH_TENSORS, MOST_NODES)
    used_names = set[str]()
    names = [
        take_name(tensor.text(schema.TENSOR_NAME) or "tensor", index, used_names)
        for index, tensor in enumerate(tensors)
    ]
    codes = [_operator_code(code) for code in file.tables(schema.MODEL_CODES, MOST_NODES)]
    buffers = file.tables(schema.MODEL_BUFFERS, MOST_NODES)
    stored = read_stored(data, names, tensors, buffers, _readers_by_tensor(graph, codes))
    inputs = graph.numbers(schema.GRAPH_INPUTS).tolist()
    image = _find_image(inputs, tensors)
    further = _name_further_inputs(names, inputs, image)
    # By its index in the file, the value that each tensor is: stored, the image, a further input; then what
    # operators give.
    values: dict[int, NodeOutput] = {index: (name, 0) for index, name in enumerate(names) if name in stored}
    values |= {} if image is None else {image: (IMAGE, 0)}
    values |= {index: (name, 0) for index, name in further.items()}
    reader = _OperatorReader(names, tensors, stored, values, {IMAGE, *stored, *further.values()})
    reader.read_all(graph.tables(schema.GRAPH_OPERATORS, MOST_NODES), codes)
    _expect_real([tensors[index] for index in inputs])
    sizes = () if image is None else open_sizes(tensors[image])
    return TfliteModel(
        operators=tuple(reader.operators),
        stored=stored,
        rounded=any(quantisation_of(tensors[index]) for index, name in enumerate(names) if name in stored),
        ends=tuple(
            values[index] for index in graph.numbers(schema.GRAPH_OUTPUTS).tolist() if index in values
        ),
        sizes=sizes,
        further={name: open_sizes(tensors[index]) for index, name in further.items()},
        problem=_find_problem(sizes, [tensors[index] for index in further]),
    )


def _find_problem(sizes: Sequence[int | None], further: Sequence[Table]) -> str | None:
    """Return why a model does not take one image of these sizes and such tensors beside it; None if it
    does.
    """
    are_real = all(type_of(tensor) == schema.FLOAT32 for tensor in further)
    takes_one_image = bool(sizes) and sizes[0] in (None, 1)
    return None if are_real and takes_one_image else EXPECTED


def _name_further_inputs(names: Sequence[str], inputs: Sequence[int], image: int | None) -> dict[int, str]:
    """Return names for the inputs beside the image, by the indices of their tensors; none of them is another
    tensor's.
    """
    others = [index for index in inputs if index != image]
    used_names = {IMAGE, *(name for index, name in enumerate(names) if index not in others)}
    return {index: take_name(_input_word(names[index]), index, used_names) for index in others}


def _find_image(inputs: Sequence[int], tensors: Sequence[Table]) -> int | None:
    """Return the index of the first input of four axes; None where there is none."""
    return next((index for index in inputs if len(open_sizes(tensors[index])) == 4), None)


def _expect_real(inputs: Sequence[Table]) -> None:
    """Raise Unread if an input is in whole numbers."""
    if any(quantisation_of(tensor) is not None for tensor in inputs):
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
            self.read(operator, codes[operator.scalar(schema.OPERATOR_CODE)])

    def read(self, operator: Table, op: str) -> None:
        """Read an operator, whose inputs have been read before. One that only unpacks a stored tensor stands
        for that tensor; one with an activation inside becomes two. Raise Unread for one that computes in
        whole numbers.
        """
        outputs = operator.numbers(schema.OPERATOR_OUTPUTS).tolist()
        sources = [index for index in operator.numbers(schema.OPERATOR_INPUTS).tolist() if index >= 0]
        inputs = tuple(self._source(index, op) for index in sources)
        if op in ("DEQUANTIZE", "DENSIFY") and inputs[0][0] in self.stored:
            self.values[outputs[0]] = inputs[0]  # its numbers are real and all there already
            return
        quantised = next(
            (index for index in outputs if quantisation_of(self.tensors[index]) is not None), None
        )
        if quantised is not None:
            message = f"'{self.names[quantised]}', which {op} gives, is in whole numbers"
            raise Unread(f"{_IN_WHOLE_NUMBERS}: {message}", _USE_REAL_MODEL)
        name = take_name(_layer_name(self.names, sources, outputs, op), len(self.operators), self.used_names)
        options = operator.table(schema.OPERATOR_OPTIONS)
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
        if index not in self.values and 0 in tensor.numbers(schema.TENSOR_SHAPE):
            self.stored[name] = read_array(name, tensor, np.zeros(0, np.uint8), 0)
            self.values[index] = name, 0
        if index not in self.values:
            raise ValueError(f"{op} reads '{name}', which no operator before it gives")
        return self.values[index]


def _inner_activation(op: str, options: Table | None) -> str:
    """Return the activation that an operator states inside it; empty if it states none. Raise ValueError for
    what the schema lacks.
    """
    field = schema.ACTIVATION_FIELDS.get(op)
    if options is None or field is None:
        return ""
    return _name_in_schema(op, "activation", options.scalar(field), schema.ACTIVATIONS)


def _name_in_schema(op: str, option: str, number: int, names: Mapping[int, str]) -> str:
    """Return the name of a number that an operator states; raise ValueError if the schema has none for it."""
    if number not in names:
        raise ValueError(f"{op} states {option} {number}, which TensorFlow Lite's schema lacks")
    return names[number]


def _readers_by_tensor(graph: Table, codes: Sequence[str]) -> dict[int, set[str]]:
    """Return the names of the operators that read each tensor, by the tensor's index; none for a tensor that
    nothing reads.
    """
    readers = dict[int, set[str]]()
    for operator in graph.tables(schema.GRAPH_OPERATORS, MOST_NODES):
        for index in operator.numbers(schema.OPERATOR_INPUTS).tolist():
            readers.setdefault(index, set()).add(codes[operator.scalar(schema.OPERATOR_CODE)])
    return readers


def _operator_code(code: Table) -> str:
    """Return an operator's name. Numbers above 127 have a field of their own, because the first one is a
    byte.
    """
    number = max(code.scalar(schema.BYTE_CODE), code.scalar(schema.BUILTIN_CODE))
    name = schema.OPERATOR_CODES.get(number, f"operator {number}")
    return f"custom operator {code.text(schema.CUSTOM_CODE)}" if name == "CUSTOM" else name


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

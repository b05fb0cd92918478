"""Reads TensorFlow Lite's models: their tensors, and their operators as porter's ops. They are parsed, never run."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import is_floating
from porter.base.errors import FileError
from porter.filegraph import moves
from porter.filegraph.arithmetic import Product, combine, dense, negative, slopes, square
from porter.filegraph.array_products import matmul
from porter.filegraph.builder import Value
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Evaluator, Tensor
from porter.filegraph.file_graph import FileGraph, Stored, completed
from porter.filegraph.layouts import View
from porter.filegraph.names import expect_values
from porter.filegraph.tensorflow import MASKS, cut_off, nearest_or_linear, sliced, strided
from porter.filegraph.walk import Image, Read, Reader, Walk, always, begin, by_numbers, read_nodes, unary
from porter.formats.limits import most_bytes
from porter.formats.tflite.model import IMAGE, Model, Operator, Quantised, Unread, read_model
from porter.graph import (
    Clip,
    Conv,
    ConvTranspose,
    DepthToSpace,
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    LocalResponseNorm,
    Op,
    Relu,
    Relu6,
    Sigmoid,
    Tanh,
)
from porter.padding import LOWEST, Convention, Size, Window

_KERNELS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_SAME = ("SAME", "VALID")
_ROUNDED = "8-bit weights are read as the real numbers that they stand for; TensorFlow Lite rounds what meets them to 8 bits, too"


def read_tflite(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """A model, whose weights may be of 32, 16 or 8 bits.

    Args:
        outputs: names of tensors, at which the graph ends.
        size: rows and columns, where the graph leaves them open.

    Raises:
        FileError: it is damaged, or computes in whole numbers.
        UsageError: the graph lacks one of `outputs`.
    """
    data = path.read_bytes()
    try:
        return _checkpoint(path, data, read_model(data), outputs, size)
    except Quantised as error:
        next = "name the file that it was made from, or convert the model again without a representative dataset"
        raise FileError(f"a fully quantised graph computes in whole numbers: {error}", where=str(path), next=next) from None
    except Unread as error:
        raise FileError(str(error), where=str(path), next="convert the model again with weights of float32 or float16") from None
    except (ValueError, LookupError, TypeError, struct.error, OverflowError) as error:
        message = f"the model is damaged: {str(error)[:200] or type(error).__name__}"
        raise FileError(message, where=str(path), next="fetch it again") from None


def _checkpoint(path: Path, data: bytes, model: Model, outputs: Sequence[str], size: Size | None) -> Checkpoint:
    tensors = {name: array for name, array in model.stored.items() if is_floating(array)}
    notes = (_ROUNDED,) if model.rounded else ()
    if model.problem is not None:
        return Checkpoint(path, "tflite", None, tensors, (*notes, f"read without the graph: {model.problem}"))
    _, rows, columns, _ = model.sides
    graphs = [_graph(model, most_bytes(len(data)), outputs, open_at) for open_at in ((rows, columns), (None, None))]
    stated = graphs[0] if size is None else _graph(model, most_bytes(len(data)), outputs, completed(graphs[0].size, size))
    at_every, traced = graphs[0].nodes == graphs[1].nodes, stated.size != graphs[0].size
    graph = replace(stated, resizable=at_every, traced=traced, definition=data, language="tflite")
    return Checkpoint(path, "tflite", None, {**tensors, **graph.evaluated}, notes, graph=graph)


def _graph(model: Model, budget: int, outputs: Sequence[str], size: Size) -> FileGraph:
    given = {name: Operator(name, "given", (), (), None, "") for name in (IMAGE, *model.stored)}
    nodes = {**given, **{operator.name: operator for operator in model.operators}}
    live, taps = {IMAGE}, dict[tuple[str, int], str]()
    for operator in model.operators:
        if any(source in live for source, _ in operator.inputs):
            live.add(operator.name)
        taps |= {(operator.name, place): name for place, name in enumerate(operator.gives)}
    expect_values(outputs, taps.values())
    flow = Dataflow(nodes, live, Arrays(model.stored), _kind, _EVALUATORS, _is_cast, _RESHAPES, budget)
    kernels = (flow.weights(each.inputs[1]) for each in model.operators if each.op in _KERNELS and len(each.inputs) > 1)
    channels = model.sides[3] or next((kernel.shape[-1] for kernel in kernels if kernel is not None and kernel.shape), 3)
    walk = begin(flow, Image((IMAGE, 0), channels, size, model.sides[0]), model.stored)
    walk.tap = taps.get
    read_nodes(walk, READERS.get)
    ends = [source for source, name in taps.items() if name in outputs] or model.ends
    found = walk.builder.finish(walk.ends(ends))
    return replace(found, evaluated=flow.evaluated, output_names=tuple(taps[end] for end in ends if end in taps))


def _kind(operator: Operator) -> str:
    """An operator as patterns name it: none with an activation is one of several that are a layer."""
    if operator.op == "MEAN":
        return "Mean" if operator.scalar(0, "B") else "Mean of fewer axes"
    return _KINDS.get(operator.op, operator.op) if not operator.activation else f"{operator.op} and {operator.activation}"


def _is_cast(operator: Operator) -> bool:
    return operator.op == "CAST" and operator.scalar(1, "b") == 0


def _activated(read: Reader[Operator]) -> Reader[Operator]:
    """Reads what an operator gives, and its activation behind it."""

    def both(walk: Walk[Operator], node: Operator) -> Read | list[Read]:
        given = read(walk, node)
        if not node.activation or not isinstance(given, Value | View):
            return given
        view, op = given if isinstance(given, View) else walk.views.of(given), _ACTIVATIONS.get(node.activation)
        name = f"{node.name}:{node.activation.lower()}"
        return walk.views.like(view, walk.builder.add(name, op, view.value)) if op else f"{node.op} with {node.activation}"

    return both


def _value(walk: Walk[Operator], node: Operator) -> Value:
    return walk.value(node.inputs[0])


def _stored(walk: Walk[Operator], node: Operator, place: int) -> Tensor | None:
    return walk.flow.weights(node.inputs[place]) if place < len(node.inputs) else None


def _held(walk: Walk[Operator], node: Operator, axes: str, bias: int = 2) -> dict[str, Stored] | None:
    """A kernel of four axes, and a bias if the operator reads one; None where they are not stored."""
    kernel, vector = _stored(walk, node, 1), _stored(walk, node, bias)
    if kernel is None or len(kernel.shape) != 4 or (len(node.inputs) > bias and vector is None):
        return None
    return {"kernel": Stored(kernel.name, axes), **({"bias": Stored(vector.name)} if vector is not None else {})}


def _window(node: Operator, sides: tuple[int, int], dilations: int | None) -> tuple[Window, Convention]:
    """`dilations`: where the options have them."""
    stride, by = (node.scalar(2, "i"), node.scalar(1, "i")), (1, 1)
    if dilations is not None:
        by = (node.scalar(dilations + 1, "i", 1), node.scalar(dilations, "i", 1))
    return Window(sides, stride, by), Convention("valid" if node.scalar(0, "b") else "same")


def _conv(walk: Walk[Operator], node: Operator) -> Read:
    """Kernels are filters×rows×columns×channels/groups, those by channel 1×rows×columns×filters."""
    by_channel, kernel, value = node.op == "DEPTHWISE_CONV_2D", _stored(walk, node, 1), _value(walk, node)
    held = _held(walk, node, "IHWO" if by_channel else "OHWI")
    if held is None or kernel is None or 0 in kernel.shape:
        return f"{node.op} whose kernel is not stored"
    filters, channels = kernel.shape[3 if by_channel else 0], value.channels or kernel.shape[3]
    groups = channels if by_channel else channels // kernel.shape[3]
    window, convention = _window(node, (kernel.shape[1], kernel.shape[2]), 5 if by_channel else 4)
    return walk.builder.conv(node.name, value, Conv(filters, window, convention, groups), held)


def _transposed(walk: Walk[Operator], node: Operator) -> Read:
    """The sizes that it gives, a kernel filters×rows×columns×channels, and what it spreads."""
    wanted, kernel = walk.flow.integers(node.inputs[0]), _stored(walk, node, 1)
    held, value = _held(walk, node, "IHWO", 3), walk.value(node.inputs[2])
    known = walk.views.of(value).sizes or ()
    if held is None or kernel is None or wanted is None or len(wanted) != 4 or len(known) != 4:
        return f"{node.op} to a size that is not stated"
    window, _ = _window(node, (kernel.shape[1], kernel.shape[2]), None)
    pads = cut_off(window, known[1:3], wanted[1:3], _SAME[node.scalar(0, "b")])
    op = ConvTranspose(kernel.shape[0], window, pads, bias="bias" in held)
    return walk.builder.add(node.name, op, value, tensors=held)


def _pool(walk: Walk[Operator], node: Operator) -> Read:
    """An average does not count cells outside its map."""
    largest = node.op == "MAX_POOL_2D"
    window, convention = _window(node, (node.scalar(4, "i"), node.scalar(3, "i")), None)
    convention = replace(convention, fill=LOWEST) if largest else convention
    return walk.builder.pool(node.name, _value(walk, node), "max" if largest else "mean", window, convention)


def _dense(walk: Walk[Operator], node: Operator) -> Read:
    """Over the last axis; without `keep_num_dims` every row of so many numbers is one of features."""
    kernel, source = _stored(walk, node, 1), node.inputs[0]
    if kernel is None or len(kernel.shape) != 2 or node.scalar(1, "b"):
        return f"{node.op} whose kernel is not stored row by row"
    sizes = walk.sizes(source)
    if not node.scalar(2, "B") and sizes is not None and len(sizes) != 2:
        flat = replace(node, name=f"{node.name}:flatten")
        read = moves.reshape(walk, flat, source, [-1, kernel.shape[1]])
        if read is None or isinstance(read, str):
            return read
        walk.give(flat, [read])
        source = (flat.name, 0)
    return dense(walk, node, source, Product(node.inputs[1], "OI", node.inputs[2] if len(node.inputs) > 2 else None))


def _product(walk: Walk[Operator], node: Operator) -> Read:
    turned = [bool(node.scalar(0, "B")), bool(node.scalar(1, "B"))]
    if all(map(walk.is_value, node.inputs)):
        return matmul(walk, node, node.inputs, turned)
    return node.op if turned[0] else dense(walk, node, node.inputs[0], Product(node.inputs[1], "OI" if turned[1] else "IO"))


def _binary(walk: Walk[Operator], node: Operator) -> Read:
    return combine(walk, node, _KINDS[node.op], node.inputs)


def _concat(walk: Walk[Operator], node: Operator) -> Read:
    return moves.concat(walk, node, node.inputs, node.scalar(0, "i"))


def _pad(walk: Walk[Operator], node: Operator) -> Read:
    table, fill = walk.flow.value(node.inputs[1]), walk.flow.number(node.inputs[2]) if len(node.inputs) > 2 else 0.0
    if table is None or fill is None:
        return None
    pairs = {place: (before, after) for place, (before, after) in enumerate(table.tolist()) if before or after}
    if node.op == "MIRROR_PAD":
        return moves.extend(walk, node, node.inputs[0], pairs, "symmetric" if node.scalar(0, "b") else "reflect")
    return moves.pad(walk, node, node.inputs[0], pairs, fill)


def _reshape(walk: Walk[Operator], node: Operator) -> Read:
    stated = node.options.numbers(0, "i4").tolist() if node.options is not None else None
    sizes = walk.flow.integers(node.inputs[1]) if len(node.inputs) > 1 else stated
    return None if sizes is None else moves.reshape(walk, node, node.inputs[0], sizes)


def _squeeze(walk: Walk[Operator], node: Operator) -> Read:
    places = node.options.numbers(0, "i4").tolist() if node.options is not None else []
    return moves.squeeze(walk, node, node.inputs[0], places or None)


def _reduce(walk: Walk[Operator], node: Operator) -> Read:
    places, keep = walk.flow.integers(node.inputs[1]), bool(node.scalar(0, "B"))
    if not places:
        return None
    if node.op == "SUM":
        return moves.total(walk, node, node.inputs[0], places, keep)
    return moves.reduce(walk, node, node.inputs[0], "mean" if node.op == "MEAN" else "max", places, keep)


def _resize(walk: Walk[Operator], node: Operator) -> Read:
    linear = node.op == "RESIZE_BILINEAR"
    known, wanted, first = walk.sizes(node.inputs[0]), walk.flow.integers(node.inputs[1]), 2 if linear else 0
    if wanted is None or known is None or len(known) != 4 or len(wanted) != 2:
        return None
    by = [new // old if new % old == 0 else 0 for new, old in zip(wanted, known[1:3], strict=True)]
    op = nearest_or_linear(node.op, linear, by, bool(node.scalar(first + 1, "B")), bool(node.scalar(first, "B")))
    return op if isinstance(op, str) else moves.resize(walk, node, node.inputs[0], op, {}, {1: wanted[0], 2: wanted[1]})


def _index(node: Operator, rank: int, bounds: Sequence[Any]) -> tuple[slice | int | None, ...]:
    numbers = [np.asarray(each).ravel().tolist() for each in bounds]
    if node.op == "SLICE":
        return tuple(sliced(*numbers))
    return tuple(strided({name: node.scalar(field, "i") for field, name in enumerate(MASKS)}, rank, *numbers))


def _slice(walk: Walk[Operator], node: Operator) -> Read:
    bounds = [numbers for source in node.inputs[1:] if (numbers := walk.flow.integers(source)) is not None]
    sizes = walk.sizes(node.inputs[0])
    if sizes is None or len(bounds) < len(node.inputs) - 1 or node.scalar(5, "B"):
        return None
    return moves.take(walk, node, node.inputs[0], _index(node, len(sizes), bounds))


def _split(walk: Walk[Operator], node: Operator) -> Read | list[Read]:
    """SPLIT (axis, value), SPLIT_V (value, sizes, axis) and UNPACK."""
    source = node.inputs[1] if node.op == "SPLIT" else node.inputs[0]
    place = {"SPLIT": node.inputs[0], "SPLIT_V": node.inputs[-1]}.get(node.op)
    axis = node.scalar(1, "i") if place is None else walk.flow.number(place)
    if axis is None:
        return None
    if node.op != "SPLIT_V":
        return moves.split_evenly(walk, node, source, int(axis), len(node.gives), node.op != "UNPACK")
    sizes = walk.flow.integers(node.inputs[1])
    return moves.split(walk, node, source, int(axis), sizes) if sizes else None


def _pack(walk: Walk[Operator], node: Operator) -> Read:
    if not all(map(walk.is_value, node.inputs)):
        return "PACK with a constant"
    return moves.stack(walk, node, node.inputs, node.scalar(1, "i"))


def _softmax(walk: Walk[Operator], node: Operator) -> Read:
    return "SOFTMAX with a beta" if node.scalar(0, "f", 1.0) != 1 else moves.softmax(walk, node, node.inputs[0], -1)


def _response_norm(walk: Walk[Operator], node: Operator) -> Read:
    bias, alpha, beta = (node.scalar(field, "f") for field in (1, 2, 3))
    return walk.builder.add(node.name, LocalResponseNorm(2 * node.scalar(0, "i") + 1, alpha, beta, bias), _value(walk, node))


def _sizes(walk: Walk[Operator], node: Operator) -> Read:
    sizes = walk.sizes(node.inputs[0])
    return None if sizes is None else np.asarray(sizes, np.int64)


def _cast(walk: Walk[Operator], node: Operator) -> Read:
    return walk.view(node.inputs[0]) if _is_cast(node) and node.scalar(0, "b") in (0, 3) else None


_ACTIVATIONS: Mapping[str, Op] = {
    **{"RELU": Relu(), "RELU6": Relu6(), "RELU_N1_TO_1": Clip(-1.0, 1.0), "RELU_0_TO_1": Clip(0.0, 1.0), "TANH": Tanh()},
    **{"LOGISTIC": Sigmoid(), "ELU": Elu(), "HARD_SWISH": HardSwish()},
}
_KINDS: Mapping[str, str] = {
    **{"ADD": "Add", "ADD_N": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow"},
    **{"SQUARED_DIFFERENCE": "SquaredDifference", "RSQRT": "Rsqrt", "SQRT": "Sqrt", "SQUARE": "Square", "NEG": "Neg"},
    **{"FLOOR_DIV": "FloorDiv", "FLOOR_MOD": "FloorMod", "EXP": "Exp"},
}
_RESHAPES = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})
_EVALUATORS: Mapping[str, Evaluator] = {
    "CAST": lambda node, value: value if _is_cast(node) else np.trunc(value).astype(np.int64),
    "CONCATENATION": lambda node, *values: np.concatenate(values, node.scalar(0, "i")),
    "EXPAND_DIMS": lambda node, value, axis: np.expand_dims(value, int(axis.item())),
    "GATHER": lambda node, value, places: value.take(places.reshape(-1)[:64].reshape(places.shape), node.scalar(0, "i")),
    "PACK": lambda node, *values: np.stack(values, node.scalar(1, "i")),
    "REDUCE_PROD": lambda node, value, axes: np.prod(value, tuple(axes.ravel().tolist()), keepdims=bool(node.scalar(0, "B"))),
    "RESHAPE": lambda node, value, sizes: value.reshape(sizes.ravel().tolist()),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), lambda node, value, *bounds: value[_index(node, value.ndim, bounds)]),
    "SQUEEZE": lambda node, value: np.squeeze(value),
    "TRANSPOSE": lambda node, value, order: value.transpose(order.ravel().tolist()),
}
READERS: Mapping[str, Reader[Operator]] = {
    **{op: always(each) for op, each in _ACTIVATIONS.items()},
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), _activated(_binary)),
    **dict.fromkeys(("ADD_N", "MAXIMUM", "MINIMUM", "POW"), _binary),
    **dict.fromkeys(_KERNELS, _activated(_conv)),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _activated(_pool)),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX"), _reduce),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resize),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), _slice),
    **dict.fromkeys(("SPLIT", "SPLIT_V", "UNPACK"), _split),
    "BATCH_MATMUL": _product,
    "BROADCAST_TO": by_numbers(moves.expand),
    "CAST": _cast,
    "CONCATENATION": _activated(_concat),
    "DEPTH_TO_SPACE": lambda walk, node: walk.builder.add(node.name, DepthToSpace(node.scalar(0, "i"), "DCR"), _value(walk, node)),
    "EXPAND_DIMS": by_numbers(moves.unsqueeze),
    "FULLY_CONNECTED": _activated(_dense),
    "GELU": unary(lambda node: Gelu(bool(node.scalar(0, "B")))),
    "LEAKY_RELU": unary(lambda node: LeakyRelu(float(node.scalar(0, "f")))),
    "LOCAL_RESPONSE_NORMALIZATION": _response_norm,
    "NEG": lambda walk, node: negative(walk, node, node.inputs[0]),
    "PACK": _pack,
    "PRELU": lambda walk, node: slopes(walk, node, node.inputs[0], node.inputs[1]),
    "RESHAPE": _reshape,
    "SHAPE": _sizes,
    "SOFTMAX": _softmax,
    "SQUARE": lambda walk, node: square(walk, node, node.inputs[0]),
    "SQUEEZE": _squeeze,
    "TILE": by_numbers(moves.repeat),
    "TRANSPOSE": by_numbers(moves.transpose),
    "TRANSPOSE_CONV": _activated(_transposed),
}

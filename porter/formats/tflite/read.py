"""Reads TensorFlow Lite's models: their tensors, and their operators as porter's ops. They are parsed, never
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.dtypes import is_floating
from porter.base.errors import FileError
from porter.filegraph import functions, moves
from porter.filegraph.arithmetic import combine, negative, slopes
from porter.filegraph.atrous import nodes_read, put_together, take_apart
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.choices import both, choice, comparison, either, opposite
from porter.filegraph.dataflow import Arrays, Dataflow, Reference, depending
from porter.filegraph.dims import of_sizes
from porter.filegraph.file_graph import FileGraph, Unsupported, completed
from porter.filegraph.layers import part
from porter.filegraph.names import expect_values
from porter.filegraph.places import place_of
from porter.filegraph.products import Product, dense, matmul
from porter.filegraph.reductions import (
    Reduction,
    log_softmax,
    reduce,
    root,
    softmax,
)
from porter.filegraph.tensor import Scope, Tensor, expression, reads
from porter.filegraph.tensorflow import further_image, read_slice, read_split, read_stack
from porter.filegraph.views import View
from porter.filegraph.walk import (
    Image,
    NodeWalk,
    Read,
    Reader,
    Zeros,
    always,
    begin,
    by_numbers,
    by_sizes,
    of_map,
    read_nodes,
    unary,
)
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.tflite import windows
from porter.formats.tflite.constants import EVALUATORS, RESHAPES, index_of, is_cast, kind, stated_numbers
from porter.formats.tflite.model import EXPECTED, IMAGE, Model, Operator, Unread, read_model
from porter.formats.tflite.windows import stored
from porter.graph import Op, ops
from porter.graph.walks import in_order
from porter.padding import Size

Walk = NodeWalk[Operator]

_LEAST_NORM = 1e-6
"""What an L2_NORMALIZATION divides by where the norm is smaller (tensorflow/lite/kernels/l2norm.cc)."""
_ROUNDED = (
    "8-bit weights are read as the real numbers that they stand for; TensorFlow Lite rounds what "
    "meets them to 8 bits, too"
)


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
        with refusing_damage(path):
            return _checkpoint(path, data, read_model(data), outputs, size)
    except Unread as error:
        message, next = error.args
        raise FileError(message, where=path, next=next) from None


def _checkpoint(
    path: Path, data: bytes, model: Model, outputs: Sequence[str], size: Size | None
) -> Checkpoint:
    tensors = {name: array for name, array in model.stored.items() if is_floating(array)}
    notes = (_ROUNDED,) if model.rounded else ()
    problem = model.problem or (None if all(_beside(model).values()) else EXPECTED)
    if problem is not None:
        return Checkpoint(path, "tflite", None, tensors, (*notes, f"{UNREAD}: {problem}"))
    _, rows, columns, _ = model.sides
    graphs = [
        _graph(model, most_bytes(len(data)), outputs, open_at) for open_at in ((rows, columns), (None, None))
    ]
    stated = (
        graphs[0]
        if size is None
        else _graph(model, most_bytes(len(data)), outputs, completed(graphs[0].size, size))
    )
    at_every, traced = stated.nodes == graphs[1].nodes, stated.size != graphs[0].size
    graph = replace(stated, resizable=at_every, traced=traced, definition=data, language="tflite")
    return Checkpoint(path, "tflite", None, {**tensors, **graph.evaluated}, notes, graph=graph)


def _graph(model: Model, budget: int, outputs: Sequence[str], size: Size) -> FileGraph:
    given = {name: Operator(name, "given", (), (), None) for name in (IMAGE, *model.beside, *model.stored)}
    nodes = {**given, **{operator.name: operator for operator in model.operators}}
    taps = {
        (operator.name, place): name
        for operator in model.operators
        for place, name in enumerate(operator.gives)
    }
    inner = {(operator.name, 0): operator.inner for operator in model.operators if operator.inner}
    expect_values(outputs, taps.values())
    ends = [source for source, name in taps.items() if name in outputs] or model.ends
    order = in_order([name for name, _ in ends], lambda name: nodes_read(nodes[name], kind))
    nodes = {**given, **{name: nodes[name] for name in order}}
    flow = Dataflow(
        nodes,
        depending(nodes, [IMAGE, *model.beside]),
        Arrays(model.stored),
        kind,
        EVALUATORS,
        is_cast,
        RESHAPES,
        budget,
    )
    kernels = (
        flow.weights(each.inputs[1])
        for each in model.operators
        if each.op in windows.KERNELS and len(each.inputs) > 1
    )
    channels = model.sides[3] or next(
        (kernel.shape[-1] for kernel in kernels if kernel is not None and kernel.shape), 3
    )
    further = {name: image for name, image in _beside(model).items() if image is not None}
    walk = begin(
        flow,
        Image((IMAGE, 0), channels, size, model.sides[0]),
        model.stored,
        (taps | inner).get,
        further=further,
    )
    read_nodes(walk, READERS.get)
    names = tuple(taps[end] for end in ends if end in taps)
    found = walk.ends(ends)
    return replace(walk.finish(found, found), output_names=names)


def _beside(model: Model) -> dict[str, Image | None]:
    batch, rows, columns, _ = model.sides
    return {
        name: further_image((name, 0), sizes, batch, (rows, columns)) for name, sizes in model.beside.items()
    }


def _dense(walk: Walk, node: Operator) -> Read:
    """Over the last axis; without `keep_num_dims` every row of so many numbers is one of features."""
    kernel, source, sizes = stored(walk, node, 1), node.source, walk.sizes(node.source)
    if kernel is None or len(kernel.shape) != 2 or node.scalar(1, "b"):
        raise Unsupported("whose kernel is not stored row by row")
    rows = [-1, kernel.shape[1]]
    if not node.scalar(2, "B") and sizes is not None and len(sizes) != 2:
        source = part(walk, node, "flatten", lambda walk, flat: moves.reshape(walk, flat, flat.source, rows))
    return dense(
        walk, node, source, Product(node.inputs[1], "OI", node.inputs[2] if len(node.inputs) > 2 else None)
    )


def _product(walk: Walk, node: Operator) -> Read:
    turned = [bool(node.scalar(0, "B")), bool(node.scalar(1, "B"))]
    if all(map(walk.is_value, node.inputs)):
        return matmul(walk, node, node.inputs, turned)
    if turned[0]:
        raise Unsupported("with adj_x")
    return dense(walk, node, node.source, Product(node.inputs[1], "OI" if turned[1] else "IO"))


def _binary(walk: Walk, node: Operator) -> Read:
    """Of values; a MUL by ones of sizes is how onnx2tf repeats a value."""
    for place, (source, _) in enumerate(node.inputs[:2]):
        filled = walk.flow.nodes[source]
        if node.op == "MUL" and filled.op == "FILL" and walk.flow.number(filled.inputs[1]) == 1:
            return moves.expand(walk, node, node.inputs[1 - place], walk.dims(filled.source))
    unit = functions.unit(Scope(walk, node)) if node.op == "MUL" else None
    return combine(walk, node, kind(node), node.inputs) if unit is None else unit.outcome()


def _reshape(walk: Walk, node: Operator) -> Read:
    sizes = walk.dims(node.inputs[1]) if len(node.inputs) > 1 else [*stated_numbers(node)]
    return moves.reshape(walk, node, node.source, sizes)


_FUNCTIONS: Mapping[str, Reduction] = {"MEAN": "mean", "REDUCE_MAX": "max", "REDUCE_MIN": "min", "SUM": "sum"}


def _reduce(walk: Walk, node: Operator) -> Read:
    places, keep = walk.integers(node.inputs[1]), bool(node.scalar(0, "B"))
    if not places:
        raise Unsupported("over no axes")
    return reduce(walk, node, node.source, _FUNCTIONS[node.op], places, keep)


def _slice(walk: Walk, node: Operator) -> Read:
    batch = _before_zeros(walk, node) if node.op == "SLICE" else None
    if batch is not None:
        return walk.view(batch)
    if node.scalar(5, "B"):
        raise Unsupported("whose ends are offsets")
    return read_slice(walk, node, lambda rank, bounds: index_of(node, rank, bounds))


def _before_zeros(walk: Walk, node: Operator) -> Reference | None:
    """The batch that a SLICE takes of itself and an image of zeros behind it: so onnx2tf pads batches that
    may be empty.
    """
    joined = walk.flow.nodes[node.source[0]]
    if joined.op != "CONCATENATION" or joined.scalar(0, "i") or not walk.is_value(joined.source):
        return None
    batch, *zeros = joined.inputs
    sizes = walk.sizes(batch) or ()
    one = all((walk.blank.get(each) or walk.flow.shape(each)) == (1, *sizes[1:]) for each in zeros)
    bounds = [walk.flow.dims(each) for each in node.inputs[1:]]
    return batch if one and sizes and bounds == [[0] * len(sizes), [*sizes]] else None


def _gather(walk: Walk, node: Operator) -> Read:
    places, shape = walk.flow.integers(node.inputs[1]), walk.flow.shape(node.inputs[1])
    if not places or shape is None or len(shape) > 1 or node.scalar(1, "i"):
        raise Unsupported("by indices that the model computes as it runs, or that differ by image")
    axis, place = node.scalar(0, "i"), places[0]
    if len(places) == 1:
        return moves.cut(walk, node, node.source, {axis: slice(place, place + 1 or None) if shape else place})
    return moves.gather(walk, node, node.source, place_of(axis, len(walk.sizes(node.source) or ())), places)


def _reverse(walk: Walk, node: Operator) -> Read:
    return moves.turned_round(walk, node, node.source, walk.integers(node.inputs[1]))


def _split(walk: Walk, node: Operator) -> list[View]:
    if node.op == "UNPACK":
        return read_split(walk, node, "Unpack", node.scalar(1, "i"), len(node.gives))
    return read_split(walk, node, "Split" if node.op == "SPLIT" else "SplitV", 0, len(node.gives))


def _response_norm(node: Operator) -> Op:
    bias, alpha, beta = (node.scalar(field, "f") for field in (1, 2, 3))
    return ops.LocalResponseNorm(2 * node.scalar(0, "i") + 1, alpha, beta, bias)


def _sizes(walk: Walk, node: Operator) -> Read:
    return of_sizes(walk.known_sizes(node.source))


def _filled(walk: Walk, node: Operator) -> Read:
    """Zeros of sizes, of which some are open."""
    if walk.number(node.inputs[1]) != 0:
        raise Unsupported("by another number than 0 to open sizes")
    return Zeros(tuple(walk.dims(node.source)))


def _rounded(node: Operator, x: Tensor, divisor: Tensor) -> Tensor:
    """FLOOR_DIV and FLOOR_MOD."""
    function = functions.whole_quotient if node.op == "FLOOR_DIV" else functions.remainder
    return function(x, divisor, "floor")


def _running_sums(node: Operator, x: Tensor, axis: Tensor) -> Tensor:
    """CUMSUM, whose options are whether it leaves each number itself out, and whether it goes backwards."""
    exclusive, reverse = bool(node.scalar(0, "B")), bool(node.scalar(1, "B"))
    return x.cumsum(int(axis.number()), reverse, exclusive)


def _prod(node: Operator, x: Tensor, axes: Tensor) -> Tensor:
    """REDUCE_PROD."""
    return functions.prod(x, axes.integers(), bool(node.scalar(0, "B")))


def _cast(walk: Walk, node: Operator) -> View:
    if not is_cast(node) or node.scalar(0, "b") not in (0, 3):
        raise Unsupported("to a type that rounds, or of numbers that are not real")
    return walk.view(node.source)


def _softmax(walk: Walk, node: Operator) -> View:
    if node.scalar(0, "f", 1.0) != 1:
        raise Unsupported("with a beta")
    return softmax(walk, node, node.source, -1)


READERS: Mapping[str, Reader[Operator]] = {
    **dict.fromkeys(("ADD", "ADD_N", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW"), _binary),
    **dict.fromkeys(windows.KERNELS, windows.read_conv),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), windows.read_pool),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), windows.read_pad),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _reduce),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), windows.read_resize),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), _slice),
    **dict.fromkeys(("SPLIT", "SPLIT_V", "UNPACK"), _split),
    **dict.fromkeys(("SELECT", "SELECT_V2"), choice),
    **{
        op: comparison(op.title().replace("_", "Or"))
        for op in ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    },
    "LOGICAL_AND": both,
    "LOGICAL_OR": either,
    "LOGICAL_NOT": opposite,
    "COS": always(ops.Cos()),
    "ROUND": always(ops.Round()),
    "SIGN": always(ops.Sign()),
    "SIN": always(ops.Sin()),
    "ABS": always(ops.Abs()),
    "BATCH_MATMUL": _product,
    "BATCH_TO_SPACE_ND": put_together,
    "BROADCAST_TO": by_sizes(moves.expand),
    "CAST": _cast,
    "CEIL": always(ops.Ceil()),
    "CONCATENATION": lambda walk, node: moves.concat(walk, node, node.inputs, node.scalar(0, "i")),
    "CUMSUM": reads(_running_sums),
    "DEPTH_TO_SPACE": of_map(lambda node: ops.DepthToSpace(node.scalar(0, "i"), "DCR")),
    "ELU": always(ops.Elu()),
    "EQUAL": expression(functions.equal),
    "EXP": always(ops.Exp()),
    "EXPAND_DIMS": by_numbers(moves.unsqueeze),
    "FILL": _filled,
    "FLOOR": always(ops.Floor()),
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD"), reads(_rounded)),
    "FULLY_CONNECTED": _dense,
    "GATHER": _gather,
    "GELU": unary(lambda node: ops.Gelu(bool(node.scalar(0, "B")))),
    "HARD_SWISH": always(ops.HardSwish()),
    "L2_NORMALIZATION": expression(lambda x: functions.over_norm(x, 2, [-1], _LEAST_NORM)),
    "LEAKY_RELU": unary(lambda node: ops.LeakyRelu(float(node.scalar(0, "f")))),
    "LOCAL_RESPONSE_NORMALIZATION": of_map(_response_norm),
    "LOG": always(ops.Log()),
    "LOG_SOFTMAX": lambda walk, node: log_softmax(walk, node, node.source, -1),
    "LOGISTIC": always(ops.Sigmoid()),
    "NOT_EQUAL": expression(functions.differs),
    "NEG": lambda walk, node: negative(walk, node, node.source),
    "PACK": lambda walk, node: read_stack(walk, node, node.scalar(1, "i")),
    "PRELU": lambda walk, node: slopes(walk, node, node.source, node.inputs[1]),
    "REDUCE_PROD": reads(_prod),
    "RELU": always(ops.Relu()),
    "RELU6": always(ops.Relu6()),
    "RELU_0_TO_1": always(ops.Clip(0.0, 1.0)),
    "RELU_N1_TO_1": always(ops.Clip(-1.0, 1.0)),
    "RESHAPE": _reshape,
    "REVERSE_V2": _reverse,
    "RSQRT": unary(lambda node: (ops.Sqrt(), ops.Reciprocal())),
    "SHAPE": _sizes,
    "SOFTMAX": _softmax,
    "SPACE_TO_BATCH_ND": take_apart,
    "SPACE_TO_DEPTH": lambda walk, node: moves.cells_as_channels(
        walk, node, node.source, node.scalar(0, "i"), False
    ),
    "SQRT": lambda walk, node: root(walk, node, lambda total: bool(total.scalar(0, "B"))),
    "SQUARE": expression(functions.square),
    "SQUARED_DIFFERENCE": expression(functions.squared_difference),
    "SQUEEZE": lambda walk, node: moves.squeeze(walk, node, node.source, stated_numbers(node)),
    "TANH": always(ops.Tanh()),
    "TILE": by_sizes(moves.repeat),
    "TRANSPOSE": by_numbers(moves.transpose),
    "TRANSPOSE_CONV": windows.read_transposed,
    "ZEROS_LIKE": lambda walk, node: Zeros(walk.known_sizes(node.source)),
}

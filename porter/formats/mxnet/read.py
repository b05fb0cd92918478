"""Reads MXNet's models: their arrays, and their graphs as porter's ops. They are parsed, never run."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from porter.base.dtypes import NamedArrays, is_floating
from porter.base.errors import FileError
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, depending
from porter.filegraph.file_graph import FileGraph, Stored, Unsupported
from porter.filegraph.kernels.program import value_name
from porter.filegraph.layers import both_sides, pool, read_graph, slopes
from porter.filegraph.names import expect_values
from porter.filegraph.products import Product
from porter.filegraph.tensor import Tensor, concat, merged, reads
from porter.filegraph.walk import Image, Reader, always
from porter.formats.damage import OF_JSON, refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.mxnet.arrays import read_arrays
from porter.formats.mxnet.plain import OF_NUMBERS
from porter.formats.mxnet.symbol import Node, Symbol, read_symbol
from porter.graph import Op, ops
from porter.padding import Convention, Pads, Size, Window

_SYMBOL = "-symbol.json"
_EPOCH = re.compile(r"-\d{4}\.params$")
_IN_PLACE = {
    "relu": ops.Relu(),
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "softrelu": ops.Softplus(cut=True),
    "softsign": ops.Softsign(),
}


def read_mxnet(
    path: Path, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
) -> Checkpoint:
    """A graph with its arrays, of which the path names either. NAME-symbol.json belongs to NAME-0000.params,
    or to the only .params in its folder; .params without a graph, as of gluon's zoo, are read as arrays only.

    Args:
        outputs: names of operators, at which the graph ends.
        size: rows and columns, where the graph does not state them.
        weights: the arrays of the graph that the path names.

    Raises:
        FileError: one of the two is missing or damaged.
        UsageError: the graph lacks one of `outputs`.
    """
    text, params = (path, weights) if weights else _both(path)
    with refusing_damage(path, "fetch both files again", further=OF_JSON):
        tensors = read_arrays(params.read_bytes())
        if text is None:
            note = f"{UNREAD}: its operators are in a {_SYMBOL}, and there is none beside it"
            return Checkpoint(path, "mxnet", "mxnet", tensors, (note,))
        definition = text.read_bytes()
        symbol = read_symbol(definition, tensors.__contains__)
        if symbol.image is None:
            found = (
                f"{symbol.lacking} of its variables have no array in {params.name}, expected one, the image"
            )
            note = f"{UNREAD} of {text.name}: {found}"
            return Checkpoint(path, "mxnet", "mxnet", tensors, (note,), files=(text, params))
        expect_values(outputs, [node.name for node in symbol.nodes])
        ends = tuple((name, 0) for name in outputs) or symbol.ends
        graph = _graph(replace(symbol, ends=ends), tensors, most_bytes(params.stat().st_size), size)
    graph = replace(
        graph,
        traced=size is not None,
        definition=symbol.image.encode() + b"\n" + definition,
        language="mxnet",
    )
    real = {name: array for name, array in tensors.items() if is_floating(array)}
    return Checkpoint(
        path,
        "mxnet",
        "mxnet",
        {**real, **graph.evaluated},
        graph=graph,
        files=(text, params),
        stated=symbol.said,
    )


def _both(path: Path) -> tuple[Path | None, Path]:
    if path.name.endswith(_SYMBOL) or path.suffix == ".json":
        named = sorted(path.parent.glob(f"{path.name.removesuffix(_SYMBOL)}-[0-9][0-9][0-9][0-9].params"))
        choices = named or sorted(path.parent.glob("*.params"))
        if len(choices) != 1:
            have = f"there are {len(choices)}" if choices else "there is none"
            next = "name one of the .params itself" if choices else "fetch both files"
            raise FileError(
                f"an MXNet model's arrays are in a .params beside it: {have}", where=path, next=next
            )
        return path, choices[0]
    stem = _EPOCH.sub("", path.name)
    own = path.with_name(f"{stem.removesuffix('.params')}{_SYMBOL}")
    others = [own] if own.is_file() else sorted(path.parent.glob(f"*{_SYMBOL}"))
    return others[0] if len(others) == 1 else None, path


def _graph(symbol: Symbol, tensors: NamedArrays, budget: int, size: Size | None) -> FileGraph:
    nodes, image = {node.name: node for node in symbol.nodes}, symbol.image or ""
    live, stored = depending(nodes, [image]), Arrays(tensors)
    flow = Dataflow(
        nodes, live, stored, lambda node: _KINDS.get(node.op, ""), budget=budget, passed=symbol.passed
    )
    _, channels, rows, columns = (
        symbol.sides if len(symbol.sides) == 4 else (0, _channels(nodes, image, tensors), 0, 0)
    )
    stated = (rows or None, columns or None) if size is None else size
    return read_graph(
        flow, Image((image, 0), channels, stated, order="CHW"), tensors, READERS, symbol.ends, value_name
    )


def _channels(nodes: Mapping[str, Node], image: str, tensors: NamedArrays) -> int:
    """Those of the image: what the first convolution takes, of a part of it or of all."""
    first = next(
        (node for node in nodes.values() if node.op == "Convolution" and node.inputs[1][0] in tensors), None
    )
    if first is None:
        return 3
    count, source = (
        int(tensors[first.inputs[1][0]].shape[1]) * first.stated.count("num_group", 1),
        first.source[0],
    )
    slices: dict[object, list[Node]] = defaultdict(list)
    for node in nodes.values():
        if node.op == "slice_axis":
            slices[tuple(node.inputs[:1])].append(node)
    while source in nodes and source != image:
        node = nodes[source]
        if node.op in ("SliceChannel", "split") and node.stated.count("axis", 1) == 1:
            count *= node.stated.count("num_outputs", 1)
        elif node.op == "slice_axis" and node.stated.count("axis", 0) == 1:
            beside = [other.stated for other in slices[tuple(node.inputs[:1])]]
            count = max(
                int(end) if (end := part.word("end", "None")) != "None" else part.count("begin", 0) + count
                for part in beside
            )
        source = node.source[0] if node.inputs else image
    return count


def _held(node: Node, axes: str) -> dict[str, Stored]:
    kernel, *bias = [name for name, _ in node.inputs[1:]]
    bare = node.stated.flag("no_bias", node.op == "Deconvolution")
    return {"kernel": Stored(kernel, axes), **({"bias": Stored(bias[0])} if bias and not bare else {})}


def _window(node: Node) -> tuple[Window, Pads]:
    stated = node.stated
    window = Window(stated.pair("kernel", 0), stated.pair("stride", 1), stated.pair("dilate", 1))
    return window, both_sides(stated.pair("pad", 0))


def _conv(node: Node, x: Tensor, *tensors: Tensor) -> Tensor:
    window, pads = _window(node)
    if len(node.stated.counts("kernel")) != 2 or node.stated.word("layout", "None") not in ("None", "NCHW"):
        raise Unsupported("of other maps than N×C×H×W")
    filters, groups = node.stated.count("num_filter", 0), node.stated.count("num_group", 1)
    return x.conv(ops.Conv(filters, window, Convention.stated(pads), groups), _held(node, "OIHW"))


def _deconv(node: Node, x: Tensor, *tensors: Tensor) -> Tensor:
    window, pads = _window(node)
    if any(node.stated.counts("adj")) or node.stated.counts("target_shape"):
        raise Unsupported("to a stated size")
    held, groups = _held(node, "OIHW"), node.stated.count("num_group", 1)
    op = ops.ConvTranspose(node.stated.count("num_filter", 0), window, pads, groups, "bias" in held)
    return x.op(op, **held)


def _pool(node: Node, x: Tensor) -> Tensor:
    """`full` rounds up and keeps a last window wherever it begins (src/operator/nn/pooling.cc)."""
    stated, kind = node.stated, node.stated.word("pool_type", "max")
    if kind not in ("max", "avg"):
        raise Unsupported(f"of type {kind}")
    function: ops.Function = "max" if kind == "max" else "mean"
    if stated.flag("global_pool"):
        return x.global_pool(function)
    rounding = stated.word("pooling_convention", "valid")
    if rounding not in ("valid", "full"):
        raise Unsupported(f"by the convention {rounding}")
    counted = stated.flag("count_include_pad", True)
    return pool(x, function, _window(node), "full" if rounding == "full" else "floor", counted)


def _dense(node: Node, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    if not node.stated.flag("flatten", True):
        added = None if node.stated.flag("no_bias") or bias is None else bias.reference
        return x.dense(Product(kernel.reference, "OI", added))
    return _features(x, kernel).fully_connected(node.stated.count("num_hidden", 0), _held(node, "OI"))


def _features(x: Tensor, kernel: Tensor) -> Tensor:
    """A kernel with as many columns as a map of open size has channels says that it has one cell."""
    shape, columns = x.value.shape, kernel.sizes[-1]
    if shape is not None and None in shape[1:] and shape[0] == columns:
        return x.squeeze((2, 3))
    return x.flatten(1)


def _norm(node: Node, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """With `fix_gamma`, its default, the stored gamma is read as 1 (src/operator/nn/batch_norm.cc)."""
    stated = node.stated
    if stated.count("axis", 1) != 1:
        raise Unsupported("over another axis than the channels'")
    scale = None if stated.flag("fix_gamma", True) else gamma
    epsilon, momentum = stated.number("eps", 1e-3), round(1 - stated.number("momentum", 0.9), 9)
    return x.batch_norm(epsilon, momentum, gamma=scale, beta=beta, mean=mean, variance=variance)


def _leaky(node: Node, x: Tensor, *tensors: Tensor) -> Tensor:
    kind, slope = node.stated.word("act_type", "leaky"), node.stated.number("slope", 0.25)
    if kind == "prelu":
        return slopes(x, node.inputs[1][0])
    made: Mapping[str, Op] = {
        "leaky": ops.LeakyRelu(slope),
        "elu": ops.Elu(slope),
        "selu": ops.Selu(),
        "gelu": ops.Gelu(),
    }
    if kind not in made:
        raise Unsupported(f"of type {kind}")
    return x.each(made[kind])


def _activation(node: Node, x: Tensor) -> Tensor:
    kind = node.stated.word("act_type")
    if kind not in _IN_PLACE:
        raise Unsupported(f"of type {kind}")
    return x.each(_IN_PLACE[kind])


def _by_number(function: Callable[[Tensor, float], Tensor]) -> Callable[[Node, Tensor], Tensor]:
    """A function of a value and of the number that the operator states."""
    return lambda node, x: function(x, node.stated.number("scalar", 0.0))


def _lrn(node: Node, x: Tensor) -> Tensor:
    stated, size = node.stated, node.stated.count("nsize", 0)
    alpha, beta = stated.number("alpha", 1e-4) / size, stated.number("beta", 0.75)
    return x.op(ops.LocalResponseNorm(size, alpha, beta, stated.number("knorm", 2.0)))


def _split(node: Node, x: Tensor) -> list[Tensor]:
    count, axis = node.stated.count("num_outputs", 1), node.stated.count("axis", 1)
    return x.split_evenly(axis, count, not node.stated.flag("squeeze_axis"))


def _cut(node: Node, x: Tensor) -> Tensor:
    stated = node.stated
    start, end = stated.count("begin", 0), stated.word("end", "None")
    return x.cut({stated.count("axis", 0): slice(start, None if end == "None" else int(end))})


def _reshape(node: Node, x: Tensor) -> Tensor:
    """0 keeps a size, -1 is what is left; other codes are refused."""
    sizes, wanted = x.sizes, node.stated.counts("shape")
    if not wanted or min(wanted) < -1 or node.stated.flag("reverse"):
        raise Unsupported(f"to {node.stated.word('shape')}")
    return x.reshape([size or sizes[place] for place, size in enumerate(wanted)])


def _reduce(node: Node, x: Tensor) -> Tensor:
    axes = node.stated.counts("axis")
    if not axes or node.stated.flag("exclude"):
        raise Unsupported("over other axes than stated ones")
    return x.reduce("mean" if node.op == "mean" else "max", axes, node.stated.flag("keepdims"))


def _pad(node: Node, x: Tensor) -> Tensor:
    widths, mode = node.stated.counts("pad_width"), node.stated.word("mode")
    pairs = dict(enumerate(zip(widths[::2], widths[1::2], strict=True)))
    if mode == "constant":
        return x.pad(pairs, node.stated.number("constant_value", 0.0))
    return x.extend(pairs, "reflect" if mode == "reflect" else "edge")


def _upsample(node: Node, *values: Tensor) -> Tensor:
    scale = node.stated.count("scale", 1)
    if node.stated.word("sample_type") != "nearest" or len(values) != 1:
        raise Unsupported("that is not the nearest cell of one map")
    return values[0].op(ops.Upsample(scale, scale))


def _softmax(node: Node, x: Tensor, *labels: Tensor) -> Tensor:
    """Over a stated axis; those that state none take the last axis, the channels, or all numbers of an image
    (src/operator/softmax_output-inl.h, src/operator/nn/softmax_activation-inl.h).
    """
    stated = node.stated
    if stated.number("temperature", 1.0) != 1:
        raise Unsupported("with a temperature")
    if node.op in ("softmax", "log_softmax"):
        axis = stated.count("axis", -1)
    elif stated.word("mode") == "channel" or stated.flag("multi_output"):
        axis = 1
    elif node.op == "SoftmaxActivation" or stated.flag("preserve_shape"):
        axis = -1
    elif x.rank == 2:
        axis = 1
    else:
        raise Unsupported("of all numbers of an image")
    return x.softmax(axis, op=ops.LogSoftmax() if node.op == "log_softmax" else ops.Softmax())


def _instance_norm(node: Node, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return x.instance_norm(node.stated.number("eps", 1e-3), gamma=gamma, beta=beta)


_SUMS = (
    "elemwise_add",
    "broadcast_add",
    "broadcast_plus",
    "_Plus",
    "_plus",
    "_add",
    "add_n",
    "ElementWiseSum",
    "_sum",
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(_SUMS, "Add"),
    **dict.fromkeys(("elemwise_sub", "broadcast_sub", "broadcast_minus", "_Minus", "_minus", "_sub"), "Sub"),
    **dict.fromkeys(("elemwise_mul", "broadcast_mul", "_Mul", "_mul"), "Mul"),
    **dict.fromkeys(("elemwise_div", "broadcast_div", "_Div", "_div"), "Div"),
    **dict.fromkeys(("broadcast_maximum", "_Maximum", "_maximum"), "Max"),
    **dict.fromkeys(("broadcast_minimum", "_Minimum", "_minimum"), "Min"),
}
"""MXNet's operators of several values, as porter.filegraph.arithmetic calls them."""


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(_KINDS, lambda node, *values: merged(_KINDS[node.op], values)),
    **dict.fromkeys(("_plus_scalar", "_PlusScalar"), _by_number(operator.add)),
    **dict.fromkeys(("_minus_scalar", "_MinusScalar"), _by_number(operator.sub)),
    **dict.fromkeys(("_rminus_scalar", "_RMinusScalar"), _by_number(lambda x, number: number - x)),
    **dict.fromkeys(("_mul_scalar", "_MulScalar"), _by_number(operator.mul)),
    **dict.fromkeys(("_div_scalar", "_DivScalar"), _by_number(operator.truediv)),
    **dict.fromkeys(
        ("_power_scalar", "_PowerScalar"), lambda node, x: x ** node.stated.number("scalar", 1.0)
    ),
    "_greater_scalar": _by_number(operator.gt),
    "_greater_equal_scalar": _by_number(operator.ge),
    "_lesser_scalar": _by_number(operator.lt),
    "_lesser_equal_scalar": _by_number(operator.le),
    **dict.fromkeys(("SoftmaxOutput", "Softmax", "softmax", "SoftmaxActivation", "log_softmax"), _softmax),
    **dict.fromkeys(("Concat", "concat"), lambda node, *values: concat(values, node.stated.count("dim", 1))),
    **dict.fromkeys(("Flatten", "flatten"), lambda node, x: x.flatten(1)),
    **dict.fromkeys(("Reshape", "reshape"), _reshape),
    **dict.fromkeys(("SliceChannel", "split"), _split),
    **dict.fromkeys(("Pad", "pad"), _pad),
    **dict.fromkeys(("mean", "max"), _reduce),
    "Convolution": _conv,
    "Deconvolution": _deconv,
    "Pooling": _pool,
    "FullyConnected": _dense,
    "BatchNorm": _norm,
    "InstanceNorm": _instance_norm,
    "LRN": _lrn,
    "Activation": _activation,
    "LeakyReLU": _leaky,
    "LogisticRegressionOutput": lambda node, x, *labels: x.each(ops.Sigmoid()),
    "hard_sigmoid": lambda node, x: x.each(
        ops.HardSigmoid(node.stated.number("alpha", 0.2), node.stated.number("beta", 0.5))
    ),
    "clip": lambda node, x: x.clip(node.stated.number("a_min", 0.0), node.stated.number("a_max", 0.0)),
    "rsqrt": lambda node, x: x.each(ops.Sqrt(), ops.Reciprocal()),
    "square": lambda node, x: x * x,
    "slice_axis": _cut,
    "transpose": lambda node, x: x.transpose(node.stated.counts("axes")),
    "UpSampling": _upsample,
}
READERS: Mapping[str, Reader[Node]] = {
    **{name: reads(function) for name, function in _FUNCTIONS.items()},
    **{name: always(_IN_PLACE[name]) for name in ("relu", "sigmoid", "tanh")},
    **{name: always(op) for name, op in OF_NUMBERS.items()},
}

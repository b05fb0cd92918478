"""Reads Torch7's files: their arrays, and their modules as porter's ops. They are parsed, never run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.filegraph import functions, moves
from porter.filegraph.arithmetic import batch_norm, clip, combine, instance_norm
from porter.filegraph.builder import CELLS, Value
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Reference
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layers import both_sides, pool, read_graph, slopes
from porter.filegraph.names import expect_values
from porter.filegraph.reductions import log_softmax, reduce, softmax
from porter.filegraph.resampling import resize
from porter.filegraph.tensor import expression
from porter.filegraph.walk import Image, NodeWalk, Read, Reader, always, of_map, unary
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes
from porter.formats.torch7.network import IMAGE, Layer, Network, arrays_in, network_in, read_network
from porter.formats.torch7.objects import names_of_outputs, read_objects
from porter.graph import Op, ops
from porter.padding import Convention, Pads, Rounding, Size, Window

Walk = NodeWalk[Layer]

_CONVOLUTIONS = ("SpatialConvolution", "SpatialConvolutionMM", "SpatialDilatedConvolution")


def read_torch7(path: Path, outputs: Sequence[str] = (), size: Size | None = None) -> Checkpoint:
    """A model, or a table with one, as of a training's checkpoint; a table of arrays without modules is
    arrays only.

    Args:
        outputs: names of layers, at which the graph ends.
        size: rows and columns, which no such file states.

    Raises:
        FileError: it is damaged, or its modules do not fit each other.
        UsageError: the graph lacks one of `outputs`.
    """
    data = path.read_bytes()
    with refusing_damage(path):
        found = read_objects(data)
        module = network_in(found)
        if module is None:
            return Checkpoint(
                path, "torch7", None, arrays_in(found), ("read without a graph: it holds no module of nn's",)
            )
        return _checkpoint(path, data, read_network(module), outputs, size)


def _checkpoint(
    path: Path, data: bytes, network: Network, outputs: Sequence[str], size: Size | None
) -> Checkpoint:
    tensors, computed = (
        {name: array for name, array in network.tensors.items() if is_floating(array)},
        _computed(network),
    )
    layers = {layer.name: layer for layer in network.layers}
    expect_values(outputs, layers)
    channels = next(
        (layer.count("nInputPlane", 3) for layer in network.layers if layer.op in _CONVOLUTIONS), 3
    )
    known, image = {**tensors, **computed}, Image((IMAGE, 0), channels, size or (None, None), order="CHW")
    budget = most_bytes(len(data))
    flow = Dataflow(
        layers, {IMAGE, *layers}, Arrays(known), lambda layer: "", budget=budget, passed=network.passed
    )
    ends = [(name, 0) for name in outputs] or network.ends
    given = None if outputs else dict(zip(names_of_outputs(len(ends)), ends, strict=True))
    graph = read_graph(flow, image, known, READERS, ends, names=given)
    graph = replace(
        graph,
        evaluated={**computed, **graph.evaluated},
        traced=size is not None,
        definition=data,
        language="torch7",
    )
    return Checkpoint(path, "torch7", None, {**tensors, **graph.evaluated}, graph=graph)


def _computed(network: Network) -> NamedArrays:
    """The variances of norms that kept one over the deviation, and kernels by which a matrix was multiplied,
    in four axes.
    """
    found: dict[str, Array] = {}
    for layer in network.layers:
        if "running_std" in layer.tensors and "running_var" not in layer.tensors:
            deviation = network.tensors[layer.tensors["running_std"]].astype(np.float64)
            found[f"{layer.name}:variance"] = deviation**-2 - layer.number("eps", 1e-5)
        kernel = network.tensors.get(layer.tensors.get("weight", ""))
        if layer.op in _CONVOLUTIONS and kernel is not None and kernel.ndim == 2:
            found[f"{layer.name}:kernel"] = kernel.reshape(len(kernel), -1, *layer.pair("kH", "kW", 1))
    return found


def _held(walk: Walk, layer: Layer, axes: str) -> dict[str, Stored]:
    computed = f"{layer.name}:kernel"
    kernel = layer.tensors["weight"] if walk.flow.constants.declared(computed) is None else computed
    return {
        "kernel": Stored(kernel, axes),
        **({"bias": Stored(layer.tensors["bias"])} if "bias" in layer.tensors else {}),
    }


def _window(layer: Layer) -> tuple[Window, Pads]:
    window = Window(
        layer.pair("kH", "kW", 1), layer.pair("dH", "dW", 1), layer.pair("dilationH", "dilationW", 1)
    )
    return window, both_sides(layer.pair("padH", "padW", layer.count("padding", 0)))


def _conv(walk: Walk, layer: Layer) -> Read:
    window, pads = _window(layer)
    op = ops.Conv(layer.count("nOutputPlane", 0), window, Convention.stated(pads), layer.count("groups", 1))
    return walk.builder.conv(layer.name, walk.first(layer), op, _held(walk, layer, "OIHW"))


def _transposed(walk: Walk, layer: Layer) -> Read:
    window, (top, bottom, left, right) = _window(layer)
    if len(layer.inputs) != 1:
        raise Unsupported("to the size of another value")
    down, across = layer.pair("adjH", "adjW", 0)
    pads = top, bottom - down, left, right - across
    op = ops.ConvTranspose(layer.count("nOutputPlane", 0), window, pads, layer.count("groups", 1))
    return walk.builder.transposed(layer.name, walk.first(layer), op, _held(walk, layer, "OIHW"))


def _pool(walk: Walk, layer: Layer) -> Read:
    """With ceil_mode the last window is left out if it would begin in the pads behind
    (THNN/generic/SpatialMaxPooling.c).
    """
    window, pads = _window(layer)
    rounding: Rounding = "ceil" if layer.flag("ceil_mode") else "floor"
    if layer.op.endswith("MaxPooling"):
        return pool(walk, layer, "max", (window, pads), rounding)
    without = layer.stated.get("mode") == "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING"
    found = pool(
        walk, layer, "mean", (window, pads), rounding, layer.flag("count_include_pad", True) and not without
    )
    if layer.flag("divide", True):
        return found
    if any(pads) or rounding == "ceil":
        raise Unsupported("as a sum of windows that reach over the edge")
    return walk.builder.affine(f"{layer.name}:sum", found, (float(math.prod(window.kernel)),), (0.0,))


def _whole(walk: Walk, layer: Layer) -> Read:
    """SpatialAdaptive pools to one cell."""
    if layer.pair("H", "W", 1) != (1, 1):
        raise Unsupported("to more than one cell")
    function: ops.Function = "max" if "Max" in layer.op else "mean"
    return walk.builder.reduce(layer.name, walk.first(layer), function, CELLS)


def _dense(walk: Walk, layer: Layer) -> Read:
    units, _ = walk.flow.constants.declared(layer.tensors["weight"]) or (0, 0)
    return walk.builder.dense(layer.name, walk.first(layer), units, _held(walk, layer, "OI"))


def _norm(walk: Walk, layer: Layer) -> Read:
    """Without stored statistics those of the batch are meant."""
    variance = layer.tensors.get("running_var", f"{layer.name}:variance")
    if "running_mean" not in layer.tensors or walk.flow.constants.declared(variance) is None:
        raise Unsupported("with the statistics of the batch")
    roles = {"mean": layer.tensors["running_mean"], "variance": variance}
    roles |= {
        role: layer.tensors[name]
        for role, name in (("gamma", "weight"), ("beta", "bias"))
        if name in layer.tensors
    }
    sources: dict[str, Reference] = {role: (name, 0) for role, name in roles.items()}
    return batch_norm(
        walk, layer, layer.source, sources, layer.number("eps", 1e-5), layer.number("momentum", 0.1)
    )


def _instance_norm(walk: Walk, layer: Layer) -> Read:
    """fast-neural-style's."""
    roles: dict[str, Reference] = {"gamma": (layer.tensors["weight"], 0), "beta": (layer.tensors["bias"], 0)}
    return instance_norm(walk, layer, layer.source, roles, layer.number("eps", 1e-5))


def _shaved(walk: Walk, layer: Layer) -> Read:
    """fast-neural-style's: without so many rows and columns on each side."""
    cells = layer.count("size", 0)
    return moves.pad(walk, layer, layer.source, {2: (-cells, -cells), 3: (-cells, -cells)})


def _axis(walk: Walk, layer: Layer) -> int:
    """A place from 1 on; of one image's axes where `nInputDims` has one less than the value."""
    place, rank = layer.count("dimension", 1), len(walk.sizes(layer.source) or ())
    return place - 1 + (layer.count("nInputDims", 0) == rank - 1) if place > 0 else place


def _deep_concat(walk: Walk, layer: Layer) -> Read:
    """Maps along the channels; smaller ones get zeros around them, the odd cell behind."""
    values = walk.values(layer.inputs)
    cells = [
        value.shape[1:]
        for value in values
        if value.is_map and value.shape is not None and None not in value.shape
    ]
    if len(cells) < len(values):
        raise Unsupported("of maps of open sizes")
    rows, columns = (max(size[axis] or 0 for size in cells) for axis in (0, 1))
    padded = list[Value]()
    for place, (value, size) in enumerate(zip(values, cells, strict=True)):
        down, across = rows - (size[0] or 0), columns - (size[1] or 0)
        pads = (down // 2, down - down // 2, across // 2, across - across // 2)
        padded.append(walk.builder.pad(f"{layer.name}:{place}", value, pads))
    return walk.builder.concat(layer.name, *padded)


def _view(walk: Walk, layer: Layer) -> Read:
    """View and Reshape: sizes of one image, or with a -1 before others those of the batch."""
    sizes, known = layer.counts("size"), walk.known_sizes(layer.source)
    if not sizes:
        raise Unsupported("to no sizes")
    of_batch = sizes[0] == -1 and len(sizes) > 1 and not layer.count("numInputDims", 0)
    return moves.reshape(walk, layer, layer.source, [known[0], *(sizes[1:] if of_batch else sizes)])


def _pads(layer: Layer) -> dict[int, tuple[int, int]]:
    top, bottom, left, right = (layer.count(f"pad_{side}", 0) for side in "tblr")
    return {2: (top, bottom), 3: (left, right)}


def _padding(walk: Walk, layer: Layer) -> Read:
    """Cells before an axis, if it is below zero, or behind it."""
    cells, rank = layer.count("pad", 0), layer.count("nInputDim", 0)
    if layer.count("index", 1) != 1:
        raise Unsupported("within an axis")
    axis = layer.count("dim", 1) - 1 + (0 < rank < len(walk.sizes(layer.source) or ()))
    return moves.pad(
        walk, layer, layer.source, {axis: (max(-cells, 0), max(cells, 0))}, layer.number("value", 0.0)
    )


def _threshold(walk: Walk, layer: Layer) -> Read:
    least = layer.number("threshold", 1e-6)
    if least != layer.number("val", 0.0):
        raise Unsupported("to another number")
    return clip(walk, layer, layer.source, least, math.inf)


def _lrn(layer: Layer) -> Op:
    size, alpha = layer.count("size", 5), layer.number("alpha", 1e-4)
    return ops.LocalResponseNorm(size, alpha / size, layer.number("beta", 0.75), layer.number("k", 1.0))


def _upsample(layer: Layer) -> Op:
    return ops.Upsample(layer.count("scale_factor", 1), layer.count("scale_factor", 1))


def _bilinear(walk: Walk, layer: Layer) -> Read:
    """Between the corners (THNN/generic/SpatialUpSamplingBilinear.c)."""
    known, factor = walk.sizes(layer.source), layer.count("scale_factor", 0)
    if known is None or factor < 1:
        raise Unsupported("to a stated size")
    sizes = {place: known[place] * factor for place in (2, 3)}
    return resize(walk, layer, layer.source, ops.Resize("linear", coordinates="align_corners"), {}, sizes)


def _softplus(layer: Layer) -> Sequence[Op]:
    beta = layer.number("beta", 1.0)
    return (
        (ops.Softplus(),)
        if beta == 1
        else (ops.Affine((beta,), (0.0,)), ops.Softplus(), ops.Affine((1 / beta,), (0.0,)))
    )


def _dropout(layer: Layer) -> Op:
    """Of the first kind, which does not scale what it keeps in training."""
    return ops.Affine((1 - layer.number("p", 0.5),), (0.0,))


def _narrow(walk: Walk, layer: Layer) -> Read:
    start = layer.count("index", 1) - 1
    return moves.cut(
        walk, layer, layer.source, {_axis(walk, layer): slice(start, start + layer.count("length", 1))}
    )


def _reduce(walk: Walk, layer: Layer) -> Read:
    function: ops.Function = "mean" if layer.op == "Mean" else "max"
    return reduce(walk, layer, layer.source, function, [_axis(walk, layer)], not layer.flag("squeeze", True))


_KINDS = {
    "CAddTable": "Add",
    "CSubTable": "Sub",
    "CMulTable": "Mul",
    "CDivTable": "Div",
    "CMaxTable": "Max",
    "CMinTable": "Min",
}
READERS: Mapping[str, Reader[Layer]] = {
    **dict.fromkeys(_KINDS, lambda walk, layer: combine(walk, layer, _KINDS[layer.op], layer.inputs)),
    **dict.fromkeys(_CONVOLUTIONS, _conv),
    **dict.fromkeys(("SpatialMaxPooling", "SpatialAveragePooling"), _pool),
    **dict.fromkeys(("SpatialAdaptiveMaxPooling", "SpatialAdaptiveAveragePooling"), _whole),
    **dict.fromkeys(("SpatialBatchNormalization", "BatchNormalization"), _norm),
    **dict.fromkeys(
        ("Concat", "JoinTable"),
        lambda walk, layer: moves.concat(walk, layer, layer.inputs, _axis(walk, layer)),
    ),
    **dict.fromkeys(("View", "Reshape"), _view),
    **dict.fromkeys(("SoftMax", "SpatialSoftMax"), lambda walk, layer: softmax(walk, layer, layer.source, 1)),
    "LogSoftMax": lambda walk, layer: log_softmax(walk, layer, layer.source, 1),
    **dict.fromkeys(("Mean", "Max"), _reduce),
    **dict.fromkeys(("Dropout", "SpatialDropout"), unary(_dropout)),
    "InstanceNormalization": _instance_norm,
    "ShaveImage": _shaved,
    "SpatialFullConvolution": _transposed,
    "Linear": _dense,
    "DepthConcat": _deep_concat,
    "PReLU": lambda walk, layer: slopes(walk, layer, layer.tensors["weight"]),
    "ReLU": always(ops.Relu()),
    "ReLU6": always(ops.Relu6()),
    "Threshold": _threshold,
    "HardTanh": lambda walk, layer: clip(
        walk, layer, layer.source, layer.number("min_val", -1.0), layer.number("max_val", 1.0)
    ),
    "LeakyReLU": unary(lambda layer: ops.LeakyRelu(layer.number("negval", 0.01))),
    "ELU": unary(lambda layer: ops.Elu(layer.number("alpha", 1.0))),
    "SoftPlus": unary(_softplus),
    "SoftSign": always(ops.Softsign()),
    "Sigmoid": always(ops.Sigmoid()),
    "Tanh": always(ops.Tanh()),
    "Square": expression(functions.square),
    "MulConstant": unary(lambda layer: ops.Affine((layer.number("constant_scalar", 1.0),), (0.0,))),
    "AddConstant": unary(lambda layer: ops.Affine((1.0,), (layer.number("constant_scalar", 0.0),))),
    "SpatialZeroPadding": lambda walk, layer: moves.pad(walk, layer, layer.source, _pads(layer)),
    "SpatialReflectionPadding": lambda walk, layer: moves.extend(
        walk, layer, layer.source, _pads(layer), "reflect"
    ),
    "SpatialReplicationPadding": lambda walk, layer: moves.extend(
        walk, layer, layer.source, _pads(layer), "edge"
    ),
    "Padding": _padding,
    "SpatialCrossMapLRN": of_map(_lrn),
    "SpatialUpSamplingNearest": of_map(_upsample),
    "SpatialUpSamplingBilinear": _bilinear,
    "Narrow": _narrow,
}

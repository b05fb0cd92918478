"""Reads toy models: their tensors, and their layers as porter's ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.errors import FileError
from porter.filegraph.arithmetic import batch_norm
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Reference
from porter.filegraph.file_graph import FileGraph, Stored
from porter.filegraph.layers import read_graph
from porter.filegraph.places import Reading
from porter.filegraph.walk import Image, NodeWalk, Read, Reader, always, of_map, unary
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes, read_json
from porter.formats.npz.read import read_npz
from porter.graph import (
    Add,
    ConcatChannels,
    Conv,
    ConvTranspose,
    Flatten,
    GlobalAvgPool,
    LeakyRelu,
    LocalResponseNorm,
    Op,
    Relu,
    Relu6,
    Sigmoid,
    Softmax,
    Tanh,
    Upsample,
)
from porter.padding import LOWEST, Convention, Window

IMAGE = "image"


@dataclass(frozen=True)
class Layer(Reading):
    """A layer of the file.

    Attributes:
        inputs: what it reads: layers, then its tensors.
        stated: its attributes.
    """

    name: str
    op: str
    inputs: tuple[Reference, ...]
    stated: Mapping[str, Any]


def read_toy(path: Path) -> Checkpoint:
    """A toy model.

    Raises:
        FileError: it is damaged, or its tensors are not beside it.
    """
    text, beside = path.read_bytes(), path.with_suffix(".npz")
    if not beside.is_file():
        raise FileError(
            f"its tensors are not beside it: there is no {beside.name}",
            where=str(path),
            next="fetch both files",
        )
    tensors = read_npz(beside).tensors
    with refusing_damage(path):
        stated = read_json(text)
        layers = [
            Layer(
                each["name"],
                each["kind"],
                tuple((name, 0) for name in (*each["from"], *each.get("weights", ()))),
                each,
            )
            for each in stated["layers"]
        ]
        graph = _graph(stated, layers, tensors, most_bytes(len(text)))
    graph = replace(graph, definition=text, language="toy", resizable=True)
    return Checkpoint(path, "toy", None, tensors, graph=graph, files=(path, beside))


def _graph(
    stated: Mapping[str, Any], layers: list[Layer], tensors: Mapping[str, Any], budget: int
) -> FileGraph:
    image, last = stated["image"], stated["layout"] == "NHWC"
    live, rows_and_columns = {IMAGE, *(layer.name for layer in layers)}, (image["size"][0], image["size"][1])
    flow = Dataflow(
        {layer.name: layer for layer in layers}, live, Arrays(tensors), lambda layer: layer.op, budget=budget
    )
    given = Image((IMAGE, 0), image["channels"], rows_and_columns, order="HWC" if last else "CHW")
    graph = read_graph(flow, given, tensors, READERS, ((name, 0) for name in stated["outputs"]))
    return replace(graph, output_names=tuple(stated["outputs"]))


def _window(layer: Layer, sides: tuple[int, int]) -> tuple[Window, Convention]:
    stride, dilation = layer.stated.get("stride", 1), layer.stated.get("dilation", 1)
    top, bottom, left, right = layer.stated.get("pads", (0, 0, 0, 0))
    convention = (
        Convention("explicit", (top, bottom, left, right))
        if any((top, bottom, left, right))
        else Convention()
    )
    return Window(sides, (stride, stride), (dilation, dilation)), convention


def _held(layer: Layer, axes: str) -> dict[str, Stored]:
    """A kernel, and a bias if the layer names one."""
    names = [name for name, _ in layer.inputs[1:]]
    return {"kernel": Stored(names[0], axes)} | ({"bias": Stored(names[1])} if len(names) > 1 else {})


def _conv(walk: NodeWalk[Layer], layer: Layer) -> Read:
    filters, _, *sides = walk.flow.constants.declared(layer.inputs[1][0]) or ()
    window, convention = _window(layer, (sides[0], sides[1]))
    op = Conv(filters, window, convention, layer.stated.get("groups", 1))
    return walk.builder.conv(layer.name, walk.first(layer), op, _held(layer, "OIHW"))


def _deconv(walk: NodeWalk[Layer], layer: Layer) -> Read:
    """Its kernel is that of the convolution that it is the gradient of."""
    _, width, *sides = walk.flow.constants.declared(layer.inputs[1][0]) or ()
    window, groups = _window(layer, (sides[0], sides[1]))[0], layer.stated.get("groups", 1)
    top, bottom, left, right = layer.stated.get("pads", (0, 0, 0, 0))
    op = ConvTranspose(groups * width, window, (top, bottom, left, right), groups)
    return walk.builder.transposed(layer.name, walk.first(layer), op, _held(layer, "OIHW"))


def _pool(walk: NodeWalk[Layer], layer: Layer) -> Read:
    side, largest = layer.stated["side"], layer.op == "max_pool"
    window, convention = _window(layer, (side, side))
    convention = replace(convention, rounding="ceil" if layer.stated.get("ceil") else "floor")
    convention = (
        replace(convention, fill=LOWEST) if largest else replace(convention, average=layer.stated["divisor"])
    )
    return walk.builder.pool(layer.name, walk.first(layer), "max" if largest else "mean", window, convention)


def _norm(walk: NodeWalk[Layer], layer: Layer) -> Read:
    source, *held = layer.inputs
    tensors = dict(zip(("mean", "variance", "gamma", "beta"), held, strict=True))
    return batch_norm(walk, layer, source, tensors, layer.stated["epsilon"])


def _dense(walk: NodeWalk[Layer], layer: Layer) -> Read:
    units, _ = walk.flow.constants.declared(layer.inputs[1][0]) or ()
    return walk.builder.dense(layer.name, walk.first(layer), units, _held(layer, "OI"))


def _flatten(walk: NodeWalk[Layer], layer: Layer) -> Read:
    """The numbers of a map in the order in which the file has them."""
    _, rows, columns = walk.first(layer).shape or (None, None, None)
    return walk.builder.add(
        layer.name, Flatten(rows or 1, columns or 1, walk.builder.order), walk.first(layer)
    )


def _op(op: Op) -> Reader[Layer]:
    return lambda walk, layer: walk.builder.add(layer.name, op, *walk.values(layer.inputs))


def _lrn(layer: Layer) -> Op:
    size, stated = layer.stated["size"], layer.stated
    return LocalResponseNorm(size, stated["alpha"] / size, stated["beta"], stated["bias"])


READERS: Mapping[str, Reader[Layer]] = {
    "conv": _conv,
    "deconv": _deconv,
    "max_pool": _pool,
    "average_pool": _pool,
    "norm": _norm,
    "dense": _dense,
    "flatten": _flatten,
    "lrn": of_map(_lrn),
    "upsample": of_map(lambda layer: Upsample(layer.stated["factor"], layer.stated["factor"])),
    "add": _op(Add()),
    "concat": _op(ConcatChannels()),
    "mean": _op(GlobalAvgPool()),
    "relu": always(Relu()),
    "relu6": always(Relu6()),
    "leaky_relu": unary(lambda layer: LeakyRelu(layer.stated["slope"])),
    "sigmoid": always(Sigmoid()),
    "tanh": always(Tanh()),
    "softmax": always(Softmax()),
}

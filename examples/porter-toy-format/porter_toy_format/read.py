"""Reads toy models: their tensors, and their layers as porter's ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import FileGraph, Stored
from porter.filegraph.layers import read_graph
from porter.filegraph.layouts.dims import fixed_sizes
from porter.filegraph.places import Reading
from porter.filegraph.readers import node_reader, op_reader
from porter.filegraph.reading import GraphInput, begin
from porter.filegraph.tensors.several import concat
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.value_names import NodeOutput
from porter.filegraph.walk import Reader
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes, read_json
from porter.formats.npz.read import read_npz
from porter.graph import (
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
    inputs: tuple[NodeOutput, ...]
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
    operators = Operators[Layer](lambda layer: layer.op)
    nodes = {layer.name: layer for layer in layers}
    flow = Dataflow(nodes, live, Arrays(tensors), operators, budget)
    given = GraphInput((IMAGE, 0), image["channels"], rows_and_columns, order="HWC" if last else "CHW")
    graph = read_graph(begin(flow, given, tensors), READERS, ((name, 0) for name in stated["outputs"]))
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


def _conv(layer: Layer, x: Tensor, kernel: Tensor, *bias: Tensor) -> Tensor:
    filters, _, *sides = fixed_sizes(kernel.sizes)
    window, convention = _window(layer, (sides[0], sides[1]))
    op = Conv(filters, window, convention, layer.stated.get("groups", 1))
    return x.conv(op, _held(layer, "OIHW"))


def _deconv(layer: Layer, x: Tensor, kernel: Tensor, *bias: Tensor) -> Tensor:
    """Its kernel is that of the convolution that it is the gradient of."""
    _, width, *sides = fixed_sizes(kernel.sizes)
    window, groups = _window(layer, (sides[0], sides[1]))[0], layer.stated.get("groups", 1)
    top, bottom, left, right = layer.stated.get("pads", (0, 0, 0, 0))
    op = ConvTranspose(groups * width, window, (top, bottom, left, right), groups, bool(bias))
    return x.apply_op(op, **_held(layer, "OIHW"))


def _pool(layer: Layer, x: Tensor) -> Tensor:
    side, largest = layer.stated["side"], layer.op == "max_pool"
    window, convention = _window(layer, (side, side))
    convention = replace(convention, rounding="ceil" if layer.stated.get("ceil") else "floor")
    if largest:
        return x.pool("max", window, replace(convention, fill=LOWEST))
    return x.pool("mean", window, replace(convention, average=layer.stated["divisor"]))


def _norm(layer: Layer, x: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return x.batch_norm(layer.stated["epsilon"], mean=mean, variance=variance, gamma=gamma, beta=beta)


def _dense(layer: Layer, x: Tensor, kernel: Tensor, *bias: Tensor) -> Tensor:
    units, _ = fixed_sizes(kernel.sizes)
    return x.fully_connected(units, _held(layer, "OI"))


def _flatten(layer: Layer, x: Tensor) -> Tensor:
    """The numbers of a map in the order in which the file has them."""
    _, rows, columns = x.value.shape or (None, None, None)
    return x.apply_op(Flatten(rows or 1, columns or 1, x.walk.builder.order))


def _lrn(layer: Layer, x: Tensor) -> Tensor:
    size, stated = layer.stated["size"], layer.stated
    return x.apply_op(LocalResponseNorm(size, stated["alpha"] / size, stated["beta"], stated["bias"]))


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "conv": _conv,
    "deconv": _deconv,
    "max_pool": _pool,
    "average_pool": _pool,
    "norm": _norm,
    "dense": _dense,
    "flatten": _flatten,
    "lrn": _lrn,
    "upsample": lambda layer, x: x.apply_op(Upsample(layer.stated["factor"], layer.stated["factor"])),
    "add": lambda layer, x, other: x + other,
    "concat": lambda layer, *values: concat(values, values[0].walk.views.channels_place),
    "mean": lambda layer, x: x.apply_op(GlobalAvgPool()),
    "leaky_relu": lambda layer, x: x.apply_elementwise(LeakyRelu(layer.stated["slope"])),
}
PLAIN: Mapping[str, Op] = {
    "relu": Relu(),
    "relu6": Relu6(),
    "sigmoid": Sigmoid(),
    "tanh": Tanh(),
    "softmax": Softmax(),
}
READERS: Mapping[str, Reader[Layer]] = {
    **{kind: node_reader(function) for kind, function in FUNCTIONS.items()},
    **{kind: op_reader(op) for kind, op in PLAIN.items()},
}

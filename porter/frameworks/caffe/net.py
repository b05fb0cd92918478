"""A plan as a net: its text, and what its blobs hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import GraphError, MappingError, PaddingError, PorterError
from porter.filegraph.names import Names
from porter.frameworks import Tensors
from porter.frameworks.caffe.maker import Layer, LayerMaker, Trained, plain
from porter.frameworks.caffe.sites import windowed
from porter.frameworks.caffe.spellings import PLAIN, norm_name
from porter.graph import INPUT, AvgPool, BatchNorm, Conv, Graph, MaxPool, Node, shapes, tensor_shapes
from porter.graph.ops import Axes
from porter.graph.plan import Plan
from porter.padding import ANY, Size


@dataclass(frozen=True)
class Net:
    """Layers in the order in which Caffe runs them.

    Attributes:
        image: the name of the input.
        values: the name of the value of each path of the graph.
    """

    layers: tuple[Layer, ...]
    image: str
    channels: int
    axes: tuple[int | None, ...]
    values: Mapping[str, str]

    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """The net for one image of `size` (rows and columns); it states none where that is open.

        Args:
            about: facts, which stand in its first lines.
        """
        facts = [f"# {name}: {' '.join(fact.split())}" for name, fact in (about or {}).items()]
        lines = [layer.text for layer in self.layers]
        taken = self.axes or (self.channels, *size)
        dims = " ".join(f"dim: {n}" for n in (1, *taken))
        shape = "" if None in taken else f" input_param {{ shape {{ {dims} }} }}"
        image = f'layer {{ name: "{self.image}" type: "Input" top: "{self.image}"{shape} }}'
        return "\n".join([*facts, f'name: "{plain((about or {}).get("porter.variant", "port"))}"', image, *lines]) + "\n"

    def blobs(self, tensors: Tensors, kind: np.dtype[Any]) -> list[list[Array]]:
        """Those of each layer, in the number type `kind`.

        Raises:
            MappingError: the tensors lack one of the graph's.
        """
        try:
            return [[_filled(blob, tensors).astype(kind, copy=False) for blob in layer.blobs] for layer in self.layers]
        except KeyError as error:
            raise MappingError("the tensors lack one of the graph's", where=str(error)) from None


def make_net(plan: Plan) -> Net:
    """The net of a plan.

    Raises:
        GraphError, PaddingError: Caffe has no layers for an op; `where` is its path.
    """
    net, refused = _made(plan)
    if refused:
        raise refused[0]
    return net


def refusals(plan: Plan) -> Sequence[PorterError]:
    """See porter.frameworks.Destination."""
    return _made(plan)[1]


def _made(plan: Plan) -> tuple[Net, list[PorterError]]:
    """The net without what Caffe has no layers for, and the errors of these ops."""
    graph, refused = plan.graph, list[PorterError]()
    values, taken = _names(graph)
    maker = LayerMaker(shapes(graph, plan.only_size or ANY), tensor_shapes(graph), taken, values)
    for node in graph.nodes:
        try:
            _add(maker, node, plan)
        except (GraphError, PaddingError) as error:
            refused.append(error)
    return Net(tuple(maker.layers), values[INPUT], graph.channels, graph.axes, values), refused


def _add(maker: LayerMaker, node: Node, plan: Plan) -> None:
    op = node.op
    if any(isinstance(maker.shapes[path], Axes) for path in (node.path, *node.inputs)):
        raise GraphError("Caffe's layers take maps and features, not arrays of other axes", where=node.path)
    if isinstance(op, Conv | MaxPool | AvgPool):
        windowed(maker, node, op, plan.realisations[node.path])
    elif type(op) in PLAIN:
        PLAIN[type(op)](maker, node, op)
    else:
        raise GraphError(f"Caffe has no layer for {op.words}", where=node.path)


def _names(graph: Graph) -> tuple[dict[str, str], Names]:
    """The names of the values of paths and of the layers that only normalise, by these, and all names that are taken."""
    taken = Names()
    values = {INPUT: taken.take("data")}
    values |= {node.path: taken.take(plain(node.path)) for node in graph.nodes}
    norms = [norm_name(node.path) for node in graph.nodes if isinstance(node.op, BatchNorm)]
    return values | {name: taken.take(plain(name)) for name in norms}, taken


def fillings(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """The blobs that the source lacks, with the number that changes nothing: what divides a norm's statistics, a scale of 1."""
    values, _ = _names(graph)
    norms = [node for node in graph.nodes if isinstance(node.op, BatchNorm)]
    found = {}
    for node in norms:
        assert isinstance(node.op, BatchNorm)
        scaled = node.op.scale or node.op.center
        found[f"{values[norm_name(node.path) if scaled else node.path]}/scale_factor"] = 1
        if node.op.center and not node.op.scale:
            found[f"{values[node.path]}/scale"] = 1
    return found


def _filled(blob: Trained | Array, tensors: Tensors) -> Array:
    if not isinstance(blob, Trained):
        return blob
    tensor = tensors[blob.path][blob.role]
    top, bottom, left, right = blob.amid
    return np.pad(tensor, [(0, 0), (0, 0), (top, bottom), (left, right)]) if any(blob.amid) else tensor


def read_back(layers: Sequence[Layer], stored: Mapping[str, Sequence[Array]], graph: Graph) -> dict[str, dict[str, Array]]:
    """The canonical tensors in the blobs of a net, by layer.

    Raises:
        MappingError: one is missing, or has another shape, or a kernel that stands amid zeros does not.
    """
    wanted, found = tensor_shapes(graph), dict[str, dict[str, Array]]()
    for layer in layers:
        held = stored.get(layer.name, ())
        for place, blob in enumerate(layer.blobs):
            name = f"{layer.name}/{place}"
            if place >= len(held):
                raise MappingError("expected a blob, there is none", where=name)
            if not isinstance(blob, Trained):
                if not np.array_equal(held[place], blob.astype(held[place].dtype)):
                    raise MappingError("expected the constants that porter writes, got other numbers", where=name)
                continue
            shape, (top, bottom, left, right) = wanted[blob.path][blob.role], blob.amid
            array = cut = held[place]
            if any(blob.amid):
                cut = array[:, :, top : array.shape[2] - bottom, left : array.shape[3] - right]
            if cut.shape != shape or np.count_nonzero(cut) != np.count_nonzero(array):
                raise MappingError(f"expected a tensor of {shape} amid zeros {blob.amid}, got {array.shape}", where=name)
            found.setdefault(blob.path, {})[blob.role] = cut
    return {path: {role: found[path][role] for role in roles} for path, roles in wanted.items()}

"""A port as its destination's stock class: whether the class computes the source's function, and the tensors
under its names.

Shapes do not show it. Torchvision's resnet50 loads Keras's weights without an error, strides at other
convolutions and answers wrongly. So the graph that the stock class computes, as the recipe has it, is
compared with the source's node by node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import UsageError
from porter.base.options import STOCK
from porter.frameworks import Destination, Tensors
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph, Op, ops, tensor_shapes
from porter.graph.difference import site_differences
from porter.graph.folding import absorb_biases, only_readers
from porter.padding import Site, Size
from porter.recipe import Member, NodeNames, expand, layer_names
from porter.recipe.transforms import undo_transforms
from porter.recipe.zoo_names import tensor_names
from porter.zoos.implementation import StockClass, StockLibrary, StockModel

FILLINGS: Mapping[str, int] = {"bias": 0, "gamma": 1, "beta": 0, "batches": 0}
"""What a stock class may have in addition to the source's tensors, with the number that changes nothing."""


@dataclass(frozen=True)
class Stock:
    """A source's graph and canonical tensors as the stock class has them.

    Attributes:
        zoo: whose function the class computes.
        builder: the class.
        layers: its layers' names and transforms, by path.
        absorbed: path of each norm whose mean took in a bias that the class lacks, to the layer that had it.
    """

    zoo: str
    builder: StockClass
    graph: Graph
    tensors: Tensors
    layers: NodeNames
    absorbed: Mapping[str, str]


def as_stock(
    member: Member,
    libraries: Mapping[str, StockLibrary],
    model: StockModel,
    graph: Graph,
    tensors: Tensors,
    size: Size,
) -> Stock:
    """Return the source as the class that a library has for the variant, or one of its classes, by zoo.

    If the class lacks a bias before a norm, the bias goes into that norm's mean, in float64; a bias that the
    source lacks is 0.

    Args:
        size: the input size at which the port is right; ANY for every size.

    Raises:
        UsageError: there is no such class, the file has no head, or the function differs; it names where and
            how.
    """
    if not model.classes:
        raise UsageError(
            "a stock class has a head, and the file has none",
            where=str(STOCK),
            next=f"convert without {STOCK}",
        )
    if any(rule.tensor is not None for rule in member.zoo.names):
        message = (
            f"porter writes no stock class of {member.variant}: its tokens and positions are numbers "
            "that no layer holds"
        )
        raise UsageError(message, where=str(STOCK), next=f"convert without {STOCK}")
    refusals: list[tuple[int, UsageError]] = []
    for zoo, library in libraries.items():
        try:
            builder = library.stock_class(model, size)
        except UsageError as error:
            refusals.append((len(graph.nodes), error))
            continue
        stock_member = member.recipe.member(member.variant, zoo)
        stock_graph = expand(stock_member, {"classes": model.classes, **builder.options})
        sites = [*_site_differences(graph, stock_graph, size)]
        numbers = [*_number_differences(graph, stock_graph)]
        if not sites and not numbers:
            absorbed = _absorbable(graph, stock_graph)
            nodes = tuple(
                replace(node, op=_like(node.op, stock_graph.by_path[node.path].op)) for node in graph.nodes
            )
            names = layer_names(stock_member, stock_graph)
            tensors = absorb_biases(tensors, absorbed)
            return Stock(zoo, builder, replace(graph, nodes=nodes), tensors, names, absorbed)
        shapes_fit = _kernels(graph) == _kernels(stock_graph)
        refusals.append((len(sites) + len(numbers), _refusal(builder.name, sites, numbers, shapes_fit)))
    # of several classes, the one that differs least
    _, least = min(refusals, key=lambda refusal: refusal[0])
    raise least


def norms_epsilon(graph: Graph) -> float | None:
    """Return the epsilon of all batch norms, if they have one in common; otherwise None."""
    epsilons = {node.op.epsilon for node in graph.nodes if isinstance(node.op, ops.BatchNorm)}
    return epsilons.pop() if len(epsilons) == 1 else None


def stock_arrays(
    framework: Destination, stock: Stock, tensors: Tensors, dtype: Dtype
) -> tuple[dict[str, Array], dict[str, int]]:
    """Return all tensors of the stock class by its names and in its axis order, and, by name, the number that
    some were filled with.

    Args:
        tensors: `stock`'s, in the port's type.
    """
    dialect = get_dialect(framework.NAME)
    arrays: dict[str, Array] = {}
    filled: dict[str, int] = {}
    for path, roles in tensor_shapes(stock.graph).items():
        node, layer = stock.graph.by_path[path], stock.layers[path]
        for role, (name, *_) in tensor_names(dialect, stock.graph, path, layer).items():
            array = tensors[path].get(role)
            if array is None:
                filled[name] = FILLINGS[role]
                # The batches that a norm has seen are no part of the graph: a whole number without axes.
                array = np.full(roles.get(role, ()), filled[name], np.float32 if role in roles else np.int64)
            array = undo_transforms(layer.transforms, role, cast(array, dtype, name))
            arrays[name] = dialect.from_canonical(stock.graph, node, role, array)
    return arrays, filled


def _like(op: Op, stock_op: Op) -> Op:
    """Return the source's op with the tensors that the stock class's op has: its bias, or its scale and
    offset. Other ops are returned as they are.
    """
    if isinstance(op, ops.Conv | ops.Dense) and isinstance(stock_op, ops.Conv | ops.Dense):
        return replace(op, bias=stock_op.bias)
    if isinstance(op, ops.BatchNorm) and isinstance(stock_op, ops.BatchNorm):
        return replace(op, scale=stock_op.scale, center=stock_op.center)
    return op


def _absorbable(graph: Graph, stock_graph: Graph) -> dict[str, str]:
    """Return the norms that can take in a bias, each with the layer before it: the norm is the layer's only
    reader, and the stock class has no bias there.
    """
    return {
        norm: layer for layer, norm in only_readers(graph).items() if _loses_bias(layer, graph, stock_graph)
    }


def _loses_bias(path: str, graph: Graph, stock_graph: Graph) -> bool:
    """Return whether the stock class has no bias at a node that has one."""
    if path not in graph.by_path or path not in stock_graph.by_path:
        return False
    op, stock_op = graph.by_path[path].op, stock_graph.by_path[path].op
    return bool(getattr(op, "bias", False) and not getattr(stock_op, "bias", False))


def _refusal(
    name: str, sites: Sequence[tuple[str, str]], numbers: Sequence[tuple[str, str]], fits: bool
) -> UsageError:
    """Return the error that a stock class computes another function: it names the first structure or padding
    site and the first number that differ.

    Args:
        sites, numbers: the paths that differ, each with the difference in words.
        fits: all shapes are the same.
    """
    where, text = (sites or numbers)[0]
    if sites and numbers:
        path, number = numbers[0]
        text += f"; {path} {number}"
    count = len(sites) + len(numbers)
    if count > 1:
        text += f"; {count} differences in all"
    risk = "Not even the shapes would fit"
    if fits:
        risk = "The shapes would fit, strict loading would succeed and the answers would be wrong"
    message = f"{name} is another function: {text}. {risk}"
    return UsageError(message, where=where, next=f"convert without {STOCK}")


def _kernels(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {path: roles["kernel"] for path, roles in tensor_shapes(graph).items() if "kernel" in roles}


def _site_differences(graph: Graph, stock_graph: Graph, size: Size) -> Iterator[tuple[str, str]]:
    """Yield the paths at which the graphs differ in structure, strides, pads or averages, each with both
    sides in words.
    """
    sites = {difference.path: difference for difference in site_differences(graph, stock_graph, size)}
    only_one_has = graph.by_path.keys() ^ stock_graph.by_path.keys()
    for node in graph.nodes:
        stock_node = stock_graph.by_path.get(node.path)
        if stock_node is None or type(stock_node.op) is not type(node.op):
            stock_step = stock_node.op_name if stock_node else "no such step"
            yield node.path, f"{node.op_name} in the source, {stock_step} in the stock class"
            continue
        # A reader of a step that one side lacks reads another step there; the error names the missing step
        # itself.
        if stock_node.inputs != node.inputs and only_one_has.isdisjoint((*node.inputs, *stock_node.inputs)):
            inputs, stock_inputs = ", ".join(node.inputs), ", ".join(stock_node.inputs)
            yield node.path, f"reads {inputs} in the source, {stock_inputs} in the stock class"
        # `one` is the window and pads in the source, `other` those in the stock class.
        difference = sites.get(node.path)
        if difference is not None and difference.only_pads:
            size_text = "every size" if difference.size[0] is None else "{}x{}".format(*difference.size)
            pads = f"pads '{difference.one}' in the source, '{difference.other}' in the stock class"
            yield node.path, f"{pads}, not the same for an input of {size_text}"
        elif difference is not None:
            yield (
                node.path,
                f"{_window(difference.one)} in the source, {_window(difference.other)} in the stock class",
            )
    for node in stock_graph.nodes:
        if node.path not in graph.by_path:
            yield node.path, f"no such step in the source, {node.op_name} in the stock class"
    if graph.output != stock_graph.output:
        yield graph.output, f"is the source's output, {stock_graph.output} the stock class's"


def _number_differences(graph: Graph, stock_graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the paths at which the ops' other attributes differ, each with both sides in words, without those
    that the stock class's tensors can compensate: a bias that the norm behind it can take, or a scale or
    offset that the source lacks.
    """
    absorbed = set(_absorbable(graph, stock_graph).values())
    for node in graph.nodes:
        op = node.op
        stock_node = stock_graph.by_path.get(node.path)
        stock_op = stock_node.op if stock_node is not None else None
        if type(op) is not type(stock_op):
            continue
        if isinstance(op, ops.BatchNorm) and isinstance(stock_op, ops.BatchNorm):
            if op.epsilon != stock_op.epsilon:
                yield (
                    node.path,
                    f"epsilon {op.epsilon!r} in the source, {stock_op.epsilon!r} in the stock class",
                )
            for part in ("scale", "center"):
                if getattr(op, part) and not getattr(stock_op, part):
                    yield node.path, f"{part} in the source, none in the stock class"
        elif isinstance(op, ops.Conv) and isinstance(stock_op, ops.Conv):
            if (op.filters, op.groups) != (stock_op.filters, stock_op.groups):
                yield node.path, f"{_filters(op)} in the source, {_filters(stock_op)} in the stock class"
        elif not isinstance(op, ops.MaxPool | ops.AvgPool | ops.Dense) and op != stock_op:
            yield node.path, f"{op} in the source, {stock_op} in the stock class"
        has_weights = isinstance(op, ops.Conv | ops.Dense)
        if has_weights and _loses_bias(node.path, graph, stock_graph) and node.path not in absorbed:
            yield (
                node.path,
                "a bias in the source, none in the stock class, and its only reader is not a norm",
            )


def _filters(op: ops.Conv) -> str:
    return f"{op.filters} filters in {op.groups} groups" if op.groups > 1 else f"{op.filters} filters"


def _window(site: Site) -> str:
    """Return a window in words: `3x3 with stride 2`."""
    rows, columns = site.window.kernel
    row_stride, column_stride = site.window.stride
    text = f"{rows}x{columns} with stride {row_stride}"
    if row_stride != column_stride:
        text += f"x{column_stride}"
    if site.window.dilation != (1, 1):
        text += f" and dilation {site.window.dilation}"
    return text

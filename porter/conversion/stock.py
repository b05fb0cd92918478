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
        size: the input size at which the port is right; None for every size.

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
        stocked = member.recipe.member(member.variant, zoo)
        theirs = expand(stocked, {"classes": model.classes, **builder.options})
        differences = [*_site_differences(graph, theirs, size)], [*_number_differences(graph, theirs)]
        if not any(differences):
            absorbed = _absorbable(graph, theirs)
            nodes = tuple(
                replace(node, op=_like(node.op, theirs.by_path[node.path].op)) for node in graph.nodes
            )
            names, tensors = layer_names(stocked, theirs), absorb_biases(tensors, absorbed)
            return Stock(zoo, builder, replace(graph, nodes=nodes), tensors, names, absorbed)
        refusals.append(
            (
                sum(map(len, differences)),
                _refusal(builder.name, *differences, _kernels(graph) == _kernels(theirs)),
            )
        )
    # of several classes, the one that differs least
    raise min(refusals, key=lambda refusal: refusal[0])[1]


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


def _like(op: Op, theirs: Op) -> Op:
    """Return the source's op with the tensors that the stock class's op has: its bias, or its scale and
    offset. Other ops are returned as they are.
    """
    if isinstance(op, ops.Conv | ops.Dense) and isinstance(theirs, ops.Conv | ops.Dense):
        return replace(op, bias=theirs.bias)
    if isinstance(op, ops.BatchNorm) and isinstance(theirs, ops.BatchNorm):
        return replace(op, scale=theirs.scale, center=theirs.center)
    return op


def _absorbable(graph: Graph, theirs: Graph) -> dict[str, str]:
    """Return the norms that are the only readers of a layer whose bias the stock class lacks, to that
    layer.
    """
    return {norm: layer for layer, norm in only_readers(graph).items() if _loses_bias(layer, graph, theirs)}


def _loses_bias(path: str, graph: Graph, theirs: Graph) -> bool:
    """Return whether the stock class has no bias at a node that has one."""
    if path not in graph.by_path or path not in theirs.by_path:
        return False
    return bool(
        getattr(graph.by_path[path].op, "bias", False) and not getattr(theirs.by_path[path].op, "bias", False)
    )


def _refusal(
    name: str, sites: Sequence[tuple[str, str]], numbers: Sequence[tuple[str, str]], fits: bool
) -> UsageError:
    """Make the error that a stock class computes another function: it names the first structure or padding
    site and the first number that differ.

    Args:
        fits: all shapes are the same.
    """
    where, first = (sites or numbers)[0]
    then = f"; {numbers[0][0]} {numbers[0][1]}" if sites and numbers else ""
    count = len(sites) + len(numbers)
    more = f"; {count} differences in all" if count > 1 else ""
    risk = "The shapes would fit, strict loading would succeed and the answers would be wrong"
    message = (
        f"{name} is another function: {first}{then}{more}. "
        f"{risk if fits else 'Not even the shapes would fit'}"
    )
    return UsageError(message, where=where, next=f"convert without {STOCK}")


def _kernels(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {path: roles["kernel"] for path, roles in tensor_shapes(graph).items() if "kernel" in roles}


def _site_differences(graph: Graph, theirs: Graph, size: Size) -> Iterator[tuple[str, str]]:
    """Yield the paths at which the graphs differ in structure, strides, pads or averages, each with both
    sides in words.
    """
    sites = {found.path: found for found in site_differences(graph, theirs, size)}
    apart = graph.by_path.keys() ^ theirs.by_path.keys()
    for node in graph.nodes:
        other = theirs.by_path.get(node.path)
        if other is None or type(other.op) is not type(node.op):
            yield (
                node.path,
                (
                    f"{node.op_name} in the source, {other.op_name if other else 'no such step'} in the "
                    "stock class"
                ),
            )
            continue
        # A reader of a step that one side lacks reads another step there; the error names the missing step
        # itself.
        if other.inputs != node.inputs and apart.isdisjoint((*node.inputs, *other.inputs)):
            yield (
                node.path,
                f"reads {', '.join(node.inputs)} in the source, {', '.join(other.inputs)} in the stock class",
            )
        found = sites.get(node.path)
        if found is not None and found.only_pads:
            at = "every size" if found.size[0] is None else "{}x{}".format(*found.size)
            yield (
                node.path,
                (
                    f"pads '{found.one}' in the source, '{found.other}' in the stock class, not the same for "
                    f"an input of {at}"
                ),
            )
        elif found is not None:
            yield node.path, f"{_window(found.one)} in the source, {_window(found.other)} in the stock class"
    for node in theirs.nodes:
        if node.path not in graph.by_path:
            yield node.path, f"no such step in the source, {node.op_name} in the stock class"
    if graph.output != theirs.output:
        yield graph.output, f"is the source's output, {theirs.output} the stock class's"


def _number_differences(graph: Graph, theirs: Graph) -> Iterator[tuple[str, str]]:
    """Yield the paths at which the ops' other attributes differ, each with both sides in words, without those
    that the stock class's tensors can compensate: a bias that the norm behind it can take, or a scale or
    offset that the source lacks.
    """
    absorbed = set(_absorbable(graph, theirs).values())
    for node in graph.nodes:
        ours, other = node.op, theirs.by_path[node.path].op if node.path in theirs.by_path else None
        if type(ours) is not type(other):
            continue
        if isinstance(ours, ops.BatchNorm) and isinstance(other, ops.BatchNorm):
            if ours.epsilon != other.epsilon:
                yield (
                    node.path,
                    f"epsilon {ours.epsilon!r} in the source, {other.epsilon!r} in the stock class",
                )
            for part in ("scale", "center"):
                if getattr(ours, part) and not getattr(other, part):
                    yield node.path, f"{part} in the source, none in the stock class"
        elif isinstance(ours, ops.Conv) and isinstance(other, ops.Conv):
            if (ours.filters, ours.groups) != (other.filters, other.groups):
                yield node.path, f"{_filters(ours)} in the source, {_filters(other)} in the stock class"
        elif not isinstance(ours, ops.MaxPool | ops.AvgPool | ops.Dense) and ours != other:
            yield node.path, f"{ours} in the source, {other} in the stock class"
        if (
            isinstance(ours, ops.Conv | ops.Dense)
            and _loses_bias(node.path, graph, theirs)
            and node.path not in absorbed
        ):
            yield (
                node.path,
                "a bias in the source, none in the stock class, and its only reader is not a norm",
            )


def _filters(op: ops.Conv) -> str:
    return f"{op.filters} filters in {op.groups} groups" if op.groups > 1 else f"{op.filters} filters"


def _window(site: Site) -> str:
    window = site.window
    text = f"{window.kernel[0]}x{window.kernel[1]} with stride {window.stride[0]}"
    text += f"x{window.stride[1]}" if window.stride[0] != window.stride[1] else ""
    return text + (f" and dilation {window.dilation}" if window.dilation != (1, 1) else "")

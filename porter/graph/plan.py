"""The plan of a destination model: the graph, and the realisation of each padding site in the destination
framework.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from porter.base.errors import GraphError, PaddingError
from porter.base.options import INPUT_SIZE
from porter.graph.graph import Graph, Node, input_shapes, nonnegative_paths, shapes, site_of, with_own_tensors
from porter.graph.lowering import parts_of
from porter.graph.ops import (
    AdaptivePool,
    AsLarge,
    Attention,
    Concat,
    Flatten,
    MatMul,
    Merge,
    OfArray,
    Op,
    Rearrange,
    ReshapeStep,
    Resize,
    ResizeLike,
    Shape,
    is_map,
)
from porter.padding import ANY, Capabilities, Realisation, Size, realise


@dataclass(frozen=True)
class Plan:
    """A graph planned for one framework.

    Attributes:
        graph: the source's.
        realisations: by the path of each windowed node of `lowered`, its layers in the destination.
        only_size: the only input size (rows, columns) at which the graph and every pad are right; None if
            they are at every size.
        notes: by path, what code says at the node (porter.graph.left_out).
        usual_size: the size (rows, columns) that the source of a port was built for; None where no port
            states it.
        parts: by the path of each node whose op the destination lacks, the nodes that it is made of there, of
            which the last one has this path.
    """

    graph: Graph
    realisations: Mapping[str, Realisation]
    only_size: tuple[int, int] | None
    notes: Mapping[str, str] = field(default_factory=dict)
    usual_size: tuple[int, int] | None = None
    parts: Mapping[str, Sequence[Node]] = field(default_factory=dict)

    @property
    def fixed_by_pads(self) -> bool:
        """Whether a pad is right at one size only. If none is, an `only_size` is that of the maps that the
        layers take.
        """
        return not all(realisation.every_size for realisation in self.realisations.values())

    @cached_property
    def lowered(self) -> Graph:
        """The graph in the destination's own ops, as far as others can be made of these."""
        if not self.parts:
            return self.graph
        nodes = tuple(part for node in self.graph.nodes for part in self.parts.get(node.path, (node,)))
        return replace(self.graph, nodes=nodes)

    def origin(self, path: str) -> str:
        """Return the path of the node of `graph` that one of `lowered` belongs to."""
        origins = (origin for origin, parts in self.parts.items() if any(part.path == path for part in parts))
        return next(origins, path)


def taken_shapes(plan: Plan) -> dict[str, Shape]:
    """Return the shapes of the inputs that a planned graph takes, by path."""
    return input_shapes(plan.graph, plan.only_size or ANY)


def make_plan(graph: Graph, size: Size, capabilities: Capabilities) -> Plan:
    """Plan a graph for a destination: make the ops that it lacks of others, and decide how it says the pads
    of each windowed layer (the realisation of a site), for an input of `size` (rows, columns; if one is None,
    right at every size).

    Raises:
        PaddingError: a site has no exact form in the destination; `where` is its path.
        GraphError: a node does not take the map that it gets at this size, or `size` is free, and it takes
            maps of one size only.
    """
    size = ANY if None in size else size
    fixing_node = _first_fixing_node(graph, capabilities)
    if fixing_node is not None and size == ANY:
        raise GraphError(
            f"{fixing_node.op.words} fixes the input's size",
            where=fixing_node.path,
            next=f"give {INPUT_SIZE} the size that the model was trained at",
        )
    try:
        shape_of = shapes(graph, size)
        nonnegative = nonnegative_paths(graph)
        plan = Plan(graph, {}, None, parts=parts_of(graph, shape_of, capabilities.lacks))
        if plan.parts:
            shape_of = shapes(plan.lowered, size)
            nonnegative |= nonnegative_paths(plan.lowered)
    except GraphError as error:
        raise error.at(error.where, error.next or f"give {INPUT_SIZE} a size that the model takes") from None
    realisations = _realise_sites(plan, shape_of, nonnegative, capabilities)
    pads_hold_at_every_size = all(realisation.every_size for realisation in realisations.values())
    rows, columns = size
    only_size = None if rows is None or columns is None else (rows, columns)
    if fixing_node is None and pads_hold_at_every_size:
        only_size = None
    return replace(
        plan,
        graph=with_own_tensors(graph, _calls_padded_otherwise(graph, realisations)),
        realisations=realisations,
        only_size=only_size,
    )


def _realise_sites(
    plan: Plan, shape_of: Mapping[str, Shape], nonnegative: Collection[str], capabilities: Capabilities
) -> dict[str, Realisation]:
    """Return the realisation of each lowered site, by path. Raises PaddingError as `make_plan`."""
    realisations: dict[str, Realisation] = {}
    for node in plan.lowered.nodes:
        site = site_of(node.op)
        if site is None:
            continue
        _, rows, columns = shape_of[node.source]
        try:
            realisations[node.path] = realise(site, (rows, columns), capabilities, node.source in nonnegative)
        except PaddingError as error:
            raise error.at(plan.origin(node.path)) from None
    return realisations


def _calls_padded_otherwise(graph: Graph, realisations: Mapping[str, Realisation]) -> set[str]:
    """Return the paths of the nodes that call a layer again and need a layer of their own in the destination:
    there, the layer of the first call has other pads, because it pads maps of another size.
    """
    pads = {path: (realisation.native, realisation.skipped) for path, realisation in realisations.items()}
    return {node.path for node in graph.nodes if pads.get(node.path) != pads.get(node.holder)}


def _first_fixing_node(graph: Graph, capabilities: Capabilities) -> Node | None:
    """Return the first node that takes maps of one size only, although the input's size decides it: it
    flattens them, it joins them with values of a size that the input does not decide, its nearest cells
    depend on rounding at some sizes, or the destination rearranges values of one size only. None if there is
    none.
    """
    shape_of = shapes(graph, ANY)
    for node in graph.nodes:
        if _fixes_input_size(node.op, [shape_of[path] for path in node.inputs], capabilities):
            return node
    return None


def _fixes_input_size(op: Op, inputs: Sequence[Shape], capabilities: Capabilities) -> bool:
    """Return whether an op fixes the size of the graph's input in a destination: it takes values of one size
    only, although the input decides the size of one of `inputs` (None in a shape).
    """
    if isinstance(op, Flatten) or (isinstance(op, Resize) and not op.of_any_size):
        return None in inputs[0]
    if isinstance(op, ResizeLike):
        return False
    if isinstance(op, AdaptivePool | AsLarge):
        return None in inputs[0] and capabilities.lacks(op)
    if isinstance(op, Rearrange):
        if op.fixes_input_size(inputs[0]):
            return True
        if capabilities.open_reshapes:
            return False
        steps = op.steps(inputs[0], is_map(inputs[0]), channels_last=True)
        return any(isinstance(step, ReshapeStep) and step.sizes.count(-1) > 1 for step in steps)
    # what is left are ops that join values: an open size must not have to be the same as a known one, unless
    # that is 1 and stretched
    stretched = {1} if isinstance(op, Attention | Merge | OfArray | MatMul) else set()
    return any(
        None in sizes and set(sizes) - stretched != {None}
        for sizes in zip(*_sizes_to_match(op, inputs), strict=True)
    )


def _sizes_to_match(op: Op, inputs: Sequence[Shape]) -> Sequence[Sequence[int | None]]:
    """Return, for each value that an op joins, the sizes of those of its axes that have to be as large as the
    axes of the others.
    """
    if isinstance(op, OfArray):
        return (*inputs, op.sizes)
    if isinstance(op, Concat):
        return [tuple(size for axis, size in enumerate(shape) if axis != op.axis) for shape in inputs]
    if isinstance(op, Attention):
        return [shape[:-2] for shape in inputs]  # queries and keys may be of any numbers
    if isinstance(op, MatMul):
        first, second = inputs
        inner = second[-1] if op.transpose else second[-2]
        return (*first[:-2], first[-1]), (*second[:-2], inner)
    return inputs

"""Where two graphs of the same paths compute different functions: their windows, and everything else."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from numpy import float32

from porter.graph.graph import Graph, Node, nonnegative_paths, shapes, site_of
from porter.graph.ops.kinds import attributes
from porter.graph.ops.op import Op
from porter.padding import ANY, Convention, Site, Size, same_function


@dataclass(frozen=True)
class SiteDifference:
    """A site that two graphs have and whose values differ.

    Attributes:
        size: rows and columns of its input in the first graph; None where unknown.
    """

    path: str
    one: Site
    other: Site
    size: Size

    @property
    def only_pads(self) -> bool:
        """Whether kernel, stride and dilation are equal."""
        return self.one.window == self.other.window


def site_differences(one: Graph, other: Graph, size: Size) -> Iterator[SiteDifference]:
    """Yield the padding sites (convolutions and pools) that two graphs have at the same path, and whose
    windows or pads compute different functions for an input of `size` (rows, columns; None for all), in the
    order of `one`. Sites of different kinds are not compared.
    """
    shape_of = shapes(one, size)
    nonnegative = nonnegative_paths(one)
    for node in one.nodes:
        counterpart = other.by_path.get(node.path)
        site = site_of(node.op)
        other_site = None if counterpart is None else site_of(counterpart.op)
        if site is None or other_site is None or site.kind != other_site.kind or site == other_site:
            continue
        _, rows, columns = shape_of[node.source]
        size_of_map = rows, columns
        is_nonnegative = node.source in nonnegative
        is_same = site.window == other_site.window and same_function(
            site, other_site.convention, size_of_map, is_nonnegative
        )
        if not is_same:
            yield SiteDifference(node.path, site, other_site, size_of_map)


@dataclass(frozen=True)
class Difference:
    """What one kind of steps computes otherwise in two graphs.

    Attributes:
        what: `pads`, `windows`, an attribute such as `epsilon`, `op` or `inputs`.
        one, other: in words, in each graph; None where it lacks the step.
        paths: the steps, in the graph's order.
    """

    what: str
    one: str | None
    other: str | None
    paths: tuple[str, ...]

    def in_words(self, one: str, other: str) -> str:
        """Write the difference in one line, with the names of the two graphs `one` and `other`: `epsilon of
        bn1: 0.001 in keras, 1e-05 in torchvision`.
        """
        steps = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} steps, such as {self.paths[0]}"
        if self.one is None:
            return f"{self.other} at {steps} only in {other}"
        if self.other is None:
            return f"{self.one} at {steps} only in {one}"
        return f"{self.what} of {steps}: {self.one} in {one}, {self.other} in {other}"


def differences(one: Graph, other: Graph, ignoring: Collection[str] = ()) -> tuple[Difference, ...]:
    """Return what two graphs compute otherwise at some input size, like steps together; nothing if they are
    the same function of the same tensors.

    Args:
        ignoring: attributes that do not change what a trained network computes.
    """
    site_of_path = {site.path: site for site in site_differences(one, other, (None, None))}
    # by what differs, as it is in both graphs, the steps where it does
    paths_by_difference: dict[tuple[str, str | None, str | None], list[str]] = {}
    for path in dict.fromkeys((*one.by_path, *other.by_path)):
        for difference in _step_differences(one, other, path, site_of_path.get(path), ignoring):
            paths_by_difference.setdefault(difference, []).append(path)
    if one.outputs != other.outputs:
        outputs = "outputs", ", ".join(one.outputs), ", ".join(other.outputs)
        paths_by_difference[outputs] = [one.output]
    return tuple(
        Difference(what, in_one, in_other, tuple(paths))
        for (what, in_one, in_other), paths in paths_by_difference.items()
    )


def _step_differences(
    one: Graph, other: Graph, path: str, site: SiteDifference | None, ignoring: Collection[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield what differs at a step of two graphs, and how it is in each of them: `("epsilon", "0.001",
    "1e-05")`. It is the op alone if one graph lacks the step or has another op there, otherwise the inputs,
    the pads or the whole windows, and other attributes.

    Args:
        site: how the windows at the step differ; None if they do not, or it has none.
    """
    node, other_node = one.by_path.get(path), other.by_path.get(path)
    if node is None or other_node is None or type(node.op) is not type(other_node.op):
        yield "op", _op_text(node), _op_text(other_node)
        return
    # A reader of a step that one graph lacks reads another step there; the step itself is the difference.
    reads_lacking_step = any(
        (path in one.by_path) is not (path in other.by_path) for path in (*node.inputs, *other_node.inputs)
    )
    if node.inputs != other_node.inputs and not reads_lacking_step:
        yield "inputs", " and ".join(node.inputs), " and ".join(other_node.inputs)
    if site is not None:
        if site.only_pads:
            yield "pads", str(site.one), str(site.other)
        else:
            yield "windows", str(site.one.window), str(site.other.window)
    compared_as_site = {"window", "convention"} if site_of(node.op) else set()
    for name in attributes(type(node.op)).keys() - compared_as_site - set(ignoring):
        value, other_value = getattr(node.op, name), getattr(other_node.op, name)
        if not _is_same_value(value, other_value):
            yield name, _value_text(value), _value_text(other_value)


def _is_same_value(value: object, other: object) -> bool:
    """Return whether two attributes are the same; a file may store a number in float32."""
    if isinstance(value, float) and isinstance(other, float):
        return value == other or bool(float32(value) == float32(other))
    return value == other


def _value_text(value: object) -> str:
    """Write an attribute; a number to the digits of float32, in which a file may store it."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def _op_text(node: Node | None) -> str | None:
    """Write a node's op; None if there is no node."""
    return None if node is None else node.op_name.replace("_", " ")


def same_graph(graph_a: Graph, graph_b: Graph) -> bool:
    """Return whether two graphs have the same nodes, in any order, and pads that give the same values at
    every size.
    """

    def nodes(graph: Graph) -> dict[str, tuple[Op, tuple[str, ...]]]:
        """Return the ops, all with one convention of pads, and what they read, by path."""
        return {node.path: (_unpadded(node.op), node.inputs) for node in graph.nodes}

    return (
        nodes(graph_a) == nodes(graph_b)
        and graph_a.outputs == graph_b.outputs
        and not any(site_differences(graph_a, graph_b, ANY))
    )


def _unpadded(op: Op) -> Op:
    return replace(op, convention=Convention()) if hasattr(op, "convention") else op  # type: ignore[call-arg]

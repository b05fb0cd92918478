"""Where two graphs of the same paths lay their windows differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from porter.graph.graph import Graph, nonnegative_paths, shapes, site_of
from porter.padding import Site, Size, same_function


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
    """The sites of the same kind in both graphs whose windows, or whose pads, compute different functions for an input of `size`
    (rows, columns; None for all), in the order of `one`.
    """
    known, nonnegative = shapes(one, size), nonnegative_paths(one)
    for node in one.nodes:
        twin = other.by_path.get(node.path)
        site, padded = site_of(node.op), None if twin is None else site_of(twin.op)
        if site is None or padded is None or site.kind != padded.kind or site == padded:
            continue
        _, rows, columns = known[node.inputs[0]]
        same = site.window == padded.window and same_function(
            site, padded.convention, (rows, columns), node.inputs[0] in nonnegative
        )
        if not same:
            yield SiteDifference(node.path, site, padded, (rows, columns))

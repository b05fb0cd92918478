"""The pads that weights were trained with, where a zoo's own code has other pads (a recipe's `padding_as_trained`).

Keras's ResNet v2 is an example: slim trained its weights with SAME at the stem's pool, and Keras puts zeros on every side there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from porter.errors import UsageError
from porter.graph import AvgPool, Conv, Graph, MaxPool, Node, site_of
from porter.padding import Convention
from porter.recipe import Member, expand

if TYPE_CHECKING:
    from porter.port import Padding
    from porter.source.opened import Opened


def trained_conventions(member: Member) -> dict[str, Convention]:
    """By path, the convention of training at every site that the zoo's `padding_as_trained` names; empty where it names none."""
    rules = member.zoo.padding_as_trained
    if not rules:
        return {}
    sites = [(node.path, site) for node in expand(member, as_trained=True).nodes if (site := site_of(node.op))]
    return {path: site.convention for path, site in sites if any(rule.matches(path, site.kind) for rule in rules)}


def with_conventions(graph: Graph, conventions: Mapping[str, Convention]) -> Graph:
    """The graph with the conventions of `conventions` at its sites, and everything else as it is."""
    return replace(graph, nodes=tuple(_padded(node, conventions) for node in graph.nodes))


def _padded(node: Node, conventions: Mapping[str, Convention]) -> Node:
    if node.path not in conventions or not isinstance(node.op, Conv | MaxPool | AvgPool):
        return node
    return replace(node, op=replace(node.op, convention=conventions[node.path]))


def parse_padding(text: str, member: Member) -> Padding:
    """`shipped` or `trained`.

    Raises:
        UsageError: another word, or `trained` where the zoo records no pads of training that differ from the shipped ones.
    """
    if text == "trained":
        _expect_stated(member)
        return "trained"
    if text == "shipped":
        return "shipped"
    raise UsageError(f"'{text}' is no padding", where="--padding", next="write shipped or trained")


def _expect_stated(member: Member) -> dict[str, Convention]:
    found, shipped = trained_conventions(member), expand(member)
    if with_conventions(shipped, found) == shipped:
        raise UsageError(
            f"zoo '{member.zoo.name}' records no pads of training for {member.variant} that differ from the shipped ones",
            where=str(member.recipe.path),
            next="leave out --padding trained",
        )
    return found


def with_padding(opened: Opened, padding: Padding) -> Opened:
    """An opened source with the pads asked for: those of its own graph, or those of training at the sites that the recipe lists.

    A file that carries its graph keeps its other pads; a port that already has the pads of training is left as it is.

    Raises:
        UsageError: the zoo states no pads of training, or shipped pads are asked of a port that no longer has them.
    """
    if padding == opened.padding:
        return opened
    if padding == "shipped":
        raise UsageError(
            "this port has the pads that its weights were trained with, and not the shipped ones",
            where=opened.file.file,
            next="add --padding trained, or give the weights file that it was made from",
        )
    assert opened.member is not None, "only a recipe states pads of training"
    conventions = _expect_stated(opened.member)
    return replace(opened, padding=padding, graph=with_conventions(opened.graph, conventions), shipped=opened.graph)

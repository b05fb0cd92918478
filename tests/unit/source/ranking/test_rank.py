"""Only variants that could be the file are compared with it, and those that are left out would change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.graph import INPUT, Conv, Graph, Relu, tensor_shapes
from porter.recipe import expand, find_recipe, known_variants
from porter.source.fitting import candidate
from porter.source.ranking import rank as ranking
from porter.source.ranking.rank import LIKELY, OUT_OF_REACH, rank
from porter.source.ranking.score_bounds import limits_for
from tests.support.source.file_graphs import as_file


def graph_of(variant: str, zoo: str) -> Graph:
    recipe = find_recipe(variant)
    return expand(recipe.member(variant, zoo), {"classes": 7})


def checkpoint_of(graph: Graph, file: FileGraph | None = None) -> Checkpoint:
    """A graph's tensors under names that say nothing."""
    file = file or as_file(graph)
    shapes = tensor_shapes(graph)
    tensors = {
        stored.name: np.broadcast_to(np.float32(0), shapes[node.path][role])
        for node, layer in zip(graph.nodes, file.nodes, strict=False)
        for role, stored in layer.tensors.items()
    }
    return Checkpoint(Path("a file"), "memory", None, tensors, graph=file)


def wider_from_the_fourth(graph: Graph) -> Graph:
    """A network that no recipe has: from the fourth convolution on it has more filters."""
    later = [node.path for node in graph.nodes if isinstance(node.op, Conv)][3:]
    wider = {
        path: replace(op, filters=op.filters + 8)
        for path in later
        if isinstance(op := graph.by_path[path].op, Conv)
    }
    return replace(
        graph, nodes=tuple(replace(node, op=wider.get(node.path, node.op)) for node in graph.nodes)
    )


FILES: dict[str, Callable[[], Checkpoint]] = {
    "vgg11_bn": lambda: checkpoint_of(graph_of("vgg11_bn", "torchvision")),
    "tensors only": lambda: replace(checkpoint_of(graph_of("mobilenet_v2", "torchvision")), graph=None),
    "another network": lambda: checkpoint_of(wider_from_the_fourth(graph_of("vgg11", "torchvision"))),
}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("vgg11_bn", 5),
        pytest.param("vgg11_bn", 1, marks=pytest.mark.full),
        ("tensors only", 1),
        pytest.param("another network", 1, marks=pytest.mark.full),
    ],
)
def test_a_variant_that_is_left_out_would_change_nothing(
    name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside those that are found, every `step`-th is compared with the file."""
    file, (known, _) = FILES[name](), known_variants()
    limit = {(one.variant, one.zoo): limits_for(file)(one.fingerprint) for one in known if one.fingerprint}
    found = rank(file).matches
    near = {match.member.is_a for match in found}
    compared = [one for place, one in enumerate(known) if place % step == 0 or (one.variant, one.zoo) in near]
    monkeypatch.setattr(
        ranking,
        "known_variants",
        lambda recipes: ([replace(one, fingerprint=None) for one in compared], ()),
    )
    every = rank(file).matches
    assert all(match.score <= limit[match.member.is_a].score for match in every)
    best = every[0].score if every else 0
    assert [match.record() for match in found if match.score >= best - OUT_OF_REACH] == [
        match.record() for match in every if match.score >= best - OUT_OF_REACH
    ] or (best < LIKELY and not any(match.score >= limit[match.member.is_a].opened for match in every))
    assert len(found) < 12


def test_a_chain_without_weights_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [INPUT, *(f"relu{number}" for number in range(2000))]
    nodes = tuple(FileNode(name, Relu(), (before,)) for before, name in pairwise(names))
    monkeypatch.setattr(candidate, "align", None)
    graph = FileGraph(nodes, (names[-1],), 3, (8, 8))
    assert rank(Checkpoint(Path("a file"), "memory", None, {}, graph=graph)).matches == ()

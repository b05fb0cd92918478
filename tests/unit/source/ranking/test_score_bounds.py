"""The bounds that decide which variants a file is compared with are no lower than the scores, whatever an
exporter does to norms and names, and are low where the graphs or the names differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileNode, Stored
from porter.frameworks.dialects import get_dialect
from porter.graph import INPUT, BatchNorm, tensor_shapes
from porter.graph.folding import only_readers
from porter.recipe import expand, find_recipe, known_variants, layer_names
from porter.recipe.zoo_names import tensor_names
from porter.source.ranking.rank import OUT_OF_REACH, rank_variants
from porter.source.ranking.score_bounds import limits_for
from tests.support.source.file_graphs import as_file


def exported(
    variant: str,
    zoo: str,
    called: Callable[[str], str] = str,
    generation: str | None = None,
    numbered: Callable[[str], str] = str,
) -> Checkpoint:
    """A file with the zoo's names, whose norms are folded into the layers before them.

    Args:
        called: gives the name of a node of the file, from the layer's.
        numbered: gives the layer's name in the file, from the zoo's.
    """
    member = find_recipe(variant).member(variant, zoo)
    graph = expand(member)
    file, shapes = as_file(graph), tensor_shapes(graph)
    layers = {
        path: replace(layer, name=numbered(layer.name))
        for path, layer in layer_names(member, graph, generation).items()
    }
    folded = set(only_readers(graph).values())
    names, nodes, tensors = {INPUT: INPUT}, list[FileNode](), {}
    for node, layer in zip(graph.nodes, file.nodes, strict=True):
        inputs = tuple(names[name] for name in layer.inputs)
        if node.path in folded and isinstance(node.op, BatchNorm):
            names[layer.name] = inputs[0]
            continue
        names[layer.name] = called(layers[node.path].name) if node.path in layers else layer.name
        stored = {}
        for role, shape in shapes.get(node.path, {}).items():
            dialect = get_dialect(member.zoo.framework)
            name = tensor_names(dialect, graph, node.path, layers[node.path])[role][0]
            array = np.broadcast_to(np.float32(0), shape)
            tensors[name] = dialect.from_canonical(graph, node, role, array)
            stored[role] = Stored(name)
        nodes.append(FileNode(names[layer.name], node.op, inputs, stored))
    graph_of_file = replace(file, nodes=tuple(nodes), outputs=(names[file.outputs[0]],))
    return Checkpoint(Path("a file"), "memory", None, tensors, graph=graph_of_file)


def counted_on(name: str) -> str:
    """The name that Keras gives a layer in a program that has made others of its kind before."""
    return re.sub(r"(?<=^conv2d)$|(?<=_)\d+$", lambda number: f"{number[0] or '_'}9", name)


FILES: dict[str, tuple[str, Callable[[], Checkpoint]]] = {
    "as torch exports it": (
        "resnet18",
        lambda: exported("resnet18", "torchvision", lambda name: f"/{name.replace('.', '/')}/Conv"),
    ),
    "in a scope": (
        "mobilenet_v2",
        lambda: exported("mobilenet_v2_0.35", "keras", lambda name: f"model/{name}_1/Conv2D"),
    ),
    "of older code": ("resnet50", lambda: exported("resnet50", "keras", generation="keras-2.2")),
    "counted on": ("inception_v3", lambda: exported("inception_v3", "keras", numbered=counted_on)),
    "with concats": ("densenet121", lambda: exported("densenet121", "keras")),
}


@pytest.mark.parametrize("name", FILES)
def test_no_score_is_higher_than_its_bound(name: str) -> None:
    variant, make = FILES[name]
    file = make()
    limit = limits_for(file)
    bounds = {
        (one.variant, one.zoo): limit(one.fingerprint, one.names).score
        for one in known_variants()[0]
        if one.fingerprint is not None
    }
    matches = rank_variants(file, find_recipe(variant)).matches
    assert matches and all(match.score <= bounds[match.member.is_a] for match in matches)
    assert matches[0].score > 0.9
    near = [is_a for is_a, bound in bounds.items() if bound >= matches[0].score - OUT_OF_REACH]
    assert len(near) <= 4, near


def test_how_a_network_begins_and_what_its_layers_are_called_tell_variants_apart() -> None:
    file = exported("resnet50v2", "keras")
    known = {(one.variant, one.zoo): one for one in known_variants()[0]}

    def bound(variant: str, zoo: str, named: bool = True) -> float:
        one = known[variant, zoo]
        assert one.fingerprint is not None
        return limits_for(file)(one.fingerprint, one.names if named else None).score

    assert bound("resnet50v2", "keras") == 1
    # It has the convolutions of the first version, in another order.
    assert bound("resnet50", "keras", named=False) < 0.55
    assert bound("resnet50v2", "slim") < 0.9 < bound("resnet50v2", "slim", named=False)


def test_a_file_whose_layers_have_lost_their_names_is_bounded_by_its_graph() -> None:
    file = replace(exported("resnet18", "torchvision"), counted=True)
    one = next(one for one in known_variants()[0] if (one.variant, one.zoo) == ("resnet18", "gluon"))
    assert one.fingerprint is not None
    assert limits_for(file)(one.fingerprint, one.names) == limits_for(file)(one.fingerprint)

"""What the recipes meant before architectures and zoos were split: the layout of recipes may change, and this
may not.

A line of meaning.txt has a variant, a zoo, an older generation of its names if it is one, and the digest of
everything that the recipe says of them. `python -m tests.roads.recipe.test_meaning` prints the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from porter.graph import Graph
from porter.recipe import Member, Recipe, expand, layer_names, options_of, tap_names
from porter.recipe.recipe import STANDARD_OPTIONS
from tests.support.recipe.recipes import all_recipes

TABLE = Path(__file__).with_name("meaning.txt")
SWITCHES = {"fb", "stem_norm", "shortcut_from", "shortcut_norm", "stride_in", "biases", "normed_biases"}
SWITCHES |= {
    "input_norm",
    "pointwise_biases",
    "relu6",
    "of_8",
    "expand_first",
    "head_bias",
    "stem_bias",
    "halved_at",
}
"""Options with which a graph can be that of resnet200v2, or of Gluon's. What they do is in the graph."""

WAS_CALLED = {"nth": "place"}


def _nodes(graph: Graph) -> list[Any]:
    return [[node.path, node.op_name, node.inputs, _attributes(node.op)] for node in graph.nodes]


@cache
def _attributes(op: Any) -> dict[str, Any]:
    """Those that have their default are left out, so that an op may get new ones."""
    plain = asdict(op)
    return {one.name: plain[one.name] for one in fields(op) if getattr(op, one.name) != one.default}


def _plain(value: Any) -> Any:
    return None if value is None else {key: item for key, item in vars(value).items() if item is not None}


def _meaning(recipe: Recipe, variant: str, name: str, generation: str | None) -> dict[str, Any]:
    zoo = recipe.zoo(name, variant).at(generation)
    graph = expand(Member(recipe, variant, zoo))
    trained = expand(Member(recipe, variant, zoo), as_trained=True) if zoo.padding_as_trained else graph
    options = options_of(Member(recipe, variant, zoo))
    names = layer_names(Member(recipe, variant, zoo), graph, generation)
    return {
        "paper": recipe.paper,
        "input": [recipe.channels, *recipe.native_size(recipe.variants[variant]), graph.channels],
        "output": graph.outputs,
        "nodes": _nodes(graph),
        "as_trained": [
            after for before, after in zip(_nodes(graph), _nodes(trained), strict=True) if before != after
        ],
        "names": {path: [layer.name, layer.transforms] for path, layer in names.items()},
        "taps": dict(tap_names(Member(recipe, variant, zoo), graph)),
        "options": {
            WAS_CALLED.get(name, name): value
            for name, value in options.items()
            if name not in SWITCHES and (name not in STANDARD_OPTIONS or value != STANDARD_OPTIONS[name])
        },
        "assumed": dict(zoo.assumed),
        "ignore": sorted([rule.pattern, rule.reason, rule.equals] for rule in zoo.ignore),
        "facts": [
            zoo.framework,
            zoo.reference,
            zoo.labels and zoo.labels.name,
            zoo.activation,
            zoo.licence_of(variant),
        ],
        "protocol": _plain(zoo.preprocess),
        "file": _plain(zoo.files.get(variant)),
        "published": _plain(zoo.published.get(variant)),
    }


def meanings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every variant of every zoo, and of each older generation."""
    for recipe in all_recipes():
        for variant in recipe.variants:
            for name, zoo in recipe.zoos_of(variant).items():
                for generation in (None, *zoo.generations):
                    yield (
                        " ".join((variant, name, generation or "")).strip(),
                        _meaning(recipe, variant, name, generation),
                    )


def _digest(meaning: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:32]


@pytest.mark.full
def test_recipes_mean_what_they_meant() -> None:
    expected = dict(line.rsplit(" ", 1) for line in TABLE.read_text().splitlines())
    found = {key: _digest(meaning) for key, meaning in meanings()}
    assert {key: found.get(key) for key in expected} == expected


if __name__ == "__main__":
    for key, meaning in meanings():
        print(key, _digest(meaning))

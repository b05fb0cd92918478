"""Drafted recipes read back: their text, loaded and expanded."""

from __future__ import annotations

from pathlib import Path

from porter.authoring.draft.draft import Draft, DraftFacts, draft_recipe
from porter.graph import Dense, Graph
from porter.graph.difference import same_graph
from porter.recipe import Recipe, expand, layer_names, load_recipe


def read_back(
    graph: Graph, names: dict[str, str], folder: Path, size: tuple[int, int] = (224, 224)
) -> tuple[Draft, Recipe]:
    """A graph's draft, which expands to the same nodes and names them as `names` does."""
    head = graph.by_path[graph.output]
    classes = graph.channels_by_path[head.path] if isinstance(head.op, Dense) else 0
    draft = draft_recipe(graph, names, DraftFacts("drafted", "own", "tf", size, classes))
    path = folder / "drafted.yaml"
    path.write_text(draft.text, encoding="utf-8")
    recipe = load_recipe(path)
    member = recipe.member("drafted", "own")
    expanded = expand(member)
    assert same_graph(draft.graph, expanded), draft.text
    found = {path: layer.name for path, layer in layer_names(member, expanded).items()}
    own = {name: node for node, name in names.items()}
    for at, name in found.items():
        one, other = expanded.by_path[at], graph.by_path[own[name]]
        assert type(one.op) is type(other.op) and len(one.inputs) == len(other.inputs)
    return draft, recipe

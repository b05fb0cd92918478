"""What the layers of a port are called in a framework whose layers carry names."""

from __future__ import annotations

from porter.graph import Graph
from porter.port.port_record import Facts
from porter.recipe import Member, expand, layer_names
from porter.zoos.tables import DEFAULT_ZOOS


def layers_in(framework: str, member: Member | None, facts: Facts, graph: Graph) -> dict[str, str]:
    """Return the names that a port's layers get in a framework whose layers carry names, by path: without a
    recipe the file's own, otherwise those of the framework's default zoo; an empty dictionary if that zoo
    lacks the variant.
    """
    if member is None:
        return {path: name for path, name in facts.names.items() if path in graph.by_path}
    default = DEFAULT_ZOOS[framework]
    if default not in member.recipe.zoos or not member.recipe.zoos[default].has(member.variant):
        return {}
    default_member = member.recipe.member(member.variant, default)
    return {
        path: layer.name
        for path, layer in layer_names(default_member, expand(default_member)).items()
        if path in graph.by_path
    }

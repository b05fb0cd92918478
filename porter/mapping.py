"""Source tensors to graph, by name and total both ways: every tensor is used or ignored by a stated rule, every node is filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from porter.dtypes import Array
from porter.errors import MappingError
from porter.frameworks import Framework, get_framework
from porter.frameworks.checkpoint import Checkpoint
from porter.graph import Graph, Node, tensor_shapes
from porter.recipe import LayerName, Recipe, Zoo, layer_names
from porter.transforms import apply_transforms

LISTED = 8


@dataclass(frozen=True)
class Mapped:
    """What became of every source tensor.

    Attributes:
        tensors: canonical tensors, path to role to array.
        used: source tensor name to `path:role`.
        ignored: source tensor name to the rule that says why.
    """

    tensors: Mapping[str, Mapping[str, Array]]
    used: Mapping[str, str]
    ignored: Mapping[str, str]


@dataclass(frozen=True)
class Located:
    """Where each of a graph's tensors is in a file, before anything is read from it.

    Attributes:
        found: (path, role) to source tensor name.
        missing: the likeliest name of each tensor that is not there, to its expected canonical shape.
        unexpected: source tensors that nothing claims and no rule ignores.
        ignored: source tensor name to the reason.
    """

    found: Mapping[tuple[str, str], str]
    missing: Mapping[str, tuple[int, ...]]
    unexpected: tuple[str, ...]
    ignored: Mapping[str, str]


def source_layers(recipe: Recipe, variant: str, zoo: Zoo, graph: Graph, checkpoint: Checkpoint) -> Mapping[str, LayerName]:
    """The layer names by path under which `checkpoint` holds its tensors: the zoo's, or its framework's counters."""
    layers = layer_names(recipe, variant, zoo, graph)
    if not checkpoint.counted:
        return layers
    convolutions = [path for path, layer in layers.items() if "conv1x1_to_dense" in layer.transforms]
    counted = get_framework(zoo.framework).counted_layers(graph, convolutions)
    return {path: replace(layer, name=counted[path]) for path, layer in layers.items() if path in counted}


def head_classes(graph: Graph, framework: Framework, layers: Mapping[str, LayerName], checkpoint: Checkpoint) -> int:
    """Rows of the file's head; the graph's own number of classes where the file has no such head."""
    head = graph.by_path[graph.output]
    for name in framework.tensor_names(graph, head, layers[head.path].name)["kernel"]:
        if name in checkpoint.tensors:
            return int(framework.to_canonical(graph, head, "kernel", checkpoint.tensors[name]).shape[0])
    return tensor_shapes(graph)[head.path]["kernel"][0]


def locate(graph: Graph, framework: Framework, layers: Mapping[str, LayerName], zoo: Zoo, checkpoint: Checkpoint) -> Located:
    """Finds every tensor of `graph` in `checkpoint` by the zoo's layer names.

    Roles that a framework names but the graph does not need (torch's `batches`) are found where present and never missing.
    """
    found: dict[tuple[str, str], str] = {}
    missing: dict[str, tuple[int, ...]] = {}
    for path, roles in tensor_shapes(graph).items():
        if path not in layers:
            raise MappingError(f"zoo '{zoo.name}' does not name this node", where=path, next="add it to the zoo's names")
        candidates = framework.tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, names in candidates.items():
            present = [name for name in names if name in checkpoint.tensors]
            if present:
                found[path, role] = present[0]
            elif role in roles:
                missing[names[0]] = roles[role]
    rest = checkpoint.tensors.keys() - set(found.values())
    ignored = {name: reason for name in rest if (reason := _ignore_reason(name, zoo)) is not None}
    return Located(found, missing, tuple(sorted(rest - ignored.keys())), ignored)


def _ignore_reason(name: str, zoo: Zoo) -> str | None:
    return next((rule.reason for rule in zoo.ignore if fnmatchcase(name, rule.pattern)), None)


def map_tensors(
    graph: Graph, framework: Framework, layers: Mapping[str, LayerName], zoo: Zoo, checkpoint: Checkpoint, keep_background: bool
) -> Mapped:
    """Every tensor of `graph` from `checkpoint`, in canonical axis order.

    Raises:
        MappingError: tensors missing, unexpected or of the wrong shape; one error lists both sides.
    """
    located = locate(graph, framework, layers, zoo, checkpoint)
    if located.missing or located.unexpected:
        raise MappingError(_two_lists(located), where=str(checkpoint.path), next="porter inspect FILE ranks what it could be")
    shapes = tensor_shapes(graph)
    tensors: dict[str, dict[str, Array]] = {}
    wrong: list[str] = []
    for (path, role), name in located.found.items():
        array = canonical(graph, framework, graph.by_path[path], role, layers[path], checkpoint.tensors[name], keep_background)
        expected = shapes[path].get(role)
        if expected is not None and array.shape != expected:
            wrong.append(f"{name} is {_shape(array.shape)} where {path} needs {_shape(expected)}")
        tensors.setdefault(path, {})[role] = array
    if wrong:
        raise MappingError("tensors of another shape: " + _some(wrong), where=str(checkpoint.path))
    _assert_ignored_values(zoo, checkpoint, located.ignored)
    used = {name: f"{path}:{role}" for (path, role), name in located.found.items()}
    return Mapped(tensors, used, located.ignored)


def canonical(
    graph: Graph, framework: Framework, node: Node, role: str, layer: LayerName, array: Array, keep_background: bool
) -> Array:
    """A source array in porter's axis order, with the transforms that the recipe states beside the name."""
    transforms = tuple(name for name in layer.transforms if not (keep_background and name == "drop_background"))
    return apply_transforms(transforms, role, framework.to_canonical(graph, node, role, array))


def _assert_ignored_values(zoo: Zoo, checkpoint: Checkpoint, ignored: Mapping[str, str]) -> None:
    for rule in zoo.ignore:
        for name in ignored:
            if rule.equals is not None and fnmatchcase(name, rule.pattern) and not np.all(checkpoint.tensors[name] == rule.equals):
                raise MappingError(f"this tensor may be ignored only where it equals {rule.equals}", where=name)


def _two_lists(located: Located) -> str:
    parts = []
    if located.missing:
        names = [f"{name} {_shape(shape)}" for name, shape in located.missing.items()]
        parts.append(f"{len(names)} tensors missing: {_some(names)}")
    if located.unexpected:
        parts.append(f"{len(located.unexpected)} tensors unexpected: {_some(list(located.unexpected))}")
    return "; ".join(parts)


def _some(lines: list[str]) -> str:
    return ", ".join(lines[:LISTED]) + (f", and {len(lines) - LISTED} more" if len(lines) > LISTED else "")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"

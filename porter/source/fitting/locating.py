"""Where a file has the tensors of a graph, by a zoo's names, before any is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph, channels_of, tensor_shapes
from porter.recipe import LayerName, Zoo
from porter.source.fitting.adapted import adapted_tensors
from porter.source.fitting.fit import CONSTANTS
from porter.source.fitting.naming import tensor_names


class Missing(NamedTuple):
    """A tensor that a file lacks: the path of its node, and its expected canonical shape."""

    path: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Located:
    """The place of each of a graph's tensors in a file, before any is read.

    Attributes:
        tensors: (path, role) to source tensor name.
        missing: the tensors that the file lacks, by their likeliest names.
        unexpected: source tensors that no node uses and no rule ignores, without the moving averages of those
            in `tensors`.
        ignored: source tensor name to the reason.
    """

    tensors: Mapping[tuple[str, str], str]
    missing: Mapping[str, Missing]
    unexpected: tuple[str, ...]
    ignored: Mapping[str, str]


def locate(graph: Graph, layers: Mapping[str, LayerName], zoo: Zoo, checkpoint: Checkpoint) -> Located:
    """Finds every tensor of `graph` in `checkpoint` by the file's layer names.

    A role that a framework names and the graph does not need (torch's `batches`) may be absent.

    Raises:
        MappingError: a node has no name.
    """
    dialect, sources = get_dialect(zoo.framework), dict[tuple[str, str], str]()
    missing: dict[str, Missing] = {}
    for path, roles in tensor_shapes(graph).items():
        if path not in layers:
            raise MappingError(
                f"zoo '{zoo.name}' does not name this node", where=path, next="add it to the zoo's names"
            )
        candidates = tensor_names(dialect, graph, path, layers[path])
        for role, names in candidates.items():
            present = [name for name in names if name in checkpoint.tensors]
            if present:
                sources[path, role] = present[0]
            elif role in roles:
                missing[names[0]] = Missing(path, roles[role])
    averages = {f"{name}{dialect.AVERAGE_SUFFIX}" for name in sources.values()}
    rest = checkpoint.tensors.keys() - set(sources.values()) - averages
    ignored = {
        name: rule.reason for rule in reversed(zoo.ignore) for name in rest if fnmatchcase(name, rule.pattern)
    }
    for path, layer in layers.items():
        if layer.adapted:
            shape, (*needed, count) = (channels_of(graph)[path],), adapted_tensors(layer)
            missing |= {name: Missing(path, shape) for name in needed if name not in checkpoint.tensors}
            ignored |= dict.fromkeys(rest.intersection((*needed, count)), CONSTANTS.format(path))
    return Located(sources, missing, tuple(sorted(rest - ignored.keys())), ignored)

"""Where a file has the tensors of a graph, by a zoo's names, before any is read.

Two kinds stand elsewhere than the names say: Keras's Normalization that was adapted to data, of which a file
of weights holds the mean and the variance, and a graph has an affine step; and moving averages of weights,
which a training file holds beside the weights. These were evaluated and published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from porter.base.errors import MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras.layer_variables import CLASSES
from porter.formats.keras.scaling import normalising, statistics
from porter.frameworks.dialects import get_dialect
from porter.graph import Affine, Graph, is_depthwise, tensor_shapes
from porter.recipe import LayerName, NodeNames, Zoo
from porter.recipe.zoo_names import tensor_names
from porter.source.fitting.fit import CONSTANTS, TensorKey

_STATISTICS = ("mean", "variance")


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
        spelling: the index of the framework's name for a kernel that the file has.
    """

    tensors: Mapping[TensorKey, str]
    missing: Mapping[str, Missing]
    unexpected: tuple[str, ...]
    ignored: Mapping[str, str]
    spelling: int


def locate(graph: Graph, layers: NodeNames, zoo: Zoo, checkpoint: Checkpoint) -> Located:
    """Find every tensor of `graph` in `checkpoint` by the file's layer names, and return where each is, which
    are missing, unexpected or ignored by a rule, and which spelling of a kernel (the index among the names
    that the framework has for it) the file uses. A role that a framework names and the graph does not need
    (torch's `batches`) may be absent.

    Raises:
        MappingError: a node has no name.
    """
    dialect = get_dialect(zoo.framework)
    located = dict[TensorKey, str]()
    missing = dict[str, Missing]()
    spellings = list[int]()
    for path, roles in tensor_shapes(graph).items():
        if path not in layers:
            raise MappingError(
                f"zoo '{zoo.name}' does not name this node", where=path, next="add it to the zoo's names"
            )
        candidates = tensor_names(dialect, graph, path, layers[path])
        for role, names in candidates.items():
            present = [name for name in names if name in checkpoint.tensors]
            if present:
                located[path, role] = present[0]
                if role == "kernel" and not is_depthwise(graph, graph.by_path[path]):
                    spellings.append(names.index(present[0]))
            elif role in roles:
                missing[names[0]] = Missing(path, roles[role])
    used = {*located.values(), *(f"{name}{dialect.AVERAGE_SUFFIX}" for name in located.values())}
    unused = [name for name in checkpoint.tensors if name not in used]
    ignored = {
        name: rule.reason
        # reversed, so that the first rule that fits gives the reason
        for rule in reversed(zoo.ignore)
        for name in unused
        if fnmatchcase(name, rule.pattern)
    }
    for path, layer in layers.items():
        # A step whose mean and variance come from the data has no weights: the file holds its moments.
        if layer.adapted:
            shape = (graph.channels_by_path[path],)
            *moments, count = adapted_tensors(layer)
            missing |= {name: Missing(path, shape) for name in moments if name not in checkpoint.tensors}
            constants = (name for name in (*moments, count) if name in unused)
            ignored |= dict.fromkeys(constants, CONSTANTS.format(path))
    unexpected = tuple(sorted({*unused} - ignored.keys()))
    return Located(located, missing, unexpected, ignored, spellings[0] if spellings else 0)


def adapted_tensors(layer: LayerName) -> tuple[str, ...]:
    """Return the names of the tensors that Keras's Normalization holds once it was adapted to data: its
    mean, its variance and the count of what it saw, which nothing needs.
    """
    return tuple(f"{layer.name}/{variable}" for variable in CLASSES["Normalization"].variables)


def adapted_names(layers: NodeNames, reference: NodeNames, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the names that the zoo's own implementation has for the adapted tensors of a file, by their
    names in the file.
    """
    return {
        name: own_name
        for path, layer in layers.items()
        if layer.adapted
        for name, own_name in zip(adapted_tensors(layer), adapted_tensors(reference[path]), strict=True)
        if name in checkpoint.tensors
    }


def with_adapted_steps(graph: Graph, layers: NodeNames, checkpoint: Checkpoint) -> Graph:
    """Return the graph with the scales and offsets of its adapted steps (Keras's Normalization), computed
    from the means and variances that the file holds.

    Raises:
        MappingError: they are not one number or one for each channel, or a variance is negative.
    """
    channels = graph.channels_by_path

    def adapted_affine(path: str) -> Affine:
        """Return the affine step of a node, by the mean and the variance that the file holds."""
        mean, variance, _ = (checkpoint.tensors.get(name) for name in adapted_tensors(layers[path]))
        assert mean is not None and variance is not None, "located"
        moments = statistics({}, {"mean": mean, "variance": variance})
        if moments is None or len(moments[0]) not in (1, channels[path]):
            where, expected = str(checkpoint.path), f"one mean and variance, or {channels[path]} of each"
            raise MappingError(
                f"layer '{layers[path].name}', which is node {path}, does not hold {expected}", where=where
            )
        scale, offset = normalising(*moments, invert=False)
        return Affine(tuple(scale.tolist()), tuple(offset.tolist()))

    adapted = {path for path, layer in layers.items() if layer.adapted}
    return replace(
        graph,
        nodes=tuple(
            replace(node, op=adapted_affine(node.path)) if node.path in adapted else node
            for node in graph.nodes
        ),
    )


def prefer_averages(
    tensors: Mapping[TensorKey, str], names: Collection[str], suffix: str | None
) -> tuple[dict[TensorKey, str], dict[str, str], tuple[str, ...]]:
    """Replace each tensor's name by that of its moving average, if the file has one: `X` by
    `X/ExponentialMovingAverage`.

    TF-slim's evaluation restores `X/ExponentialMovingAverage` into `X`
    (research/slim/eval_image_classifier.py, `variables_to_restore`): always for the trained variables, and
    for a batch norm's statistics if training averaged these too.

    Args:
        tensors: (path, role) to source tensor name.
        names: every tensor of the file.
        suffix: an average's name is the tensor's name with this suffix; None if the framework has no such
            convention.

    Returns:
        `tensors` with the averages, the unused names with the reason, and a note.

    Raises:
        MappingError: only some of the trained variables, or of the statistics, have an average.
    """
    preferred = dict(tensors)
    if suffix is None:
        return preferred, {}, ()
    counts = []
    for group, are_statistics in (("weights", False), ("batch norm statistics", True)):
        members = {key: name for key, name in tensors.items() if (key[1] in _STATISTICS) == are_statistics}
        averaged = {key: f"{name}{suffix}" for key, name in members.items() if f"{name}{suffix}" in names}
        lacking = sorted(name for key, name in members.items() if key not in averaged)
        if averaged and lacking:
            raise MappingError(
                f"{len(averaged)} of {len(members)} {group} have a moving average, {len(lacking)} have "
                f"none: {some(lacking)}",
                next="the file is incomplete; save it again, all averages or none",
            )
        preferred |= averaged
        counts.append(f"all {len(averaged)} {group}" if averaged else f"no {group}")
    unused = {name: "its moving average is used" for key, name in tensors.items() if preferred[key] != name}
    return preferred, unused, (f"using moving averages for {' and '.join(counts)}",) if unused else ()

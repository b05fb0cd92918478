"""The file's own graph wins: its pads, strides, epsilons and activations go into the recipe's nodes. Its
layers before and after these, such as scaled pixels and the user's own head, become nodes too. Layers that
porter has no op for are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from porter.base.errors import MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.frameworks.dialects import Dialect
from porter.graph import Graph, channels_of, ops, shapes, tensor_shapes, with_classes
from porter.graph.difference import site_differences
from porter.padding import Size
from porter.recipe import LayerName, layer_names, tap_names
from porter.source.fitting.alignment import describe
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.file_heads import End, find_end, given_by, left_out, possible_heads, trunk_end
from porter.source.fitting.fit import CONSTANTS, OWN_GRAPH, Fit
from porter.source.fitting.grafting import Grafted, graft
from porter.source.fitting.naming import parse_map, tensor_names
from porter.source.wishes import NONE, Wishes

AFTER = "the file's graph does not use it for the logits"


def fit_by_graph(candidate: Candidate, wishes: Wishes = NONE) -> Fit:
    """Fits a variant to a file that carries its graph. The file's own output is the head, unless `wishes.map`
    chooses another layer of the file: LAYER=head/logits.

    Raises:
        MappingError: the graphs differ, or the file's graph has several outputs or a layer that porter has no
            op for; `maps` lists the layers that can be the head.
    """
    output = candidate.graph.output
    candidate = replace(candidate, mapped=parse_map(wishes.map, candidate.graph)) if wishes.map else candidate

    def fitted(chosen: str | None) -> Fit:
        end = find_end(candidate.alignment, candidate.checkpoint, chosen, candidate.head_kernels)
        return _fit(candidate, end, wishes.background)

    try:
        return fitted(candidate.mapped.get(output))
    except MappingError as error:
        heads = []
        for layer in possible_heads(candidate.alignment):
            with suppress(MappingError):
                fitted(layer)
                heads.append(f"{layer}={output}")
        raise MappingError(error.message, where=error.where, next=error.next, maps=heads) from None


def _fit(candidate: Candidate, end: End, keep_background: bool) -> Fit:
    member, draft, checkpoint, aligned = (
        candidate.member,
        candidate.graph,
        candidate.checkpoint,
        candidate.alignment,
    )
    file = aligned.file
    base, name = trunk_end(aligned, end.layer)
    pairs = aligned.pairs(base, name)
    for path, layer in candidate.mapped.items():
        if path != draft.output and pairs.get(path) != layer:
            raise MappingError(
                f"the file's graph has '{pairs.get(path, 'nothing')}' there, not '{layer}'", where=path
            )
    folded = aligned.folded(pairs)
    grafted = graft(draft, file, pairs, folded, base, end.layer)
    size = file.built_size or member.native_size()
    _expect_whole_averages(grafted, file, size)
    differences = _differences(draft, grafted.graph, folded.values(), size)
    layers = layer_names(member, draft)
    background = end.own and "drop_background" in layers[draft.output].transforms
    drops = background and not keep_background
    graph = grafted.graph
    if drops:
        graph = with_classes(graph, channels_of(graph)[graph.output] - 1)
    weighted = tensor_shapes(graph)
    stored = {
        (path, role): tensor
        for path, layer in grafted.layers.items()
        for role, tensor in file.by_name[layer].tensors.items()
        if path in weighted
    }
    names = {place: tensor.name for place, tensor in stored.items()}
    _expect_filled(graph, names, checkpoint)
    constants = {
        tensor.name: CONSTANTS.format(path)
        for path, layer in grafted.layers.items()
        if isinstance(graph.by_path[path].op, ops.Affine)
        for tensor in file.by_name[layer].tensors.values()
    }
    plain, shown = not differences and not folded and grafted.plain, tap_names(member, draft)
    rest = left_out(file, end.layer)
    left = (f"left out, because the head does not read them: {some(rest)}",) if rest else ()
    used = f"the file's graph is used; it differs from that of zoo '{member.zoo.name}': {some(differences)}"
    different = (used,) if differences else ()
    return Fit(
        graph=graph,
        tensors=names,
        stored=stored,
        transforms={graph.output: ("drop_background",)} if drops else {},
        ignored={
            name: constants.get(name, AFTER) for name in checkpoint.tensors.keys() - set(names.values())
        },
        source_classes=_rows(grafted.graph, base == draft.output),
        own_head=end.own,
        head=end.layer,
        background=background and keep_background,
        activation=end.activation,
        taps={path: tap for path, layer in grafted.layers.items() if (tap := file.by_name[layer].tap)},
        given=given_by(file, grafted.layers, shaped=False),
        reference_taps={path: name for path, name in shown.items() if path in graph.by_path} if plain else {},
        reference_names=_reference_names(graph, candidate.dialect, layers, names) if plain else {},
        folded=folded,
        differences=len(differences),
        scaling=grafted.scaling,
        warnings=(*left, *different, *grafted.warnings),
        notes=(OWN_GRAPH, *_norms_note(draft, grafted.graph, folded)),
    )


def _rows(graph: Graph, whole: bool) -> int:
    """Classes of the graph's output; 0 if it gives features, because it is not `whole` and has no dense
    layer.
    """
    return (
        channels_of(graph)[graph.output]
        if whole or any(isinstance(node.op, ops.Dense) for node in graph.nodes)
        else 0
    )


def _norms_note(draft: Graph, grafted: Graph, folded: Mapping[str, str]) -> tuple[str, ...]:
    """What the file has made of the recipe's batch norms, if they are none in it."""
    norms = [
        node.path
        for node in draft.nodes
        if isinstance(node.op, ops.BatchNorm) and node.path in grafted.by_path
    ]
    scales = sum(isinstance(grafted.by_path[path].op, ops.ChannelScale) for path in norms)
    counts = {
        f"{len(folded)} folded into the layers before them": folded,
        f"{scales} scales and offsets": scales,
    }
    made = ", ".join(words for words, there in counts.items() if there)
    return (f"of its batch norms {made}",) if made else ()


def _differences(draft: Graph, grafted: Graph, folded: Collection[str], size: Size) -> list[str]:
    """The differences of the file's graph from the recipe's, for a message; pads that are equal at the file's
    size are none.

    Args:
        folded: layers that have taken in the norm after them, and so have its offset as a bias.
    """
    sites = {site.path: site for site in site_differences(draft, grafted, size)}
    lines = []
    for node in draft.nodes:
        mine, theirs = node.op, grafted.by_path[node.path].op if node.path in grafted.by_path else node.op
        site = sites.get(node.path)
        if site is not None and site.only_pads:
            lines.append(f"{node.path}: padding '{site.other}' where the recipe has '{site.one}'")
        elif site is not None:
            lines.append(f"{node.path}: windows {site.other.window} where the recipe has {site.one.window}")
        if (
            isinstance(mine, ops.BatchNorm)
            and isinstance(theirs, ops.BatchNorm)
            and np.float32(mine.epsilon) != np.float32(theirs.epsilon)
        ):
            lines.append(f"{node.path}: epsilon {theirs.epsilon:g} where the recipe has {mine.epsilon:g}")
        if type(mine) is not type(theirs) and not isinstance(theirs, ops.ChannelScale):
            lines.append(f"{node.path}: {describe(theirs)} where the recipe has {describe(mine)}")
        ours = mine if isinstance(mine, ops.Conv | ops.Dense) else None
        if (
            ours
            and isinstance(theirs, ops.Conv | ops.Dense)
            and ours.bias != theirs.bias
            and node.path not in folded
        ):
            lines.append(
                f"{node.path}: {'a' if theirs.bias else 'no'} bias where the recipe has "
                f"{'none' if theirs.bias else 'one'}"
            )
    return lines


def _expect_whole_averages(grafted: Grafted, file: FileGraph, size: Size) -> None:
    """Refuses an average over a whole map of the recipe that is not over the file's whole map, because their
    strides differ.
    """
    sizes = shapes(grafted.graph, size)
    for path, layer in grafted.layers.items():
        found, node = file.by_name[layer].op, grafted.graph.by_path[path]
        if isinstance(node.op, ops.GlobalAvgPool) and isinstance(found, ops.AvgPool):
            rows, columns = sizes[node.inputs[0]][1:]
            if found.window.kernel != (rows, columns):
                height, width = found.window.kernel
                raise MappingError(
                    f"expected an average over the whole map ({rows}x{columns}), as in the recipe, got "
                    f"{height}x{width} in '{layer}'",
                    where=path,
                )


def _expect_filled(graph: Graph, found: Mapping[tuple[str, str], str], checkpoint: Checkpoint) -> None:
    lacking = [
        f"{path}:{role}"
        for path, roles in tensor_shapes(graph).items()
        for role in roles
        if (path, role) not in found
    ]
    if lacking:
        raise MappingError(
            f"the file's graph has no tensors for these nodes: {some(lacking)}", where=str(checkpoint.path)
        )


def _reference_names(
    graph: Graph, dialect: Dialect, layers: Mapping[str, LayerName], found: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    """The zoo's own implementation's name of each tensor."""
    names = {}
    for (path, role), tensor in found.items():
        spellings = tensor_names(dialect, graph, path, layers[path])[role]
        variable = tensor.rpartition(dialect.SEPARATOR)[2]
        names[tensor] = next(
            (name for name in spellings if name.endswith(f"{dialect.SEPARATOR}{variable}")), spellings[0]
        )
    return names

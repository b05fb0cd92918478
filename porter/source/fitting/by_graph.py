"""Fits a variant to a file that carries its graph, which wins: its pads, strides, epsilons and activations go
into the recipe's nodes. Its layers before and after these, such as scaled pixels and the user's own head,
become nodes too. Layers that porter has no op for are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress

import numpy as np

from porter.base.errors import MappingError, some
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.frameworks.dialects import Dialect
from porter.graph import OF_LOGITS, Graph, head_of, ops, shapes, tensor_shapes, with_classes
from porter.graph.difference import site_differences
from porter.padding import Size
from porter.recipe import NodeNames, tap_names
from porter.recipe.zoo_names import tensor_names
from porter.source.fitting.alignment import Alignment, describe
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import (
    CONSTANTS,
    OWN_GRAPH,
    Fit,
    InFile,
    InZoo,
    TensorKey,
    given_by,
    stored_tensors,
)
from porter.source.fitting.grafting import End, Grafted, graft
from porter.source.fitting.names_in_file import tensors_hint

NOT_READ_BY_LOGITS = "the file's graph does not use it for the logits"


def fit_by_graph(candidate: Candidate, keep_background: bool = False) -> Fit:
    """Fit a variant to a file that carries its graph. The file's own output is the head, unless `--map`
    chooses another layer of the file: LAYER=head/logits.

    Args:
        keep_background: see porter.source.wishes.Wishes.

    Raises:
        MappingError: the graphs differ, or the file's graph has several outputs or a layer that porter has no
            op for; `maps` lists the layers that can be the head.
    """
    output = candidate.graph.output

    def fit_with_head(chosen: str | None) -> Fit:
        """Return the fit with a chosen layer of the file as the head; with None, with the file's output."""
        end = _find_end(candidate.alignment, candidate.checkpoint, chosen, candidate.head_kernels)
        return _fit(candidate, end, keep_background)

    try:
        return fit_with_head(candidate.mapped.get(output))
    except MappingError as error:
        heads = []
        for layer in _possible_heads(candidate.alignment):
            with suppress(MappingError):
                fit_with_head(layer)
                heads.append(f"{layer}={output}")
        raise MappingError(error.message, where=error.where, next=error.next, maps=heads) from None


def _fit(candidate: Candidate, end: End, keep_background: bool) -> Fit:
    """Return the fit of a file whose graph is the recipe's up to its head, with `end`, the file's layer that
    gives the logits. Where the graphs differ in pads or constants, the file's are taken, and a warning names
    the differences.

    Raises:
        MappingError: the graphs differ otherwise, or `--map` names another layer than the aligned one.
    """
    member, draft = candidate.member, candidate.graph
    checkpoint, aligned = candidate.checkpoint, candidate.alignment
    file = aligned.file
    base, name = _trunk_end(aligned, end)
    pairs = aligned.pairs(base, name)
    for path, layer in candidate.mapped.items():
        if path != draft.output and pairs.get(path) != layer:
            raise MappingError(
                f"the file's graph has '{pairs.get(path, 'nothing')}' there, not '{layer}'", where=path
            )
    folded = aligned.folded(pairs)
    grafted = graft(draft, file, pairs, folded, base, end)
    size = file.built_size or member.native_size()
    _expect_whole_averages(grafted, file, size)
    differences = _differences(draft, grafted.graph, folded.values(), size)
    layers = candidate.layers
    has_background = end.own and "drop_background" in layers[draft.output].transforms
    drops = has_background and not keep_background
    graph = grafted.graph
    if drops:
        graph = with_classes(graph, graph.channels_by_path[graph.output] - 1)
    stored = stored_tensors(graph, file, grafted.layers, checkpoint)
    names = {place: tensor.name for place, tensor in stored.items()}
    is_zoos_model = not differences and not folded and grafted.plain
    # The taps are the names under which an engine shows the values of nodes.
    tap_names_of_zoo = tap_names(member, draft, layers) if is_zoos_model else {}
    return Fit(
        graph=graph,
        tensors=names,
        transforms={graph.output: ("drop_background",)} if drops else {},
        ignored=_ignored(checkpoint, {*names.values()}, graph, file, grafted.layers),
        source_classes=_classes_of_output(grafted.graph, base == draft.output),
        own_head=end.own,
        head=end.layer,
        background=has_background and keep_background,
        activation=end.activation,
        in_file=InFile(
            {path: tap for path, layer in grafted.layers.items() if (tap := file.by_name[layer].tap)},
            given_by(file, grafted.layers, shaped=False),
            stored,
            folded,
            len(differences),
            grafted.scaling,
        ),
        in_zoo=InZoo(
            {path: name for path, name in tap_names_of_zoo.items() if path in graph.by_path},
            _reference_names(graph, candidate.dialect, layers, names) if is_zoos_model else {},
        ),
        warnings=(*_graph_warnings(file, end, member.zoo.name, differences), *grafted.warnings),
        notes=(OWN_GRAPH, *_norms_note(draft, grafted.graph, folded)),
    )


def _ignored(
    checkpoint: Checkpoint, used: Set[str], graph: Graph, file: FileGraph, layers: Mapping[str, str]
) -> dict[str, str]:
    """Return the file's tensors that are not among the used ones, each with the reason: constants of an
    affine step, or no output reads them.

    Args:
        layers: the file's layer of each node.
    """
    constants = {
        tensor.name: CONSTANTS.format(path)
        for path, layer in layers.items()
        if isinstance(graph.by_path[path].op, ops.Affine)
        for tensor in file.by_name[layer].tensors.values()
    }
    return {name: constants.get(name, NOT_READ_BY_LOGITS) for name in checkpoint.tensors if name not in used}


def _graph_warnings(file: FileGraph, end: End, zoo: str, differences: Sequence[str]) -> Iterator[str]:
    """Yield warnings of layers that the head does not read, and of what differs between the file's graph and
    the zoo's.
    """
    if unread := _unread_layers(file, end):
        yield f"left out, because the head does not read them: {some(unread)}"
    if differences:
        yield f"the file's graph is used; it differs from that of zoo '{zoo}': {some(differences)}"


def _classes_of_output(graph: Graph, with_recipes_head: bool) -> int:
    """Return the number of classes of the graph's output; 0 if it gives features: it has neither the recipe's
    head nor any dense layer.
    """
    return (
        graph.channels_by_path[graph.output]
        if with_recipes_head or any(isinstance(node.op, ops.Dense) for node in graph.nodes)
        else 0
    )


def _norms_note(draft: Graph, grafted: Graph, folded: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note on what the file has made of the recipe's batch norms, such as `its batch norms: 53
    folded into the layers before them`; none if they are batch norms in it too.
    """
    norms = [
        node.path
        for node in draft.nodes
        if isinstance(node.op, ops.BatchNorm) and node.path in grafted.by_path
    ]
    scales = sum(isinstance(grafted.by_path[path].op, ops.ChannelScale) for path in norms)
    counts = {
        f"{len(folded)} folded into the layers before them": len(folded),
        f"{scales} scales and offsets": scales,
    }
    changes = ", ".join(words for words, count in counts.items() if count)
    return (f"its batch norms: {changes}",) if changes else ()


def _differences(draft: Graph, grafted: Graph, folded: Collection[str], size: Size) -> list[str]:
    """Return the differences of the file's graph from the recipe's, as lines of a message, such as
    `stem/conv: padding 'same' where the recipe has '3'`. Pads that are equal at the file's size are no
    difference.

    Args:
        folded: layers that have taken in the norm after them, and so have its offset as a bias.
    """
    sites = {site.path: site for site in site_differences(draft, grafted, size)}
    lines = []
    for node in draft.nodes:
        op = node.op
        # A node that the file lacks, such as the recipe's head, is no difference.
        file_op = grafted.by_path[node.path].op if node.path in grafted.by_path else op
        site = sites.get(node.path)
        # `site.one` is the window and pads in the recipe, `site.other` those in the file.
        if site is not None and site.only_pads:
            lines.append(f"{node.path}: padding '{site.other}' where the recipe has '{site.one}'")
        elif site is not None:
            lines.append(f"{node.path}: windows {site.other.window} where the recipe has {site.one.window}")
        if (
            isinstance(op, ops.BatchNorm)
            and isinstance(file_op, ops.BatchNorm)
            and np.float32(op.epsilon) != np.float32(file_op.epsilon)
        ):
            lines.append(f"{node.path}: epsilon {file_op.epsilon:g} where the recipe has {op.epsilon:g}")
        if type(op) is not type(file_op) and not isinstance(file_op, ops.ChannelScale):
            lines.append(f"{node.path}: {describe(file_op)} where the recipe has {describe(op)}")
        if (
            isinstance(op, ops.Conv | ops.Dense)
            and isinstance(file_op, ops.Conv | ops.Dense)
            and op.bias != file_op.bias
            and node.path not in folded
        ):
            lines.append(
                f"{node.path}: {'a' if file_op.bias else 'no'} bias where the recipe has "
                f"{'none' if file_op.bias else 'one'}"
            )
    return lines


def _expect_whole_averages(grafted: Grafted, file: FileGraph, size: Size) -> None:
    """Refuse a file that averages a window of fixed size where the recipe averages the whole map, if that
    window is not the file's whole map: its strides differ then, and the map has another size.
    """
    sizes = shapes(grafted.graph, size)
    for path, layer in grafted.layers.items():
        op, node = file.by_name[layer].op, grafted.graph.by_path[path]
        if isinstance(node.op, ops.GlobalAvgPool) and isinstance(op, ops.AvgPool):
            rows, columns = sizes[node.inputs[0]][1:]
            if op.window.kernel != (rows, columns):
                height, width = op.window.kernel
                raise MappingError(
                    f"expected an average over the whole map ({rows}x{columns}), as in the recipe, got "
                    f"{height}x{width} in '{layer}'",
                    where=path,
                )


def _reference_names(
    graph: Graph, dialect: Dialect, layers: NodeNames, tensors: Mapping[TensorKey, str]
) -> dict[str, str]:
    """Return the name of each tensor in the zoo's own implementation, by its name in the file. A framework's
    versions may have several names for one tensor (spellings): the one that ends in the same word as the
    file's name is taken, otherwise the first.

    Args:
        layers: by path, the zoo's name of the layer.
        tensors: by path and role, the file's name of the tensor.
    """
    names = {}
    for (path, role), tensor in tensors.items():
        spellings = tensor_names(dialect, graph, path, layers[path])[role]
        variable = tensor.rpartition(dialect.SEPARATOR)[2]
        names[tensor] = next(
            (name for name in spellings if name.endswith(f"{dialect.SEPARATOR}{variable}")), spellings[0]
        )
    return names


def _find_end(aligned: Alignment, checkpoint: Checkpoint, chosen: str | None, kernels: frozenset[str]) -> End:
    """Return what the file's graph ends in: the layer that `--map` chose, otherwise that of the file's
    output, with the activation after it and the layers that lead to it.

    A hidden layer may have as many units as the zoo has classes, so one that is not an output is the zoo's
    head only by its name.

    Args:
        kernels: the zoo's names of its head's kernel.

    Raises:
        MappingError: no such layer, or the file has several outputs.
    """
    graph, file = aligned.graph, aligned.file
    outputs = _output_layers(file)
    if chosen is None and len(outputs) > 1:
        raise MappingError(
            f"expected one output of the file's graph, got {len(outputs)}: {some(outputs)}",
            where=str(checkpoint.path),
        )
    layer = outputs[0] if chosen is None else _layer_called(file, chosen, checkpoint)
    is_zoos_head = False
    could_be_output = layer in aligned.candidates[graph.output]
    if could_be_output and (layer in outputs or _has_name(file.by_name[layer], kernels)):
        head = head_of(graph).path
        layer_of_head = file.by_name[aligned.pairs(graph.output, layer)[head]]
        # Other units are other classes: then the head is the user's own.
        is_zoos_head = _units(layer_of_head.op) == tensor_shapes(graph)[head]["kernel"][0]
    activations = (
        node.op.name for node in file.nodes if isinstance(node.op, OF_LOGITS) and layer in node.inputs
    )
    return End(layer, is_zoos_head, next(activations, None), file.leading_to((layer,)))


def _possible_heads(aligned: Alignment) -> list[str]:
    """Return the layers that could give the logits: the outputs of the file, then dense layers and other
    possible heads, the last one first. Return none if no layer can be the end of the recipe's trunk, its part
    before the head.
    """
    if not any(aligned.candidates[path] for path in _possible_trunk_ends(aligned.graph)):
        return []
    heads = aligned.candidates[aligned.graph.output]
    inner = [
        node.name
        for node in reversed(aligned.file.nodes)
        if node.name in heads or isinstance(node.op, ops.Dense)
    ]
    return list(dict.fromkeys([*_output_layers(aligned.file), *inner]))


def _unread_layers(file: FileGraph, end: End) -> list[str]:
    """Return the names of layers that lead to an output of the file and not to the logits: they are left out
    of the port. The activation after the logits is not among them, because it is recorded.
    """
    activations = {
        node.name for node in file.nodes if isinstance(node.op, OF_LOGITS) and end.layer in node.inputs
    }
    return sorted(file.leading_to(file.outputs).difference(end.leading, activations))


def _output_layers(file: FileGraph) -> list[str]:
    """Return the layers of the file's outputs; for an output of probabilities, the layer of their logits."""
    return list(dict.fromkeys(_logits_of(file, name) for name in file.outputs))


def _has_name(layer: FileNode, kernels: frozenset[str]) -> bool:
    """Return whether a layer's kernel has one of these names, after any names of models or scopes."""
    tensor = layer.tensors["kernel"].name if "kernel" in layer.tensors else ""
    return any(tensor == kernel or tensor.endswith(f"/{kernel}") for kernel in kernels)


def _logits_of(file: FileGraph, name: str) -> str:
    """Return the input of the layer `name` if that is an activation, otherwise `name`. Only one activation is
    looked through, because a port records one.
    """
    layer = file.by_name.get(name)
    return layer.inputs[0] if layer and isinstance(layer.op, OF_LOGITS) else name


def _layer_called(file: FileGraph, name: str, checkpoint: Checkpoint) -> str:
    """Return the layer that a user names with `--map`, by its own name or by the name of its value in the
    engine. If it is the activation that makes probabilities, return the layer of its logits.

    Raises:
        MappingError: the file has no such layer.
    """
    layers_by_name = {
        **{node.tap: node.name for node in file.nodes if node.tap},
        **{node.name: node.name for node in file.nodes},
    }
    if name not in layers_by_name:
        raise MappingError(
            f"the file's graph has no layer '{name}'",
            where=str(checkpoint.path),
            next=tensors_hint(checkpoint.path),
        )
    return _logits_of(file, layers_by_name[name])


def _units(op: object) -> int | None:
    """Return the units of a dense layer, or the filters of a convolution; None for other ops."""
    if isinstance(op, ops.Dense):
        return op.units
    return op.filters if isinstance(op, ops.Conv) else None


def _trunk_end(aligned: Alignment, end: End) -> tuple[str, str]:
    """Return the last node of the recipe that leads to the logits, and its layer. It is the output, otherwise
    the head's input, otherwise the map before that.

    Args:
        end: the layer that gives the logits.

    Raises:
        MappingError: the graphs differ, or the file has another head where the recipe has a pool behind its
            own.
    """
    graph = aligned.graph
    if end.layer in aligned.candidates[graph.output]:
        return graph.output, end.layer
    head = head_of(graph)
    _, *ends_before_head = _possible_trunk_ends(graph)
    if not ends_before_head:
        message = "in this network the head comes before the pool, and the file ends in another layer"
        raise MappingError(message, where=head.path)
    for path in ends_before_head:
        layers = [name for name in aligned.candidates[path] if name in end.leading]
        if layers:
            return path, layers[-1]
    aligned.expect(ends_before_head[-1])
    raise MappingError(f"the layer '{end.layer}' does not come after the network", where=ends_before_head[-1])


def _possible_trunk_ends(graph: Graph) -> tuple[str, ...]:
    """Return the nodes at which a file may leave the recipe: the output; if the head is the output, the pool
    before it, and the map before that. A hidden dense layer is none of them: it could be any of a file's own,
    with other units.
    """
    head = head_of(graph)
    if head.path != graph.output:
        return (graph.output,)
    pool = graph.by_path[head.inputs[0]]
    path = pool.inputs[0]
    while path in graph.by_path and isinstance(graph.by_path[path].op, ops.Dense):
        path = graph.by_path[path].inputs[0]
    return (graph.output, pool.path, path)

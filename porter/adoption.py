"""The file's own graph wins: its pads, strides, epsilons and activations go into the recipe's nodes, and what the file has before
and behind them, scaled pixels and a head of one's own, becomes nodes too. What porter has no op for is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword

import numpy as np

from porter.alignment import Alignment, align, built_size, describe
from porter.errors import GraphError, MappingError
from porter.fit import Fit, some
from porter.frameworks import Framework, get_framework
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.file_graph import FileGraph, FileNode, Foreign, OutputActivation
from porter.graph import (
    INPUT,
    Affine,
    AvgPool,
    BatchNorm,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    Node,
    Op,
    nonnegative_paths,
    shapes,
    site_of,
    tensor_shapes,
)
from porter.naming import parse_map
from porter.padding import same_function
from porter.recipe import LayerName, Recipe, Zoo, expand, layer_names
from porter.windows import Size

AFTER = "the file's graph does not use it for the logits"


def fit_by_graph(
    recipe: Recipe, variant: str, zoo: Zoo, checkpoint: Checkpoint, settings: tuple[str, ...] = (), keep_background: bool = False
) -> Fit:
    """Fits a variant to a file that carries its graph.

    Args:
        settings: `--map`'s, as SRC=NODE: which layer gives the logits.
        keep_background: keep row 0 of the zoo's own head where it is ImageNet's background.

    Raises:
        MappingError: the file's graph is another one, or has a layer that porter has no op for.
    """
    file = checkpoint.graph
    assert file is not None
    framework, draft = get_framework(zoo.framework), expand(recipe, variant, zoo, {})
    mapped = parse_map(settings, draft)
    aligned = align(draft, file, recipe.native_size())
    end = _find_end(aligned, file, checkpoint, mapped.get(draft.output), _head_kernels(recipe, variant, zoo, draft, framework))
    base, name = _trunk_end(aligned, end.layer)
    pairs = aligned.pairs(base, name)
    for path, layer in mapped.items():
        if path != draft.output and pairs.get(path) != layer:
            raise MappingError(f"the file's graph has '{pairs.get(path, 'nothing')}' there, not '{layer}'", where=path)
    grafted = _graft(draft, file, pairs, base, end.layer)
    size = built_size(file, recipe.native_size())
    _expect_whole_averages(grafted, file, size)
    differences = _differences(draft, grafted.graph, size)
    layers = layer_names(recipe, variant, zoo, draft)
    own = end.own
    background = own and "drop_background" in layers[draft.output].transforms
    drops = background and not keep_background
    graph = _with_classes(grafted.graph, -1) if drops else grafted.graph
    found = {
        (path, role): tensor
        for path, layer in grafted.layers.items()
        for role, tensor in file.by_name[layer].tensors.items()
        if path in tensor_shapes(graph)
    }
    _expect_filled(graph, found, checkpoint)
    constants = {
        tensor: f"its numbers are the constants of {path}"
        for path, layer in grafted.layers.items()
        if isinstance(graph.by_path[path].op, Affine)
        for tensor in file.by_name[layer].tensors.values()
    }
    plain = not differences and grafted.plain
    return Fit(
        graph=graph,
        found=found,
        transforms={graph.output: ("drop_background",)} if drops else {},
        ignored={name: constants.get(name, AFTER) for name in checkpoint.tensors.keys() - set(found.values())},
        source_classes=_rows(grafted.graph),
        own_head=own,
        background=background and keep_background,
        activation=end.activation,
        taps={path: tap for path, layer in grafted.layers.items() if (tap := file.by_name[layer].tap)},
        today=_today(graph, framework, layers, found) if plain else {},
        scaling=grafted.scaling,
        warnings=(*end.warnings, *_said(zoo, differences), *grafted.warnings),
        notes=("the graph is the file's own",),
    )


@dataclass(frozen=True)
class _End:
    """Which layer gives the logits, and what the file does to them."""

    layer: str
    own: bool
    activation: str | None
    warnings: tuple[str, ...] = ()


def _head_kernels(recipe: Recipe, variant: str, zoo: Zoo, draft: Graph, framework: Framework) -> frozenset[str]:
    """What the zoo calls the kernel of its head, today and before."""
    head = draft.by_path[draft.output]
    tables = (layer_names(recipe, variant, zoo, draft, label) for label in (None, *zoo.generations))
    return frozenset(name for table in tables for name in framework.tensor_names(draft, head, table[head.path].name)["kernel"])


def _find_end(aligned: Alignment, file: FileGraph, checkpoint: Checkpoint, chosen: str | None, kernels: frozenset[str]) -> _End:
    """The layer that `--map` chose; else the recipe's own head, with the zoo's classes; else the file's output.

    A hidden layer of one's own may have as many units as the zoo has classes: what is no output is the recipe's head by name alone.

    Args:
        kernels: what the zoo calls the kernel of its head.
    """
    outputs = tuple(dict.fromkeys(_logits_of(file, name) for name in file.outputs))
    if chosen is not None:
        layer = _layer_called(file, chosen, checkpoint)
        return _End(layer, False, _activation_of(file, layer))
    graph = aligned.graph
    rows = tensor_shapes(graph)[graph.output]["kernel"][0]
    fitting = [layer for layer in aligned.candidates[graph.output] if _units(file.by_name[layer].op) == rows]
    named = [layer for layer in fitting if _has_name(file.by_name[layer].tensors.get("kernel", ""), kernels)]
    heads = named or [layer for layer in fitting if layer in outputs]
    if len(heads) == 1:
        # An activation that reads the head is recorded as such; whatever else is left out changes what the file answers.
        shown = {node.name for node in file.nodes if isinstance(node.op, OutputActivation) and heads[0] in node.inputs}
        rest = sorted(_leading_to(file, file.outputs) - _leading_to(file, (heads[0],)) - shown)
        said = f"left out, since the head does not read them: {some(rest)}; --map LAYER={graph.output} chooses another head"
        return _End(heads[0], True, _activation_of(file, heads[0]), (said,) if rest else ())
    choices = tuple(heads) or outputs
    if len(choices) > 1:
        raise MappingError(
            f"the file's graph has {len(choices)} {'layers that could be the head' if heads else 'outputs'}: {some(list(choices))}",
            where=str(checkpoint.path),
            next=" or ".join(f"--map {name}={graph.output}" for name in choices[:4]),
        )
    return _End(outputs[0], False, _activation_of(file, outputs[0]))


def _has_name(tensor: str, kernels: frozenset[str]) -> bool:
    """Whether a tensor has one of these names, with whatever models or scopes before it."""
    return any(tensor == kernel or tensor.endswith(f"/{kernel}") for kernel in kernels)


def _logits_of(file: FileGraph, name: str) -> str:
    """What the activation `name` reads, else `name` itself; one activation alone, since a port records one."""
    layer = file.by_name.get(name)
    return layer.inputs[0] if layer and isinstance(layer.op, OutputActivation) else name


def _activation_of(file: FileGraph, layer: str) -> str | None:
    return next((node.op.kind for node in file.nodes if isinstance(node.op, OutputActivation) and layer in node.inputs), None)


def _layer_called(file: FileGraph, name: str, checkpoint: Checkpoint) -> str:
    known = {**{node.tap: node.name for node in file.nodes if node.tap}, **{node.name: node.name for node in file.nodes}}
    if name not in known:
        dense = [node.name for node in file.nodes if isinstance(node.op, Dense | Conv) and node.tensors][-4:]
        raise MappingError(
            f"the file's graph has no layer '{name}'", where=str(checkpoint.path), next=f"its last ones are {', '.join(dense)}"
        )
    return _logits_of(file, known[name])


def _units(op: object) -> int | None:
    return op.units if isinstance(op, Dense) else op.filters if isinstance(op, Conv) else None


def _trunk_end(aligned: Alignment, end: str) -> tuple[str, str]:
    """The last node of the recipe that leads to the layer `end`, and its layer: the head, else what it reads, else the map before.

    Raises:
        MappingError: the file's graph is another one.
    """
    graph, file = aligned.graph, aligned.file
    head = graph.by_path[graph.output]
    pool = graph.by_path[head.inputs[0]]
    if end in aligned.candidates[head.path]:
        return head.path, end
    leading = _leading_to(file, (end,))
    for path in (pool.path, pool.inputs[0]):
        layers = [name for name in aligned.candidates[path] if name in leading]
        if layers:
            return path, layers[-1]
    aligned.expect(pool.inputs[0])
    raise MappingError(f"the layer '{end}' does not come after the network", where=pool.inputs[0])


def _leading_to(file: FileGraph, names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in file.by_name and name not in found:
            found.add(name)
            waiting += file.by_name[name].inputs
    return found


@dataclass(frozen=True)
class _Grafted:
    """A recipe's graph with the file's ops, and the layer of each of its nodes."""

    graph: Graph
    layers: Mapping[str, str]
    plain: bool
    scaling: tuple[Affine, ...]
    warnings: tuple[str, ...]


def _graft(draft: Graph, file: FileGraph, pairs: Mapping[str, str], base: str, end: str) -> _Grafted:
    entrance = _chain(file, pairs[INPUT])
    paths = {layer.name: f"input/{_word(layer.name)}" for layer in entrance}
    nodes = [Node(paths[layer.name], _own_op(layer), tuple(paths.get(name, name) for name in layer.inputs)) for layer in entrance]
    source = nodes[-1].path if nodes else INPUT
    trunk = [node for node in draft.nodes if node.path in pairs]
    for node in trunk:
        op = _adopted(node.op, file.by_name[pairs[node.path]]) if pairs[node.path] in file.by_name else node.op
        nodes.append(Node(node.path, op, tuple(source if path == INPUT else path for path in node.inputs)))
    paths |= {pairs[node.path]: node.path for node in trunk}
    output = base
    map_end = draft.by_path[draft.by_path[draft.output].inputs[0]]
    if end != pairs[base]:
        output = _append_head(draft, file, end, paths, nodes)
    elif base == map_end.inputs[0]:
        nodes.append(replace(map_end, inputs=(base,)))
        output = map_end.path
    headless = end == pairs[base] and base != draft.output
    warnings = ("the file has no head: the port gives features, one value per channel",) if headless else ()
    scopes = tuple(scope for scope in draft.scopes if any(node.path.startswith(f"{scope.path}/") for node in trunk))
    graph = Graph(tuple(nodes), draft.channels, output, scopes)
    try:
        shapes(graph, (None, None))
    except GraphError as error:
        raise MappingError(f"the file's graph does not fit together: {error.message}", where=error.where) from None
    scaling = tuple(layer.op for layer in entrance if isinstance(layer.op, Affine))
    plain = not entrance and output in (draft.output, map_end.path) and len(nodes) <= len(draft.nodes)
    return _Grafted(graph, {path: name for name, path in paths.items()}, plain, scaling, warnings)


def _append_head(draft: Graph, file: FileGraph, end: str, paths: dict[str, str], nodes: list[Node]) -> str:
    """Adds what stands between the trunk and the logits; gives the path of the logits."""
    known = {node.path: node for node in nodes}
    features = {node.path for node in nodes if isinstance(node.op, GlobalAvgPool | GlobalMaxPool | Dense)}
    leading = _leading_to(file, (end,))
    for layer in (layer for layer in file.nodes if layer.name in leading and layer.name not in paths):
        op = _own_op(layer)
        if any(name not in paths for name in layer.inputs):
            raise MappingError("this layer reads the input beside the network, which porter does not port", where=layer.name)
        inputs = tuple(paths[name] for name in layer.inputs)
        if isinstance(op, Conv) and inputs[0] in features and op.window.kernel == (1, 1):
            op = Dense(op.filters, op.bias)
        path = f"head/{_word(layer.name)}"
        if layer.name == end and draft.output not in known:
            path = draft.output
        while path in known:
            path += "_"
        if isinstance(op, GlobalAvgPool | GlobalMaxPool | Dense) or features.issuperset(inputs):
            features.add(path)
        paths[layer.name] = path
        known[path] = Node(path, op, inputs)
        nodes.append(known[path])
    return paths[end]


def _chain(file: FileGraph, name: str) -> list[FileNode]:
    """The layers from the input to `name`, in their order."""
    found: list[FileNode] = []
    while name != INPUT:
        found.insert(0, file.by_name[name])
        name = found[0].inputs[0]
    return found


def _own_op(layer: FileNode) -> Op:
    if isinstance(layer.op, Foreign | OutputActivation):
        raise MappingError(f"this layer is a {layer.op.kind}, which porter has no op for", where=layer.name)
    return layer.op


def _adopted(op: Op, layer: FileNode) -> Op:
    """The file's op for a node, in the recipe's form where the two are the same function."""
    found = _own_op(layer)
    if isinstance(op, Dense) and isinstance(found, Conv):
        return Dense(found.filters, found.bias)
    if isinstance(op, BatchNorm) and isinstance(found, BatchNorm) and not found.momentum:
        return replace(found, momentum=op.momentum)  # a graph made for inference does not say it
    return op if isinstance(op, GlobalAvgPool) else found


def _word(name: str) -> str:
    """A layer's name as one step of a path, and as a name that generated code can use."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "layer"
    return f"layer_{word}" if word[0].isdigit() or iskeyword(word) else word


def _rows(graph: Graph) -> int:
    """Classes that the graph's output has; 0 where this is no dense layer, scaled or as it is."""
    node = graph.by_path[graph.output]
    while isinstance(node.op, Affine | BatchNorm) and node.inputs[0] in graph.by_path:
        node = graph.by_path[node.inputs[0]]
    return _units(node.op) or 0


def _with_classes(graph: Graph, more: int) -> Graph:
    """The graph with so many more classes."""
    head = graph.by_path[graph.output]
    assert isinstance(head.op, Dense)
    fewer = replace(head, op=replace(head.op, units=head.op.units + more))
    return replace(graph, nodes=tuple(fewer if node.path == head.path else node for node in graph.nodes))


def _differences(draft: Graph, grafted: Graph, size: tuple[int | None, int | None]) -> list[str]:
    """What the file says otherwise than the recipe, for a human; pads that are equal at the file's size are not."""
    known, nonnegative = shapes(draft, size), nonnegative_paths(draft)
    found = []
    for node in draft.nodes:
        mine, theirs = node.op, grafted.by_path[node.path].op if node.path in grafted.by_path else node.op
        site, other = site_of(mine), site_of(theirs)
        if site and other:
            rows, columns = known[node.inputs[0]][1:]
            if site.window != other.window:
                found.append(f"{node.path}: windows {other.window} where the recipe has {site.window}")
            elif not same_function(site, other.convention, (rows, columns), node.inputs[0] in nonnegative):
                found.append(f"{node.path}: padding '{other.convention}' where the recipe has '{site.convention}'")
        if isinstance(mine, BatchNorm) and isinstance(theirs, BatchNorm) and np.float32(mine.epsilon) != np.float32(theirs.epsilon):
            found.append(f"{node.path}: epsilon {theirs.epsilon:g} where the recipe has {mine.epsilon:g}")
        if type(mine) is not type(theirs):
            found.append(f"{node.path}: {describe(theirs)} where the recipe has {describe(mine)}")
        if isinstance(mine, Conv) and isinstance(theirs, Conv) and mine.bias != theirs.bias:
            found.append(
                f"{node.path}: {'a' if theirs.bias else 'no'} bias where the recipe has {'none' if theirs.bias else 'one'}"
            )
    return found


def _said(zoo: Zoo, differences: list[str]) -> tuple[str, ...]:
    return (f"the file's graph is not that of zoo '{zoo.name}', and is used: {some(differences)}",) if differences else ()


def _expect_whole_averages(grafted: _Grafted, file: FileGraph, size: Size) -> None:
    """Refuses an average that is over a whole map of the recipe's, but not over the file's own, whose strides differ.

    Raises:
        MappingError: there is one.
    """
    known = shapes(grafted.graph, size)
    for path, layer in grafted.layers.items():
        found, node = file.by_name[layer].op, grafted.graph.by_path[path]
        if isinstance(node.op, GlobalAvgPool) and isinstance(found, AvgPool):
            rows, columns = known[node.inputs[0]][1:]
            if found.window.kernel != (rows, columns):
                (height, width), where = found.window.kernel, f"where the recipe averages all of it, {rows}x{columns}"
                raise MappingError(f"'{layer}' averages {height}x{width} cells of a map {where}", where=path)


def _expect_filled(graph: Graph, found: Mapping[tuple[str, str], str], checkpoint: Checkpoint) -> None:
    lacking = [f"{path}:{role}" for path, roles in tensor_shapes(graph).items() for role in roles if (path, role) not in found]
    if lacking:
        raise MappingError(f"the file's graph names no tensors for {some(lacking)}", where=str(checkpoint.path))


def _today(
    graph: Graph, framework: Framework, layers: Mapping[str, LayerName], found: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    """The name that the zoo's own implementation has for each tensor."""
    names = {}
    for (path, role), tensor in found.items():
        spellings = framework.tensor_names(graph, graph.by_path[path], layers[path].name)[role]
        variable = tensor.rpartition(framework.SEPARATOR)[2]
        names[tensor] = next((name for name in spellings if name.endswith(f"{framework.SEPARATOR}{variable}")), spellings[0])
    return names

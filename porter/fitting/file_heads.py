"""Which layer of a file's graph gives the logits, and the last node of the recipe that leads to it."""

from __future__ import annotations

from dataclasses import dataclass

from porter.errors import MappingError
from porter.fitting.alignment import Alignment
from porter.fitting.fit import some
from porter.frameworks import Framework
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.file_graph import FileGraph, OutputActivation
from porter.graph import Conv, Dense, Graph, tensor_shapes
from porter.recipe import Recipe, Zoo, layer_names


@dataclass(frozen=True)
class End:
    """Which layer gives the logits, and what the file does to them."""

    layer: str
    own: bool
    activation: str | None
    warnings: tuple[str, ...] = ()


def head_kernels(recipe: Recipe, variant: str, zoo: Zoo, draft: Graph, framework: Framework) -> frozenset[str]:
    """What the zoo calls the kernel of its head, today and before."""
    head = draft.by_path[draft.output]
    tables = (layer_names(recipe, variant, zoo, draft, label) for label in (None, *zoo.generations))
    return frozenset(name for table in tables for name in framework.tensor_names(draft, head, table[head.path].name)["kernel"])


def find_end(aligned: Alignment, file: FileGraph, checkpoint: Checkpoint, chosen: str | None, kernels: frozenset[str]) -> End:
    """The layer that `--map` chose; else the recipe's own head, with the zoo's classes; else the file's output.

    A hidden layer of one's own may have as many units as the zoo has classes: what is no output is the recipe's head by name alone.

    Args:
        kernels: what the zoo calls the kernel of its head.
    """
    outputs = tuple(dict.fromkeys(_logits_of(file, name) for name in file.outputs))
    if chosen is not None:
        layer = _layer_called(file, chosen, checkpoint)
        return End(layer, False, _activation_of(file, layer))
    graph = aligned.graph
    rows = tensor_shapes(graph)[graph.output]["kernel"][0]
    fitting = [layer for layer in aligned.candidates[graph.output] if _units(file.by_name[layer].op) == rows]
    named = [layer for layer in fitting if _has_name(file.by_name[layer].tensors.get("kernel", ""), kernels)]
    heads = named or [layer for layer in fitting if layer in outputs]
    if len(heads) == 1:
        # An activation that reads the head is recorded as such; whatever else is left out changes what the file answers.
        shown = {node.name for node in file.nodes if isinstance(node.op, OutputActivation) and heads[0] in node.inputs}
        rest = sorted(file.leading_to(file.outputs) - file.leading_to((heads[0],)) - shown)
        said = f"left out, since the head does not read them: {some(rest)}; --map LAYER={graph.output} chooses another head"
        return End(heads[0], True, _activation_of(file, heads[0]), (said,) if rest else ())
    choices = tuple(heads) or outputs
    if len(choices) > 1:
        raise MappingError(
            f"the file's graph has {len(choices)} {'layers that could be the head' if heads else 'outputs'}: {some(list(choices))}",
            where=str(checkpoint.path),
            next=" or ".join(f"--map {name}={graph.output}" for name in choices[:4]),
        )
    return End(outputs[0], False, _activation_of(file, outputs[0]))


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


def trunk_end(aligned: Alignment, end: str) -> tuple[str, str]:
    """The last node of the recipe that leads to the layer `end`, and its layer: the head, else what it reads, else the map before.

    Raises:
        MappingError: the file's graph is another one.
    """
    graph, file = aligned.graph, aligned.file
    head = graph.by_path[graph.output]
    pool = graph.by_path[head.inputs[0]]
    if end in aligned.candidates[head.path]:
        return head.path, end
    leading = file.leading_to((end,))
    for path in (pool.path, pool.inputs[0]):
        layers = [name for name in aligned.candidates[path] if name in leading]
        if layers:
            return path, layers[-1]
    aligned.expect(pool.inputs[0])
    raise MappingError(f"the layer '{end}' does not come after the network", where=pool.inputs[0])

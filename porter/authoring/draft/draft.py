"""A whole recipe of one variant in one zoo, from a graph and the names of its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from porter.authoring.draft.heads import conv_head_as_dense
from porter.authoring.draft.name_table import MARK, draft_names
from porter.authoring.draft.yaml_text import MODELINE, section
from porter.base.commands import CONVERT, FILE, FRAMEWORK
from porter.base.errors import UsageError
from porter.graph import BatchNorm, Graph, site_of, tensor_shapes
from porter.graph.blocks.find_blocks import find_blocks
from porter.padding import KnownSize
from porter.recipe.expressions import Value
from porter.recipe.recipe import STANDARD_OPTIONS
from porter.recipe.writing.steps import BlockLines, draft_steps

_NO_EPSILON: Mapping[str, Value] = {"bn_epsilon": 0.0}
"""Steps are drafted with every option of batch norms. This one has no standard value; a graph that has norms
states theirs, and a graph that has none does not use it.
"""


@dataclass(frozen=True)
class DraftFacts:
    """What a drafted recipe says beside its graph and names.

    Attributes:
        variant: its name, and the architecture's.
        size: rows and columns of the input.
        classes: of the head; 0 where the graph gives features.
        activation: what the source has after the logits.
    """

    variant: str
    zoo: str
    framework: str
    size: KnownSize
    classes: int = 0
    activation: str | None = None


@dataclass(frozen=True)
class Draft:
    """A recipe's text, the graph that it expands to, and how often each block is used."""

    text: str
    graph: Graph
    blocks: Mapping[str, int]


def draft_recipe(
    graph: Graph,
    names: Mapping[str, str],
    facts: DraftFacts,
    made_up: Collection[str] = (),
    container: str = "",
) -> Draft:
    """Draft a recipe that expands to `graph`, under paths that show its blocks, and return its text, the
    graph that it expands to and the uses of each block.

    Args:
        names: what the file's layers are called, by path; `MARK` stands before the name of a bare parameter
            in its module.
        facts: what the recipe says beside its graph and names.
        made_up: names of no layer of the file, which the recipe does not state.
        container: what most names begin with, which no path has.

    Raises:
        UsageError: the graph has several outputs, or a layer's name looks like an expression; recipes can say
            neither.
    """
    _refuse_unsayable(graph, names)
    graph, convolution = conv_head_as_dense(graph)
    words = {node.path: names[node.path].removeprefix(container).replace(MARK, "") for node in graph.nodes}
    found_blocks = find_blocks(graph, words)
    # The names by the new paths, which show the blocks.
    layer_names = {path: names[path_before] for path, path_before in found_blocks.paths.items()}
    stated = {path: name for path, name in layer_names.items() if name not in made_up}
    options: dict[str, Value] = {
        "classes": facts.classes or STANDARD_OPTIONS["classes"],
        **_norm_options(found_blocks.graph),
    }
    drafted = draft_steps(found_blocks.graph, {**STANDARD_OPTIONS, **_NO_EPSILON, **options})
    head = found_blocks.graph.output
    steps = [
        {**step, "units": "=classes"} if step.get("dense") == head else dict(step) for step in drafted.graph
    ]
    blocks = {name: _block_section(block) for name, block in drafted.blocks.items()}
    table = _names_section(found_blocks.graph, layer_names, stated)
    if convolution:
        table[head] = {"name": layer_names[head], "transforms": ["conv1x1_to_dense"]}
    parts = [
        _first_section(facts, options, graph.channels),
        {"graph": steps},
        *([{"blocks": blocks}] if blocks else []),
        {"zoos": {facts.zoo: _zoo_section(facts, table)}},
    ]
    text = "\n\n".join("\n".join(section(part)) for part in parts)
    return Draft(
        f"{MODELINE}\n{text}\n",
        found_blocks.graph,
        Counter(scope.block for scope in found_blocks.graph.scopes),
    )


def _refuse_unsayable(graph: Graph, names: Mapping[str, str]) -> None:
    """Refuse a graph of several outputs, and a layer's name that a recipe would read as an expression."""
    if graph.further:
        problem = f"the graph has {len(graph.outputs)} outputs, and a recipe's graph has one"
        raise UsageError(problem, next=f"{CONVERT.advise(subject=FILE, to=FRAMEWORK)} needs no recipe")
    for name in names.values():
        if name.startswith("=") or "{" in name or "}" in name:
            raise UsageError(
                f"a recipe cannot say the name '{name}': it would read it as an expression",
                next="rename the layer",
            )


def _first_section(facts: DraftFacts, options: Mapping[str, Value], channels: int) -> dict[str, Any]:
    """Return the recipe's sections before its graph: architecture, variants, options and input. Of
    `options`, those that every recipe has with the same value are not written.
    """
    stated = {name: value for name, value in options.items() if STANDARD_OPTIONS.get(name) != value}
    rows, columns = facts.size
    return {
        "architecture": facts.variant,
        "variants": {facts.variant: {}},
        **({"options": stated} if stated else {}),
        "input": {"size": rows if rows == columns else [rows, columns], "channels": channels},
    }


def _block_section(block: BlockLines) -> dict[str, Any]:
    """Return the section of a block: its parameters, if it has some, and its steps."""
    steps = {"steps": list(block.steps)}
    return {"parameters": dict(block.parameters), **steps} if block.parameters else steps


def _names_section(graph: Graph, layer_names: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, Any]:
    """Return the zoo's table of names, by path or pattern. It names the layers that have tensors, and of
    `stated` layers those at padding sites (convolutions and pools).

    Args:
        layer_names: the name of each node by path.
        stated: those of them that the file has.
    """
    stated_nodes = [node for node in graph.nodes if node.path in stated]
    sites = {node.path for node in stated_nodes if site_of(node.op)}
    needed = tensor_shapes(graph).keys() | sites
    lines = draft_names(layer_names, needed, [node.path for node in stated_nodes])
    return {pattern: _table_entry(name) for pattern, name in lines.items()}


def _zoo_section(facts: DraftFacts, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of the zoo that the file is of, with its table of names."""
    zoo = {"framework": facts.framework, "names": table}
    return {**zoo, "activation": facts.activation} if facts.activation else zoo


def _table_entry(name: str) -> str | dict[str, str]:
    """Return a name as a table of names has it; one with `MARK` in it is that of a tensor without a layer of
    its own: `{'name': MODULE, 'tensor': NAME}`.
    """
    module, mark, tensor = name.partition(MARK)
    return {"name": module.rstrip("./"), "tensor": tensor} if mark else name


def _norm_options(graph: Graph) -> dict[str, Value]:
    """Return the settings that most batch norms of a graph have, as options of the recipe such as
    `bn_epsilon`; an empty dictionary without norms.
    """
    norms = [node.op for node in graph.nodes if isinstance(node.op, BatchNorm)]
    options: dict[str, Value] = {}
    for name in ("epsilon", "momentum", "scale", "center") if norms else ():
        counts = Counter(getattr(norm, name) for norm in norms)
        ((most_common, _),) = counts.most_common(1)
        options[f"bn_{name}"] = most_common
    return options

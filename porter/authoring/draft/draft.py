"""A whole recipe of one variant in one zoo, from a graph and the names of its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from porter.authoring.draft.heads import with_dense_head
from porter.authoring.draft.name_table import MARK, draft_names
from porter.authoring.draft.yaml_text import MODELINE, section
from porter.base.commands import CONVERT, FILE, FRAMEWORK
from porter.base.errors import UsageError
from porter.graph import BatchNorm, Graph, site_of, tensor_shapes
from porter.graph.blocks.find_blocks import find_blocks
from porter.padding import KnownSize
from porter.recipe.expressions import Value
from porter.recipe.recipe import STANDARD_OPTIONS
from porter.recipe.writing.steps import draft_steps


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
    """A recipe that expands to `graph`, under paths that show its blocks.

    Args:
        names: what the file's layers are called, by path; `MARK` stands before the name of a bare parameter
            in its module.
        made_up: names of no layer of the file, which the recipe does not state.
        container: what most names begin with, which no path has.

    Raises:
        UsageError: the graph has several outputs, which recipes cannot say.
    """
    if graph.further:
        problem = f"the graph has {len(graph.outputs)} outputs, and a recipe's graph has one"
        raise UsageError(problem, next=f"{CONVERT.advise(subject=FILE, to=FRAMEWORK)} needs no recipe")
    unsaid = next(
        (name for name in names.values() if name.startswith("=") or "{" in name or "}" in name), None
    )
    if unsaid is not None:
        raise UsageError(
            f"a recipe cannot say the name '{unsaid}': it would read it as an expression",
            next="rename the layer",
        )
    graph, convolution = with_dense_head(graph)
    found_blocks = find_blocks(
        graph, {node.path: names[node.path].removeprefix(container).replace(MARK, "") for node in graph.nodes}
    )
    named = {path: names[before] for path, before in found_blocks.paths.items()}
    options: dict[str, Value] = {
        "classes": facts.classes or STANDARD_OPTIONS["classes"],
        **_norm_options(found_blocks.graph),
    }
    drafted = draft_steps(found_blocks.graph, {**STANDARD_OPTIONS, "bn_epsilon": 0.0, **options})
    sites = (
        node.path for node in found_blocks.graph.nodes if site_of(node.op) and named[node.path] not in made_up
    )
    needed = {*tensor_shapes(found_blocks.graph), *sites}
    head = found_blocks.graph.by_path[found_blocks.graph.output]
    steps = [dict(step) for step in drafted.graph]
    for step in steps:
        if step.get("dense") == head.path:
            step["units"] = "=classes"
    rows, columns = facts.size
    lines = draft_names(
        named, needed, [node.path for node in found_blocks.graph.nodes if named[node.path] not in made_up]
    )
    table: dict[str, Any] = {pattern: _with_tensor(name) for pattern, name in lines.items()}
    if convolution:
        table[head.path] = {"name": named[head.path], "transforms": ["conv1x1_to_dense"]}
    zoo: dict[str, Any] = {"framework": facts.framework, "names": table}
    if facts.activation:
        zoo["activation"] = facts.activation
    different = {name: value for name, value in options.items() if STANDARD_OPTIONS.get(name) != value}
    head_of_file: dict[str, Any] = {
        "architecture": facts.variant,
        "variants": {facts.variant: {}},
        **({"options": different} if different else {}),
        "input": {"size": rows if rows == columns else [rows, columns], "channels": graph.channels},
    }
    blocks = {}
    for name, block in drafted.blocks.items():
        blocks[name] = {
            **({"parameters": dict(block.parameters)} if block.parameters else {}),
            "steps": list(block.steps),
        }
    parts = [
        head_of_file,
        {"graph": steps},
        *([{"blocks": blocks}] if blocks else []),
        {"zoos": {facts.zoo: zoo}},
    ]
    text = "\n\n".join("\n".join(section(part)) for part in parts)
    return Draft(
        f"{MODELINE}\n{text}\n",
        found_blocks.graph,
        Counter(scope.block for scope in found_blocks.graph.scopes),
    )


def _with_tensor(name: str) -> str | dict[str, str]:
    """A name as a table of names says it."""
    module, mark, tensor = name.partition(MARK)
    return {"name": module.rstrip("./"), "tensor": tensor} if mark else name


def _norm_options(graph: Graph) -> dict[str, Value]:
    """The settings that most batch norms have, as options of the recipe."""
    norms = [node.op for node in graph.nodes if isinstance(node.op, BatchNorm)]
    return {
        f"bn_{name}": Counter(getattr(norm, name) for norm in norms).most_common(1)[0][0]
        for name in ("epsilon", "momentum", "scale", "center")
        if norms
    }

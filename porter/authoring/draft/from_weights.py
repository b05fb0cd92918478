"""A recipe drafted from weights only: the layers that the tensors say, in their order, and `# TODO` at what
they do not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from porter.authoring.draft.chain import chain_layers
from porter.authoring.draft.draft import Draft, DraftFacts, draft_recipe
from porter.authoring.draft.network_layers import ListedLayers
from porter.authoring.draft.yaml_text import scalar
from porter.authoring.todo import TO_DO
from porter.base.errors import UsageError, some
from porter.base.options import FROM_MODEL
from porter.graph import GlobalAvgPool

_STEP = re.compile(r"\s*- \{(?P<kind>\w+): ")
_JOIN = "a branch, a join or groups: the next layer reads so many channels"
_QUESTIONS: Mapping[str, str] = {
    "relu": "the activation, or none",
    "flatten": "flattened, by a guess: the features fit",
    "global_avg_pool": "a global average, by a guess",
    "slice_channels": _JOIN,
    "pad_channels": _JOIN,
    "as_map": "unknown: the next layer reads a map",
}
"""What to decide at a step, by its operation."""


def draft_from_weights(listed: ListedLayers, variant: str, zoo: str, remarks: Sequence[str]) -> Draft:
    """Draft a recipe that loads and names every tensor of a file's layers.

    Args:
        remarks: lines about the file, for the top of the recipe.

    Raises:
        UsageError: the file has tensors of no layer that porter knows.
    """
    if listed.unknown:
        message = f"no layer that porter knows has these tensors: {some([*listed.unknown])}"
        raise UsageError(
            message,
            next=f"add {FROM_MODEL.placeholder}, which carries a graph: ONNX, .pt2, .keras or a SavedModel",
        )
    chained = chain_layers(listed)
    has_head = not isinstance(chained.graph.by_path[chained.graph.output].op, GlobalAvgPool)
    classes = listed.layers[-1].gives if has_head else 0
    facts = DraftFacts(variant, zoo, listed.framework, (chained.side, chained.side), classes)
    made_up = set(chained.names.values()) - {layer.name for layer in listed.layers}
    draft = draft_recipe(chained.graph, chained.names, facts, made_up, listed.container)
    modeline, *lines = draft.text.splitlines()
    lines = [modeline, *(f"# {line}" for line in remarks), *_mark_todos(lines), *_ignore_section(listed)]
    return replace(draft, text="\n".join(lines) + "\n")


def _mark_todos(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a draft, with `# TODO` at what weights do not say."""
    for line in lines:
        question = _open_question(line)
        yield f"{line} {TO_DO}: {question}" if question else line


def _open_question(line: str) -> str | None:
    """Return what the author has to decide at a line of a draft, such as `stride and pad` at a convolution,
    because weights do not say it; None if nothing.
    """
    if line.startswith("input: "):
        return "the size that the network was trained at"
    if line.startswith("options: ") and "bn_epsilon" in line:
        return "the epsilon of the batch norms"
    step = _STEP.match(line)
    if step is None:
        return None
    if step["kind"] in _QUESTIONS:
        return _QUESTIONS[step["kind"]]
    # A window of one cell needs no pads.
    has_window = step["kind"] in ("conv", "depthwise_conv") and re.search(r"kernel: (?!1[,}])", line)
    return "stride and pad" if has_window else None


def _ignore_section(listed: ListedLayers) -> Iterator[str]:
    """Yield the lines `ignore:` of the zoo, which is the last section of a draft: one for each tensor that
    no part of the graph has, or one for all of a module without a layer. Yield nothing if there are no such
    tensors.
    """
    if not listed.others:
        return
    separator = listed.separator
    modules_of_layers = {layer.name.split(separator)[0] for layer in listed.layers}

    def pattern_of(name: str) -> str:
        """Return `aux_classifier.*` for `aux_classifier.0.weight`, if no layer is in that module."""
        module = name.split(separator)[0]
        return name if module in modules_of_layers or module == name else f"{module}{separator}*"

    yield "    ignore:"
    for pattern in dict.fromkeys(map(pattern_of, listed.others)):
        yield (
            f"      {scalar(pattern)}: an auxiliary head, or a counter {TO_DO}: whether the network needs it"
        )

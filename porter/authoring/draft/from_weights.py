"""A recipe drafted from weights only: the layers that the tensors say, in their order, and `# TODO` at what
they do not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from porter.authoring.draft.chain import chain
from porter.authoring.draft.draft import Draft, DraftFacts, draft_recipe
from porter.authoring.draft.network_layers import Listed
from porter.authoring.draft.yaml_text import scalar
from porter.authoring.todo import TO_DO
from porter.base.errors import UsageError, some
from porter.base.options import FROM_MODEL
from porter.graph import GlobalAvgPool

_STEP = re.compile(r"\s*- \{(?P<kind>\w+): ")
_JOIN = "a branch, a join or groups: the next layer reads so many channels"
_MEANT: Mapping[str, str] = {
    "relu": "the activation, or none",
    "flatten": "flattened, by a guess: the features fit",
    "global_avg_pool": "a global average, by a guess",
    "slice_channels": _JOIN,
    "pad_channels": _JOIN,
    "as_map": "unknown: the next layer reads a map",
}
"""What to decide at a step, by its operation."""


def draft_from_weights(listed: Listed, variant: str, zoo: str, said: Sequence[str]) -> Draft:
    """A recipe that loads and names every tensor of a file's layers.

    Args:
        said: lines about the file, for the top of the recipe.

    Raises:
        UsageError: the file has tensors of no layer that porter knows.
    """
    if listed.unknown:
        message = f"no layer that porter knows has these tensors: {some([*listed.unknown])}"
        raise UsageError(
            message,
            next=f"add {FROM_MODEL.placeholder}, which carries a graph: ONNX, .pt2, .keras or a SavedModel",
        )
    chained = chain(listed)
    classes = (
        0
        if isinstance(chained.graph.by_path[chained.graph.output].op, GlobalAvgPool)
        else listed.layers[-1].gives
    )
    facts = DraftFacts(variant, zoo, listed.framework, (chained.side, chained.side), classes)
    made_up = set(chained.names.values()) - {layer.name for layer in listed.layers}
    draft = draft_recipe(chained.graph, chained.names, facts, made_up, listed.container)
    modeline, *lines = draft.text.splitlines()
    lines = [modeline, *(f"# {line}" for line in said), *_marked(lines), *_ignored(listed)]
    return replace(draft, text="\n".join(lines) + "\n")


def _marked(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        said = _unknown(line)
        yield f"{line} {TO_DO}: {said}" if said else line


def _unknown(line: str) -> str | None:
    """What a line of a draft says that weights do not."""
    if line.startswith("input: "):
        return "the size that the network was trained at"
    if line.startswith("options: ") and "bn_epsilon" in line:
        return "the epsilon of the batch norms"
    step = _STEP.match(line)
    if step is None:
        return None
    if step["kind"] in _MEANT:
        return _MEANT[step["kind"]]
    windowed = step["kind"] in ("conv", "depthwise_conv") and re.search(r"kernel: (?!1[,}])", line)
    return "stride and pad" if windowed else None


def _ignored(listed: Listed) -> Iterator[str]:
    """The zoo's rules for tensors that no part of the graph has; the zoo is the last section of a draft."""
    if not listed.others:
        return
    tops = {layer.name.split(listed.separator)[0] for layer in listed.layers}
    patterns = dict.fromkeys(
        name
        if (top := name.split(listed.separator)[0]) in tops or top == name
        else f"{top}{listed.separator}*"
        for name in listed.others
    )
    yield "    ignore:"
    for pattern in patterns:
        yield (
            f"      {scalar(pattern)}: an auxiliary head, or a counter {TO_DO}: whether the network needs it"
        )

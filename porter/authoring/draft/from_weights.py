"""A recipe drafted from weights only: what the tensors say, and guesses of the rest, each marked `# TODO` at its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from porter.authoring.draft.draft import Draft, Facts, draft_recipe
from porter.authoring.draft.guess import guess_graph
from porter.authoring.draft.layers import Listed
from porter.authoring.draft.text import scalar
from porter.authoring.todo import TO_DO
from porter.graph import GlobalAvgPool

_STEP = re.compile(r"\s*- \{(?P<kind>\w+): ")
_MEANT: Mapping[str, str] = {
    "relu": "the activation, or none",
    "max_pool": "a pool, by a guess",
    "add": "a sum, by a guess: the channels fit",
    "concat": "joined, by a guess: the channels fit",
    "multiply": "squeeze and excite, by the names",
    "flatten": "flattened, by a guess: the features fit",
    "global_avg_pool": "a global average, by a guess",
    "slice_channels": "unknown: what the next layer reads has so many channels",
    "pad_channels": "unknown: what the next layer reads has so many channels more",
    "as_map": "unknown: the next layer reads a map",
}
"""What to decide at a step, by its operation."""


def draft_from_weights(listed: Listed, variant: str, zoo: str, said: Sequence[str]) -> Draft:
    """A recipe that loads and names every tensor of a file's layers.

    Args:
        said: lines about the file, for the top of the recipe.
    """
    guess = guess_graph(listed)
    classes = 0 if isinstance(guess.graph.by_path[guess.graph.output].op, GlobalAvgPool) else listed.layers[-1].gives
    facts = Facts(variant, zoo, listed.framework, (guess.side, guess.side), classes)
    made_up = set(guess.names.values()) - {layer.name for layer in listed.layers}
    draft = draft_recipe(guess.graph, guess.names, facts, made_up, listed.container)
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
    if step["kind"] in ("conv", "depthwise_conv") and re.search(r"kernel: (?!1[,}])", line):
        return "stride and pad"
    if "from: =" in line:
        return "what it reads, by a guess: the channels fit"
    beside = step["kind"] == "conv" and ("when: " in line or "from: " in line)
    return "stride" if "stride" in line or beside else None


def _ignored(listed: Listed) -> Iterator[str]:
    """The zoo's rules for tensors of no layer; the zoo is the last section of a draft."""
    if not listed.others:
        return
    used = {name.rpartition(listed.separator)[0] for name in (layer.name + listed.separator for layer in listed.layers)}
    tops = {name.split(listed.separator)[0] for name in used}
    patterns = dict.fromkeys(
        name if (top := name.split(listed.separator)[0]) in tops or top == name else f"{top}{listed.separator}*"
        for name in listed.others
    )
    yield "    ignore:"
    for pattern in patterns:
        yield f"      {scalar(pattern)}: of no layer that was recognised {TO_DO}: whether the network needs it"

"""The output of `porter recipe` for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.cli.printing import of_subject, table, tensors_words
from porter.cli.verdict_text import check_lines
from porter.frameworks import DESTINATION_NAMES

if TYPE_CHECKING:
    from porter.authoring.check.recipe_check import Checked
    from porter.authoring.new_recipe import NewRecipe
    from porter.authoring.trial import WeightsTrial
    from porter.recipe.declared import Declared


def new_recipe(drafted: NewRecipe) -> list[str]:
    """Return the lines of `porter recipe new`: the file that was drafted, what it has, and the command to
    type next.
    """
    names = ", ".join(f"{name} ({uses} times)" for name, uses in drafted.draft.blocks.items())
    blocks = f"blocks: {names}" if names else "no blocks"
    lines = [
        f"{drafted.path}: {drafted.variant} from {drafted.zoo}, {drafted.lines} lines",
        f"  graph    {len(drafted.draft.graph.nodes)} nodes; {blocks}",
    ]
    if drafted.tensors is not None:
        lines.append(f"  tensors  {tensors_words(drafted.tensors)}")
    if drafted.problem is not None:
        lines.append(f"  problem  {drafted.problem}")
    if drafted.to_do:
        lines.append(f"  to do    {drafted.to_do} lines are marked # TODO")
    return [*lines, f"  next     {drafted.command}"]


def recipe_list(recipes: Sequence[Declared], own: Path) -> list[str]:
    """Return the lines of `porter recipe list`; `own` is the folder of porter's own recipes, and the others
    show their files.
    """
    lines = []
    for recipe in recipes:
        file = "" if recipe.path.parent == own else f"  {recipe.path}"
        lines.append(recipe.architecture + file)
        lines += _wrapped("  variants  ", ", ".join(recipe.variants))
        lines += _wrapped("  zoos      ", ", ".join(recipe.zoos))
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    """Wrap a text into lines of at most 100 columns, behind a label that stands once."""
    return textwrap.wrap(
        text, 100, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )


def recipe_check(result: Checked, trial: WeightsTrial | None = None) -> list[str]:
    """Return the lines of `porter recipe check`: errors and warnings, each with its place, and what was
    checked; then the result of a trial on a file of weights, if there was one.
    """
    lines = [f"error: {error}" for error in result.errors]
    lines += [f"warning: {warning}" for warning in result.warnings]
    counts = (
        (result.variants, "variant"),
        (result.zoos, "zoo"),
        (result.sites, "padding site"),
        (result.nodes, "node"),
    )
    checked = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)
    if result.nodes:
        lines.append(f"checked: {checked} named")
    if trial is None:
        return lines
    if trial.opened is not None and trial.opened.member is not None:
        lines.append(f"weights: {trial.opened.member.name}; {tensors_words(trial.opened.lists)}")
        comparison_lines = check_lines(trial.verdict) if trial.verdict else [f"skipped: {trial.skipped}"]
        lines += [f"numbers: {line}" for line in comparison_lines]
    if trial.error is not None:
        lines.append(f"error: {trial.error}")
    return lines


def recipe(record: Mapping[str, Any]) -> list[str]:
    """Return the lines of `porter recipe show`; `record` is that of `recipe_record`."""
    header = ("zoo", "framework", "top-1", "top-5", "licence", "file", "written in")

    def cell(key: str, value: Any) -> str:
        """Return a cell of the table of zoos: figures with three decimals, and no empty name of a file."""
        if isinstance(value, float):
            return f"{value:.3f}"
        return value or ("none" if key == "file" else "")

    zoos = [[cell(key, value) for key, value in row.items()] for row in record["weights"]]
    steps = [
        (node["path"], node["op"], node["window"] or "", "x".join(map(str, node["output"])))
        for node in record["nodes"]
    ]
    known = [(zoo, *(_short(proof) for proof in proofs.values())) for zoo, proofs in record["proofs"].items()]
    return [
        f"{record['architecture']} ({record['paper']}), {record['file']}",
        f"variants: {', '.join(record['variants'])}",
        "",
        *table(header, zoos),
        "",
        *table(("ported to", *DESTINATION_NAMES), known),
        "",
        f"{record['variant']}:",
        *table(("node", "op", "window", "output"), steps),
    ]


def _short(proof: Mapping[str, Any]) -> str:
    """Write a proof as `exact` with the worst node's distance in float64, `refused` or `unproven`:
    docs/parity.md has the rest.
    """
    if proof["outcome"] != "exact":
        return str(proof["outcome"])
    distance = f"{proof['float64']:.0e}" if proof["float64"] else "0"
    return f"{of_subject(proof['of'])}exact {distance}"

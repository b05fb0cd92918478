"""`--site PATH=CONVENTION,CONVENTION`: the sites of a study and the conventions that it tries there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import yaml

from porter.base.errors import RecipeError, UsageError
from porter.base.options import SITE
from porter.evaluation.padding_study.cases import Change, site_at
from porter.graph import Graph, site_of
from porter.padding import Convention, Site
from porter.recipe.paddings import default_convention
from porter.recipe.spelling import hint

LONGEST = 1000
"""The most characters of one option."""
_REFERENCES = set("&*")
"""YAML's anchors and aliases, which can make a long value of a short text. Recipes have none either."""


def parse_sites(settings: Iterable[str], graph: Graph) -> tuple[Change, ...]:
    """Parse the changes that `--site` asks for: `stem/pool=same,1` asks for two, of the padding site (a node
    with a window) `stem/pool`.

    A convention is written as in a recipe: `same`, `valid`, `same_lower`, `cntk`, a number of cells, [top,
    bottom, left, right], or a mapping such as {pad: 1, fill: 0}. Keys that it leaves out have the defaults of
    a recipe's step: max pools are filled with -inf. Averages divide like the zoo's.

    Raises:
        UsageError: a path is not a padding site, or a value is not a convention; with the nearest spelling.
    """
    return tuple(change for setting in settings for change in _parse(setting, graph))


def _parse(setting: str, graph: Graph) -> Iterable[Change]:
    """Return the changes that one `--site` asks for: one for each convention that is listed behind the path.

    Raises:
        UsageError: the path is no site, or a text is no convention.
    """
    where = f"{SITE(setting[:80])}"
    path, equals, text = setting.partition("=")
    sites = [node.path for node in graph.nodes if site_of(node.op)]
    if not equals or len(setting) > LONGEST:
        raise UsageError(
            "a site is written as PATH=CONVENTION,CONVENTION", where=where, next="such as stem/pool=same,1"
        )
    if path not in sites:
        problem = "is not a padding site" if path in graph.by_path else "is not a node of this model"
        raise UsageError(f"'{path}' {problem}", where=where, next=hint(path, sites))
    site = site_at(graph, path)
    try:
        return [Change(path, _convention(value, site)) for value in _parse_list(text)]
    except RecipeError as error:
        raise UsageError(error.message, where=where, next=error.next) from None


def _parse_list(text: str) -> list[Any]:
    """Return the items of a list in YAML's flow style, which is how recipes are written.

    Raises:
        RecipeError: it is no such list, or it is empty.
    """
    try:
        values = yaml.safe_load(f"[{text}]") if not _REFERENCES & set(text) else None
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: of a date or a number that is none
        values = None
    if not isinstance(values, list) or not values:
        raise RecipeError(
            f"'{text}' is not a list of conventions", next="write them with commas between: same,1,[0,1,0,1]"
        )
    return values


def _convention(value: Any, site: Site) -> Convention:
    """Return the convention that a stated value (a rule's name, pads, or an object of settings) means at a
    site. An average pool counts its pads as the site does today, unless the value states that too.
    """
    states_average = isinstance(value, dict) and "average" in value
    value = {key: _tuple(item) for key, item in value.items()} if isinstance(value, dict) else _tuple(value)
    convention = default_convention(value, site.kind)
    return convention if states_average else replace(convention, average=site.convention.average)


def _tuple(value: Any) -> Any:
    """Return YAML's list of pads as the tuple that a convention has; any other value as it is."""
    return tuple(value) if isinstance(value, list) else value

"""Small recipes for the tests: a valid one, and the same with one thing changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from porter.base.errors import RecipeError
from porter.graph import Graph
from porter.recipe import Member, Recipe, expand, layer_names, load_recipe, recipes_folder
from porter.recipe.find_recipes import recipe_files

VALID = """\
architecture: tiny
variants:
  tiny: {width: 8, depths: [2, 1]}
  tiny_wide: {width: 16, depths: [1, 1]}
options: {classes: 10, bn_epsilon: 1.0e-3, stem_pool: true}
input: {size: 32, channels: 3}
graph:
  - {conv: stem/conv, filters: =width, kernel: 3, stride: 2, pad: same}
  - {batch_norm: stem/norm}
  - {relu: stem/relu}
  - {max_pool: stem/pool, kernel: 3, stride: 2, pad: 1, when: =stem_pool}
  - {unit: stage1/unit, repeat: "=depths[0]", filters: =width}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
blocks:
  unit:
    parameters: {filters: null, kernel: 3}
    steps:
      - {conv: conv, filters: =filters, kernel: =kernel, pad: same}
      - {add: add, from: [input, conv]}
zoos:
  home:
    framework: torch
    padding: {stem/conv: 1}
    names:
      stem/conv: conv1
      stem/norm: bn1
      "stage{s}/unit{u}/conv": "layer{s}.{u-1}.conv"
      head/logits: {name: fc, transforms: [conv1x1_to_dense]}
    weights:
      tiny: {top1: 50, top5: 80, size: 32, source: made up}
"""


def write(folder: Path, text: str, name: str = "tiny.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def copied(folder: Path, changes: Mapping[str, str], *names: str) -> Path:
    """A folder of copies of porter's own files (`resnet_v1`, `zoos/keras`), with regular expressions
    replaced: each occurs.
    """
    texts = {name: (recipes_folder() / f"{name}.yaml").read_text(encoding="utf-8") for name in names}
    for old, new in changes.items():
        assert any(re.search(old, text) for text in texts.values()), old
        texts = {name: re.sub(old, new, text) for name, text in texts.items()}
    for name, text in texts.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def changed(old: str, new: str) -> str:
    """The valid recipe with one piece of text replaced."""
    assert VALID.count(old) == 1, old
    return VALID.replace(old, new)


def place(path: Path, marked: str) -> str | None:
    """Writes a recipe without its ¶; where that stood, if it has one."""
    before, mark, _ = marked.partition("¶")
    path.write_text(marked.replace("¶", ""), encoding="utf-8")
    return mark and f"{path}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def use(recipe: Recipe, variant: str = "tiny", zoo: str = "home") -> Graph:
    """Everything that a recipe is for: expansion and names."""
    found = recipe.zoo(zoo, variant)
    graph = expand(Member(recipe, variant, found))
    layer_names(Member(recipe, variant, found), graph)
    return graph


def line_of(error: RecipeError) -> str:
    """Its file:line; the column belongs to test_mistakes.py."""
    return str(error.where).rpartition(":")[0]


def mistake(folder: Path, old: str, new: str) -> RecipeError:
    """The error of the valid recipe with one mistake in it; it must stand on the line of `new`'s first
    line.
    """
    path = write(folder, changed(old, new))
    with pytest.raises(RecipeError) as caught:
        use(load_recipe(path))
    line = VALID[: VALID.index(old)].count("\n") + 1
    assert line_of(caught.value) == f"{path}:{line}", str(caught.value)
    return caught.value


NO_PROTOCOL = {("efficientnet", "transformers")}
"""No protocol says to the last bit what its processor does: it divides by the deviations twice."""


def all_recipes(folder: Path | None = None) -> tuple[Recipe, ...]:
    """Every recipe of a folder, those that extend others first; porter's own without a folder."""
    files = [recipe_files(path) for path in sorted((folder or recipes_folder()).glob("*.yaml"))]
    return tuple(load_recipe(*each) for each in sorted(files, key=lambda each: len(each) == 1))

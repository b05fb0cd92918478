"""docs/recipes.md holds what the code says, and its example works as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml

from porter.padding import Average, Rounding, Rule
from porter.recipe.expressions import FUNCTIONS
from porter.recipe.recipe import STANDARD_OPTIONS
from tests.support import recipe_guide as guide
from tests.support.fixtures import Cli
from tests.support.standin_files import source_checkpoint
from tests.unit.authoring.test_json_schema import wrong

TEXT = guide.DOCUMENT.read_text(encoding="utf-8")
EXAMPLE, *SNIPPETS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_every_table_is_in_the_document_once() -> None:
    assert sorted(block[2] for block in guide.BLOCK.finditer(TEXT)) == sorted(guide.TABLES)


@pytest.mark.parametrize("name", guide.TABLES)
def test_the_document_holds_what_the_code_says(name: str) -> None:
    documented = next(block[0] for block in guide.BLOCK.finditer(TEXT) if block[2] == name)
    assert documented == f"<!-- recipes: {name} -->\n{guide.markdown(name)}<!-- end -->", (
        "python -m tests.support.recipe_guide writes it"
    )


def test_the_words_of_tables_are_about_what_there_is() -> None:
    words = {*get_args(Rule)} - {"explicit"}
    assert guide.CONVENTIONS.keys() == words and guide.DETAILS.keys() == {
        "fill",
        *get_args(Average),
        *get_args(Rounding),
    }
    assert guide.OPTIONS.keys() == STANDARD_OPTIONS.keys() and guide.USES.keys() == FUNCTIONS.keys()


def test_the_example_works_as_it_stands(cli: Cli, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "recipes" / "smallnet.yaml"
    path.parent.mkdir()
    path.write_text(EXAMPLE, encoding="utf-8")
    tensors = source_checkpoint("smallnet", "mine", 10).tensors
    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, "smallnet.pth")
    commands = [line for line in TEXT.splitlines() if line.startswith("porter ") and "smallnet" in line]
    assert len(commands) == 3 and wrong(path) == []
    for line in commands:
        ran = cli(*shlex.split(line)[1:])
        assert ran.status == 0, line


def test_every_snippet_is_yaml_and_the_zoos_file_is_one(tmp_path: Path) -> None:
    (zoo,) = [text for text in SNIPPETS if text.startswith("zoo:")]
    assert all(yaml.safe_load(text) for text in SNIPPETS if not text.startswith("#"))
    path = tmp_path / "zoo.yaml"
    path.write_text(zoo, encoding="utf-8")
    assert wrong(path) == []

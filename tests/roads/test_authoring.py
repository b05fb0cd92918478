"""docs/authoring.md: every command on the page is run, in order, and prints what the page shows."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.fixtures import Cli
from tests.support.pages import without_figures

PAGE = (ROOT / "docs" / "authoring.md").read_text(encoding="utf-8")


def test_the_page_does_what_it_says(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("keras")
    pytest.importorskip("torch")
    shown: set[str] = set()
    for language, text in re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL):
        if language == "python":
            saved = re.match(r"# (\w+\.py)\n", text)
            if saved:
                Path(saved[1]).write_text(text)
            exec(compile(text, "authoring.md", "exec"), {"__name__": "page"})
        elif language == "yaml":
            # The first time, a recipe is what porter drafted; the second time, what the author makes of it.
            (name,) = re.findall(r"^architecture: (\w+)$", text, re.MULTILINE)
            recipe = Path("recipes") / f"{name}.yaml"
            if name in shown:
                recipe.write_text(text)
            assert recipe.read_text() == text
            shown.add(name)
        else:
            for command, printed in re.findall(
                r"\$ porter ([^\n]*)\n(.*?)(?=\$ porter |\Z)", text, re.DOTALL
            ):
                ran = cli(*shlex.split(command))
                assert without_figures(ran.out + ran.err) == without_figures(printed), command

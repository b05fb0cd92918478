"""The site: every command of a guide runs and prints what the page shows, and Sphinx builds all pages without
a warning.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from porter.base.commands import COMMANDS
from tests.support.checkout import ROOT
from tests.support.fixtures import Cli
from tests.support.pages import PAGES, as_run, lay_out, refusal, statuses, without_figures
from tests.support.prose import COLUMNS, fragments, pages, wrapped

# torch's exporter to ONNX and TensorFlow's interpreter say what they will do differently.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: str) -> str:
        ran = cli(*arguments)
        assert ran.status in statuses(*arguments), (arguments, ran.err)
        return ran.out + refusal(ran.err)

    monkeypatch.setattr(sys, "path", [*sys.path])
    # Another test may have had a folder of this name elsewhere.
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.delitem(sys.modules, "model", raising=False)
    text = page.read_text(encoding="utf-8")
    lay_out(page.stem)
    assert without_figures(as_run(text, run)) == without_figures(text)
    monkeypatch.delitem(sys.modules, "model", raising=False)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_prose_has_lines_of_110_columns(page: Path) -> None:
    """`python -m tests.support.prose` wraps what is longer."""
    text = page.read_text(encoding="utf-8")
    assert wrapped(text) == text


def test_docstrings_begin_with_what_they_are_about() -> None:
    folders = ROOT / "porter", ROOT / "tests" / "support"
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    modules = [module for folder in folders for module in folder.rglob("*.py")]
    modules += [script for script in scripts if "python" in script.read_text(encoding="utf-8")[:30]]
    assert [line for module in modules for line in fragments(module)] == []


def test_wrapping_moves_no_word() -> None:
    word, code = "word " * 30, "`" + "code " * 30 + "`"
    prose = f"{word[:110]}- 1. {code}\n\n- {word}\n  {word}\n  - {word}\n"
    page = f"# {word}\n\n{prose}\n| {word}|\n\n```\n{word}\n```\n"
    found = wrapped(page)
    lines = found.split("\n")
    assert found.split() == page.split() and wrapped(found) == found
    assert {f"# {word}", f"| {word}|", word} <= {*lines}, "a heading, a table and code stay"
    short = {line[:4] for line in lines if "word" in line and len(line) <= COLUMNS}
    assert short == {"- wo", "  wo", "  - ", "    "}
    assert not any(line.startswith(("- 1.", "1. ")) for line in lines), "no paragraph becomes a list"


def test_every_flag_on_a_page_is_one_of_its_command() -> None:
    commands = {each.name: each for each in COMMANDS}
    typed = re.compile(
        rf"porter ({'|'.join(sorted(map(re.escape, commands), key=len, reverse=True))})\b([^`\n]*)"
    )
    found = 0
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        for command, rest in typed.findall(page.read_text(encoding="utf-8")):
            known = {flag for option in commands[command].options.values() for flag in option.flags} | {
                "--help"
            }
            used = set(re.findall(r"(?<!\S)(--[a-z0-9-]+)", rest.partition("#")[0]))
            found += len(used)
            assert used <= known, (page.name, command, used - known)
    assert found > 100


@pytest.mark.full  # a workflow of its own builds it at every push
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    built = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "guides/flax.html" in home and (tmp_path / "searchindex.js").is_file()

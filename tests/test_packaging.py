"""pyproject.toml and the package agree."""

import ast
import re
import tomllib
from pathlib import Path

import porter

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_read_where_pyproject_says() -> None:
    text = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE) == [porter.__version__]


def test_only_the_command_line_imports_the_package_above_it() -> None:
    modules = {path.stem for path in (ROOT / "porter").iterdir()}
    for path in (ROOT / "porter").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "porter":
                assert modules.issuperset(name.name for name in node.names), path
            elif isinstance(node, ast.Import) and path.name != "cli.py":
                assert "porter" not in [name.name for name in node.names], path

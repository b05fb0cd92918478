"""pyproject.toml and the package agree: the version, the extras, and what is said about installing them."""

import re
import sys
import tomllib
from typing import Any

import pytest

import porter
from porter.base.package import EXTRAS, install
from tests.support.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_read_where_pyproject_says() -> None:
    text = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE) == [porter.__version__]


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_a_message_says_to_install_is_the_extra(extra: Any) -> None:
    stated = [
        requirement.partition(";") for requirement in PROJECT["project"]["optional-dependencies"][extra]
    ]
    here = "== 'Linux'" if sys.platform == "linux" else "!= 'Linux'"
    assert EXTRAS[extra] == tuple(
        package for package, _, when in stated if not when or when.strip() == f"platform_system {here}"
    )


def test_every_message_names_packages_that_the_index_has() -> None:
    assert install("torch") == "pip install 'torch>=2.10' 'torchvision>=0.25'"
    for path in [*(ROOT / "porter").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        assert PROJECT["project"]["name"] not in path.read_text(encoding="utf-8"), path


def test_the_wheel_has_the_folder_of_recipes_with_that_of_the_zoos() -> None:
    assert (
        PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]["recipes"] == "porter/recipes"
    )
    assert any((ROOT / "recipes").glob("*.yaml")) and any((ROOT / "recipes" / "zoos").glob("*.yaml"))


def test_the_wheel_has_the_pages_that_errors_name() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "porter").rglob("*.py")]
    named = {page for text in sources for page in re.findall(r"""\{page\(['"]([\w-]+\.md)['"]\)\}""", text)}
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {f"docs/{page}": f"porter/docs/{page}" for page in named} == {
        key: included[key] for key in included if key != "recipes"
    }
    assert named and all((ROOT / "docs" / page).is_file() for page in named)

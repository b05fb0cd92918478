"""What runs porter for other repositories: the composite actions of GitHub, and the hooks of pre-commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import porter
from porter.base.package import EXTRAS
from tests.support.checkout import ROOT
from tests.support.fixtures import Cli

ACTIONS = ROOT / ".github" / "actions"
Run = Callable[..., int]
PROGRAM = """#!/bin/sh
for word; do echo "$word"; done >words
exit $STATUS
"""
"""A `porter` that keeps what it is told."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, a port of it, and a file of another function."""
    made = tmp_path_factory.mktemp("repository")
    for name, stride in (("a", 2), ("b", 1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3, stride, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        torch.export.save(
            torch.export.export(model.eval(), (torch.randn(1, 3, 16, 16),)), made / f"{name}.pt2"
        )
    porter.convert(made / "a.pt2", to="torch", out=made / "my port")
    return made


def stated(name: str) -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ACTIONS / name / "action.yml").read_text())
    return action


@pytest.fixture
def run(folder: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs what runs `porter` there, and gives its status. What porter is told is done in this process, which
    has imported the frameworks.
    """
    (program := tmp_path / "porter").write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.chdir(folder)

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        def status(of_porter: int) -> int:
            path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
            given = {**os.environ, "PATH": path, "STATUS": str(of_porter), **environment}
            return subprocess.run(command, cwd=folder, env=given).returncode

        assert status(0) == 0
        return status(cli(*(folder / "words").read_text().splitlines()).status)

    return run


def steps(run: Run, name: str, **given: str) -> int:
    """The status of an action's last step, with its inputs as GitHub puts them into the environment."""
    action = stated(name)
    step = action["runs"]["steps"][-1]
    usual = {key: each.get("default", "") for key, each in action["inputs"].items()}
    values = {f"${{{{ inputs.{key} }}}}": value for key, value in {**usual, **given}.items()}
    environment = {key: values[value] for key, value in step["env"].items()}
    return run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], environment)


def test_the_action_verifies(run: Run) -> None:
    assert steps(run, "verify", port="my port", weights="a.pt2") == 0
    assert steps(run, "verify", port="my port", weights="b.pt2") != 0


def test_the_action_compares(run: Run, folder: Path) -> None:
    assert steps(run, "compare", a="a.pt2", b="my port") == 0
    assert (folder / "porter-compare.xml").is_file()
    assert steps(run, "compare", a="a.pt2", b="b.pt2", junit="other.xml") == 1


@pytest.mark.parametrize("name", ["verify", "compare"])
def test_no_input_is_a_part_of_a_script(name: str) -> None:
    """An input is a stranger's text: it reaches a script by the environment only."""
    action = stated(name)
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"] and step["shell"] == "bash"
    usual = action["inputs"]["extras"]["default"]
    assert usual == "all" or set(usual.split(",")) <= EXTRAS.keys()
    assert (ACTIONS / name / ".." / ".." / ".." / "pyproject.toml").resolve() == ROOT / "pyproject.toml"


@pytest.mark.parametrize(
    ("hook", "arguments", "status"),
    [
        ("porter-verify", ("my port", "--weights", "a.pt2"), 0),
        ("porter-verify", ("my port", "--weights", "b.pt2"), 2),
        ("porter-compare", ("a.pt2", "b.pt2"), 1),
    ],
)
def test_the_hooks(hook: str, arguments: tuple[str, ...], status: int, run: Run) -> None:
    hooks = {each["id"]: each for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert hooks[hook]["pass_filenames"] is False
    assert run([*hooks[hook]["entry"].split(), *arguments], {}) == status

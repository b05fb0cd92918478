"""README is short, its Python does what it says, and docs/files.md shows what porter prints."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import porter
from tests.support.checkout import ROOT
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.pages import without_figures

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 140


def test_a_port_is_used_from_python(
    weights_file: WeightsMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, block = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    # A smaller network in the same folder: the lines do not depend on it.
    folder, weights = (
        tmp_path / "resnet50v2-keras-torch",
        weights_file("mobilenet_v1_0.25", "keras", ".h5", 10),
    )
    assert f'"{folder.name}"' in block
    porter.convert("mobilenet_v1_0.25", "keras", "torch", weights=weights, out=folder, check=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    names: dict[str, object] = {}
    exec(block, names)
    monkeypatch.delitem(sys.modules, "model")
    logits, same = (names[name].detach().numpy() for name in ("logits", "same"))  # type: ignore[attr-defined]
    assert logits.shape == (1, 10) and np.allclose(logits, same, rtol=0, atol=1e-5 * np.abs(logits).max())


def test_a_model_in_memory_is_ported_in_three_lines() -> None:
    block, _ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {
        "model": nn.Sequential(nn.Conv2d(3, 2, 7, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    }
    exec(block, names)
    assert (
        len(list(filter(None, block.splitlines()))) == 3
        and names["port"].verdict.ok
        and names["keras_model"].layers
    )


def test_a_file_of_ones_own_is_ported_trained_and_taken_home_as_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    shown = re.findall(r"\$ porter (.*?)\n(.*?)```", page, re.DOTALL)
    (check,) = re.findall(r"  # check    (.*?); \.\.\.\n", TEXT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)

    for code, (command, printed) in zip(blocks, shown, strict=True):
        exec(code, {})
        assert without_figures(cli(*shlex.split(command)).out) == without_figures(printed)
        assert f"porter {command} " in TEXT
    monkeypatch.delitem(sys.modules, "model")
    assert check in shown[0][1]

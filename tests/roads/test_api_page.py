"""docs/api.md shows what works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from tests.support.checkout import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_example_runs_and_the_trained_model_comes_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module goes to Keras, is trained on there for three steps, and is then the same in torch."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    said = capsys.readouterr().out
    assert "flowers-tf True" in said and "('resnet50', 'keras')" in said and "add source=ZOO" in said
    images = np.random.default_rng(1).normal(size=(4, 32, 32, 3)).astype("float32")
    moved = torch.from_numpy(images.transpose(0, 3, 1, 2))
    with torch.no_grad():
        first, home = names["model"](moved).numpy(), names["trained"](moved).numpy()
    trained = np.asarray(names["keras_model"](images, training=False))
    assert np.linalg.norm(trained - first) >= 1e-3 * np.linalg.norm(first), "training changed nothing"
    assert np.linalg.norm(home - trained) <= 1e-5 * np.linalg.norm(trained)
    assert names["home"].verdict.ok and np.allclose(
        names["guess"].logits, names["logits"].detach().numpy(), rtol=0, atol=1e-5
    )


def test_the_page_names_every_function() -> None:
    functions = [name for name in porter.__all__ if name.islower() and name != "evaluate_several"]
    assert [name for name in functions if f"`porter.{name}(" not in PAGE] == []

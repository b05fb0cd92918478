"""The functions at the top of porter."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from tests.support.checkout import ROOT
from tests.support.users_script import run


def test_nothing_imports_a_framework() -> None:
    code = """
import sys, porter
for name in porter.__all__:
    getattr(porter, name)
print({"torch", "keras", "tensorflow", "onnx", "timm", "transformers"} & set(sys.modules))
"""
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "set()\n"
    )


@pytest.mark.parametrize(
    "function", [porter.convert, porter.verify, porter.evaluate, porter.Port.evaluate, porter.Port.verify]
)
def test_help_shows_every_option(function: object) -> None:
    plain: Any = pydoc
    shown = pydoc.render_doc(function, renderer=plain.plaintext)
    assert "recipes: str | PathLike[str] | None = None" in shown
    assert not any(word in shown for word in ("Any", "kwargs", "Annotated", "Option(", "collections"))
    if function is porter.convert:
        assert "(subject: str | PathLike[str] | torch.nn.Module | keras.Model | nnx.Module |" in shown
        assert "-> Ported | Filled" in shown


def test_the_models_that_there_are() -> None:
    assert ("resnet50v2", "keras") in porter.list_models("resnet*")
    of_timm = porter.list_models(zoo="timm")
    assert of_timm and {zoo for _, zoo in of_timm} == {"timm"} and len(of_timm) < len(porter.list_models())
    assert porter.list_models("nothing*") == []
    with pytest.raises(porter.UsageError, match=r"there is no zoo 'kears' \(did you mean 'keras'\?\)"):
        porter.list_models(zoo="kears")


def test_every_error_is_at_the_top() -> None:
    from porter.base import errors

    found = {each for each in vars(errors).values() if isinstance(each, type)}
    assert {each.__name__ for each in found if issubclass(each, errors.PorterError)} <= set(porter.__all__)


def test_a_typed_script_of_a_user_runs(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    of_tests, of_the_script = (
        next(each for each in settings["overrides"] if each["module"] == [module])
        for module in ("tests.*", "tests.support.users_script")
    )
    assert settings["strict"] and "tests" in settings["files"], "the script is checked with porter"
    assert all(of_the_script[name] is not value for name, value in of_tests.items()), "and as strictly"
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    logits = run(module.eval(), ROOT / "scripts" / "photos" / "chelsea.png", tmp_path)
    assert np.allclose(logits[:2], logits[2:4], rtol=0, atol=1e-5) and logits[:2] == logits[4:]

"""The functions at the top of porter."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import pytest

import porter


def test_nothing_imports_a_framework() -> None:
    code = """
import sys, porter
for name in porter.__all__:
    getattr(porter, name)
print({"torch", "keras", "tensorflow", "onnx", "timm", "transformers"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize("function", [porter.convert, porter.verify, porter.evaluate, porter.Port.evaluate, porter.Port.verify])
def test_help_shows_every_option(function: object) -> None:
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert "recipes: 'AnyPath | None' = None" in shown and "Any," not in shown and "kwargs" not in shown
    assert "-> 'Ported'" in shown or function is not porter.convert


def test_the_models_that_there_are() -> None:
    assert ("resnet50v2", "keras") in porter.list_models("resnet*")
    of_timm = porter.list_models(zoo="timm")
    assert of_timm and {zoo for _, zoo in of_timm} == {"timm"} and len(of_timm) < len(porter.list_models())
    assert porter.list_models("nothing*") == []


def test_every_error_is_at_the_top() -> None:
    from porter.base import dtypes, errors

    found = {each for room in (dtypes, errors) for each in vars(room).values() if isinstance(each, type)}
    assert {each.__name__ for each in found if issubclass(each, errors.PorterError)} <= set(porter.__all__)

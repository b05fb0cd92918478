"""The notebooks of docs/: a kernel runs every cell, and shows what the file has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from tests.support.notebooks import NOTEBOOKS, as_run, without_rounding

KERAS_FIRST = sorted(
    NOTEBOOKS, key=lambda notebook: "import keras" not in notebook.read_text(encoding="utf-8")
)
"""Keras before torch is the order of imports that has gone wrong (porter.formats.triton)."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """Importing the frameworks takes longer than most notebooks."""
    kernel = KernelManager()
    yield kernel
    kernel.shutdown_kernel(now=True)


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("notebook", KERAS_FIRST, ids=lambda notebook: notebook.stem)
def test_a_notebook_shows_what_it_does(
    notebook: Path, alone: bool, kernel: KernelManager, tmp_path: Path
) -> None:
    """`python -m tests.support.notebooks` writes what its cells show now."""
    ran = without_rounding(as_run(notebook, tmp_path, None if alone else kernel))
    assert ran == without_rounding(notebook.read_text(encoding="utf-8"))

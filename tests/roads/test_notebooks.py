"""The notebooks of docs/: a kernel runs every cell, and shows what the file has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.notebooks import NOTEBOOKS, as_run, without_rounding


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_shows_what_it_does(notebook: Path, tmp_path: Path) -> None:
    """`python -m tests.support.notebooks` writes what its cells show now."""
    ran = without_rounding(as_run(notebook, tmp_path))
    assert ran == without_rounding(notebook.read_text(encoding="utf-8"))

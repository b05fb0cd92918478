"""Bars fit where they are seen."""

from __future__ import annotations

import pytest

from porter.base.progress import has_viewer, progress_bar


def test_a_notebook_has_its_own_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    kernels = pytest.importorskip("ipykernel.kernelapp")
    with progress_bar(total=3) as bar:
        assert bar.disable and not has_viewer()
    monkeypatch.setattr(kernels.IPKernelApp, "initialized", lambda: True)
    monkeypatch.setattr("tqdm.auto.tqdm", lambda **how: how)
    assert progress_bar(total=3) == {"total": 3, "leave": False, "disable": False}
    assert progress_bar(total=3, shown=False)["disable"]

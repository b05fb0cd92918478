from pathlib import Path

import pytest

from porter.files import download


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PORTER_MIRROR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "BACKOFF_S", 0.001)
    return tmp_path / "cache"

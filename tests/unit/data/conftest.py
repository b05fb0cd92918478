"""What all layouts of ImageNet's validation photos are labelled with."""

from pathlib import Path

import pytest

from tests.support.data.layouts import making


@pytest.fixture(scope="session")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.devkit(tmp_path_factory.mktemp("devkit"))


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.real(tmp_path_factory.mktemp("real") / "real.json", empty=(3, 50_000))

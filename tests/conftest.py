from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.slim_files import SlimFile, write_slim
from tests.weights_files import write_weights

# A busy machine is no fault.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

WeightsMaker = Callable[..., Path]
SlimMaker = Callable[[SlimFile], Path]


@pytest.fixture(scope="session")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> WeightsMaker:
    """Makes stand-in weights files, each once per session.

    `.h5` and `.weights.h5` hold weights alone, as keras.applications publishes them; `.whole.h5` and `.keras` carry the graph
    too; `.pth` is torch's.
    """
    made: dict[tuple[str, str, int, str], Path] = {}
    folder = tmp_path_factory.mktemp("weights")

    def make(variant: str, zoo: str, suffix: str, classes: int = 1000) -> Path:
        key = (variant, zoo, classes, suffix)
        if key not in made:
            made[key] = folder / f"{variant}-{zoo}-{classes}{suffix}"
            write_weights(made[key], variant, zoo, classes)
        return made[key]

    return make


@pytest.fixture(scope="session")
def slim_file(tmp_path_factory: pytest.TempPathFactory) -> SlimMaker:
    """Makes files of TF-slim's own networks with stand-in weights, each once per session."""
    made: dict[SlimFile, Path] = {}
    folder = tmp_path_factory.mktemp("slim")

    def make(file: SlimFile) -> Path:
        if file not in made:
            made[file] = write_slim(folder / f"model-{len(made)}", file)
        return made[file]

    return make

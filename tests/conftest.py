from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from porter.frameworks import get_framework
from tests.slim_files import SlimFile, write_slim
from tests.support import source_checkpoint

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
            _write(made[key], variant, zoo, classes)
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


def _write(path: Path, variant: str, zoo: str, classes: int) -> None:
    checkpoint = source_checkpoint(variant, zoo, classes)
    if zoo == "keras":
        from keras.src.legacy.saving import legacy_h5_format

        model = get_framework("tf").build_reference("keras", variant, classes, (224, 224), checkpoint, "float32")
        if path.name.endswith(".weights.h5"):
            model.save_weights(path)
        elif path.name.endswith((".keras", ".whole.h5")):
            model.save(path)
        else:
            with h5py.File(path, "w") as file:
                legacy_h5_format.save_weights_to_hdf5_group(file, model)
    else:
        import torch

        model = get_framework("torch").build_reference(zoo, variant, classes, (224, 224), checkpoint, "float32")
        torch.save(model.state_dict(), path)

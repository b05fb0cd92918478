from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from porter.frameworks import get_framework
from tests.support import source_checkpoint

WeightsMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> WeightsMaker:
    """Makes stand-in weights files, each once per session: `.h5` and `.keras` by Keras, `.pth` by torch."""
    made: dict[tuple[str, str, int, str], Path] = {}
    folder = tmp_path_factory.mktemp("weights")

    def make(variant: str, zoo: str, suffix: str, classes: int = 1000) -> Path:
        key = (variant, zoo, classes, suffix)
        if key not in made:
            made[key] = folder / f"{variant}-{zoo}-{classes}{suffix}"
            _write(made[key], variant, zoo, classes)
        return made[key]

    return make


def _write(path: Path, variant: str, zoo: str, classes: int) -> None:
    checkpoint = source_checkpoint(variant, zoo, classes)
    if zoo == "keras":
        model = get_framework("tf").build_reference("keras", variant, classes, (224, 224), checkpoint, "float32")
        if path.suffixes[-2:] == [".weights", ".h5"]:
            model.save_weights(path)
        else:
            model.save(path)
    else:
        import torch

        model = get_framework("torch").build_reference(zoo, variant, classes, (224, 224), checkpoint, "float32")
        torch.save(model.state_dict(), path)

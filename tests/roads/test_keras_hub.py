"""Preset folders of KerasHub: the network that KerasHub builds from its own classes, ported as a model in
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import keras
import numpy as np
import pytest
import torch

import porter
from porter.base.errors import NotInstalled, PorterError
from porter.zoos import keras_hub as zoo

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 32
MADE: Mapping[str, Mapping[str, Any]] = {
    "ResNet": {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [7],
        "stackwise_num_filters": [64, 8],
        "stackwise_num_blocks": [1, 2],
        "stackwise_num_strides": [1, 2],
        "block_type": "basic_block",
        "image_shape": (None, None, 3),
    },
    "ViT": {
        "image_shape": (SIDE, SIDE, 3),
        "patch_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 8,
        "mlp_dim": 16,
    },
}
"""One of Keras's layers, and one whose layers are KerasHub's own."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """Presets that KerasHub itself saves, each once, with their models."""
    pytest.importorskip("keras_hub")
    folders: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in folders:
            import keras
            import keras_hub

            keras.utils.set_random_seed(3)
            models, random = zoo.import_keras_hub(), np.random.default_rng(0)
            converter = getattr(keras_hub.layers, f"{name}ImageConverter")(
                image_size=(SIDE, SIDE), scale=1 / 255
            )
            preprocessor = getattr(models, f"{name}ImageClassifierPreprocessor")(converter)
            backbone = getattr(models, f"{name}Backbone")(**MADE[name])
            model = getattr(models, f"{name}ImageClassifier")(
                backbone=backbone, num_classes=5, preprocessor=preprocessor
            )
            norms = [
                layer
                for layer in model._flatten_layers()
                if isinstance(layer, keras.layers.BatchNormalization)
            ]
            for norm in norms:
                norm.gamma.assign(random.uniform(0.6, 1.4, norm.gamma.shape))
                norm.momentum = 0.0
            model(random.normal(size=(4, SIDE, SIDE, 3)).astype("float32"), training=True)
            folder = tmp_path_factory.mktemp("preset") / name
            model.save_to_preset(str(folder))
            folders[name] = folder, model
        return folders[name]

    return make


@pytest.mark.parametrize("name", ["ResNet", pytest.param("ViT", marks=pytest.mark.full)])
def test_a_preset_computes_what_keras_hub_does(
    name: str, made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    folder, model = made(name)
    port = porter.convert(folder, to="torch", out=tmp_path / "port").port
    record = port.record
    assert (
        record.check == "passed"
        and record.classes == 5
        and str(record.source.built_by).startswith("keras-hub ")
    )
    assert record.origin is not None and record.origin.says == f"keras-hub's {name}Backbone"
    assert (
        record.preprocess is not None
        and record.preprocess.resize == "square"
        and record.protocol_by == "file"
    )
    images = np.random.default_rng(1).normal(size=(2, SIDE, SIDE, 3)).astype("float32")
    with torch.no_grad():
        found = porter.load(tmp_path / "port")(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()
    own = np.asarray(model(images))
    assert own.std(0).min() > 0.01 * np.abs(own).max()
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)
    if name == "ViT":
        assert porter.verify(tmp_path / "port", weights=folder, float64=True).ok


def _stating(part: str, **settings: Any) -> Callable[[Path], None]:
    """A change of the settings of a preset's task, or of its backbone there."""

    def change(folder: Path) -> None:
        stated = json.loads((folder / "task.json").read_text())
        changed = stated["config"]["backbone"] if part == "backbone" else stated
        changed |= {
            key: settings.pop(key) for key in ("class_name", "module", "registered_name") if key in settings
        }
        changed["config"] |= settings
        (folder / "task.json").write_text(json.dumps(stated))

    return change


LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {"function": {"class_name": "__lambda__"}},
}
HOSTILE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "more blocks": (_stating("backbone", stackwise_num_blocks=[1, 10**9]), "than the file's"),
    "wider blocks": (_stating("backbone", stackwise_num_filters=[64, 10**6]), "network of .* weights"),
    "more classes": (_stating("task", num_classes=10**9), "network of .* weights"),
    "a class of another library": (
        _stating("task", module="os", class_name="system", registered_name=None),
        "no model 'system'",
    ),
    "a tokenizer": (_stating("task", class_name="BertTokenizer"), "no model 'BertTokenizer'"),
    "code": (_stating("backbone", block_type=LAMBDA), "no model 'Lambda'"),
    "arguments that contradict": (_stating("backbone", stackwise_num_strides=[1]), "cannot be built"),
    "no head": (lambda folder: (folder / "task.weights.h5").unlink(), "network of .* weights"),
    "no JSON": (lambda folder: (folder / "task.json").write_text("["), "this preset is damaged"),
    "deep JSON": (lambda folder: (folder / "task.json").write_text("[" * 10**5), "this preset is damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_preset_that_lies_is_one_error(
    name: str, made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    change, message = HOSTILE[name]
    change(copytree(made("ResNet")[0], tmp_path / "preset"))
    with pytest.raises(PorterError, match=message) as refused:
        porter.convert(tmp_path / "preset", to="torch", out=tmp_path / "port", check=False)
    assert refused.value.next and len(str(refused.value)) < 2000 and not (tmp_path / "port").exists()
    with keras.StatelessScope():
        pass  # at its end, Keras gives numbers to every variable that lacks them: here to none


def _in_shards(folder: Path, model: Any) -> Path:
    """The index of a preset whose backbone is saved in several files."""
    (folder / "model.weights.h5").unlink()
    model.backbone.save_weights(folder / "model.weights.json", max_shard_size=1.45e-4)
    assert len(list(folder.glob("model_*.weights.h5"))) > 1
    return folder / "model.weights.json"


def test_a_preset_in_several_files_computes_what_keras_hub_does(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    folder, model = made("ResNet")
    index = _in_shards(copytree(folder, tmp_path / "preset"), model)
    record = porter.convert(index.parent, to="torch", out=tmp_path / "port", check=False).port.record
    assert record.source.file == index.name
    images = np.random.default_rng(1).normal(size=(2, SIDE, SIDE, 3)).astype("float32")
    with torch.no_grad():
        found = porter.load(tmp_path / "port")(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()
    own = np.asarray(model(images))
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)


def _listing(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def changed(index: Path) -> None:
        stated = json.loads(index.read_text())
        change(stated["weight_map"])
        index.write_text(json.dumps(stated))

    return changed


LYING: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "a file elsewhere": (
        _listing(lambda files: files.update({"/vars": ["../model_00000.weights.h5"]})),
        "is not in its folder",
    ),
    "a file that is missing": (lambda index: next(index.parent.glob("model_*")).unlink(), "is not beside it"),
    "a file that is no HDF5": (
        lambda index: next(index.parent.glob("model_*")).write_bytes(b"x" * 99),
        "this HDF5 file is damaged",
    ),
    "a layer that is not listed": (
        _listing(lambda files: files.pop(next(iter(files)))),
        "do not hold the same layers",
    ),
    "a layer that no file has": (
        _listing(lambda files: files.update({"/x/vars": next(iter(files.values()))})),
        "the same layers",
    ),
    "no names": (_listing(lambda files: files.update({"/x/vars": [3]})), "this index is damaged"),
    "no JSON": (lambda index: index.write_text("[" * 10**5), "this index is damaged"),
}


@pytest.mark.parametrize("name", LYING)
def test_an_index_that_lies_is_one_error(
    name: str, made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    change, message = LYING[name]
    folder, model = made("ResNet")
    change(_in_shards(copytree(folder, tmp_path / "preset"), model))
    with pytest.raises(PorterError, match=message) as refused:
        porter.convert(tmp_path / "preset", to="torch", out=tmp_path / "port", check=False)
    assert refused.value.next and len(str(refused.value)) < 2000 and not (tmp_path / "port").exists()


def test_a_part_of_a_preset_is_not_taken_for_the_whole(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path
) -> None:
    with pytest.raises(PorterError, match=r"a part of a preset's tensors.*name the folder"):
        porter.convert(made("ResNet")[0] / "model.weights.h5", to="torch", out=tmp_path / "port")


def test_without_the_library_it_is_said(
    made: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str, next: str) -> None:
        raise NotInstalled(f"{package} is not installed", next=next)

    folder, _ = made("ResNet")
    monkeypatch.setattr(
        zoo,
        "expect_installed",
        lambda package, next: missing(package, next) if package == "keras_hub" else None,
    )
    with pytest.raises(NotInstalled, match="pip install keras-hub, which builds the network of this folder"):
        porter.convert(folder, to="torch", out=tmp_path / "port")
    assert porter.inspect(folder).commands

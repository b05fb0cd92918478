"""A user's own model from its file to its figures without a recipe: convert, eval, predict, report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import porter
from porter.base.errors import UsageError
from porter.frameworks.tf.runtime import import_keras
from tests.support.arrays import Array
from tests.unit.evaluation.test_evaluate import VARIANT, Made, made

pytestmark = pytest.mark.usefixtures("in_double")

__all__ = ["made"]

CLASSES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
SIDE = 32


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five photos of each class, of several sizes."""
    folder, rng = tmp_path_factory.mktemp("animals"), np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir()
        for number in range(5):
            coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
            coarse.resize((50 + 9 * number, 70 - 7 * number), Image.Resampling.BICUBIC).save(
                folder / name / f"{number}.png"
            )
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    return folder


def keras_model(folder: Path, photos: Path) -> tuple[Path, Array, str]:
    """A .keras file that scales pixels itself, its logits by the loader that it was trained with, and the
    protocol of that.
    """
    keras = import_keras()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(
        layers.Rescaling(1 / 127.5, offset=-1)(image)
    )
    model = keras.Model(image, layers.Dense(len(CLASSES))(layers.Flatten()(x)))
    model.save(folder / "animals.keras")
    loaded = keras.utils.image_dataset_from_directory(
        photos, image_size=(SIDE, SIDE), shuffle=False, verbose=False
    )
    return (
        folder / "animals.keras",
        model.predict(loaded, verbose=0),
        f"resize=squash,size={SIDE},interpolation=tf_bilinear",
    )


def torch_model(folder: Path, photos: Path) -> tuple[Path, Array, str]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, len(CLASSES))
    ).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, SIDE, SIDE),)), folder / "animals.pt2")
    images = [
        Image.open(path).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        for path in sorted(photos.glob("*/*.png"))
    ]
    batch = (
        torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float() / 255
        - 0.5
    ) / 0.25
    with torch.no_grad():
        logits = model(batch).numpy()
    return (
        folder / "animals.pt2",
        logits,
        f"resize=squash,size={SIDE},interpolation=pil_bilinear,divide=255,mean=0.5,std=0.25",
    )


@pytest.mark.parametrize("make", [keras_model, torch_model])
def test_four_commands_give_the_users_own_figures(make: Any, photos: Path, tmp_path: Path) -> None:
    file, logits, protocol = make(tmp_path, photos)
    made = porter.convert(
        file, preprocess=protocol, class_names=photos / "classes.txt", out=tmp_path / "port"
    )
    record = made.port.record
    assert (record.protocol_by, record.labels, record.class_names) == (
        "user",
        "classes.txt",
        CLASSES,
    ) and not record.assumed

    found = porter.evaluate(tmp_path / "port", photos, batch_size=8)
    truth = np.repeat(np.arange(len(CLASSES)), 5)
    assert found.top1 == pytest.approx(100 * np.mean(logits.argmax(1) == truth))
    assert found.top5 == pytest.approx(100 * np.mean((logits.argsort(1)[:, -5:] == truth[:, None]).any(1)))
    assert found.preprocess is not None and found.preprocess["size"] == SIDE

    seen = porter.predict(tmp_path / "port", sorted(photos.glob("*/*.png")))
    np.testing.assert_allclose(np.stack([one.logits for one in seen]), logits, atol=2e-5)
    assert [one.top5[0].name for one in seen] == [CLASSES[index] for index in logits.argmax(1)]
    assert (
        f"{SIDE}×{SIDE} pixels, ignoring the aspect ratio"
        in porter.report(tmp_path / "port").path.read_text()
    )


def test_a_file_that_nobody_published_takes_the_zoos_protocol_aloud(made: Made, tmp_path: Path) -> None:
    """Also where a port is made of the port; not where the user states the same."""
    porter.convert(VARIANT, "torchvision", "torch", weights=made.weights, out=tmp_path / "zoos", check=False)
    first = porter.convert(tmp_path / "zoos", out=tmp_path / "again", check=False)
    found = porter.evaluate(tmp_path / "again", made.photos, limit=2)
    for said in (first.warnings[-1], found.warnings[0]):
        assert (
            said.startswith("photos are prepared as torchvision's (shorter side 256")
            and "preprocess states another way" in said
        )
    protocol = asdict(first.port.record.preprocess) if first.port.record.preprocess else {}
    own = porter.evaluate(tmp_path / "zoos", made.photos, limit=2, preprocess=protocol)
    assert not own.warnings and own.preprocess == found.preprocess


def test_what_convert_was_not_told_is_told_to_eval_and_predict(photos: Path, tmp_path: Path) -> None:
    file, logits, protocol = keras_model(tmp_path, photos)
    porter.convert(file, out=tmp_path / "port", check=False)
    one = photos / "bee" / "0.png"
    with pytest.raises(UsageError, match="nothing says how a photo becomes this model's input") as caught:
        porter.predict(tmp_path / "port", [one])
    assert f'preprocess="{protocol}"' in str(caught.value.next), "the model scales pixels itself"
    with pytest.raises(UsageError, match="nothing says how"):
        porter.evaluate(tmp_path / "port", photos)
    names = photos / "classes.txt"
    (guess, *_) = porter.predict(tmp_path / "port", [one], preprocess=protocol, class_names=names)[0].top5
    assert guess.name == CLASSES[logits[5].argmax()]
    found = porter.evaluate(tmp_path / "port", photos, preprocess=protocol, class_names=names)
    assert found.images == 35 and found.top1 == pytest.approx(
        100 * np.mean(logits.argmax(1) == np.repeat(np.arange(7), 5))
    )
    (tmp_path / "two.txt").write_text("a\nb\n")
    with pytest.raises(UsageError, match=r"two\.txt names 2 classes, and the model has 7"):
        porter.evaluate(tmp_path / "port", photos, preprocess=protocol, class_names=tmp_path / "two.txt")
    with pytest.raises(TypeError, match="batchsize"):
        porter.evaluate(tmp_path / "port", photos, batchsize=3)  # type: ignore[call-arg]


def test_an_onnx_port_that_stands_apart_still_says_its_preprocessing(photos: Path, tmp_path: Path) -> None:
    import onnx

    file, _, protocol = torch_model(tmp_path, photos)
    names = photos / "classes.txt"
    made = porter.convert(
        file, to="onnx", out=tmp_path / "o", preprocess=protocol, class_names=names, check=False
    ).port
    model = onnx.load(tmp_path / "o" / "model.onnx")
    for damage, warned in (
        ({}, False),
        ({"porter.class_names": '["ant"]'}, False),
        ({"porter.preprocess": "{"}, True),
    ):
        stated = {entry.key: entry.value for entry in model.metadata_props}
        onnx.helper.set_model_props(model, {**stated, **damage})
        onnx.save(model, tmp_path / "apart.onnx")
        again = porter.convert(
            tmp_path / "apart.onnx", to="torch", out=tmp_path / "t", overwrite=True, check=False
        )
        record = again.port.record
        assert any("porter's metadata in the file" in warning for warning in again.warnings) is warned
        if not warned:
            assert record.preprocess == made.record.preprocess and record.protocol_by == "file"
        assert record.class_names == (() if damage else CLASSES)

"""JPEGs decoded as TensorFlow does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError, NotInstalled
from porter.data.photo_decoding import open_image
from porter.data.photos import Bytes, Photo
from porter.data.pipeline.batching import Feed, batches
from porter.data.preprocess import Preprocess
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras
from tests.support.photo_files import realistic

FAST = Preprocess("squash", 48, "tf_bilinear", jpeg="fast")


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Of colours with and without subsampling, greys and odd sizes, progressive and not."""
    (tmp_path / "photos").mkdir()
    settings: list[tuple[str, int, dict[str, Any]]] = [
        ("RGB", 201, {}),
        ("RGB", 120, {"subsampling": 0}),
        ("RGB", 97, {"progressive": True}),
        ("L", 75, {}),
    ]
    made = [tmp_path / "photos" / f"{number}.jpg" for number in range(len(settings))]
    for file, (mode, side, options) in zip(made, settings, strict=True):
        realistic(side, 131).convert(mode).save(file, quality=90, **options)
    return made


def test_fast_jpegs_are_tensorflows_bit_for_bit(photos: list[Path]) -> None:
    pytest.importorskip("simplejpeg")
    io: Any = import_tensorflow().io
    wanted = [io.decode_image(io.read_file(str(file)), channels=3).numpy() for file in photos]
    for file, pixels in zip(photos, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(open_image(file, "fast")), pixels)
        np.testing.assert_array_equal(np.asarray(open_image(file.read_bytes(), "fast")), pixels)
    assert any(
        (np.asarray(open_image(file)) != pixels).any() for file, pixels in zip(photos, wanted, strict=True)
    )
    loaded = import_keras().utils.image_dataset_from_directory(
        photos[0].parent, labels=None, image_size=(48, 48), shuffle=False, verbose=False
    )
    (batch,) = batches([Photo(file.name, (0,), Bytes(file)) for file in photos], FAST, Feed())
    np.testing.assert_array_equal(batch.pixels[:, 0], next(iter(loaded)).numpy())


def test_other_photos_and_broken_ones_are_as_before(photos: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    realistic(40, 30).convert("CMYK").save(tmp_path / "cmyk.jpg")
    realistic(40, 30).save(tmp_path / "photo.png")
    for name in ("cmyk.jpg", "photo.png"):
        np.testing.assert_array_equal(
            np.asarray(open_image(tmp_path / name, "fast")), np.asarray(open_image(tmp_path / name))
        )
    whole = photos[0].read_bytes()
    (tmp_path / "extra.jpg").write_bytes(whole[:-2] + b"extra" + whole[-2:])  # libjpeg warns of it
    np.testing.assert_array_equal(
        np.asarray(open_image(tmp_path / "extra.jpg", "fast")), np.asarray(open_image(photos[0], "fast"))
    )
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match="truncated"):
        open_image(tmp_path / "cut.jpg", "fast")


def test_without_the_decoder_nothing_runs(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(NotInstalled, match="jpeg=fast") as caught:
        batches([], FAST, Feed())
    assert "simplejpeg" in str(caught.value.next)
    with pytest.raises(NotInstalled):
        open_image(photos[0], "fast")
    assert open_image(photos[0]).size == (201, 131)

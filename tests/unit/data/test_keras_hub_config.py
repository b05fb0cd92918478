"""KerasHub's image_converter.json, held to KerasHub's own converters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from porter.data.keras_hub_config import ROUNDING_DIFFERS
from porter.data.preparing import prepare
from porter.source.hub_folder import read_sidecars
from porter.source.stated_photos import facts_beside

IMAGENET = {"scale": [0.0171, 0.0175, 0.0174], "offset": [-2.1, -2.0, -1.8]}


def folder(path: Path, settings: dict[str, Any]) -> Path:
    (path / "config.json").write_text(
        '{"module": "keras_hub.src.models.resnet", "class_name": "ResNetBackbone"}'
    )
    (path / "image_converter.json").write_text(
        json.dumps({"class_name": "ImageConverter", "config": settings})
    )
    (path / "model.weights.h5").touch()
    return path / "model.weights.h5"


@pytest.mark.parametrize(
    "settings",
    [
        {"interpolation": "bilinear"},
        {"interpolation": "bicubic", **IMAGENET},
        {
            "interpolation": "bilinear",
            "antialias": True,
            "crop_to_aspect_ratio": False,
            "scale": 1 / 127.5,
            "offset": -1,
        },
        {"interpolation": "bicubic", "crop_to_aspect_ratio": False, "offset": [-123.68, -116.779, -103.939]},
    ],
)
@pytest.mark.parametrize(("rows", "columns"), [(120, 91), (45, 60)])
def test_photos_are_prepared_as_keras_hub_prepares_floats(
    settings: dict[str, Any], rows: int, columns: int, tmp_path: Path
) -> None:
    """To the last bit where nothing is scaled. Of bytes, KerasHub rounds what it resized."""
    layers = pytest.importorskip("keras_hub").layers
    stated, warnings = facts_beside(read_sidecars(folder(tmp_path, {"image_size": [64, 64], **settings})))
    assert stated.preprocess is not None and warnings == (ROUNDING_DIFFERS,)
    pixels = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    wanted = np.asarray(
        layers.ImageConverter(image_size=(64, 64), **settings)(pixels.astype("float32"))
    ).transpose(2, 0, 1)
    found = prepare(Image.fromarray(pixels), stated.preprocess)
    if "scale" in settings:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * float(np.abs(wanted).max()))
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": None},
        {"image_size": [64, 32]},
        {"interpolation": "lanczos5"},
        {"antialias": True, "interpolation": "bicubic"},
        {"crop_to_aspect_ratio": False, "pad_to_aspect_ratio": True},
        {"scale": 0.0},
        {"scale": [1.0, 2.0]},
        {"scale": "large"},
    ],
)
def test_what_porter_cannot_prepare_is_said(settings: dict[str, Any], tmp_path: Path) -> None:
    stated, (said,) = facts_beside(read_sidecars(folder(tmp_path, {"image_size": [64, 64], **settings})))
    assert stated.preprocess is None and said.startswith(
        "the preprocessing that image_converter.json states is not used"
    )

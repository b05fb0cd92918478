"""Protocols of preprocessor_config.json are what transformers' own PIL processors do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from porter.data.preparing import prepare
from porter.data.statements import read_preprocess
from porter.data.transformers_config import differences_of_transformers, from_transformers
from porter.zoos.transformers import import_transformers

IMAGENETS = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("MobileNetV1", {}),
    ("MobileNetV2", {"size": {"shortest_edge": 73}, "crop_size": {"height": 64, "width": 64}}),
    ("ViT", IMAGENETS),
    ("DeiT", {}),
    ("ConvNext", {"size": {"shortest_edge": 96}, "crop_pct": 0.95}),
    ("ConvNext", {}),
    ("Bit", {"crop_size": {"height": 223, "width": 223}}),
    ("Beit", {"do_center_crop": True, "size": {"height": 256, "width": 256}}),
    ("Levit", {}),
    ("EfficientNet", {**IMAGENETS, "include_top": False}),
    (
        "EfficientNet",
        {"rescale_offset": True, "rescale_factor": 1 / 127.5, "do_normalize": False, "include_top": False},
    ),
    ("Pvt", {}),
    ("Segformer", {}),
    ("DPT", {"size": {"height": 100, "width": 100}, "ensure_multiple_of": 32}),
    ("MobileViT", {"crop_size": {"height": 200, "width": 200}}),
    ("Siglip", {}),
    ("CLIP", {}),
]


def photos() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 256, (*shape, 3), dtype=np.uint8)).resize(
            shape[::-1], Image.Resampling.BICUBIC
        )
        for shape in ((301, 453), (120, 93))
    ]


@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
def test_photos_are_prepared_to_the_last_bit(kind: str, settings: dict[str, Any]) -> None:
    own = getattr(import_transformers(), f"{kind}ImageProcessorPil")(**settings)
    stated = json.loads(own.to_json_string())
    protocol = read_preprocess(from_transformers(stated))
    assert differences_of_transformers(stated) == ()
    for photo in photos():
        np.testing.assert_array_equal(prepare(photo, protocol), own(photo)["pixel_values"][0])


def test_a_second_division_is_said() -> None:
    own = import_transformers().EfficientNetImageProcessorPil(**IMAGENETS)
    stated = json.loads(own.to_json_string())
    (said,) = differences_of_transformers(stated)
    assert said.endswith("some values differ in the last bit")
    photo = photos()[0]
    wanted = own(photo)["pixel_values"][0]
    np.testing.assert_allclose(prepare(photo, read_preprocess(from_transformers(stated))), wanted, rtol=3e-7)

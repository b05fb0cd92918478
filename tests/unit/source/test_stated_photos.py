"""timm's config.json, and transformers' preprocessor_config.json, beside a file of weights."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import porter
from porter.data.labels import IMAGENET, Labels, imagenet_classes
from porter.data.preparing import prepare
from porter.data.preprocess import Preprocess
from porter.data.statements import read_preprocess
from porter.source import hub_folder
from porter.source.hub_folder import read_sidecars
from porter.source.place import file_at
from porter.source.stated_photos import NOTHING, facts_beside
from tests.support import originals
from tests.support.fixtures import WeightsMaker

VARIANT = "mobilenet_v2_0.35"
SETTINGS: dict[str, Any] = {
    "input_size": [3, 96, 96],
    "interpolation": "bicubic",
    "crop_pct": 0.9,
    "crop_mode": "center",
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.2, 0.3],
}
PROTOCOL = Preprocess(
    "shorter_side", 106, "pil_bicubic", crop=96, divide=255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.3)
)


def folder(path: Path, settings: dict[str, Any], **more: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(
        json.dumps({"architecture": "mobilenetv2_035", "pretrained_cfg": settings, **more})
    )
    (path / "model.safetensors").touch()
    return path / "model.safetensors"


@pytest.mark.parametrize(
    "change",
    [{}, {"crop_mode": "squash"}, {"interpolation": "bilinear", "crop_pct": 1.0}, {"crop_pct": 0.875}],
)
def test_photos_are_prepared_as_timm_prepares_them(change: dict[str, Any], tmp_path: Path) -> None:
    stated, warnings = facts_beside(read_sidecars(folder(tmp_path, {**SETTINGS, **change})))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 90, 3), dtype=np.uint8))
    assert stated.preprocess is not None and not warnings
    np.testing.assert_array_equal(
        prepare(image, stated.preprocess), originals.timm_transform({**SETTINGS, **change})(image)
    )


@pytest.mark.parametrize(
    "change",
    [{"crop_mode": "border"}, {"interpolation": "random"}, {"input_size": [3, 96, 80]}, {"std": [0, 0, 0]}],
)
def test_what_porter_cannot_prepare_is_said(change: dict[str, Any], tmp_path: Path) -> None:
    stated, (said,) = facts_beside(read_sidecars(folder(tmp_path, {**SETTINGS, **change})))
    assert stated.preprocess is None and said.startswith(
        "the preprocessing that config.json states is not used"
    )


def test_other_configs_say_nothing(tmp_path: Path) -> None:
    for content in ("[]", "{}", '{"pretrained_cfg": 3}'):
        file = folder(tmp_path, {})
        (tmp_path / "config.json").write_text(content)
        assert facts_beside(read_sidecars(file)) == facts_beside(
            read_sidecars(tmp_path / "none" / "model.safetensors")
        )
    beside = {"image_processor_type": "ViTImageProcessor", **HALVES, "size": 96, "resample": 0}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(beside))
    stated, warnings = facts_beside(read_sidecars(file))
    assert stated.preprocess is not None and not warnings
    assert (
        file_at(tmp_path).path == tmp_path / "model.safetensors"
        and file_at(tmp_path / "x").path == tmp_path / "x"
    )


def test_of_several_files_of_weights_none_is_taken_by_chance(tmp_path: Path) -> None:
    file = folder(tmp_path, {}).rename(tmp_path / "last.safetensors")
    assert file_at(tmp_path).path == file
    (tmp_path / "best.safetensors").write_bytes(b"")
    assert file_at(tmp_path).path == tmp_path
    usual = file.rename(tmp_path / "model.safetensors")
    assert file_at(tmp_path).path == usual


def test_a_hugging_face_folder_gives_the_protocol_and_the_labels(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    names = [f"flower {number}" for number in range(5)]
    file = folder(tmp_path / "flowers", SETTINGS, label_names=names)
    save_file(torch.load(weights_file(VARIANT, "timm", ".pth", 5), weights_only=True), file)
    made = porter.convert(VARIANT, "timm", "torch", weights=file.parent, out=tmp_path / "port", check=False)
    record = made.port.record
    assert (record.preprocess, record.protocol_by, record.class_names) == (PROTOCOL, "file", tuple(names))
    assert not any("preprocess states" in warning for warning in made.warnings)
    assert porter.inspect(file.parent).record() == porter.inspect(file).record()
    assert porter.verify(tmp_path / "port", weights=file.parent, float64=True).ok
    own: dict[str, Any] = {"preprocess": "resize=none,size=96"}
    again = porter.convert(VARIANT, "timm", "torch", weights=file, out=tmp_path / "own", check=False, **own)
    assert again.port.record.protocol_by == "user"
    (file.parent / "config.json").write_text(
        json.dumps({"pretrained_cfg": SETTINGS, "label_names": names[:3]})
    )
    made = porter.convert(VARIANT, "timm", "torch", weights=file, out=tmp_path / "three", check=False)
    assert made.port.record.class_names == () and any(
        "config.json names 3 classes" in warning for warning in made.warnings
    )
    (tmp_path / "five.txt").write_text("\n".join("abcde"))
    own = {"class_names": tmp_path / "five.txt"}
    made = porter.convert(VARIANT, "timm", "torch", weights=file, out=tmp_path / "five", check=False, **own)
    assert made.port.record.class_names == tuple("abcde")


@pytest.mark.parametrize("names", [[], ["x" * 201], ["a", ""], ["\x1b[31mred"], [3]])
def test_what_are_no_names_of_classes_is_said(names: list[Any], tmp_path: Path) -> None:
    stated, (said,) = facts_beside(read_sidecars(folder(tmp_path, SETTINGS, label_names=names)))
    assert (stated.preprocess, stated.labels) == (PROTOCOL, None)
    assert said.startswith("the names of classes that config.json states are not used: label_names:")


def test_a_config_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder(tmp_path, {})

    def unreadable(path: Path, most: int) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(hub_folder, "read_bounded", unreadable)
    stated, (said,) = facts_beside(read_sidecars(file))
    assert stated == NOTHING and said.endswith("not used: it cannot be read: Permission denied")


def test_links_as_in_hugging_faces_cache_are_followed(tmp_path: Path) -> None:
    blob = folder(tmp_path / "blobs", SETTINGS, label_names=["a", "b"]).with_name("config.json")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "config.json").symlink_to(blob)
    stated, warnings = facts_beside(read_sidecars(tmp_path / "snapshot" / "model.safetensors"))
    assert (stated.preprocess, stated.labels, warnings) == (PROTOCOL, Labels("config.json", ("a", "b")), ())
    (tmp_path / "snapshot" / "config.json").unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "snapshot" / "config.json").symlink_to(tmp_path / "pipe")
    assert facts_beside(read_sidecars(tmp_path / "snapshot" / "model.safetensors")) == (NOTHING, ())


IMAGENETS = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
SCALED = "crop_rounding=down,divide=255,mean=0.5,std=0.5"


def processor(path: Path, kind: str, key: str = "image_processor_type", **settings: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "preprocessor_config.json").write_text(json.dumps({key: kind, **HALVES, **settings}))
    (path / "model.safetensors").touch()
    return path / "model.safetensors"


@pytest.mark.parametrize(
    ("kind", "settings", "protocol"),
    [
        (
            "ConvNextImageProcessor",
            {"size": {"shortest_edge": 224}, "crop_pct": 0.9, "resample": 3},
            "shorter_side,248,bicubic,224",
        ),
        (
            "ConvNextImageProcessor",
            {"size": {"shortest_edge": 384}, "crop_pct": 0.9, "resample": 2},
            "squash,384,bilinear",
        ),
        ("ViTImageProcessor", {"size": 96, "rescale_factor": 0.00392156862745098}, "squash,96,bilinear"),
        ("ViTImageProcessor", {"size": {"height": 96, "width": 96}, "resample": 0}, "squash,96,nearest"),
        (
            "DeiTImageProcessor",
            {"size": 64, "crop_size": {"height": 48, "width": 48}},
            "squash,64,bicubic,48",
        ),
        (
            "MobileNetV2ImageProcessor",
            {"size": {"shortest_edge": 64}, "crop_size": 47},
            "shorter_side,64,bilinear,47",
        ),
        ("CLIPImageProcessor", {"size": 64, "do_center_crop": False}, "shorter_side,64,bicubic"),
    ],
)
def test_photos_are_prepared_as_transformers_prepares_them(
    kind: str, settings: dict[str, Any], protocol: str, tmp_path: Path
) -> None:
    """By the arithmetic of its PIL processors, with which 500 photos were compared bit for bit."""
    stated, warnings = facts_beside(read_sidecars(processor(tmp_path, kind, **settings)))
    resize, size, kernel, *crop = protocol.split(",")
    cropped = f"crop={crop[0]}," if crop else ""
    assert stated.preprocess == read_preprocess(
        f"resize={resize},size={size},interpolation=pil_{kernel},{cropped}{SCALED}"
    )
    assert not warnings
    photo, side = (
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 93, 3), dtype=np.uint8)),
        int(size),
    )
    wide = photo.resize(
        (side, side if resize == "squash" else side * 120 // 93), Image.Resampling[kernel.upper()]
    )
    top, left = ((length - int(crop[0])) // 2 if crop else 0 for length in (wide.height, wide.width))
    pixels = np.asarray(wide)[top:, left:][: int(crop[0]) if crop else None, : int(crop[0]) if crop else None]
    np.testing.assert_array_equal(
        prepare(photo, stated.preprocess),
        ((pixels / np.float32(255) - np.float32(0.5)) / 0.5).transpose(2, 0, 1),
    )


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "FlavaImageProcessor",
            {"size": 224, "resample": 3},
            "porter does not know what 'FlavaImageProcessor' does",
        ),
        (
            "DPTImageProcessor",
            {"size": 400, "resample": 3, "ensure_multiple_of": 32},
            "a size of 400, half way between",
        ),
        ("BeitImageProcessor", {"size": 96}, "it lacks 'do_center_crop'"),
        ("ViTImageProcessor", {"size": 96, "do_flip_channel_order": True}, "'do_flip_channel_order'"),
        ("ViTImageProcessor", {"size": {"longest_edge": 96}}, "a size of {'longest_edge': 96}"),
        ("ViTImageProcessor", {"size": {"height": 96, "width": 80}}, "a size of"),
        ("ViTImageProcessor", {"size": 96, "do_pad": True}, "'do_pad'"),
        ("ViTImageProcessor", {"size": 96, "do_resize": False}, "it resizes nothing"),
        ("ViTImageProcessor", {"size": 96, "image_mean": None}, "it lacks 'image_mean'"),
        ("ViTImageProcessor", {"size": 96, "resample": "x"}, ""),
        ("ViTImageProcessor", {"size": 96, "resample": -1}, "a 'resample' of -1"),
        ("ViTImageProcessor", {"size": 96, "resample": 6}, "a 'resample' of 6"),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}}, "it lacks 'resample'"),
        ("MobileNetV1ImageProcessor", {"size": {"shortest_edge": 64}}, "it lacks 'crop_size'"),
    ],
)
def test_what_a_processor_does_otherwise_is_said(
    kind: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    stated, (said,) = facts_beside(read_sidecars(processor(tmp_path, kind, **settings)))
    assert stated == NOTHING and said.startswith(
        f"the preprocessing that preprocessor_config.json states is not used: {message}"
    )


def test_a_folder_of_transformers_names_its_classes(tmp_path: Path) -> None:
    """Those of ImageNet are known, and `LABEL_0` is no name."""
    file = processor(tmp_path, "ViTFeatureExtractor", "feature_extractor_type", size=96)
    wnids = [entry.name for entry in imagenet_classes()]
    for names, labels in (
        (["ant", "bee"], Labels("config.json", ("ant", "bee"))),
        (["LABEL_0", "LABEL_1"], None),
        (wnids, Labels(IMAGENET)),
        (wnids[::-1], Labels("config.json", tuple(wnids[::-1]))),
    ):
        (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(names))}))
        stated, warnings = facts_beside(read_sidecars(file))
        assert stated.preprocess is not None and (stated.labels, warnings) == (labels, ())
    made_up = {str(number): f"LABEL_{number}" for number in (0, 1, 10, *range(2, 10))}  # as sort_keys sorts
    (tmp_path / "config.json").write_text(json.dumps({"id2label": made_up}))
    assert facts_beside(read_sidecars(file))[0].labels is None
    (tmp_path / "config.json").write_text('{"id2label": {"0": "ant", "2": "bee"}}')
    assert facts_beside(read_sidecars(file))[1][0].endswith(
        "id2label: the numbers are not those of classes from 0"
    )
    (said,) = facts_beside(read_sidecars(processor(tmp_path / "fast", "ViTImageProcessorFast", size=96)))[1]
    assert "ViTImageProcessorFast resizes them by torch" in said

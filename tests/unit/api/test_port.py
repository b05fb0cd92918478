"""A port as it is held in a notebook."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import porter

PHOTO = Path(__file__).parents[3] / "scripts" / "photos" / "chelsea.png"
PREPARED = "resize=squash,size=24,interpolation=pil_bilinear,divide=255"


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def port(module: nn.Module) -> porter.Port:
    return porter.convert(module, input_size=24, preprocess=PREPARED)


def test_a_port_without_a_folder_lives_as_long_as_it_is_held(module: nn.Module) -> None:
    made = porter.convert(module, input_size=24, check=False)
    folder = made.folder
    assert (folder / "port.json").is_file()
    del made
    gc.collect()
    assert not folder.exists()


def test_photos_are_paths_images_and_arrays(port: porter.Port, module: nn.Module) -> None:
    image = Image.open(PHOTO)
    several = port.predict([PHOTO, image, np.asarray(image.convert("RGB"))])
    (one,) = port.predict(str(PHOTO))
    assert [str(each.image) for each in several] == [str(PHOTO), "photo 2", "photo 3"]
    for each in several:
        assert np.array_equal(each.logits, one.logits)
    (of_image,), (of_array,) = (
        porter.predict(port, image),
        porter.predict(port, np.asarray(image.convert("RGB"))),
    )
    assert np.array_equal(of_image.logits, one.logits) and np.array_equal(of_array.logits, one.logits)
    prepared: Any = port.transform()(image)
    with torch.no_grad():
        assert np.allclose(module(prepared[None])[0].numpy(), one.logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((1, 3, 8, 8), np.float32), np.zeros((8, 8, 3), np.float32), None, 3],
    ids=["channels first", "floats", "nothing", "a number"],
)
def test_what_is_no_photo(port: porter.Port, wrong: Any) -> None:
    with pytest.raises(porter.UsageError, match="this is no photo"):
        port.predict(wrong)


def test_a_port_is_a_path_and_is_opened_saved_and_ported_further(port: porter.Port, tmp_path: Path) -> None:
    saved = port.save(tmp_path / "saved")
    with pytest.raises(porter.UsageError, match="give overwrite=True"):
        port.save(tmp_path / "saved")
    opened = porter.open(saved.folder)
    assert sorted(path.name for path in opened.folder.iterdir()) == sorted(
        path.name for path in port.folder.iterdir()
    )
    assert opened.proof == port.proof and opened.proof is not None and opened.proof.holds
    assert isinstance(opened.model(), nn.Module) and isinstance(porter.load(opened), nn.Module)
    further = porter.convert(opened, to="onnx", out=tmp_path / "onnx", check=False)
    assert further.folder == tmp_path / "onnx" and opened.report().path == saved.folder / "report.html"
    with pytest.raises(porter.UsageError, match=r"porter\.convert\(.*\) makes one"):
        porter.open(tmp_path)


def test_what_a_notebook_shows(port: porter.Port) -> None:
    shown = port._repr_html_()
    assert "Proved" in shown and "<b>Sequential</b>" in shown and "layers&#39; own padding" in shown


def test_printed_it_says_what_it_is_and_whether_it_is_proved(port: porter.Port, module: nn.Module) -> None:
    what, proof = str(port).split("\n")
    assert what == f"Sequential to torch: {port.folder}" and proof.startswith(
        "Proved. The port computes the same"
    )
    assert "\nNot proved. " in str(porter.convert(module, input_size=24, check=False))

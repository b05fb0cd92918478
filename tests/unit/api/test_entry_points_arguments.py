"""Every argument of the API, given something of every wrong kind, is taken or refused by a PorterError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import porter
from tests.support.checkout import PHOTO
from tests.support.photo_files import write_photos

SIDE = 16
PROTOCOL = f"resize=squash,size={SIDE},interpolation=pil_bilinear,divide=255"
WRONG: tuple[object, ...] = (
    3,
    -1,
    2.5,
    float("nan"),
    True,
    None,
    b"bytes",
    "",
    "text",
    "text=text",
    "any",
    [],
    ["text"],
    [3],
    [None],
    (0, 0),
    {},
    {"text": object()},
    {3: 3},
    object(),
    lambda: 3,
    np.zeros(3),
    torch.zeros(3),
    nn.Linear(1, 1),
    Image.new("RGB", (4, 4)),
    Path("nowhere"),
    DataLoader(TensorDataset(torch.zeros(2, 3, SIDE, SIDE))),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file, a port of it, and photos."""
    folder = tmp_path_factory.mktemp("arguments")
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    given = {"to": "onnx", "input_size": SIDE, "preprocess": PROTOCOL, "check": False}
    porter.convert(module, out=folder / "port", **given)  # type: ignore[arg-type]
    (folder / "net.onnx").write_bytes((folder / "port" / "model.onnx").read_bytes())
    for name in "abcd":
        (folder / "photos" / name).mkdir(parents=True)
        write_photos(folder / "photos" / name, 1)
    return folder


CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "convert": (
        porter.convert,
        {"subject": "net.onnx", "to": "torch", "out": "made", "overwrite": True, "check": False},
    ),
    "verify": (porter.verify, {"folder": "port", "weights": "net.onnx"}),
    "predict": (porter.predict, {"folder": "port", "images": PHOTO}),
    "evaluate": (porter.evaluate, {"folder": "port", "data": "photos", "workers": 1, "limit": 2}),
    "inspect": (porter.inspect, {"file": "net.onnx"}),
    "study": (
        porter.study,
        {"variant": "mobilenet_v1_0.25", "source": "keras", "data": "photos", "weights": "net.onnx"},
    ),
    "report": (porter.report, {"folder": "port"}),
    "open": (porter.open, {"folder": "port"}),
    "load": (porter.load, {"folder": "port"}),
    "list_models": (porter.list_models, {}),
}


def arguments() -> Iterator[tuple[str, str]]:
    for name, (function, _) in CALLS.items():
        for parameter in inspect.signature(function).parameters:
            yield name, parameter


@pytest.mark.parametrize(("name", "parameter"), list(arguments()))
def test_every_wrong_kind_is_taken_or_refused(
    name: str, parameter: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    function, usual = CALLS[name]
    for wrong in WRONG:
        with suppress(porter.PorterError):
            function(**{**usual, parameter: wrong})

"""A script as a user of porter's API writes it. mypy checks it by its strictest rules, with porter itself; a
test runs it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

import porter


def run(module: nn.Module, photo: Path, folder: Path) -> list[float]:
    """What a network says of a photo in torch, in ONNX and saved."""
    prepared = "resize=squash,size=24,interpolation=pil_bilinear,divide=255"
    port: porter.Port = porter.convert(module, to="torch", input_size=(24, 24), preprocess=prepared)
    proof = port.proof
    assert proof is not None and proof.holds and proof.reference
    further = porter.convert(port, to="onnx", out=folder / "onnx", check=False)
    for warning in further.warnings:
        print(warning.upper())
    saved = port.save(folder / "saved")
    logits: list[float] = []
    for each in (port, further, porter.open(saved)):
        for prediction in each.predict([photo, np.zeros((24, 24, 3), np.uint8)]):
            best = prediction.top5[0]
            logits.append(best.logit)
    verdict = port.verify(float64=True)
    assert verdict.ok
    model = porter.load(saved, device="cpu")
    model(port.transform()(photo)[None])
    for variant, zoo in porter.list_models("resnet*", zoo="keras"):
        print(variant.ljust(20), zoo)
    try:
        porter.convert(folder / "nothing.pth", overwrite=True)
    except porter.UsageError as error:
        print(error.message, error.next)
    return logits

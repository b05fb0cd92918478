"""What stands beside a file of weights: timm's config.json, in a folder as Hugging Face has it.

`pretrained_cfg` says how photos are prepared, as timm.data.create_transform reads it, and `label_names` what the classes are.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from porter.base.errors import PorterError
from porter.data.labels import MAX_BYTES, Labels
from porter.data.statements import read_preprocess
from porter.files import is_plain
from porter.source.protocol import NOTHING, Stated

CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_KERNELS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")


def weights_in(path: Path) -> Path:
    """The file of weights of a folder that has a config.json; every other path as it is."""
    if not (path / CONFIG).is_file():
        return path
    return next((path / name for name in _WEIGHTS if (path / name).is_file()), path)


def stated_beside(weights: Path) -> tuple[Stated, tuple[str, ...]]:
    """What timm's config.json beside a file of weights says, and a warning where it says what porter cannot do."""
    file = weights.parent / CONFIG
    if weights.name not in _WEIGHTS or not is_plain(file) or file.stat().st_size > MAX_BYTES:
        return NOTHING, ()
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return NOTHING, (f"{CONFIG} beside the weights is no JSON",)
    if not isinstance(config, dict) or not isinstance(settings := config.get("pretrained_cfg"), dict):
        return NOTHING, ()
    names = config.get("label_names")
    labels = Labels(CONFIG, tuple(names)) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
    try:
        return Stated(read_preprocess(_protocol(settings)), labels, "file"), ()
    except (PorterError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        return Stated(None, labels), (f"the preprocessing that {CONFIG} states is not used: {error}",)


def _protocol(settings: dict[str, Any]) -> dict[str, Any]:
    """As timm's evaluation: resized to the size over `crop_pct`, rounded down; then the centre."""
    channels, rows, columns = settings["input_size"]
    kernel, mode = settings["interpolation"], settings.get("crop_mode") or "center"
    if (channels, rows) != (3, columns) or kernel not in _KERNELS or mode not in ("center", "squash"):
        raise ValueError(f"{mode} {channels}x{rows}x{columns} by {kernel}")
    return {
        "resize": "squash" if mode == "squash" else "shorter_side",
        "size": math.floor(rows / (settings.get("crop_pct") or 0.875)),
        "crop": rows,
        "interpolation": f"pil_{kernel}",
        "divide": 255,
        "mean": settings["mean"],
        "std": settings["std"],
    }

"""A protocol as timm's config.json states it (`pretrained_cfg`), both ways.

timm's evaluation (timm.data.create_transform) resizes to the crop's side over `crop_pct`, rounded down, takes
the centre, and scales pixels to 0 to 1 before mean and std.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from porter.data.preprocess import Preprocess

CONFIG_FILE = "config.json"
_KERNELS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_DEFAULT_SHARE = 0.875


def from_timm(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return timm's settings as a protocol that porter.data.statements reads: a resize of the shorter side or
    to a square, and a crop.

    Raises:
        KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError: it is incomplete, or none that
            porter can prepare.
    """
    channels, rows, columns = settings["input_size"]
    kernel, mode = settings["interpolation"], settings.get("crop_mode") or "center"
    if (channels, rows) != (3, columns) or kernel not in _KERNELS or mode not in ("center", "squash"):
        raise ValueError(f"{mode} {channels}x{rows}x{columns} by {kernel}")
    return {
        "resize": "squash" if mode == "squash" else "shorter_side",
        "size": floor(rows / (settings.get("crop_pct") or _DEFAULT_SHARE)),
        "crop": rows,
        "interpolation": f"pil_{kernel}",
        "divide": 255,
        "mean": settings["mean"],
        "std": settings["std"],
    }


def to_timm(protocol: Preprocess) -> dict[str, Any]:
    """Return timm's config of a protocol, as `from_timm` reads it; the nearest one if timm prepares photos
    otherwise (`differences_of_timm`).
    """
    side = protocol.crop or protocol.size
    mean, std = (
        # timm divides by 255 always, so the mean and the deviation take what is left.
        [round(value * protocol.divide / 255, 9) for value in values]
        for values in (protocol.mean, protocol.std)
    )
    kernel = protocol.interpolation.removeprefix("pil_")
    return {
        "input_size": [3, side, side],
        "interpolation": kernel if kernel in _KERNELS else "bilinear",
        "crop_pct": _share_of_size(side, protocol.size),
        "crop_mode": "squash" if protocol.resize == "squash" else "center",
        "mean": mean,
        "std": std,
    }


def differences_of_timm(protocol: Preprocess) -> tuple[str, ...]:
    """Return what timm's transforms do otherwise than a protocol, in words."""
    by_pillow = protocol.interpolation.startswith(("pil_", "none"))
    differs = {
        "they resize": protocol.resize == "none",
        f"they resize by Pillow, the protocol by {protocol.interpolation}": not by_pillow,
        "they feed squares": protocol.fed_side is None,
        "they keep the whole photo before resizing": protocol.central_fraction is not None,
        "they feed RGB": protocol.channels != "rgb",
    }
    return tuple(words for words, holds in differs.items() if holds)


def _share_of_size(crop: int, size: int) -> float:
    """Return timm's `crop_pct` for a crop of a size, with as few digits as possible: 0.875 for 224 of 256.
    timm makes the size of it again, by `floor(crop / crop_pct)`.
    """
    shares = (round(crop / size, digits) for digits in range(3, 17))
    return next((share for share in shares if floor(crop / share) == size), crop / (size + 0.5))

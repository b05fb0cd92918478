"""A protocol of each kind, and pixels of it as porter.data.pipeline gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.data.preprocess import Preprocess

IMAGENET_SCALING: dict[str, Any] = {
    "divide": 255.0,
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
SIDE = 6
PROTOCOLS = (
    Preprocess("shorter_side", 8, "pil_bilinear", crop=SIDE, **IMAGENET_SCALING),
    Preprocess("shorter_side", 8, "opencv_cubic", crop=SIDE, channels="bgr", mean=(103.939, 116.779, 123.68)),
    Preprocess("shorter_side", 8, "opencv_cubic", crop=SIDE, divide=127.5, mean=(1.0, 1.0, 1.0)),
    Preprocess(
        "shorter_side", 8, "tf1_bilinear", crop=SIDE, divide=255.0, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    ),
    Preprocess("squash", SIDE, "tf_bilinear", divide=127.5, mean=(1.0, 1.0, 1.0)),
)


def pixels_of(protocol: Preprocess, photos: int = 1, crops: int = 1) -> NDArray[Any]:
    """All 256 levels in random places; TensorFlow's resizings give floats, and TensorFlow 1's are scaled
    already.
    """
    rng = np.random.default_rng(0)
    levels = rng.permuted(np.arange(photos * crops * SIDE * SIDE * 3) % 256).reshape(
        photos, crops, SIDE, SIDE, 3
    )
    if protocol.resampling.floats:
        divided = protocol.divide if protocol.resampling.divides_first else 1
        return (levels * rng.random()).astype(np.float32) * np.float32(1 / divided)
    return levels.astype(np.uint8)

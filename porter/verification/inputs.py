"""Images for comparing models: random, the same on every machine, and as smooth and as rough as photos."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from porter.data.preprocess import Preprocess

OCTAVES = 6


def make_batch(size: tuple[int, int], count: int, channels: int, protocol: Preprocess | None, seed: int = 0) -> NDArray[np.float64]:
    """`count` images of `size` (rows, columns) as N x C x H x W float64, scaled as the zoo's protocol scales pixels.

    Noise is summed over octaves, each half as strong as the coarser one before it, so that neighbouring pixels are similar and
    the images differ from each other. White noise averages out, and a shifted window would hardly change the logits.
    """
    rng = np.random.default_rng(seed)
    pixels = np.zeros((count, channels, *size))
    for octave in range(OCTAVES):
        cell = 2 ** (OCTAVES - octave)
        rows, columns = (-(-n // cell) for n in size)
        coarse = rng.standard_normal((count, channels, rows, columns)) * 0.5**octave
        pixels += np.repeat(np.repeat(coarse, cell, axis=2), cell, axis=3)[:, :, : size[0], : size[1]]
    low, high = pixels.min(axis=(1, 2, 3), keepdims=True), pixels.max(axis=(1, 2, 3), keepdims=True)
    unit = (pixels - low) / (high - low)
    if protocol is None:
        return np.asarray(2 * unit - 1)
    mean, std = (np.asarray(value).reshape(1, 3, 1, 1) for value in (protocol.mean, protocol.std))
    return np.asarray((255 * unit / protocol.divide - mean) / std)

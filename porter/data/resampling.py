"""Two published resamplings that Pillow does not have: OpenCV's cubic on bytes and TensorFlow 1's bilinear on floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COEFFICIENT_BITS = 11


def opencv_cubic(pixels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """cv2.resize with INTER_CUBIC of H x W x C bytes: a = -0.75, half-pixel centres, no antialiasing, edges repeated.

    This is the integer arithmetic of OpenCV's resize.cpp: weights of 11 bits, no rounding between the passes, one at the end.
    OpenCV's vector code computes the second pass in float: one value in 100,000 differs, by one level. Its builds for Intel use
    IPP, which does not round weights: one value in 23 differs, by one level.
    """
    horizontal, vertical = _cubic_taps(pixels.shape[1], columns), _cubic_taps(pixels.shape[0], rows)
    wide = _weigh(pixels.astype(np.int32), *horizontal, axis=1)
    total = _weigh(wide, *vertical, axis=0)
    bits = 2 * _COEFFICIENT_BITS
    total += 1 << (bits - 1)
    total >>= bits
    return np.clip(total, 0, 255, out=total).astype(np.uint8)


def _cubic_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Per target cell, the four source cells and their integer weights: two arrays 4 x target."""
    centre = ((np.arange(target) + 0.5) * (size / target) - 0.5).astype(np.float32)
    first = np.floor(centre)
    x = centre - first
    a, one = np.float32(-0.75), np.float32(1)
    outer = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    near = ((a + 2) * x - (a + 3)) * x * x + one
    far = ((a + 2) * (one - x) - (a + 3)) * (one - x) * (one - x) + one
    weights = np.stack([outer, near, far, one - outer - near - far])
    cells = first.astype(np.intp) + np.arange(-1, 3)[:, None]
    return np.clip(cells, 0, size - 1), np.rint(weights * np.float32(1 << _COEFFICIENT_BITS)).astype(np.int32)


def _weigh(values: NDArray[np.int32], cells: NDArray[np.intp], weights: NDArray[np.int32], axis: int) -> NDArray[np.int32]:
    shape = [1, 1, 1]
    shape[axis] = -1
    total: NDArray[np.int32] = values.take(cells[0], axis)
    total *= weights[0].reshape(shape)
    part = np.empty_like(total)
    for cell, weight in zip(cells[1:], weights[1:], strict=True):
        values.take(cell, axis, out=part, mode="clip")  # no cell lies outside; the default mode would go through a copy
        part *= weight.reshape(shape)
        total += part
    return total


def tf1_bilinear(values: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """tf.compat.v1.image.resize_bilinear(align_corners=False, half_pixel_centers=False) of H x W x C floats.

    Cell i of the result lies at i * (size / target) of the source, so the picture shifts up and left by up to half a cell. There is
    no antialiasing. The order of operations is that of resize_bilinear_op.cc, in float32: across, then down.
    """
    top, bottom, down = _linear_taps(values.shape[0], rows)
    used, places = np.unique([top, bottom], return_inverse=True)
    top, bottom = places.reshape(2, rows)
    wide = _between(values if len(used) == len(values) else values[used], *_linear_taps(values.shape[1], columns), axis=1)
    return _between(wide, top, bottom, down, axis=0)


def _between(
    values: NDArray[np.float32], before: NDArray[np.intp], after: NDArray[np.intp], share: NDArray[np.float32], axis: int
) -> NDArray[np.float32]:
    """before + (after - before) * share along an axis."""
    first, result = values.take(before, axis), values.take(after, axis)
    result -= first
    result *= share.reshape([-1 if axis == number else 1 for number in range(3)])
    result += first
    return result


def _linear_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Per target cell, the source cell at or before it, the one after, and how far it lies between them."""
    position = np.arange(target, dtype=np.float32) * (np.float32(size) / np.float32(target))
    first = np.floor(position)
    before = first.astype(np.intp)
    return before, np.minimum(before + 1, size - 1), position - first

"""Resamplings that Pillow does not have: OpenCV's, TensorFlow's and torch's antialiased ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

_COEFFICIENT_BITS = 11
_TABLE = 1 << 10

_Taps = tuple[NDArray[np.intp], NDArray[np.intp], Floats]
_Weights = tuple[NDArray[np.intp], Floats]
_TorchWeights = tuple[NDArray[np.intp], Floats, NDArray[np.intp]]


def opencv_cubic(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """cv2.resize with INTER_CUBIC of H x W x C bytes: a = -0.75, half-pixel centres, no antialiasing, edges
    repeated.

    This is the integer arithmetic of OpenCV's resize.cpp: weights of 11 bits, no rounding between the passes,
    one at the end. OpenCV's vector code computes the second pass in float: one value in 100,000 differs, by
    one level. Its builds for Intel use IPP, which does not round weights: one value in 23 differs, by one
    level.
    """
    horizontal, vertical = _cubic_taps(pixels.shape[1], columns), _cubic_taps(pixels.shape[0], rows)
    wide = _weigh(pixels.astype(np.int32), *horizontal, axis=1)
    total = _weigh(wide, *vertical, axis=0)
    bits = 2 * _COEFFICIENT_BITS
    total += 1 << (bits - 1)
    total >>= bits
    return np.clip(total, 0, 255, out=total).astype(np.uint8)


def opencv_bilinear(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """cv2.resize with INTER_LINEAR of H x W x C bytes: half-pixel centres, no antialiasing.

    This is the integer arithmetic of OpenCV's resize.cpp: weights of 11 bits, and bits dropped before and
    after the second pass.
    """
    (left, right), across = _linear_taps(pixels.shape[1], columns)
    (top, bottom), down = _linear_taps(pixels.shape[0], rows)
    values = pixels.astype(np.int32)
    wide = (values.take(left, 1) * across[0][:, None] + values.take(right, 1) * across[1][:, None]) >> 4
    upper, lower = (
        wide.take(cells, 0) * weights[:, None, None] >> 16
        for cells, weights in zip((top, bottom), down, strict=True)
    )
    total: Pixels = ((upper + lower + 2) >> 2).astype(np.uint8)
    return total


def _linear_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Per target cell, the two source cells and their integer weights: two arrays 2 x target."""
    centre = ((np.arange(target) + 0.5) * (size / target) - 0.5).astype(np.float32)
    first = np.floor(centre)
    share = centre - first
    cells = first.astype(np.intp) + np.arange(2)[:, None]
    weights = np.stack([np.float32(1) - share, share]) * np.float32(1 << _COEFFICIENT_BITS)
    return np.clip(cells, 0, size - 1), np.rint(weights).astype(np.int32)


def _cubic_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Per target cell, the four source cells and their integer weights: two arrays 4 x target."""
    centre = ((np.arange(target) + 0.5) * (size / target) - 0.5).astype(np.float32)
    first = np.floor(centre)
    x = centre - first
    a = np.float32(-0.75)
    one = np.float32(1)
    outer = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    near = ((a + 2) * x - (a + 3)) * x * x + one
    far = ((a + 2) * (one - x) - (a + 3)) * (one - x) * (one - x) + one
    weights = np.stack([outer, near, far, one - outer - near - far])
    cells = first.astype(np.intp) + np.arange(-1, 3)[:, None]
    return np.clip(cells, 0, size - 1), np.rint(weights * np.float32(1 << _COEFFICIENT_BITS)).astype(np.int32)


def _weigh(
    values: NDArray[np.int32], cells: NDArray[np.intp], weights: NDArray[np.int32], axis: int
) -> NDArray[np.int32]:
    """Sums of cells along an axis by their weights, in whole numbers."""
    shape = [1, 1, 1]
    shape[axis] = -1
    total: NDArray[np.int32] = values.take(cells[0], axis)
    total *= weights[0].reshape(shape)
    part = np.empty_like(total)
    for cell, weight in zip(cells[1:], weights[1:], strict=True):
        # No cell lies outside; the default mode would go through a copy.
        values.take(cell, axis, out=part, mode="clip")
        part *= weight.reshape(shape)
        total += part
    return total


def tf1_bilinear(values: Floats, rows: int, columns: int) -> Floats:
    """tf.compat.v1.image.resize_bilinear(align_corners=False, half_pixel_centers=False) of H x W x C floats.

    Cell i of the result lies at i * (size / target) of the source, so the picture shifts up and left by up to
    half a cell. There is no antialiasing. The order of operations is that of resize_bilinear_op.cc, in
    float32: across, then down.
    """
    return _bilinear(values, _corner_taps(values.shape[0], rows), _corner_taps(values.shape[1], columns))


def tf_bilinear(pixels: Pixels, rows: int, columns: int) -> Floats:
    """tf.image.resize of H x W x C bytes, which keras.layers.Resizing and image_dataset_from_directory call:
    half-pixel centres, no antialiasing. The order of operations is `tf1_bilinear`'s.
    """
    values = pixels.astype(np.float32)
    return _bilinear(values, _centre_taps(values.shape[0], rows), _centre_taps(values.shape[1], columns))


def _bilinear(values: Floats, vertical: _Taps, horizontal: _Taps) -> Floats:
    """Means of two cells along both axes, rows last; only rows that are used are computed."""
    top, bottom, down = vertical
    used, places = np.unique([top, bottom], return_inverse=True)
    top, bottom = places.reshape(2, -1)
    wide = _between(values if len(used) == len(values) else values[used], *horizontal, axis=1)
    return _between(wide, top, bottom, down, axis=0)


def _between(
    values: Floats,
    before: NDArray[np.intp],
    after: NDArray[np.intp],
    share: Floats,
    axis: int,
) -> Floats:
    """before + (after - before) * share along an axis."""
    first, result = values.take(before, axis), values.take(after, axis)
    result -= first
    result *= share.reshape([-1 if axis == number else 1 for number in range(3)])
    result += first
    return result


def _corner_taps(size: int, target: int) -> _Taps:
    """Per target cell, the source cell at or before it, the one after, and how far it lies between them."""
    position = np.arange(target, dtype=np.float32) * (np.float32(size) / np.float32(target))
    first = np.floor(position)
    before = first.astype(np.intp)
    return before, np.minimum(before + 1, size - 1), position - first


def _centre_taps(size: int, target: int) -> _Taps:
    """The taps of `_corner_taps`, where the centres of cells and not their corners lie on each other
    (TensorFlow's HalfPixelScaler).
    """
    half = np.float32(0.5)
    position = (np.arange(target, dtype=np.float32) + half) * (np.float32(size) / np.float32(target)) - half
    first = np.floor(position)
    after = np.minimum(np.ceil(position).astype(np.intp), size - 1)
    return np.maximum(first.astype(np.intp), 0), after, position - first


def tf_bicubic(pixels: Pixels, rows: int, columns: int) -> Floats:
    """tf.image.resize of H x W x C bytes with method="bicubic": Keys' cubic of a = -0.5, half-pixel centres,
    no antialiasing; down, then across (resize_bicubic_op.cc).
    """
    down = _gathered(pixels.astype(np.float32), _tf_cubic_weights(pixels.shape[0], rows), axis=0)
    return _gathered(down, _tf_cubic_weights(pixels.shape[1], columns), axis=1)


def _tf_cubic_weights(size: int, target: int) -> _Weights:
    """Per target cell, four source cells and their weights, from a table of the kernel at 1,025 places. Cells
    outside the image weigh nothing, and the others as much more.
    """
    half = np.float32(0.5)
    a = -0.5
    places = np.float32(_TABLE)
    position = (np.arange(target, dtype=np.float32) + half) * (np.float32(size) / np.float32(target)) - half
    first = np.floor(position)
    share = np.rint((position - first) * places).astype(np.intp)
    x = np.arange(_TABLE + 1) / _TABLE
    near = (((a + 2) * x - (a + 3)) * x * x + 1).astype(np.float32)
    x += 1
    far = (((a * x - 5 * a) * x + 8 * a) * x - 4 * a).astype(np.float32)
    weights = np.stack([far[share], near[share], near[_TABLE - share], far[_TABLE - share]])
    cells = first.astype(np.intp) + np.arange(-1, 3)[:, None]
    weights[(cells < 0) | (cells >= size)] = 0
    total = ((weights[0] + weights[1]) + weights[2]) + weights[3]
    return np.clip(cells, 0, size - 1), weights * (np.float32(1) / total)


def tf_area(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """tf.image.resize of H x W x C bytes with method="area", cut to bytes, as big_vision does it: the mean
    of the cells under each target cell; across, then down (resize_area_op.cc).
    """
    wide = _gathered(pixels.astype(np.float32), _tf_area_weights(pixels.shape[1], columns), axis=1)
    total = _gathered(wide, _tf_area_weights(pixels.shape[0], rows), axis=0)
    ratios = (
        np.float32(was) / np.float32(now) for was, now in zip(pixels.shape, (rows, columns), strict=False)
    )
    total *= np.float32(1) / (next(ratios) * next(ratios))
    return np.clip(total, 0, 255, out=total).astype(np.uint8)


def _tf_area_weights(size: int, target: int) -> _Weights:
    """Per target cell, the source cells under it, and how much of each."""
    ratio = np.float32(size) / np.float32(target)
    one = np.float32(1)
    start, end = (np.arange(number, target + number, dtype=np.float32) * ratio for number in (0, 1))
    first, last = np.floor(start).astype(np.intp), np.ceil(end).astype(np.intp)
    cells = first + np.arange((last - first).max())[:, None]
    left = cells.astype(np.float32)
    begun, ended = left < start, left + one > end
    cut = np.where(ended, np.where(begun, ratio, end - left), np.where(begun, left + one - start, one))
    cut[cells >= last] = 0
    return np.minimum(cells, size - 1), cut


def tf_antialiased(pixels: Pixels, rows: int, columns: int) -> Floats:
    """tf.image.resize of H x W x C bytes with antialias=True, which is ScaleAndTranslate with a triangle:
    down, then across.
    """
    down = _gathered(pixels.astype(np.float32), _tf_weights(pixels.shape[0], rows), axis=0)
    return _gathered(down, _tf_weights(pixels.shape[1], columns), axis=1)


def torch_bilinear(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """torch.nn.functional.interpolate of H x W x C bytes as floats with antialias=True, rounded: across, then
    down.

    The sums are those of torch on processors with AVX2. On others one value in 30,000 is another by one
    level.
    """
    return _torch(pixels, rows, columns, _triangle, 1)


def torch_bicubic(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resamples as `torch_bilinear` does, with Keys' cubic of a = -0.5, clipped to bytes."""
    return _torch(pixels, rows, columns, _keys, 2)


_Kernel = Callable[[Floats], Floats]


def _torch(pixels: Pixels, rows: int, columns: int, kernel: _Kernel, reach: int) -> Pixels:
    wide = _gathered_by_torch(pixels, _torch_weights(pixels.shape[1], columns, kernel, reach), axis=1)
    values = _gathered_by_torch(wide, _torch_weights(pixels.shape[0], rows, kernel, reach), axis=0)
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


def _gathered_by_torch(values: NDArray[np.generic], weights: _TorchWeights, axis: int) -> Floats:
    """The sums of `_gathered`, rounded as in torch's loop over the cells after the first: its compiled code
    multiplies four at once and adds these rounded products one by one; what is left of a cell's four is
    fused, so only the sum is rounded.
    """
    cells, shares, used = weights
    shape = [-1 if axis == number else 1 for number in range(3)]
    fused_from = 1 + (used - 1) // 4 * 4
    exact = values.astype(np.float64)
    total = np.zeros((), np.float32)
    for number, (cell, share) in enumerate(zip(cells, shares, strict=True)):
        product = exact.take(cell, axis)
        product *= share.reshape(shape)
        np.copyto(product, product.astype(np.float32), where=(number < fused_from).reshape(shape))
        product += total
        total = product.astype(np.float32)
    return total


def _gathered(values: Floats, weights: _Weights, axis: int) -> Floats:
    """Weighted sums of cells along an axis, the first cell first."""
    cells, shares = weights
    shape = [-1 if axis == number else 1 for number in range(3)]
    total: Floats = values.take(cells[0], axis)
    total *= shares[0].reshape(shape)
    part = np.empty_like(total)
    for cell, share in zip(cells[1:], shares[1:], strict=True):
        values.take(cell, axis, out=part, mode="clip")
        part *= share.reshape(shape)
        total += part
    return total


def _tf_weights(size: int, target: int) -> _Weights:
    """Per target cell, source cells and their weights: two arrays taps x target (scale_and_translate_op.cc,
    ComputeSpansCore).
    """
    one, half = np.float32(1), np.float32(0.5)
    ratio = one / (np.float32(target) / np.float32(size))
    reach = max(ratio, one)
    sample = (np.arange(target, dtype=np.float32) + half) * ratio
    first = np.maximum(np.ceil(sample - reach - half).astype(np.intp), 0)
    last = np.minimum(np.floor(sample + reach - half).astype(np.intp), size - 1)
    cells = first + np.arange((last - first).max() + 1)[:, None]
    weights = _triangle((cells.astype(np.float32) + half - sample) * (one / reach))
    weights[cells > last] = 0
    return np.minimum(cells, size - 1), weights * (one / _added(weights))


def _torch_weights(size: int, target: int, kernel: _Kernel, reach: int) -> _TorchWeights:
    """The weights of `_tf_weights` as they are computed in UpSampleKernel.cpp's
    `_compute_indices_weights_aa`, whose numbers 0.5 and 1.0 are doubles. The third is the number of source
    cells of each target cell; further ones have no weight.
    """
    ratio = np.float32(size) / np.float32(target)
    stretch = max(ratio, np.float32(1))
    support = np.float32(reach) * stretch
    centre = (float(ratio) * (np.arange(target) + 0.5)).astype(np.float32)
    first = np.maximum(((centre - support).astype(np.float64) + 0.5).astype(np.intp), 0)
    end = np.minimum(((centre + support).astype(np.float64) + 0.5).astype(np.intp), size)
    cells = first + np.arange((end - first).max())[:, None]
    apart = (cells.astype(np.float32) - centre).astype(np.float64) + 0.5
    weights = kernel((apart * np.float32(1 / float(stretch))).astype(np.float32))
    weights[cells >= end] = 0
    return np.minimum(cells, size - 1), weights / _added(weights), end - first


def _added(weights: Floats) -> Floats:
    """The sum of each target cell's weights, the first one first: numpy's own sum has another order."""
    total: Floats = np.zeros_like(weights[0])
    for share in weights:
        total += share
    return total


def _triangle(x: Floats) -> Floats:
    return np.maximum(np.float32(1) - np.abs(x), np.float32(0))


def _keys(x: Floats) -> Floats:
    """The weight of a cell by Keys' cubic, at its distance in cells."""
    a = np.float32(-0.5)
    x = np.abs(x)
    near = _fused(_fused(a + 2, x, -(a + 3)) * x, x, np.float32(1))
    far = _fused(_fused(_fused(a, x, -5 * a), x, 8 * a), x, -4 * a)
    return np.where(x < 1, near, np.where(x < 2, far, np.float32(0)))


def _fused(first: Floats | np.float32, second: Floats, third: np.float32) -> Floats:
    """first * second + third, rounded once."""
    return (np.asarray(first, np.float64) * second + third).astype(np.float32)


FUNCTIONS: Mapping[str, Callable[[Any, int, int], NDArray[Any]]] = {
    function.__name__: function
    for function in (
        opencv_bilinear,
        opencv_cubic,
        tf1_bilinear,
        tf_antialiased,
        tf_area,
        tf_bicubic,
        tf_bilinear,
        torch_bicubic,
        torch_bilinear,
    )
}
"""Resamplings of pixels to so many rows and columns, by the names that protocols have for them."""

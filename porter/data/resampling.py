"""Resamplings that Pillow does not have: OpenCV's, TensorFlow's and torch's antialiased ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
_Number = TypeVar("_Number", np.int32, np.float32)

_COEFFICIENT_BITS = 11
"""The bits of OpenCV's integer weights after the point."""
_TABLE_CELLS = 1 << 10
"""The intervals of TensorFlow's table of the cubic kernel."""

_Taps = tuple[NDArray[np.intp], NDArray[np.intp], Floats]
"""For each target cell the source cell before it, the one after it, and how far it lies between them."""
_Weights = tuple[NDArray[np.intp], Floats]
"""The source cells of each target cell and their weights: two arrays taps x target."""
_TorchWeights = tuple[NDArray[np.intp], Floats, NDArray[np.intp]]
"""These, and how many source cells each target cell has."""


def opencv_cubic(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resize H x W x C bytes as cv2.resize does with INTER_CUBIC: a = -0.75, half-pixel centres, no
    antialiasing, edges repeated.

    This is the integer arithmetic of OpenCV's resize.cpp: weights of 11 bits, no rounding between the passes,
    one at the end. OpenCV's vector code computes the second pass in float: one value in 100,000 differs, by
    one level. Its builds for Intel use IPP, which does not round weights: one value in 23 differs, by one
    level.
    """
    horizontal, vertical = _cubic_taps(pixels.shape[1], columns), _cubic_taps(pixels.shape[0], rows)
    wide = _weighted_sums(pixels.astype(np.int32), horizontal, axis=1)
    total = _weighted_sums(wide, vertical, axis=0)
    # Both passes have multiplied by 2 ** _COEFFICIENT_BITS. A half is added, to round to the nearest.
    bits = 2 * _COEFFICIENT_BITS
    total += 1 << (bits - 1)
    total >>= bits
    return np.clip(total, 0, 255, out=total).astype(np.uint8)


def opencv_bilinear(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resize H x W x C bytes as cv2.resize does with INTER_LINEAR: half-pixel centres, no antialiasing.

    This is the integer arithmetic of OpenCV's resize.cpp: weights of 11 bits, and bits dropped before and
    after the second pass.
    """
    (left, right), across = _linear_taps(pixels.shape[1], columns)
    (top, bottom), down = _linear_taps(pixels.shape[0], rows)
    values = pixels.astype(np.int32)
    # Of the 22 bits that both passes multiply by, 4 are dropped here, 16 below and 2 at the end.
    wide = (values.take(left, 1) * across[0][:, None] + values.take(right, 1) * across[1][:, None]) >> 4
    upper, lower = (
        wide.take(cells, 0) * weights[:, None, None] >> 16
        for cells, weights in zip((top, bottom), down, strict=True)
    )
    total: Pixels = ((upper + lower + 2) >> 2).astype(np.uint8)
    return total


def _linear_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return the two source cells of each target cell and their integer weights, in 1/2048: two arrays 2 x
    target.

    Args:
        size, target: how many cells an axis has before and after.
    """
    centre = ((np.arange(target) + 0.5) * (size / target) - 0.5).astype(np.float32)
    first = np.floor(centre)
    share = centre - first
    cells = first.astype(np.intp) + np.arange(2)[:, None]
    weights = np.stack([np.float32(1) - share, share]) * np.float32(1 << _COEFFICIENT_BITS)
    return np.clip(cells, 0, size - 1), np.rint(weights).astype(np.int32)


def _cubic_taps(size: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return the four source cells of each target cell and their integer weights, in 1/2048, by Keys' cubic
    of a = -0.75: two arrays 4 x target.

    Args:
        size, target: how many cells an axis has before and after.
    """
    centre = ((np.arange(target) + 0.5) * (size / target) - 0.5).astype(np.float32)
    first = np.floor(centre)
    x = centre - first
    a = np.float32(-0.75)
    one = np.float32(1)
    # the weights of the cells at distances 1 + x, x, 1 - x and 2 - x
    second_before = _cubic_to_2(x + one, a)
    before = _cubic_to_1(x, a)
    after = _cubic_to_1(one - x, a)
    weights = np.stack([second_before, before, after, one - second_before - before - after])
    cells = first.astype(np.intp) + np.arange(-1, 3)[:, None]
    return np.clip(cells, 0, size - 1), np.rint(weights * np.float32(1 << _COEFFICIENT_BITS)).astype(np.int32)


def tf1_bilinear(values: Floats, rows: int, columns: int) -> Floats:
    """Resize H x W x C floats as tf.compat.v1.image.resize_bilinear does with align_corners=False and
    half_pixel_centers=False.

    Cell i of the result lies at i * (size / target) of the source, so the picture shifts up and left by up to
    half a cell. There is no antialiasing. The order of operations is that of resize_bilinear_op.cc, in
    float32: across, then down.
    """
    return _resample_bilinear(
        values, _corner_taps(values.shape[0], rows), _corner_taps(values.shape[1], columns)
    )


def tf_bilinear(pixels: Pixels, rows: int, columns: int) -> Floats:
    """Resize H x W x C bytes as tf.image.resize does, which keras.layers.Resizing and
    image_dataset_from_directory call: half-pixel centres, no antialiasing. The order of operations is
    `tf1_bilinear`'s.
    """
    values = pixels.astype(np.float32)
    return _resample_bilinear(
        values, _centre_taps(values.shape[0], rows), _centre_taps(values.shape[1], columns)
    )


def _resample_bilinear(values: Floats, vertical: _Taps, horizontal: _Taps) -> Floats:
    """Return means of two cells along both axes, rows last. Only rows that are used are computed."""
    top, bottom, down = vertical
    used_rows, positions = np.unique([top, bottom], return_inverse=True)
    # the places of these rows among the used ones
    top, bottom = positions.reshape(2, -1)
    used_values = values if len(used_rows) == len(values) else values[used_rows]
    wide = _interpolate_between(used_values, *horizontal, axis=1)
    return _interpolate_between(wide, top, bottom, down, axis=0)


def _interpolate_between(
    values: Floats,
    before: NDArray[np.intp],
    after: NDArray[np.intp],
    share: Floats,
    axis: int,
) -> Floats:
    """Return before + (after - before) * share along an axis, in this order of operations.

    Args:
        before, after: for each target cell, the source cells on both sides.
        share: how far it lies between them.
        axis: 0 for rows, 1 for columns.
    """
    first, result = values.take(before, axis), values.take(after, axis)
    result -= first
    result *= share.reshape([-1 if axis == number else 1 for number in range(3)])
    result += first
    return result


def _corner_taps(size: int, target: int) -> _Taps:
    """Return the taps (the source cells that a target cell is made of) where corners of cells lie on each
    other: for each target cell the source cell at or before it, the one after, and how far it lies between
    them.
    """
    position = np.arange(target, dtype=np.float32) * (np.float32(size) / np.float32(target))
    first = np.floor(position)
    before = first.astype(np.intp)
    return before, np.minimum(before + 1, size - 1), position - first


def _centre_taps(size: int, target: int) -> _Taps:
    """Return the taps of `_corner_taps` where not the corners of cells but their centres lie on each other
    (TensorFlow's HalfPixelScaler).
    """
    half = np.float32(0.5)
    position = (np.arange(target, dtype=np.float32) + half) * (np.float32(size) / np.float32(target)) - half
    first = np.floor(position)
    after = np.minimum(np.ceil(position).astype(np.intp), size - 1)
    return np.maximum(first.astype(np.intp), 0), after, position - first


def tf_bicubic(pixels: Pixels, rows: int, columns: int) -> Floats:
    """Resize H x W x C bytes as tf.image.resize does with method="bicubic": Keys' cubic of a = -0.5,
    half-pixel centres, no antialiasing; down, then across (resize_bicubic_op.cc).
    """
    down = _weighted_sums(pixels.astype(np.float32), _tf_cubic_weights(pixels.shape[0], rows), axis=0)
    return _weighted_sums(down, _tf_cubic_weights(pixels.shape[1], columns), axis=1)


def _tf_cubic_weights(size: int, target: int) -> _Weights:
    """Return the four source cells of each target cell and their weights, from a table of the kernel at 1,025
    positions. Cells outside the image weigh nothing, and the others weigh more instead.
    """
    half = np.float32(0.5)
    a = -0.5
    table_cells = np.float32(_TABLE_CELLS)
    position = (np.arange(target, dtype=np.float32) + half) * (np.float32(size) / np.float32(target)) - half
    first = np.floor(position)
    share = np.rint((position - first) * table_cells).astype(np.intp)
    # the kernel's table, for distances of 0 to 1 and of 1 to 2 cells
    x = np.arange(_TABLE_CELLS + 1) / _TABLE_CELLS
    within_1 = _cubic_to_1(x, a).astype(np.float32)
    within_2 = _cubic_to_2(x + 1, a).astype(np.float32)
    rest = _TABLE_CELLS - share
    weights = np.stack([within_2[share], within_1[share], within_1[rest], within_2[rest]])
    cells = first.astype(np.intp) + np.arange(-1, 3)[:, None]
    weights[(cells < 0) | (cells >= size)] = 0
    total = ((weights[0] + weights[1]) + weights[2]) + weights[3]
    return np.clip(cells, 0, size - 1), weights * (np.float32(1) / total)


def tf_area(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resize H x W x C bytes as tf.image.resize does with method="area", and cut to bytes as big_vision does:
    the mean of the cells under each target cell; across, then down (resize_area_op.cc).
    """
    wide = _weighted_sums(pixels.astype(np.float32), _tf_area_weights(pixels.shape[1], columns), axis=1)
    total = _weighted_sums(wide, _tf_area_weights(pixels.shape[0], rows), axis=0)
    # the source cells under a target cell
    row_ratio = np.float32(pixels.shape[0]) / np.float32(rows)
    column_ratio = np.float32(pixels.shape[1]) / np.float32(columns)
    total *= np.float32(1) / (row_ratio * column_ratio)
    return np.clip(total, 0, 255, out=total).astype(np.uint8)


def _tf_area_weights(size: int, target: int) -> _Weights:
    """Return the source cells under each target cell, and how much of each is under it: all of it inside, a
    part at the two ends.
    """
    ratio = np.float32(size) / np.float32(target)
    one = np.float32(1)
    start, end = (np.arange(number, target + number, dtype=np.float32) * ratio for number in (0, 1))
    first, last = np.floor(start).astype(np.intp), np.ceil(end).astype(np.intp)
    cells = first + np.arange((last - first).max())[:, None]
    # where each source cell begins, and whether the target cell begins or ends inside it
    left = cells.astype(np.float32)
    cut_at_start, cut_at_end = left < start, left + one > end
    shares = np.where(
        cut_at_end,
        np.where(cut_at_start, ratio, end - left),
        np.where(cut_at_start, left + one - start, one),
    )
    shares[cells >= last] = 0
    return np.minimum(cells, size - 1), shares


def tf_antialiased(pixels: Pixels, rows: int, columns: int) -> Floats:
    """Resize H x W x C bytes as tf.image.resize does with antialias=True, which is ScaleAndTranslate with a
    triangle: down, then across.
    """
    down = _weighted_sums(pixels.astype(np.float32), _tf_weights(pixels.shape[0], rows), axis=0)
    return _weighted_sums(down, _tf_weights(pixels.shape[1], columns), axis=1)


def torch_bilinear(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resize H x W x C bytes as torch.nn.functional.interpolate does with floats and antialias=True, and
    round: across, then down.

    The sums are those of torch on processors with AVX2. On others one value in 30,000 is another by one
    level.
    """
    return _resample_by_torch(pixels, rows, columns, _triangle, 1)


def torch_bicubic(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Resize as `torch_bilinear` does, with Keys' cubic of a = -0.5, and clip to bytes."""
    return _resample_by_torch(pixels, rows, columns, _keys_cubic, 2)


_Kernel = Callable[[Floats], Floats]


def _resample_by_torch(pixels: Pixels, rows: int, columns: int, kernel: _Kernel, reach: int) -> Pixels:
    """Resize with a kernel that weighs cells up to `reach` cells away, across and then down, and round to
    bytes.
    """
    wide = _weighted_sums_by_torch(pixels, _torch_weights(pixels.shape[1], columns, kernel, reach), axis=1)
    values = _weighted_sums_by_torch(wide, _torch_weights(pixels.shape[0], rows, kernel, reach), axis=0)
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


def _weighted_sums_by_torch(values: NDArray[np.generic], weights: _TorchWeights, axis: int) -> Floats:
    """Return the sums of `_weighted_sums`, rounded as in torch's loop over the cells after the first. Its
    compiled code multiplies four cells at once and adds the rounded products one by one. The cells that
    remain after the fours are fused, so only the sum is rounded.
    """
    cells, shares, counts = weights
    shape = [-1 if axis == number else 1 for number in range(3)]
    # The first cell and whole fours after it are not fused.
    fused_from = 1 + (counts - 1) // 4 * 4
    exact = values.astype(np.float64)
    total = np.zeros((), np.float32)
    for number, (cell, share) in enumerate(zip(cells, shares, strict=True)):
        product = exact.take(cell, axis)
        product *= share.reshape(shape)
        np.copyto(product, product.astype(np.float32), where=(number < fused_from).reshape(shape))
        product += total
        total = product.astype(np.float32)
    return total


def _weighted_sums(
    values: NDArray[_Number], weights: tuple[NDArray[np.intp], NDArray[_Number]], axis: int
) -> NDArray[_Number]:
    """Return weighted sums of cells along an axis, the first cell first: the order decides the rounding of
    floats.

    Args:
        weights: the source cells of each target cell and their weights, two arrays taps x target.
    """
    cells, shares = weights
    shape = [-1 if axis == number else 1 for number in range(3)]
    total: NDArray[_Number] = values.take(cells[0], axis)
    total *= shares[0].reshape(shape)
    part = np.empty_like(total)
    for cell, share in zip(cells[1:], shares[1:], strict=True):
        # No cell lies outside; the default mode would go through a copy.
        values.take(cell, axis, out=part, mode="clip")
        part *= share.reshape(shape)
        total += part
    return total


def _tf_weights(size: int, target: int) -> _Weights:
    """Return the source cells of each target cell and their weights: two arrays taps x target
    (scale_and_translate_op.cc, ComputeSpansCore).
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
    return np.minimum(cells, size - 1), weights * (one / _sum_in_order(weights))


def _torch_weights(size: int, target: int, kernel: _Kernel, reach: int) -> _TorchWeights:
    """Return the cells and weights of `_tf_weights` as UpSampleKernel.cpp's `_compute_indices_weights_aa`
    computes them, whose numbers 0.5 and 1.0 are doubles. The third array is the number of source cells of
    each target cell; further cells have no weight.
    """
    ratio = np.float32(size) / np.float32(target)
    stretch = max(ratio, np.float32(1))
    support = np.float32(reach) * stretch
    centre = (float(ratio) * (np.arange(target) + 0.5)).astype(np.float32)
    first = np.maximum(((centre - support).astype(np.float64) + 0.5).astype(np.intp), 0)
    end = np.minimum(((centre + support).astype(np.float64) + 0.5).astype(np.intp), size)
    cells = first + np.arange((end - first).max())[:, None]
    distance = (cells.astype(np.float32) - centre).astype(np.float64) + 0.5
    weights = kernel((distance * np.float32(1 / float(stretch))).astype(np.float32))
    weights[cells >= end] = 0
    return np.minimum(cells, size - 1), weights / _sum_in_order(weights), end - first


def _sum_in_order(weights: Floats) -> Floats:
    """Return the sum of each target cell's weights, the first one first: numpy's own sum has another
    order.
    """
    total: Floats = np.zeros_like(weights[0])
    for share in weights:
        total += share
    return total


def _triangle(x: Floats) -> Floats:
    """Return the weight of a cell by a triangle, at its distance in cells."""
    return np.maximum(np.float32(1) - np.abs(x), np.float32(0))


def _keys_cubic(x: Floats) -> Floats:
    """Return the weight of a cell by Keys' cubic, at its distance in cells."""
    a = np.float32(-0.5)
    x = np.abs(x)
    within_1 = _cubic_to_1(x, a, _multiply_add)
    within_2 = _cubic_to_2(x, a, _multiply_add)
    weights: Floats = np.where(x < 1, within_1, np.where(x < 2, within_2, np.float32(0)))
    return weights


def _multiply_add(first: Any, second: Any, third: Any) -> Floats:
    """Return first * second + third, rounded once."""
    rounded: Floats = (np.asarray(first, np.float64) * second + third).astype(np.float32)
    return rounded


def _multiply_then_add(first: Any, second: Any, third: Any) -> Any:
    """Return first * second + third, rounded twice."""
    return first * second + third


def _cubic_to_1(x: Any, a: Any, multiply_add: Callable[..., Any] = _multiply_then_add) -> Any:
    """Return the weight of a cell by Keys' cubic, at a distance of 0 to 1 cells, in the type of `x` and
    `a`.
    """
    return multiply_add(multiply_add(a + 2, x, -(a + 3)) * x, x, 1)


def _cubic_to_2(x: Any, a: Any, multiply_add: Callable[..., Any] = _multiply_then_add) -> Any:
    """Return what `_cubic_to_1` returns, at a distance of 1 to 2 cells."""
    return multiply_add(multiply_add(multiply_add(a, x, -5 * a), x, 8 * a), x, -4 * a)


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

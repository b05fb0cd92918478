"""The resamplings against what they reproduce: TensorFlow, OpenCV where installed, otherwise its arithmetic
cell by cell.
"""

import math
from typing import Any

import numpy as np
import pytest

from porter.data.resampling import (
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
from tests.support.arrays import Array

SIZES = [
    ((37, 50), (25, 34)),
    ((50, 33), (38, 25)),
    ((12, 17), (29, 30)),
    ((7, 5), (3, 4)),
    ((16, 16), (16, 16)),
    ((1, 9), (3, 2)),
]


def photo(height: int, width: int) -> Array:
    """Noise over a ramp, with black and white cells so that a cubic overshoots at both ends."""
    random = np.random.default_rng(height * 1000 + width)
    pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels[random.random((height, width)) < 0.3] = 0
    pixels[random.random((height, width)) < 0.3] = 255
    return pixels


def cubic_weights(x: float) -> list[int]:
    """Keys' cubic with a = -0.75 at distances 1+x, x, 1-x, 2-x, in units of 1/2048."""
    a = -0.75

    def kernel(distance: float) -> float:
        if distance <= 1:
            return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a

    return [round(kernel(distance) * 2048) for distance in (1 + x, x, 1 - x, 2 - x)]


def cubic_cell_by_cell(pixels: Array, rows: int, columns: int) -> Array:
    height, width, channels = pixels.shape
    result = np.empty((rows, columns, channels), np.uint8)
    for row in range(rows):
        y = (row + 0.5) * height / rows - 0.5
        for column in range(columns):
            x = (column + 0.5) * width / columns - 0.5
            for channel in range(channels):
                total = 0
                for i, down in enumerate(cubic_weights(y - math.floor(y))):
                    for j, across in enumerate(cubic_weights(x - math.floor(x))):
                        cell_y = min(max(math.floor(y) - 1 + i, 0), height - 1)
                        cell_x = min(max(math.floor(x) - 1 + j, 0), width - 1)
                        total += down * across * int(pixels[cell_y, cell_x, channel])
                result[row, column, channel] = min(max((total + (1 << 21)) >> 22, 0), 255)
    return result


def levels_apart(found: Array, wanted: Array) -> Array:
    return np.abs(found.astype(int) - wanted.astype(int))


@pytest.mark.parametrize(("size", "target"), SIZES)
def test_opencv_cubic_is_the_fixed_point_cubic_cell_by_cell(
    size: tuple[int, int], target: tuple[int, int]
) -> None:
    pixels = photo(*size)
    apart = levels_apart(opencv_cubic(pixels, *target), cubic_cell_by_cell(pixels, *target))
    assert apart.max() <= 1  # float32 positions may round a weight the other way
    assert (apart > 0).mean() < 0.01


@pytest.mark.parametrize(
    ("size", "target"), [((375, 500), (256, 341)), ((500, 333), (384, 256)), ((60, 50), (307, 256))]
)
def test_opencv_cubic_is_within_a_level_of_opencv(size: tuple[int, int], target: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    pixels = photo(*size)
    apart = levels_apart(
        opencv_cubic(pixels, *target), cv2.resize(pixels, target[::-1], interpolation=cv2.INTER_CUBIC)
    )
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.06


@pytest.mark.parametrize(
    ("size", "target"), [*SIZES, ((375, 500), (256, 341)), ((512, 512), (256, 256)), ((60, 50), (307, 256))]
)
def test_opencv_bilinear_is_opencvs_bit_for_bit(size: tuple[int, int], target: tuple[int, int]) -> None:
    cv2, pixels = pytest.importorskip("cv2"), photo(*size)
    wanted = cv2.resize(pixels, target[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(opencv_bilinear(pixels, *target), wanted)


def test_opencv_cubic_saturates_and_does_not_wrap() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    enlarged = opencv_cubic(pixels, 32, 32)
    assert (enlarged[:, :12] == 0).all()
    assert (enlarged[:, 20:] == 255).all()


@pytest.mark.parametrize(("size", "target"), [*SIZES, ((375, 500), (299, 299)), ((300, 451), (256, 385))])
def test_tf1_bilinear_is_tensorflows_bit_for_bit(size: tuple[int, int], target: tuple[int, int]) -> None:
    tf = pytest.importorskip("tensorflow")
    values = photo(*size).astype(np.float32) * np.float32(1 / 255)
    wanted = tf.raw_ops.ResizeBilinear(
        images=values[None], size=target, align_corners=False, half_pixel_centers=False
    )[0].numpy()
    np.testing.assert_array_equal(tf1_bilinear(values, *target), wanted)


def test_tf1_bilinear_has_no_half_pixel_centres_and_no_antialiasing() -> None:
    ramp = np.arange(8, dtype=np.float32)[None, :, None].repeat(3, 2)
    assert tf1_bilinear(ramp, 1, 4)[0, :, 0].tolist() == [0, 2, 4, 6]
    assert tf1_bilinear(ramp, 1, 16)[0, :4, 0].tolist() == [0, 0.5, 1, 1.5]


LARGER = [*SIZES, ((375, 500), (96, 96)), ((375, 500), (224, 224)), ((60, 50), (307, 256))]


@pytest.mark.parametrize(("size", "target"), LARGER)
@pytest.mark.parametrize(("ours", "antialias"), [(tf_bilinear, False), (tf_antialiased, True)])
def test_tf_bilinear_is_tf_image_resize_bit_for_bit(
    ours: Any, antialias: bool, size: Any, target: Any
) -> None:
    tf = pytest.importorskip("tensorflow")
    wanted = tf.image.resize(photo(*size), target, "bilinear", antialias=antialias).numpy()
    np.testing.assert_array_equal(ours(photo(*size), *target), wanted)


@pytest.mark.parametrize(("size", "target"), [*LARGER, ((2, 3), (50, 50))])
def test_tf_bicubic_is_tf_image_resize_bit_for_bit(size: Any, target: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    np.testing.assert_array_equal(
        tf_bicubic(photo(*size), *target), tf.image.resize(photo(*size), target, "bicubic").numpy()
    )


@pytest.mark.parametrize(("size", "target"), [*LARGER, ((2, 3), (50, 50)), ((333, 500), (256, 384))])
def test_tf_area_is_tf_image_resize_cut_to_bytes(size: Any, target: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    wanted = tf.image.resize(photo(*size), target, "area").numpy()
    np.testing.assert_array_equal(tf_area(photo(*size), *target), wanted.astype(np.uint8), strict=True)


@pytest.mark.parametrize(("size", "target"), [*LARGER, ((256, 512), (128, 256)), ((375, 500), (12, 31))])
@pytest.mark.parametrize(("ours", "mode"), [(torch_bilinear, "bilinear"), (torch_bicubic, "bicubic")])
def test_torch_resampling_is_interpolates_bit_for_bit(ours: Any, mode: str, size: Any, target: Any) -> None:
    """Where the processor has AVX2. torch's code for others rounds some sums in the middle between two levels
    the other way.
    """
    torch = pytest.importorskip("torch")
    pixels = torch.from_numpy(photo(*size)).permute(2, 0, 1)[None].float()
    values = (
        torch.nn.functional.interpolate(pixels, target, mode=mode, antialias=True)[0]
        .permute(1, 2, 0)
        .clamp(0, 255)
        .numpy()
    )
    apart = ours(photo(*size), *target) != np.rint(values)
    if torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        assert not apart.any()
    assert (np.abs(values[apart] % 1 - 0.5) < 1e-4).all()
    assert apart.mean() < 2e-3

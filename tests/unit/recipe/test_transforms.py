from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.recipe.transforms import TRANSFORMS, apply_transforms, computes_numbers, undo_transforms
from tests.support.arrays import Array

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "shape", "becomes"),
    [("conv1x1_to_dense", (10, 4, 1, 1), (10, 4)), ("depthwise_to_grouped", (4, 12, 3, 3), (12, 4, 3, 3))],
)
def test_there_and_back(name: str, shape: tuple[int, ...], becomes: tuple[int, ...]) -> None:
    kernel = RNG.normal(size=shape)
    there = apply_transforms((name,), "kernel", kernel)
    assert there.shape == becomes
    np.testing.assert_array_equal(undo_transforms((name,), "kernel", there), kernel)
    bias = RNG.normal(size=shape[0])
    assert apply_transforms((name,), "bias", bias) is bias and undo_transforms((name,), "bias", bias) is bias


def test_a_head_loses_its_background_and_cannot_get_it_back() -> None:
    names = ("conv1x1_to_dense", "drop_background")
    kernel, bias = RNG.normal(size=(1001, 8, 1, 1)), RNG.normal(size=1001)
    np.testing.assert_array_equal(apply_transforms(names, "kernel", kernel), kernel[1:, :, 0, 0])
    np.testing.assert_array_equal(apply_transforms(names, "bias", bias), bias[1:])
    with pytest.raises(MappingError, match="'drop_background' cannot be undone"):
        undo_transforms(names, "bias", bias)


def test_a_depthwise_kernel_and_a_fixed_sum_are_a_grouped_convolution() -> None:
    """keras-applications' ResNeXt: depthwise with `width` outputs per channel, then each group's `width`
    sums.
    """
    groups, width, size = 3, 4, 5
    channels = groups * width
    kernel, image = RNG.normal(size=(width, channels, 3, 3)), RNG.normal(size=(channels, size, size))

    def correlate(plane: Array, window: Array) -> Array:
        views = np.lib.stride_tricks.sliding_window_view(plane, (3, 3))
        return np.einsum("rcij,ij->rc", views, window)

    written: list[Any] = [
        sum(correlate(image[group * width + j], kernel[m, group * width + j]) for j in range(width))
        for group in range(groups)
        for m in range(width)
    ]
    grouped = apply_transforms(("depthwise_to_grouped",), "kernel", kernel)
    ours: list[Any] = [
        sum(correlate(image[o // width * width + j], grouped[o, j]) for j in range(width))
        for o in range(channels)
    ]
    np.testing.assert_allclose(ours, written, rtol=1e-12)


@pytest.mark.parametrize("epsilon", ["1e-8", "1e-10"])
def test_kernels_are_standardised_as_torchs_batch_norm_does(epsilon: str) -> None:
    torch = pytest.importorskip("torch")
    kernel, name = (1e-4 * RNG.normal(size=(6, 5, 3, 3))).astype(np.float32), f"standardized_{epsilon}"
    rows = torch.from_numpy(kernel).double().reshape(1, 6, -1)
    wanted = (
        torch.nn.functional.batch_norm(rows, None, None, training=True, eps=float(epsilon))
        .reshape(kernel.shape)
        .numpy()
    )
    found: Array = apply_transforms((name,), "kernel", kernel)
    assert (
        found.dtype == np.float64
        and computes_numbers((name,), "kernel")
        and not computes_numbers((name,), "bias")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    with pytest.raises(MappingError, match="cannot be undone"):
        undo_transforms((name,), "kernel", found)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("conv1x1_to_dense", (10, 4, 3, 3)),
        ("conv1x1_to_dense", (10,)),
        ("drop_background", (1, 8)),
        ("depthwise_to_grouped", (5, 12, 3, 3)),
    ],
)
def test_other_shapes_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(MappingError):
        apply_transforms((name,), "kernel", np.zeros(shape))


def test_a_matrix_stays_a_matrix() -> None:
    kernel = RNG.normal(size=(10, 4))
    assert TRANSFORMS["conv1x1_to_dense"].forward("kernel", kernel) is kernel

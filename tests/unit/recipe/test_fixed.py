import numpy as np
import pytest

from porter.recipe.fixed import equals_fixed, is_group_sums
from tests.support.arrays import Array


def group_sums(groups: int, width: int) -> Array:
    """Column by column, as keras-applications fills it: every `width`-th of a group's outputs, from the
    column's place on.
    """
    channels = groups * width
    kernel = np.zeros((1, 1, channels * width, channels), np.float32)
    for column in range(channels):
        start = column // width * width**2 + column % width
        kernel[:, :, start : start + width**2 : width, column] = 1
    return kernel


@pytest.mark.parametrize(("groups", "width"), [(1, 1), (4, 1), (1, 3), (4, 2), (3, 5)])
def test_the_sum_over_each_group_is_known(groups: int, width: int) -> None:
    kernel = group_sums(groups, width)
    assert is_group_sums(kernel) and equals_fixed(kernel, "group_sums")
    for change in ((0, 0, 0, 0), (0, 0, -1, -1)):
        wrong = kernel.copy()
        wrong[change] += 0.5
        assert not is_group_sums(wrong)
    if width > 1:
        assert not is_group_sums(np.roll(kernel, 1, axis=3))
        extra = kernel.copy()
        extra[0, 0, 0, 1] = 1
        assert not is_group_sums(extra)


def test_another_shape_is_not_a_sum() -> None:
    for shape in ((1, 1, 0, 0), (1, 1, 4, 0), (3, 3, 8, 4), (1, 1, 9, 4), (1, 1, 12, 4), (8, 4)):
        assert not is_group_sums(np.ones(shape, np.float32))


def test_a_number_is_every_value() -> None:
    assert equals_fixed(np.ones((2, 3)), 1.0) and not equals_fixed(np.array([1.0, 2.0]), 1.0)

import numpy as np
import pytest

from porter.verification.numbers import distance, farthest_channel, farthest_draw, norms, top_margin


def test_equal_arrays_are_no_distance_apart() -> None:
    values = np.array([[1.0, -2.0], [3.0, 4.0]])
    found = distance(values, values.copy())
    assert (found.max_abs, found.l1, found.rel_l2, found.argmax_equal) == (0.0, 0.0, 0.0, True)
    assert found.snr_db is None and found.psnr_db is None


def test_figures_by_hand() -> None:
    found = distance(np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))
    assert found.max_abs == 0.5
    assert found.l1 == 0.25
    assert found.rel_l2 == pytest.approx(0.1)
    assert found.snr_db == pytest.approx(20.0)
    assert found.psnr_db == pytest.approx(20 * np.log10(4 / np.sqrt(0.125)))


def test_the_top_class_is_compared_of_scores_only() -> None:
    wanted, got = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.25, 0.5]])
    assert distance(wanted, got).argmax_equal is False and distance(wanted, wanted).argmax_equal
    assert distance(wanted.reshape(1, 2, 1, 2), got.reshape(1, 2, 1, 2)).argmax_equal is None
    assert top_margin(wanted, got) == pytest.approx(1 / np.sqrt(2)) and top_margin(wanted, wanted) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_on_one_side_is_infinitely_far(bad: float) -> None:
    found = distance(np.array([1.0, 2.0]), np.array([1.0, bad]))
    assert found.rel_l2 == np.inf and found.argmax_equal is None


def test_the_same_infinities_on_both_sides_are_equal() -> None:
    assert distance(np.array([1.0, -np.inf]), np.array([1.0, -np.inf])).rel_l2 == 0.0


def test_a_source_of_zeros() -> None:
    assert distance(np.zeros(3), np.zeros(3)).rel_l2 == 0.0
    assert distance(np.zeros(3), np.ones(3)).rel_l2 == np.inf


def test_half_precision_is_compared_in_double() -> None:
    big = np.array([60000.0, 60000.0], np.float16)
    assert distance(big, big).rel_l2 == 0.0


@pytest.mark.parametrize("last", [4.0, np.nan])
def test_norms_of_parts_add_up_to_the_distance_of_the_whole(last: float) -> None:
    wanted, got = np.array([3.0, -4.0, 0.0, 2.0]), np.array([3.5, -4.0, 1.0, last])
    whole, parts = distance(wanted, got), norms(wanted[:2], got[:2]) + norms(wanted[2:], got[2:])
    assert parts.rel_l2 == pytest.approx(whole.rel_l2) and parts.max_abs == whole.max_abs


@pytest.mark.parametrize("shape", [(2, 40, 31, 33), (3, 700, 50), (2, 90_000), (70_000,)])
def test_norms_of_large_arrays_are_the_distance_of_the_whole(shape: tuple[int, ...]) -> None:
    """Of channels last beside channels first, too."""
    random = np.random.default_rng(4)
    wanted = np.moveaxis(
        random.normal(size=(*shape[:1], *shape[2:], *shape[1:2])).astype(np.float32),
        -1,
        1 if len(shape) > 1 else 0,
    )
    got = np.ascontiguousarray(wanted) + random.normal(0, 1e-3, shape)
    got.flat[-1] += 1.0
    whole, parts = distance(wanted, got), norms(wanted, got)
    assert parts.rel_l2 == pytest.approx(whole.rel_l2, rel=1e-12) and parts.max_abs == whole.max_abs > 0.9
    got.flat[-1] = np.nan
    assert norms(wanted, got).rel_l2 == np.inf


def test_finite_values_whose_squares_are_not_are_as_far_as_smaller_ones() -> None:
    source = np.array([[3.0, -4.0]])
    for found in (
        distance(1e200 * source, 1e200 * 1.01 * source),
        norms(1e200 * source, 1e200 * 1.01 * source),
    ):
        assert found.rel_l2 == pytest.approx(0.01, rel=1e-12)


def test_an_undefined_distance_is_the_farthest_wherever_it_stands() -> None:
    """The norms of numbers near float64's largest are infinite, and their ratio is NaN, which is larger than
    no number: a draw before it hid it.
    """
    source = np.stack([np.full((2, 8), number) for number in (1.0, 1e308, 1.0)])
    port = np.stack([np.full((2, 8), number) for number in (1.0, -1e308, 2.0)])
    with np.errstate(over="ignore"):
        found = farthest_draw(source, port), farthest_channel(source, port, 0.0)
    assert all(np.isnan(apart.rel_l2) for apart in found)

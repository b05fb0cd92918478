import ml_dtypes
import numpy as np
import pytest

from porter.base.dtypes import cast
from porter.base.errors import OverflowsError


def test_a_value_too_large_for_half_precision_is_refused_by_name() -> None:
    with pytest.raises(OverflowsError, match="1 of 2 values do not fit into float16") as caught:
        cast(np.array([1.0, 70000.0], np.float32), "float16", "stem/norm:variance")
    assert caught.value.where == "stem/norm:variance" and "--dtype bfloat16" in str(caught.value.next)


def test_overflow_can_be_allowed() -> None:
    assert np.isinf(cast(np.array([70000.0], np.float32), "float16", "x", allow_overflow=True)[0])


def test_bfloat16_holds_it() -> None:
    found = cast(np.array([70000.0], np.float32), "bfloat16", "x")
    assert found.dtype == ml_dtypes.bfloat16 and np.isfinite(found.astype(np.float32)[0])


def test_what_was_infinite_before_is_no_overflow() -> None:
    assert np.isinf(cast(np.array([np.inf], np.float32), "float16", "x")[0])


def test_integers_stay() -> None:
    counted = np.array(7, np.int64)
    assert cast(counted, "float16", "x") is counted


def test_single_to_double_is_exact() -> None:
    values = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    assert np.array_equal(cast(values, "float64", "x").astype(np.float32), values)

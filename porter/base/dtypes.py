"""The number types in which a port is stored and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from porter.base.errors import OverflowsError
from porter.base.options import ALLOW_OVERFLOW, DTYPE

Array = NDArray[np.generic]
Numbers = NDArray[Any]
"""An array of any type that is computed with."""
Float64Array = NDArray[np.float64]
NamedArrays = Mapping[str, Array]
"""Arrays by name, path or role."""
Dtype = Literal["float32", "float16", "bfloat16", "float64"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
HALVES: tuple[Dtype, ...] = ("float16", "bfloat16")
"""Types of half precision."""


def storage_type(dtype: Dtype) -> np.dtype[np.generic]:
    """Return numpy's type of this name. numpy has no bfloat16 of its own: ml_dtypes adds it."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: F401  gives numpy the name; slow to import
    return np.dtype(dtype)


def is_floating(array: Array) -> bool:
    """Return whether an array holds floating-point numbers, including ml_dtypes' types."""
    return np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16"


def cast(array: Array, dtype: Dtype, name: str, allow_overflow: bool = False) -> Array:
    """Return `array` in the storage type; integers stay as they are.

    Raises:
        OverflowsError: a finite value would become infinite, unless `allow_overflow`.
    """
    if not is_floating(array) or array.dtype == storage_type(dtype):
        return array
    with np.errstate(over="ignore"):
        rounded = array.astype(storage_type(dtype))
    if not allow_overflow and array.dtype.itemsize > rounded.dtype.itemsize:
        lost = int(np.count_nonzero(np.isfinite(array) & ~np.isfinite(rounded)))
        if lost:
            raise OverflowsError(
                f"{lost} of {array.size} values do not fit into {dtype}",
                where=name,
                next=f"choose {DTYPE('bfloat16')} or float32, or let them be infinite: {ALLOW_OVERFLOW()}",
            )
    return rounded

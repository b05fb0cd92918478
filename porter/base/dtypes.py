"""The number types in which a port is stored and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""The precision of an evaluation. An NVIDIA GPU's TF32 keeps 10 of float32's 23 bits in products; it is off
in fp32. bf16 and fp16 are torch's autocast: convolutions and products run in that type, batch norms in
float32, and the weights stay float32.
"""


@dataclass(frozen=True)
class Run:
    """How a model runs over many photos.

    Attributes:
        compiled: by torch.compile, which fuses what stands between its convolutions.
        channels_last: how maps lie in memory, where the framework offers both.
    """

    precision: Precision = "fp32"
    compiled: bool = False
    channels_last: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether only its precision is chosen."""
        return self == Run(self.precision)

    @property
    def words(self) -> str:
        """Such as `bf16, compiled, channels first`; the usual order of the channels is not said."""
        words: list[str] = [self.precision]
        if self.compiled:
            words.append("compiled")
        if not self.channels_last:
            words.append("channels first")
        return ", ".join(words)


FP32 = Run()


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

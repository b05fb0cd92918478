"""How much float32 may be off where an op's values are far smaller than the numbers that they come from.

Runtimes compute sigmoids to a unit in the last place of 1, the largest that one gives: onnxruntime's of -16.5
is 8.9e-8 instead of 6.6e-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.graph.ops import (
    Celu,
    Elu,
    Erf,
    Exp,
    Gelu,
    HardSigmoid,
    HardSwish,
    LogSoftmax,
    Mish,
    Selu,
    Sigmoid,
    Softmax,
    Softplus,
    Swish,
    Tanh,
)

if TYPE_CHECKING:  # `porter pads` needs no numpy
    import numpy as np
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

_ULP = 2.0**-23
"""The unit in the last place of 1 in float32."""
_TINY = 2.0**-126
"""Runtimes take smaller numbers for 0."""
_OF_ONE = (Celu, Elu, Erf, HardSigmoid, LogSoftmax, Selu, Sigmoid, Softmax, Softplus, Tanh)
"""Ops whose values are made of numbers near 1, or lie between -1 and 1."""
_OF_INPUT = (Gelu, HardSwish, LogSoftmax, Mish, Swish)
"""Ops whose values are parts of what they are given."""


def absolute_error(op: type[Any], given: Doubles) -> Doubles | None:
    """Return how much float32 may be off at each of an op's values; None if they are right in relative terms.

    Args:
        given: what the op reads.
    """
    if not issubclass(op, (Exp, *_OF_ONE, *_OF_INPUT)):
        return None
    error_near_one = _ULP if issubclass(op, _OF_ONE) else 0.0
    least_error = _TINY if issubclass(op, Exp) else error_near_one
    relative_to_input = _ULP if issubclass(op, _OF_INPUT) else 0.0
    errors: Doubles = abs(given) * relative_to_input + least_error
    return errors
